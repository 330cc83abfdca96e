"""Transforms of torchvision, v1 and v2, as ops: told by class name, read by attribute."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import exp
from types import FunctionType
from typing import Any

from augpipe import ops, policies
from augpipe.ops import Op
from augpipe.ops.op import Beyond
from augpipe.policies.automatic import one_of
from augpipe.policies.magnitudes import solarize
from augpipe.recipes.importers.findings import (
    FIELD,
    PILLOW_FILTERS,
    UNCLIPPED,
    UNEVEN,
    Findings,
    Look,
    Maker,
    channels,
    erase,
    erase_several,
    levels,
    refuse_crops,
    refused,
    same,
)
from augpipe.recipes.importers.looks import finished_in_turn, note_of
from augpipe.recipes.importers.normalized import level
from augpipe.recipes.importers.timm import ERASED
from augpipe.recipes.importers.torchvision_lambdas import of_arrays, of_levels, of_pillow, of_tensors
from augpipe.validation.models import changed

SILENT = {
    *("Identity", "PILToTensor", "ToImage", "ToPILImage", "ToPureTensor", "ClampBoundingBoxes"),
}
"""Transforms that change the container alone."""
TO_TENSORS = ("ToTensor", "PILToTensor", "ToImage", "ToDtype", "ConvertImageDtype")
"""Those behind which an image is a tensor."""

OF_WEIGHTS = ("ImageClassification", "SemanticSegmentation")
"""What weights of torchvision have as their transforms."""
TO_DTYPES = ("ToDtype", "ConvertImageDtype")


def _makes_levels(one: Any) -> bool:
    return str(getattr(one, "dtype", None)).rpartition(".")[2] == "uint8"


def found_in(transform: Any) -> Findings:
    """The ops of a `torchvision.transforms` or `torchvision.transforms.v2` object, and what cannot be mapped."""
    found = Findings(source="torchvision", measured_as=("torchvision",), name_of=_name)
    scales = False
    flat = list(_flattened(transform))
    found.makers = MADE
    if next((name for name in map(_name, flat) if name in ("ToPILImage", *TO_TENSORS)), "") == "ToPILImage":
        found.makers = MADE | {"Lambda": of_arrays}
    for one in flat:
        name = _name(one)
        if name == "ToTensor" or (name in TO_DTYPES and getattr(one, "scale", True) and not _makes_levels(one)):
            scales = True
        elif name == "ToPILImage" or (name in TO_DTYPES and _makes_levels(one)):
            scales = False
        if name in TO_TENSORS:
            found.makers = MADE | (OF_PARTS if scales else OF_LEVELS)
            if name in TO_DTYPES and not scales and not _makes_levels(one):
                found.makers |= {"Normalize": _normalize_levels} | dict.fromkeys(OF_UNIT, _counts_to_1)
        elif name == "ToPILImage":
            found.makers = MADE
        if name in TO_DTYPES or name == "ToTensor":
            continue
        if name not in SILENT:
            before = len(found.ops), len(found.rows)
            found.add_by(found.makers, one)
            if scales and not any(isinstance(op, ops.Normalize) for op in found.ops):
                found.fill_in_levels(*before)
    if scales and not any(op.op == "normalize" for op in found.ops):
        found.ops.append(ops.Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))
    return found


def _name(transform: Any) -> str:
    return "Lambda" if isinstance(transform, FunctionType) else type(transform).__name__


def _flattened(transform: Any) -> Iterable[Any]:
    if _name(transform) in ("Compose", "Sequential"):
        for inner in _held(transform):
            yield from _flattened(inner)
    elif _name(transform) in OF_WEIGHTS:
        yield from _of_weights(transform)
    else:
        yield transform


def _of_weights(one: Any) -> Iterable[Any]:
    """The transforms of weights, as of `ResNet50_Weights.DEFAULT.transforms()`, which is one that does all."""

    def part(name: str, **fields: Any) -> Any:
        return type(name, (), fields)()

    if one.resize_size is not None:
        yield part("Resize", size=one.resize_size, interpolation=one.interpolation, antialias=one.antialias)
    if hasattr(one, "crop_size"):
        yield part("CenterCrop", size=one.crop_size)
    yield from (part("ToTensor"), part("Normalize", mean=one.mean, std=one.std))


def _held(transform: Any) -> list[Any]:
    held = getattr(transform, "transforms", transform)
    return list(held) if isinstance(held, Iterable) else [held]


def _resize(found: Findings, one: Any) -> None:
    longest: Any = getattr(one, "max_size", None)
    if one.size is None:
        found.add("Resize", ops.ResizeLongest(size=longest), look=_look(one))
    elif len(size := _sides(one.size)) == 2:
        found.add("Resize", ops.Resize(size=_pair(size)), look=_look(one))
    else:
        found.add("Resize", ops.ResizeShortest(size=size[0], max_size=longest), look=_look(one))


def _random_resize(found: Findings, one: Any) -> None:
    # max_size itself is never drawn there
    found.add("RandomResize", ops.RandomResize(size=(one.min_size, one.max_size - 1)), look=_look(one))


def _scale_jitter(found: Findings, one: Any) -> None:
    width, height = one.target_size  # there in this order
    made = ops.RandomResize(factor=tuple(one.scale_range), within=(height, width))
    found.add("ScaleJitter", made, look=_look(one))


def _sides(size: Any) -> tuple[int, ...]:
    return (int(size),) if isinstance(size, int) else tuple(int(side) for side in size)


def _pair(size: Any) -> tuple[int, int]:
    sides = _sides(size)
    return sides[0], sides[-1]


def _look(one: Any) -> Look:
    given = getattr(one, "interpolation", "bilinear")
    mode = PILLOW_FILTERS.get(given, given) if isinstance(given, int) else getattr(given, "value", given)
    # of Pillow's images v1's and v2's resizes always average, and of tensors those of v2 unless they are told not to
    return Look(
        interpolation=str(mode), antialias=None if not hasattr(one, "antialias") else one.antialias is not False
    )


def _shrunk(one: Any) -> Look:
    """The look of a map that may shrink, which skips pixels then."""
    return replace(_look(one), antialias=False)


def _beyond(one: Any) -> Beyond:
    """The border of a transform that shows what lies outside the image."""
    fill = getattr(one, "fill", None)
    return "constant", levels(None if isinstance(fill, dict) else fill)


def _sanitize(found: Findings, one: Any) -> None:
    """Nothing of the image: which objects stay is an option of the call."""
    least = max(float(one.min_area), float(one.min_size) ** 2)
    found.add(
        "SanitizeBoundingBoxes",
        note=f"objects are dropped by the call: targets=TargetOptions(min_area={least:g}). It looks at areas alone: a "
        f"box of that area stays where one of its sides is below {one.min_size:g}.",
    )


def _crop(found: Findings, one: Any) -> None:
    made = ops.RandomResizedCrop(size=_pair(one.size), scale=tuple(one.scale), ratio=tuple(one.ratio))
    found.add("RandomResizedCrop", made, look=_look(one))


def _padding(one: Any) -> dict[str, Any]:
    """The border and the fill of what pads."""
    border = {"symmetric": "reflect", "reflect": "reflect_101"}.get(one.padding_mode, one.padding_mode)
    return {"border": border, "fill": levels(one.fill)}


def _random_crop(found: Findings, one: Any) -> None:
    padding, fields = _sides(one.padding or 0), _padding(one)
    made: dict[str, Any] = {"size": _pair(one.size), "pad_if_needed": one.pad_if_needed}
    padded: list[Op] = []
    if len(set(padding)) == 1:
        made["padding"] = padding[0]
    else:
        padded.append(ops.Pad.model_validate({"px": padding, **fields}))
    found.add("RandomCrop", *padded, ops.RandomCrop.model_validate(made | fields))


def _pad(found: Findings, one: Any) -> None:
    padding, fields = _sides(one.padding), _padding(one)
    found.add("Pad", ops.Pad.model_validate({"px": padding[0] if len(padding) == 1 else padding, **fields}))


def _zoom_out(found: Findings, one: Any) -> None:
    if isinstance(one.fill, dict):
        raise ValueError("a fill for each type is not mapped; give one number, or one a channel")
    note = "its canvas is scaled to the image's size: what follows in pixels, and not in parts, sees fewer."
    made = ops.ZoomOut(factor=tuple(one.side_range), fill=levels(one.fill), p=one.p)
    found.add("RandomZoomOut", made, note=note)


def _rotation(found: Findings, one: Any) -> None:
    if one.expand or one.center is not None:
        raise ValueError("expand and center are not mapped")
    found.add("RandomRotation", ops.Rotate(max_deg=tuple(one.degrees), step=None), look=_look(one), beyond=_beyond(one))


def _affine(found: Findings, one: Any) -> None:
    if getattr(one, "center", None) is not None:
        raise ValueError("center is not mapped")
    made: list[Op] = []
    if one.scale is not None:
        made.append(ops.Zoom(factor=tuple(one.scale)))
    if one.shear is not None:
        horizontal, vertical = tuple(one.shear[:2]), tuple(one.shear[2:]) or (0.0, 0.0)
        made.append(ops.Shear(horizontal_deg=horizontal, vertical_deg=vertical))
    if any(one.degrees):
        made.append(ops.Rotate(max_deg=(-one.degrees[1], -one.degrees[0]), step=None))  # there it turns clockwise
    if one.translate is not None:
        right, down = one.translate
        made.append(ops.Translate(horizontal=(-right, right), vertical=(-down, down), whole_px="nearest"))
    look = _shrunk(one) if one.scale is not None and one.scale[0] < 1.0 else _look(one)
    found.add("RandomAffine", *made, look=look, beyond=_beyond(one))


def _jitter(found: Findings, one: Any) -> None:
    given = {name: getattr(one, name) for name in ("brightness", "contrast", "saturation", "hue")}
    fields = {name: tuple(value) for name, value in given.items() if value is not None}
    if max(map(abs, fields.get("hue", (0.0,)))) > 0.5:
        raise ValueError(f"hue={fields['hue']} leaves -0.5..0.5, which torchvision refuses; choose a range within it")
    found.add("ColorJitter", ops.ColorJitter.model_validate({**fields, "about": "mean", "space": "hsv"}))


def _gaussian_blur(found: Findings, one: Any) -> None:
    sizes = sorted(set(_sides(one.kernel_size)))
    note = "" if len(sizes) == 1 else f"kernel_size={list(_sides(one.kernel_size))} becomes {sizes[-1]} both ways."
    sigma = tuple(float(end) for end in one.sigma)
    found.add("GaussianBlur", ops.GaussianBlur(sigma_px=(sigma[0], sigma[1]), kernel_px=sizes[-1], p=1.0), note=note)


def _normalize_levels(found: Findings, one: Any) -> None:
    """A Normalize of floats in 0..255, which a dtype without scale=True leaves so."""
    made = ops.Normalize(mean=channels(one.mean, 255.0), std=channels(one.std, 255.0))
    is_small = 255.0 * max(*made.mean, *made.std) <= 1.0
    note = "its mean and std are of levels in 0..255 there: no scale=True is before it." if is_small else ""
    found.add("Normalize", made, note=note)


def _counts_to_1(found: Findings, one: Any) -> None:
    raise ValueError("takes floats for 0..1, and they are 0..255 there. Write scale=True in the ToDtype before it")


def _distort(found: Findings, one: Any) -> None:
    """Each part with a chance of its own, and contrast first or last of those behind brightness."""
    p = float(one.p)
    jitters = {
        name: ops.ColorJitter.model_validate({name: tuple(getattr(one, name)), "about": "mean", "space": "hsv", "p": p})
        for name in ("brightness", "contrast", "saturation", "hue")
    }
    brightness, contrast, *rest = jitters.values()
    either = ops.OneOf(ops=(ops.AllOf(ops=(contrast, *rest)), ops.AllOf(ops=(*rest, contrast))))
    made = ops.AllOf(ops=(brightness, either, ops.ChannelShuffle(p=p * 5 / 6)))
    found.add("RandomPhotometricDistort", made)


def _noise(found: Findings, one: Any) -> None:
    """Of parts of the full level, whatever images hold."""
    if one.mean:
        raise ValueError(f"mean={one.mean} is not mapped; 0 is")
    note = "" if one.clip else UNCLIPPED
    found.add("GaussianNoise", ops.Noise(std=(255.0 * one.sigma,) * 2, p=1.0), note=note)


def _solarize_parts(found: Findings, one: Any) -> None:
    """A threshold of numbers in 0..1."""
    found.add("RandomSolarize", solarize(min(255.0 * one.threshold, 256.0), one.p))


def _grayscale(found: Findings, one: Any) -> None:
    found.channels = 1 if one.num_output_channels == 1 else 3
    found.add("Grayscale", ops.Grayscale(p=1.0))


def _rgb(found: Findings, one: Any) -> None:
    found.channels = 3


def _perspective(found: Findings, one: Any) -> None:
    made = ops.Perspective(distortion=one.distortion_scale, p=one.p)
    note = "corners move by any part of a pixel." + (f" {UNEVEN}" if one.distortion_scale > 0.6 else "")
    found.add("RandomPerspective", made, note=note, look=_shrunk(one), beyond=_beyond(one))


def _elastic_transform(found: Findings, one: Any) -> None:
    if len(set(one.alpha)) > 1 or len(set(one.sigma)) > 1:
        raise ValueError("alpha and sigma that differ along x and y are not mapped; give one number each")
    # there half the image's side is 1
    made = ops.ElasticTransform(alpha=0.5 * one.alpha[0], sigma=one.sigma[0], p=1.0)
    found.add("ElasticTransform", made, note=FIELD, look=_look(one), beyond=_beyond(one))


def _erasing(found: Findings, one: Any, unit: ops.Normalize | None = None) -> None:
    """A RandomErasing, of levels, or of the numbers that `unit` makes of them."""
    normalised = next((op for op in [*found.outer, *found.ops] if isinstance(op, ops.Normalize)), None)
    if hasattr(one, "probability"):
        _erasing_of_timm(found, one, normalised)
        return
    fill: Any = "noise" if one.value in (None, "random") else levels(one.value)
    if normalised is not None and fill == (0.0, 0.0, 0.0):
        fill = "mean"
    elif fill != "noise" and (numbers := normalised or unit) is not None:
        fill = level(fill, numbers)
    found.add("RandomErasing", erase(one.p, one.scale, one.ratio, fill, normalised))


def _erasing_parts(found: Findings, one: Any) -> None:
    """A RandomErasing of numbers in 0..1."""
    _erasing(found, one, ops.Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))


def _erasing_of_timm(found: Findings, one: Any, normalised: ops.Normalize | None) -> None:
    """timm's transform of that name, which stands among torchvision's; it fills with what is 0 in the end."""
    if one.mode not in ERASED:
        raise ValueError(f"mode={one.mode!r} is not mapped; 'const' and 'pixel' are")
    if one.num_splits > 1:
        raise ValueError(
            f"num_splits={one.num_splits} leaves a part of a batch whole, which is not mapped; set it to 0"
        )
    if normalised is None and one.mode == "pixel":
        raise ValueError("fills with normal numbers, which are levels behind a Normalize; put one before it")
    fill = (0.0, 0.0, 0.0) if normalised is None else ERASED[one.mode]
    ratio, area = tuple(map(exp, one.log_aspect_ratio)), (one.min_area, one.max_area)
    num = int(one.min_count), int(one.max_count)
    found.add("RandomErasing", erase_several(one.probability, area, ratio, fill, normalised, num))


def _group(make: Callable[[Any, tuple[Op, ...]], Op], note: str = "") -> Maker:
    def add(found: Findings, one: Any) -> None:
        inner = found.within()
        members: list[Op] = []
        for held in _held(one):
            before = len(inner.ops)
            for part in _flattened(held):
                inner.add_by(inner.makers, part)
            own = tuple(inner.ops[before:])
            refuse_crops(own)
            members.append(own[0] if len(own) == 1 else ops.AllOf.model_validate({"ops": own or (ops.Identity(),)}))
        if len(inner.ops) or not found.problems:
            found.add(_name(one), make(one, tuple(members)), note=note, holds=True)

    return add


def _sometimes(one: Any, held: tuple[Op, ...]) -> Op:
    if len(held) == 1 and isinstance(held[0], ops.Custom):
        return changed(held[0], p=float(one.p) * held[0].p)
    return ops.AllOf.model_validate({"ops": held, "p": float(one.p)})


def moved_by_whole_pixels(op: Op) -> Op:
    """A policy's choices with translations cut to whole pixels, as torchvision's."""
    if isinstance(op, ops.OneOf | ops.AllOf):
        return changed(op, ops=tuple(map(moved_by_whole_pixels, op.ops)))
    return changed(op, whole_px="towards_zero") if isinstance(op, ops.Translate) else op


def _policy(make: Callable[[Any], tuple[Op, ...]]) -> Maker:
    def add(found: Findings, one: Any) -> None:
        look = _look(one)
        made = tuple(map(moved_by_whole_pixels, make(one)))
        if not found.is_held:
            made = finished_in_turn(made, look.interpolation)
        found.add(_name(one), *made, note=note_of(made), look=look, beyond=_beyond(one))

    return add


MADE: dict[str, Maker] = {
    "RandomResizedCrop": _crop,
    "CenterCrop": same(ops.CenterCrop, size=lambda one: _pair(one.size)),
    "Pad": _pad,
    "RandomCrop": _random_crop,
    "RandomZoomOut": _zoom_out,
    "RandomIoUCrop": refused(
        "leaves each crop at its own size; write RandomResizedCrop, here with keep_objects=KeepObjects(rule='iou', "
        "share=[0.0, 0.1, 0.3, 0.5, 0.7, 0.9])"
    ),
    "Resize": _resize,
    "SanitizeBoundingBoxes": _sanitize,
    "RandomResize": _random_resize,
    "ScaleJitter": _scale_jitter,
    "RandomHorizontalFlip": same(ops.Flip),
    "RandomVerticalFlip": same(ops.Flip, direction="vertical"),
    "RandomRotation": _rotation,
    "RandomAffine": _affine,
    "RandomPerspective": _perspective,
    "ElasticTransform": _elastic_transform,
    "ColorJitter": _jitter,
    "RandomPhotometricDistort": _distort,
    "RandomGrayscale": same(ops.Grayscale),
    "Grayscale": _grayscale,
    "RGB": _rgb,
    "GaussianBlur": _gaussian_blur,
    "GaussianNoise": _noise,
    "RandomInvert": same(ops.Invert),
    "RandomPosterize": same(ops.Posterize, bits=lambda one: (one.bits, one.bits)),
    "RandomSolarize": lambda found, one: found.add("RandomSolarize", solarize(one.threshold, one.p)),
    "RandomAdjustSharpness": same(ops.Sharpness, factor=lambda one: (one.sharpness_factor,) * 2),
    "RandomAutocontrast": same(ops.AutoContrast),
    "RandomEqualize": same(ops.Equalize),
    "JPEG": same(ops.JpegCompression, quality=lambda one: _pair(one.quality), p=1.0),
    "RandomChannelPermutation": same(ops.ChannelShuffle, p=5 / 6),
    "RandomErasing": _erasing,
    "Normalize": same(ops.Normalize, mean=lambda one: channels(one.mean), std=lambda one: channels(one.std)),
    "Lambda": of_pillow,
    "RandomApply": _group(_sometimes),
    "RandomChoice": _group(lambda one, held: one_of(zip(held, one.p or [1.0] * len(held), strict=True))),
    "RandomOrder": _group(
        lambda one, held: ops.AllOf.model_validate({"ops": held}), "the order is that of the list, always."
    ),
    "RandAugment": _policy(lambda one: policies.rand_augment(one.num_ops, one.magnitude, one.num_magnitude_bins)),
    "TrivialAugmentWide": _policy(lambda one: policies.trivial_augment_wide(one.num_magnitude_bins)),
    "AutoAugment": _policy(lambda one: policies.auto_augment(one.policy.value)),
}
"""The name of a transform -> what makes ops of it."""
OF_PARTS: dict[str, Maker] = {
    "Lambda": of_tensors,
    "RandomErasing": _erasing_parts,
    "RandomSolarize": _solarize_parts,
}
"""Those that count in 0..1 behind ToTensor."""
OF_UNIT = ("ColorJitter", "GaussianNoise", "RandomPhotometricDistort", "RandomSolarize", "RandomInvert")
"""Transforms of colours that take the largest float for 1."""
OF_LEVELS: dict[str, Maker] = {"Lambda": of_levels}
"""Those of a tensor of levels in 0..255."""
