"""The EXIF orientation: reading it, and turning pixels by it."""

import struct

import numpy as np
import numpy.typing as npt

_ORIENTATION_TAG = 0x0112
_INTEGER_FORMATS = {3: "H", 4: "L", 8: "h", 9: "l"}  # TIFF 6.0, section 2: SHORT, LONG, SSHORT, SLONG


def read_orientation(exif: bytes) -> int:
    """The orientation 1..8 in an EXIF block, with or without its "Exif" prefix; 1 where it is absent or damaged.

    Pillow's own reader warns of damaged blocks, and a warning cannot be silenced for one thread alone, so the one
    tag that matters is read here. Source: EXIF 2.32, section 4.6.4.
    """
    block = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "L", block, 4)
        (num_entries,) = struct.unpack_from(order + "H", block, start)
        for at in range(start + 2, start + 2 + 12 * num_entries, 12):
            tag, kind, count = struct.unpack_from(order + "HHL", block, at)
            if tag == _ORIENTATION_TAG:
                if kind not in _INTEGER_FORMATS or count != 1:
                    return 1
                (value,) = struct.unpack_from(order + _INTEGER_FORMATS[kind], block, at + 8)
                return checked(value)
    except struct.error:  # the block ends early: a damaged note about an image does not damage the image
        return 1
    return 1


def checked(value: int) -> int:
    """`value` where it is an orientation, else 1 (upright)."""
    return value if 1 <= value <= 8 else 1


def swaps_sides(orientation: int) -> bool:
    """Whether the upright image's height is the stored image's width."""
    return orientation >= 5


def upright(stored: npt.NDArray[np.uint8], orientation: int) -> npt.NDArray[np.uint8]:
    """A view of `stored` (H, W, 4) with the orientation undone, as PIL.ImageOps.exif_transpose does."""
    match orientation:
        case 2:
            return stored[:, ::-1]
        case 3:
            return stored[::-1, ::-1]
        case 4:
            return stored[::-1]
        case 5:
            return stored.transpose(1, 0, 2)
        case 6:
            return stored[::-1].transpose(1, 0, 2)
        case 7:
            return stored[::-1, ::-1].transpose(1, 0, 2)
        case 8:
            return stored[:, ::-1].transpose(1, 0, 2)
        case _:
            return stored
