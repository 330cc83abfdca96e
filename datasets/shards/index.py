"""The index of a shard: where each image lies in the tar file, its size and label, in 32 bytes and its key."""

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

MAGIC = b"AUGPIDX\0"
VERSION = 1
HEADER = struct.Struct("<8sIIQQQ32sI")
"""Magic, version, bytes a record, records, bytes of keys, bytes of the shard, its SHA-256, CRC-32 of records and keys;
a CRC-32 of these 76 bytes follows."""
HEADER_BYTES = HEADER.size + 4
RECORD = struct.Struct("<QIiIIII")
RECORD_DTYPE = np.dtype(
    [
        ("offset", "<u8"),
        ("length", "<u4"),
        ("label", "<i4"),
        ("height", "<u4"),
        ("width", "<u4"),
        ("key_end", "<u4"),
        ("crc", "<u4"),
    ]
)
assert RECORD.size == RECORD_DTYPE.itemsize == 32


class Record(NamedTuple):
    """What the index says of one sample."""

    offset: int
    """Where the image's first byte lies in the tar file; its tar header takes the 512 bytes before."""
    length: int
    """Bytes of the image."""
    label: int
    """The class, or -1."""
    height: int
    """Rows in pixels that the image shows, without padding."""
    width: int
    """Columns in pixels that the image shows, without padding."""
    key_end: int
    """Where the key ends among the keys; it begins where the one before ends."""
    crc: int
    """CRC-32 of all that the sample takes in the tar file: from this header to the next sample's, or the end marks."""


class ShardIndex:
    """A memory-mapped index; opening it reads its header alone. Read-only and safe from any number of threads.

    The header and the file's length are checked at once. A record is checked when it is used, by whoever uses it: any
    number in it may lie.
    """

    def __init__(self, path: str, num_samples: int, shard_bytes: int, shard_sha256: str, crc: int, body: memoryview):
        self.path = path
        self.num_samples = num_samples
        self.shard_bytes = shard_bytes
        """How long the tar file is."""
        self.shard_sha256 = shard_sha256
        """The tar file's sum, in hexadecimal digits."""
        self._crc = crc
        self._body = body
        self._keys_at = num_samples * RECORD.size

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "ShardIndex":
        """Map the index of a shard.

        Raises:
            ValueError: it is no index, of another version, truncated, or its header is damaged.
            OSError: it cannot be read.
        """
        name = os.fspath(path)
        descriptor = open_regular(name)
        try:
            size = os.fstat(descriptor).st_size
            if hasattr(os, "posix_fadvise"):  # the header's page alone, without what the system would read ahead
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            head = os.pread(descriptor, HEADER_BYTES, 0)
            num_samples, key_bytes, shard_bytes, sha256, crc = _parse_header(name, head)
            expected = HEADER_BYTES + num_samples * RECORD.size + key_bytes
            if size != expected:
                raise _damaged(name, f"has {size} bytes, and its header speaks of {expected}")
            body = map_file(descriptor, size)[HEADER_BYTES:]
        finally:
            os.close(descriptor)
        return cls(name, num_samples, shard_bytes, sha256.hex(), crc, body)

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, position: int) -> Record:
        """The record at `position` in the shard, 0..len-1; its numbers are not checked."""
        assert 0 <= position < self.num_samples
        return Record._make(RECORD.unpack_from(self._body, position * RECORD.size))

    def key(self, position: int) -> str:
        """The sample's key.

        Raises:
            ValueError: the index is damaged there; the reason alone.
        """
        start = self[position - 1].key_end if position else 0
        end = self[position].key_end
        keys = self._body[self._keys_at :]
        if not 0 < end - start <= MAX_KEY_BYTES or end > len(keys):
            raise ValueError("the index is damaged: it points to no key")
        key = str(keys[start:end], "ascii", "replace")
        try:
            check_key(key)
        except ValueError as error:
            raise ValueError(f"the index is damaged: {key!r} is no key") from error
        return key

    @property
    def records(self) -> npt.NDArray[np.void]:
        """All records, (N,) of `RECORD_DTYPE`: a read-only view of the file, which is read into memory from now on."""
        body = self._body[: self._keys_at]
        will_need(body)
        return np.frombuffer(body, RECORD_DTYPE)

    def is_whole(self) -> bool:
        """Whether records and keys are as they were written, by their CRC-32; reads all of them."""
        will_need(self._body)
        return zlib.crc32(self._body) == self._crc


def index_path(shard: str) -> str:
    """The index that belongs to a tar file: `000003.idx` beside `000003.tar`."""
    return os.path.splitext(shard)[0] + ".idx"


def pack_index(records: Sequence[bytes], keys: Sequence[str], shard_bytes: int, shard_sha256: bytes) -> bytes:
    """The bytes of an index file.

    Args:
        records: packed with `RECORD`.
        keys: one a record.
        shard_bytes: how long the tar file is.
        shard_sha256: 32 bytes, of the tar file.
    """
    assert len(records) == len(keys)
    joined = "".join(keys).encode("ascii")
    body = b"".join(records) + joined
    head = HEADER.pack(
        MAGIC, VERSION, RECORD.size, len(records), len(joined), shard_bytes, shard_sha256, zlib.crc32(body)
    )
    return head + struct.pack("<I", zlib.crc32(head)) + body


def _parse_header(path: str, head: bytes) -> tuple[int, int, int, bytes, int]:
    if not head.startswith(MAGIC):
        raise ValueError(f"{printable(path)} is no index of a shard: it begins with {head[:8]!r}, not with {MAGIC!r}.")
    if len(head) < HEADER_BYTES:
        raise _damaged(path, f"ends within its header, after {len(head)} bytes")
    _, version, record_bytes, num_samples, key_bytes, shard_bytes, sha256, crc = HEADER.unpack_from(head)
    if version != VERSION:
        raise ValueError(
            f"{printable(path)} has version {version}, and this augpipe reads version {VERSION}. "
            "Use the augpipe that wrote it, or prepare the data set anew."
        )
    if zlib.crc32(head[: HEADER.size]) != int.from_bytes(head[HEADER.size :], "little"):
        raise _damaged(path, "has a header whose checksum is wrong")
    if record_bytes != RECORD.size:
        raise _damaged(path, f"claims records of {record_bytes} bytes, and version {VERSION} has {RECORD.size}")
    return num_samples, key_bytes, shard_bytes, sha256, crc


def _damaged(path: str, what: str) -> ValueError:
    return ValueError(f"{printable(path)} {what}: it is damaged. augpipe verify lists all that is.")
