"""What a dataset card says: pure data, read from TOML and checked; those that come with augpipe, or one's own."""

import difflib
import os
import re
import string
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from augpipe.datasets.metadata.names import printable
from augpipe.validation.models import explain

_TEMPLATE_FIELD = re.compile(r"[0-9]|line|n|value")
_TEMPLATE_FORM = re.compile(r"|basename|first|0[1-9]")
Separator = Literal["space", ","]
"""Between columns: any run of blanks, or one comma."""
BoxForm = Literal["corner_and_size", "corners_from_1"]
"""x, y, width, height, kept as they are; or xmin, ymin, xmax, ymax of pixels counted from 1, the last one included."""
_HERE = Path(__file__).parent


def _checked_template(template: str) -> str:
    for _, field, spec, conversion in string.Formatter().parse(template):
        if field is None:
            continue
        if not _TEMPLATE_FIELD.fullmatch(field) or conversion or not _TEMPLATE_FORM.fullmatch(spec or ""):
            raise ValueError(
                f"template {template!r} holds a field that is not known. Fields: {{0}}..{{9}} (columns), {{line}}, "
                "{n} (a number from 1), {value}; forms: {1:basename} (what follows the last /), {line:first} (what "
                "precedes the first /), {n:05} (zeros in front)."
            )
    return template


Template = Annotated[str, AfterValidator(_checked_template)]
"""Text with fields in braces; checked when the card is loaded, so that it reaches no attribute of anything."""


def fill(template: str, values: Mapping[str, str]) -> str:
    """`template` with its fields replaced.

    Raises:
        KeyError: a field that `values` lacks.
    """
    parts = []
    for literal, field, spec, _ in string.Formatter().parse(template):
        parts.append(literal)
        if field is not None:
            parts.append(_formed(values[field], spec or ""))
    return "".join(parts)


def _formed(value: str, spec: str) -> str:
    if spec == "basename":
        return value.rpartition("/")[2]
    if spec == "first":
        return value.partition("/")[0]
    return value.zfill(int(spec)) if spec else value


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassTable(_Part):
    """Where the classes stand, and in which order."""


class FolderClasses(ClassTable):
    """Each folder below `path` is a class; sorted by bytes."""

    kind: Literal["folders"]
    path: str


class LineClasses(ClassTable):
    """One class name a line, in the order of the file."""

    kind: Literal["lines"]
    file: str


class ColumnClasses(ClassTable):
    """Columns of a text file give each class' id and name; lines that say the same again are passed over."""

    kind: Literal["columns"]
    file: str
    id: Template
    name: Template
    name_pattern: str | None = None
    """A regular expression for the whole name; its first group is kept."""
    num_columns: int = Field(2, ge=1, le=10)
    """The last column holds all that is left of the line."""
    order: Literal["file", "number", "name"] = "file"
    """In the order of the lines, by the id as a number, or by the name's bytes."""


class NumberClasses(ClassTable):
    """Classes without names, which are numbered."""

    kind: Literal["numbers"]
    first: int
    count: int = Field(ge=1)


class StructClasses(ClassTable):
    """A struct array in a MATLAB file, sorted by name; only entries whose field `leaf` is 0 are classes."""

    kind: Literal["struct"]
    file: str
    variable: str
    id: str
    name: str
    leaf: str


class FoundClasses(ClassTable):
    """The labels that occur in the rows, sorted by bytes; rows count whose images are not there."""

    kind: Literal["found"]


Classes = Annotated[
    FolderClasses | LineClasses | ColumnClasses | NumberClasses | StructClasses | FoundClasses,
    Field(discriminator="kind"),
]


class Way(_Part):
    """One way in which a split may lie on disk."""

    needs: tuple[str, ...] = Field(min_length=1)
    """What must be there; the last part may be a pattern (`*`), and a folder ends with `/`."""
    classes: Classes | None = None
    """Instead of the card's."""
    labels: Literal["id", "name"] = "id"
    """Whether a row's label is a class' id or its name."""


class FoldersWay(Way):
    """Images in class folders below `path`, or, without labels, in `path` itself."""

    reader: Literal["folders"]
    path: str
    flat: bool = False


class ListWay(Way):
    """A text file with one thing a line; `{line}` is its text, `{n}` its number from 1."""

    reader: Literal["list"]
    file: str
    path: Template
    label: Template


class TwoColumnsWay(Way):
    """A text file with columns `{0}`, `{1}`, ... that give the path and the label."""

    reader: Literal["two_columns"]
    file: str
    path: Template
    label: Template
    separator: Separator = "space"
    num_columns: int = Field(2, ge=1, le=10)
    """The last column holds all that is left of the line."""
    num_header_lines: int = Field(0, ge=0)
    boxes: str | None = None
    """A text file of `id` and four numbers, whose id is column 0."""
    box_form: BoxForm = "corner_and_size"


class IdTablesWay(Way):
    """Several text files that say something of an image's id, which is their first column."""

    reader: Literal["id_tables"]
    paths: str
    path: Template
    """Columns 0 (the id) and 1 of `paths`."""
    labels_file: str
    split_file: str
    split_value: str
    """What column 1 of `split_file` says of the images of this split."""
    boxes: str | None = None
    box_form: BoxForm = "corner_and_size"


class MatWay(Way):
    """MATLAB arrays: the labels of all images, and the numbers, from 1, of the images of this split."""

    reader: Literal["mat"]
    labels_file: str
    labels_variable: str
    split_file: str
    split_variable: str
    path: Template
    """`{n}` is the image's number."""


class IdxWay(Way):
    """A pair of IDX files (MNIST)."""

    reader: Literal["idx"]
    images: str
    labels_file: str


class CifarWay(Way):
    """CIFAR-10 binary batches, one after the other; `batches.meta.txt`, which lies next to them, names the classes."""

    reader: Literal["cifar"]
    files: tuple[str, ...] = Field(min_length=1)


AnyWay = Annotated[
    FoldersWay | ListWay | TwoColumnsWay | IdTablesWay | MatWay | IdxWay | CifarWay,
    Field(discriminator="reader"),
]


class Split(_Part):
    """One part of a dataset."""

    num_samples: int | None = Field(None, ge=1)
    """What the official part holds; None where that is not known."""
    ways: tuple[AnyWay, ...] = Field(min_length=1)
    """Tried in this order; the first whose `needs` are all there is taken."""


class Card(_Part):
    """A dataset as its official archives lay it out once they are unpacked."""

    name: str = Field(pattern=r"[a-z][a-z0-9_]*")
    title: str
    home: str
    """The home page."""
    licence: str
    """What is known of the terms, in words; not legal advice."""
    citation: str
    archives: tuple[str, ...] = Field(min_length=1)
    """The official files, as they are named for download."""
    layout: str
    """A small tree of the unpacked archives, for messages."""
    notes: str = ""
    num_classes: int | None = Field(None, ge=1)
    """Officially; None where that is not known."""
    folders: tuple[str, ...] = ("",)
    """Where the layout may start, below the folder that is given; "" is that folder itself."""
    classes: Classes | None = None
    """None where each way brings its own, or its files name them themselves."""
    splits: dict[str, Split] = Field(min_length=1)
    """By name; the first is the one that is opened unless another is asked for."""


def list_cards() -> tuple[str, ...]:
    """The names that `load_card` knows, sorted."""
    return tuple(sorted(path.stem for path in _HERE.glob("*.toml")))


def load_card(name: str | os.PathLike[str]) -> Card:
    """A card by its name (`list_cards()`), or from a TOML file of one's own, whose path ends with .toml.

    Raises:
        ValueError: there is no such card, or the file is not a valid one; says what is wrong in it.
        OSError: the file cannot be read.
    """
    text = os.fspath(name)
    if text.endswith(".toml"):
        return _read_card(Path(text))
    if text not in list_cards():
        near = difflib.get_close_matches(text.lower(), list_cards(), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"card {printable(text)!r} is not known.{hint} Known: {', '.join(list_cards())}; "
            "or give the path of a card of your own, which ends with .toml."
        )
    return _read_card(_HERE / f"{text}.toml")


def _read_card(path: Path) -> Card:
    shown = printable(os.fspath(path))
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except FileNotFoundError:
        known = ", ".join(list_cards())
        raise ValueError(f"card {shown!r} does not exist. Check the path, or give one of {known}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"card {shown!r} is not TOML: {error}. Fix it there.") from None
    try:
        card = Card.model_validate(data)
    except ValidationError as error:
        problems = "\n".join(f"  {line}" for line in explain(error))
        raise ValueError(f"card {shown!r} is not valid:\n{problems}") from None
    if card.name != path.stem:
        raise ValueError(f"card {shown!r} calls itself {card.name!r}. Give both the same name.")
    return card
