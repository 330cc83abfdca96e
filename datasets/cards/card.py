"""What a dataset card says: pure data, read from TOML and checked."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from augpipe.datasets.cards.template import Template

Separator = Literal["space", ","]
"""Between columns: any run of blanks, or one comma."""
BoxForm = Literal["corner_and_size", "corners_from_1"]
"""x, y, width, height, kept as they are; or xmin, ymin, xmax, ymax of pixels counted from 1, the last one included."""


class ClassTable(BaseModel):
    """Where the classes stand, and in which order."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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
    """As the lines stand, by the id as a number, or by the name's bytes."""


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
    """The labels that occur in the rows, sorted by bytes; rows count whose photographs are not there."""

    kind: Literal["found"]


Classes = Annotated[
    FolderClasses | LineClasses | ColumnClasses | NumberClasses | StructClasses | FoundClasses,
    Field(discriminator="kind"),
]


class Way(BaseModel):
    """One way in which a split may lie on disk."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    needs: tuple[str, ...] = Field(min_length=1)
    """What must be there; the last part may be a pattern (`*`), and a folder ends with `/`."""
    classes: Classes | None = None
    """Instead of the card's."""
    labels: Literal["id", "name"] = "id"
    """Whether a row's label is a class' id or its name."""


class FoldersWay(Way):
    """Photographs in class folders below `path`, or, without labels, in `path` itself."""

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
    """CIFAR-10 binary batches, one after the other; `batches.meta.txt`, which lies beside them, names the classes."""

    reader: Literal["cifar"]
    files: tuple[str, ...] = Field(min_length=1)


AnyWay = Annotated[
    FoldersWay | ListWay | TwoColumnsWay | IdTablesWay | MatWay | IdxWay | CifarWay,
    Field(discriminator="reader"),
]


class Split(BaseModel):
    """One part of a dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_samples: int | None = Field(None, ge=1)
    """What the official part holds; None where that is not known."""
    ways: tuple[AnyWay, ...] = Field(min_length=1)
    """Tried in this order; the first whose `needs` are all there is taken."""


class Card(BaseModel):
    """A dataset as its official archives lay it out once they are unpacked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
