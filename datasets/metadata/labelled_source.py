"""What sources have in common: labels in an array, what `repr` says, and which ids there are."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.sources.protocol import Labels, as_label_rows, class_of
from augpipe.sources.subset import check_id, check_ids
from augpipe.validation.plural import count


class LabelledSource(ABC):
    """A source whose labels are held in an array; every method raises IndexError for an id outside of it."""

    classes: Sequence[str]
    """Label -> class name."""
    _labels: npt.NDArray[Any] | None
    """(N,) integers, -1 where there is none; (N, k) int64 or float32 where each label is k numbers; None where there
    are not labels."""
    _where: str = ""
    """What the samples are read from, for `repr`."""
    notes: Sequence[str] = ()
    """Phrases for the first line of the log about the source, next to its counts; see `tell_source`."""
    left_out: Sequence[str] = ()
    """What lies there and is not among the samples, such as "3 files of .heic": one phrase each; that line warns."""

    cautions: Sequence[str] = ()
    """What of its labels may be taken wrong: one phrase each; that line warns."""

    cautions_of_whole: Sequence[str] = ()
    """What is to be known where all samples are taken, and not some of them: one phrase each; that line warns."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def label_width(self) -> int:
        """How many numbers each label is; 0 where it is a class."""
        return 0 if self._labels is None or self._labels.ndim == 1 else self._labels.shape[1]

    @property
    def num_unlabelled(self) -> int:
        """How many samples have the label -1."""
        if self._labels is None:
            return len(self)
        return 0 if self.label_width else int(np.count_nonzero(self._labels == -1))

    def label(self, sample_id: int) -> int | Labels:
        """The class, or -1 where there is none; (k,) numbers where labels are such."""
        check_id(sample_id, len(self))
        if self.label_width:
            assert self._labels is not None
            numbers: Labels = self._labels[sample_id].copy()
            return numbers
        return -1 if self._labels is None else int(self._labels[sample_id])

    def labels_of(self, sample_ids: npt.NDArray[np.int64]) -> Labels:
        """(B,) int64: the classes of (B,) samples, -1 where there is none; (B, k) numbers where labels are such."""
        check_ids(sample_ids, len(self))
        if type(self).label is not LabelledSource.label and len(sample_ids):
            labels = np.array([self.label(sample_id) for sample_id in sample_ids.tolist()])
            if labels.ndim == 2:
                return as_label_rows(labels)
            if labels.dtype.kind not in "iub":
                whole: Any = self  # the source that this is a part of
                labels = np.array([class_of(whole, sample_id) for sample_id in sample_ids.tolist()])
            return labels.astype(np.int64)
        if self._labels is None:
            return np.full(len(sample_ids), -1, np.int64)
        found = self._labels[sample_ids]
        return as_label_rows(found) if self.label_width else found.astype(np.int64)

    def labels(self) -> Labels:
        """All labels, (N,) int64 or (N, k); a copy."""
        if self._labels is None:
            return np.full(len(self), -1, np.int64)
        return as_label_rows(self._labels) if self.label_width else self._labels.astype(np.int64)

    def __repr__(self) -> str:
        width = self.label_width
        labels = f"labels of {count(width, 'number')}" if width else count(len(self.classes), "class")
        held = f"{count(len(self), 'photograph')}, {labels}"
        return f"{type(self).__name__}({f'{self._where!r}: ' if self._where else ''}{held})"


def find_sample(sample_id: int, ends: Sequence[int]) -> tuple[int, int]:
    """The file that a sample lies in, and its place there, by how many samples there are up to each file's end.

    Raises:
        IndexError: no such sample.
    """
    check_id(sample_id, ends[-1])
    file = bisect_right(ends, sample_id)
    return file, sample_id - (ends[file - 1] if file else 0)
