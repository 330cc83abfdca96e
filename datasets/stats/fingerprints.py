"""What is kept of each photograph to find it again among others: 49 bytes."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from augpipe.datasets.stats.channels import ChannelSums
from augpipe.source import Pixels

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
the channels' sums, which two pictures of the same pixels share (and a mirrored one, so pixels must be compared after
all). `perceptual`: 64 bits that look-alikes nearly share, of meaning only with `has_perceptual`."""

Fingerprints = npt.NDArray[np.void]


def fingerprint(
    sample_id: int, content: bytes | Pixels, shape: tuple[int, int, int], sums: ChannelSums, perceptual: int | None
) -> Fingerprints:
    """(1,) `FINGERPRINT` of a photograph whose decoded pixels have this shape and these sums."""
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
