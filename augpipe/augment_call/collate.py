"""What `Augment.collate` makes of a data set's items: images, labels and sample ids."""

import operator
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.augment_call.inputs import Images
from augpipe.sources.protocol import Ints, Labels, as_label_rows
from augpipe.validation.plural import count

_WANTED = "Return (image, label) or (image, label, sample id) from the data set's __getitem__"


def taken_apart(items: Sequence[Any]) -> tuple[list[Any], list[Any], list[int] | None]:
    """Images, labels and, where the items have them, sample ids.

    Raises:
        ValueError: an item has other parts, or only some have an id.
    """
    ids = []
    for position, item in enumerate(items):
        where = f"item {position} of the batch"
        if not isinstance(item, tuple | list):
            raise ValueError(f"{where} is a {type(item).__name__}. {_WANTED}.")
        if len(item) not in (2, 3):
            raise ValueError(f"{where} is {count(len(item), 'part')}. {_WANTED}.")
        if len(item) != len(items[0]):
            raise ValueError(f"{where} has {len(item)} parts, and item 0 {len(items[0])}. {_WANTED}.")
        if len(item) == 3:
            try:
                ids.append(operator.index(item[2]))
            except TypeError:
                raise ValueError(f"{where} has the sample id {item[2]!r:.100}. Give an int in 0..2^32 - 1.") from None
    return [item[0] for item in items], [item[1] for item in items], ids or None


def as_labels(labels: Sequence[Any]) -> Labels:
    """(B,) int64 of ints, (B, k) int64 or float32 of arrays of k numbers.

    Raises:
        ValueError: they are something else, or not alike.
    """
    rows: list[npt.NDArray[Any]] = []
    for position, label in enumerate(labels):
        row = np.asarray(label)
        is_class = row.ndim == 0 and row.dtype.kind in "iu"
        if not is_class and not (row.ndim == 1 and row.size and row.dtype.kind in "iufb"):
            raise ValueError(
                f"item {position} of the batch has the label {label!r:.100}. Give a class as an int, or an array of "
                "numbers, as np.array([label], np.float32)."
            )
        if rows and row.shape != rows[0].shape:
            raise ValueError(
                f"item {position} of the batch has a label of shape {row.shape}, and item 0 {rows[0].shape}. Give all "
                "the same shape."
            )
        rows.append(row)
    stacked = np.stack(rows) if rows else np.empty(0, np.int64)
    return as_label_rows(stacked) if stacked.ndim == 2 else stacked.astype(np.int64)


def content_ids(images: Images) -> Ints:
    """(B,) ids that depend on nothing but each image: the CRC-32 of its file, or of its pixels."""
    return np.array([zlib.crc32(_bytes(image.content)) for image in images.items], np.int64)


def _bytes(content: bytes | npt.NDArray[np.uint8]) -> bytes | memoryview:
    return np.ascontiguousarray(content).data if isinstance(content, np.ndarray) else content
