"""From the labels that files spell out, as numbers or as names, to class numbers."""

import re
import unicodedata
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.metadata.names import listed

MAX_LABEL = 1_000_000
"""Labels above this are ids of something, not class numbers: a model's last layer would be that wide."""
MAX_FLOAT32 = float(np.finfo(np.float32).max)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LIST = re.compile(r"[\[(].*[\])]", re.DOTALL)
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


class LabelColumn:
    """The labels of N samples as they stand in files, one after the other; 4 bytes a sample, and each text once.

    Args:
        what: what holds them, for `notes`.
    """

    def __init__(self, what: str = "the label") -> None:
        self.notes: tuple[str, ...] = ()
        """What `numbered` found that is worth saying."""
        self.cautions: tuple[str, ...] = ()
        """What it may have taken wrong."""
        self._what = what
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
    ) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
        """Class numbers (int32, -1 where there is none) and the classes; or (N, 1) float32 where labels are floats.

        Without `classes`, integers stay as they are and the classes are "0", "1", ...; names are sorted by their bytes;
        numbers some of which have a point are regression. With them, labels are their names, or else, where none of
        them is one, the integers 0..len(classes)-1. Names that differ in their Unicode form alone are one.

        Args:
            classes: label -> class name. One name of labels that are floats is what those stand for.
            name: what a sample is called in messages.

        Raises:
            ValueError: numbers and names are mixed, a number is spelled in two ways, "nan" stands for one, or a label
                is none of the classes.
        """
        texts = [_composed(text) for text in self._code_of]
        place = {} if classes is None else {_composed(text): number for number, text in enumerate(classes)}
        numbers = [as_number(text) for text in texts]
        if place.keys().isdisjoint(texts) and any(number is not None for number in numbers):
            self._refuse_names(texts, numbers, name)
            if any(as_integer(text) is None for text in texts) and (classes is None or len(classes) == 1):
                return self._floats([number for number in numbers if number is not None], name), tuple(classes or ())
            mapping = self._class_numbers(numbers, classes, name)
            shown = tuple(map(str, range(max(mapping) + 1))) if classes is None else tuple(classes)
        else:
            if classes is None:
                self._refuse_gaps(texts, name)
                place = {text: number for number, text in enumerate(sorted(set(texts), key=str.encode))}
            shown = tuple(place) if classes is None else tuple(classes)
            self._refuse_first(
                [text not in place for text in texts],
                name,
                f"is none of the {len(shown)} classes given ({listed(shown)}). Fix it, or add it there.",
            )
            mapping = [place[text] for text in texts]
        table = np.array([*mapping, -1], dtype=np.int32)  # code -1 reads the last one
        return table[np.frombuffer(self._codes, np.int32)], shown

    def _class_numbers(
        self, numbers: Sequence[float | None], classes: Sequence[str] | None, name: Callable[[int], str]
    ) -> list[int]:
        """The numbers, if each is one of a class, and spelled in one way."""
        highest = MAX_LABEL if classes is None else len(classes) - 1
        self._refuse_first(
            [number is None or not -1 <= number <= highest or number % 1 != 0 for number in numbers],
            name,
            f"is not a class number (0..{highest}, or -1 for none). Renumber, or pass the classes that it belongs to.",
        )
        mapping = [int(number) for number in numbers if number is not None]
        spelling: dict[int, str] = {}
        for text, first, number in zip(self._code_of, self._first, mapping, strict=True):
            if (other := spelling.setdefault(number, text)) != text:
                raise ValueError(
                    f"{name(first)}: label {text!r:.100} is the number that {other!r:.100} is elsewhere, spelled in "
                    "another way. Write one of the two; if both are names, pass classes=[...] with all."
                )
        return mapping

    def _floats(self, numbers: Sequence[float], name: Callable[[int], str]) -> npt.NDArray[np.float32]:
        """(N, 1): the numbers as they stand."""
        self._refuse_first([abs(number) > MAX_FLOAT32 for number in numbers], name, "is beyond float32. Scale it.")
        codes = np.frombuffer(self._codes, np.int32)
        if len(missing := np.flatnonzero(codes < 0)):
            raise ValueError(
                f"{name(int(missing[0]))}: there is no label, and those of others are numbers with a point. Write one, "
                "or leave the sample out."
            )
        are_whole = all(number % 1 == 0 for number in numbers)
        said = f"{self._what} holds numbers with a point, so labels are regression, (B, 1) float32"
        if are_whole:  # pandas writes classes so, where one is missing
            self.cautions = (f"{said} (all are whole: for classes pass classes=[...], or write no point)",)
        else:
            self.notes = (said,)
        return np.array(numbers, np.float32)[codes, None]

    def _refuse_names(self, texts: Sequence[str], numbers: Sequence[float | None], name: Callable[[int], str]) -> None:
        """Refuse what is not a number where other labels are some."""
        self._refuse_first(
            [text.lower() == "nan" for text in texts],
            name,
            "is not a number, and other labels are. Write one, or leave the sample out; -1 is none among integers.",
        )
        are_floats = any(number is not None and as_integer(t) is None for t, number in zip(texts, numbers, strict=True))
        of = "numbers" if are_floats else "integers"
        self._refuse_first(
            [number is None for number in numbers],
            name,
            f"is a name, and other labels are {of}. Fix it; if some names are digits, pass classes=[...] with all.",
        )

    def _refuse_gaps(self, texts: Sequence[str], name: Callable[[int], str]) -> None:
        """Refuse names that are none."""
        self._refuse_first(
            [text.lower() == "nan" for text in texts],
            name,
            "stands where a label is missing. Write one, or leave the sample out; if it is a class's name, pass "
            "classes=[...] with all.",
        )
        self._refuse_first(
            [_DECIMAL_COMMA.fullmatch(text) is not None for text in texts],
            name,
            "has a comma for a point. Write a point; if it is a class's name, pass classes=[...] with all.",
        )
        self._refuse_first(
            [_LIST.fullmatch(text) is not None for text in texts],
            name,
            "is a list, and one text is one class. Write each number into a column (or a feature) of its own.",
        )

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
            f"{name(int(wrong[0]))}: label {numbers[wrong[0]]} is not a class number (0..{most}, or -1 for none). "
            "Pass classes=[...] with all names, or choose another label."
        )
    if classes is None:
        classes = [str(number) for number in range(int(numbers.max(initial=-1)) + 1)]
    return numbers.astype(np.int32), tuple(classes)


def as_integer(text: str) -> int | None:
    """The number that ASCII digits, with a sign or not, spell; None for any other text."""
    digits = text[1:] if text[:1] in "+-" else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def as_number(text: str) -> float | None:
    """The number that a text spells, as class numbers and floats are written; None for any other text.

    Of digits alone those that `as_integer` takes; `float` would take more: "1_0", "nan", "infinity".
    """
    if (whole := as_integer(text)) is not None:
        return whole
    is_number = _NUMBER.fullmatch(text) is not None and not text.lstrip("+-").isdigit()
    return float(text) if is_number else None


def _composed(text: str) -> str:
    """A text in the Unicode form in which "é" is one character, whichever of the two a file has."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)
