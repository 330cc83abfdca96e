"""Height and width of what transforms make: where they are known, and where they change places."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.geometry import within_swapped
from augpipe.ops.groups import each_within
from augpipe.ops.resizes import one_size
from augpipe.validation.models import changed

if TYPE_CHECKING:
    from augpipe.recipes.importers.findings import Findings

KEEPS_SHAPE = "a frame that is not square keeps its shape, where the sides change places there."
"""What differs in a turn of a frame that a crop has made."""


def sides_of(made: Sequence[Op]) -> tuple[int, ...]:
    """Height and width of the frames that ops make; fewer numbers where they differ."""
    sides: tuple[Any, ...] = ()
    for op in made:
        if isinstance(op, ops.ResizeLongest):
            sides = (op.size,)
        elif isinstance(op, ops.Pad) and op.size is not None and len(sides) == 1:
            padded = op.size if isinstance(op.size, tuple) else (op.size,) * 2
            sides = padded if min(padded) >= sides[0] else ()
        elif op.is_crop and not (isinstance(op, ops.ZoomOut) or getattr(op, "own_size", False)):
            sides = one_size([op]) or ()
    return sides


def pads_nothing(op: Op, made: Sequence[Op]) -> bool:
    """Whether it is a padding of frames that the ops before it make as large as it would, or larger."""
    before = sides_of(made[: next((at for at, one in enumerate(made) if one is op), 0)])
    return isinstance(op, ops.Pad) and len(before) == 2 and tuple(op.sides(*before)) == before


def are_at_least(made: Sequence[Op], size: tuple[int, int]) -> bool:
    """Whether frames that ops make are at least of a height and width; False where they depend on an image's size."""
    known = sides_of(made)
    if len(known) == 2:
        return known[0] >= size[0] and known[1] >= size[1]
    last = next((op for op in reversed(made) if op.is_crop and not isinstance(op, ops.Pad)), None)
    return isinstance(last, ops.ResizeShortest) and last.max_size is None and last.size >= max(size)


def swap_sides(found: "Findings") -> None:
    """Have height and width change places, as there, where images keep their own size."""
    if any(op.is_crop for op in found.ops):
        return
    swapping = each_within(
        lambda op: changed(op, swaps_sides=True) if isinstance(op, ops.QuarterTurn | ops.Transpose) else op
    )
    swapped = list(map(swapping, found.ops))
    if within_swapped(swapped):
        return
    found.ops[:] = swapped
    for place, row in enumerate(found.rows):
        own = tuple(map(swapping, row.ops))
        found.rows[place] = replace(row, ops=own, note="" if row.note == KEEPS_SHAPE else row.note)
    found.notes[:] = [note for note in found.notes if not note.endswith(KEEPS_SHAPE)]
