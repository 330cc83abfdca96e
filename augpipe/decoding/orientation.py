"""The orientation that EXIF or XMP tells: reading it, and turning pixels by it."""

import re
import struct

import numpy as np
import numpy.typing as npt

ORIENTATION_TAG = 0x0112
_PREFIX = b"Exif\0\0"
_IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_INTEGER_FORMATS = {3: "H", 4: "L", 8: "h", 9: "l"}  # TIFF 6.0, section 2: SHORT, LONG, SSHORT, SLONG


def read_orientation(exif: bytes, xmp: bytes = b"") -> int:
    """The orientation 1..8 that an EXIF block tells, else the one in an XMP packet; 1 where neither does.

    Pillow's own reader warns of damaged blocks, and a warning cannot be silenced for one thread alone, so the one
    tag that matters is read here, and found where `PIL.ImageOps.exif_transpose` finds it. Sources: EXIF 2.32, section
    4.6.4; XMP, part 2, section 3.3.

    Args:
        exif: with or without its "Exif" prefix; empty or damaged where there is none.
        xmp: the XML.
    """
    found = _in_exif(exif.removeprefix(_PREFIX).removeprefix(_PREFIX))
    if found is None:
        match = _IN_XMP.search(xmp)
        found = int(match[1]) if match else 1
    return found if 1 <= found <= 8 else 1


def _in_exif(block: bytes) -> int | None:
    """The number that stands there; None where there is none, or the block is damaged before it."""
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return None
    try:
        (start,) = struct.unpack_from(order + "L", block, 4)
        (num_entries,) = struct.unpack_from(order + "H", block, start)
        for at in range(start + 2, start + 2 + 12 * num_entries, 12):
            tag, kind, count = struct.unpack_from(order + "HHL", block, at)
            if tag == ORIENTATION_TAG:
                return orientation_value(order, kind, count, block[at + 8 : at + 12])
    except struct.error:  # the block ends early: a damaged note about an image does not damage the image
        return None
    return None


def orientation_value(order: str, kind: int, count: int, value: bytes) -> int:
    """The number of a TIFF entry, by its type, its number of values and the bytes of its value; 0 where it is odd.

    Raises:
        struct.error: there are too few bytes.
    """
    if kind not in _INTEGER_FORMATS or count != 1:
        return 0
    (found,) = struct.unpack_from(order + _INTEGER_FORMATS[kind], value)
    return int(found)


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
