"""Augmentations of kornia as ops: told by class name; ranges are read from the distributions that they sample."""

from collections.abc import Iterable
from math import ceil, floor, pi, sqrt
from typing import Any

import numpy as np

from augpipe import ops
from augpipe.ops import Op
from augpipe.policies.automatic import one_of
from augpipe.recipes.importers.findings import (
    FIELD,
    SQUARE_PX,
    UNCLIPPED,
    UNEVEN,
    Findings,
    Look,
    Maker,
    channels,
    erase,
    floored_centre,
    levels,
    same,
)

HOLDERS = ("AugmentationSequential", "ImageSequential", "Sequential", "VideoSequential")
GEOMETRY = "kornia.geometry"
"""Where functions of geometry are modules, too: one that is an augmentation's namesake may differ from it."""
BLACK = ("constant", (0.0, 0.0, 0.0))
"""What most of its geometry shows beyond the image."""
RESAMPLES = ("nearest", "bilinear", "bicubic")
"""Its look-ups by number."""
BORDERS = {
    "zeros": "constant",
    "constant": "constant",
    "border": "edge",
    "replicate": "edge",
    "reflection": "reflect",
    "reflect": "reflect_101",
    "circular": "wrap",
}
"""What kornia calls a border: `reflection` where it looks images up, the next two where it pads them."""


def found_in(module: Any) -> Findings:
    """The ops of a `kornia.augmentation` module, and what cannot be mapped."""
    found = Findings(source="kornia", measured_as=("kornia",), name_of=_name, read=_read)
    if any(str(getattr(key, "name", key)).lower() == "mask" for key in getattr(module, "data_keys", None) or ()):
        found.mask_fills.add(0)
    for one in _flattened(found, module):
        if hasattr(one, "p") or _name(one) in MADE:
            found.add_by(MADE, one)
        else:
            found.refuse(
                _name(one), f"of {type(one).__module__} is not an augmentation; take that of kornia.augmentation"
            )
    if found.ops and not any(op.op == "normalize" for op in found.ops):
        found.ops.append(ops.Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))  # its images are in 0..1
    return found


def _name(module: Any) -> str:
    kind = type(module)
    return f"{GEOMETRY}.{kind.__name__}" if str(getattr(kind, "__module__", "")).startswith(GEOMETRY) else kind.__name__


def _read(module: Any, name: str) -> Any:
    if name == "p" and getattr(module, "p_batch", 1.0) != 1.0:
        raise ValueError(f"p_batch={module.p_batch} applies it to whole batches; give p")
    return getattr(module, name)


def _flattened(found: Findings, module: Any) -> Iterable[Any]:
    if _name(module) not in HOLDERS:
        yield module
        return
    if getattr(module, "random_apply", False):
        found.refuse(_name(module), f"random_apply={module.random_apply} is not mapped; write an ops.SomeOf")
    if getattr(module, "_same_on_batch", False):
        found.note(f"{_name(module)}: same_on_batch=True, and here each image draws numbers of its own.")
    for inner in module.children():
        yield from _flattened(found, inner)


def _range(one: Any, name: str) -> tuple[float, float]:
    """Smallest and largest of what is sampled under a name; its numbers are float32."""
    sampled = one._param_generator
    sampler = getattr(sampled, f"{name}_sampler", None) or sampled.sampler_dict[name]
    return round(float(sampler.low), 6), round(float(sampler.high), 6)


def _always(one: Any) -> None:
    if one.p != 1.0:
        raise ValueError(f"p={one.p}: images would differ in size; set p=1")


def _less_one(limits: tuple[float, float]) -> tuple[float, float]:
    return round(limits[0] - 1.0, 6), round(limits[1] - 1.0, 6)


def _border(mode: Any) -> str:
    name = str(getattr(mode, "name", mode)).lower()
    if name not in BORDERS:
        raise ValueError(f"padding_mode={name} is not mapped")
    return BORDERS[name]


def _look(one: Any) -> Look:
    """How it looks between pixels, of which it skips some when it shrinks."""
    mode = one.flags.get("resample", "bilinear")
    name = RESAMPLES[mode] if isinstance(mode, int) else str(getattr(mode, "name", mode)).lower()
    return Look(interpolation=name, antialias=bool(one.flags.get("antialias")))


def _resize(found: Findings, one: Any) -> None:
    _always(one)
    look = _look(one)
    found.add("Resize", _resized(one.flags["size"], one.flags.get("side"), _aligns(one, look)), look=look)


def _aligns(one: Any, look: Look) -> bool:
    """Whether the centres of corner pixels stay: by default, unless the nearest pixel is looked up."""
    return look.interpolation != "nearest" and one.flags.get("align_corners") is not False


def _resize_of_geometry(found: Findings, one: Any) -> None:
    look = Look(interpolation=str(one.interpolation), antialias=bool(one.antialias))
    found.add(_name(one), _resized(one.size, one.side, bool(one.align_corners)), look=look)


def _resized(size: Any, side: Any, aligns: bool) -> Op:
    if not isinstance(size, int):
        return ops.Resize(size=tuple(size), align_corners=aligns)
    if side not in ("short", "long"):
        raise ValueError(f"side={side!r} is not mapped; 'short' and 'long' are")
    kind = ops.ResizeShortest if side == "short" else ops.ResizeLongest
    return kind(size=size, align_corners=aligns)


def _random_resized_crop(found: Findings, one: Any) -> None:
    _always(one)
    given, look = one._param_generator, _look(one)
    fields = {"size": tuple(one.flags["size"]), "scale": tuple(given.scale), "ratio": tuple(given.ratio)}
    made = ops.RandomResizedCrop.model_validate({**fields, "align_corners": _aligns(one, look)})
    found.add("RandomResizedCrop", made, look=look)


def _random_crop(found: Findings, one: Any) -> None:
    _always(one)
    padding = one.flags["padding"] or 0
    border, fill = _border(one.flags["padding_mode"]), levels(255.0 * one.flags["fill"])
    made: dict[str, Any] = {"size": one.flags["size"], "pad_if_needed": one.flags["pad_if_needed"], "border": border}
    padded: list[Op] = []
    if isinstance(padding, int):
        made["padding"] = padding
    else:
        padded.append(ops.Pad.model_validate({"px": tuple(padding), "border": border, "fill": fill}))
    found.add("RandomCrop", *padded, ops.RandomCrop.model_validate(made | {"fill": fill}))


def _center_crop(found: Findings, one: Any) -> None:
    _always(one)
    found.add("CenterCrop", floored_centre(one.flags["size"]))


def _rotation(found: Findings, one: Any) -> None:
    made = ops.Rotate(max_deg=_range(one, "degrees"), step=None, p=_read(one, "p"))
    found.add("RandomRotation", made, look=_look(one), beyond=BLACK)


def _affine(found: Findings, one: Any) -> None:
    given = one._param_generator
    if given.scale_4_sampler is not None:
        raise ValueError("scale of four numbers is not mapped; give two")
    made: list[Op] = []
    if given.scale is not None:
        made.append(ops.Zoom(factor=_range(one, "scale_2")))
    if given.shear is not None:
        made.append(ops.Shear(horizontal_deg=_range(one, "shear_x"), vertical_deg=_range(one, "shear_y")))
    low, high = _range(one, "degree")
    made.append(ops.Rotate(max_deg=(-high, -low), step=None))  # clockwise, where RandomRotation turns the other way
    if given.translate is not None:
        made.append(ops.Translate(horizontal=_range(one, "translate_x"), vertical=_range(one, "translate_y")))
    beyond = _border(one.flags["padding_mode"]), levels(0)
    sheared = "the parts act as scale, shear, rotation, translation." if given.shear is not None else ""
    found.add("RandomAffine", ops.AllOf(ops=made, p=_read(one, "p")), note=sheared, look=_look(one), beyond=beyond)


def _perspective(found: Findings, one: Any) -> None:
    method = getattr(one._param_generator, "sampling_method", "basic")
    if method != "basic":
        raise ValueError(f"sampling_method={method!r} is not mapped; 'basic' is")
    distortion = float(one._param_generator.distortion_scale)
    made = ops.Perspective(distortion=distortion, corners="centres", p=_read(one, "p"))
    found.add("RandomPerspective", made, note=UNEVEN if distortion > 0.6 else "", look=_look(one), beyond=BLACK)


def _elastic(found: Findings, one: Any) -> None:
    """The field of a Gaussian that is cut off: that of a whole one of its own spread, as strong as it is."""
    (size, other), (sigma, also), (alpha, too) = (one.flags[name] for name in ("kernel_size", "sigma", "alpha"))
    if (size, sigma, alpha) != (other, also, too):
        raise ValueError("kernel_size, sigma and alpha that differ along x and y are not mapped; give each twice alike")
    places = np.arange(size) - 0.5 * (size - 1)
    weights = np.exp(-0.5 * (places / float(sigma)) ** 2)
    weights /= weights.sum()
    spread = sqrt(weights @ places**2)
    sides = found.sides if len(found.sides) == 2 else (SQUARE_PX, SQUARE_PX)
    alpha_px = float(alpha) * 0.5 * sqrt(sides[0] * sides[1])  # there half the image's side is 1
    strength = float(weights @ weights) * 2.0 * sqrt(pi) * spread
    fields = {"alpha": round(alpha_px * strength, 1), "sigma": round(spread, 1), "p": _read(one, "p")}
    note = FIELD
    if spread < 0.95 * sigma:
        note += " The filter there is cut off, which leaves its field rougher."
    if sides != found.sides:
        fields["side_px"] = SQUARE_PX
        note += f" It is that of a {SQUARE_PX}x{SQUARE_PX} image, for all."
    beyond = _border(one.flags["padding_mode"]), levels(0)
    made = ops.ElasticTransform.model_validate(fields)
    found.add("RandomElasticTransform", made, note=note, look=_look(one), beyond=beyond)


def _thin_plate_spline(found: Findings, one: Any) -> None:
    """The map of four corners, which move either way: inwards alone, in an image that is larger by as much."""
    most = 0.0 if one.dist is None else round(float(one.dist.high), 6)
    corners: list[Op] = [ops.Perspective(distortion=2.0 * most / (1.0 + most))] if most else []
    made = ops.AllOf.model_validate({"ops": [*corners, ops.Zoom(factor=(1.0 + most,) * 2)], "p": _read(one, "p")})
    note = "corners move as there, and what lies between them by a perspective, where the centre is drawn, too."
    beyond = _border(one.flags["padding_mode"]), levels(0)
    found.add("RandomThinPlateSpline", made, note=note, look=_look(one), beyond=beyond)


def _jittered(one: Any) -> dict[str, tuple[float, float]]:
    """The ranges of brightness, contrast, saturation and hue."""
    order = getattr(one, "_fixed_order", getattr(one, "order", None))
    if order is not None:
        raise ValueError(f"order={list(order)} is not mapped; leave it out, for an order that is drawn")
    return {name: _range(one, name) for name in ("brightness", "contrast", "saturation", "hue")}


def _jitter(found: Findings, one: Any) -> None:
    fields: dict[str, Any] = _jittered(one)
    made = ops.ColorJitter.model_validate({**fields, "about": "mean", "space": "hsv", "p": _read(one, "p")})
    found.add("ColorJitter", made)


def _jiggle(found: Findings, one: Any) -> None:
    limits = _jittered(one)
    changed = [name for name, (low, high) in limits.items() if low < high or low != (name != "hue")]
    notes = ["the order is contrast, brightness, saturation, hue, always."] if len(changed) > 1 else []
    notes += ["saturation moves from gray, and there scales that of HSV."] if "saturation" in changed else []
    brightness, contrast = _less_one(limits["brightness"]), _less_one(limits["contrast"])
    made = (
        ops.BrightnessContrast(brightness=brightness, contrast=contrast, p=1.0),
        ops.Saturation(factor=limits["saturation"]),
        ops.Hue(turns=limits["hue"], space="hsv"),
    )
    found.add("ColorJiggle", ops.AllOf(ops=made, p=_read(one, "p")), note=" ".join(notes))


def _gaussian_blur(found: Findings, one: Any) -> None:
    given, name = one.flags["kernel_size"], _border_type(one)
    sizes = (given,) if isinstance(given, int) else tuple(given)
    notes = [] if len(set(sizes)) == 1 else [f"kernel_size={list(sizes)} becomes {max(sizes)} both ways."]
    notes += [] if name == "reflect" else [f"border_type={name} becomes reflect."]
    made = ops.GaussianBlur(sigma_px=_range(one, "sigma"), kernel_px=max(sizes), p=_read(one, "p"))
    found.add("RandomGaussianBlur", made, note=" ".join(notes))


def _erasing(found: Findings, one: Any) -> None:
    given = one._param_generator
    normalised = next((op for op in found.ops if isinstance(op, ops.Normalize)), None)
    if normalised is not None and given.value:
        raise ValueError(f"value={given.value} behind Normalize is not mapped; 0 is")
    fill = levels(255.0 * given.value) if normalised is None else "mean"
    note = "a ratio above 1 is as likely as one below."
    found.add("RandomErasing", erase(_read(one, "p"), given.scale, given.ratio, fill, normalised), note=note)


def _noise(found: Findings, one: Any) -> None:
    given = one._param_generator
    if given.mean:
        raise ValueError(f"mean={given.mean} is not mapped; 0 is")
    found.add("RandomGaussianNoise", ops.Noise(std=(255.0 * given.std,) * 2, p=_read(one, "p")), note=UNCLIPPED)


def _gamma(found: Findings, one: Any) -> None:
    if (gain := _range(one, "gain_factor")) != (1.0, 1.0):
        raise ValueError(f"gain={gain} is not mapped; (1.0, 1.0) is, with RandomBrightness for the gain")
    found.add("RandomGamma", ops.Gamma(gamma=_range(one, "gamma_factor"), even_in="power", p=_read(one, "p")))


def _posterize(found: Findings, one: Any) -> None:
    """Bits are rounded there, so that the smallest and the largest number are half as likely."""
    given = np.asarray(one._param_generator.bits_factor, np.float64).reshape(-1)
    low, high = float(given[0]), float(given[1]) if given.size > 1 else 8.0
    bits = range(round(low), round(high) + 1)
    weights = [min(high, bit + 0.5) - max(low, bit - 0.5) for bit in bits] if high > low else [1.0]
    members = [ops.Posterize(bits=(bit, bit), p=1.0) for bit in bits]
    made = one_of(zip(members, weights, strict=True))
    found.add("RandomPosterize", ops.AllOf(ops=(made,), p=_read(one, "p")))


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
    limits = {_range(one, f"{channel}_shift") for channel in "rgb"}
    low, high = limits.pop()
    if limits or low != -high:
        raise ValueError("limits that differ between channels, or are not the same both ways, are not mapped")
    made = ops.ColorCast(max_shift=255.0 * high, step=None, channel_p=1.0, p=_read(one, "p"))
    found.add("RandomRGBShift", made)


def _compression(found: Findings, one: Any) -> None:
    low, high = _range(one, "jpeg_quality")
    made = ops.JpegCompression(quality=(max(1, ceil(low)), floor(high)), p=_read(one, "p"))
    note = "qualities are whole numbers, and so are steps and coefficients, which are nearly rounded there."
    found.add("RandomJPEG", made, note=note)


def _solarize(found: Findings, one: Any) -> None:
    low, high = (255.0 * end for end in _range(one, "thresholds"))
    added = ops.BrightnessContrast(brightness=_range(one, "additions"), contrast=(0.0, 0.0), p=1.0)
    inverted = ops.Solarize(threshold=(ceil(low), ceil(high)), p=1.0)
    found.add("RandomSolarize", ops.AllOf(ops=(added, inverted), p=_read(one, "p")))


def _pad_to(found: Findings, one: Any) -> None:
    border, fill = _border(one.flags["pad_mode"]), levels(255.0 * one.flags["pad_value"])
    made = {"size": tuple(one.flags["size"]), "position": "top_left", "border": border, "fill": fill}
    note = "an image that is larger is cut off there." if one.flags.get("crop_if_exceeds", True) else ""
    found.add("PadTo", ops.Pad.model_validate(made), note=note)


def _normalize(found: Findings, one: Any) -> None:
    mean, std = channels(one.flags["mean"]), channels(one.flags["std"])
    if not found.ops and set(mean) == {0.0} and set(std) == {255.0}:
        found.add("Normalize")  # levels in 0..255, which come out in 0..1 here
    else:
        found.add("Normalize", ops.Normalize(mean=mean, std=std))


MADE: dict[str, Maker] = {
    "Resize": _resize,
    f"{GEOMETRY}.Resize": _resize_of_geometry,
    "SmallestMaxSize": _resize,
    "LongestMaxSize": _resize,
    "RandomResizedCrop": _random_resized_crop,
    "RandomCrop": _random_crop,
    "CenterCrop": _center_crop,
    "PadTo": _pad_to,
    "RandomHorizontalFlip": same(ops.Flip),
    "RandomVerticalFlip": same(ops.Flip, direction="vertical"),
    "RandomRotation": _rotation,
    "RandomAffine": _affine,
    "RandomPerspective": _perspective,
    "RandomElasticTransform": _elastic,
    "RandomThinPlateSpline": _thin_plate_spline,
    "ColorJitter": _jitter,
    "ColorJiggle": _jiggle,
    "RandomBrightness": same(
        ops.BrightnessContrast, brightness=lambda one: _less_one(_range(one, "brightness_factor")), contrast=(0.0, 0.0)
    ),
    "RandomContrast": same(
        ops.BrightnessContrast, contrast=lambda one: _less_one(_range(one, "contrast_factor")), brightness=(0.0, 0.0)
    ),
    "RandomHue": same(ops.Hue, turns=lambda one: _range(one, "hue_factor"), space="hsv"),
    "RandomGamma": _gamma,
    "RandomRGBShift": _rgb_shift,
    "RandomPosterize": _posterize,
    "RandomChannelShuffle": same(ops.ChannelShuffle, p=lambda one: _read(one, "p") * 5 / 6),
    "RandomBoxBlur": same(ops.BoxBlur, sizes=lambda one: (_square(one),) * 2),
    "RandomMedianBlur": same(ops.MedianBlur, sizes=lambda one: (_square(one),) * 2),
    "RandomGrayscale": same(ops.Grayscale),
    "RandomSharpness": same(ops.Sharpness, factor=lambda one: _range(one, "sharpness")),
    "RandomInvert": same(ops.Invert),
    "RandomSolarize": _solarize,
    "RandomEqualize": same(ops.Equalize, note="by Pillow's formula."),
    "RandomGaussianBlur": _gaussian_blur,
    "RandomGaussianNoise": _noise,
    "RandomErasing": _erasing,
    "RandomJPEG": _compression,
    "Normalize": _normalize,
}
"""The name of an augmentation -> what makes ops of it."""
