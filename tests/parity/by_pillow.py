"""Ops on 256 levels as Pillow has them: levels in, levels out."""

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from augpipe import ops

Picture = Image.Image
Reference = Callable[[Picture, Any], Picture]


def _gamma(picture: Picture, drawn: Any) -> Picture:
    return picture.point([round(255 * (level / 255) ** float(drawn["gamma"])) for level in range(256)] * 3)


def _solarize_add(picture: Picture, drawn: Any) -> Picture:
    added = [min(level + int(drawn["addition"]), 255) if level < 128 else level for level in range(256)]
    return picture.point(added * 3)


def _if_applied(change: Callable[[Picture], Picture]) -> Reference:
    return lambda picture, drawn: change(picture) if drawn["applied"] else picture


BY_PILLOW: dict[type[ops.Op], Reference] = {
    ops.AutoContrast: _if_applied(ImageOps.autocontrast),
    ops.Equalize: _if_applied(ImageOps.equalize),
    ops.Gamma: _gamma,
    ops.Invert: _if_applied(ImageOps.invert),
    ops.Posterize: lambda picture, drawn: ImageOps.posterize(picture, int(drawn["bits"])),
    ops.Sharpness: lambda picture, drawn: ImageEnhance.Sharpness(picture).enhance(float(drawn["factor"])),
    ops.Solarize: lambda picture, drawn: ImageOps.solarize(picture, int(drawn["threshold"])),
    ops.SolarizeAdd: _solarize_add,
}
"""The ops whose result is a whole level; of a resampled image Pillow is given the nearest levels."""

LEVELS_APART = {ops.AutoContrast: 1, ops.Contrast: 2, ops.Sharpness: 1}
"""How far Pillow rounds otherwise: it scales in float64, takes a whole mean, and blends in another order."""


def expected_levels(op: ops.Op, image: np.ndarray, drawn: Any) -> np.ndarray:
    """(H, W, 3) uint8 of what Pillow makes of an image."""
    picture = Image.fromarray(image)
    if isinstance(op, ops.Contrast):  # about the mean
        return np.asarray(ImageEnhance.Contrast(picture).enhance(float(drawn["factor"])))
    return np.asarray(BY_PILLOW[type(op)](picture, drawn))
