"""The classes of a dataset, from where its card says that they stand."""

import os
import re
from collections import Counter
from typing import NamedTuple

from augpipe.datasets.cards import mat, text
from augpipe.datasets.cards.card import (
    Classes,
    ColumnClasses,
    FolderClasses,
    FoundClasses,
    LineClasses,
    NumberClasses,
    StructClasses,
    fill,
)
from augpipe.datasets.cards.tree import Tree
from augpipe.datasets.metadata.names import printable


class ClassEntry(NamedTuple):
    """One class; its label is its place in the list."""

    id: str
    name: str


def read_classes(tree: Tree, spec: Classes) -> list[ClassEntry] | None:
    """The classes, label by label; None for those that only the rows tell.

    Raises:
        ValueError: a file is not there or cannot be used, or a class comes twice.
        OSError: a file cannot be read.
    """
    match spec:
        case FolderClasses():
            found = [ClassEntry(name, name) for name in tree.names(spec.path, "folder")]
        case LineClasses():
            found = [ClassEntry(line, line) for _, line in text.lines(tree, spec.file)]
        case ColumnClasses():
            found = _columns(tree, spec)
        case NumberClasses():
            found = [ClassEntry(str(number), str(number)) for number in range(spec.first, spec.first + spec.count)]
        case StructClasses():
            entries = mat.structs(tree, spec.file, spec.variable, (spec.id, spec.name, spec.leaf))
            found = [ClassEntry(key, name) for key, name, leaf in entries if leaf == "0"]
            found.sort(key=lambda entry: os.fsencode(entry.name))
        case FoundClasses():
            return None
    _check_unlike(found, printable(getattr(spec, "file", tree.root)))
    return found


def _check_unlike(found: list[ClassEntry], where: str) -> None:
    for what, values in (("id", [entry.id for entry in found]), ("name", [entry.name for entry in found])):
        value, num = Counter(values).most_common(1)[0] if values else ("", 0)
        if num > 1:
            raise ValueError(f"{where}: class {what} {printable(value)!r} stands for {num} classes. Correct it there.")


def _columns(tree: Tree, spec: ColumnClasses) -> list[ClassEntry]:
    found: dict[ClassEntry, None] = {}
    for number, columns in text.rows(tree, spec.file, spec.num_columns):
        fields = text.fields(columns)
        name = fill(spec.name, fields)
        if spec.name_pattern is not None:
            match = re.fullmatch(spec.name_pattern, name)
            if match is None:
                raise text.fault(tree, spec.file, number, f"{name!r} is not like {spec.name_pattern!r}")
            name = match.group(1)
        key = fill(spec.id, fields)
        if spec.order == "number" and not key.isdecimal():
            raise text.fault(tree, spec.file, number, f"class id {key!r} is not a number")
        found[ClassEntry(key, name)] = None
    entries = list(found)
    if spec.order == "number":
        entries.sort(key=lambda entry: int(entry.id))
    elif spec.order == "name":
        entries.sort(key=lambda entry: os.fsencode(entry.name))
    return entries
