"""Row indexes: where the rows of a JPEG begin in its coded bytes, as bytes that may be kept and stored.

A region is decoded from the point before it instead of from the first byte. An index says which file it is of, by its
length and CRC-32, and has a CRC-32 of its own: a damaged, old or foreign one counts as none.
"""

import struct
import zlib
from typing import NamedTuple

import numpy as np

from augpipe.decoding.jpeg import own_decoder
from augpipe.gpu_ops.jpeg.workspace import NO_POINTS, Points

MAGIC = b"ARX1"
HEADER = struct.Struct("<4sIIIHHHH")
"""Magic, CRC-32 of what follows it, bytes of the file, its CRC-32, row step, column step, rows, points; the points'
positions, 4 bytes each, and predictors, 6 bytes each, follow."""
POINT_BYTES = 4 + 3 * 2
MAX_POINTS = 2**16 - 1
"""An index counts them in 16 bits: those of 67 million pixels, and of larger files every second one, or fewer."""


class FileSum(NamedTuple):
    """What an index knows its file by."""

    num_bytes: int
    crc: int

    @classmethod
    def of(cls, file: bytes | memoryview) -> "FileSum":
        """Sum up a file; the GIL is released."""
        return cls(len(file), zlib.crc32(file))


def pack(points: Points, file: FileSum) -> bytes:
    """The index that holds these points of a file; its length is `HEADER.size` and POINT_BYTES a point."""
    body = b"".join([points.positions.astype("<u4").tobytes(), points.predictors.astype("<i2").tobytes()])
    rest = HEADER.pack(MAGIC, 0, *file, *points[:3], len(points.positions))[8:] + body
    return MAGIC + struct.pack("<I", zlib.crc32(rest)) + rest


def used_part(room: memoryview) -> memoryview:
    """What an index takes of the memory that it lies at the beginning of."""
    *_, num = HEADER.unpack_from(room)
    return room[: HEADER.size + num * POINT_BYTES]


def unpack(index: bytes | memoryview, file: FileSum) -> Points:
    """The points that an index holds of this file; `NO_POINTS` where it is damaged or another file's."""
    if len(index) < HEADER.size:
        return NO_POINTS
    magic, crc, num_bytes, file_crc, row_step, column_step, num_rows, num = HEADER.unpack_from(index)
    end = HEADER.size + num * POINT_BYTES
    if magic != MAGIC or (num_bytes, file_crc) != file or len(index) < end or crc != zlib.crc32(index[8:end]):
        return NO_POINTS
    positions = np.frombuffer(index, "<u4", num, HEADER.size)
    predictors = np.frombuffer(index, "<i2", 3 * num, HEADER.size + 4 * num).reshape(-1, 3)
    return Points(row_step, column_step, num_rows, positions, predictors)


def row_index_of(file: bytes | memoryview, height: int, width: int) -> bytes:
    """The index of a whole JPEG, the same for the same bytes; the GIL is released.

    Args:
        file: the file.
        height: in pixels, as stored.
        width: as above.

    Returns:
        About ten bytes for every 16 MCUs: 2 kB of 500x375 pixels. Empty where our own decoder does not take the file,
        which has no regions then, where it has restart markers, and where this CPU leaves JPEGs to libjpeg-turbo.
    """
    decoder, nothing = own_decoder(), np.empty(0, np.uint8)
    if decoder is None:
        return b""
    codes = np.frombuffer(file, np.uint8)
    is_taken = decoder.decode(codes, height, width, (0, 0, 0, 0), nothing, max_points=MAX_POINTS)
    points = decoder.points() if is_taken else NO_POINTS
    return pack(points, FileSum.of(file)) if points.num_rows else b""
