"""MNIST's IDX files: gray images as they lie in the file, and their labels."""

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.idx_array import IdxArray
from augpipe.datasets.labels import checked_numbers
from augpipe.datasets.names import printable
from augpipe.datasets.sample_ids import check_sample_id

Pixels = npt.NDArray[np.uint8]

_IMAGES = re.compile(r"images(.?)idx[34]")


class IdxSource:
    """The images of an IDX file, uint8 of shape (H, W), or (H, W, C) where the file has four dimensions.

    Of a plain file only the labels are held in memory; a `.gz` file is expanded there. Any number of threads may read;
    a copy made by pickle opens the files anew.

    Args:
        images: the file of images, as distributed (`train-images-idx3-ubyte`) or `.gz`.
        labels: the file of labels; if left out it is looked for beside, under the same name with "labels" for
            "images", and all labels are -1 where it is not there.
        classes: label -> class name; "0", "1", ... if left out.

    Raises:
        ValueError: no such file, no IDX file, another type than uint8, truncated or too long, or labels that do not
            fit.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        images: str | os.PathLike[str],
        labels: str | os.PathLike[str] | None = None,
        *,
        classes: Sequence[str] = (),
    ) -> None:
        self._path = os.fspath(images)
        self._labels_path = labels_beside(self._path) if labels is None else os.fspath(labels)
        self._array = IdxArray(self._path)
        shape = self._array.shape
        if len(shape) < 3:
            raise ValueError(
                f"{printable(self._path)} holds an array of shape {shape}, and images are (N, H, W). "
                "Labels alone? Give the file of images; the labels beside it are found."
            )
        if 0 in shape or (len(shape) == 4 and shape[3] not in (1, 3, 4)):
            raise ValueError(
                f"{printable(self._path)} holds an array of shape {shape}, and images are (N, H, W) or (N, H, W, 1 | 3 "
                "| 4), each at least 1. Write it anew."
            )
        numbers = np.full(shape[0], -1) if self._labels_path is None else IdxArray(self._labels_path).whole()
        if numbers.shape != shape[:1]:
            raise ValueError(
                f"{printable(str(self._labels_path))} holds labels of shape {numbers.shape}, and "
                f"{printable(self._path)} has {shape[0]} images. Give the two files that belong together."
            )
        self._labels, self.classes = checked_numbers(numbers.astype(np.int64), tuple(classes) or None, self.name)

    def __len__(self) -> int:
        return self._array.shape[0]

    def read(self, sample_id: int) -> Pixels:
        """The image, uint8 of shape (H, W) or (H, W, C); do not write to it.

        Raises:
            IndexError: no such sample.
            ValueError: the file was cut short meanwhile.
            OSError: it cannot be read.
        """
        check_sample_id(sample_id, len(self))
        return self._array[sample_id]

    def label(self, sample_id: int) -> int:
        """The class, or -1 where there is none.

        Raises:
            IndexError: no such sample.
        """
        check_sample_id(sample_id, len(self))
        return int(self._labels[sample_id])

    def labels(self) -> npt.NDArray[np.int64]:
        """All labels, int64 of shape (N,); a copy."""
        return self._labels.astype(np.int64)

    def name(self, sample_id: int) -> str:
        """The file's path and the image's place in it, from 0.

        Raises:
            IndexError: no such sample.
        """
        check_sample_id(sample_id, len(self))
        return f"{printable(self._path)}, image {sample_id}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._path, self._labels_path, tuple(self.classes))

    def __repr__(self) -> str:
        return f"IdxSource({printable(self._path)!r}: {len(self)} images, {len(self.classes)} classes)"


def _reopen(images: str, labels: str | None, classes: tuple[str, ...]) -> IdxSource:
    return IdxSource(images, labels, classes=classes)


def labels_beside(path: str) -> str | None:
    """The file of labels that belongs to a file of images by its name, or None where there is none."""
    folder, name = os.path.split(path)
    if not _IMAGES.search(name):
        return None
    wanted = os.path.join(folder, _IMAGES.sub(r"labels\1idx1", name))
    others = wanted.removesuffix(".gz") if wanted.endswith(".gz") else f"{wanted}.gz"
    return next((found for found in (wanted, others) if os.path.isfile(found)), None)
