"""Normal numbers for pixels another way than the package: Philox on whole arrays of Python's own integers, float64."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Float = npt.NDArray[np.float64]


def philox(pixels: Words, key: tuple[int, ...], lines: Words | None = None) -> list[Words]:
    """The four words of the counters (pixel, line or 0, 0, 0), by the paper's definition (Salmon et al. 2011)."""
    zero = np.zeros_like(pixels, np.uint64)
    words = [pixels.astype(np.uint64), zero if lines is None else lines.astype(np.uint64), zero, zero]
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


def splines(x: Float, y: Float, key: tuple[int, ...]) -> tuple[Float, Float]:
    """Two fields of cubic B-splines at places counted in nodes, which are sums of a random word's halves."""
    from scipy import ndimage  # only here: gpu-check runs the table's cases without it

    num_lines, num_pairs = int(y.max()) + 4, int(x.max()) // 2 + 3
    pairs, lines = np.meshgrid(np.arange(num_pairs, dtype=np.uint64), np.arange(num_lines, dtype=np.uint64))
    words = philox(pairs, key, lines)
    parts = [((word & np.uint64(0xFFFF)) + (word >> np.uint64(16))).astype(np.float64) / 65535 - 1 for word in words]
    first, second = (
        ndimage.map_coordinates(
            np.stack([parts[i], parts[i + 2]], axis=2).reshape(num_lines, -1), [y, x], order=3, prefilter=False
        )
        for i in (0, 1)
    )
    return first, second
