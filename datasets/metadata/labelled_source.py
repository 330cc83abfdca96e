"""What sources have in common: labels in an array, what `repr` says, and which ids there are."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.checks.plural import count


class LabelledSource(ABC):
    """A source whose labels are held in an array; an id that is no sample's is an IndexError wherever one is taken."""

    classes: Sequence[str]
    """Label -> class name."""
    _labels: npt.NDArray[np.integer[Any]] | None
    """(N,) integers, -1 where there is none; None where no sample has one."""
    _where: str = ""
    """What the samples are read from, for `repr`."""

    @abstractmethod
    def __len__(self) -> int: ...

    def label(self, sample_id: int) -> int:
        """The class, or -1 where there is none."""
        check_sample_id(sample_id, len(self))
        return -1 if self._labels is None else int(self._labels[sample_id])

    def labels_of(self, sample_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """(B,) int64: the classes of (B,) samples, -1 where there is none."""
        for sample_id in (sample_ids.min(), sample_ids.max()) if len(sample_ids) else ():
            check_sample_id(int(sample_id), len(self))
        if type(self).label is not LabelledSource.label:
            return np.array([self.label(sample_id) for sample_id in sample_ids.tolist()], np.int64)
        if self._labels is None:
            return np.full(len(sample_ids), -1, np.int64)
        return self._labels[sample_ids].astype(np.int64)

    def labels(self) -> npt.NDArray[np.int64]:
        """All labels, int64 of shape (N,); a copy."""
        return np.full(len(self), -1, np.int64) if self._labels is None else self._labels.astype(np.int64)

    def __repr__(self) -> str:
        held = f"{count(len(self), 'photograph')}, {count(len(self.classes), 'class')}"
        return f"{type(self).__name__}({f'{self._where!r}: ' if self._where else ''}{held})"


def check_sample_id(sample_id: int, num_samples: int) -> None:
    """Refuse an id that is not in 0..num_samples-1; negative ids do not count from the end.

    Raises:
        IndexError: it is outside.
    """
    if not 0 <= sample_id < num_samples:
        raise IndexError(
            f"sample_id={sample_id} is out of range: this source holds {count(num_samples, 'photograph')}, "
            f"with the ids 0..{num_samples - 1}."
        )


def find_sample(sample_id: int, ends: Sequence[int]) -> tuple[int, int]:
    """The file that a sample lies in, and its place there, by how many samples there are up to each file's end.

    Raises:
        IndexError: no such sample.
    """
    check_sample_id(sample_id, ends[-1])
    file = bisect_right(ends, sample_id)
    return file, sample_id - (ends[file - 1] if file else 0)
