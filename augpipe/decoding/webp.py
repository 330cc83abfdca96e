"""WebP: the size of the canvas, read before the decoder sets memory aside for it."""

import struct


def canvas_size(data: bytes) -> tuple[int, int]:
    """(height, width) in pixels of the first chunk (RFC 9649, sections 2.5 to 2.7; RFC 6386, section 9.1).

    Raises:
        ValueError: the reason, without the file's name.
    """
    kind = data[12:16]
    try:
        if kind == b"VP8X":
            width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        elif kind == b"VP8L":
            (bits,) = struct.unpack_from("<L", data, 21)
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        elif kind == b"VP8 ":
            width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
        else:
            raise ValueError(f"damaged WebP: its first chunk is {kind!r}")
    except struct.error as error:
        raise ValueError(f"truncated WebP: {len(data)} bytes are less than its header") from error
    return height, width
