"""How strong an op is: all that it draws, moved nearer to what changes nothing, or further from it."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from augpipe import ops
from augpipe.ops.op import Op

Scale = Callable[[Any, float], Any]
"""A field's value and a strength to the value at that strength; strength 1 leaves it as it is."""


def _from_zero(value: Any, strength: float) -> Any:
    """Numbers that change nothing at 0, and steps; None stays."""
    if value is None:
        return None
    return tuple(strength * one for one in value) if isinstance(value, tuple) else strength * value


def _from_one(value: Any, strength: float) -> Any:
    """Factors, which change nothing at 1; one number is the distance from there."""
    if not isinstance(value, tuple):
        return strength * value
    return tuple(1.0 + strength * (one - 1.0) for one in value)


def _power(value: Any, strength: float) -> Any:
    """Powers, whose logarithm is drawn."""
    return tuple(one**strength for one in value)


def _by_tangent(value: Any, strength: float) -> Any:
    """Angles whose tangents are drawn."""
    return tuple(math.degrees(math.atan(strength * math.tan(math.radians(one)))) for one in value)


_FACTOR: dict[str, Scale] = {"factor": _from_one, "step": _from_zero}
_FIELDS: dict[type[Op], dict[str, Scale]] = {
    ops.Blur: {"sigma_px": _from_zero, "step": _from_zero},
    ops.Brightness: _FACTOR,
    ops.BrownConrady: dict.fromkeys(("k1", "k2", "k3", "p1", "p2"), _from_zero),
    ops.ColorCast: {"max_shift": _from_zero, "step": _from_zero},
    ops.ColorJitter: {**dict.fromkeys(("brightness", "contrast", "saturation"), _from_one), "hue": _from_zero},
    ops.Contrast: _FACTOR,
    ops.Gamma: {"gamma": _power},
    ops.Hue: {"turns": _from_zero, "step": _from_zero},
    ops.LensDistortion: {"max_strength": _from_zero},
    ops.Lighting: {"std": _from_zero},
    ops.Noise: {"std": _from_zero, "speckle": _from_zero},
    ops.Perspective: {"distortion": _from_zero},
    ops.Rotate: {"max_deg": _from_zero, "step": _from_zero},
    ops.Saturation: _FACTOR,
    ops.Sharpness: _FACTOR,
    ops.Shear: {"horizontal_deg": _from_zero, "vertical_deg": _from_zero, "step": _from_zero},
    ops.Stretch: {"horizontal": _from_one, "vertical": _from_one, "step": _from_zero},
    ops.Translate: {"horizontal": _from_zero, "vertical": _from_zero, "step": _from_zero},
    ops.Vignette: {"strengths": _from_zero, "strength_step": _from_zero},
    ops.Zoom: _FACTOR,
}
"""The fields that say how far an op goes, and the steps between the numbers that it draws: their number stays, so that
the same word picks the same place in the range at every strength."""


def has_strength(op: Op) -> bool:
    """Whether there is more and less of an op; flips, crops, groups and the like are done or not."""
    return type(op) in _FIELDS


def at_strength(op: Op, strength: float) -> Op:
    """The op with all that it draws `strength` times as far from what changes nothing, from the same random words.

    A rotation of up to 10 degrees in steps of 1 is at strength 2 one of up to 20 in steps of 2. Factors are moved from
    1: 0.8 to 1.25 becomes 0.6 to 1.5. How often the op is applied stays.

    Args:
        op: one that `has_strength`.
        strength: above 0; 1 is the op itself.

    Raises:
        ValueError: there is no more or less of this op, or it does not go so far; says its limit.
    """
    if not has_strength(op):
        raise ValueError(f"{op.op} is done or not: it has no strength. Those that have one: {', '.join(NAMES)}.")
    if not 0.0 < strength < math.inf:
        raise ValueError(f"strength={strength} must be above 0. Leave the op out for strength 0.")
    scales: Mapping[str, Scale] = _FIELDS[type(op)]
    fields = op.model_dump()
    if isinstance(op, ops.Shear) and op.even_in == "tangent":
        scales = {"horizontal_deg": _by_tangent, "vertical_deg": _by_tangent, "step": _from_zero}
    return type(op).model_validate(
        {**fields, **{name: scale(fields[name], strength) for name, scale in scales.items()}}
    )


NAMES: tuple[str, ...] = tuple(sorted(kind.model_fields["op"].default for kind in _FIELDS))
"""Kinds of op that have a strength."""
