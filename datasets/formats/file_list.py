"""A CSV or TSV file that lists images and their labels."""

import csv
import os
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from sys import intern
from typing import NoReturn, TextIO

from augpipe.datasets.files.image_files import EXTENSIONS, FileSource, is_image_name
from augpipe.datasets.files.splits import chosen, remedy, split_of
from augpipe.datasets.formats.list_columns import Columns, Wanted, choose_columns, column_names
from augpipe.datasets.metadata.label_names import LabelArgument
from augpipe.datasets.metadata.label_rows import LabelRows
from augpipe.datasets.metadata.labels import LabelColumn
from augpipe.datasets.metadata.names import NameTable, printable
from augpipe.sources import Subset
from augpipe.validation.plural import count

LIST_EXTENSIONS = (".csv", ".tsv", ".txt")
_NUM_CHECKED = 100
"""How many of the first files are looked for when a list is opened; at least one must be there."""
_MOST_SPLITS = 8
"""Values of a column `split` that are warned of; more are something else."""
_MOST_LISTS = 100
"""How many lists that lie in a folder are looked into."""


class FileListSource(FileSource):
    """The images that a list names, in its order; UTF-8, one a line: `path,label`.

    The first line may be a header. The photographs are then the column `image`, else the first of
    `list_columns.IMAGE_NAMES` (`path`, `file_name`, `image_id`, ...); the label is the column `label`, else the first
    of `label_names.LABEL_NAMES` (`label`, `class`, `target`, ...), in any case. The first line of the log names the
    columns that are not read, and those that are, where they are not called `path` and `label`. Without a header there
    are one or two columns: path and label.

    Fields are separated by a tab in .tsv; in any other file by a comma if the first line has one, else by a semicolon
    or tab (in .txt by a tab first). A path that holds the separator stands in double quotes. A line that begins with #
    is a comment, unless a file of that name is there. File names are found in either Unicode form.

    Without a label column all labels are -1. Labels are integers (0, 1, ..., -1 for none) or class names, which are
    sorted (by bytes) into `classes`; integers give the classes "0", "1", .... Where some are numbers with a point,
    labels are regression: one float32 each, as by `labels=[...]`.

    Where a header has no column `label` but some that begin with `label_`, such as `label_x` and `label_y`, each label
    is that many numbers: float32, or int64 where all of them are whole and written without a point.

    A column `split` (train, val, ...) divides the rows: `part("train")`, or split="train" of a `Loader`.

    Files that are missing or unreadable show up when they are read, so that the loader's `on_error` decides;
    only when none of the first hundred is there is the list refused, for then its root is wrong.

    Args:
        path: the list.
        root: what relative paths in it are relative to; the list's own folder if left out.
        classes: the classes and their order; every label is then one of these names, or the number of one. Give a
            validation list the training list's `classes`, and labels agree even where it lacks some of them. For labels
            of several columns: what those stand for; their names if left out.
        image: the column of the photographs' files, by its name in the header.
        label: the column of classes (or of floats), by its name in the header; several names are `labels`; False to
            read no labels.
        labels: the columns of numbers, by their names in the header, that together are the label.
        columns: further columns, by their names in the header, which go along as `Batch.columns`: texts, as they are
            written. "path" is the column of photographs, where none is called so.

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
        image: str | None = None,
        label: LabelArgument = None,
        labels: Sequence[str] = (),
        columns: Sequence[str] = (),
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
        if label is not None and len(labels):
            raise ValueError(f"label={label!r} and labels={list(labels)!r} are two answers to one question. Give one.")
        if label is None or label is False or isinstance(label, str):
            one, several = label, tuple(labels)
        else:
            one, several = None, tuple(label)
        further_names = column_names(columns)
        listing = _Lines(text, base, Wanted(image, one, several, further_names))
        names, lines, column, rows = NameTable(), array("q"), None, None
        further = {title: NameTable() for title in further_names}
        splits: list[str] = []
        for line, name, cells, texts, split in listing:
            names.extend([os.fsencode(_as_on_disk(base, name))])
            lines.append(line)
            splits.append(intern(split))
            for table, value in zip(further.values(), texts, strict=True):
                table.extend([os.fsencode(value)])
            if isinstance(cells, dict):
                rows = rows or LabelRows(list(cells))
                try:
                    rows.append_texts(list(cells.values()))
                except ValueError as error:
                    _refuse(text, line, str(error))
            else:
                column = column or LabelColumn(f"column {listing.columns.label_name or 2!r}")
                column.append(cells)
        if not lines:
            raise ValueError(f"{printable(text)} lists no photograph. Write one a line, as path,label.")
        _check_root(text, base, names)
        if rows is not None:
            super().__init__(base, names, rows.numbered(), rows.names(classes), further)
            self.cautions: tuple[str, ...] = ()
        else:
            assert column is not None
            numbers, found = column.numbered(classes, lambda sample_id: f"{printable(text)}, line {lines[sample_id]}")
            if numbers.ndim == 2 and classes is None and listing.columns.label_name:
                found = (listing.columns.label_name,)
            super().__init__(base, names, numbers, found, further)
            self.cautions = column.cautions
            joined = [name for name in found if "|" in name and classes is None]
            if joined:
                self.cautions = (f"{joined[0]!r} is one class: for several at once give each a column of 0 and 1",)
        self.notes = (*listing.columns.notes, *(column.notes if column is not None else ()), *listing.notes)
        self.left_out = listing.columns.left_out
        self._where = printable(text)
        self._splits = splits if listing.columns.split is not None else []
        named = Counter(filter(None, self._splits))
        if 1 < len(named) <= _MOST_SPLITS:
            self.cautions = (*self.cautions, *_cautions_of_splits(named, self._splits.count("")))
        if 1 < len(named) <= _MOST_SPLITS and not any(name.lower() == "split" for name in further_names):
            there = ", ".join(f"{name} ({num})" for name, num in named.items())
            self.cautions_of_whole = (
                f"column 'split' names {there}, and all rows are read: {remedy(list(named))} takes those of one",
            )

    def part(self, split: str) -> Subset:
        """The rows whose column `split` holds that, or a word for it, as "valid" for "val"; with the classes of all.

        Raises:
            ValueError: no row does, or the list has no such column.
        """
        name = chosen(self._where, sorted(set(filter(None, self._splits))), split)
        return Subset(self, [row for row, value in enumerate(self._splits) if value == name])


def _cautions_of_splits(named: Counter[str], num_without: int) -> Iterator[str]:
    """What of the column `split` is in none of the splits that one asks for, or not in the one that was meant."""
    kinds: dict[object, list[str]] = {}
    for name, num in named.items():
        kinds.setdefault(split_of(name) or name.casefold(), []).append(f"{name} ({num})")
    several = "; ".join(" and ".join(names) for names in kinds.values() if len(names) > 1)
    if several:
        yield f"column 'split' spells one split in several ways, and each is read without the others: {several}"
    if num_without:
        yield f"{count(num_without, 'row')} without a split {'is' if num_without == 1 else 'are'} in none"


def refuse_unread_lists(folder: str, names: Iterable[str]) -> None:
    """Refuse a folder without classes of its own in which a list names the labels of photographs.

    Args:
        folder: where they lie.
        names: its files.

    Raises:
        ValueError: one is such a list.
    """
    for name in islice((name for name in names if name.lower().endswith((".csv", ".tsv", ".jsonl"))), _MOST_LISTS):
        path = os.path.join(folder, name)
        is_list = not name.lower().endswith(".jsonl") and os.path.isfile(path) and _lists_labels(path)
        if is_list or name == "metadata.jsonl":
            first = "" if is_list else "Write it as a CSV list, path,label. "
            raise ValueError(
                f"{printable(path)} lists the labels of photographs in {printable(folder)}, and a folder's labels are "
                f"its class folders. {first}Give that list itself, or move it away."
            )


def _lists_labels(path: str) -> bool:
    """Whether the first line of a list names a photograph that is there, and its label."""
    base = os.path.dirname(path)
    try:
        _, name, cells, *_ = next(iter(_Lines(path, base, Wanted(None, None, ()))))
    except (ValueError, StopIteration):
        return False
    return cells is not None and os.path.lexists(os.path.join(base, name))


def _refuse(path: str, line: int, reason: str) -> NoReturn:
    raise ValueError(f"{printable(path)}, line {line}: {reason}")


class _Lines:
    """(line, path, label, further columns, split) of each line that is not blank; label is None without such a column.

    With several label columns, the label is a list of their values. The split is empty where none is named.
    """

    def __init__(self, path: str, base: str, wanted: Wanted) -> None:
        self.columns = Columns(0, None, {}, {}, 0, False)
        """Known once the first line is read."""
        self.num_comments = 0
        self._path, self._base, self._wanted = path, base, wanted

    @property
    def notes(self) -> tuple[str, ...]:
        """What was passed over."""
        if not self.num_comments:
            return ()
        verb = ("begins", "is") if self.num_comments == 1 else ("begin", "are")
        return (f"{count(self.num_comments, 'line')} {verb[0]} with # and {verb[1]} not read",)

    def __iter__(self) -> Iterator[tuple[int, str, str | dict[str, str] | None, tuple[str, ...], str]]:
        path = self._path
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=_delimiter(path, self._base, file), strict=True)
            is_first = True
            line = 0
            try:
                for row in reader:
                    line, start = reader.line_num, line + 1  # `start`: where a row with line breaks in quotes begins
                    if not any(cell.strip() for cell in row):
                        continue
                    if row[0].startswith("#") and not os.path.lexists(os.path.join(self._base, row[0])):
                        self.num_comments += 1
                        continue
                    if is_first:
                        is_first = False
                        try:
                            self.columns = choose_columns(row, self._base, self._wanted)
                        except ValueError as error:
                            _refuse(path, start, str(error))
                        if self.columns.is_header:
                            continue
                    name, label = _fields(path, start, row, self.columns)
                    at = self.columns.split
                    split = "" if at is None or at >= len(row) else row[at].strip()
                    yield start, name, label, tuple(row[place] for place in self.columns.further.values()), split
            except UnicodeDecodeError:
                _refuse(path, _first_line_not_utf8(path), "not UTF-8. Save the list as UTF-8.")
            except csv.Error as error:
                _refuse(path, line + 1, f"{error}. Check the double quotes: a path that holds one doubles it.")


def _delimiter(path: str, base: str, file: TextIO) -> str:
    """What separates fields, by the name of the list and its first line."""
    extension = os.path.splitext(path)[1].lower()
    if extension == ".tsv":
        return "\t"
    try:
        first = next((line.strip() for line in file if line.strip() and not line.startswith("#")), "")
    except UnicodeDecodeError:
        _refuse(path, _first_line_not_utf8(path), "not UTF-8. Save the list as UTF-8.")
    file.seek(0)
    separators = ",;\t" if extension == ".csv" else "\t,;"
    if os.path.lexists(os.path.join(base, first)):
        return separators[0]
    return next((separator for separator in separators if separator in first), ",")


def _first_line_not_utf8(path: str) -> int:
    with open(path, "rb") as file:
        for line, raw in enumerate(file, start=1):
            if raw.decode("utf-8", "ignore").encode() != raw:
                return line
    raise AssertionError(f"{path} is UTF-8 line by line, and was not as a whole")


def _fields(path: str, line: int, row: Sequence[str], columns: Columns) -> tuple[str, str | dict[str, str] | None]:
    needed = max(columns.path, columns.label or 0, *columns.rows.values(), *columns.further.values()) + 1
    if len(row) < needed:
        _refuse(path, line, f"{len(row)} columns, and {needed} are needed as in the first line. Complete the line.")
    if any(cell.strip() for cell in row[columns.width :]):
        _refuse(
            path,
            line,
            f"{len(row)} columns, and the first line has {columns.width}. Put a text with a comma in double quotes.",
        )
    if not row[columns.path].strip():
        _refuse(path, line, "the path is empty. Write one, or remove the line.")
    if columns.rows:
        return row[columns.path], {name: row[place] for name, place in columns.rows.items()}
    if columns.label is None:
        return row[columns.path], None
    label = row[columns.label].strip()
    if not label:
        _refuse(
            path,
            line,
            "the label is empty. Write one on each line (-1 for none among integers), or on none; label=False reads "
            "none.",
        )
    return row[columns.path], label


def _as_on_disk(base: str, name: str) -> str:
    """A path in the Unicode form in which it is there: a list and a disk may write "é" in two ways."""
    if name.isascii():
        return name
    forms = [name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))]
    if forms[1] == forms[2]:
        return name
    return next((form for form in forms if os.path.lexists(os.path.join(base, form))), name)


def _check_root(path: str, base: str, names: NameTable) -> None:
    looked_at = range(min(len(names), _NUM_CHECKED))
    if any(os.path.lexists(os.path.join(base, names[index])) for index in looked_at):
        return
    which = "it is not there:" if len(names) == 1 else f"none of the first {len(looked_at)} is there, e.g."
    first = os.path.join(base, names[0])
    with_suffix = next((first + suffix for suffix in EXTENSIONS if os.path.lexists(first + suffix)), None)
    *before, last = names[0].rsplit(maxsplit=1)
    if with_suffix:
        what_to_do = f"{printable(with_suffix)} is: write names with their suffix."
    elif before and is_image_name(before[0]):
        example = printable(f"{before[0]},{last}")
        what_to_do = (
            f"A blank stands between the path and {last!r}, and blanks are part of a path. Write 'path,label', as "
            f"{example}, or a tab between them."
        )
    else:
        what_to_do = "Write paths relative to the list's folder, or pass root= to FileListSource."
    raise ValueError(
        f"{printable(path)} lists {count(len(names), 'photograph')}, and {which} {printable(first)}. {what_to_do}"
    )
