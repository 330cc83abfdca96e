"""TIFF: a copy of the file with the first image's layout alone, so that Pillow reads no notes and warns of none."""

import struct
from typing import NamedTuple

from PIL import TiffTags

from augpipe.decoding.orientation import ORIENTATION_TAG, orientation_value, read_orientation

_XMP_TAG = 700
# What the pixels depend on (TIFF 6.0; 50674 is LERC's). All else is notes.
_LAYOUT = frozenset(
    [
        *(256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 292, 293, 317, 320, 322, 323, 324, 325, 338, 339, 347),
        *(512, 513, 514, 515, 517, 518, 519, 520, 521, 529, 530, 531, 532, 50674),
    ]
)
_SAMPLES, _MOST_CHANNELS = 277, 4
_PHOTOMETRIC = 262  # the one single-valued tag that Pillow takes several values of
_STRINGS = (1, 2, 7)  # BYTE, ASCII, UNDEFINED: many bytes are one value
_BYTES_OF_TYPE = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}


class PlainTiff(NamedTuple):
    """A TIFF of one image without notes."""

    data: bytes
    orientation: int


class _Dialect(NamedTuple):
    order: str
    offset: str
    """Format of an offset in the file, and of an entry's value."""
    first_at: int
    """Where the offset of the first directory stands."""
    num_entries: str
    head: str
    """Format of an entry's tag, type and number of values."""


def plain_tiff(data: bytes) -> PlainTiff:
    """Append a directory of the first image's layout tags to the file and point the header at it.

    Each entry is checked to lie in the file, so nothing is left for Pillow to warn about: a warning cannot be silenced
    for one thread alone, and as an error it would refuse images that are otherwise decoded.

    Raises:
        ValueError: the reason, without the file's name.
    """
    order = "<" if data[:2] == b"II" else ">"
    big = 43 in data[2:4]
    dialect = _Dialect(order, "Q", 8, "Q", "HHQ") if big else _Dialect(order, "L", 4, "H", "HHL")
    try:
        entries, orientation = _read_directory(data, dialect)
    except struct.error as error:
        raise ValueError(f"truncated TIFF: its {len(data)} bytes end before its directory") from error
    padding = b"\0" * (-len(data) % 8)
    parts = [
        data[: dialect.first_at],
        struct.pack(order + dialect.offset, len(data) + len(padding)),
        data[dialect.first_at + struct.calcsize("=" + dialect.offset) :],
        padding,
        struct.pack(order + dialect.num_entries, len(entries)),
        *entries,
        struct.pack(order + dialect.offset, 0),
    ]
    return PlainTiff(b"".join(parts), orientation)


def _read_directory(data: bytes, dialect: _Dialect) -> tuple[list[bytes], int]:
    order = dialect.order
    (start,) = struct.unpack_from(order + dialect.offset, data, dialect.first_at)
    (num_entries,) = struct.unpack_from(order + dialect.num_entries, data, _inside(start, data))
    start += struct.calcsize("=" + dialect.num_entries)
    head_bytes, value_bytes = struct.calcsize("=" + dialect.head), struct.calcsize("=" + dialect.offset)
    entry_bytes = head_bytes + value_bytes
    entries: dict[int, bytes] = {}
    orientation: int | None = None
    xmp = b""
    elsewhere_bytes = 0
    for at in range(start, start + num_entries * entry_bytes, entry_bytes):
        tag, kind, count = struct.unpack_from(order + dialect.head, data, at)
        (offset,) = struct.unpack_from(order + dialect.offset, data, at + head_bytes)
        if tag == ORIENTATION_TAG:
            orientation = orientation_value(order, kind, count, data[at + head_bytes : at + entry_bytes])
        elif tag == _XMP_TAG and kind in _STRINGS and count > value_bytes:
            xmp = data[offset : offset + count]
        elif tag == _SAMPLES:
            num_channels = orientation_value(order, kind, count, data[at + head_bytes : at + entry_bytes])
            if num_channels > _MOST_CHANNELS:
                raise ValueError(
                    f"its {num_channels} channels are more than four, which are not read; save it as gray, RGB, "
                    "RGBA or CMYK"
                )
        if tag not in _LAYOUT or tag in entries:
            continue
        if kind not in _BYTES_OF_TYPE:
            raise ValueError(f"damaged TIFF: tag {tag} has the unknown type {kind}")
        one_value = TiffTags.lookup(tag).length == 1 and tag != _PHOTOMETRIC and kind not in _STRINGS
        if count == 0 or (count > 1 and one_value):
            raise ValueError(f"damaged TIFF: tag {tag} has {count} values")
        content_bytes = count * _BYTES_OF_TYPE[kind]
        if content_bytes > value_bytes:
            elsewhere_bytes += content_bytes
            if offset + content_bytes > len(data) or elsewhere_bytes > len(data):
                raise ValueError(f"truncated TIFF: tag {tag} lies behind the end of its {len(data)} bytes")
        entries[tag] = data[at : at + entry_bytes]
    if orientation is None:
        orientation = read_orientation(b"", xmp)
    return list(entries.values()), orientation if 1 <= orientation <= 8 else 1


def _inside(offset: int, data: bytes) -> int:
    if offset >= len(data):
        raise ValueError(f"truncated TIFF: its directory lies behind the end of its {len(data)} bytes")
    return offset
