"""Labels of several numbers each, as files spell them out."""

from array import array
from collections.abc import Sequence

import numpy as np

from augpipe.datasets.metadata.labels import as_integer
from augpipe.source import Labels, as_label_rows

COLUMN_PREFIX = "label_"
"""What the columns of a list begin with that together are its labels, where no column is called label."""


class LabelRows:
    """The labels of N samples, one row of k numbers after the other; 8 bytes a number while a list is read.

    Args:
        columns: what the k numbers are called.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._numbers = array("d")
        self._are_whole = True

    def append(self, texts: Sequence[str]) -> None:
        """The next sample's label.

        Raises:
            ValueError: a text is no number; the reason alone.
        """
        for column, text in zip(self._columns, texts, strict=True):
            try:
                number = float(text)
            except ValueError:
                raise ValueError(
                    f"column {column!r} holds {text!r:.100}, and labels of several columns are numbers. Write one."
                ) from None
            self._numbers.append(number)
            self._are_whole = self._are_whole and as_integer(text.strip()) is not None and abs(number) < 2**53

    def numbered(self) -> Labels:
        """(N, k): int64 where all of them are whole numbers, written without a point, else float32."""
        rows = np.frombuffer(self._numbers, np.float64).reshape(-1, len(self._columns))
        return as_label_rows(rows.astype(np.int64) if self._are_whole else rows)

    def names(self, classes: Sequence[str] | None) -> tuple[str, ...]:
        """What the numbers stand for: the columns' names, or `classes`.

        Raises:
            ValueError: there is another number of classes than of columns.
        """
        if classes is None:
            return tuple(column.removeprefix(COLUMN_PREFIX) for column in self._columns)
        if len(classes) != len(self._columns):
            raise ValueError(
                f"classes holds {len(classes)} names, and there are {len(self._columns)} columns of labels "
                f"({', '.join(self._columns)}). Give one name each, or none."
            )
        return tuple(classes)
