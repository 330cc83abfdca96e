"""From the labels that files spell out, as numbers or as names, to class numbers."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.metadata.names import listed

MAX_LABEL = 1_000_000
"""Labels above this are ids of something, not class numbers: a model's last layer would be that wide."""


class LabelColumn:
    """The labels of N samples as they stand in files, one after the other; 4 bytes a sample, and each text once."""

    def __init__(self) -> None:
        self._codes = array("i")
        self._code_of: dict[str, int] = {}
        self._first: list[int] = []  # the sample that each text was met at first, for messages

    def append(self, text: str | None) -> None:
        """The next sample's label; None where it has none."""
        code = -1
        if text is not None:
            code = self._code_of.setdefault(text, len(self._code_of))
            if code == len(self._first):
                self._first.append(len(self._codes))
        self._codes.append(code)

    def __len__(self) -> int:
        return len(self._codes)

    def numbered(
        self, classes: Sequence[str] | None, name: Callable[[int], str]
    ) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
        """Class numbers (int32, -1 where there is none) and the classes.

        Without `classes`, integers stay as they are and the classes are "0", "1", ...; names are sorted by their bytes.
        With them, labels are their names, or else, where none of them is one, the integers 0..len(classes)-1.

        Args:
            classes: label -> class name.
            name: what a sample is called in messages.

        Raises:
            ValueError: integers and names are mixed, or a label is none of the classes.
        """
        texts = list(self._code_of)
        numbers = [as_integer(text) for text in texts]
        are_names = all(number is None for number in numbers)
        if are_names or (classes is not None and not set(classes).isdisjoint(texts)):
            shown = tuple(sorted(texts, key=str.encode)) if classes is None else tuple(classes)
            place = {text: number for number, text in enumerate(shown)}
            self._refuse_first(
                [text not in place for text in texts],
                name,
                f"is none of the {len(shown)} classes given ({listed(shown)}). Fix it, or add it there.",
            )
            mapping = [place[text] for text in texts]
        else:
            mapping = self._checked(numbers, classes, name)
            shown = tuple(map(str, range(max(mapping) + 1))) if classes is None else tuple(classes)
        table = np.array([*mapping, -1], dtype=np.int32)  # code -1 reads the last one
        return table[np.frombuffer(self._codes, np.int32)], shown

    def _checked(
        self, numbers: Sequence[int | None], classes: Sequence[str] | None, name: Callable[[int], str]
    ) -> list[int]:
        """The numbers, if all labels are numbers and each is one of a class."""
        self._refuse_first(
            [number is None for number in numbers],
            name,
            "is a name, and other labels are integers. Fix it; if some names are digits, pass classes=[...] with all.",
        )
        checked = [number for number in numbers if number is not None]
        highest = MAX_LABEL if classes is None else len(classes) - 1
        self._refuse_first(
            [not -1 <= number <= highest for number in checked],
            name,
            f"is no class number (0..{highest}, or -1 for none). Renumber, or pass the classes that it belongs to.",
        )
        return checked

    def _refuse_first(self, refused: Sequence[bool], name: Callable[[int], str], reason: str) -> None:
        for text, first, is_refused in zip(self._code_of, self._first, refused, strict=True):
            if is_refused:
                raise ValueError(f"{name(first)}: label {text!r:.100} {reason}")


def checked_numbers(
    numbers: npt.NDArray[np.integer[Any]], classes: Sequence[str] | None, name: Callable[[int], str]
) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    """Labels that are class numbers already, as int32, and the classes: "0", "1", ... if None are given.

    Args:
        numbers: one a sample, -1 where there is none.
        classes: label -> class name.
        name: what a sample is called in messages.

    Raises:
        ValueError: one is the number of no class.
    """
    most = MAX_LABEL if classes is None else len(classes) - 1
    wrong = np.flatnonzero((numbers < -1) | (numbers > most))
    if len(wrong):
        raise ValueError(
            f"{name(int(wrong[0]))}: label {numbers[wrong[0]]} is no class number (0..{most}, or -1 for none). "
            "Pass classes=[...] with all names, or choose another label."
        )
    if classes is None:
        classes = [str(number) for number in range(int(numbers.max(initial=-1)) + 1)]
    return numbers.astype(np.int32), tuple(classes)


def as_integer(text: str) -> int | None:
    """The number that ASCII digits, with a sign or not, spell; None for any other text."""
    digits = text[1:] if text[:1] in "+-" else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None
