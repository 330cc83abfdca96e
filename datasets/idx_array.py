"""Arrays of uint8 in IDX files, the format of MNIST."""

import gzip
import math
import os
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.names import printable
from augpipe.datasets.shards.descriptors import FileSet

Bytes = npt.NDArray[np.uint8]

_DTYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
_MAX_DIMENSIONS = 4
_MAX_DEFLATE_RATIO = 1032
"""No stream of deflate expands more than this (zlib's documentation): a header that claims more lies."""
_CHUNK_BYTES = 1 << 20


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
            raise ValueError(f"{printable(path)} is no regular file; an IDX file is wanted. Check the spelling.")
        size = os.stat(path).st_size
        self.shape: tuple[int, ...]
        self._expanded: Bytes | None = None
        self._files = FileSet([path], 1)
        with open(path, "rb") as file:
            is_compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            try:
                if is_compressed:
                    with gzip.GzipFile(fileobj=file) as expanded:
                        self.shape, self._begin = _header(expanded)
                        self._expanded = _expanded(expanded, math.prod(self.shape), size).reshape(self.shape)
                else:
                    self.shape, self._begin = _header(file)
                    if size != self._begin + math.prod(self.shape):
                        raise ValueError(
                            f"{size} bytes are there, and its header speaks of {self._begin} + "
                            f"{math.prod(self.shape)} for {self.shape}"
                        )
            except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"{printable(path)} is no IDX file of uint8, or damaged: {error}.") from error

    def __getitem__(self, index: int) -> Bytes:
        """One item along the first axis, read-only."""
        if self._expanded is not None:
            item: Bytes = self._expanded[index]
            return item
        return self._read(index, 1).reshape(self.shape[1:])

    def whole(self) -> Bytes:
        """All of it, read-only."""
        return self._read(0, self.shape[0]).reshape(self.shape) if self._expanded is None else self._expanded

    def _read(self, first: int, count: int) -> Bytes:
        item_bytes = math.prod(self.shape[1:])
        data = self._files.read(0, count * item_bytes, self._begin + first * item_bytes)
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


def _expanded(file: gzip.GzipFile, num_bytes: int, packed_bytes: int) -> Bytes:
    """What is left of a stream, which must be `num_bytes`; memory grows with what comes, not with what is claimed."""
    if num_bytes > packed_bytes * _MAX_DEFLATE_RATIO:
        raise ValueError(f"{packed_bytes} bytes cannot expand to the {num_bytes} that its header speaks of")
    data = bytearray()
    while len(data) <= num_bytes and (chunk := file.read(min(_CHUNK_BYTES, num_bytes + 1 - len(data)))):
        data += chunk
    if len(data) != num_bytes:
        found = f"only {len(data)} are there" if len(data) < num_bytes else "more are there"
        raise ValueError(f"its header speaks of {num_bytes} bytes, and {found}")
    return np.frombuffer(bytes(data), np.uint8)
