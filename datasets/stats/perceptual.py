"""A hash that look-alikes nearly share, by the library ImageHash; without that there is none."""

import importlib.util

from PIL import Image

from augpipe.datasets.stats.channels import ChannelSums
from augpipe.source import Pixels

NUM_BITS = 64
MAX_DISTANCE = 4
"""Of 250 photographs (ImageNet's) written anew with JPEG quality 20, or at a third of their size, all lay within 4 bits
of their original; no two different ones were nearer than 16. Mirrored ones were at 24 and more."""
INSTALL = 'pip install "augpipe[stats]"'

_MIN_STD = 2.0 / 255
"""Below it in every channel a picture is flat: the signs of its DCT coefficients are noise, or all the same."""
_ENOUGH_PX = 128
"""ImageHash scales to 32 x 32 by a fine filter; sides of twice this and more are first averaged, which is faster. With
64, copies at a third of the size were up to 6 bits off instead of 4."""


def is_available() -> bool:
    """Whether ImageHash is installed."""
    return importlib.util.find_spec("imagehash") is not None


def perceptual_hash(pixels: Pixels, sums: ChannelSums) -> int | None:
    """64 bits of (H, W, 4) uint8 RGBX, or None for a flat picture: the signs of its lowest 8 x 8 DCT coefficients.

    Raises:
        ImportError: ImageHash is not installed.
    """
    if max(sums.std) < _MIN_STD:
        return None
    from imagehash import phash

    height, width = pixels.shape[:2]
    gray = Image.frombuffer("RGBX", (width, height), pixels, "raw", "RGBX", 0, 1).convert("L")
    small = gray.reduce((max(width // _ENOUGH_PX, 1), max(height // _ENOUGH_PX, 1)))
    bits = 0
    for bit in phash(small).hash.ravel().tolist():
        bits = bits << 1 | bit
    return bits
