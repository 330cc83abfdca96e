"""One image at one scale: which size, which pixels, and which file."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe.datasets.prepare.lanczos import lanczos
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.prepare.upright import UprightImage
from augpipe.datasets.shards.encode import MAX_SIDE, encode_jpeg
from augpipe.datasets.shards.writer import MAX_IMAGE_BYTES
from augpipe.decoding import decode, probe
from augpipe.decoding.row_index import row_index_of
from augpipe.sources.protocol import Pixels

NOTHING_TO_KEEP = "it is an array, and keep packs files as they are: leave keep out, and arrays become JPEGs"
LEAST_GAIN = 0.9
"""How much of the original's bytes a new JPEG may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendition:
    """What goes into a shard."""

    file: bytes
    """A JPEG, or the source's file, of any format."""
    image: Image.Image
    """The pixels before they were encoded, RGB or L; of a kept file, those that it decodes to, upright, or RGBX."""
    is_kept: bool
    """Whether `file` is the source's."""
    row_index: bytes
    """The row index of `file`; empty where it has none."""


def render_scale(picture: UprightImage, scale: str, settings: PrepareSettings) -> Rendition:
    """The image at a scale.

    Raises:
        ValueError: no JPEG can hold it; the reason, without the file's name.
    """
    size = picture.image.height, picture.image.width
    target = target_size(*size, scale, upscale=settings.upscale)
    check_target(*target, settings.max_pixels)
    image = resize(picture.image, *target, linear_light=settings.linear_light)
    original = picture.original if target == size and settings.originals != "never" else None
    if original is not None and settings.originals == "always":
        file = original
    else:
        file = encode_jpeg(image, settings.quality, subsampling=settings.subsampling)
        if original is not None and not gains(file, picture):
            file = original
    check_length(file)
    has_rows = file is not original or (picture.header is not None and picture.header.may_crop)
    row_index = row_index_of(file, *target) if has_rows else b""
    return Rendition(file=file, image=image, is_kept=file is original, row_index=row_index)


def keep_file(content: bytes | Pixels, max_pixels: int) -> tuple[UprightImage, Rendition]:
    """A file as it is, once all of it has been decoded as the loader decodes it.

    Raises:
        ValueError: it cannot be used, or is not a file but an array; the reason, without the file's name.
    """
    if isinstance(content, np.ndarray):
        raise ValueError(NOTHING_TO_KEEP)
    header = probe(content, max_pixels=max_pixels)
    check_length(content)
    pixels = decode(content, header)
    image = Image.frombuffer("RGBX", (header.width, header.height), pixels, "raw", "RGBX", 0, 1)
    row_index = row_index_of(content, header.height, header.width) if header.may_crop else b""
    upright = UprightImage(image=image, kind=header.format, original=content, header=header, profile="none")
    return upright, Rendition(file=content, image=image, is_kept=True, row_index=row_index)


def gains(encoded: bytes, image: UprightImage) -> bool:
    """Whether a new JPEG of the same size is worth the little of the image that encoding again always loses.

    It is where it saves a tenth of the bytes, which are what decoding takes its time for, and in place of a progressive
    file, of which no region can be decoded alone.
    """
    assert image.original is not None and image.header is not None
    return image.header.is_progressive or len(encoded) <= LEAST_GAIN * len(image.original)


def check_length(file: bytes) -> None:
    """Refuse a file that is too long for a shard.

    Raises:
        ValueError: the reason, without the file's name.
    """
    if len(file) > MAX_IMAGE_BYTES:
        raise ValueError(f"its {len(file)} bytes are more than the {MAX_IMAGE_BYTES} that a shard takes of an image")


def target_size(height: int, width: int, scale: str, *, upscale: bool) -> tuple[int, int]:
    """(height, width) in pixels at a scale: the short side is the scale, the long one rounded half up.

    The size itself for `full`, and for an image that is smaller where `upscale` is False.
    """
    if scale == "full":
        return height, width
    wanted, short = int(scale), min(height, width)
    if short == wanted or (short < wanted and not upscale):
        return height, width
    tall, wide = ((2 * side * wanted + short) // (2 * short) for side in (height, width))
    return tall, wide


def check_target(height: int, width: int, max_pixels: int) -> None:
    """Refuse a size that no JPEG can have, or that has too many pixels.

    Raises:
        ValueError: the reason, without the file's name.
    """
    if max(height, width) > MAX_SIDE or height * width > max_pixels:
        raise ValueError(
            f"it would have {width}x{height} pixels at its scale; a JPEG has at most {MAX_SIDE} along each side, and "
            f"max_pixels={max_pixels}"
        )


def resize(image: Image.Image, height: int, width: int, *, linear_light: bool) -> Image.Image:
    """The image (RGB or L) at another size; the same object where the size is the same."""
    if (image.height, image.width) == (height, width):
        return image
    if not linear_light:
        if image.mode == "RGB":
            pixels = np.frombuffer(image.tobytes("raw", "RGBX"), np.uint8).reshape(image.height, image.width, 4)
            return Image.frombytes("RGB", (width, height), lanczos(pixels, height, width).data, "raw", "RGBX")
        # reducing_gap left out: it would average first, which is faster and blurs
        return image.resize((width, height), Image.Resampling.LANCZOS)
    pixels = np.asarray(image)
    channels = [
        _encode(Image.fromarray(_TO_LINEAR[plane]).resize((width, height), Image.Resampling.LANCZOS))
        for plane in (pixels[..., None] if pixels.ndim == 2 else pixels).transpose(2, 0, 1)
    ]
    return Image.fromarray(channels[0] if len(channels) == 1 else np.stack(channels, axis=-1))


def _light(level: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Light in 0..1 of levels in 0..1 (IEC 61966-2-1, sRGB)."""
    light: npt.NDArray[np.float64] = np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4)
    return light.astype(np.float32)


_TO_LINEAR = _light(np.arange(256) / 255)
_BORDERS = _light((np.arange(255) + 0.5) / 255)
"""Light at which one 8-bit level ends and the next begins; comparing with them needs no power of a million pixels."""


def _encode(light: Image.Image) -> npt.NDArray[np.uint8]:
    return np.searchsorted(_BORDERS, np.asarray(light), side="right").astype(np.uint8)
