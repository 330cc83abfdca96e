"""MNIST's IDX files, arrays of uint8: gray images as they lie in the file, and their labels."""

import gzip
import math
import os
import re
import struct
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from augpipe.datasets.files.descriptors import FileSet
from augpipe.datasets.formats.container import digest_of_files
from augpipe.datasets.metadata.labelled_source import LabelledSource
from augpipe.datasets.metadata.labels import checked_numbers
from augpipe.datasets.metadata.names import printable
from augpipe.sources.protocol import Pixels
from augpipe.sources.subset import check_id
from augpipe.validation.plural import count

_IMAGES = re.compile(r"images(.?)idx[34]")
_DTYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
_MAX_DIMENSIONS = 4
_CHUNK_BYTES = 1 << 20
_NONE = 255
"""What -1, no label, becomes in uint8."""
_LABEL_FILES = ("label", "target", "idx1")
"""One of these is in the name of a file that looks like labels."""


class IdxSource(LabelledSource):
    """The images of an IDX file, uint8 of shape (H, W), or (H, W, C) where the file has four dimensions.

    Of a plain file only the labels are held in memory; a `.gz` file is expanded there. Any number of threads may read;
    a copy made by pickle opens the files again.

    Args:
        images: the file of images, as distributed (`train-images-idx3-ubyte`) or `.gz`.
        labels: the file of labels; if left out it is looked for next to it, under the same name with "labels"
            for "images"; False for none, all -1. Where it is not there, all labels are -1 too, unless another file
            next to it holds as many labels. 255 is -1 where it is none of the classes and other labels are below 254.
        classes: label -> class name; "0", "1", ... if left out.

    Raises:
        ValueError: no such file, no IDX file, another type than uint8, truncated or too long, labels that do not fit,
            or labels next to it of another name.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        images: str | os.PathLike[str],
        labels: str | os.PathLike[str] | Literal[False] | None = None,
        *,
        classes: Sequence[str] = (),
    ) -> None:
        self._path = os.fspath(images)
        self._where = printable(self._path)
        self._labels_path = labels_beside(self._path) if labels is None else None
        if labels is not None and labels is not False:
            self._labels_path = os.fspath(labels)
        self._array = IdxArray(self._path)
        shape = self._array.shape
        if len(shape) < 3:
            raise ValueError(
                f"{printable(self._path)} holds an array of shape {shape}, and images are (N, H, W). "
                "Labels alone? Give the file of images; the labels next to it are found."
            )
        if 0 in shape or (len(shape) == 4 and shape[3] not in (1, 3, 4)):
            raise ValueError(
                f"{printable(self._path)} holds an array of shape {shape}, and images are (N, H, W) or (N, H, W, 1 | 3 "
                "| 4), each at least 1. Write it again."
            )
        if labels is None and self._labels_path is None:
            _refuse_other_labels(self._path, shape[0])
        self._watched = [self._array.files]
        numbers = np.full(shape[0], -1)
        if self._labels_path is not None:
            array = IdxArray(self._labels_path)
            self._watched.append(array.files)
            numbers = array.whole()
        if numbers.shape != shape[:1]:
            raise ValueError(
                f"{printable(str(self._labels_path))} holds labels of shape {numbers.shape}, and "
                f"{printable(self._path)} has {count(shape[0], 'image')}. Give the two files that belong together."
            )
        numbers = numbers.astype(np.int64)
        is_none = numbers == _NONE
        if is_none.any() and (len(classes) <= _NONE if classes else numbers[~is_none].max(initial=-1) < _NONE - 1):
            numbers[is_none] = -1
            self.notes = (f"label {_NONE} is read as -1, as int8 writes it",)
        self._labels, self.classes = checked_numbers(numbers, tuple(classes) or None, self.name)

    def __len__(self) -> int:
        return self._array.shape[0]

    @property
    def stack(self) -> Pixels | None:
        """All images, read-only, where the file was expanded in memory."""
        return self._array.expanded

    def read(self, sample_id: int) -> Pixels:
        """The image, uint8 of shape (H, W) or (H, W, C); do not write to it.

        Raises:
            ValueError: the file was cut short meanwhile.
            OSError: it cannot be read.
        """
        check_id(sample_id, len(self))
        return self._array[sample_id]

    def check_unchanged(self) -> None:
        """Look whether the files are those that were opened, by size and time of writing.

        Raises:
            SourceChangedError: one is not; names it.
        """
        for files in self._watched:
            files.check_unchanged()

    def content_digest(self) -> str:
        """A digest of the files' names and lengths, and of the images' shape."""
        sizes = [files.num_bytes(0) for files in self._watched]
        return digest_of_files([files.path(0) for files in self._watched], sizes, repr(self._array.shape).encode())

    def name(self, sample_id: int) -> str:
        """The file's path and the image's place in it, from 0."""
        check_id(sample_id, len(self))
        return f"{printable(self._path)}, image {sample_id}"

    def __reduce__(self) -> tuple[Any, ...]:
        paths = [files.path(0) for files in self._watched]
        shown = {"_path": self._path, "_labels_path": self._labels_path, "_where": self._where}
        labels = paths[1] if len(paths) > 1 else False
        return partial(type(self), classes=tuple(self.classes)), (paths[0], labels), shown


def labels_beside(path: str) -> str | None:
    """The file of labels that belongs to a file of images by its name, or None where there is none."""
    folder, name = os.path.split(path)
    if not _IMAGES.search(name):
        return None
    wanted = os.path.join(folder, _IMAGES.sub(r"labels\1idx1", name))
    others = wanted.removesuffix(".gz") if wanted.endswith(".gz") else f"{wanted}.gz"
    return next((found for found in (wanted, others) if os.path.isfile(found)), None)


def _refuse_other_labels(path: str, num_images: int) -> None:
    """Refuse to pass over a file next to it that looks like the labels and belongs to no other images."""
    folder = os.path.dirname(path)
    with os.scandir(folder or os.curdir) as entries:
        names = {entry.name for entry in entries if entry.is_file()}
    of_others = {labels_beside(os.path.join(folder, name)) for name in names}
    for name in sorted(names):
        beside = os.path.join(folder, name)
        if beside in of_others or beside == path or not any(part in name.lower() for part in _LABEL_FILES):
            continue
        num_labels = _first_dimension(beside)
        if num_labels == num_images:
            raise ValueError(
                f"{printable(path)} has no labels by its name, and {printable(name)} next to it holds {num_labels}. "
                f"Pass labels={printable(beside)!r}, or labels=False for none, to IdxSource."
            )


def _first_dimension(path: str) -> int | None:
    """How many items an IDX file of any type holds; None where it is none."""
    try:
        with open(path, "rb") as file:
            is_compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            start = gzip.GzipFile(fileobj=file).read(8) if is_compressed else file.read(8)
    except (OSError, EOFError, zlib.error):
        return None
    if len(start) < 8 or start[:2] != b"\0\0" or start[2] not in _DTYPES or not 1 <= start[3] <= 2:
        return None
    return int.from_bytes(start[4:], "big")


class IdxArray:
    """An array in a file; a plain file is read where it is asked for, one that gzip wrote is expanded in memory.

    Read with `pread`, not through a map, which would end the process if the file were cut short meanwhile. Any number
    of threads may read.

    Raises:
        ValueError: no such file, no IDX file, another type than uint8, truncated, or too long.
        OSError: it cannot be read.
    """

    def __init__(self, path: str) -> None:
        if not os.path.isfile(path):
            raise ValueError(f"{printable(path)} is not a regular file; an IDX file is wanted. Check the spelling.")
        self.files = FileSet([path], 1)
        """The file, by the number 0."""
        size = self.files.num_bytes(0)
        self.shape: tuple[int, ...]
        self.expanded: Pixels | None = None
        """All of it, read-only; None of a plain file."""
        with open(path, "rb") as file:
            is_compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            try:
                if is_compressed:
                    with gzip.GzipFile(fileobj=file) as expanded:
                        self.shape, self._begin = _header(expanded)
                        self.expanded = _expanded(expanded, math.prod(self.shape)).reshape(self.shape)
                else:
                    self.shape, self._begin = _header(file)
                    if size != self._begin + math.prod(self.shape):
                        raise ValueError(
                            f"{size} bytes are there, and its header speaks of {self._begin} + "
                            f"{math.prod(self.shape)} for {self.shape}"
                        )
            except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"{printable(path)} is not an IDX file of uint8, or damaged: {error}.") from error

    def __getitem__(self, index: int) -> Pixels:
        """One item along the first axis, read-only."""
        if self.expanded is not None:
            item: Pixels = self.expanded[index]
            return item
        return self._read(index, 1).reshape(self.shape[1:])

    def whole(self) -> Pixels:
        """All of it, read-only."""
        return self._read(0, self.shape[0]).reshape(self.shape) if self.expanded is None else self.expanded

    def _read(self, first: int, count: int) -> Pixels:
        item_bytes = math.prod(self.shape[1:])
        data = self.files.read(0, count * item_bytes, self._begin + first * item_bytes)
        if len(data) != count * item_bytes:
            raise ValueError(
                f"the file ends after {len(data)} of {count * item_bytes} bytes: it was cut short meanwhile"
            )
        return np.frombuffer(data, np.uint8)


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


def _expanded(file: gzip.GzipFile, num_bytes: int) -> Pixels:
    """What is left of a stream, which must be `num_bytes`; memory grows with what comes, not with what is claimed."""
    data = bytearray()
    while len(data) <= num_bytes and (chunk := file.read(min(_CHUNK_BYTES, num_bytes + 1 - len(data)))):
        data += chunk
    if len(data) != num_bytes:
        found = f"only {len(data)} are there" if len(data) < num_bytes else "more are there"
        raise ValueError(f"its header speaks of {num_bytes} bytes, and {found}")
    return np.frombuffer(bytes(data), np.uint8)
