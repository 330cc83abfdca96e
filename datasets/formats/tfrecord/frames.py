"""TFRecord's frames: a length, its checksum, the record, its checksum.

Written from TensorFlow's description of the format: https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO

HEAD_BYTES, TAIL_BYTES = 12, 4
_LENGTH = struct.Struct("<QI")
_MASK = 0xA282EAD8

Checksum = Callable[[bytes], int]


def checksum() -> Checksum:
    """CRC-32C as TFRecord masks it.

    Raises:
        ImportError: google-crc32c is not installed.
    """
    try:
        from google_crc32c import value
    except ImportError as error:
        raise ImportError('TFRecord files are checked with google-crc32c: pip install "augpipe[tfrecord]"') from error
    return partial(_masked, value)


def _masked(crc32c: Checksum, data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def read_frames(file: BinaryIO, masked: Checksum) -> Iterator[tuple[int, int]]:
    """(where a record begins, its bytes) for each record; of the file, the lengths alone are read.

    Args:
        file: buffered and seekable. It may be read and moved between two records.
        masked: of `checksum`.

    Raises:
        ValueError: a length is damaged, or the file ends within a record; the reason, without the file's name.
        OSError: it cannot be read.
    """
    end = file.seek(0, os.SEEK_END)
    position = 0
    while position < end:
        file.seek(position)
        head = file.read(HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            raise ValueError(f"it ends within the head of a record, at byte {end}: it is truncated. Copy it again")
        length, crc = _LENGTH.unpack(head)
        if crc != masked(head[:8]):
            what = "it is not a TFRecord file" if position == 0 else "it is damaged. Copy it again"
            raise ValueError(f"there is no length with its checksum at byte {position}: {what}")
        first = position + HEAD_BYTES
        if length > end - first - TAIL_BYTES:
            raise ValueError(
                f"it ends at byte {end}, within its record of {length} bytes at {first}: it is truncated. Copy it again"
            )
        yield first, length
        position = first + length + TAIL_BYTES


def is_whole(record: bytes, tail: bytes, masked: Checksum) -> bool:
    """Whether a record is as it was written, by the checksum that follows it."""
    return len(tail) == TAIL_BYTES and int.from_bytes(tail, "little") == masked(record)
