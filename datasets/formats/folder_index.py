"""The index of a folder: sizes and row indexes of its JPEGs, in one file in it that `augpipe index` writes.

Entries come first, one an image in the order of the folder's samples, each with a CRC-32 of its own; then a table of
where they lie, and a trailer. So a file that was cut short is one that can be resumed.
"""

import os
import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from augpipe.datasets.files.descriptors import open_regular
from augpipe.datasets.files.mapped import map_file
from augpipe.datasets.metadata.names import NameTable, printable

INDEX_NAME = ".augpipe-index"
ENTRY = struct.Struct("<IIIII")
"""CRC-32 of what follows it, bytes of the name, height, width, bytes of the row index; then the name and the index."""
TABLE_DTYPE = np.dtype([("offset", "<u8"), ("height", "<u4"), ("width", "<u4")])
TRAILER = struct.Struct("<8sIQ32sI")
"""Magic, version, images, SHA-256 of their names, CRC-32 of the table; a CRC-32 of these bytes follows."""
TRAILER_BYTES = TRAILER.size + 4
MAGIC, VERSION = b"AUGPFOL\0", 1


class Entry(NamedTuple):
    """What the index says of one image."""

    name: bytes
    """Its path below the folder."""
    height: int
    """In pixels, as it shows; 0 where there is no row index."""
    width: int
    row_index: bytes | memoryview
    """Empty where there is none."""

    def to_bytes(self) -> bytes:
        """As it stands in the file."""
        rest = struct.pack("<IIII", len(self.name), self.height, self.width, len(self.row_index))
        rest += self.name + bytes(self.row_index)
        return struct.pack("<I", zlib.crc32(rest)) + rest


class FolderIndex:
    """The index of a folder, memory-mapped and read-only; safe from several threads.

    Args:
        view: the file.
        table: (n,) TABLE_DTYPE.
        names_digest: SHA-256 of the names of its images.
    """

    def __init__(self, view: memoryview, table: npt.NDArray[np.void], names_digest: bytes) -> None:
        self._view = view
        self._table = table
        self._names_digest = names_digest
        self._entry_of: npt.NDArray[np.int64] | None = None

    @classmethod
    def open(cls, folder: str) -> "FolderIndex | None":
        """The index that lies in a folder; None, with a warning, where it cannot be used, and where there is none."""
        path = os.path.join(folder, INDEX_NAME)
        try:
            return cls._of(map_whole(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as problem:
            warnings.warn(
                f"{printable(path)} is not used: {problem}. `augpipe index {printable(folder)}` makes it again.",
                stacklevel=3,
            )
            return None

    @classmethod
    def _of(cls, view: memoryview) -> "FolderIndex":
        if len(view) < TRAILER_BYTES:
            raise ValueError("it is cut short")
        trailer = view[-TRAILER_BYTES:]
        magic, version, num, names_digest, table_crc = TRAILER.unpack_from(trailer)
        if magic != MAGIC or struct.unpack_from("<I", trailer, TRAILER.size)[0] != zlib.crc32(trailer[: TRAILER.size]):
            raise ValueError("it is cut short, or damaged")
        if version != VERSION:
            raise ValueError(f"it is of version {version}, and this augpipe reads {VERSION}")
        table_at = len(view) - TRAILER_BYTES - num * TABLE_DTYPE.itemsize
        if table_at < 0 or zlib.crc32(view[table_at:-TRAILER_BYTES]) != table_crc:
            raise ValueError("it is damaged")
        return cls(view, np.frombuffer(view, TABLE_DTYPE, num, table_at), names_digest)

    def match(self, names: NameTable) -> None:
        """Find the entries of a folder's images, by their names where there are other ones than when it was made."""
        if names.digest() == self._names_digest:
            return
        found = {entry.name: position for position, entry in enumerate(self.entries())}
        entries = [found.get(os.fsencode(names[sample_id]), -1) for sample_id in range(len(names))]
        self._entry_of = np.array(entries, np.int64)

    def entries(self) -> Iterator[Entry]:
        """All entries; an empty one for each that is damaged."""
        for offset in self._table["offset"].tolist():
            yield next(read_entries(self._view[offset:]), Entry(b"", 0, 0, b""))

    def row_index(self, sample_id: int) -> bytes | memoryview:
        """The row index of a sample, which has a checksum of its own; empty where there is none."""
        position = self._position(sample_id)
        if position < 0:
            return b""
        found = next(read_entries(self._view[int(self._table["offset"][position]) :]), None)
        return found.row_index if found is not None else b""

    def size(self, sample_id: int) -> tuple[int, int]:
        """Height and width of a sample; 0 where they are not known."""
        position = self._position(sample_id)
        if position < 0:
            return 0, 0
        row = self._table[position]
        return int(row["height"]), int(row["width"])

    def _position(self, sample_id: int) -> int:
        """Where a sample stands in the table; -1 where it is not there."""
        return sample_id if self._entry_of is None else int(self._entry_of[sample_id])


def read_entries(view: memoryview) -> Iterator[Entry]:
    """The entries at the beginning of a file, up to the first that is damaged or none."""
    at = 0
    while at + ENTRY.size <= len(view):
        crc, name_bytes, height, width, index_bytes = ENTRY.unpack_from(view, at)
        middle = at + ENTRY.size + name_bytes
        end = middle + index_bytes
        if end > len(view) or zlib.crc32(view[at + 4 : end]) != crc:
            return
        yield Entry(bytes(view[at + ENTRY.size : middle]), height, width, view[middle:end])
        at = end


def map_whole(path: str) -> memoryview:
    """A file in memory, read-only.

    Raises:
        ValueError: it is not a regular file.
        OSError: it cannot be read.
    """
    descriptor = open_regular(path)
    try:
        num_bytes = os.fstat(descriptor).st_size
        return map_file(descriptor, num_bytes) if num_bytes else memoryview(b"")
    finally:
        os.close(descriptor)


def end_of_index(sizes: Sequence[tuple[int, int]], lengths: Sequence[int], digest: bytes) -> bytes:
    """The table and the trailer behind the entries of a folder's images, whose lengths in bytes these are."""
    table = np.zeros(len(lengths), TABLE_DTYPE)
    ends = np.cumsum(np.asarray(lengths, np.uint64))
    table["offset"] = np.concatenate([np.zeros(1, np.uint64), ends[:-1]]) if len(lengths) else 0
    if len(sizes):
        table["height"], table["width"] = np.asarray(sizes, np.uint32).T
    body = table.tobytes()
    trailer = TRAILER.pack(MAGIC, VERSION, len(lengths), digest, zlib.crc32(body))
    return body + trailer + struct.pack("<I", zlib.crc32(trailer))
