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

from augpipe.decoding import gif, webp
from augpipe.decoding.header import Format, check_size
from augpipe.decoding.jpeg import read_frame, without_notes
from augpipe.decoding.orientation import read_orientation
from augpipe.decoding.png import without_animation
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

# The plugins themselves, not PIL.Image.open: that one warns of large pictures, which warns for all threads or none,
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
_SIXTEEN_BIT_MODES = frozenset(["I;16", "I;16L", "I;16B", "I;16N"])
_TIFF_BITS, _TIFF_PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0
"""One channel of more than 8 bits: TIFF keeps 12-bit numbers as they are, and may count from white."""


def open_pillow(data: bytes, kind: Format, max_pixels: int) -> tuple[ImageFile.ImageFile, int]:
    """Open without decoding; returns the image and its EXIF orientation 1..8, which is not applied.

    Raises:
        ValueError: the reason, without the file's name.
    """
    orientation = 1
    if kind == "TIFF":
        data, orientation = plain_tiff(data)
    elif kind == "PNG":
        data = without_animation(data)
    elif kind in ("WebP", "GIF"):  # Pillow sets memory aside for the one at once, and warns of the other
        canvas = webp.canvas_size(data) if kind == "WebP" else gif.canvas_size(data)
        check_size(*canvas, max_pixels)
        _check_pillow_limit(*canvas)
    elif kind == "JPEG":
        view = memoryview(data)
        frame = read_frame(view)
        data, orientation = without_notes(view, frame), read_orientation(frame.exif)
    try:
        image = _PLUGINS[kind](io.BytesIO(data))
        if kind in ("PNG", "WebP"):
            orientation = read_orientation(image.info.get("exif") or b"")
    except PILLOW_ERRORS as error:
        raise _reason(kind, error) from error
    check_size(image.height, image.width, max_pixels)
    _check_pillow_limit(image.height, image.width)
    return image, orientation


def decode_stored(image: ImageFile.ImageFile) -> npt.NDArray[np.uint8]:
    """RGBA pixels (H, W, 4) uint8 of the first frame with every A 255, as stored, not yet turned; may be read-only.

    The 8-bit modes come out as `convert("RGB")` gives them: alpha and transparency are dropped, not blended. Of 16 bits
    the high byte is kept (Pillow's convert would clip a gray picture to white); 12 bits likewise.

    Raises:
        ValueError: the reason, without the file's name.
    """
    kind = image.format or "picture"
    if image.mode not in _EIGHT_BIT_MODES | _SIXTEEN_BIT_MODES:
        raise ValueError(
            f"its mode {image.mode!r} (floating point, 32-bit or signed numbers, or CIELAB) has no fixed range from "
            "black to white; save it as 8-bit or unsigned 16-bit gray or RGB"
        )
    try:
        image.load()
        image.info.pop("transparency", None)  # dropped anyway, and convert would warn of it
        if image.mode in _SIXTEEN_BIT_MODES:
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
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return ValueError(f"too many pixels for Pillow: {text}")
    if isinstance(error, EOFError) or "truncated" in text.lower():
        return ValueError(f"truncated {kind}: {text}")
    return ValueError(f"damaged {kind}: {text}")
