"""Augmentations of kornia as ops: told by class name; ranges are read from the distributions that they sample."""

from collections.abc import Iterable
from math import ceil, floor
from typing import Any

import numpy as np

from augpipe import ops
from augpipe.policies.automatic import one_of
from augpipe.recipes.importers.findings import Findings, Maker
from augpipe.recipes.importers.kornia_geometry import GEOMETRY
from augpipe.recipes.importers.kornia_values import name_of, range_of, read, rounded
from augpipe.recipes.importers.makers import (
    UNCLIPPED,
    channels,
    erase,
    jitter,
    levels,
    noise_of_parts,
    round_kernel,
    same,
    shifted,
    twice,
)
from augpipe.recipes.importers.units import UNIT

OF_HSV = "saturation moves from gray, and there scales that of HSV: by 3 to 5 levels in the mean at 0.6 and 1.4."
HOLDERS = ("AugmentationSequential", "ImageSequential", "Sequential", "VideoSequential")


def found_in(module: Any) -> Findings:
    """The ops of a `kornia.augmentation` module, and what cannot be mapped."""
    found = Findings(source="kornia", measured_as=("kornia",), name_of=name_of, read=read)
    found.changes_units = ("Normalize", "Denormalize")
    keys = [str(getattr(key, "name", key)).lower() for key in getattr(module, "data_keys", None) or ()]
    if "mask" in keys:
        found.mask_fills.add((0, "all transforms"))
    if any(key.startswith("bbox") for key in keys):
        found.note("bbox: boxes are given to the call, bboxes=..., with targets=TargetOptions(boxes='corners').")
    for one in _flattened(found, module):
        if hasattr(one, "p") or name_of(one) in MADE:
            found.add_by(MADE, one)
        else:
            found.refuse(
                name_of(one), f"of {type(one).__module__} is not an augmentation; take that of kornia.augmentation"
            )
    found.counts_in_parts = True
    if found.ops and found.normalize is None:
        found.ops.append(UNIT)
    return found


def _flattened(found: Findings, module: Any) -> Iterable[Any]:
    if name_of(module) not in HOLDERS:
        yield module
        return
    if getattr(module, "random_apply", False):
        found.refuse(name_of(module), f"random_apply={module.random_apply} is not mapped; write an ops.SomeOf")
    if getattr(module, "_same_on_batch", False):
        found.note(f"{name_of(module)}: same_on_batch=True, and here each image draws numbers of its own.")
    for inner in module.children():
        yield from _flattened(found, inner)


def _less_one(limits: tuple[float, float]) -> tuple[float, float]:
    return round(limits[0] - 1.0, 6), round(limits[1] - 1.0, 6)


def _jittered(one: Any) -> dict[str, tuple[float, float]]:
    """The ranges of brightness, contrast, saturation and hue."""
    order = getattr(one, "_fixed_order", getattr(one, "order", None))
    if order is not None:
        raise ValueError(f"order={list(order)} is not mapped; leave it out, for an order that is drawn")
    return {name: range_of(one, name) for name in ("brightness", "contrast", "saturation", "hue")}


def _jiggle(found: Findings, one: Any) -> None:
    limits = _jittered(one)
    changed = [name for name, (low, high) in limits.items() if low < high or low != (name != "hue")]
    notes = ["the order is contrast, brightness, saturation, hue, always."] if len(changed) > 1 else []
    notes += [OF_HSV] if "saturation" in changed else []
    brightness, contrast = _less_one(limits["brightness"]), _less_one(limits["contrast"])
    made = (
        ops.BrightnessContrast(brightness=brightness, contrast=contrast, p=1.0),
        ops.Saturation(factor=limits["saturation"]),
        ops.Hue(turns=limits["hue"], space="hsv"),
    )
    found.add("ColorJiggle", ops.AllOf(ops=made, p=read(one, "p")), note=" ".join(notes))


def _gaussian_blur(found: Findings, one: Any) -> None:
    _blurred(found, one, one.flags["kernel_size"], _border_type(one), range_of(one, "sigma"), read(one, "p"))


def _blur_filter(found: Findings, one: Any) -> None:
    """That of `kornia.filters`, which blurs all images alike."""
    sigma = channels(one.sigma)
    if len(set(sigma)) > 1:
        raise ValueError(f"sigma={sigma} is not mapped; two numbers that are alike are")
    border = str(getattr(one.border_type, "name", one.border_type)).lower()
    _blurred(found, one, one.kernel_size, border, (sigma[0], sigma[0]), 1.0)


def _blurred(found: Findings, one: Any, size: Any, border: str, sigma: tuple[float, float], p: float) -> None:
    side, note = round_kernel(twice(size))
    notes = [note, "" if border == "reflect" else f"border_type={border} becomes reflect."]
    made = ops.GaussianBlur(sigma_px=sigma, kernel_px=side, p=p)
    found.add(name_of(one), made, note=" ".join(filter(None, notes)))


def _erasing(found: Findings, one: Any) -> None:
    given = one._param_generator
    if found.normalize is not None and given.value:
        raise ValueError(f"value={given.value} behind Normalize is not mapped; 0 is")
    fill = levels(255.0 * given.value) if found.normalize is None else "mean"
    note = "a ratio above 1 is as likely as one below."
    found.add("RandomErasing", erase(read(one, "p"), given.scale, given.ratio, fill, found.normalize), note=note)


def _noise(found: Findings, one: Any) -> None:
    given = one._param_generator
    found.add("RandomGaussianNoise", noise_of_parts(given.mean, given.std, read(one, "p")), note=UNCLIPPED)


def _gamma(found: Findings, one: Any) -> None:
    if (gain := range_of(one, "gain_factor")) != (1.0, 1.0):
        raise ValueError(f"gain={gain} is not mapped; (1.0, 1.0) is, with RandomBrightness for the gain")
    found.add("RandomGamma", ops.Gamma(gamma=range_of(one, "gamma_factor"), even_in="power", p=read(one, "p")))


def _posterize(found: Findings, one: Any) -> None:
    given = np.asarray(one._param_generator.bits_factor, np.float64).reshape(-1)
    low, high = float(given[0]), float(given[1]) if given.size > 1 else 8.0
    made = one_of((ops.Posterize(bits=(bits, bits), p=1.0), weight) for bits, weight in rounded(low, high))
    found.add("RandomPosterize", ops.AllOf(ops=(made,), p=read(one, "p")))


def _border_type(one: Any) -> str:
    """The border of a filter, by its name in lower case."""
    border = one.flags.get("border_type", "reflect")
    return str(getattr(border, "name", border)).lower()


def _square(one: Any) -> int:
    """The side of a filter."""
    size = one.flags["kernel_size"]
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) > 1:
        raise ValueError(f"kernel_size={tuple(size)} is not mapped; two numbers that are alike are")
    if (border := _border_type(one)) != "reflect":
        raise ValueError(f"border_type={border!r} is not mapped; 'reflect' is")
    return int(sides.pop())


def _rgb_shift(found: Findings, one: Any) -> None:
    ranges = [range_of(one, f"{channel}_shift") for channel in "rgb"]
    found.add("RandomRGBShift", shifted(ranges, 255.0, read(one, "p")))


def _compression(found: Findings, one: Any) -> None:
    low, high = range_of(one, "jpeg_quality")
    made = ops.JpegCompression(quality=(max(1, ceil(low)), floor(high)), p=read(one, "p"))
    note = "qualities are whole numbers, and so are steps and coefficients, which are nearly rounded there."
    found.add("RandomJPEG", made, note=note)


def _solarize(found: Findings, one: Any) -> None:
    low, high = (255.0 * end for end in range_of(one, "thresholds"))
    added = ops.BrightnessContrast(brightness=range_of(one, "additions"), contrast=(0.0, 0.0), p=1.0)
    inverted = ops.Solarize(threshold=(ceil(low), ceil(high)), p=1.0)
    found.add("RandomSolarize", ops.AllOf(ops=(added, inverted), p=read(one, "p")))


def _normalize(found: Findings, one: Any) -> None:
    mean, std = channels(one.flags["mean"]), channels(one.flags["std"])
    if not found.ops and set(mean) == {0.0} and set(std) == {255.0}:
        found.add("Normalize")  # levels in 0..255, which come out in 0..1 here
    else:
        found.add("Normalize", ops.Normalize(mean=mean, std=std))


MADE: dict[str, Maker] = {
    **GEOMETRY,
    "ColorJitter": lambda found, one: found.add("ColorJitter", jitter(_jittered(one), read(one, "p"))),
    "ColorJiggle": _jiggle,
    "RandomBrightness": same(
        ops.BrightnessContrast,
        brightness=lambda one: _less_one(range_of(one, "brightness_factor")),
        contrast=(0.0, 0.0),
    ),
    "RandomContrast": same(
        ops.BrightnessContrast, contrast=lambda one: _less_one(range_of(one, "contrast_factor")), brightness=(0.0, 0.0)
    ),
    "RandomSaturation": same(ops.Saturation, factor=lambda one: range_of(one, "saturation_factor"), note=OF_HSV),
    "RandomHue": same(ops.Hue, turns=lambda one: range_of(one, "hue_factor"), space="hsv"),
    "RandomGamma": _gamma,
    "RandomRGBShift": _rgb_shift,
    "RandomPosterize": _posterize,
    "RandomChannelShuffle": same(ops.ChannelShuffle, p=lambda one: read(one, "p") * 5 / 6),
    "RandomBoxBlur": same(ops.BoxBlur, sizes=lambda one: (_square(one),) * 2),
    "RandomMedianBlur": same(ops.MedianBlur, sizes=lambda one: (_square(one),) * 2),
    "RandomGrayscale": same(ops.Grayscale),
    "RandomSharpness": same(ops.Sharpness, factor=lambda one: range_of(one, "sharpness")),
    "RandomInvert": same(ops.Invert),
    "RandomAutoContrast": same(ops.AutoContrast),
    "RandomSolarize": _solarize,
    "RandomEqualize": same(ops.Equalize, note="by Pillow's formula."),
    "RandomGaussianBlur": _gaussian_blur,
    "GaussianBlur2d": _blur_filter,
    "RandomGaussianNoise": _noise,
    "RandomErasing": _erasing,
    "RandomJPEG": _compression,
    "Normalize": _normalize,
}
"""The name of an augmentation -> what makes ops of it."""
