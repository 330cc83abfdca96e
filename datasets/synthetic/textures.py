"""Textures from noise: clouds, ground, grain; every field is float32 of shape (height, width), mean 0, deviation 1."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

Field = npt.NDArray[np.float32]


def resized(field: Field, height: int, width: int) -> Field:
    """`field` stretched to (height, width) by bicubic interpolation."""
    return np.asarray(Image.fromarray(field).resize((width, height), Image.Resampling.BICUBIC))


def fractal(rng: np.random.Generator, height: int, width: int, *, cell_px: float, roughness: float = 0.5) -> Field:
    """Noise in octaves: blobs of about `cell_px`, then half of that with `roughness` times the amplitude, and so on."""
    sizes = [(height, width)]
    while 2 ** len(sizes) <= cell_px and max(sizes[-1]) > 3:
        sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
    amplitude, field = 1.0, np.zeros(sizes[-1], dtype=np.float32)
    for rows, columns in reversed(sizes):
        octave = (rng.random((rows, columns), dtype=np.float32) - np.float32(0.5)) * np.float32(amplitude)
        field = octave + resized(field, rows, columns)
        amplitude *= roughness
    return standard(field)


def streaks(rng: np.random.Generator, height: int, width: int, *, cell_px: float, stretch: float) -> Field:
    """Noise that is `stretch` times as long as high: ripples, planks, brushed things."""
    narrow = max(4, round(width / stretch))
    return resized(fractal(rng, height, narrow, cell_px=cell_px, roughness=0.65), height, width)


def standard(field: Field) -> Field:
    """Mean 0 and deviation 1."""
    field = field - field.mean()
    field /= max(float(field.std()), 1e-6)
    return field


def coloured(field: Field, stops: Sequence[Sequence[float]], *, contrast: float = 1.0) -> Field:
    """A field as colours, float32 of shape (height, width, 3) in 0..255: `stops` are spread over -2..2 deviations."""
    table_at = np.linspace(-1.0, 1.0, 256)
    stops_at = np.linspace(-1.0, 1.0, len(stops))
    channels = np.array(stops, dtype=np.float64).T
    table = np.stack([np.interp(table_at, stops_at, channel) for channel in channels], axis=1).astype(np.float32)
    level = field * np.float32(63.75 * contrast)
    level += 127.5
    return np.take(table, np.clip(level, 0, 255, out=level).astype(np.uint8), axis=0)
