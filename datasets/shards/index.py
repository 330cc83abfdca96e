"""The index of a shard: where each image lies in the tar file, its size and label, its key, and its row index."""

import os
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from augpipe.datasets.files.descriptors import open_regular
from augpipe.datasets.files.mapped import map_file, will_need
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.shards.ustar import MAX_KEY_BYTES, check_key
from augpipe.decoding.header import Format
from augpipe.sources.protocol import Labels
from augpipe.validation.plural import count

MAGIC = b"AUGPIDX\0"
VERSION = 2
HEADER = struct.Struct("<8sIIQQQQ32sII4x")
"""Magic, version, bytes a record, records, bytes of keys and labels of several numbers, bytes of row indexes, bytes of
the shard, its SHA-256, CRC-32 of records, keys and labels, CRC-32 of the row indexes, zeros; a CRC-32 of these 92
bytes follows."""
HEADER_BYTES = HEADER.size + 4
RECORD = struct.Struct("<QIiIIIIII")
RECORD_DTYPE = np.dtype(
    [
        ("offset", "<u8"),
        ("length", "<u4"),
        ("label", "<i4"),
        ("height", "<u4"),
        ("width", "<u4"),
        ("key_end", "<u4"),
        ("crc", "<u4"),
        ("format", "<u4"),
        ("row_end", "<u4"),
    ]
)
assert RECORD.size == RECORD_DTYPE.itemsize == 40
MAX_ROW_BYTES = 2**32 - 1
"""The most that a shard's row indexes may take together, where it is some 200 GB long: images after that have none."""

EXTENSIONS: dict[Format, str] = {"JPEG": "jpg", "PNG": "png", "WebP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif"}
"""In the order of their codes, from 0; a new one comes last."""
_CODES = {name: code for code, name in enumerate(EXTENSIONS)}
_EXTENSIONS = tuple(EXTENSIONS.values())


class Record(NamedTuple):
    """What the index says of one sample."""

    offset: int
    """Where the image's first byte lies in the tar file; its tar header takes the 512 bytes before."""
    length: int
    """Bytes of the image."""
    label: int
    """The class, or -1."""
    height: int
    """Rows in pixels, upright."""
    width: int
    """Columns in pixels, upright."""
    key_end: int
    """Where the key ends among the keys; it begins where the one before ends."""
    crc: int
    """CRC-32 of all that the sample takes in the tar file: from this header to the next sample's, or the end marks."""
    format: int
    """The image's kind, as `format_code` counts them."""
    row_end: int
    """Where its row index ends among the row indexes; it begins where the one before ends."""


class _Header(NamedTuple):
    """What stands before the records."""

    num_samples: int
    key_bytes: int
    row_bytes: int
    shard_bytes: int
    sha256: bytes
    crc: int
    row_crc: int

    @property
    def head_bytes(self) -> int:
        """Bytes of header, records and keys."""
        return HEADER_BYTES + self.num_samples * RECORD.size + self.key_bytes


class ShardIndex:
    """A memory-mapped index; opening it reads its header alone. Read-only and safe from any number of threads.

    The header and the file's length are checked at once. A record is checked when it is used, by whoever uses it: any
    number in it may lie.
    """

    def __init__(self, path: str, header: _Header, content: memoryview):
        self.path = path
        self.num_samples = header.num_samples
        self.shard_bytes = header.shard_bytes
        """How long the tar file is."""
        self.shard_sha256 = header.sha256.hex()
        """The tar file's sum, in hexadecimal digits."""
        self._header = header
        self._content = content

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, is_head: bool = False) -> "ShardIndex":
        """Map the index of a shard.

        Args:
            path: the file.
            is_head: the file holds the index's head alone, and `row_index` may not be asked.

        Raises:
            ValueError: it is not an index, of another version, truncated, or its header is damaged.
            OSError: it cannot be read.
        """
        name = os.fspath(path)
        descriptor = open_regular(name)
        try:
            size = os.fstat(descriptor).st_size
            if hasattr(os, "posix_fadvise"):  # the header's page alone, without what the system would read ahead
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            header = _parse_header(name, os.pread(descriptor, HEADER_BYTES, 0))
            expected = header.head_bytes + (0 if is_head else header.row_bytes)
            if size != expected:
                raise _damaged(name, f"has {size} bytes, and its header speaks of {expected}")
            content = map_file(descriptor, size)
        finally:
            os.close(descriptor)
        return cls(name, header, content)

    @property
    def num_bytes(self) -> int:
        """How long the index file is, with all row indexes."""
        return self._header.head_bytes + self._header.row_bytes

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, position: int) -> Record:
        """The record at `position` in the shard, 0..len-1; its numbers are not checked."""
        assert 0 <= position < self.num_samples
        return Record._make(RECORD.unpack_from(self._content, HEADER_BYTES + position * RECORD.size))

    def key(self, position: int) -> str:
        """The sample's key.

        Raises:
            ValueError: the index is damaged there; the reason alone.
        """
        start = self[position - 1].key_end if position else 0
        end = self[position].key_end
        keys = self._content[HEADER_BYTES + self.num_samples * RECORD.size : self._header.head_bytes]
        if not 0 < end - start <= MAX_KEY_BYTES or end > len(keys):
            raise ValueError("the index is damaged: it points to no key")
        key = str(keys[start:end], "ascii", "replace")
        try:
            check_key(key)
        except ValueError as error:
            raise ValueError(f"the index is damaged: {key!r} is not a key") from error
        return key

    def name(self, position: int) -> str:
        """The image's name in the tar file: its key and the extension of its format.

        Raises:
            ValueError: the index is damaged there; the reason alone.
        """
        return f"{self.key(position)}.{extension_of(self[position].format)}"

    def label_rows(self, width: int, dtype: str) -> Labels:
        """(N, `width`) labels of several numbers each, which the manifest speaks of: a read-only view of the file.

        Raises:
            ValueError: the index does not hold as many; the reason alone.
        """
        keys_end = self[self.num_samples - 1].key_end if self.num_samples else 0
        held = self._content[HEADER_BYTES + self.num_samples * RECORD.size + keys_end : self._header.head_bytes]
        kind = np.dtype(dtype).newbyteorder("<")
        if len(held) != self.num_samples * width * kind.itemsize:
            raise ValueError(
                f"the index is damaged: its labels take {len(held)} bytes, and {self.num_samples} of "
                f"{count(width, 'number')} of {dtype} take {self.num_samples * width * kind.itemsize}"
            )
        return np.frombuffer(held, kind).reshape(self.num_samples, width)

    def row_index_at(self, position: int) -> tuple[int, int]:
        """(start, stop) of a sample's row index in the index file; the same number twice where it has none.

        Raises:
            ValueError: the index is damaged there; the reason alone.
        """
        start = self[position - 1].row_end if position else 0
        stop = self[position].row_end
        if not start <= stop <= self._header.row_bytes:
            raise ValueError("the index is damaged: it points to no row index")
        return self._header.head_bytes + start, self._header.head_bytes + stop

    def row_index(self, position: int) -> memoryview:
        """A sample's row index, a view of the file; empty where it has none.

        Raises:
            ValueError: the index is damaged there; the reason alone.
        """
        start, stop = self.row_index_at(position)
        return self._content[start:stop]

    @property
    def records(self) -> npt.NDArray[np.void]:
        """All records, (N,) of `RECORD_DTYPE`: a read-only view of the file, which is read into memory from now on."""
        records = self._content[HEADER_BYTES : HEADER_BYTES + self.num_samples * RECORD.size]
        will_need(records)
        return np.frombuffer(records, RECORD_DTYPE)

    def is_whole(self) -> bool:
        """Whether records and keys are as they were written, by their CRC-32; reads all of them."""
        body = self._content[HEADER_BYTES : self._header.head_bytes]
        will_need(body)
        return zlib.crc32(body) == self._header.crc

    def has_sound_row_indexes(self) -> bool:
        """Whether the row indexes are as they were written."""
        rows = self._content[self._header.head_bytes :]
        will_need(rows)
        return zlib.crc32(rows) == self._header.row_crc


def format_code(name: Format) -> int:
    """What an index says for a format."""
    return _CODES[name]


def extension_of(code: int) -> str:
    """The extension of a format's files, without the dot.

    Raises:
        ValueError: no format has this code; the reason alone.
    """
    if code >= len(_EXTENSIONS):
        raise ValueError(f"the index is damaged: format {code} is none of the {len(_EXTENSIONS)} that there are")
    return _EXTENSIONS[code]


def index_path(shard: str) -> str:
    """The index that belongs to a tar file: `000003.idx` next to `000003.tar`."""
    return os.path.splitext(shard)[0] + ".idx"


class PackedIndex(NamedTuple):
    """The bytes of an index file."""

    head: bytes
    """Header, records and keys: what has to be read before a sample is."""
    rows: bytes
    """The row indexes, which follow."""


def pack_index(
    records: Sequence[bytes],
    keys: Sequence[str],
    row_indexes: bytes,
    shard_bytes: int,
    shard_sha256: bytes,
    label_rows: bytes = b"",
) -> PackedIndex:
    """The bytes of an index file.

    Args:
        records: packed with `RECORD`.
        keys: one a record.
        row_indexes: of all images, one after the other.
        shard_bytes: how long the tar file is.
        shard_sha256: 32 bytes, of the tar file.
        label_rows: labels of several numbers, one record's after the other's.
    """
    assert len(records) == len(keys)
    joined = "".join(keys).encode("ascii") + label_rows
    body = b"".join(records) + joined
    sums = zlib.crc32(body), zlib.crc32(row_indexes)
    numbers = len(records), len(joined), len(row_indexes), shard_bytes
    header = HEADER.pack(MAGIC, VERSION, RECORD.size, *numbers, shard_sha256, *sums)
    return PackedIndex(header + struct.pack("<I", zlib.crc32(header)) + body, row_indexes)


def _parse_header(path: str, head: bytes) -> _Header:
    if not head.startswith(MAGIC):
        raise ValueError(f"{printable(path)} is not a shard's index: it begins with {head[:8]!r}, not with {MAGIC!r}.")
    if len(head) < HEADER_BYTES:
        raise _damaged(path, f"ends within its header, after {len(head)} bytes")
    _, version, record_bytes, *rest = HEADER.unpack_from(head)
    if version != VERSION:
        raise ValueError(
            f"{printable(path)} has version {version}, and this augpipe reads version {VERSION}. "
            "Make the data set again: augpipe prepare SOURCE OUT."
        )
    if zlib.crc32(head[: HEADER.size]) != int.from_bytes(head[HEADER.size :], "little"):
        raise _damaged(path, "has a header whose checksum is wrong")
    if record_bytes != RECORD.size:
        raise _damaged(path, f"claims records of {record_bytes} bytes, and version {VERSION} has {RECORD.size}")
    return _Header(*rest)


def _damaged(path: str, what: str) -> ValueError:
    return ValueError(f"{printable(path)} {what}: it is damaged. augpipe verify lists all that is.")
