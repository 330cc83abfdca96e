"""What a file is and how large, by its content, without decoding a pixel."""

import numpy as np

from augpipe.decoding.header import Format, Header, check_size
from augpipe.decoding.jpeg import decoder_if_compiled, libjpeg_turbo_takes, read_frame
from augpipe.decoding.orientation import read_orientation, swaps_sides
from augpipe.decoding.pillow import has_more_than_8_bits, open_pillow

_BEGINNINGS: tuple[tuple[bytes, Format], ...] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
)
_SHOWN_BYTES = 16
_MOST_BRANDS_BYTES = 64
_AVIF_BRANDS = (b"avif", b"avis")
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


def probe(data: bytes | memoryview, *, max_pixels: int) -> Header:
    """Read the header of an image file; safe to call from many threads.

    Args:
        data: the whole file; what it is shows in its content, its name is never asked for.
        max_pixels: an image of more pixels (height times width) is refused; `MAX_PIXELS` is a sound choice.

    Raises:
        ValueError: the reason, without the file's name: empty, not an image, truncated, damaged, too many pixels.
    """
    view = memoryview(data).cast("B")
    kind = format_of(view)
    is_progressive = loses_bits = False
    decoder = decoder_if_compiled() if kind == "JPEG" else None
    plain = decoder.size(np.frombuffer(view, np.uint8)) if decoder is not None else None
    if plain is not None:  # nearly every one: the rest below says the same of them, in a tenth of the rate
        check_size(*plain, max_pixels)
        stored, is_jpeg, orientation = plain, True, 1
    elif kind != "JPEG":
        image, orientation = open_pillow(bytes(view), kind, max_pixels)
        stored, is_jpeg, loses_bits = (image.height, image.width), False, has_more_than_8_bits(image, view)
    else:
        frame = read_frame(view)
        stored, is_progressive = (frame.height, frame.width), frame.is_progressive
        check_size(*stored, max_pixels)
        orientation = read_orientation(frame.exif, frame.xmp)
        is_jpeg = libjpeg_turbo_takes(view, frame)
        if not is_jpeg:
            open_pillow(bytes(view), kind, max_pixels)
    height, width = reversed(stored) if swaps_sides(orientation) else stored
    return Header(
        height=height,
        width=width,
        orientation=orientation,
        format=kind,
        is_jpeg=is_jpeg,
        loses_bits=loses_bits,
        is_progressive=is_progressive,
    )


def format_of(data: bytes | memoryview) -> Format:
    """What an image file is, by how it begins.

    Raises:
        ValueError: it is none; the reason, without the file's name.
    """
    if len(data) == 0:
        raise ValueError("the file is empty (0 bytes)")
    start = bytes(data[:_SHOWN_BYTES])
    for beginning, kind in _BEGINNINGS:
        if start.startswith(beginning):
            return kind
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "WebP"
    if start[4:8] == b"ftyp" and (other := _kind_of_brand(bytes(data[8:_MOST_BRANDS_BYTES]))):
        raise ValueError(f"a photograph in {other}, whatever its name says, which is not read; convert it to JPEG")
    looks = ", which looks like text" if _is_text(start) else ""
    raise ValueError(f"not a picture: it begins with {start!r}{looks}; JPEG, PNG, WebP, GIF, BMP and TIFF are read")


def _kind_of_brand(brands: bytes) -> str | None:
    """What a file of ISO's container is, by the brands that it begins with (ISO/IEC 23008-12, annex B; AV1 in HEIF)."""
    if any(brand in brands for brand in _AVIF_BRANDS):
        return "AVIF"
    return "HEIC" if any(brand in brands for brand in _HEIC_BRANDS) else None


def _is_text(start: bytes) -> bool:
    text = start.decode("utf-8", errors="ignore")  # the cut may split a letter
    return len(text) * 4 >= len(start) and all(letter.isprintable() or letter.isspace() for letter in text)
