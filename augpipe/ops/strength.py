"""How strong an op is: all that it draws, moved nearer to what changes nothing, or further from it."""

import math

from augpipe import ops
from augpipe.ops.op import KINDS


def has_strength(op: ops.Op) -> bool:
    """Whether there is more and less of an op; flips, crops, groups and the like are done or not."""
    return bool(op.scaled_fields)


def at_strength(op: ops.Op, strength: float) -> ops.Op:
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
    fields = op.model_dump()
    moved = {name: scale(fields[name], strength) for name, scale in op.scaled_fields.items()}
    return type(op).model_validate({**fields, **moved})


NAMES: tuple[str, ...] = tuple(
    sorted(name for name, kind in KINDS.items() if any(draw.scaled_fields for draw in kind.draws))
)
"""Kinds of op that have a strength."""
