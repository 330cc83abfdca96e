"""Everything but plain JPEG, by Pillow: the header, and 8-bit RGBX pixels from any of its modes."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from augpipe.decoding.header import Format, check_size
from augpipe.decoding.jpeg import read_frame, without_notes
from augpipe.decoding.orientation import read_orientation
from augpipe.decoding.png import plain_png
from augpipe.decoding.tiff import plain_tiff

# What Pillow raises on damaged files. OSError, SyntaxError, TypeError, ValueError and the bomb's came up among 115,000
# corrupted files of all six formats; the others stand in its plugins' sources, some turned into one of these later.
# Warning is here for programs that turn warnings into errors. MemoryError is not: that is the machine's trouble.
PILLOW_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    SyntaxError,
    SystemError,
    TypeError,
    ValueError,
    Warning,
    Image.DecompressionBombError,
    struct.error,
    zlib.error,
)

# The plugins themselves, not PIL.Image.open: that one warns of large images, which warns for all threads or none,
# and asks every plugin that some other package has registered.
_PLUGINS: dict[Format, Callable[[io.BytesIO], ImageFile.ImageFile]] = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
}
_EIGHT_BIT_MODES = frozenset(["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"])
SIXTEEN_BIT_MODES = frozenset(["I;16", "I;16L", "I;16B", "I;16N"])
"""Of gray images of 16 bits, or 12."""
_REMEDY = "save it as 8-bit or unsigned 16-bit gray or RGB"
_TIFF_SAMPLE_FORMAT, _SIGNED = 339, 2
_TIFF_BITS, _TIFF_PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0
"""One channel of more than 8 bits: TIFF keeps 12-bit numbers as they are, and may count from white."""
PNG_BITS_AT = 24
"""Where a PNG says how many bits a channel has (specification, section 11.2.1)."""
_GIF_EXTENSION, _GIF_IMAGE, _GIF_END = 0x21, 0x2C, 0x3B


def open_pillow(data: bytes, kind: Format, max_pixels: int) -> tuple[ImageFile.ImageFile, int]:
    """Open without decoding; returns the image and its orientation 1..8, which is not applied.

    Raises:
        ValueError: the reason, without the file's name.
    """
    orientation = 1
    if kind == "TIFF":
        data, orientation = plain_tiff(data)
    elif kind == "PNG":
        data, orientation = plain_png(data)
    elif kind in ("WebP", "GIF"):  # Pillow sets memory aside for the one at once, and warns of the other
        canvas = webp_canvas_size(data) if kind == "WebP" else gif_canvas_size(data)
        check_size(*canvas, max_pixels)
        _check_pillow_limit(*canvas)
    elif kind == "JPEG":
        view = memoryview(data)
        frame = read_frame(view)
        data, orientation = without_notes(view, frame), read_orientation(frame.exif, frame.xmp)
    try:
        image = _PLUGINS[kind](io.BytesIO(data))
        if kind == "WebP":
            orientation = read_orientation(image.info.get("exif") or b"", image.info.get("xmp") or b"")
    except PILLOW_ERRORS as error:
        raise _reason(kind, error) from error
    check_size(image.height, image.width, max_pixels)
    _check_pillow_limit(image.height, image.width)
    return image, orientation


def has_more_than_8_bits(image: ImageFile.ImageFile, data: bytes | memoryview) -> bool:
    """Whether a channel of an open file holds more than the 8 bits that `decode_stored` keeps, where it takes it."""
    if image.mode not in _EIGHT_BIT_MODES | SIXTEEN_BIT_MODES:
        return False
    if image.format == "PNG":
        return data[PNG_BITS_AT] > 8
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return False
    return any(isinstance(bits, int) and bits > 8 for bits in image.tag_v2.get(_TIFF_BITS, ()))


def decode_stored(image: ImageFile.ImageFile) -> npt.NDArray[np.uint8]:
    """RGBA pixels (H, W, 4) uint8 of the first frame with every A 255, as stored, not yet turned; may be read-only.

    The 8-bit modes come out as `convert("RGB")` gives them: alpha and transparency are dropped, not blended. Of 16 bits
    the high byte is kept (Pillow's convert would clip a gray image to white); 12 bits as above.

    Raises:
        ValueError: the reason, without the file's name.
    """
    kind = image.format or "picture"
    if image.mode not in _EIGHT_BIT_MODES | SIXTEEN_BIT_MODES:
        raise ValueError(
            f"its mode {image.mode!r} (floating point, 32-bit or signed numbers, or CIELAB) has no fixed range from "
            f"black to white; {_REMEDY}"
        )
    if isinstance(image, TiffImagePlugin.TiffImageFile) and _SIGNED in image.tag_v2.get(_TIFF_SAMPLE_FORMAT, ()):
        raise ValueError(f"its numbers of 8 bits are signed, which Pillow does not heed; {_REMEDY}")
    try:
        image.load()
        image.info.pop("transparency", None)  # dropped anyway, and convert would warn of it
        if image.mode in SIXTEEN_BIT_MODES:
            gray = Image.fromarray(_high_byte(image))
            return np.asarray(gray.convert("RGBA"))
        return np.asarray(image.convert("RGB").convert("RGBA"))
    except PILLOW_ERRORS as error:
        raise _reason(kind, error) from error


def _high_byte(image: ImageFile.ImageFile) -> npt.NDArray[np.uint8]:
    levels = np.asarray(image)
    shift = 8
    white_is_zero = False
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        shift = 4 if image.tag_v2.get(_TIFF_BITS) == (12,) else 8
        white_is_zero = image.tag_v2.get(_TIFF_PHOTOMETRIC, _WHITE_IS_ZERO) == _WHITE_IS_ZERO
    high = (levels >> shift).astype(np.uint8)
    return ~high if white_is_zero else high


def _check_pillow_limit(height: int, width: int) -> None:
    """Refuse what Pillow itself would warn of or refuse halfway, whatever plugin it comes from."""
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and height * width > limit:
        raise ValueError(
            f"claims {width}x{height} = {height * width} pixels, more than Pillow's own "
            f"PIL.Image.MAX_IMAGE_PIXELS={limit}; raise that as well as max_pixels if you trust it"
        )


def _reason(kind: str, error: Exception) -> ValueError:
    text = str(error).strip() or type(error).__name__
    if text == "unknown pixel mode":
        return ValueError(f"a kind of TIFF that Pillow does not read (bits, numbers or channels); {_REMEDY}")
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return ValueError(f"too many pixels for Pillow: {text}")
    if isinstance(error, struct.error):
        return ValueError(f"truncated {kind}: it ends within its header")
    if isinstance(error, EOFError) or "truncated" in text.lower():
        return ValueError(f"truncated {kind}: {text}")
    return ValueError(f"damaged {kind}: {text}")


def gif_canvas_size(data: bytes) -> tuple[int, int]:
    """(height, width) in pixels; a first frame that sticks out of the screen enlarges it (GIF89a, sections 18 to 25).

    Raises:
        ValueError: the reason, without the file's name.
    """
    try:
        width, height, flags = struct.unpack_from("<HHB", data, 6)
        position = 13 + _color_table_bytes(flags)
        while data[position] != _GIF_END:
            if data[position] == _GIF_IMAGE:
                left, top, frame_width, frame_height = struct.unpack_from("<HHHH", data, position + 1)
                return max(height, top + frame_height), max(width, left + frame_width)
            if data[position] == _GIF_EXTENSION:
                position += 2
                while data[position]:  # blocks, each after its length, up to an empty one
                    position += 1 + data[position]
            position += 1
    except (IndexError, struct.error) as error:
        raise ValueError(f"truncated GIF: its {len(data)} bytes end before the first frame") from error
    raise ValueError("damaged GIF: it has no frame")


def _color_table_bytes(flags: int) -> int:
    return 3 * (2 << (flags & 7)) if flags & 0x80 else 0


def webp_canvas_size(data: bytes) -> tuple[int, int]:
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
