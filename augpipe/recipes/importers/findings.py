"""What an importer finds on its way: ops, what differs, and what cannot be mapped."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from augpipe.ops import CLAHE, CenterCrop, Normalize, Op, RandomCrop, RandomResizedCrop
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
from augpipe.recipes.importers.functions import NOT_RUN, OF_SCRIPT
from augpipe.recipes.importers.looks import (
    FIRST,
    INTERPOLATIONS,
    acts_before,
    bordered_behind_resizes,
    in_turn,
    look_alone,
    looked_at_once,
    steps_before,
    with_held,
)
from augpipe.recipes.importers.measured import judged
from augpipe.recipes.importers.reasons import in_their_words, reason, unknown
from augpipe.recipes.importers.rows import Look, Row, table_of
from augpipe.recipes.importers.sides import pads_nothing, sides_of
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


USUAL_LOOK = Look(interpolation="bilinear", antialias=True)
"""That of a recipe whose transforms do not look between pixels."""


BY_NAME = "by its name; what it does otherwise is left out."
HOMES = ("", "albumentations", "augpipe", "builtins", "kornia", "timm", "torch", "torchvision", "types")
"""Where classes of transforms are from that do what their names say; of a text, and of most dicts, none is told."""


@dataclass(kw_only=True)
class Findings:
    """What was found so far."""

    source: str
    """The library."""
    measured_as: tuple[str, ...]
    """The names of the library in the figures of parity: of each version that it may be."""
    name_of: Callable[[Any], str]
    """What a transform is called."""
    read: Callable[[Any, str], Any] = getattr
    """A setting of a transform."""
    ops: list[Op] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What differs, a sentence each: that of rows, and of the recipe as a whole."""
    outer: list[Op] = field(default_factory=list)
    """The ops before those of a transform that is within another one."""
    is_held: bool = False
    """Whether these are of a transform within another one."""
    channels: int = 3
    """Channels of a finished image."""
    makers: Mapping[str, "Maker"] = field(default_factory=dict)
    """What makes ops of a transform, where it stands within another one."""
    container: str = ""
    """What the images are held in, of torchvision: "pillow" or "tensors", and empty where nothing says so."""
    only: Mapping[str, Mapping[str, tuple[Any, str]]] = field(default_factory=dict)
    """A transform -> the arguments that are mapped at one value alone: that value, and what any other one does."""
    changes_units: tuple[str, ...] = ("Normalize",)
    """Transforms that change what numbers count in, or may."""
    clips_blurs: bool = False
    """Whether blurs keep floats within 0..1."""
    counts_in_parts: bool = False
    """Whether images leave in 0..1 where nothing normalises them."""
    mask_fills: set[tuple[int, str]] = field(default_factory=set)
    """The labels that label maps show beyond the image there, and by which transforms."""
    beyond: Beyond = ("context", (0.0, 0.0, 0.0))
    """What the recipe shows beyond the image; known when all is found, as the next one."""
    look: Look = USUAL_LOOK
    """How the recipe looks between pixels."""

    def add(
        self,
        name: str,
        *made: Op,
        note: str = "",
        look: Look | None = None,
        beyond: Beyond | None = None,
        holds: bool = False,
    ) -> None:
        """A transform became ops; a note says what differs."""
        self.ops += made
        self.rows.append(Row(name=name, ops=made, note=note, look=look, beyond=beyond, holds=holds))
        if note:
            self.note(f"{name}: {note}")

    def note(self, text: str) -> None:
        """Something differs."""
        if text not in self.notes:
            self.notes.append(text)

    def refuse(self, name: str, reason: str) -> None:
        """A transform cannot be mapped."""
        self.rows.append(Row(name=name, verdict="left out", note=reason, loses_units=name in self.changes_units))

    def add_by(self, makers: Mapping[str, "Maker"], one: Any) -> None:
        """Have a transform made by the one of `makers` that its name says, or refuse it."""
        name = self.name_of(one)
        try:
            if name not in makers:
                raise ValueError(NOT_RUN if name.endswith(OF_SCRIPT) else unknown(name, makers))
            self._check_only(one, self.only.get(name, {}))
            before, noted = len(self.rows), len(self.notes)
            makers[name](self, one)
            if home := _other_home(one):
                self.note(f"{name}: is a class of {home}, taken for that of {self.source} {BY_NAME}")
            for note in self.notes[noted:]:
                if note.endswith(BY_NAME):  # of what it holds, too
                    for place in range(before, len(self.rows)):
                        self.differs(place, note, is_noted=True)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if self._never_happens(one):
                self.rows.append(Row(name=name, verdict="exact", note="p=0: it never happens."))
            else:
                home = "" if isinstance(error, ValueError) else _other_home(one)
                own = f"is a class of {home}, not {self.source}'s, and " if home else ""
                self.refuse(name, f"{own}{reason(error, one, self.read)}")

    def _check_only(self, one: Any, only: Mapping[str, tuple[Any, str]]) -> None:
        for name, (mapped, why) in only.items():
            try:
                value = self.read(one, name)
            except (AttributeError, KeyError):  # of another version
                continue
            if value != mapped:
                told = f"{why}, and is not mapped" if why else "is not mapped"
                raise ValueError(f"{name}={value!r} {told}; {mapped!r} is")

    def _never_happens(self, one: Any) -> bool:
        try:
            return float(self.read(one, "p")) == 0.0
        except (AttributeError, KeyError, TypeError, ValueError):
            return False

    @property
    def problems(self) -> list[str]:
        """What cannot be mapped, and why."""
        return [row.told for row in self.rows if row.verdict == "left out"]

    def _refusal(self, problems: list[str], how: str) -> str:
        """What cannot be mapped, what to do, and what all else becomes."""
        listed = "\n".join(f"  {problem}" for problem in problems)
        others = [row for row in self.rows if row.told not in problems]
        table = "".join(f"\n  {line.rstrip()}" for line in table_of(others).text().splitlines()[1:])
        told = f"Leave them out{how} and add ops by hand." + (f" The others become:{table}" if table else "")
        return f"{len(problems)} of {self.source}'s transforms cannot be imported:\n{listed}\n{told}"

    def within(self) -> "Findings":
        """For transforms within another one: the same lists, and ops of their own."""
        return replace(self, ops=[], outer=[*self.outer, *self.ops], is_held=True)

    @property
    def normalize(self) -> Normalize | None:
        """What makes numbers of levels, of what was found so far."""
        return next((op for op in [*self.outer, *self.ops] if isinstance(op, Normalize)), None)

    @property
    def is_square(self) -> bool:
        """Whether what was found so far makes frames that are as high as wide."""
        return len(self.sides) == 2 and self.sides[0] == self.sides[1]

    @property
    def sides(self) -> tuple[int, ...]:
        """Height and width of the frames that what was found so far makes; fewer numbers where they differ."""
        return sides_of([*self.outer, *self.ops])

    def _leave_out_unlike(self) -> None:
        """Leave out what draws a size for each image, where nothing behind it makes them one."""
        while (unlike := left_unlike([op for op in self.ops if op.is_crop])) is not None:
            self.ops[:] = [op for op in self.ops if op is not unlike]
            for place in self._rows_of(unlike):
                told = "leaves each image at its own size; put RandomCrop, or another crop or Resize, behind it"
                self.rows[place] = self.rows[place].left_out(told)

    def _fits(self, listed: list[Op]) -> bool:
        """Whether ops take no more passes than a view may."""
        return len(passes_of(keyed(listed), self.beyond, self.look.interpolation)) <= MOST_PASSES

    def _note_order(self) -> None:
        """Say of groups of both colours and geometry, whose colours act behind all geometry of their pass, where that
        is not the same; and of all steps, where the listed order takes more passes than a view may."""
        acting, interpolation = keyed(self.ops), self.look.interpolation
        passes = passes_of(acting, self.beyond, interpolation)
        if len(passes) > MOST_PASSES and all(op.in_files for op in self.ops):  # the recipe refuses functions by name
            passes = (acting,)
            self.ops[:] = in_one_pass(self.ops)
        for step, look_up in late_steps(passes, self.beyond, interpolation):
            self._act_late(step, look_up)
        for one in (one for own in passes for one in bordered_behind_resizes(self.rows, own)):
            for place in self._rows_of(one) if not pads_nothing(one, self.ops) else ():
                self.differs(place, BEFORE_RESIZES)
        for names in (looked_at_once(self.rows, own) for own in passes):
            if len(names) > 1:
                told = f"one look-up here, less blurred than by {self.source}, which interpolates each time."
                self.note(f"{', '.join(dict.fromkeys(names))}: {told}")

    def _act_late(self, op: Op, look_up: Op) -> None:
        before = f"the {look_up.op}" if look_up.is_crop else look_up.op
        told = in_their_words(f"stands before {before}, and acts after it here.", self.rows)
        self.note(f"{in_their_words(op.op, self.rows)}: {told}")
        for place in self._rows_of(op):
            self.differs(place, told, is_noted=True)

    def _rows_of(self, op: Op) -> list[int]:
        """The places of the rows that have an op of their own."""
        return [place for place, row in enumerate(self.rows) if row.has(op)]

    def differs(self, place: int, told: str, *, is_noted: bool = False) -> None:
        """One more difference of a row, which is among the notes where it is not yet."""
        row = self.rows[place]
        self.rows[place] = replace(row, verdict="near", note=f"{row.note} {told}".strip())
        if not is_noted:
            self.note(f"{row.name}: {told}")

    def _judge(self) -> None:
        """Have the figures say which rows are exact; what differs in those is less than is worth a note."""
        before, self.rows[:] = list(self.rows), [judged(row, self.measured_as) for row in self.rows]
        exact = {row.told for row in self.rows if row.verdict == "exact"}
        near = {row.told for row in self.rows if row.verdict != "exact"}
        self.notes[:] = [note for note in self.notes if note not in exact - near]
        for old, new in zip(before, self.rows, strict=True):
            if new.verdict == "near" and not old.note:
                self.note(new.told)
        self._note_raised()

    def _note_raised(self) -> None:
        """Say of a CLAHE behind steps that are exact, but not to the level, that it makes more of that."""
        for place, row in enumerate(self.rows):
            if row.verdict != "exact" or not (row.ops and isinstance(row.ops[0], CLAHE)):
                continue
            earlier = steps_before(self.ops, row.ops[0])
            off = [one.name for one in self.rows if one.levels and one.levels[0] > RAISED and _share(earlier, one.ops)]
            if off:
                self.rows[place] = replace(row, note="")  # which says less
                self.differs(place, f"raises what {off[-1]} leaves a level off: by about 1.6 levels in the mean.")

    def _look_once(self) -> None:
        """Have the recipe look as the first transform that resizes, else as the first that may shrink, or looks."""
        looking = [row for row in self.rows if row.look]
        resizing = [row for row in looking if any(op.is_crop for op in row.ops)]
        looks = [row.look for row in (*resizing, *looking) if row.look] or [self.look]
        own = next((look for look in looks if look.antialias is not None), looks[0])
        name = own.interpolation if own.interpolation in INTERPOLATIONS else "bilinear"
        self.look = Look(interpolation=name, antialias=own.antialias is not False)
        if not self._fits(self.ops):
            self._share_look()
        for place, row in enumerate(self.rows):
            if row.look is None or any(map(has_own_look, self._held_in(row))):
                continue
            if row.look.interpolation != name:
                if not (self._looks_alone(place) or self._held_alone(row)):
                    self.differs(place, f"{row.look.interpolation} interpolation becomes {name}.")
            elif row.look.antialias not in (None, self.look.antialias) and name != "nearest":
                self.differs(place, "shrinking averages." if self.look.antialias else "shrinking does not average.")

    def _share_look(self) -> None:
        """Have policies be part of the one look-up, where a pass for each of their groups is more than a view may."""
        for place, row in enumerate(self.rows):
            if any(map(has_own_look, row.ops)):
                self.differs(place, FIRST)
        for op in filter(has_own_look, list(self.ops)):
            self._replace(op, without_own_look(op))

    def _border_alone(self) -> None:
        """Have maps that show another border than the recipe's look alone, and with it, where there are passes left."""
        for place, row in enumerate(self.rows):
            if row.beyond is None or self._shown_by(row) == seen_beyond(*row.beyond):
                continue
            border, fill = own = seen_beyond(*row.beyond)
            held = [one for one in self.rows if one.beyond and _share(self._held_in(one), self._held_in(row))]
            if {seen_beyond(*one.beyond) for one in held if one.beyond} != {own}:
                continue  # a group has one border
            if any(map(has_own_look, self._held_in(row))) or self._looks_alone(place) or self._held_alone(row):
                for group in filter(has_own_look, self._held_in(self.rows[place])):
                    self._replace(group, changed(group, own_border=border, own_fill=fill))

    def _shown_by(self, row: Row) -> Beyond:
        """The border and the fill that a row shows beyond the image."""
        groups = filter(has_own_look, self._held_in(row))
        return next(filter(None, (group.own_beyond for group in groups)), self.beyond)

    def _part_maps(self) -> None:
        """Have a map look alone behind another one that bends an image as it does, or shows what is beyond it: one
        look-up brings back what the first one moves out. And behind a padding whose border it repeats."""
        for place, row in enumerate(self.rows):
            if any(self._meets(row)):
                before = acts_before(self.ops, row)
                earlier = [nth for nth, one in enumerate(self.rows) if one.look and _share(one.ops, before)]
                if not (self._looks_alone(place) or self._held_alone(row)):
                    next(filter(self._looks_alone, reversed(earlier)), None)  # then this one looks at what that made
                if told := self._meets(row)[1]:
                    self.differs(place, told)
            border = next((op.beyond[0] for op in row.ops if op.beyond), "")
            if border in MIRRORED and self._pads(acts_before(self.ops, row)):
                self.differs(place, OF_PADDED)

    def _meets(self, row: Row) -> tuple[bool, str]:
        """Whether maps before those of a row in their look-up bend the image, too, and what differs in what it shows
        beyond the image."""
        before = [held for op in acts_before(self.ops, row) for held in with_held(op)] if row.look else []
        maps = [one.ops[0] for one in self.rows if one.look and one.ops and not one.ops[0].is_crop]
        bends = any(map(_bends, row.ops)) and any(map(_bends, before))
        told = ""
        if row.beyond is not None and any(held is op for held in before for op in maps):
            told = BROUGHT_BACK
        elif row.beyond is not None and row.beyond[0] == self.beyond[0] != "constant":
            repeats = row.beyond[0] in MIRRORED and self._pads(before)
            told = OF_PADDED if repeats or _crops_padded(before) else ""
        return bends, told

    def _pads(self, listed: Iterable[Op]) -> bool:
        """Whether one of some ops makes frames that show more than the image."""
        return any(op.beyond and not pads_nothing(op, self.ops) for op in listed)

    def _held_alone(self, row: Row) -> bool:
        """Have the group that holds a map look alone, and maps in it that meet do so in turn, where there are passes
        left for that; else as one."""
        for old in [op for op in self._held_in(row) if not row.has(op)]:
            rows = [one for one in self.rows if one.look and any(own is old for own in self._held_in(one))]
            looks = {one.look.interpolation for one in rows if one.look}
            if len(looks) != 1:
                return False
            (interpolation,) = looks
            for new in (in_turn(old, interpolation, [one.ops[0] for one in rows]), in_turn(old, interpolation)):
                if new is not old and self._fits([new if op is old else op for op in self.ops]):
                    self._replace(old, new)
                    return True
        return False

    def _held_in(self, row: Row) -> list[Op]:
        """The ops of the recipe that are those of a row, or hold them."""
        return [op for op in self.ops if _share([*with_held(op)], row.ops)]

    def _act_in_turn(self) -> None:
        """Have groups in which a step waits for a look-up act in turn, where there are passes left; else say so."""
        told = {id(inner) for row in self.rows if FIRST in row.note for op in row.ops for inner in op.flat}
        for at, op in enumerate(self.ops):
            late = [*late_within(op, self.ops[:at], self.beyond, self.look.interpolation)]
            if all(id(step) in told for step, _ in late):
                continue
            made = in_turn(op, self.look.interpolation)
            waits = any(late_within(made, self.ops[:at], self.beyond, self.look.interpolation))
            if not waits and self._fits([*self.ops[:at], made, *self.ops[at + 1 :]]):
                self._replace(op, made)
            else:
                for step, look_up in late:
                    self._act_late(step, look_up)

    def _replace(self, old: Op, new: Op) -> None:
        """Have an op be another one, in rows, too."""
        self.ops[:] = [new if op is old else op for op in self.ops]
        for place in self._rows_of(old):
            row = self.rows[place]
            self.rows[place] = replace(row, ops=tuple(new if op is old else op for op in row.ops))

    def _looks_alone(self, place: int) -> bool:
        """Have a map that looks otherwise than the recipe do so in a pass of its own, where there is one left."""
        row = self.rows[place]
        alone = look_alone(self.ops, row)
        if alone is None or not self._fits(alone):
            return False
        old, group = next((old, new) for old, new in zip(self.ops, alone, strict=False) if old is not new)
        self.ops[:], self.rows[place] = alone, replace(row, ops=(group,))
        self._replace(old, group)
        return True

    def recipe_fields(self, strict: bool | None) -> dict[str, Any]:
        """The border, fill and ops of the recipe.

        Args:
            strict: refuse what cannot be mapped, instead of leaving it out; None refuses it, and offers no choice.

        Raises:
            ValueError: something cannot be mapped, and is not to be left out; lists all of it.
        """
        self._leave_out_unlike()
        normalize_last(self)
        problems = self.problems
        leave_out_behind(self)
        padding = next((op.beyond for op in self.ops if op.is_crop and op.beyond), None)
        borders = [*([padding] if padding else []), *(seen_beyond(*row.beyond) for row in self.rows if row.beyond)]
        self.beyond = border, fill = own = borders[0] if borders else self.beyond
        self._look_once()
        self._border_alone()
        self._part_maps()
        self._act_in_turn()
        self._note_order()
        for problem in self.problems:
            self.note(f"{problem}: left out.")
        self._judge()
        if problems and strict is not False:
            raise ValueError(self._refusal(problems, " by strict=False (--leave-out)," if strict else ""))
        if "constant" in {shown for shown, _ in borders}:  # others show the image's own labels
            self._note_mask_fills()
        others = [
            nth for nth, one in enumerate(self.rows) if one.beyond and self._shown_by(one) != seen_beyond(*one.beyond)
        ]
        if others:
            self.note(f"borders: transforms fill differently beyond the image, and one look-up has one border: {own}.")
            for place in others:
                self.differs(place, f"beyond the image it shows {border}.", is_noted=True)
        fields = {"border": border, "fill": fill, "channels": self.channels, "ops": tuple(self.ops)}
        return {**fields, "interpolation": self.look.interpolation, "antialias": self.look.antialias}

    def _note_mask_fills(self) -> None:
        """Say what label maps show beyond the image, where that is not 255, as it is here."""
        labels = sorted({label for label, _ in self.mask_fills})
        if labels in ([], [255]):
            return
        by = {label: ", ".join(sorted(name for own, name in self.mask_fills if own == label)) for label in labels}
        shown = ", ".join(f"{label} ({names})" for label, names in by.items())
        here = "one label: 255, or that of targets=TargetOptions(mask_fill=...)."
        if len(labels) == 1:
            here = f"255, or {labels[0]} by targets=TargetOptions(mask_fill={labels[0]})."
        self.note(f"label maps: there they show {shown} beyond the image; here {here}")


def _other_home(one: Any) -> str:
    """The module of a transform's class, where that is none of a library."""
    if isinstance(one, Mapping):
        home = str(one.get("__class_fullname__", "")).rpartition(".")[0]
    else:
        home = str(getattr(type(one), "__module__", ""))
    return "" if home.partition(".")[0] in HOMES else home


def _crops_padded(before: Sequence[Op]) -> bool:
    """Whether an op crops what may have been padded, of which one look-up shows the rest beyond the crop."""
    padding = next((at for at, op in enumerate(before) if op.beyond), len(before))
    return any(isinstance(op, CenterCrop | RandomCrop | RandomResizedCrop) for op in before[padding:])


def _share(some: Iterable[Op], others: Sequence[Op]) -> bool:
    """Whether an op is among both."""
    return any(one is other for one in some for other in others)


def _bends(op: Op) -> bool:
    return any(inner.is_lens or inner.is_projective for inner in op.flat)


Maker = Callable[[Findings, Any], None]
"""What makes ops of a transform, and adds them with what differs."""
