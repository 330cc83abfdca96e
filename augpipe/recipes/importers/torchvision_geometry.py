"""Transforms of torchvision that move pixels, as ops."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.op import Beyond
from augpipe.recipes.importers.findings import Findings, Maker
from augpipe.recipes.importers.makers import FIELD, OF_NUMPY, PILLOW_FILTERS, UNEVEN, levels, padded_crop, refused, same
from augpipe.recipes.importers.rows import Look
from augpipe.recipes.importers.sides import are_at_least
from augpipe.validation.models import changed

OVERLAPS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
"""Of which torchvision's crop by overlap draws one; at 1 the image stays as it is."""
LEAST_OVERLAP = 0.001
"""Stands for 0: an object is in the crop there, too."""
REDRAWS = 40
"""How often another overlap is drawn: without end there."""
OF_OVERLAP = (
    "the crop is resized to the image's size. Its area is drawn evenly and its ratio by its logarithm, where there "
    "both sides are drawn: images with one to five boxes show 56 % in the mean, and 59 % there. At an overlap of 0 an "
    "object is in the crop, and there the centre of one. Boxes stay that are seen, and there those whose centre is."
)
"""What differs in a crop by overlap."""
SEVERAL = "makes several images of one; write CenterCrop, or count=5 in a view of the recipe"


def _resize(found: Findings, one: Any) -> None:
    longest: Any = getattr(one, "max_size", None)
    if one.size is None:
        found.add("Resize", ops.ResizeLongest(size=longest, rounding="down"), look=look_of(found, one))
    elif len(size := sides(one.size)) == 2:
        found.add("Resize", ops.Resize(size=pair(size)), look=look_of(found, one))
    else:
        found.add("Resize", ops.ResizeShortest(size=size[0], max_size=longest), look=look_of(found, one))


def sides(size: Any) -> tuple[int, ...]:
    """The whole numbers of a size or a padding: one, two or four.

    Raises:
        ValueError: it is a part of a pixel.
    """
    if isinstance(size, float):
        raise ValueError(f"{size} is not a whole number of pixels")
    return (int(size),) if isinstance(size, int) else tuple(int(side) for side in size)


def pair(size: Any) -> tuple[int, int]:
    """Height and width of a size, of which one number stands for both."""
    both = sides(size)
    return both[0], both[-1]


NEAREST = ("nearest", "nearest-exact", "nearest_exact")
"""Names of the nearest pixel, which are one for PIL images."""
OF_MASKS = "torchvision.transforms.v2"
"""Where transforms are that change masks as well."""


def look_of(found: Findings, one: Any) -> Look:
    """How a transform looks between pixels: shrunk PIL images are averaged, and tensors where it is told to."""
    given = getattr(one, "interpolation", "bilinear")
    mode = PILLOW_FILTERS.get(given, given) if isinstance(given, int) else getattr(given, "value", given)
    averages: bool | None = None
    if hasattr(one, "antialias"):
        of_either = one.antialias is not False  # None averages PIL images alone
        averages = {"pillow": True, "tensors": one.antialias is True}.get(found.container, of_either)
    name = "nearest" if str(mode) in NEAREST else str(mode)
    return Look(interpolation=name, antialias=averages)


def _shrunk(found: Findings, one: Any) -> Look:
    """The look of a map that may shrink, which skips pixels then."""
    return replace(look_of(found, one), antialias=False)


def beyond_of(found: Findings, one: Any) -> Beyond:
    """The border of a transform that shows what lies outside the image, as one number of masks, too."""
    given = getattr(one, "fill", None)
    if type(one).__module__.startswith(OF_MASKS) and (given is None or isinstance(given, int | float)):
        found.mask_fills.add((int(given or 0), type(one).__name__))
    return "constant", fill_of(found, one)


def fill_of(found: Findings, one: Any) -> tuple[float, float, float]:
    """The fill of images; what masks are filled with is told, where there is one for each type."""
    given = getattr(one, "fill", None)
    if not isinstance(given, Mapping):
        return levels(given)
    fills = {str(getattr(kind, "__name__", kind)).lower(): fill for kind, fill in given.items()}
    of_masks = fills.get("mask", fills.get("others")) or 0
    if isinstance(of_masks, int | float) and of_masks >= 0 and of_masks % 1 == 0:
        found.mask_fills.add((int(of_masks), type(one).__name__))
    return levels(next((fills[kind] for kind in ("image", "tensor", "others") if kind in fills), None))


def _sanitize(found: Findings, one: Any) -> None:
    """Nothing of the image: which objects stay is an option of the call."""
    for name in ("min_size", "min_area"):
        if not isinstance(value := getattr(one, name), int | float):
            raise ValueError(f"{name}={value!r} must be one number, of pixels")
    least = max(float(one.min_area), float(one.min_size) ** 2)
    found.add(
        "SanitizeBoundingBoxes",
        note=f"objects are dropped by the call: targets=TargetOptions(boxes='corners', min_area={least:g}). It looks "
        f"at areas alone: a box of that area stays where one of its sides is below {one.min_size:g}.",
    )


def _padding(found: Findings, one: Any) -> dict[str, Any]:
    """The border and the fill of what pads."""
    return {"border": OF_NUMPY.get(one.padding_mode, one.padding_mode), "fill": fill_of(found, one)}


def _random_crop(found: Findings, one: Any) -> None:
    made = padded_crop(pair(one.size), sides(one.padding or 0), one.pad_if_needed, **_padding(found, one))
    found.add("RandomCrop", *made)


def _center_crop(found: Findings, one: Any) -> None:
    height, width = size = pair(one.size)
    if not are_at_least([*found.outer, *found.ops], size):
        found.note(
            f"CenterCrop: an image smaller than {height}x{width} is refused, where there it is padded with black; "
            f"Pad(size=({height}, {width})) before it does that here."
        )
    found.add("CenterCrop", ops.CenterCrop(size=size))


def _pad(found: Findings, one: Any) -> None:
    padding, fields = sides(one.padding), _padding(found, one)
    found.add("Pad", ops.Pad.model_validate({"px": padding[0] if len(padding) == 1 else padding, **fields}))


def _iou_crop(found: Findings, one: Any) -> None:
    """SSD's crop; detectors have classes of this name with a chance `p`."""
    given = getattr(one, "options", getattr(one, "sampler_options", None))
    shares = [min(max(share, LEAST_OVERLAP), 1.0) for share in (OVERLAPS if given is None else given)]
    keep = ops.KeepObjects(rule="iou", share=shares, tries=one.trials, redraws=REDRAWS, fallback="whole")
    made = ops.RandomResizedCrop(
        own_size=True,
        scale=(one.min_scale**2, one.max_scale**2),
        ratio=(one.min_aspect_ratio, one.max_aspect_ratio),
        keep_objects=keep,
    )
    found.add("RandomIoUCrop", seldom_overlapping(made, getattr(one, "p", 1.0)), note=OF_OVERLAP)


def overlaps(op: Op) -> bool:
    """Whether it is a crop by overlap, which may be the whole image."""
    return isinstance(op, ops.RandomResizedCrop) and op.own_size and op.keep_objects is not None


def seldom_overlapping(crop: Op, p: float) -> Op:
    """A crop by overlap that has a chance: an overlap of 1 is the whole image."""
    assert isinstance(crop, ops.RandomResizedCrop) and crop.keep_objects is not None
    part = Fraction(p).limit_denominator(100)
    shares = crop.keep_objects.shares
    often = (*shares * part.numerator, *(1.0,) * len(shares) * (part.denominator - part.numerator))
    return changed(crop, keep_objects=changed(crop.keep_objects, share=often))


def _shortest(found: Findings, one: Any) -> None:
    sizes = [one.min_size] if isinstance(one.min_size, int) else list(one.min_size)
    made = [ops.ResizeShortest(size=size, max_size=one.max_size) for size in sizes]
    op = made[0] if len(made) == 1 else ops.OneCrop(chains=tuple((resize,) for resize in made))
    found.add("RandomShortestSize", op, look=look_of(found, one))


def _zoom_out(found: Findings, one: Any) -> None:
    note = "its canvas is scaled to the image's size: what follows in pixels, and not in parts, sees fewer."
    made = ops.ZoomOut(factor=tuple(one.side_range), fill=fill_of(found, one), p=one.p)
    found.add("RandomZoomOut", made, note=note)


def _affine(found: Findings, one: Any) -> None:
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
    look = _shrunk(found, one) if one.scale is not None and one.scale[0] < 1.0 else look_of(found, one)
    found.add("RandomAffine", *made, look=look, beyond=beyond_of(found, one))


def _elastic_transform(found: Findings, one: Any) -> None:
    if len(set(one.alpha)) > 1 or len(set(one.sigma)) > 1:
        raise ValueError("alpha and sigma that differ along x and y are not mapped; give one number each")
    # there half the image's side is 1
    made = ops.ElasticTransform(alpha=0.5 * one.alpha[0], sigma=one.sigma[0], p=1.0)
    found.add("ElasticTransform", made, note=FIELD, look=look_of(found, one), beyond=beyond_of(found, one))


GEOMETRY: dict[str, Maker] = {
    "RandomResizedCrop": same(
        ops.RandomResizedCrop,
        size=lambda one: pair(one.size),
        scale=lambda one: one.scale,
        ratio=lambda one: one.ratio,
        p=1.0,
        look=look_of,
    ),
    "CenterCrop": _center_crop,
    "Pad": _pad,
    "RandomCrop": _random_crop,
    "RandomZoomOut": _zoom_out,
    **dict.fromkeys(("FiveCrop", "TenCrop"), refused(SEVERAL)),
    "RandomIoUCrop": _iou_crop,
    "RandomShortestSize": _shortest,
    "Resize": _resize,
    "SanitizeBoundingBoxes": _sanitize,
    "RandomResize": same(
        ops.RandomResize,
        size=lambda one: (one.min_size, one.max_size - 1),  # max_size itself is never drawn there
        p=1.0,
        look=look_of,
    ),
    "ScaleJitter": same(
        ops.RandomResize,
        factor=lambda one: one.scale_range,
        within=lambda one: one.target_size[::-1],  # width and height there
        p=1.0,
        look=look_of,
    ),
    "RandomHorizontalFlip": same(ops.Flip),
    "RandomVerticalFlip": same(ops.Flip, direction="vertical"),
    "RandomRotation": same(
        ops.Rotate,
        max_deg=lambda one: tuple(one.degrees),
        step=None,
        fit_frame=lambda one: "up" if hasattr(one, "fits") else "no",
        p=1.0,
        note=lambda one: "the turned frame is up to a pixel smaller." if hasattr(one, "fits") else "",
        look=look_of,
        beyond=beyond_of,
    ),
    "RandomAffine": _affine,
    "RandomPerspective": same(
        ops.Perspective,
        distortion=lambda one: one.distortion_scale,
        corners="whole_px",
        note=lambda one: UNEVEN if one.distortion_scale > 0.6 else "",
        look=_shrunk,
        beyond=beyond_of,
    ),
    "ElasticTransform": _elastic_transform,
}
"""The name of a transform -> what makes ops of it."""
