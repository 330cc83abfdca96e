"""What was measured of transforms next to what an import makes of them; "exact" is said of nothing else.

`make parity` writes the figures, `parity.json`. A figure counts for all transforms of one form: the same name, the same
ops with the same fields, whatever their numbers, that look between pixels and beyond the image alike, and of which the
importer itself says that something differs, or does not.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from augpipe.ops import Op
from augpipe.ops.op import NEW_FIELDS
from augpipe.recipes.importers.rows import Row

MOST_LEVELS = 1.0
"""Mean difference of pixels, in levels of 256, up to which a transform is exact."""
ALPHA = 0.01
"""How likely the draws of a library that is the same are called different in any of all tests."""
PATH = Path(__file__).with_name("parity.json")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A call of a library that was measured."""

    library: str
    """As "albumentations-1"."""
    call: str
    """What was imported, all of whose numbers are fixed."""
    form: str
    """The first of the `forms` of its last transform, where it draws."""
    ops: str
    """The `digest` of its recipe's ops, of the call and of one that draws."""
    mean: float | None
    """The mean difference in levels, of the image where it is the largest; None where pixels were not compared."""
    largest: float | None
    """The largest difference of a pixel, in levels."""
    apart: float | None
    """The largest distance of two distributions of draws; None where nothing is drawn."""
    p: float | None
    """The least likelihood that draws are distributed alike, of all tests of this case."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """How a library was measured."""

    date: str
    versions: dict[str, str]
    """Packages of its environment."""
    num_tests: int
    """Tests of distributions."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All that was measured."""

    libraries: dict[str, Library]
    cases: tuple[Case, ...]

    def are_alike(self, case: Case) -> bool:
        """Whether draws are distributed alike, by tests at `ALPHA` divided by their number."""
        return case.p is None or case.p * sum(one.num_tests for one in self.libraries.values()) >= ALPHA

    def to_json(self) -> str:
        """A line for each case."""
        libraries = {name: asdict(library) for name, library in sorted(self.libraries.items())}
        rows = ",\n".join(json.dumps(asdict(case)) for case in self.cases)
        return f'{{"libraries": {json.dumps(libraries)},\n"cases": [\n{rows}\n]}}\n'


@cache
def figures() -> Figures:
    """What is kept in `parity.json`."""
    kept = json.loads(PATH.read_text(encoding="utf-8"))
    libraries = {name: Library(**library) for name, library in kept["libraries"].items()}
    return Figures(libraries=libraries, cases=tuple(Case(**one) for one in kept["cases"]))


def digest(value: Any) -> str:
    """A short name of what JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def forms(row: Row) -> tuple[str, str]:
    """Short names of what a row's figures count for: its ops without their numbers, its look, whether it has a note.

    Two of them: one that tells what is switched off by a 0, or by a 1 of a factor, and one that does not.
    """
    look = [row.look.interpolation, row.look.antialias] if row.look else []
    border = row.beyond[0] if row.beyond else ""
    first, second = (
        digest([row.name, [_shape(op, is_general, row.holds) for op in row.ops], look, border, bool(row.note)])
        for is_general in (False, True)
    )
    return first, second


def _shape(value: Any, is_general: bool, holds: bool = False) -> Any:
    if isinstance(value, Op):
        left_out = ["p", "own_border", "own_fill"]  # the row names its border
        left_out += ["ops", "weights", "chains"] if holds else []  # these have rows of their own
        fields = type(value).model_fields
        new = [name for name in NEW_FIELDS if name in fields and getattr(value, name) == fields[name].default]
        names = [name for name in fields if name not in (*left_out, *new)]  # as before the new ones
        return {name: _shape(getattr(value, name), is_general or name == "fill") for name in names}
    if callable(value):
        return "function"
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    numbers = value if isinstance(value, tuple) else (value,)
    if numbers and all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers):
        is_off = not is_general and set(numbers) in ({0}, {1})
        return int(numbers[0]) if is_off else "number"
    if isinstance(value, tuple):
        shapes = [_shape(one, is_general) for one in value]
        return [one for place, one in enumerate(shapes) if one not in shapes[:place]]
    return value


def judged(row: Row, libraries: Sequence[str]) -> Row:
    """A row with the verdict that follows from the figures of its form in all of these libraries that have some.

    One that has a verdict keeps it.
    """
    row = replace(row, forms=forms(row))
    if row.verdict != "not measured":
        return row
    of = {library: _of_form(library, row.forms) for library in libraries}
    found = [case for cases in of.values() for case in cases]
    compared = [case for case in found if case.mean is not None]
    if not compared or not all(any(case in compared for case in cases) for cases in of.values() if cases):
        told = row.note or ("its pixels were not compared." if found else "")
        return replace(row, verdict="near" if told else "not measured", note=told)
    worst = max(compared, key=lambda case: case.mean or 0.0)
    mean, largest = worst.mean or 0.0, worst.largest or 0.0
    if mean > MOST_LEVELS:
        told = f"pixels differ by {mean:.1f} of 255 levels in the mean."
    elif not all(map(figures().are_alike, found)):
        told = "what is drawn is distributed otherwise."
    else:
        return replace(row, verdict="exact", levels=(mean, largest))
    return replace(row, verdict="near", note=row.note or told, levels=(mean, largest))


@cache
def _of_form(library: str, names: tuple[str, ...]) -> list[Case]:
    """The cases of the first of these forms that was measured."""
    of = [[case for case in figures().cases if case.library == library and case.form == name] for name in names]
    return next(filter(None, of), [])
