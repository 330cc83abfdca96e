"""What every source checks of a sample id, and what those whose labels are an array have in common."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.checks.plural import count


class LabelledSource(ABC):
    """A source whose labels are held in an array."""

    _labels: npt.NDArray[np.integer[Any]] | None
    """(N,) integers, -1 where there is none; None where no sample has one."""

    @abstractmethod
    def __len__(self) -> int: ...

    def label(self, sample_id: int) -> int:
        """The class, or -1 where there is none.

        Raises:
            IndexError: no such sample.
        """
        check_sample_id(sample_id, len(self))
        return -1 if self._labels is None else int(self._labels[sample_id])

    def labels(self) -> npt.NDArray[np.int64]:
        """All labels, int64 of shape (N,); a copy."""
        return np.full(len(self), -1, np.int64) if self._labels is None else self._labels.astype(np.int64)


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
