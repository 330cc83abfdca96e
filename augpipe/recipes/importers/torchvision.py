"""Transforms of torchvision, v1 and v2, as ops: told by class name, read by attribute."""

from collections.abc import Callable, Iterable
from typing import Any

from augpipe import ops, policies
from augpipe.ops import Op
from augpipe.policies.automatic import one_of
from augpipe.policies.magnitudes import solarize
from augpipe.recipes.importers.findings import Findings, Maker, channels, erase, levels, same

SILENT = {
    *("Identity", "PILToTensor", "RGB", "ToImage", "ToPILImage", "ToPureTensor", "ClampBoundingBoxes"),
}
"""Transforms that change the container alone."""

PILLOW_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


def found_in(transform: Any) -> Findings:
    """The ops of a `torchvision.transforms` or `torchvision.transforms.v2` object, and what cannot be mapped."""
    found = Findings(source="torchvision", name_of=_name)
    flat = list(_flattened(transform))
    scales = False
    place = 0
    while place < len(flat):
        one, later = flat[place], flat[place + 1] if place + 1 < len(flat) else None
        name = _name(one)
        if name == "Resize":
            place += _resize(found, one, later)
        elif name == "ToTensor" or (name in ("ToDtype", "ConvertImageDtype") and getattr(one, "scale", True)):
            scales = True
        elif name not in SILENT and name != "ToDtype":
            found.add_by(MADE, one)
        place += 1
    if scales and not any(op.op == "normalize" for op in found.ops):
        found.ops.append(ops.Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))
    return found


def _name(transform: Any) -> str:
    return type(transform).__name__


def _flattened(transform: Any) -> Iterable[Any]:
    if _name(transform) in ("Compose", "Sequential"):
        for inner in _held(transform):
            yield from _flattened(inner)
    else:
        yield transform


def _held(transform: Any) -> list[Any]:
    held = getattr(transform, "transforms", transform)
    return list(held) if isinstance(held, Iterable) else [held]


def _resize(found: Findings, one: Any, later: Any) -> int:
    """A Resize and the crop behind it; returns how many more transforms were taken."""
    size = _sides(one.size)
    if len(size) == 2:
        found.refuse("Resize", f"size={list(size)} squeezes the image, which no crop here does; give one number")
    elif later is None or _name(later) not in ("CenterCrop", "RandomCrop"):
        found.refuse("Resize", "without a CenterCrop or RandomCrop behind it images differ in size")
    elif _name(later) == "CenterCrop":
        found.add("Resize, CenterCrop", ops.CenterCrop(size=_pair(later.size), scale=size[0]), note=_kernel(one))
        return 1
    elif getattr(later, "padding", None):
        found.refuse("RandomCrop", "padding behind a Resize")
    else:
        found.add(
            "Resize, RandomCrop",
            ops.MultiResolutionCrop(size=_pair(later.size), scales=(size[0],)),
            note=_kernel(one) or "the last of the places along each axis is not drawn.",
        )
        return 1
    return 0


def _sides(size: Any) -> tuple[int, ...]:
    return (int(size),) if isinstance(size, int) else tuple(int(side) for side in size)


def _pair(size: Any) -> tuple[int, int]:
    sides = _sides(size)
    return sides[0], sides[-1]


def _kernel(one: Any) -> str:
    """What differs in interpolation."""
    given = getattr(one, "interpolation", "bilinear")
    mode = PILLOW_FILTERS.get(given, given) if isinstance(given, int) else getattr(given, "value", given)
    return "" if mode == "bilinear" else f"{mode} interpolation becomes bilinear."


def _beyond(found: Findings, one: Any) -> None:
    """The border of a transform that shows what lies outside the image."""
    fill = getattr(one, "fill", None)
    found.borders.append(("constant", levels(None if isinstance(fill, dict) else fill)))


def _crop(found: Findings, one: Any) -> None:
    made = ops.RandomResizedCrop(size=_pair(one.size), scale=tuple(one.scale), ratio=tuple(one.ratio))
    found.add("RandomResizedCrop", made, note=_kernel(one))


def _random_crop(found: Findings, one: Any) -> None:
    padding = _sides(one.padding or 0)
    if one.pad_if_needed or len(set(padding)) > 1:
        raise ValueError("pad_if_needed and paddings that differ are not mapped")
    if not padding[0]:
        raise ValueError("without a Resize before it or padding; put Resize before it")
    border = {"constant": "constant", "edge": "edge"}.get(one.padding_mode, "reflect")
    reach = (-float(padding[0]), float(padding[0]))
    moved = ops.Translate(horizontal=reach, vertical=reach, unit="px", step=1.0)
    found.borders.append((border, levels(one.fill)))
    size = "x".join(map(str, _pair(one.size)))
    note = f"as the centre {size}, moved by up to {padding[0]} px: the same for images of just that size."
    if border == "reflect":
        note += " The outermost pixel is repeated where torchvision's reflect leaves it out."
    found.add("RandomCrop", ops.CenterCrop(size=_pair(one.size)), moved, note=note)


def _rotation(found: Findings, one: Any) -> None:
    if one.expand or one.center is not None:
        raise ValueError("expand and center are not mapped")
    _beyond(found, one)
    found.add("RandomRotation", ops.Rotate(max_deg=tuple(one.degrees), step=None), note=_kernel(one))


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
        made.append(ops.Translate(horizontal=(-right, right), vertical=(-down, down)))
    _beyond(found, one)
    moved = "translations are not cut to whole pixels." if one.translate is not None else ""
    found.add("RandomAffine", *made, note=" ".join(part for part in (_kernel(one), moved) if part))


def _jitter(found: Findings, one: Any) -> None:
    given = {name: getattr(one, name) for name in ("brightness", "contrast", "saturation", "hue")}
    fields = {name: tuple(value) for name, value in given.items() if value is not None}
    differs = [
        text
        for name, text in (
            ("contrast", "contrast moves about mid-grey instead of the image's mean"),
            ("hue", "hue turns in YIQ instead of HSV"),
        )
        if name in fields
    ]
    found.add("ColorJitter", ops.ColorJitter.model_validate(fields), note=f"{', '.join(differs)}." if differs else "")


def _grayscale(found: Findings, one: Any) -> None:
    if one.num_output_channels != 3:
        raise ValueError("one channel; give num_output_channels=3, as batches have three")
    found.add("Grayscale", ops.Grayscale(p=1.0))


def _perspective(found: Findings, one: Any) -> None:
    _beyond(found, one)
    note = "corners move by any part of a pixel. " + _kernel(one)
    found.add("RandomPerspective", ops.Perspective(distortion=one.distortion_scale, p=one.p), note=note.strip())


def _erasing(found: Findings, one: Any) -> None:
    normalised = next((op for op in found.ops if isinstance(op, ops.Normalize)), None)
    is_noise = one.value in (None, "random")
    if not is_noise and any(levels(one.value)):
        raise ValueError(f"value={one.value!r} is not mapped; 0 and 'random' are")
    fill = "noise" if is_noise else (0.0, 0.0, 0.0) if normalised is None else "mean"
    found.add("RandomErasing", erase(one.p, one.scale, one.ratio, fill, normalised))


def _group(make: Callable[[Any, tuple[Op, ...]], Op], note: str = "") -> Maker:
    def add(found: Findings, one: Any) -> None:
        inner = found.within()
        members: list[Op] = []
        for held in _held(one):
            before = len(inner.ops)
            for part in _flattened(held):
                inner.add_by(MADE, part)
            own = tuple(inner.ops[before:])
            members.append(own[0] if len(own) == 1 else ops.AllOf.model_validate({"ops": own or (ops.Identity(),)}))
        if len(inner.ops) or not found.problems:
            found.add(_name(one), make(one, tuple(members)), note=note)

    return add


def _policy(make: Callable[[Any], tuple[Op, ...]]) -> Maker:
    def add(found: Findings, one: Any) -> None:
        _beyond(found, one)
        note = "translations are not cut to whole pixels, and geometry acts before tone. " + _kernel(one)
        found.add(_name(one), *make(one), note=note.strip())

    return add


MADE: dict[str, Maker] = {
    "RandomResizedCrop": _crop,
    "CenterCrop": same(ops.CenterCrop, size=lambda one: _pair(one.size)),
    "RandomCrop": _random_crop,
    "RandomHorizontalFlip": same(ops.Flip),
    "RandomVerticalFlip": same(ops.Flip, direction="vertical"),
    "RandomRotation": _rotation,
    "RandomAffine": _affine,
    "RandomPerspective": _perspective,
    "ColorJitter": _jitter,
    "RandomGrayscale": same(ops.Grayscale),
    "Grayscale": _grayscale,
    "GaussianBlur": same(
        ops.Blur,
        sigma_px=lambda one: tuple(one.sigma),
        p=1.0,
        note="a wider triangle of the same variance instead of a Gaussian cut at kernel_size.",
    ),
    "RandomInvert": same(ops.Invert),
    "RandomPosterize": same(ops.Posterize, bits=lambda one: (one.bits, one.bits)),
    "RandomSolarize": lambda found, one: found.add("RandomSolarize", solarize(one.threshold, one.p)),
    "RandomAdjustSharpness": same(ops.Sharpness, factor=lambda one: (one.sharpness_factor,) * 2),
    "RandomAutocontrast": same(ops.AutoContrast),
    "RandomEqualize": same(ops.Equalize),
    "RandomChannelPermutation": same(ops.ChannelShuffle, p=5 / 6),
    "RandomErasing": _erasing,
    "Normalize": same(ops.Normalize, mean=lambda one: channels(one.mean), std=lambda one: channels(one.std)),
    "RandomApply": _group(lambda one, held: ops.AllOf.model_validate({"ops": held, "p": float(one.p)})),
    "RandomChoice": _group(lambda one, held: one_of(zip(held, one.p or [1.0] * len(held), strict=True))),
    "RandomOrder": _group(
        lambda one, held: ops.AllOf.model_validate({"ops": held}), "the order is that of the list, always."
    ),
    "RandAugment": _policy(lambda one: policies.rand_augment(one.num_ops, one.magnitude, one.num_magnitude_bins)),
    "TrivialAugmentWide": _policy(lambda one: policies.trivial_augment_wide(one.num_magnitude_bins)),
    "AutoAugment": _policy(lambda one: policies.auto_augment(one.policy.value)),
}
"""The name of a transform -> what makes ops of it."""
