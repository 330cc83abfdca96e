"""Recipes ready to use."""

from augpipe.ops import (
    CenterCrop,
    ColorCast,
    Flip,
    LensDistortion,
    MultiResolutionCrop,
    Normalize,
    RandomResizedCrop,
    Rotate,
    Vignette,
)
from augpipe.ops.op import Op, pair
from augpipe.recipe import Recipe


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


def evaluation(size: int = 224, scale: int = 256) -> Recipe:
    """The centre `size` x `size` pixels of the image with its short side at `scale`, normalised."""
    return Recipe(name="evaluation", ops=(CenterCrop(size=size, scale=scale), Normalize()))


def evaluation_of(recipe: Recipe, scale: int | None = None) -> Recipe:
    """A recipe without randomness whose images a model that was trained on `recipe` understands.

    It takes the centre, of the same size and normalised alike. A recipe that keeps whole images keeps them.

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
    ops: list[Op] = []
    if isinstance(view.crop, CenterCrop):
        ops.append(view.crop if scale is None else CenterCrop(size=view.crop.size, scale=scale))
    elif isinstance(view.crop, MultiResolutionCrop):
        ops.append(CenterCrop(size=view.crop.size, scale=scale or min(view.crop.scales)))
    elif isinstance(view.crop, RandomResizedCrop):
        ops.append(CenterCrop(size=view.crop.size, scale=scale or usual_scale(max(pair(view.crop.size)))))
    ops += [op for op in view.ops if isinstance(op, Normalize)]
    return Recipe.model_validate({"name": f"evaluation of {recipe.name or 'unnamed'}", "ops": ops})


def usual_scale(size: int) -> int:
    """The short side that evaluation takes the central `size` of, in pixels: 256 for 224, as torchvision and timm."""
    return -(-size * 8 // 7)


def none() -> Recipe:
    """No change at all: every image at its own size, in levels 0..255."""
    return Recipe(name="none")


BY_NAME = {"deep_image": deep_image, "evaluation": evaluation, "none": none}
"""What the command line accepts beside a TOML file."""
