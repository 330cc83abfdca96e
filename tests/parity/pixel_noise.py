"""Normal numbers for pixels another way than the package: Philox on whole arrays of Python's own integers, float64."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]


def philox(pixels: Words, key: tuple[int, ...]) -> list[Words]:
    """The four words of the counters (pixel, 0, 0, 0), by the paper's definition (Salmon et al. 2011)."""
    words = [pixels.astype(np.uint64), *(np.zeros_like(pixels, np.uint64) for _ in range(3))]
    low = np.uint64(0xFFFFFFFF)
    key0, key1 = key
    for _ in range(10):
        first, third = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (third >> np.uint64(32)) ^ words[1] ^ np.uint64(key0),
            third & low,
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(key1),
            first & low,
        ]
        key0, key1 = (key0 + 0x9E3779B9) % 2**32, (key1 + 0xBB67AE85) % 2**32
    return words


def normals(shape: tuple[int, int], key: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """(H, W, 3) by Box and Muller, of the upper 24 bits of each word."""
    words = philox(np.arange(shape[0] * shape[1], dtype=np.uint64), key)
    parts = [(word >> np.uint64(8)).astype(np.float64) for word in words]
    radii = [np.sqrt(-2 * np.log((part + 0.5) / 2**24)) for part in (parts[0], parts[2])]
    angles = [2 * np.pi * (part / 2**24 - 0.5) for part in (parts[1], parts[3])]
    channels = [radii[0] * np.cos(angles[0]), radii[0] * np.sin(angles[0]), radii[1] * np.cos(angles[1])]
    return np.stack(channels, axis=1).reshape(*shape, 3)
