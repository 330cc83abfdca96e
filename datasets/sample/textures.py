"""Textures from noise: clouds, ground, grain; every field is float32 of shape (height, width), mean 0, deviation 1."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

Field = npt.NDArray[np.float32]


def resized(field: Field, height: int, width: int) -> Field:
    """`field` stretched to (height, width) by bicubic interpolation."""
    return np.asarray(Image.fromarray(field).resize((width, height), Image.Resampling.BICUBIC))


def fractal(
    rng: np.random.Generator, height: int, width: int, *, cell_px: float, roughness: float = 0.5, finest_px: int = 1
) -> Field:
    """Noise in octaves: blobs of about `cell_px`, then half of that with `roughness` times the amplitude, and so on.

    Octaves finer than `finest_px` are left out, which saves most of the time where they would not be seen.
    """
    sizes = [(-(-height // finest_px), -(-width // finest_px))]
    while sizes[-1][0] * finest_px * 2 ** (len(sizes) - 1) // cell_px > 0 and max(sizes[-1]) > 3:
        if finest_px * 2 ** len(sizes) > cell_px:
            break
        sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
    amplitude, field = 1.0, None
    for rows, columns in reversed(sizes):
        octave = rng.random((rows, columns), dtype=np.float32)
        octave -= 0.5
        octave *= amplitude
        field = octave if field is None else octave + resized(field, rows, columns)
        amplitude *= roughness
    assert field is not None
    return standard(resized(field, height, width) if finest_px > 1 else field)


def streaks(rng: np.random.Generator, height: int, width: int, *, cell_px: float, stretch: float) -> Field:
    """Noise that is `stretch` times as long as high: ripples, planks, brushed things."""
    narrow = max(4, round(width / stretch))
    return resized(fractal(rng, height, narrow, cell_px=cell_px, roughness=0.65), height, width)


def receding(field: Field, height: int, *, strength: float = 8.0) -> Field:
    """`field` laid on the ground; row 0 of the result is the horizon, `strength` times as far away as the last."""
    rows, columns = field.shape
    depth = strength / (1.0 + (strength - 1.0) * np.linspace(0.0, 1.0, height, dtype=np.float32))
    across = np.arange(columns, dtype=np.float32) - columns / 2
    u = np.abs(depth[:, None] * across[None, :]).astype(np.int32)
    v = (depth * (1.6 * height)).astype(np.int32)  # seen at a slant: what lies on the ground looks flat
    # mirrored where it ends, so that no seam shows; faded with distance, where it would only alias
    far = field[_mirrored(v, rows)[:, None], _mirrored(u, columns)]
    return far * (1.0 / depth)[:, None] ** 0.5


def _mirrored(index: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.int32]:
    wrapped: npt.NDArray[np.int32] = np.abs((index + size) % (2 * size) - size)
    return np.minimum(wrapped, size - 1)


def line(rng: np.random.Generator, width: int, *, cell_px: float, roughness: float = 0.5) -> Field:
    """One row of noise in octaves, float32 of shape (width,): a ridge against the sky."""
    x = np.arange(width, dtype=np.float32)
    total = np.zeros(width, dtype=np.float32)
    amplitude = 1.0
    while cell_px >= 2:
        knots = rng.random(int(width / cell_px) + 3) - 0.5
        at = x / cell_px + rng.random()
        whole = at.astype(np.int32)
        part = at - whole
        part = part * part * (3 - 2 * part)
        total += amplitude * (knots[whole] * (1 - part) + knots[whole + 1] * part)
        amplitude *= roughness
        cell_px /= 2
    return standard(total)


def standard(field: Field) -> Field:
    """Mean 0 and deviation 1."""
    field = field - field.mean()
    field /= max(float(field.std()), 1e-6)
    return field


def smoothstep(low: float, high: float, field: Field) -> Field:
    """0 below `low`, 1 above `high`, smooth between."""
    t = np.clip((field - low) * np.float32(1.0 / (high - low)), 0.0, 1.0)
    smooth: Field = t * t * (3.0 - 2.0 * t)
    return smooth


def coloured(field: Field, stops: Sequence[Sequence[float]], *, contrast: float = 1.0) -> Field:
    """A field as colours, float32 of shape (height, width, 3) in 0..255: `stops` are spread over -2..2 deviations."""
    table_at = np.linspace(-1.0, 1.0, 256)
    stops_at = np.linspace(-1.0, 1.0, len(stops))
    channels = np.array(stops, dtype=np.float64).T
    table = np.stack([np.interp(table_at, stops_at, channel) for channel in channels], axis=1).astype(np.float32)
    level = field * np.float32(63.75 * contrast)
    level += 127.5
    return np.take(table, np.clip(level, 0, 255, out=level).astype(np.uint8), axis=0)
