"""Lines and columns of the text files that come with datasets."""

from collections.abc import Iterator, Mapping

from augpipe.datasets.cards.card import BoxForm, Separator
from augpipe.datasets.cards.tree import Tree
from augpipe.datasets.metadata.names import printable

Box = tuple[float, float, float, float]
"""left, top, width, height in pixels."""


def lines(tree: Tree, file: str) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line that is neither blank nor a comment (#); blanks at both ends are cut off.

    Names that are not UTF-8 come through as the file system has them.

    Raises:
        ValueError: there is no such file.
        OSError: it cannot be read.
    """
    with open(tree.path(file), encoding="utf-8-sig", errors="surrogateescape") as stream:
        for number, raw in enumerate(stream, start=1):
            text = raw.strip()
            if text and not text.startswith("#"):
                yield number, text


def rows(tree: Tree, file: str, num_columns: int, separator: Separator = "space") -> Iterator[tuple[int, list[str]]]:
    """(number from 1, columns) of each line; the last column holds all that is left of the line.

    Raises:
        ValueError: a line with too few columns, or no such file.
        OSError: it cannot be read.
    """
    for number, text in lines(tree, file):
        columns = [column.strip() for column in text.split(None if separator == "space" else ",", num_columns - 1)]
        if len(columns) < num_columns or not all(columns):
            raise fault(tree, file, number, f"{num_columns} columns are needed, and it says {text!r}")
        yield number, columns


def fields(columns: list[str]) -> dict[str, str]:
    """Columns as the fields {0}, {1}, ... of a template."""
    return {str(index): column for index, column in enumerate(columns)}


def by_id(tree: Tree, file: str) -> dict[str, str]:
    """Column 0 -> column 1 of a file whose ids are unlike each other.

    Raises:
        ValueError: an id that comes twice, a line with too few columns, or no such file.
        OSError: it cannot be read.
    """
    found: dict[str, str] = {}
    for number, (key, value) in rows(tree, file, 2):
        if key in found:
            raise fault(tree, file, number, f"id {key!r} comes a second time")
        found[key] = value
    return found


def boxes(tree: Tree, file: str | None, form: BoxForm) -> Mapping[str, Box] | None:
    """Image id -> box; None where the card names no file.

    Raises:
        ValueError: four numbers are not there, or no such file.
        OSError: it cannot be read.
    """
    if file is None:
        return None
    found: dict[str, Box] = {}
    for number, (key, *texts) in rows(tree, file, 5):
        try:
            left, top, third, fourth = map(float, texts)
        except ValueError:
            raise fault(tree, file, number, f"four numbers are needed, and it says {' '.join(texts)!r}") from None
        if form == "corner_and_size":
            found[key] = (left, top, third, fourth)
        else:
            found[key] = (left - 1, top - 1, third - left + 1, fourth - top + 1)
    return found


def fault(tree: Tree, file: str, line: int, reason: str) -> ValueError:
    """The error for a line that cannot be used."""
    return ValueError(
        f"{printable(tree.root)}/{printable(file)}, line {line}: {printable(reason)}. "
        "Unpack the official file again, or correct the line."
    )
