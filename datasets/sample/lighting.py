"""What light and lens do to a finished scene: casts, fall-off, gamma, bent lines, grain."""

import numpy as np
from PIL import Image, ImageFilter

from augpipe.datasets.sample.textures import Field, resized

_MESH = 10
"""Cells along each side of the grid by which a lens is imitated."""


def light(rng: np.random.Generator, pixels: Field) -> Image.Image:
    """The photograph of a scene (float32 of shape (H, W, 3), 0..255), each picture under a light of its own."""
    height, width = pixels.shape[:2]
    warm, tint = rng.normal(0.0, 0.09), rng.normal(0.0, 0.035)
    cast = np.array([1.0 + warm, 1.0 + tint, 1.0 - warm], dtype=np.float32) * rng.uniform(0.78, 1.22)
    gain = resized(_falloff(rng), height, width)
    noise = rng.standard_normal((height, width), dtype=np.float32)
    noise *= np.float32(rng.uniform(0.5, 4.0))
    exposed = np.empty(pixels.shape, dtype=np.uint8)
    for channel in range(3):  # by planes: numpy is slow where the last axis is as short as 3
        plane = pixels[:, :, channel] * (gain * cast[channel])
        plane += noise
        exposed[:, :, channel] = np.clip(plane, 0.0, 255.0, out=plane)
    picture = Image.fromarray(exposed)
    picture = picture.point(_curve(rng) * 3)
    if rng.random() < 0.4:
        picture = _through_lens(rng, picture)
    if rng.random() < 0.15:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.0)))
    return picture


def _falloff(rng: np.random.Generator) -> Field:
    """Vignette and a light from one side, float32 of shape (16, 16)."""
    y, x = np.mgrid[-1:1:16j, -1:1:16j]
    vignette = rng.choice([0.0, 1.0], p=[0.35, 0.65]) * rng.uniform(0.05, 0.5)
    angle, slope = rng.uniform(0, 2 * np.pi), rng.uniform(0.0, 0.28)
    middle_x, middle_y = rng.normal(0, 0.15, 2)
    r2 = ((x - middle_x) ** 2 + (y - middle_y) ** 2) / 2
    gain = (1 - vignette * r2) * (1 + slope * (np.cos(angle) * x + np.sin(angle) * y))
    falloff: Field = gain.astype(np.float32)
    return falloff


def _curve(rng: np.random.Generator) -> list[int]:
    """A tone curve of 256 entries: gamma and contrast."""
    gamma, contrast = np.exp(rng.normal(0.0, 0.16)), rng.uniform(0.0, 0.5)
    t = (np.arange(256) / 255) ** gamma
    t += contrast * (t * t * (3 - 2 * t) - t)
    return [int(level) for level in np.clip(np.round(t * 255), 0, 255)]


def _through_lens(rng: np.random.Generator, picture: Image.Image) -> Image.Image:
    """A little rotation and radial distortion; enlarged just enough that no border shows."""
    width, height = picture.size
    angle, bend = np.radians(rng.normal(0.0, 2.5)), rng.uniform(-0.1, 0.1)
    half = np.array([width, height]) / 2
    y, x = np.mgrid[-1 : 1 : (_MESH + 1) * 1j, -1 : 1 : (_MESH + 1) * 1j]
    at = np.stack([x, y], axis=-1) * half
    at = at * (1 + bend * (at**2).sum(axis=-1, keepdims=True) / (half**2).sum())
    at = at @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    at = at / max(1.0, float(np.abs(at / half).max())) + half
    across = np.round(np.linspace(0, width, _MESH + 1)).astype(int)
    down = np.round(np.linspace(0, height, _MESH + 1)).astype(int)
    mesh = []
    for i in range(_MESH):
        for j in range(_MESH):
            box = (int(across[j]), int(down[i]), int(across[j + 1]), int(down[i + 1]))
            corners = (at[i, j], at[i + 1, j], at[i + 1, j + 1], at[i, j + 1])  # NW, SW, SE, NE
            mesh.append((box, tuple(float(value) for corner in corners for value in corner)))
    return picture.transform(picture.size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)
