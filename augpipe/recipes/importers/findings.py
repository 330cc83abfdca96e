"""What an importer finds on its way: ops, what differs, and what cannot be mapped."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from augpipe.ops import Normalize, Op
from augpipe.ops.op import Beyond
from augpipe.recipes.importers.functions import NOT_RUN, OF_SCRIPT
from augpipe.recipes.importers.reasons import reason, unknown
from augpipe.recipes.importers.rows import Look, Row
from augpipe.recipes.importers.sides import sides_of

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

    def differs(self, place: int, told: str, *, is_noted: bool = False) -> None:
        """One more difference of a row, which is among the notes where it is not yet."""
        row = self.rows[place]
        self.rows[place] = replace(row, verdict="near", note=f"{row.note} {told}".strip())
        if not is_noted:
            self.note(f"{row.name}: {told}")


def _other_home(one: Any) -> str:
    """The module of a transform's class, where that is none of a library."""
    if isinstance(one, Mapping):
        home = str(one.get("__class_fullname__", "")).rpartition(".")[0]
    else:
        home = str(getattr(type(one), "__module__", ""))
    return "" if home.partition(".")[0] in HOMES else home


Maker = Callable[[Findings, Any], None]
"""What makes ops of a transform, and adds them with what differs."""
