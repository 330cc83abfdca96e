"""The table of restart segments that a tile-addressable JPEG carries in APP9 markers: its format, written and read.

Each marker's payload, all numbers big-endian: `IDENTIFIER`, then uint8 version, uint16 part, uint16 number of parts,
then a part of the body. The body: uint16 true height, uint16 true width, uint8 bytes a length (2 or 4), and of each
restart segment in turn its length in bytes, the marker that closes it (RST0 to RST7, at last EOI) included. The first
segment starts behind the scan's header, so notes added to the file or taken from it do not matter.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MARKER = 0xE9
"""APP9, which no common standard uses."""
IDENTIFIER = b"augpipe tiles\0"
VERSION = 1
_PART, _BODY = struct.Struct(">BHH"), struct.Struct(">HHB")
ALONE = IDENTIFIER + _PART.pack(VERSION, 0, 1)
"""What a marker that holds a whole table has before its body."""
_MOST_BYTES = 65_533 - len(IDENTIFIER) - _PART.size
"""The largest body in one marker, whose uint16 length counts itself."""


class TileTable(NamedTuple):
    """What the markers say; nothing of it has been compared with the file."""

    height: int
    """True height in pixels: rows below are padding."""
    width: int
    """True width in pixels: columns to the right of it are padding."""
    lengths: npt.NDArray[np.int64]
    """(num_segments,) bytes of each segment, with its closing marker."""


def pack_table(table: TileTable) -> bytes:
    """The marker segments, from the first 0xff on, as many as it takes.

    Raises:
        ValueError: a side is not within 1..65,535 pixels.
    """
    if not (1 <= table.height <= 65_535 and 1 <= table.width <= 65_535):
        raise ValueError(f"{table.width}x{table.height} pixels: a JPEG has 1 to 65535 along each side")
    item_bytes = 2 if table.lengths.max() < 2**16 else 4
    body = _BODY.pack(table.height, table.width, item_bytes) + table.lengths.astype(f">u{item_bytes}").tobytes()
    parts = [body[at : at + _MOST_BYTES] for at in range(0, len(body), _MOST_BYTES)]
    return b"".join(
        struct.pack(">BBH", 0xFF, MARKER, 2 + len(IDENTIFIER) + _PART.size + len(part))
        + IDENTIFIER
        + _PART.pack(VERSION, number, len(parts))
        + part
        for number, part in enumerate(parts)
    )


def unpack_table(payloads: Sequence[bytes]) -> TileTable:
    """The table from the payloads of its markers, each from `IDENTIFIER` on, in the file's order.

    Raises:
        ValueError: the reason: another version, parts that are missing, out of order or too many, a wrong length.
    """
    parts = []
    for number, payload in enumerate(payloads):
        if len(payload) < len(IDENTIFIER) + _PART.size:
            raise ValueError(f"damaged tile table: a marker of {len(payload)} bytes is too short")
        version, part, num_parts = _PART.unpack_from(payload, len(IDENTIFIER))
        if version != VERSION:
            raise ValueError(f"its tile table has version {version}, and {VERSION} is read; update augpipe")
        if (part, num_parts) != (number, len(payloads)):
            raise ValueError(
                f"damaged tile table: part {part} of {num_parts} stands where part {number} of {len(payloads)} belongs"
            )
        parts.append(payload[len(IDENTIFIER) + _PART.size :])
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(body) < _BODY.size:
        raise ValueError(f"damaged tile table: {len(body)} bytes are too short")
    height, width, item_bytes = _BODY.unpack_from(body)
    if item_bytes not in (2, 4) or (len(body) - _BODY.size) % item_bytes:
        raise ValueError(
            f"damaged tile table: {len(body) - _BODY.size} bytes are no lengths of {item_bytes} bytes each"
        )
    return TileTable(height, width, np.frombuffer(body, f">u{item_bytes}", offset=_BODY.size).astype(np.int64))
