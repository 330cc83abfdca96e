"""Images for the tests, made from a seed."""

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


def noise(height: int, width: int, seed: int = 0) -> Pixels:
    """(height, width, 3) levels that know nothing of their neighbours: the harshest image for a sampler."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def smooth(height: int, width: int, seed: int = 0) -> Pixels:
    """(height, width, 3) soft waves of a few periods, different in each channel and direction."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    channels = []
    for _ in range(3):
        phase_x, phase_y = rng.uniform(0, 6, 2)
        wave = (
            np.sin(x / width * 9 + phase_x) + np.cos(y / height * 7 + phase_y) + np.sin((x - 2 * y) / (width + 1) * 5)
        )
        channels.append(127.5 + 42 * wave)
    return np.rint(np.clip(np.stack(channels, axis=2), 0, 255)).astype(np.uint8)


def gray(height: int, width: int, level: int) -> Pixels:
    """(height, width, 3) of one level."""
    return np.full((height, width, 3), level, np.uint8)
