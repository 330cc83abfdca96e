"""Which columns of a list hold the photographs, their labels and what else is handed on."""

import os
from collections.abc import Sequence
from typing import Literal, NamedTuple

from augpipe.datasets.files.image_files import is_image_name
from augpipe.datasets.metadata.label_names import as_list, label_like, unread
from augpipe.datasets.metadata.label_rows import COLUMN_PREFIX

IMAGE_NAMES = (
    "path",
    "file_path",
    "filepath",
    "image_path",
    "img_path",
    "file_name",
    "filename",
    "image_name",
    "file",
    "image",
    "img",
    "image_id",
)
"""What the column of photographs is called, in any case; the first of these that is there is taken."""


class Wanted(NamedTuple):
    """Which columns the user named."""

    image: str | None
    label: str | Literal[False] | None
    """False: none is to be read."""
    labels: tuple[str, ...]
    further: tuple[str, ...] = ()
    """The columns that are handed on as they are; "path" is the photographs', where no column is called so."""

    @property
    def names(self) -> list[str]:
        """Those of photographs and labels."""
        return [name for name in (self.image, self.label, *self.labels) if name]


class Columns(NamedTuple):
    """The columns that are read."""

    path: int
    label: int | None
    rows: dict[str, int]
    """Name -> column, of labels of several columns."""
    further: dict[str, int]
    """Name -> column, of those that are handed on."""
    width: int
    """How many columns a line has."""
    is_header: bool
    """Whether the first line names them."""
    label_name: str = ""
    split: int | None = None
    """The column `split`, in any case, where it is neither the photographs' nor a label."""
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def column_names(columns: Sequence[str]) -> tuple[str, ...]:
    """The names of further columns, as a user gave them.

    Raises:
        ValueError: it is one text.
    """
    if isinstance(columns, str):
        raise ValueError(f"columns={columns!r} is one text. Give the names in a list: columns=[{columns!r}].")
    return tuple(columns)


def choose_columns(row: Sequence[str], base: str, wanted: Wanted) -> Columns:
    """The columns of a list.

    Args:
        row: its first line.
        base: what paths are relative to.
        wanted: what the user named.

    Raises:
        ValueError: they cannot be told; the reason alone.
    """
    names = [cell.strip() for cell in row]
    while len(names) > 1 and not names[-1]:
        names.pop()
    is_file = bool(names[0]) and (is_image_name(names[0]) or os.path.lexists(os.path.join(base, row[0])))
    missing = [name for name in wanted.names if name not in names]
    if missing and is_file:
        raise ValueError(f"no header with a column 'path', and {_given(wanted)} names some. Write a header.")
    if missing:
        raise ValueError(f"there is no column {missing[0]!r}: the header has {', '.join(names)}. Name those.")
    image = wanted.image or next((name for known in IMAGE_NAMES for name in names if name.lower() == known), None)
    if wanted.names and image is None:
        raise ValueError(
            f"no column of the header names the photographs as 'path' does: {', '.join(names)}. Pass image=, the one "
            "that holds their files, to FileListSource."
        )
    if image is None or (is_file and not wanted.names):
        return _without_header(names, is_file, wanted)
    return _by_header(names, image, wanted)


def _by_header(names: Sequence[str], image: str, wanted: Wanted) -> Columns:
    label, rows = wanted.label or None, list(wanted.labels)
    notes = [] if wanted.image or image.lower() == "path" else [f"photographs are column {image!r}"]
    if wanted.label is None and not rows:
        found = label_like([name for name in names if name != image])
        rows = [name for name in names if name.lower().startswith(COLUMN_PREFIX)]
        if found and (not rows or found[0].lower() == "label"):
            label, rows = found[0], []
            notes += [] if label.lower() == "label" else [f"labels are column {label!r}"]
    further = {name: image if name == "path" and name not in names else name for name in wanted.further}
    for name, column in further.items():
        if column not in names:
            raise ValueError(
                f"columns={list(wanted.further)!r} names {name!r}, which is not there: the header has "
                f"{', '.join(names)}. Name those."
            )
    read = [image, *([label] if label else []), *rows, *further.values()]
    for name in read:
        if names.count(name) > 1:
            raise ValueError(f"column {name!r} is there twice. Rename one of the two.")
    split = next((name for name in names if name.lower() == "split" and name not in (image, label, *rows)), None)
    # pandas calls the column of its row numbers so
    others = [name for name in names if name and name not in (*read, split) and not name.startswith("Unnamed:")]
    left_out: list[str] = []
    if others and (label or rows):
        notes.append(f"not read: {unread(others, 'column of the list', _as_numbers(others))}")
    elif others and wanted.label is None:
        one = f"label={others[0]!r} {'one of them' if others[1:] else 'as classes'}"
        left_out.append(unread(others, "column of the list", f"{_as_numbers(others)}, {one}"))
    return Columns(
        names.index(image),
        names.index(label) if label else None,
        {name: names.index(name) for name in rows},
        {name: names.index(column) for name, column in further.items()},
        len(names),
        True,
        label or "",
        None if split is None else names.index(split),
        tuple(notes),
        tuple(left_out),
    )


def _without_header(names: Sequence[str], is_file: bool, wanted: Wanted) -> Columns:
    # a header of other names would become an image that is never found, and its label a class
    if not is_file and (len(names) > 1 or label_like(names)):
        is_row = any(map(is_image_name, names))
        shown = next(filter(None, names), "")  # pandas writes its index under no name
        other = f", or pass image={shown!r} and label= to FileListSource, if these are the columns"
        raise ValueError(
            f"neither a header with a column 'path' nor a file that is there: {', '.join(names)}. Name the columns "
            f"path and label{'' if is_row else other}."
        )
    if len(names) > 2 and wanted.label is not False:
        raise ValueError(
            f"{len(names)} columns, and no header says what they are. Write one, as path,label,..., or pass "
            "label=False to FileListSource to read the first alone."
        )
    if set(wanted.further) - {"path"}:
        raise ValueError(
            f"no header names the columns, and columns={list(wanted.further)!r} names some. Write a header."
        )
    has_label = len(names) > 1 and wanted.label is not False
    return Columns(0, 1 if has_label else None, {}, dict.fromkeys(wanted.further, 0), len(names), False)


def _given(wanted: Wanted) -> str:
    named = {"image": wanted.image, "label": wanted.label, "labels": list(wanted.labels)}
    return " and ".join(f"{name}={value!r}" for name, value in named.items() if value)


def _as_numbers(columns: Sequence[str]) -> str:
    return f"labels={as_list(columns)} reads {'them' if len(columns) > 1 else 'it'} as numbers"
