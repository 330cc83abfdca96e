"""What a magnitude means for each op of the published policies, and how far each policy goes."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.levels import ROUNDING

Maker = Callable[[float, float, float | None, float], Op]
"""Makes an op of its lowest and highest magnitude, the step between (None: any) and a probability."""


class Signed(NamedTuple):
    """An op whose magnitude has either sign: a tangent, a fraction of the side, pixels, degrees, or what is added to a
    factor of 1; and the largest magnitude of each policy, 0 where it does not have the op."""

    make: Maker
    wide: float = 0.0
    """TrivialAugment's wide space."""
    most: float = 0.0
    """RandAugment and AutoAugment."""
    timm: float = 0.0
    """timm, at level 10."""


def _shear(low: float, high: float, step: float | None, p: float, *, axis: int) -> Op:
    degrees = math.degrees(math.atan(low)), math.degrees(math.atan(high))
    horizontal, vertical = (degrees, (0.0, 0.0)) if axis == 0 else ((0.0, 0.0), degrees)
    return ops.Shear(
        horizontal_deg=horizontal, vertical_deg=vertical, about="corner", even_in="tangent", step=step, p=p
    )


def _translate(low: float, high: float, step: float | None, p: float, *, axis: int, unit: str) -> Op:
    horizontal, vertical = ((low, high), (0.0, 0.0)) if axis == 0 else ((0.0, 0.0), (low, high))
    fields = {"horizontal": horizontal, "vertical": vertical, "unit": unit, "step": step, "p": p}
    return ops.Translate.model_validate(fields)


def _rotate(low: float, high: float, step: float | None, p: float) -> Op:
    return ops.Rotate(max_deg=(low, high), step=step, p=p)


def _enhance(low: float, high: float, step: float | None, p: float, *, name: str) -> Op:
    return FACTORS[name](factor=(1.0 + low, 1.0 + high), step=step, p=p)


FACTORS: dict[str, Callable[..., Op]] = {
    "brightness": ops.Brightness,
    "color": ops.Saturation,
    "contrast": partial(ops.Contrast, about="mean"),
    "sharpness": ops.Sharpness,
}
SIGNED = {
    "shear_x": Signed(partial(_shear, axis=0), wide=0.99, most=0.3, timm=0.3),
    "shear_y": Signed(partial(_shear, axis=1), wide=0.99, most=0.3, timm=0.3),
    "translate_x": Signed(partial(_translate, axis=0, unit="fraction"), most=150.0 / 331.0, timm=0.45),
    "translate_y": Signed(partial(_translate, axis=1, unit="fraction"), most=150.0 / 331.0, timm=0.45),
    "translate_x_px": Signed(partial(_translate, axis=0, unit="px"), wide=32.0),
    "translate_y_px": Signed(partial(_translate, axis=1, unit="px"), wide=32.0),
    "rotate": Signed(_rotate, wide=135.0, most=30.0, timm=30.0),
    **{name: Signed(partial(_enhance, name=name), wide=0.99, most=0.9, timm=0.9) for name in FACTORS},
}
WITHOUT_MAGNITUDE: dict[str, Callable[..., Op]] = {
    "auto_contrast": ops.AutoContrast,
    "equalize": ops.Equalize,
    "invert": ops.Invert,
}


def within(name: str, low: float, high: float, *, step: float | None = None, p: float = 1.0) -> Op:
    """The op with a magnitude that is drawn from low..high."""
    return SIGNED[name].make(low, high, step, p)


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
