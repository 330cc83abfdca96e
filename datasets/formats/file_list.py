"""A CSV or TSV file that lists images and their labels."""

import csv
import os
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn, TextIO

from augpipe.checks.plural import count
from augpipe.datasets.files.image_files import FileSource
from augpipe.datasets.metadata.label_rows import COLUMN_PREFIX, LabelRows
from augpipe.datasets.metadata.labels import LabelColumn
from augpipe.datasets.metadata.names import NameTable, printable

LIST_EXTENSIONS = (".csv", ".tsv", ".txt")
_NUM_CHECKED = 100
"""How many of the first files are looked for when a list is opened; at least one must be there."""


class FileListSource(FileSource):
    """The images that a list names, in its order; UTF-8, one a line: `path,label`.

    The first line may be a header: then the columns named `path` and `label` are read and others are passed over;
    without a header these are the first two columns. Fields are separated by a comma in .csv, a tab in .tsv, and in any
    other file by a tab if the first line has one, else by a comma; a path that holds the separator stands in double
    quotes. Without a label column all labels are -1. Labels are integers (0, 1, ..., -1 for none) or class
    names, which are sorted (by bytes) into `classes`; integers give the classes "0", "1", ....

    Where a header has no column `label` but some that begin with `label_`, such as `label_x` and `label_y`, each label
    is that many numbers: float32, or int64 where all of them are whole and written without a point.

    Files that are missing or unreadable show up when they are read, so that the loader's `on_error` decides;
    only when none of the first hundred is there is the list refused, for then its root is wrong.

    Args:
        path: the list.
        root: what relative paths in it are relative to; the list's own folder if left out.
        classes: the classes and their order; every label is then one of these names, or the number of one. Give a
            validation list the training list's `classes`, and labels agree even where it lacks some of them. For labels
            of several columns: what those stand for; their names if left out.
        labels: the columns of numbers, by their names in the header, that together are the label.

    Raises:
        ValueError: there is no such list, it is empty, or a line of it cannot be used; says which.
        OSError: the list cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        root: str | os.PathLike[str] | None = None,
        *,
        classes: Sequence[str] | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        text = os.fspath(path)
        if not os.path.isfile(text):
            what = "is a folder" if os.path.isdir(text) else "does not exist"
            raise ValueError(
                f"{printable(text)} {what}; FileListSource takes a CSV or TSV file of path,label lines. Give its path."
            )
        base = os.path.dirname(text) if root is None else os.fspath(root)
        if isinstance(labels, str):
            raise ValueError(f"labels={labels!r} is one text. Give the columns' names: labels=[{labels!r}].")
        names, column, lines, rows = NameTable(), LabelColumn(), array("q"), None
        for line, name, label in _rows(text, base, tuple(labels)):
            names.extend([os.fsencode(name)])
            lines.append(line)
            if isinstance(label, dict):
                rows = rows or LabelRows(list(label))
                try:
                    rows.append_texts(list(label.values()))
                except ValueError as error:
                    _refuse(text, line, str(error))
            else:
                column.append(label)
        if not lines:
            raise ValueError(f"{printable(text)} lists no photograph. Write one a line, as path,label.")
        _check_root(text, base, names)
        if rows is not None:
            super().__init__(base, names, rows.numbered(), rows.names(classes))
        else:
            numbers, found = column.numbered(classes, lambda sample_id: f"{printable(text)}, line {lines[sample_id]}")
            super().__init__(base, names, numbers, found)


def _refuse(path: str, line: int, reason: str) -> NoReturn:
    raise ValueError(f"{printable(path)}, line {line}: {reason}")


def _rows(path: str, base: str, labels: Sequence[str]) -> Iterator[tuple[int, str, str | dict[str, str] | None]]:
    """(line, path, label) of each line that is not blank; label is None where there is no such column.

    Where labels are several columns, it is what stands in each of them.
    """
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=_delimiter(path, file), strict=True)
        columns: _Columns | None = None
        line = 0
        try:
            for row in reader:
                line, start = reader.line_num, line + 1  # `start`: where a row with line breaks in quotes begins
                if not any(cell.strip() for cell in row):
                    continue
                if columns is None:
                    columns, is_header = _columns(path, start, row, base, labels)
                    if is_header:
                        continue
                yield start, *_fields(path, start, row, columns)
        except UnicodeDecodeError:
            _refuse(path, _first_line_not_utf8(path), "not UTF-8. Save the list as UTF-8.")
        except csv.Error as error:
            _refuse(path, line + 1, f"{error}. Check the double quotes: a path that holds one doubles it.")


def _delimiter(path: str, file: TextIO) -> str:
    extension = os.path.splitext(path)[1].lower()
    if extension in (".csv", ".tsv"):
        return "," if extension == ".csv" else "\t"
    try:
        first = next((line for line in file if line.strip()), "")
    except UnicodeDecodeError:
        _refuse(path, _first_line_not_utf8(path), "not UTF-8. Save the list as UTF-8.")
    file.seek(0)
    return "\t" if "\t" in first else ","


def _first_line_not_utf8(path: str) -> int:
    with open(path, "rb") as file:
        for line, raw in enumerate(file, start=1):
            if raw.decode("utf-8", "ignore").encode() != raw:
                return line
    raise AssertionError(f"{path} is UTF-8 line by line, and was not as a whole")


class _Columns(NamedTuple):
    path: int
    label: int | None
    rows: dict[str, int]
    """Name -> column, of labels of several columns."""


def _columns(path: str, line: int, row: Sequence[str], base: str, labels: Sequence[str]) -> tuple[_Columns, bool]:
    """Which columns hold the path and the label, and whether this first row is a header."""
    header = [cell.strip().lower() for cell in row]
    if "path" in header:
        names = [cell.strip() for cell in row]
        missing = [name for name in labels if name not in names]
        if missing:
            _refuse(path, line, f"there is no column {missing[0]!r}: the header has {', '.join(names)}. Name those.")
        if not labels and "label" not in header:
            labels = [name for name in names if name.lower().startswith(COLUMN_PREFIX)]
        rows = {name: names.index(name) for name in labels}
        return _Columns(header.index("path"), header.index("label") if "label" in header else None, rows), True
    if labels:
        _refuse(path, line, f"no header with a column 'path', and labels={list(labels)!r} names some. Write a header.")
    unnamed = "label" in header
    # a header of other names would become an image that is never found, and its label a class
    alien = not os.path.splitext(row[0])[1] and not os.path.lexists(os.path.join(base, row[0]))
    if unnamed or (alien and len(row) > 1):
        _refuse(
            path,
            line,
            f"neither a header with a column 'path' nor a file that is there: {', '.join(row)}. "
            "Name the columns path and label.",
        )
    return _Columns(0, 1 if len(row) > 1 else None, {}), False


def _fields(path: str, line: int, row: Sequence[str], columns: _Columns) -> tuple[str, str | dict[str, str] | None]:
    path_column, label_column, rows = columns
    needed = max(path_column, label_column or 0, *rows.values()) + 1
    if len(row) < needed:
        _refuse(path, line, f"{len(row)} columns, and {needed} are needed as in the first line. Complete the line.")
    if not row[path_column].strip():
        _refuse(path, line, "the path is empty. Write one, or remove the line.")
    if rows:
        return row[path_column], {name: row[place] for name, place in rows.items()}
    if label_column is None:
        return row[path_column], None
    label = row[label_column].strip()
    if not label:
        _refuse(path, line, "the label is empty. Write one on each line (-1 for none among integers), or on none.")
    return row[path_column], label


def _check_root(path: str, base: str, names: NameTable) -> None:
    looked_at = range(min(len(names), _NUM_CHECKED))
    if not any(os.path.lexists(os.path.join(base, names[index])) for index in looked_at):
        which = "it is not there:" if len(names) == 1 else f"none of the first {len(looked_at)} is there, e.g."
        raise ValueError(
            f"{printable(path)} lists {count(len(names), 'photograph')}, and {which} "
            f"{printable(os.path.join(base, names[0]))}. Write paths relative to the list's folder, or pass root= to "
            "FileListSource."
        )
