"""GIF: the size of the canvas with its first frame, read before Pillow does, which warns of large ones."""

import struct

_EXTENSION, _IMAGE, _END = 0x21, 0x2C, 0x3B


def canvas_size(data: bytes) -> tuple[int, int]:
    """(height, width) in pixels; a first frame that sticks out of the screen enlarges it (GIF89a, sections 18 to 25).

    Raises:
        ValueError: the reason, without the file's name.
    """
    try:
        width, height, flags = struct.unpack_from("<HHB", data, 6)
        position = 13 + _color_table_bytes(flags)
        while data[position] != _END:
            if data[position] == _IMAGE:
                left, top, frame_width, frame_height = struct.unpack_from("<HHHH", data, position + 1)
                return max(height, top + frame_height), max(width, left + frame_width)
            if data[position] == _EXTENSION:
                position += 2
                while data[position]:  # blocks, each after its length, up to an empty one
                    position += 1 + data[position]
            position += 1
    except (IndexError, struct.error) as error:
        raise ValueError(f"truncated GIF: its {len(data)} bytes end before the first frame") from error
    raise ValueError("damaged GIF: it has no frame")


def _color_table_bytes(flags: int) -> int:
    return 3 * (2 << (flags & 7)) if flags & 0x80 else 0
