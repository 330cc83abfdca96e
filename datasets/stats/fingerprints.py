"""What is kept of each image to find it again among others, 49 bytes: digests, and ImageHash's hash if installed."""

import hashlib
import importlib.util
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe.datasets.stats.channels import ChannelSums
from augpipe.sources.protocol import Pixels

FINGERPRINT = np.dtype(
    [
        ("sample_id", np.int64),
        ("content", np.uint64, 2),
        ("sums", np.uint64, 2),
        ("perceptual", np.uint64),
        ("has_perceptual", np.bool_),
    ]
)
"""Packed. `content`: 128-bit BLAKE2b of the file's bytes (of an array's pixels and shape). `sums`: that of the size and
the channels' sums, which two images of the same pixels share (and a mirrored one, so pixels must be compared after
all). `perceptual`: 64 bits that look-alikes nearly share, of meaning only with `has_perceptual`."""

Fingerprints = npt.NDArray[np.void]
NUM_BITS = 64
MAX_DISTANCE = 4
"""When 250 images (ImageNet's) were rewritten with JPEG quality 20, or at a third of their size, all lay within
4 bits of their original; no two different ones were nearer than 16. Mirrored ones were at 24 and more."""
INSTALL = 'pip install "augpipe[stats]"'

_MIN_STD = 2.0 / 255
"""Below it in every channel an image is flat: the signs of its DCT coefficients are noise, or all the same."""
_ENOUGH_PX = 128
"""ImageHash scales to 32 x 32 by a fine filter; sides of twice this and more are first averaged, which is faster. With
64, copies at a third of the size were up to 6 bits off instead of 4."""


def fingerprint(
    sample_id: int, content: bytes | Pixels, shape: tuple[int, int, int], sums: ChannelSums, perceptual: int | None
) -> Fingerprints:
    """(1,) `FINGERPRINT` of an image whose decoded pixels have this shape and these sums."""
    made = np.zeros(1, FINGERPRINT)
    made["sample_id"] = sample_id
    made["content"] = _digest(content) if isinstance(content, bytes) else pixel_digest(content)
    made["sums"] = _digest(repr((shape, sums.sums, sums.squares)).encode())
    if perceptual is not None:
        made["perceptual"] = perceptual
        made["has_perceptual"] = True
    return made


def pixel_digest(pixels: Pixels) -> Sequence[int]:
    """128 bits, as two numbers, of an array's shape and bytes."""
    return _digest(np.ascontiguousarray(pixels).data, repr(pixels.shape).encode())


def _digest(data: bytes | memoryview, shape: bytes = b"") -> Sequence[int]:
    digest = hashlib.blake2b(data, digest_size=16)
    digest.update(shape)
    numbers: list[int] = np.frombuffer(digest.digest(), "<u8").tolist()
    return numbers


def has_image_hash() -> bool:
    """Whether ImageHash is installed."""
    return importlib.util.find_spec("imagehash") is not None


def perceptual_hash(pixels: Pixels, sums: ChannelSums) -> int | None:
    """64 bits of (H, W, 4) uint8 RGBX, or None for a flat image: the signs of its lowest 8 x 8 DCT coefficients.

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
