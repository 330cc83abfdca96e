"""Colour profiles (ICC): finding them in a file, and turning pixels to sRGB by LittleCMS."""

import io
import warnings
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms, TiffImagePlugin

from augpipe.decoding.pillow import PILLOW_ERRORS

_ICC_MARK = b"ICC_PROFILE\0"
_APP2, _SOS = 0xE2, 0xDA
_STANDALONE = frozenset([0x00, 0x01, 0xFF, *range(0xD0, 0xD9)])  # no length follows
_SPACES = {"RGB": b"RGB ", "L": b"GRAY", "CMYK": b"CMYK"}
_LEVELS = (0, 1, 5, 12, 30, 63, 95, 127, 160, 191, 222, 245, 255)
_INVISIBLE = 1
"""Levels by which a profile may differ from sRGB and still be taken for it: camera makers round it differently."""
_MOST_BYTES = 1 << 22


class BadProfileError(ValueError):
    """A colour profile that cannot be used."""


def jpeg_profile(data: memoryview) -> bytes | None:
    """The profile in a JPEG's APP2 segments, joined by their numbers (ICC.1:2022, annex B.4); None without one.

    For files whose segments `augpipe.decoding.probe` has walked without an error.

    Raises:
        BadProfileError: a part of it is missing.
    """
    parts: dict[int, bytes] = {}
    expected = 0
    position, end = 2, len(data)
    while position + 4 <= end:
        marker = data[position + 1]
        if data[position] != 0xFF or marker in _STANDALONE:
            position += 1
            continue
        if marker == _SOS:
            break
        stop = position + 2 + (data[position + 2] << 8 | data[position + 3])
        if marker == _APP2 and bytes(data[position + 4 : position + 16]) == _ICC_MARK and stop >= position + 18:
            expected = data[position + 17]
            parts[data[position + 16]] = bytes(data[position + 18 : stop])
        position = max(stop, position + 2)
    if not parts:
        return None
    if sorted(parts) != list(range(1, expected + 1)):
        raise BadProfileError("a part of its colour profile is missing")
    return b"".join(parts[number] for number in sorted(parts))


def tiff_profile(data: bytes) -> bytes | None:
    """The profile of a TIFF's first image; None without one, or where its notes cannot be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of damaged notes, which are none of the image's
        try:
            found = TiffImagePlugin.TiffImageFile(io.BytesIO(data)).info.get("icc_profile")
        except PILLOW_ERRORS:
            return None
    return found if isinstance(found, bytes) else None


def to_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """The image in sRGB: RGB stays RGB, gray (L) stays gray, CMYK becomes RGB; the same object where it is sRGB.

    The intent is perceptual, the one meant for images.

    Raises:
        BadProfileError: LittleCMS cannot read the profile, or it is one for other images.
    """
    transform = _transform(profile, image.mode)
    if transform is None:
        return image
    try:
        turned = ImageCms.applyTransform(image, transform)
    except ImageCms.PyCMSError as error:
        raise BadProfileError(f"its colour profile cannot be applied: {error}") from error
    assert turned is not None
    return turned.getchannel(0) if image.mode == "L" else turned


@lru_cache(maxsize=16)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """From the profile to sRGB; None where that changes nothing that shows. Few profiles serve a whole data set."""
    if len(profile) > _MOST_BYTES:
        raise BadProfileError(f"its colour profile has {len(profile)} bytes, more than {_MOST_BYTES}")
    if profile[16:20] != _SPACES.get(mode):
        raise BadProfileError(f"its colour profile is for {profile[16:20]!r}, and the picture is {mode}")
    try:
        transform = ImageCms.buildTransform(
            ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB"), mode, "RGB"
        )
        if mode == "CMYK":
            return transform
        grid = _grid(mode)
        turned = ImageCms.applyTransform(grid, transform)
    except (ImageCms.PyCMSError, OSError, TypeError, ValueError) as error:
        raise BadProfileError(f"its colour profile cannot be read: {error}") from error
    assert turned is not None
    change = np.asarray(turned, np.int16) - np.asarray(grid.convert("RGB"), np.int16)
    return transform if np.abs(change).max() > _INVISIBLE else None


def _grid(mode: str) -> Image.Image:
    """An image of colours from all over the space."""
    if mode == "L":
        return Image.fromarray(np.arange(256, dtype=np.uint8)[None])
    levels = np.array(_LEVELS, np.uint8)
    return Image.fromarray(np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, len(levels), 3))
