"""What is known of an image before its pixels are decoded, and the limit on how many there may be."""

import logging
from dataclasses import dataclass
from typing import Literal

from augpipe.validation.log_once import log_once

Format = Literal["JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF"]

MAX_PIXELS = 89_478_485
"""Largest image decoded unless told otherwise: Pillow's own limit (a quarter of a GiB in bytes, divided by three).

As RGBX that is 358 MB an image, more than any camera's image needs and less than a machine that trains has.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """Size and kind of one image file."""

    height: int
    """Rows in pixels, after the orientation is applied."""
    width: int
    """Columns in pixels, as above."""
    orientation: int
    """As EXIF numbers it, 1..8, told by EXIF or XMP; 1 where the file has none or an impossible one."""
    format: Format
    """What the content is, whatever the file's name says."""
    is_jpeg: bool
    """True where libjpeg-turbo (simplejpeg) decodes the file: only then may a DCT factor be asked for.

    False for the JPEGs that Pillow decodes: CMYK, YCCK, and chroma sampled in an unusual way.
    """
    loses_bits: bool = False
    """Whether it holds more than 8 bits a channel, of which the highest 8 are kept."""
    is_progressive: bool = False
    """Whether each of a JPEG's scans tells a little of all pixels, so that all of it has to be read."""

    @property
    def may_crop(self) -> bool:
        """Whether it is worth while to decode a region alone: by our own decoder, at any DCT factor."""
        return self.may_scale and not self.is_progressive

    @property
    def may_scale(self) -> bool:
        """Whether a plan may have the image decoded at a DCT scale.

        Not a turned one: where the factor does not divide its sides, the short blocks would lie at the wrong end.
        """
        return self.is_jpeg and self.orientation == 1

    def shape(self, dct_factor: int = 1) -> tuple[int, int, int]:
        """Shape (height, width, 4) of the decoded pixels at 1/`dct_factor`."""
        return -(-self.height // dct_factor), -(-self.width // dct_factor), 4


def tell_of_lost_bits(name: str) -> None:
    """Warn, once a process, of a file whose header says `loses_bits`."""
    text = "holds more than 8 bits a channel, of which the highest 8 are kept, here and in all such files"
    remedy = "To scale the levels otherwise, convert the files to 8 bits first"
    log_once(logging.WARNING, "%s %s. %s", name, text, remedy, key=text)


def check_size(height: int, width: int, max_pixels: int) -> None:
    """Refuse an image without pixels, or with more than `max_pixels`.

    Raises:
        ValueError: the reason, without the file's name.
    """
    if height < 1 or width < 1:
        raise ValueError(f"claims {width}x{height} pixels: a picture has at least one")
    if height * width > max_pixels:
        raise ValueError(
            f"claims {width}x{height} = {height * width} pixels, more than max_pixels={max_pixels}; "
            "raise max_pixels if you trust it"
        )
