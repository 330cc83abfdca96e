"""Ops on 256 levels as Pillow has them, or as their row says: levels in, levels out."""

import io
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from augpipe import ops
from augpipe.ops.levels import LevelsOp
from tests.parity.oracle import Expected
from tests.parity.table import ROWS

Picture = Image.Image
Reference = Callable[[Picture, Any], Picture]


def _gamma(picture: Picture, drawn: Any) -> Picture:
    return picture.point([round(255 * (level / 255) ** float(drawn["gamma"])) for level in range(256)] * 3)


def _tone_curve(picture: Picture, drawn: Any) -> Picture:
    """By de Casteljau's construction of a cubic Bézier curve, from height to height."""
    table = []
    for level in range(256):
        heights = [0.0, float(drawn["low"]), float(drawn["high"]), 1.0]
        while len(heights) > 1:
            heights = [one + level / 255 * (other - one) for one, other in pairwise(heights)]
        table.append(round(255 * heights[0]))
    return picture.point(table * 3) if drawn["applied"] else picture


def _solarize_add(picture: Picture, drawn: Any) -> Picture:
    added = [min(level + int(drawn["addition"]), 255) if level < 128 else level for level in range(256)]
    return picture.point(added * 3)


def _if_applied(change: Callable[[Picture], Picture]) -> Reference:
    return lambda picture, drawn: change(picture) if drawn["applied"] else picture


def _median_blur(picture: Picture, drawn: Any) -> Picture:
    size = int(drawn["size_px"])
    return picture.filter(ImageFilter.MedianFilter(size)) if size > 1 else picture


def _jpeg(picture: Picture, drawn: Any) -> Picture:
    if drawn["applied"]:
        picture.save(file := io.BytesIO(), "JPEG", quality=int(drawn["quality"]))
        return Image.open(file)
    return picture


BY_PILLOW: dict[type[ops.Op], Reference] = {
    ops.AutoContrast: _if_applied(ImageOps.autocontrast),
    ops.Equalize: _if_applied(ImageOps.equalize),
    ops.Gamma: _gamma,
    ops.Invert: _if_applied(ImageOps.invert),
    ops.JpegCompression: _jpeg,
    ops.MedianBlur: _median_blur,
    ops.Posterize: lambda picture, drawn: ImageOps.posterize(picture, int(drawn["bits"])),
    ops.Sharpness: lambda picture, drawn: ImageEnhance.Sharpness(picture).enhance(float(drawn["factor"])),
    ops.Solarize: lambda picture, drawn: ImageOps.solarize(picture, int(drawn["threshold"])),
    ops.SolarizeAdd: _solarize_add,
    ops.ToneCurve: _tone_curve,
}
"""The ops whose result is a whole level; of a resampled image Pillow is given the nearest levels."""

ON_LEVELS: tuple[type[ops.Op], ...] = (*BY_PILLOW, *(kind for kind in ROWS if issubclass(kind, LevelsOp)))
"""All ops of whole levels but the contrast about the mean, and CLAHE."""
LEVELS_APART = {ops.AutoContrast: 1, ops.Contrast: 2, ops.Sharpness: 1}
"""How far Pillow rounds otherwise: it scales in float64, takes a whole mean, and blends in another order."""
LEVELS_APART |= {kind: 1 for kind in ON_LEVELS if kind in ROWS}  # up or down, the row does not say


def expected_levels(op: ops.Op, image: np.ndarray, drawn: Any) -> np.ndarray:
    """(H, W, 3) uint8 of what Pillow makes of an image."""
    if type(op) in ROWS and type(op) is not ops.Contrast:  # which Pillow does not have; levels are rounded down
        expected = Expected(*image.shape[:2])
        ROWS[type(op)](expected, op, drawn)
        return np.clip(expected.finished(image.astype(np.float64)) + 1e-6, 0, 255).astype(np.uint8)
    picture = Image.fromarray(image)
    if isinstance(op, ops.Contrast):  # about the mean
        return np.asarray(ImageEnhance.Contrast(picture).enhance(float(drawn["factor"])))
    return np.asarray(BY_PILLOW[type(op)](picture, drawn))
