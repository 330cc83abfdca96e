"""What a magnitude means for each op of the published policies, whatever table it is from."""

import math
from collections.abc import Callable

from augpipe import ops
from augpipe.ops import Op

MOST_TRANSLATED = 150.0 / 331.0
"""The largest translation of AutoAugment and RandAugment, as a fraction of the image's side."""

ROUNDING = 1e-6
"""Levels by which a threshold may miss a whole one, and still be it."""

WITHOUT_MAGNITUDE: dict[str, Callable[..., Op]] = {
    "auto_contrast": ops.AutoContrast,
    "equalize": ops.Equalize,
    "invert": ops.Invert,
}


def _shear(axis: int) -> Callable[..., Op]:
    def make(low: float, high: float, step: float | None, p: float) -> Op:
        degrees = math.degrees(math.atan(low)), math.degrees(math.atan(high))
        horizontal, vertical = (degrees, (0.0, 0.0)) if axis == 0 else ((0.0, 0.0), degrees)
        return ops.Shear(
            horizontal_deg=horizontal, vertical_deg=vertical, about="corner", even_in="tangent", step=step, p=p
        )

    return make


def _translate(axis: int, in_px: bool) -> Callable[..., Op]:
    def make(low: float, high: float, step: float | None, p: float) -> Op:
        horizontal, vertical = ((low, high), (0.0, 0.0)) if axis == 0 else ((0.0, 0.0), (low, high))
        unit = "px" if in_px else "fraction"
        return ops.Translate.model_validate(
            {"horizontal": horizontal, "vertical": vertical, "unit": unit, "step": step, "p": p}
        )

    return make


def _enhance(kind: Callable[..., Op], **fields: str) -> Callable[..., Op]:
    def make(low: float, high: float, step: float | None, p: float) -> Op:
        return kind(factor=(1.0 + low, 1.0 + high), step=step, p=p, **fields)

    return make


SIGNED: dict[str, Callable[..., Op]] = {
    "shear_x": _shear(0),
    "shear_y": _shear(1),
    "translate_x": _translate(0, in_px=False),
    "translate_y": _translate(1, in_px=False),
    "translate_x_px": _translate(0, in_px=True),
    "translate_y_px": _translate(1, in_px=True),
    "rotate": lambda low, high, step, p: ops.Rotate(max_deg=(low, high), step=step, p=p),
    "brightness": _enhance(ops.Brightness),
    "color": _enhance(ops.Saturation),
    "contrast": _enhance(ops.Contrast, about="mean"),
    "sharpness": _enhance(ops.Sharpness),
}
"""Ops whose magnitude has either sign: a tangent, a fraction of the side, pixels, degrees, or what is added to a factor
of 1. Each is made of the lowest and highest magnitude, the step between (None: any) and a probability."""


def within(name: str, low: float, high: float, *, step: float | None = None, p: float = 1.0) -> Op:
    """The op with a magnitude that is drawn from low..high."""
    return SIGNED[name](low, high, step, p)


def either_sign(name: str, magnitude: float, p: float = 1.0) -> Op:
    """The op with one magnitude, positive or negative as a coin falls."""
    if magnitude == 0.0:
        return ops.Identity()
    return within(name, -magnitude, magnitude, step=2.0 * magnitude, p=p)


def solarize(threshold: float, p: float = 1.0) -> Op:
    """Inversion from a threshold on that need not be whole."""
    whole = math.ceil(threshold - ROUNDING)
    return ops.Solarize(threshold=(whole, whole), p=p)


def posterize(bits: int, p: float = 1.0) -> Op:
    """The highest bits alone."""
    return ops.Posterize(bits=(bits, bits), p=p)
