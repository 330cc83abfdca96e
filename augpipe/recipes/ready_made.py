"""Recipes ready to use."""

from collections.abc import Callable, Mapping
from typing import Any, Never

from augpipe import policies
from augpipe.ops import (
    CenterCrop,
    ColorCast,
    Flip,
    LensDistortion,
    Letterbox,
    MultiResolutionCrop,
    Normalize,
    OneCrop,
    RandomResizedCrop,
    Rotate,
    Vignette,
)
from augpipe.ops.crops import usual_scale
from augpipe.ops.op import Op, pair
from augpipe.recipes.parts import with_ops
from augpipe.recipes.recipe import Border, Recipe
from augpipe.recipes.schedule import Schedule
from augpipe.validation.models import changed

BLACK = (0.0, 0.0, 0.0)


def deep_image(size: int = 224, scales: tuple[int, ...] = (256, 512)) -> Recipe:
    """The augmentations of Table 1 of the Deep Image papers in its order and with its counts, then normalisation.

    Args:
        size: output height and width, in pixels.
        scales: short sides that the image is resized to before it is cropped, in pixels; one is drawn.
    """
    ops = (
        ColorCast(),
        Vignette(),
        LensDistortion(),
        Rotate(),
        Flip(),
        MultiResolutionCrop(size=size, scales=scales),
        Normalize(),
    )
    return Recipe(name="deep_image", ops=ops)


def trivial_augment_wide(
    size: int = 224, *, border: Border = "context", fill: tuple[float, float, float] = BLACK
) -> Recipe:
    """A random resized crop, a flip, TrivialAugment's one op of 14, and normalisation.

    Args:
        size: output height and width, in pixels.
        border: what an op shows where it looks beyond the crop. torchvision and timm crop first and know no more:
            `border="constant"` is theirs, black or timm's `fill=(124, 116, 104)`.
        fill: R, G, B of a constant border, in levels.
    """
    return _trained("trivial_augment_wide", size, policies.trivial_augment_wide(), border, fill)


def rand_augment(
    size: int = 224,
    n: int = 2,
    magnitude: int = 9,
    *,
    border: Border = "context",
    fill: tuple[float, float, float] = BLACK,
) -> Recipe:
    """As `trivial_augment_wide`, with `n` ops at a `magnitude` of 0..30 each (RandAugment)."""
    return _trained("rand_augment", size, policies.rand_augment(n, magnitude), border, fill)


def auto_augment(
    policy: str = "imagenet",
    size: int = 224,
    *,
    border: Border = "context",
    fill: tuple[float, float, float] = BLACK,
) -> Recipe:
    """As `trivial_augment_wide`, with a pair of AutoAugment's ops for "imagenet" or "cifar10"."""
    return _trained("auto_augment", size, policies.auto_augment(policy), border, fill)


def three_augment(size: int = 224) -> Recipe:
    """A random resized crop, a flip, DeiT III's 3-Augment (gray, solarised or blurred; jitter), normalisation."""
    return _trained("three_augment", size, policies.three_augment())


def timm(
    policy: str, size: int = 224, *, border: Border = "context", fill: tuple[float, float, float] = BLACK
) -> Recipe:
    """As `trivial_augment_wide`, with a policy that timm names, such as "rand-m9-mstd0.5-inc1"; see `policies.timm`."""
    return _trained(policy, size, policies.timm(policy), border, fill)


def from_timm(transform: Any = None, /, **arguments: Any) -> Recipe:
    """The recipe of `timm.data.create_transform(**arguments)` for training, or of what it has made; what differs is
    logged.

    Raises:
        ValueError: something cannot be mapped; lists all of it.
    """
    from augpipe.recipes.imported import from_timm as imported

    return imported(transform, **arguments).logged()


def _trained(
    name: str,
    size: int,
    policy: tuple[Op, ...],
    border: Border = "context",
    fill: tuple[float, float, float] = BLACK,
) -> Recipe:
    ops = (RandomResizedCrop(size=size), Flip(), *policy, Normalize())
    return Recipe.model_validate({"name": name, "border": border, "fill": fill, "ops": ops})


def evaluation(size: int = 224, scale: int | None = None) -> Recipe:
    """The centre `size` x `size` pixels of the image with its short side at `scale`, normalised.

    Args:
        size: output height and width, in pixels.
        scale: in pixels; None for 8/7 of the longer side of `size`, as 256 for 224 and 37 for 32; see `usual_scale`.
    """
    crop = CenterCrop(size=size)  # which checks the size before anything is reckoned with it
    if scale is None:
        scale = usual_scale(max(pair(crop.size)))
    return Recipe(name="evaluation", ops=(CenterCrop(size=crop.size, scale=scale), Normalize()))


def evaluation_of(recipe: Recipe, scale: int | None = None) -> Recipe:
    """A recipe without randomness whose images a model that was trained on `recipe` understands.

    It takes the centre, of the same size, interpolated and normalised alike; of a recipe that keeps whole images, all.

    Args:
        recipe: what a model is trained on.
        scale: the short side that the image is resized to, in pixels. None: the smallest of a
            `MultiResolutionCrop`'s scales, or `usual_scale` after a `RandomResizedCrop`; a `CenterCrop` stays as it is.

    Raises:
        ValueError: the recipe has several views, or `scale` is smaller than its crop.
    """
    if len(recipe.all_views) > 1:
        raise ValueError(
            f"the recipe {recipe.name or 'unnamed'!r} has {len(recipe.all_views)} views, and evaluation cannot be "
            "told from it. Give eval_recipe, such as recipes.evaluation(224)."
        )
    (view,) = recipe.all_views
    ops: list[Op] = [op.centred for op in view.crops]
    if recipe.mosaic is not None:
        ops = [Letterbox(size=recipe.mosaic.size, fill=recipe.mosaic.fill), *ops]
    if scale is not None and view.out_size is not None:
        height, width = view.out_size
        ops = [CenterCrop(size=height if height == width else (height, width), scale=scale)]
    ops += [op for op in view.ops if isinstance(op, Normalize)]
    name = f"evaluation of {recipe.name or 'unnamed'}"
    look = "bilinear" if recipe.interpolation == "random" else recipe.interpolation
    kept = {"channels": recipe.channels, "interpolation": look, "antialias": recipe.antialias}
    return Recipe.model_validate({"name": name, "ops": ops, **kept})


def resized(recipe: Recipe, size: int) -> Recipe:
    """The recipe with images of another size, given by the longer side of its first view's, in pixels.

    The sizes of all crops change in proportion, and the scales that images are resized to before; ranges stay as they
    are.

    Raises:
        ValueError: a view has no size of its own, or its crops do not add up to `size` pixels.
    """
    first = recipe.all_views[0].out_size
    if first is None or any(view.out_size is None for view in recipe.all_views):
        raise ValueError(
            f"the recipe {recipe.name or 'unnamed'!r} keeps whole images, which have no size to change. Add a crop."
        )
    factor = size / max(first)

    def scaled(op: Op) -> Op:
        if isinstance(op, OneCrop):
            return changed(op, chains=tuple(tuple(map(scaled, chain)) for chain in op.chains))
        fields = {name: _scaled(getattr(op, name), factor) for name in op.scaled_px}
        return changed(op, **fields) if fields else op

    mosaic = recipe.mosaic and changed(recipe.mosaic, size=_scaled(recipe.mosaic.size, factor))
    made = with_ops(recipe, scaled, mosaic=mosaic)
    if max(found := made.all_views[0].out_size or (0, 0)) != size:
        raise ValueError(
            f"resized({recipe.name or 'unnamed'!r}, {size}): crops and paddings in proportion make "
            f"{found[0]}x{found[1]}. Give a size at which all are whole pixels, or end with a Resize."
        )
    return made


def _scaled(pixels: Any, factor: float) -> Any:
    """Pixels of a field, one number or several, at another size: 0 and None stay, and all else is a pixel at least."""
    if isinstance(pixels, tuple):
        return tuple(_scaled(one, factor) for one in pixels)
    return max(round(pixels * factor), 1) if pixels else pixels


def progressive(recipe: Recipe, sizes: Mapping[int, int]) -> Schedule:
    """A schedule of a recipe whose images change their size, such as {0: 128, 10: 176, 20: 224}.

    Small images at first cost a fraction of the time (Howard 2018; Tan & Le 2021, "EfficientNetV2").

    Args:
        recipe: what is done to images of any size.
        sizes: the first epoch of each size -> the longer side in pixels, see `resized`.
    """
    return Schedule.of({epoch: resized(recipe, size) for epoch, size in sizes.items()})


def ramp(first: int, last: int, *, begin: int, end: int, step: int = 32) -> dict[int, int]:
    """Sizes for `progressive`: `first` until epoch `begin`, `last` from epoch `end` on, below a straight line between.

    Args:
        first, last: in pixels.
        begin, end: epochs, 0 <= begin < end.
        step: between them sizes are multiples of it.

    Raises:
        ValueError: epochs or sizes are none.
    """
    if not 0 <= begin < end or first < 1 or last < 1 or step < 1:
        raise ValueError(
            f"ramp({first}, {last}, begin={begin}, end={end}, step={step}): sizes and step are at least 1, and "
            "begin is from 0 on and below end."
        )
    sizes = {0: first}
    for epoch in range(begin + 1, end + 1):
        between = first + (last - first) * (epoch - begin) / (end - begin)
        size = last if epoch == end else min(max(int(between) // step * step, min(first, last)), max(first, last))
        if size != list(sizes.values())[-1]:
            sizes[epoch] = size
    return sizes


def none(*size: Never, **options: Never) -> Recipe:
    """No change at all: every image at its own size, in levels 0..255; takes no arguments."""
    if size or options:
        raise TypeError(
            "recipes.none keeps each image at its own size, and takes no arguments. Write recipes.none(), or "
            "recipes.evaluation(224) for the centre of each at one size."
        )
    return Recipe(name="none")


BY_NAME: dict[str, Callable[..., Recipe]] = {
    "deep_image": deep_image,
    "trivial_augment_wide": trivial_augment_wide,
    "rand_augment": rand_augment,
    "auto_augment": auto_augment,
    "three_augment": three_augment,
    "evaluation": evaluation,
    "none": none,
}
"""What the command line accepts as well as a TOML file."""
