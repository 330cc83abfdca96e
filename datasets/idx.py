"""MNIST's IDX files: gray images as they lie in the file, and their labels."""

import gzip
import math
import os
import re
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.arrays import ArraySource
from augpipe.datasets.names import printable
from augpipe.datasets.sample_ids import check_sample_id

Pixels = npt.NDArray[np.uint8]

_DTYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
_MAX_DIMENSIONS = 4
_MAX_DEFLATE_RATIO = 1032
"""No stream of deflate expands more than this (zlib's documentation): a header that claims more lies."""
_CHUNK_BYTES = 1 << 20
_IMAGES = re.compile(r"images(.?)idx[34]")


class IdxSource(ArraySource):
    """The images of an IDX file, uint8 of shape (H, W, 1), or (H, W, C) where the file has four dimensions.

    A plain file is memory-mapped and costs no memory of its own; a `.gz` file is expanded in memory. A copy made by
    pickle opens the files anew.

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
        pixels = read_idx(self._path)
        if pixels.ndim < 3:
            raise ValueError(
                f"{printable(self._path)} holds an array of shape {pixels.shape}, and images are (N, H, W). "
                "Labels alone? Give the file of images; the labels beside it are found."
            )
        numbers = None if self._labels_path is None else read_idx(self._labels_path)
        if numbers is not None and numbers.shape != pixels.shape[:1]:
            raise ValueError(
                f"{printable(str(self._labels_path))} holds labels of shape {numbers.shape}, and "
                f"{printable(self._path)} has {len(pixels)} images. Give the two files that belong together."
            )
        # gray images of 3 columns are not to be taken for colours
        stack = pixels[..., None] if pixels.ndim == 3 else pixels
        try:
            super().__init__(stack, numbers, classes)
        except ValueError as error:
            raise ValueError(f"{printable(self._path)}: {error}") from error

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


def read_idx(path: str | os.PathLike[str]) -> Pixels:
    """The array in an IDX file of uint8, read-only; memory-mapped if plain, in memory if compressed by gzip.

    Raises:
        ValueError: no such file, no IDX file, another type than uint8, truncated, or too long.
        OSError: it cannot be read.
    """
    text = os.fspath(path)
    if not os.path.isfile(text):
        raise ValueError(f"{printable(text)} is no regular file; an IDX file is wanted. Check the spelling.")
    size = os.stat(text).st_size
    with open(text, "rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            if not is_compressed:
                shape, begin = _header(file)
                num_bytes = math.prod(shape)
                if size != begin + num_bytes:
                    raise ValueError(
                        f"{size} bytes are there, and its header speaks of {begin} + {num_bytes} for {shape}"
                    )
                return _mapped(text, shape, begin)
            with gzip.GzipFile(fileobj=file) as expanded:
                shape, begin = _header(expanded)
                num_bytes = math.prod(shape)
                if begin + num_bytes > max(size, 1) * _MAX_DEFLATE_RATIO:
                    raise ValueError(f"{size} bytes cannot expand to the {num_bytes} that its header speaks of")
                data = _expanded(expanded, num_bytes)
        except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{printable(text)} is no IDX file of uint8, or damaged: {error}.") from error
    data.flags.writeable = False
    return data.reshape(shape)


def _header(file: Any) -> tuple[tuple[int, ...], int]:
    """The shape, and how many bytes the header has."""
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _DTYPES or not 1 <= start[3] <= _MAX_DIMENSIONS:
        raise ValueError(f"it begins with {start!r}, and not with 0, 0, a type and 1 to {_MAX_DIMENSIONS} dimensions")
    if start[2] != 0x08:
        raise ValueError(f"it holds {_DTYPES[start[2]]}")
    dimensions = file.read(4 * start[3])
    if len(dimensions) < 4 * start[3]:
        raise ValueError("it ends within its header")
    return struct.unpack(f">{start[3]}I", dimensions), 4 + len(dimensions)


def _mapped(path: str, shape: tuple[int, ...], begin: int) -> Pixels:
    if math.prod(shape) == 0:  # nothing can be mapped
        return np.zeros(shape, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, mode="r", offset=begin, shape=shape))


def _expanded(file: gzip.GzipFile, num_bytes: int) -> Pixels:
    """What is left of a stream, which must be `num_bytes`; memory grows with what comes, not with what is claimed."""
    data = bytearray()
    while len(data) <= num_bytes and (chunk := file.read(min(_CHUNK_BYTES, num_bytes + 1 - len(data)))):
        data += chunk
    if len(data) != num_bytes:
        found = f"only {len(data)} are there" if len(data) < num_bytes else "more are there"
        raise ValueError(f"its header speaks of {num_bytes} bytes, and {found}")
    return np.frombuffer(data, np.uint8)
