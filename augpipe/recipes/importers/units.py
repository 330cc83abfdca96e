"""The units that transforms count in: fills behind a Normalize in levels, and what units are left out with."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.commuting import acts_in_look_up
from augpipe.ops.groups import each_within
from augpipe.recipes.importers.normalized import CLIPPED, UNITLESS, WHOLE_PIXELS, NoLevel, in_levels, level, shows_means
from augpipe.recipes.importers.reasons import in_their_words
from augpipe.recipes.importers.rows import Row

if TYPE_CHECKING:
    from augpipe.recipes.importers.findings import Findings

UNIT = ops.Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
"""What makes numbers in 0..1 of levels."""
CUT_OFF = "numbers that are normalised are kept within 0..1 before its first change, and not only behind it."
"""What differs in a ColorJitter behind a Normalize."""
FUNCTION = "Lambda"
"""The transform that may change units, and need not."""


def fill_in_levels(found: "Findings", num_ops: int, num_rows: int) -> None:
    """Take the fills of a transform as parts of 255; these are the numbers of what was found before it."""
    try:
        made = each_within(lambda op: in_levels(op, UNIT))
        found.rows[num_rows:] = [_row_in_levels(row, made, UNIT) for row in found.rows[num_rows:]]
        found.ops[num_ops:] = map(made, found.ops[num_ops:])
    except NoLevel as error:
        name = found.rows[-1].name
        del found.ops[num_ops:], found.rows[num_rows:]
        told = f"fills with {error.fill[0]:g} behind ToTensor, where numbers go from 0 to 1; give a part of 1, or put "
        found.refuse(name, f"{told}{name} before ToTensor")


def normalize_last(found: "Findings") -> None:
    """Move a Normalize behind what gives the same before it and after it: what shows means of levels, or a fill.

    Where something else stands behind it, it is refused.
    """
    last = found.normalize
    if last is None:
        return
    place = found.ops.index(last)
    later = found.ops[place + 1 :]
    rows = next((nth + 1 for nth, row in enumerate(found.rows) if row.has(last)), len(found.rows))
    shows = partial(_shows, found, last)
    if not all(map(shows, later)):
        kinds = {inner.op for op in later for inner in op.flat}
        if not kinds <= {"normalize", "erase"}:
            _refuse_normalize(
                found,
                last,
                rows,
                [row.name for row in found.rows[rows:] if not (row.holds or all(map(shows, row.ops)))],
            )
        return
    made = each_within(lambda op: in_levels(op, last))
    for nth in range(rows, len(found.rows)):
        row = found.rows[nth]
        try:
            found.rows[nth] = _row_in_levels(row, made, last)
        except ValueError as error:
            told = "holds what cannot be imported" if row.holds else str(error)
            found.rows[nth] = row.left_out(told)
            later = [op for op in later if not row.has(op)]
    found.ops[place:] = [*map(made, later), last]
    _note_moved(found, later)


def _note_moved(found: "Findings", later: list[Op]) -> None:
    """Say what a Normalize stood before, and what differs in that."""
    moves = (ops.Flip, *WHOLE_PIXELS)
    told = [op.op for op in later if op.beyond or not (op.is_crop or all(isinstance(o, moves) for o in op.flat))]
    if told:
        names = in_their_words(", ".join(dict.fromkeys(told)), found.rows)
        found.note(f"Normalize: stands before {names}, and acts last here, which is the same.")
    for place, row in enumerate(found.rows):
        jitters = [inner for op in row.ops for inner in op.flat if isinstance(inner, ops.ColorJitter)]
        if any(jitter.of_normalized for jitter in jitters) and not row.holds:
            found.differs(place, CUT_OFF)


def _shows(found: "Findings", normalize: ops.Normalize, op: Op) -> bool:
    is_clipped = found.clips_blurs and any(isinstance(inner, CLIPPED) for inner in op.flat)
    return op.is_crop or (not is_clipped and all(shows_means(inner, normalize) for inner in op.flat))


def _refuse_normalize(found: "Findings", last: Op, rows: int, names: list[str]) -> None:
    """Refuse a Normalize that became an op already, for the sake of transforms behind it."""
    found.ops[:] = [op for op in found.ops if op is not last]
    if found.counts_in_parts:
        found.ops.append(UNIT)
    before = ", ".join(dict.fromkeys(names)) or "other ops"
    found.refuse("Normalize", f"stands before {before}, and is the last step here; put it behind them")
    assert found.rows[rows - 1].has(last)
    found.rows[rows - 1] = found.rows.pop()


def leave_out_behind(found: "Findings") -> None:
    """Leave out transforms that count in the units of an earlier one, where that is left out."""
    cause = ""
    for place, row in enumerate(found.rows):
        if row.loses_units:
            cause = row.name if cause in ("", FUNCTION) else cause
        elif cause == FUNCTION and any(isinstance(op, ops.Normalize) for op in row.ops):
            found.note(f"{row.name}: is read as if {cause}, which is left out, kept the units before it.")
        elif cause and row.verdict != "left out" and _counts(row):
            units = "units that it may change" if cause == FUNCTION else "the units that it makes"
            _leave_out(found, place, f"stands behind {cause}, which is left out, and counts in {units}")


def _leave_out(found: "Findings", place: int, reason: str) -> None:
    """Leave out a row, with its ops and the rows of what it holds."""
    left = found.rows[place]
    held = {id(inner) for op in left.ops for inner in op.flat}
    for nth, row in enumerate(found.rows[: place + 1]):
        own = {id(inner) for op in row.ops for inner in op.flat}
        if row is left or (left.holds and own and own <= held):
            found.rows[nth] = row.left_out(reason)
            found.notes[:] = [note for note in found.notes if note != row.told]
    found.ops[:] = [op for op in found.ops if not left.has(op)]
    if found.normalize is None and found.counts_in_parts:
        found.ops.append(UNIT)


def _counts(row: Row) -> bool:
    """Whether what a transform does depends on what its numbers count in."""
    flat = [inner for op in row.ops for inner in op.flat]
    if any(beyond is not None and beyond[0] == "constant" for beyond in (row.beyond, *(op.beyond for op in flat))):
        return True
    return not all(acts_in_look_up(op) or isinstance(op, UNITLESS) for op in flat)


def _row_in_levels(row: Row, made: Callable[[Op], Op], normalize: ops.Normalize) -> Row:
    """A row with fills in levels.

    Raises:
        ValueError: of no level.
    """
    beyond = row.beyond
    if beyond and beyond[0] == "constant":
        beyond = "constant", level(beyond[1], normalize)
    return replace(row, ops=tuple(map(made, row.ops)), beyond=beyond)
