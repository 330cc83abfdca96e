"""One recipe of what an importer has found: with one border and one look, in no more passes than a view may take."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from augpipe.ops import CLAHE, CenterCrop, Op, RandomCrop, RandomResizedCrop
from augpipe.ops.crops import seen_beyond
from augpipe.ops.op import Beyond, keyed
from augpipe.ops.resizes import left_unlike
from augpipe.ops.view_passes import (
    MOST_PASSES,
    has_own_look,
    in_one_pass,
    late_steps,
    late_within,
    passes_of,
    without_own_look,
)
from augpipe.recipes.importers.findings import Findings
from augpipe.recipes.importers.looks import (
    FIRST,
    INTERPOLATIONS,
    NEAREST_LOOKS,
    acts_before,
    bordered_behind_resizes,
    in_turn,
    look_alone,
    looked_at_once,
    steps_before,
    with_held,
)
from augpipe.recipes.importers.measured import judged
from augpipe.recipes.importers.reasons import in_their_words
from augpipe.recipes.importers.rows import Look, Row, table_of
from augpipe.recipes.importers.sides import pads_nothing
from augpipe.recipes.importers.units import leave_out_behind, normalize_last
from augpipe.validation.models import changed

BROUGHT_BACK = "pixels that an earlier map moved out of the image are seen again, where there its border is."
"""What differs in a map behind another one, where one look-up does both."""
MIRRORED = ("reflect", "reflect_101", "wrap")
OF_PADDED = "its border repeats the padded image there, and here the image."
"""What differs in a map behind a padding, where the border of one look-up is one of those, or, behind a crop of what
was padded, also "edge": by up to 12 levels."""
BEFORE_RESIZES = "its border is made of pixels before they are resized, and there of those behind."
"""What differs in a border: by up to 7 levels in the mean of a padding, and 2 of photographs that a map moves."""

RAISED = 0.1
"""The mean difference of a step, in levels, above which a CLAHE behind it differs by more than one: by 1.5 to 1.7 of
photographs. It is not rounding: with the levels before it rounded, as it takes them anyway, it is the same."""


def recipe_fields(found: Findings, strict: bool | None) -> dict[str, Any]:
    """The border, fill, ops and look of the recipe; rows and notes then say what differs.

    Args:
        found: all of it; it is changed.
        strict: refuse what cannot be mapped, instead of leaving it out; None refuses it, and offers no choice.

    Raises:
        ValueError: something cannot be mapped and may not be left out; lists all of it.
    """
    _leave_out_unlike(found)
    normalize_last(found)
    problems = found.problems
    leave_out_behind(found)
    padding = next((op.beyond for op in found.ops if op.is_crop and op.beyond), None)
    borders = [*([padding] if padding else []), *(seen_beyond(*row.beyond) for row in found.rows if row.beyond)]
    found.beyond = border, fill = own = borders[0] if borders else found.beyond
    _look_once(found)
    _border_alone(found)
    _part_maps(found)
    _act_in_turn(found)
    _note_order(found)
    for problem in found.problems:
        found.note(f"{problem}: left out.")
    _judge(found)
    if problems and strict is not False:
        raise ValueError(_refusal(found, problems, " by strict=False (--leave-out)," if strict else ""))
    if "constant" in {shown for shown, _ in borders}:  # others show the image's own labels
        _note_mask_fills(found)
    others = [
        nth for nth, one in enumerate(found.rows) if one.beyond and _shown_by(found, one) != seen_beyond(*one.beyond)
    ]
    if others:
        found.note(f"borders: transforms fill differently beyond the image, and one look-up has one border: {own}.")
        for place in others:
            found.differs(place, f"beyond the image it shows {border}.", is_noted=True)
    fields = {"border": border, "fill": fill, "channels": found.channels, "ops": tuple(found.ops)}
    return {**fields, "interpolation": found.look.interpolation, "antialias": found.look.antialias}


def _refusal(found: Findings, problems: list[str], how: str) -> str:
    """What cannot be mapped, what to do, and what all else becomes."""
    listed = "\n".join(f"  {problem}" for problem in problems)
    others = [row for row in found.rows if row.told not in problems]
    table = "".join(f"\n  {line.rstrip()}" for line in table_of(others).text().splitlines()[1:])
    told = f"Leave them out{how} and add ops by hand." + (f" The others become:{table}" if table else "")
    return f"{len(problems)} of {found.source}'s transforms cannot be imported:\n{listed}\n{told}"


def _leave_out_unlike(found: Findings) -> None:
    """Leave out what draws a size for each image, where nothing behind it makes them one."""
    while (unlike := left_unlike([op for op in found.ops if op.is_crop])) is not None:
        found.ops[:] = [op for op in found.ops if op is not unlike]
        for place in _rows_of(found, unlike):
            told = "leaves each image at its own size; put RandomCrop, or another crop or Resize, behind it"
            found.rows[place] = found.rows[place].left_out(told)


def _fits(found: Findings, listed: list[Op]) -> bool:
    """Whether ops take no more passes than a view may."""
    return len(passes_of(keyed(listed), found.beyond, found.look.interpolation)) <= MOST_PASSES


def _note_order(found: Findings) -> None:
    """Say of groups of both colours and geometry, whose colours act behind all geometry of their pass, where that is
    not the same; and of all steps, where the listed order takes more passes than a view may."""
    acting, interpolation = keyed(found.ops), found.look.interpolation
    passes = passes_of(acting, found.beyond, interpolation)
    if len(passes) > MOST_PASSES and all(op.in_files for op in found.ops):  # the recipe refuses functions by name
        passes = (acting,)
        found.ops[:] = in_one_pass(found.ops)
    for step, look_up in late_steps(passes, found.beyond, interpolation):
        _act_late(found, step, look_up)
    for one in (one for own in passes for one in bordered_behind_resizes(found.rows, own)):
        for place in _rows_of(found, one) if not pads_nothing(one, found.ops) else ():
            found.differs(place, BEFORE_RESIZES)
    told = f"one look-up here, less blurred than by {found.source}, which interpolates each time."
    for own in passes:
        at_once = looked_at_once(found.rows, own)
        if len(at_once) > 1:
            found.note(f"{', '.join(dict.fromkeys(found.rows[place].name for place in at_once))}: {told}")
        for place in at_once[1:]:
            found.differs(place, told, is_noted=True)


def _act_late(found: Findings, op: Op, look_up: Op) -> None:
    before = f"the {look_up.op}" if look_up.is_crop else look_up.op
    told = in_their_words(f"stands before {before}, and acts after it here.", found.rows)
    found.note(f"{in_their_words(op.op, found.rows)}: {told}")
    for place in _rows_of(found, op):
        found.differs(place, told, is_noted=True)


def _rows_of(found: Findings, op: Op) -> list[int]:
    """The places of the rows that have an op of their own."""
    return [place for place, row in enumerate(found.rows) if row.has(op)]


def _judge(found: Findings) -> None:
    """Have the figures say which rows are exact; what differs in those is less than is worth a note."""
    before, found.rows[:] = list(found.rows), [judged(row, found.measured_as) for row in found.rows]
    exact = {row.told for row in found.rows if row.verdict == "exact"}
    near = {row.told for row in found.rows if row.verdict != "exact"}
    found.notes[:] = [note for note in found.notes if note not in exact - near]
    for old, new in zip(before, found.rows, strict=True):
        if new.verdict == "near" and not old.note:
            found.note(new.told)
    _note_raised(found)


def _note_raised(found: Findings) -> None:
    """Say of a CLAHE behind steps that are exact, but not to the level, that it makes more of that."""
    for place, row in enumerate(found.rows):
        if row.verdict != "exact" or not (row.ops and isinstance(row.ops[0], CLAHE)):
            continue
        earlier = steps_before(found.ops, row.ops[0])
        off = [one.name for one in found.rows if one.levels and one.levels[0] > RAISED and _share(earlier, one.ops)]
        if off:
            found.rows[place] = replace(row, note="")  # which says less
            found.differs(place, f"raises what {off[-1]} leaves a level off: by about 1.6 levels in the mean.")


def _look_once(found: Findings) -> None:
    """Have the recipe look as the first transform that resizes, else as the first that may shrink, or looks."""
    looking = [row for row in found.rows if row.look]
    resizing = [row for row in looking if any(op.is_crop for op in row.ops)]
    looks = [row.look for row in (*resizing, *looking) if row.look] or [found.look]
    own = next((look for look in looks if look.antialias is not None), looks[0])
    known = own.interpolation in INTERPOLATIONS
    name = own.interpolation if known else NEAREST_LOOKS.get(own.interpolation, "bilinear")
    found.look = Look(interpolation=name, antialias=own.antialias is not False)
    if not _fits(found, found.ops):
        _share_look(found)
    for place, row in enumerate(found.rows):
        if row.look is None or any(map(has_own_look, _held_in(found, row))):
            continue
        if row.look.interpolation != name:
            if not (_looks_alone(found, place) or _held_alone(found, row)):
                found.differs(place, f"{row.look.interpolation} interpolation becomes {name}.")
        elif row.look.antialias not in (None, found.look.antialias) and name != "nearest":
            found.differs(place, "shrinking averages." if found.look.antialias else "shrinking does not average.")


def _share_look(found: Findings) -> None:
    """Have policies be part of the one look-up, where a pass for each of their groups is more than a view may."""
    for place, row in enumerate(found.rows):
        if any(map(has_own_look, row.ops)):
            found.differs(place, FIRST)
    for op in filter(has_own_look, list(found.ops)):
        _replace(found, op, without_own_look(op))


def _border_alone(found: Findings) -> None:
    """Have maps that show another border than the recipe's look alone, and with it, where there are passes left."""
    for place, row in enumerate(found.rows):
        if row.beyond is None or _shown_by(found, row) == seen_beyond(*row.beyond):
            continue
        border, fill = own = seen_beyond(*row.beyond)
        held = [one for one in found.rows if one.beyond and _share(_held_in(found, one), _held_in(found, row))]
        if {seen_beyond(*one.beyond) for one in held if one.beyond} != {own}:
            continue  # a group has one border
        if any(map(has_own_look, _held_in(found, row))) or _looks_alone(found, place) or _held_alone(found, row):
            for group in filter(has_own_look, _held_in(found, found.rows[place])):
                _replace(found, group, changed(group, own_border=border, own_fill=fill))


def _shown_by(found: Findings, row: Row) -> Beyond:
    """The border and the fill that a row shows beyond the image."""
    groups = filter(has_own_look, _held_in(found, row))
    return next(filter(None, (group.own_beyond for group in groups)), found.beyond)


def _part_maps(found: Findings) -> None:
    """Have a map look alone behind another one that bends an image as it does, or shows what is beyond it: one look-up
    brings back what the first one moves out. And behind a padding whose border it repeats."""
    for place, row in enumerate(found.rows):
        if any(_meets(found, row)):
            before = acts_before(found.ops, row)
            earlier = [nth for nth, one in enumerate(found.rows) if one.look and _share(one.ops, before)]
            if not (_looks_alone(found, place) or _held_alone(found, row)):
                any(_looks_alone(found, nth) for nth in reversed(earlier))  # then this one looks at what that made
            if told := _meets(found, row)[1]:
                found.differs(place, told)
        border = next((op.beyond[0] for op in row.ops if op.beyond), "")
        if border in MIRRORED and _pads(found, acts_before(found.ops, row)):
            found.differs(place, OF_PADDED)


def _meets(found: Findings, row: Row) -> tuple[bool, str]:
    """Whether maps before those of a row in their look-up bend the image, too, and what differs in what it shows beyond
    the image."""
    before = [held for op in acts_before(found.ops, row) for held in with_held(op)] if row.look else []
    maps = [one.ops[0] for one in found.rows if one.look and one.ops and not one.ops[0].is_crop]
    bends = any(map(_bends, row.ops)) and any(map(_bends, before))
    told = ""
    if row.beyond is not None and any(held is op for held in before for op in maps):
        told = BROUGHT_BACK
    elif row.beyond is not None and row.beyond[0] == found.beyond[0] != "constant":
        repeats = row.beyond[0] in MIRRORED and _pads(found, before)
        told = OF_PADDED if repeats or _crops_padded(before) else ""
    return bends, told


def _pads(found: Findings, listed: Iterable[Op]) -> bool:
    """Whether one of some ops makes frames that show more than the image."""
    return any(op.beyond and not pads_nothing(op, found.ops) for op in listed)


def _held_alone(found: Findings, row: Row) -> bool:
    """Have the group that holds a map look alone, and maps in it that meet do so in turn, where there are passes left
    for that; else as one."""
    for old in [op for op in _held_in(found, row) if not row.has(op)]:
        rows = [one for one in found.rows if one.look and any(own is old for own in _held_in(found, one))]
        looks = {one.look.interpolation for one in rows if one.look}
        if len(looks) != 1:
            return False
        (interpolation,) = looks
        for new in (in_turn(old, interpolation, [one.ops[0] for one in rows]), in_turn(old, interpolation)):
            if new is not old and _fits(found, [new if op is old else op for op in found.ops]):
                _replace(found, old, new)
                return True
    return False


def _held_in(found: Findings, row: Row) -> list[Op]:
    """The ops of the recipe that are those of a row, or hold them."""
    return [op for op in found.ops if _share([*with_held(op)], row.ops)]


def _act_in_turn(found: Findings) -> None:
    """Have groups in which a step waits for a look-up act in turn, where there are passes left; else say so."""
    told = {id(inner) for row in found.rows if FIRST in row.note for op in row.ops for inner in op.flat}
    for at, op in enumerate(found.ops):
        late = [*late_within(op, found.ops[:at], found.beyond, found.look.interpolation)]
        if all(id(step) in told for step, _ in late):
            continue
        made = in_turn(op, found.look.interpolation)
        waits = any(late_within(made, found.ops[:at], found.beyond, found.look.interpolation))
        if not waits and _fits(found, [*found.ops[:at], made, *found.ops[at + 1 :]]):
            _replace(found, op, made)
        else:
            for step, look_up in late:
                _act_late(found, step, look_up)


def _replace(found: Findings, old: Op, new: Op) -> None:
    """Have an op be another one, in rows, too."""
    found.ops[:] = [new if op is old else op for op in found.ops]
    for place in _rows_of(found, old):
        row = found.rows[place]
        found.rows[place] = replace(row, ops=tuple(new if op is old else op for op in row.ops))


def _looks_alone(found: Findings, place: int) -> bool:
    """Have a map that looks otherwise than the recipe do so in a pass of its own, where there is one left."""
    row = found.rows[place]
    alone = look_alone(found.ops, row)
    if alone is None or not _fits(found, alone):
        return False
    old, group = next((old, new) for old, new in zip(found.ops, alone, strict=False) if old is not new)
    found.ops[:], found.rows[place] = alone, replace(row, ops=(group,))
    _replace(found, old, group)
    return True


def _note_mask_fills(found: Findings) -> None:
    """Say what label maps show beyond the image, where that is not 255, as it is here."""
    labels = sorted({label for label, _ in found.mask_fills})
    if labels in ([], [255]):
        return
    by = {label: ", ".join(sorted(name for own, name in found.mask_fills if own == label)) for label in labels}
    shown = ", ".join(f"{label} ({names})" for label, names in by.items())
    here = "one label: 255, or that of targets=TargetOptions(mask_fill=...)."
    if len(labels) == 1:
        here = f"255, or {labels[0]} by targets=TargetOptions(mask_fill={labels[0]})."
    found.note(f"label maps: there they show {shown} beyond the image; here {here}")


def _crops_padded(before: Sequence[Op]) -> bool:
    """Whether an op crops what may have been padded, of which one look-up shows the rest beyond the crop."""
    padding = next((at for at, op in enumerate(before) if op.beyond), len(before))
    return any(isinstance(op, CenterCrop | RandomCrop | RandomResizedCrop) for op in before[padding:])


def _share(some: Iterable[Op], others: Sequence[Op]) -> bool:
    """Whether an op is among both."""
    return any(one is other for one in some for other in others)


def _bends(op: Op) -> bool:
    return any(inner.is_lens or inner.is_projective for inner in op.flat)
