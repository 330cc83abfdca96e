"""The generic readers: from files that a card names to rows of path, label and box."""

from collections.abc import Iterator
from typing import NamedTuple

from augpipe.datasets.cards import mat, text
from augpipe.datasets.cards.card import FoldersWay, IdTablesWay, ListWay, MatWay, TwoColumnsWay, fill
from augpipe.datasets.cards.text import Box
from augpipe.datasets.cards.tree import Tree
from augpipe.datasets.files.image_files import is_image_name

FileWay = FoldersWay | ListWay | TwoColumnsWay | IdTablesWay | MatWay


class Row(NamedTuple):
    """One image."""

    path: str
    """Below the tree's root, with "/" between."""
    label: str | None
    """A class' id or name; None where the split has no labels."""
    box: Box | None
    source: str
    """Where this stands, for messages."""


def read_rows(tree: Tree, way: FileWay) -> Iterator[Row]:
    """The rows of a split, in the official order.

    Raises:
        ValueError: a file is not there, or a line of it cannot be used.
        OSError: a file cannot be read.
    """
    match way:
        case FoldersWay():
            yield from _folders(tree, way)
        case ListWay():
            for place, (number, line) in enumerate(text.lines(tree, way.file), start=1):
                fields = {"line": line, "n": str(place)}
                yield Row(fill(way.path, fields), fill(way.label, fields), None, f"{way.file}, line {number}")
        case TwoColumnsWay():
            yield from _two_columns(tree, way)
        case IdTablesWay():
            yield from _id_tables(tree, way)
        case MatWay():
            yield from _mat(tree, way)


def _folders(tree: Tree, way: FoldersWay) -> Iterator[Row]:
    for label in [None] if way.flat else tree.names(way.path, "folder"):
        folder = way.path if label is None else f"{way.path}/{label}"
        for name in tree.names(folder, "file"):
            if is_image_name(name):
                yield Row(f"{folder}/{name}", label, None, folder)


def _two_columns(tree: Tree, way: TwoColumnsWay) -> Iterator[Row]:
    boxes = text.boxes(tree, way.boxes, way.box_form)
    for place, (number, columns) in enumerate(text.rows(tree, way.file, way.num_columns, way.separator)):
        if place < way.num_header_lines:
            continue
        fields = text.fields(columns)
        box = None if boxes is None else boxes.get(columns[0])
        yield Row(fill(way.path, fields), fill(way.label, fields), box, f"{way.file}, line {number}")


def _id_tables(tree: Tree, way: IdTablesWay) -> Iterator[Row]:
    labels = text.by_id(tree, way.labels_file)
    splits = text.by_id(tree, way.split_file)
    boxes = text.boxes(tree, way.boxes, way.box_form)
    for number, columns in text.rows(tree, way.paths, 2):
        key = columns[0]
        for file, table in ((way.labels_file, labels), (way.split_file, splits)):
            if key not in table:
                raise text.fault(tree, way.paths, number, f"image id {key!r} does not occur in {file}")
        if splits[key] == way.split_value:
            box = None if boxes is None else boxes.get(key)
            yield Row(fill(way.path, text.fields(columns)), labels[key], box, f"{way.paths}, line {number}")


def _mat(tree: Tree, way: MatWay) -> Iterator[Row]:
    labels = mat.integers(tree, way.labels_file, way.labels_variable)
    for number in mat.integers(tree, way.split_file, way.split_variable).tolist():
        if not 1 <= number <= len(labels):
            raise ValueError(
                f"{way.split_file}: {way.split_variable!r} holds the image number {number}, and {way.labels_file} has "
                f"labels for 1..{len(labels)}. Download both official files again."
            )
        path = fill(way.path, {"n": str(number)})
        yield Row(path, str(labels[number - 1]), None, f"{way.split_file}, {way.split_variable}")
