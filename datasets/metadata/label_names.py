"""Which column holds the labels, and what is said of those that are not read: one rule for all formats."""

from collections.abc import Sequence
from typing import Literal

from augpipe.datasets.metadata.names import listed

LABEL_NAMES = ("label", "labels", "cls", "class", "target", "fine_label")
"""What a column of labels is called, in any case; the first of these that is there is taken."""
_MOST_NAMED = 3

LabelArgument = str | Sequence[str] | Literal[False] | None
"""What sources take as `label`: a column, several, False for no labels, or None to find it."""


def label_like(names: Sequence[str], known: Sequence[str] = LABEL_NAMES) -> list[str]:
    """Those of some columns that look like the label by their names, the likeliest first."""
    return [name for wanted in known for name in names if name.lower() == wanted]


def columns_of_numbers(label: Sequence[str], numbers: Sequence[str]) -> tuple[str, ...]:
    """Several columns that labels lie in, each one of `numbers`, those that hold numbers.

    Raises:
        ValueError: a column is not among them, or none is named; the reason alone.
    """
    for name in label:
        if name not in numbers:
            raise ValueError(
                f"label={list(label)!r} names {name!r}, which is not a column of numbers. Those are "
                f"{listed(numbers, most=20) or 'none'}"
            )
    if not label:
        raise ValueError("label=[] names no column. Leave it out, or name some")
    return tuple(label)


def unusable(column: str, holds: str, is_number: bool) -> str:
    """Why a column that looks like the label is none, and what to do; for an error.

    Args:
        column: its kind and name: "column 'label'".
        holds: its content: "float64".
        is_number: whether `label=` takes it as numbers.
    """
    name = column.partition(" ")[2]
    why = f"{column} looks like the label and holds {holds}, and a class is an integer or a text"
    if column.startswith("column ") and ("float" in holds or "double" in holds):
        why += " (pandas makes floats of integers where one is missing: fill those with -1)"
    remedy = f"Pass label={name} to read it as numbers," if is_number else "Convert it, or pass"
    return f"{why}. {remedy} label= another column, or label=False to read none"


def unread(columns: Sequence[str], where: str, remedy: str) -> str:
    """Columns that are not read.

    Args:
        columns: one or more.
        where: what they are of: "column of the list".
        remedy: how they would be.
    """
    kind, _, rest = where.partition(" ")
    return f"{kind}{'s' * (len(columns) > 1)} {listed(columns)} {rest} ({remedy})"


def as_list(columns: Sequence[str]) -> str:
    """Columns as an argument lists them."""
    return repr(list(columns)) if len(columns) <= _MOST_NAMED else "[...]"
