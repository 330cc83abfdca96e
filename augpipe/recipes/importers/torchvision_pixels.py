"""Transforms of torchvision that change colours, filter, add noise, erase or normalise, as ops."""

from functools import partial
from math import exp
from typing import Any

from augpipe import ops
from augpipe.policies.magnitudes import solarize
from augpipe.recipes.importers.findings import Findings, Maker
from augpipe.recipes.importers.makers import (
    UNCLIPPED,
    channels,
    erase,
    erase_several,
    jitter,
    levels,
    noise_of_parts,
    refused,
    round_kernel,
    same,
)
from augpipe.recipes.importers.normalized import level
from augpipe.recipes.importers.timm import ERASED
from augpipe.recipes.importers.torchvision_geometry import pair, sides
from augpipe.recipes.importers.units import UNIT


def _jitter(found: Findings, one: Any) -> None:
    given = {name: getattr(one, name) for name in ("brightness", "contrast", "saturation", "hue")}
    fields = {name: tuple(value) for name, value in given.items() if value is not None}
    if max(map(abs, fields.get("hue", (0.0,)))) > 0.5:
        raise ValueError(f"hue={fields['hue']} leaves -0.5..0.5, which torchvision refuses; choose a range within it")
    found.add("ColorJitter", jitter(fields))


def _gaussian_blur(found: Findings, one: Any) -> None:
    side, note = round_kernel(sides(one.kernel_size))
    low, high = map(float, one.sigma)
    found.add("GaussianBlur", ops.GaussianBlur(sigma_px=(low, high), kernel_px=side, p=1.0), note=note)


def _normalize_levels(found: Findings, one: Any) -> None:
    """A Normalize of floats in 0..255, which a dtype without scale=True leaves so."""
    made = ops.Normalize(mean=channels(one.mean, 255.0), std=channels(one.std, 255.0))
    is_small = 255.0 * max(*made.mean, *made.std) <= 1.0
    note = "its mean and std are of levels in 0..255 there: no scale=True is before it." if is_small else ""
    found.add("Normalize", made, note=note)


def normalize_bytes(found: Findings, one: Any) -> None:
    """A Normalize of a tensor of bytes, which torchvision does not take."""
    made = ops.Normalize(mean=channels(one.mean), std=channels(one.std))
    note = (
        "images are bytes there, which torchvision refuses; here they are divided by 255. Put a dtype before it there."
    )
    found.add("Normalize", made, note=note)


def _distort(found: Findings, one: Any) -> None:
    """Each part with a chance of its own, and contrast first or last of those behind brightness."""
    p = float(one.p)
    names = ("brightness", "contrast", "saturation", "hue")
    brightness, contrast, *rest = (jitter({name: tuple(getattr(one, name))}, p) for name in names)
    either = ops.OneOf(ops=(ops.AllOf(ops=(contrast, *rest)), ops.AllOf(ops=(*rest, contrast))))
    made = ops.AllOf(ops=(brightness, either, ops.ChannelShuffle(p=p * 5 / 6)))
    found.add("RandomPhotometricDistort", made)


def _noise(found: Findings, one: Any) -> None:
    """Of parts of the full level, whatever images hold."""
    found.add("GaussianNoise", noise_of_parts(one.mean, one.sigma, 1.0), note="" if one.clip else UNCLIPPED)


def _grayscale(found: Findings, one: Any) -> None:
    found.channels = 1 if one.num_output_channels == 1 else 3
    found.add("Grayscale", ops.Grayscale(p=1.0))


def _rgb(found: Findings, one: Any) -> None:
    found.channels = 3


def _erasing(found: Findings, one: Any, unit: ops.Normalize | None = None) -> None:
    """A RandomErasing, of levels, or of the numbers that `unit` makes of them."""
    normalised = found.normalize
    if hasattr(one, "probability"):
        _erasing_of_timm(found, one, normalised)
        return
    fill: Any = "noise" if one.value in (None, "random") else levels(one.value)
    if normalised is not None and fill == (0.0, 0.0, 0.0):
        fill = "mean"
    elif fill != "noise" and (numbers := normalised or unit) is not None:
        fill = level(fill, numbers)
    found.add("RandomErasing", erase(one.p, one.scale, one.ratio, fill, normalised))


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


PIXELS: dict[str, Maker] = {
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
    "JPEG": same(ops.JpegCompression, quality=lambda one: pair(one.quality), p=1.0),
    "RandomChannelPermutation": same(ops.ChannelShuffle, p=5 / 6),
    "RandomErasing": _erasing,
    "Normalize": same(ops.Normalize, mean=lambda one: channels(one.mean), std=lambda one: channels(one.std)),
}
"""The name of a transform -> what makes ops of it."""
COUNTED_IN_PARTS: dict[str, Maker] = {
    "RandomErasing": partial(_erasing, unit=UNIT),
    "RandomSolarize": lambda found, one: found.add(
        "RandomSolarize", solarize(min(255.0 * one.threshold, 256.0), one.p)
    ),
}
"""Those that count in 0..1 where images do."""
OF_UNIT = ("ColorJitter", "GaussianNoise", "RandomPhotometricDistort", "RandomSolarize", "RandomInvert")
"""Transforms of colours that take the largest float for 1."""
COUNTS_TO_1 = "takes floats for 0..1, and they are 0..255 there. Write scale=True in the ToDtype before it"
OF_FLOAT_LEVELS: dict[str, Maker] = {"Normalize": _normalize_levels, **dict.fromkeys(OF_UNIT, refused(COUNTS_TO_1))}
"""Those of floats in 0..255."""
