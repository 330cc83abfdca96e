"""One photograph at one scale: which pixels, and which JPEG."""

from dataclasses import dataclass

from PIL import Image

from augpipe.datasets.prepare.picture import Picture
from augpipe.datasets.prepare.resize import check_target, resize, target_size
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.encode import encode_tiled
from augpipe.datasets.shards.writer import MAX_JPEG_BYTES

KEPT_SIDE = 256
"""Pixels a side up to which tiles gain nothing: a crop of 224 takes nearly all of such a picture."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendition:
    """What goes into a shard."""

    jpeg: bytes
    image: Image.Image
    """The pixels before they were encoded, RGB or L; of a kept file, those that it decodes to."""
    is_kept: bool
    """Whether `jpeg` is the source's file."""


def render_scale(picture: Picture, scale: str, settings: PrepareSettings) -> Rendition:
    """The photograph at a scale.

    Raises:
        ValueError: no JPEG can hold it; the reason, without the file's name.
    """
    size = picture.image.height, picture.image.width
    target = target_size(*size, scale, upscale=settings.upscale)
    check_target(*target, settings.max_pixels)
    if target == size and picture.original is not None and keeps_original(picture, settings):
        jpeg, image, is_kept = picture.original, picture.image, True
    else:
        image = resize(picture.image, *target, linear_light=settings.linear_light)
        jpeg, is_kept = encode_tiled(image, settings.quality, subsampling=settings.subsampling), False
    if len(jpeg) > MAX_JPEG_BYTES:
        raise ValueError(f"as a JPEG it has {len(jpeg)} bytes, more than the {MAX_JPEG_BYTES} that a shard takes")
    return Rendition(jpeg=jpeg, image=image, is_kept=is_kept)


def keeps_original(picture: Picture, settings: PrepareSettings) -> bool:
    """Whether encoding a JPEG of the right size anew would only lose.

    It always loses a little of the picture, and gains tiles that can be decoded alone. Nothing is gained where the file
    has such tiles already, and where both sides are at most `KEPT_SIDE`; these files are kept under "auto".
    """
    assert picture.original is not None
    if settings.originals != "auto":
        return settings.originals == "always"
    has_tiles = picture.header is not None and picture.header.tiles is not None
    return has_tiles or max(picture.image.size) <= KEPT_SIDE
