"""Labels of several numbers each, as files spell them out."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.metadata.labels import MAX_FLOAT32, LabelColumn, as_number
from augpipe.sources.protocol import Labels, as_label_rows
from augpipe.validation.plural import count

COLUMN_PREFIX = "label_"
"""What the columns of a list begin with that together are its labels, where no column is called label."""

_BOOLEANS = {"True": True, "False": False}
_NOT_FINITE = ("nan", "inf", "infinity")

Numbers = Sequence[int | float | bool]


class NumberRows:
    """The labels of N samples, one row of k numbers after the other; 8 bytes a number while they are read."""

    def __init__(self) -> None:
        self._numbers = array("d")
        self._are_whole = True
        self._width = 0

    def __len__(self) -> int:
        return len(self._numbers) // self._width if self._width else 0

    def append(self, numbers: Numbers) -> None:
        """The next sample's label.

        Raises:
            ValueError: there are more or fewer numbers than in the first one, or something else; the reason alone.
        """
        for number in numbers:
            if not isinstance(number, (int, float)):
                raise ValueError(f"its label holds {number!r:.100}, and a list is a label of numbers. Write one")
            if not abs(number) <= MAX_FLOAT32:  # no NaN is
                raise ValueError(
                    f"its label holds {number!r:.100}, and labels are finite numbers of float32. Write one"
                )
        width = self._width or len(numbers)
        if len(numbers) != width or not width:
            raise ValueError(
                f"its label is {count(len(numbers), 'number')}, and the first one {width or 'at least one'}: labels "
                "are of one length. Write lists of class numbers as rows of 0 and 1 (multi-hot)"
            )
        self._width = width
        self._numbers.extend(numbers)
        self._are_whole = self._are_whole and all(type(number) is int and abs(number) < 2**53 for number in numbers)

    def numbered(self) -> Labels:
        """(N, k): int64 where all of them are whole numbers, written without a point, else float32."""
        rows = np.frombuffer(self._numbers, np.float64).reshape(-1, self._width)
        return as_label_rows(rows.astype(np.int64) if self._are_whole else rows)


class LabelRows(NumberRows):
    """The same, of columns that spell the numbers out.

    Args:
        columns: what the k numbers are called.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__()
        self._columns = tuple(columns)

    def append_texts(self, texts: Sequence[str]) -> None:
        """The next sample's label.

        Raises:
            ValueError: a text is not a finite number of float32; the reason alone.
        """
        numbers: list[int | float] = []
        for column, text in zip(self._columns, texts, strict=True):
            number: float | None = _BOOLEANS.get(text.strip())  # as pandas writes them
            if number is None:
                number = as_number(text.strip())
            if number is None or abs(number) > MAX_FLOAT32:
                is_name = number is None and text.strip()[:1].isalpha() and text.strip().lower() not in _NOT_FINITE
                raise ValueError(
                    f"column {column!r} holds {text!r:.100}, and labels of several columns are finite numbers. Write "
                    f"one{f', or pass label= with the column of classes, as label={column!r}' if is_name else ''}."
                )
            numbers.append(number)
        self.append(numbers)

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


class AnyLabels:
    """The labels of N samples, all classes (or none) or all rows of numbers."""

    def __init__(self) -> None:
        self.texts = LabelColumn()
        self.rows = NumberRows()

    def append(self, label: str | Numbers | None) -> None:
        """The next sample's label.

        Raises:
            ValueError: it is of another kind than those before it, or no label; the reason alone.
        """
        is_row = label is not None and not isinstance(label, str)
        if len(self.texts if is_row else self.rows):
            found, before = ("a list of numbers", "not a list") if is_row else ("not a list of numbers", "one")
            raise ValueError(f"its label is {found}, and the first label is {before}. Give all labels of one kind")
        if label is None or isinstance(label, str):
            self.texts.append(label)
        else:
            self.rows.append(label)

    def numbered(
        self, classes: Sequence[str] | None, name: Callable[[int], str]
    ) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
        """As a `LabelledSource` holds them, (N,) or (N, k), and the classes: see `LabelColumn.numbered`.

        Raises:
            ValueError: they do not fit `classes`.
        """
        if not len(self.rows):
            return self.texts.numbered(classes, name)
        rows = self.rows.numbered()
        return rows, checked_names(classes, rows.shape[1])


def checked_names(classes: Sequence[str] | None, width: int) -> tuple[str, ...]:
    """What the k numbers of a label stand for; none where nobody says.

    Raises:
        ValueError: there are more or fewer names than numbers.
    """
    if classes is not None and len(classes) != width:
        raise ValueError(
            f"classes holds {len(classes)} names, and each label {count(width, 'number')}. Give one name each, or none."
        )
    return tuple(classes or ())
