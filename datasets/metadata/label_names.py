"""Which column holds the labels, and what is said of those that are not read: one rule for all formats."""

from collections.abc import Sequence

from augpipe.datasets.metadata.names import listed

LABEL_NAMES = ("label", "labels", "cls", "class", "target", "fine_label")
"""What a column of labels is called, in any case; the first of these that is there is taken."""
_MOST_NAMED = 3


def label_like(names: Sequence[str]) -> list[str]:
    """Those of some columns that look like the label by their names, the likeliest first."""
    return [name for wanted in LABEL_NAMES for name in names if name.lower() == wanted]


def unread(columns: Sequence[str], where: str, several: str, one: str = "") -> str:
    """Columns that are not read, and how they would be.

    Args:
        columns: one or more.
        where: what they are columns of.
        several: the argument of the source that reads several columns as numbers.
        one: the one that reads a column as the label, where nothing else is.
    """
    many = len(columns) > 1
    names = repr(list(columns)) if len(columns) <= _MOST_NAMED else "[...]"
    remedy = f"{several}={names} reads {'them' if many else 'it'} as numbers"
    if one:
        remedy += f", {one}={columns[0]!r} {'one of them' if many else 'as classes'}"
    return f"column{'s' * many} {listed(columns)} of {where} ({remedy})"
