"""PNG: the still image of a file for Pillow, and how its notes say that it is turned."""

import struct
import zlib
from typing import NamedTuple

from augpipe.decoding.orientation import read_orientation

_SIGNATURE_BYTES = 8
_ANIMATION = (b"acTL", b"fcTL", b"fdAT")
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_EXIF_PROFILE, _XMP = b"Raw profile type exif", b"XML:com.adobe.xmp"
_MAX_TEXT_BYTES = 1 << 20
"""The most bytes that a packed text may hold, as in Pillow: a few bytes can claim gigabytes."""


class PlainPng(NamedTuple):
    """A PNG of one frame."""

    data: bytes
    orientation: int


def plain_png(data: bytes) -> PlainPng:
    """The still image of an animated PNG, `data` itself where it is still; and its orientation, 1..8.

    Readers that know no animation show the same image: the first frame, or a stand-in for the whole. Pillow warns
    of damaged animation chunks, and a warning cannot be silenced for one thread alone. Notes may stand behind the
    pixels, where Pillow sees them once it has decoded them. Source: PNG specification, sections 5.3 and 11.3.
    """
    kept = []
    kept_from = 0
    stop = _SIGNATURE_BYTES
    exif = profile = xmp = b""
    while stop + 8 <= len(data):
        start = stop
        length, kind = struct.unpack_from(">L4s", data, start)
        stop = start + 12 + length  # length, kind, content, checksum
        if kind in _ANIMATION:
            kept.append(data[kept_from:start])
            kept_from = stop
        elif kind == b"eXIf":
            exif = data[start + 8 : stop - 4]
        elif kind in _TEXTS:
            key, _, text = data[start + 8 : stop - 4].partition(b"\0")
            if key == _EXIF_PROFILE:
                profile = _unpacked(kind, text)
            elif key == _XMP:
                xmp = _unpacked(kind, text)
        elif kind == b"IEND":
            break
    plain = b"".join([*kept, data[kept_from:]]) if kept else data
    return PlainPng(plain, read_orientation(exif or _of_profile(profile), xmp))


def check_pixel_sums(data: bytes | memoryview) -> None:
    """Refuse a PNG whose packed pixels do not fit their CRC-32, which Pillow does not compare.

    Pillow shows a part of such files, with wrong pixels. A chunk that is cut off is left to it: it says so. Source: PNG
    specification, sections 5.3 and 5.5.

    Raises:
        ValueError: the reason, without the file's name.
    """
    view = memoryview(data)
    start = _SIGNATURE_BYTES
    while start + 8 <= len(view):
        length, kind = struct.unpack_from(">L4s", view, start)
        end = start + 8 + length
        if end + 4 > len(view) or kind == b"IEND":
            return
        if kind == b"IDAT" and zlib.crc32(view[start + 4 : end]) != struct.unpack_from(">L", view, end)[0]:
            raise ValueError("damaged PNG: its pixels do not fit their checksum")
        start = end + 4


def _unpacked(kind: bytes, text: bytes) -> bytes:
    """What stands behind a text's key; empty where it is damaged, which does not damage the image."""
    is_packed = kind == b"zTXt"
    if kind == b"zTXt":
        text = text[1:]
    elif kind == b"iTXt":
        is_packed = text[:1] == b"\1"
        _, _, text = text[2:].partition(b"\0")  # the language
        _, _, text = text.partition(b"\0")  # the key, translated
    if not is_packed:
        return text
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(text, _MAX_TEXT_BYTES)
    except zlib.error:
        return b""
    return b"" if unpacking.unconsumed_tail else text


def _of_profile(text: bytes) -> bytes:
    """EXIF that ImageMagick wrote as hexadecimal digits, behind a name and a length on lines of their own."""
    try:
        return bytes.fromhex("".join(text.decode("latin-1").split("\n")[3:]))
    except ValueError:
        return b""
