"""Augmentations of kornia that move pixels, as ops."""

from math import pi, sqrt
from typing import Any

import numpy as np

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.op import Beyond
from augpipe.policies.automatic import one_of
from augpipe.recipes.importers.findings import Findings, Maker
from augpipe.recipes.importers.kornia_values import OF_GEOMETRY, border_name, name_of, range_of, read, rounded
from augpipe.recipes.importers.makers import FIELD, SQUARE_PX, UNEVEN, floored_centre, levels, padded_crop, same
from augpipe.recipes.importers.rows import Look

BLACK: Beyond = ("constant", (0.0, 0.0, 0.0))
"""What most of its geometry shows beyond the image."""
RESAMPLES = ("nearest", "bilinear", "bicubic")
"""Its look-ups by number."""


def _always(one: Any) -> None:
    if one.p != 1.0:
        raise ValueError(f"p={one.p}: images would differ in size; set p=1")


def _look(found: Findings, one: Any) -> Look:
    """How it looks between pixels, of which it skips some when it shrinks."""
    mode = one.flags.get("resample", "bilinear")
    name = RESAMPLES[mode] if isinstance(mode, int) else str(getattr(mode, "name", mode)).lower()
    return Look(interpolation=name, antialias=bool(one.flags.get("antialias")))


def _border(found: Findings, one: Any) -> Beyond:
    """What it shows beyond the image, where it can be told."""
    return border_name(one.flags["padding_mode"]), levels(0)


def _resize(found: Findings, one: Any) -> None:
    _always(one)
    look = _look(found, one)
    found.add("Resize", _resized(one.flags["size"], one.flags.get("side"), _aligns(one, look)), look=look)


def _aligns(one: Any, look: Look) -> bool:
    """Whether the centres of corner pixels stay: by default, unless the nearest pixel is looked up."""
    return look.interpolation != "nearest" and one.flags.get("align_corners") is not False


def _resize_of_geometry(found: Findings, one: Any) -> None:
    look = Look(interpolation=str(one.interpolation), antialias=bool(one.antialias))
    found.add(name_of(one), _resized(one.size, one.side, bool(one.align_corners)), look=look)


def _resized(size: Any, side: Any, aligns: bool) -> Op:
    if not isinstance(size, int):
        return ops.Resize(size=tuple(size), align_corners=aligns)
    if side not in ("short", "long"):
        raise ValueError(f"side={side!r} is not mapped; 'short' and 'long' are")
    kind = ops.ResizeShortest if side == "short" else ops.ResizeLongest
    return kind(size=size, rounding="down", align_corners=aligns)


def _random_resized_crop(found: Findings, one: Any) -> None:
    _always(one)
    given, look = one._param_generator, _look(found, one)
    fields = {"size": tuple(one.flags["size"]), "scale": tuple(given.scale), "ratio": tuple(given.ratio)}
    made = ops.RandomResizedCrop.model_validate({**fields, "align_corners": _aligns(one, look)})
    found.add("RandomResizedCrop", made, look=look)


def _random_crop(found: Findings, one: Any) -> None:
    _always(one)
    size, padding, pad_if_needed = (one.flags[name] for name in ("size", "padding", "pad_if_needed"))
    border, fill = border_name(one.flags["padding_mode"]), levels(255.0 * one.flags["fill"])
    sides = tuple(padding) if isinstance(padding, list | tuple) else (padding or 0,)
    found.add("RandomCrop", *padded_crop(size, sides, pad_if_needed, border, fill))


def _center_crop(found: Findings, one: Any) -> None:
    _always(one)
    found.add("CenterCrop", floored_centre(one.flags["size"]))


def _quarter_turns(found: Findings, one: Any) -> None:
    turns = rounded(*range_of(one, "times"))
    made = one_of(
        ((ops.QuarterTurn.model_validate({"turns": (turn % 4,)}), weight) for turn, weight in turns), read(one, "p")
    )
    cuts = not found.is_square  # a square loses nothing
    found.add("RandomRotation90", made, look=_look(found, one) if cuts else None, beyond=BLACK if cuts else None)


def _affine(found: Findings, one: Any) -> None:
    given = one._param_generator
    if given.scale_4_sampler is not None:
        raise ValueError("scale of four numbers is not mapped; give two")
    made: list[Op] = []
    if given.scale is not None:
        made.append(ops.Zoom(factor=range_of(one, "scale_2")))
    if given.shear is not None:
        made.append(ops.Shear(horizontal_deg=range_of(one, "shear_x"), vertical_deg=range_of(one, "shear_y")))
    low, high = range_of(one, "degree")
    made.append(ops.Rotate(max_deg=(-high, -low), step=None))  # clockwise, where RandomRotation turns the other way
    if given.translate is not None:
        made.append(ops.Translate(horizontal=range_of(one, "translate_x"), vertical=range_of(one, "translate_y")))
    sheared = "the parts act as scale, shear, rotation, translation." if given.shear is not None else ""
    found.add(
        "RandomAffine",
        ops.AllOf(ops=made, p=read(one, "p")),
        note=sheared,
        look=_look(found, one),
        beyond=_border(found, one),
    )


def _translation(found: Findings, one: Any) -> None:
    samplers = {axis: getattr(one._param_generator, f"translate_{axis}_sampler") for axis in "xy"}
    across, down = (range_of(one, f"translate_{axis}") if samplers[axis] else (0.0, 0.0) for axis in "xy")
    made = ops.Translate(horizontal=across, vertical=down, p=read(one, "p"))
    found.add("RandomTranslate", made, look=_look(found, one), beyond=_border(found, one))


def _perspective(found: Findings, one: Any) -> None:
    method = getattr(one._param_generator, "sampling_method", "basic")
    if method != "basic":
        raise ValueError(f"sampling_method={method!r} is not mapped; 'basic' is")
    distortion = float(one._param_generator.distortion_scale)
    made = ops.Perspective(distortion=distortion, corners="centres", p=read(one, "p"))
    found.add("RandomPerspective", made, note=UNEVEN if distortion > 0.6 else "", look=_look(found, one), beyond=BLACK)


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
    fields = {"alpha": round(alpha_px * strength, 1), "sigma": round(spread, 1), "p": read(one, "p")}
    note = FIELD
    if spread < 0.95 * sigma:
        note += " The filter there is cut off, which leaves its field rougher."
    if sides != found.sides:
        fields["side_px"] = SQUARE_PX
        note += f" It is that of a {SQUARE_PX}x{SQUARE_PX} image, for all."
    made = ops.ElasticTransform.model_validate(fields)
    found.add("RandomElasticTransform", made, note=note, look=_look(found, one), beyond=_border(found, one))


def _thin_plate_spline(found: Findings, one: Any) -> None:
    """The map of four corners, which move either way: inwards alone, in an image that is larger by as much."""
    most = 0.0 if one.dist is None else round(float(one.dist.high), 6)
    corners: list[Op] = [ops.Perspective(distortion=2.0 * most / (1.0 + most))] if most else []
    made = ops.AllOf.model_validate({"ops": [*corners, ops.Zoom(factor=(1.0 + most,) * 2)], "p": read(one, "p")})
    note = "corners move as there, and what lies between them by a perspective, where the centre is drawn, too."
    found.add("RandomThinPlateSpline", made, note=note, look=_look(found, one), beyond=_border(found, one))


def _pad_to(found: Findings, one: Any) -> None:
    border, fill = border_name(one.flags["pad_mode"]), levels(255.0 * one.flags["pad_value"])
    made = {"size": tuple(one.flags["size"]), "position": "top_left", "border": border, "fill": fill}
    note = "an image that is larger is cut off there." if one.flags.get("crop_if_exceeds", True) else ""
    found.add("PadTo", ops.Pad.model_validate(made), note=note)


GEOMETRY: dict[str, Maker] = {
    "Resize": _resize,
    f"{OF_GEOMETRY}.Resize": _resize_of_geometry,
    "SmallestMaxSize": _resize,
    "LongestMaxSize": _resize,
    "RandomResizedCrop": _random_resized_crop,
    "RandomCrop": _random_crop,
    "CenterCrop": _center_crop,
    "PadTo": _pad_to,
    "RandomHorizontalFlip": same(ops.Flip),
    "RandomVerticalFlip": same(ops.Flip, direction="vertical"),
    "RandomRotation": same(
        ops.Rotate, max_deg=lambda one: range_of(one, "degrees"), step=None, look=_look, beyond=lambda found, one: BLACK
    ),
    "RandomRotation90": _quarter_turns,
    "RandomAffine": _affine,
    "RandomShear": same(
        ops.Shear,
        horizontal_deg=lambda one: range_of(one, "shear_x"),
        vertical_deg=lambda one: range_of(one, "shear_y"),
        look=_look,
        beyond=_border,
    ),
    "RandomTranslate": _translation,
    "RandomPerspective": _perspective,
    "RandomElasticTransform": _elastic,
    "RandomThinPlateSpline": _thin_plate_spline,
}
"""The name of a transform -> what makes ops of it."""
