"""From what a source holds to an upright image in sRGB, gray where the source is gray."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageFile

from augpipe.datasets.prepare.profiles import BadProfileError, jpeg_profile, tiff_profile, to_srgb
from augpipe.decoding import Header, decode, probe
from augpipe.decoding.header import check_size
from augpipe.decoding.jpeg import check_codes, read_frame
from augpipe.decoding.orientation import upright
from augpipe.decoding.pillow import PILLOW_ERRORS, decode_stored, open_pillow
from augpipe.decoding.png import check_pixel_sums
from augpipe.native.cpu_render import check_image
from augpipe.sources.protocol import Pixels

_GRAY_MODES = frozenset(["1", "L", "LA", "I;16", "I;16L", "I;16B", "I;16N"])


@dataclass(frozen=True, kw_only=True, slots=True)
class UprightImage:
    """An image, ready to be resized."""

    image: Image.Image
    """Mode RGB or L, upright, sRGB."""
    kind: str
    """Format by content, or "array"."""
    original: bytes | None
    """The file, where its pixels as `augpipe.decoding` gives them are those of `image`; None where a profile had to be
    applied or a turn undone, and for arrays."""
    header: Header | None
    """The file's header; None for arrays."""
    profile: str
    """What became of its colour profile: "none", "srgb", "converted" or "ignored" (damaged, or of another kind)."""


def open_upright(content: bytes | Pixels, max_pixels: int) -> UprightImage:
    """Decode a file, or take an array; alpha is dropped, as everywhere in `augpipe.decoding`.

    A profile that is damaged or for other images is ignored, as viewers do.

    Raises:
        ValueError: the reason, without the file's name.
    """
    if isinstance(content, np.ndarray):
        check_image(content)
        check_size(content.shape[0], content.shape[1], max_pixels)
        return UprightImage(image=_of_array(content), kind="array", original=None, header=None, profile="none")
    header = probe(content, max_pixels=max_pixels)
    if header.is_jpeg:
        return _of_jpeg(content, header)
    return _of_other(content, header, max_pixels)


def _of_array(pixels: Pixels) -> Image.Image:
    if pixels.ndim == 2 or pixels.shape[2] == 1:
        return Image.fromarray(np.ascontiguousarray(pixels.reshape(pixels.shape[:2])))
    return Image.fromarray(np.ascontiguousarray(pixels[..., :3]))


def _of_jpeg(data: bytes, header: Header) -> UprightImage:
    view = memoryview(data)
    is_gray = read_frame(view).num_components == 1
    pixels = decode(data, header)
    image = Image.fromarray(pixels[..., 0]) if is_gray else _from_rgbx(pixels)
    try:
        found = jpeg_profile(view)
    except BadProfileError:
        found, image, said = None, image, "ignored"
    else:
        image, said = _convert(image, found)
    is_same = header.orientation == 1 and said != "converted"
    return UprightImage(image=image, kind="JPEG", original=data if is_same else None, header=header, profile=said)


def _of_other(data: bytes, header: Header, max_pixels: int) -> UprightImage:
    if header.format == "JPEG":
        check_codes(memoryview(data))
    elif header.format == "PNG":
        check_pixel_sums(data)
    opened, _ = open_pillow(data, header.format, max_pixels)
    is_gray = opened.mode in _GRAY_MODES
    said = "none"
    if header.format == "JPEG":
        try:
            found = jpeg_profile(memoryview(data))
        except BadProfileError:
            found, said = None, "ignored"
    else:
        found = tiff_profile(data) if header.format == "TIFF" else opened.info.get("icc_profile")
    stored: Image.Image | None = None
    if opened.mode == "CMYK" and found:
        stored, said = _convert(_loaded(opened), found)
    if stored is None or stored.mode == "CMYK":
        pixels = upright(decode_stored(opened), header.orientation)
        image = Image.fromarray(np.ascontiguousarray(pixels[..., 0])) if is_gray else _from_rgbx(pixels)
        if opened.mode != "CMYK" and said == "none":
            image, said = _convert(image, found)
    else:
        turned = upright(np.asarray(stored), header.orientation)
        image = Image.fromarray(np.ascontiguousarray(turned))
    return UprightImage(image=image, kind=header.format, original=None, header=header, profile=said)


def _convert(image: Image.Image, profile: bytes | None) -> tuple[Image.Image, str]:
    if not profile:
        return image, "none"
    try:
        turned = to_srgb(image, profile)
    except BadProfileError:
        return image, "ignored"
    return turned, "srgb" if turned is image else "converted"


def _loaded(opened: ImageFile.ImageFile) -> Image.Image:
    try:
        opened.load()
    except PILLOW_ERRORS as error:
        raise ValueError(f"damaged {opened.format}: {error}") from error
    return opened


def _from_rgbx(pixels: Pixels) -> Image.Image:
    height, width = pixels.shape[:2]
    return Image.frombytes("RGB", (width, height), np.ascontiguousarray(pixels).data, "raw", "RGBX")
