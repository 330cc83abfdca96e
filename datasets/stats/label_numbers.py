"""What labels of several numbers an image are like: of each number its range, mean and deviation."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.sources.protocol import Ints, Pixels, Source, label_width_of, labels_of

_CHUNK = 65_536
"""Samples whose labels are looked up at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelNumbers:
    """One of the k numbers of all images' labels, unusable ones too."""

    name: str
    """As the source's `classes` has it, else its place from 0."""
    least: float
    mean: float
    std: float
    """Over all images, not an estimate for more."""
    most: float
    num_not_zero: int
    """In how many labels it is not 0: of several classes at once, how many images are of this one."""

    def to_json(self) -> dict[str, Any]:
        """The fields as they are."""
        return asdict(self)


def label_numbers(source: Source) -> tuple[LabelNumbers, ...]:
    """Of each number; nothing where labels are classes. Images are not read."""
    width = label_width_of(source)
    if not width:
        return ()
    parts = (np.arange(at, min(at + _CHUNK, len(source)), dtype=np.int64) for at in range(0, len(source), _CHUNK))
    least, most = np.full(width, math.inf), np.full(width, -math.inf)
    totals, squares, not_zero = np.zeros(width), np.zeros(width), np.zeros(width, np.int64)
    origin: npt.NDArray[np.float64] | None = None  # near the mean, so that squares lose no digits
    for ids in parts:
        rows = labels_of(source, ids).astype(np.float64)
        origin = rows.mean(axis=0) if origin is None else origin
        least, most = np.minimum(least, rows.min(axis=0)), np.maximum(most, rows.max(axis=0))
        totals += (rows - origin).sum(axis=0)
        squares += ((rows - origin) ** 2).sum(axis=0)
        not_zero += np.count_nonzero(rows, axis=0)
    assert origin is not None  # a source has a sample
    offset = totals / len(source)
    std = np.sqrt(np.maximum(squares / len(source) - offset**2, 0.0))
    names: Sequence[str] = source.classes or [str(place) for place in range(width)]
    return tuple(
        LabelNumbers(name=name, least=low, mean=mean, std=deviation, most=high, num_not_zero=num)
        for name, low, mean, deviation, high, num in zip(
            names, *(column.tolist() for column in (least, origin + offset, std, most, not_zero)), strict=True
        )
    )


class WithoutLabels:
    """A source's images without their labels, for what counts classes."""

    classes: Sequence[str] = ()

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def read(self, sample_id: int) -> bytes | Pixels:
        """The source's."""
        return self._source.read(sample_id)

    def label(self, sample_id: int) -> int:
        """-1: none."""
        return -1

    def labels_of(self, sample_ids: Ints) -> Ints:
        """(B,) int64 of -1."""
        return np.full(len(sample_ids), -1, np.int64)

    def name(self, sample_id: int) -> str:
        """The source's."""
        return self._source.name(sample_id)
