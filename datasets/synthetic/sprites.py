"""Shapes made solid: coloured, patterned, shaded and set into an image with a shadow."""

import colorsys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from augpipe.datasets.synthetic.shapes import Shape
from augpipe.datasets.synthetic.textures import Field, fractal

_SUPERSAMPLING = 3
_MARGIN = 0.22
"""Room around the object for its shadow, as a part of its extent."""

RGB = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Paint:
    """An object's colours, 0..255."""

    body: RGB
    accent: RGB
    detail: RGB


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Placed:
    """An object in an image."""

    left: int
    top: int
    """Where `coverage` lies, in pixels."""
    coverage: npt.NDArray[np.uint8]
    """(H, W) how much of each pixel it covers, of 255."""
    ends: npt.NDArray[np.float64]
    """(2, 2) x, y of its right and left end as it was before it was turned and mirrored."""


def draw_paint(rng: np.random.Generator, behind: npt.NDArray[np.float64], hue: float | None = None) -> Paint:
    """Random colours; the body's stands out from `behind` (RGB) and keeps near `hue` (0..1) if one is given."""
    body = _unlike(rng, behind, 130, hue)
    accent = _unlike(rng, np.array(body), 160)
    red, green, blue = (int(level * 0.25) + (0 if sum(body) > 330 else 180) for level in body)
    return Paint(body=body, accent=accent, detail=(red, green, blue))


def _unlike(rng: np.random.Generator, other: npt.NDArray[np.generic], least: float, near: float | None = None) -> RGB:
    """A random colour, after some attempts at one that differs from another by so many levels."""
    for _ in range(7):
        vivid = near is not None or rng.random() < 0.5  # the others: wood, clay, straw, stone
        hue = rng.normal(near, 0.05) if near is not None else rng.random() if vivid else rng.normal(0.08, 0.07)
        saturation = rng.uniform(0.35, 0.8) if vivid else rng.uniform(0.05, 0.5)
        red, green, blue = (int(c * 255) for c in colorsys.hsv_to_rgb(hue % 1.0, saturation, rng.uniform(0.3, 0.95)))
        if np.abs(np.array((red, green, blue)) - other).sum() > least:
            break
    return red, green, blue


def place(
    rng: np.random.Generator,
    pixels: Field,
    shape: Shape,
    centre_px: tuple[float, float],
    extent_px: float,
    *,
    angle_deg: float,
    sun_x: float,
    grounded: bool,
    hue: float | None = None,
) -> Placed | None:
    """Draw `shape` into `pixels` (float32, 0..255), its larger side `extent_px` long, its middle at (x, y).

    `grounded` objects cast a shadow on what lies behind them; others are up in the air. `hue` is their body's, 0..1.

    Returns:
        What of it lies in the image; None for nothing.
    """
    side = int(extent_px * (1 + 2 * _MARGIN)) + 2
    left, top = round(centre_px[0] - side / 2), round(centre_px[1] - side / 2)
    height, width = pixels.shape[:2]
    x0, y0, x1, y1 = max(left, 0), max(top, 0), min(left + side, width), min(top + side, height)
    if x0 >= x1 or y0 >= y1:
        return None
    spot = pixels[y0:y1, x0:x1]
    seen = np.s_[y0 - top : y1 - top, x0 - left : x1 - left]
    paint = draw_paint(rng, spot.mean(axis=(0, 1), dtype=np.float64), hue)
    colours, mask, ends = _drawn(rng, shape, side, extent_px, angle_deg, paint)
    if grounded:
        away = extent_px * 0.07
        blurred = np.asarray(mask.filter(ImageFilter.GaussianBlur(extent_px * 0.045)), dtype=np.float32)
        shadow = np.roll(blurred, (round(away), round(-away * sun_x)), axis=(0, 1))
        spot *= (1.0 - 0.5 / 255 * shadow[seen])[:, :, None]
    solid = _shaded(rng, colours, mask, extent_px, sun_x)
    alpha = np.asarray(mask, dtype=np.float32)[seen][:, :, None] * np.float32(1 / 255)
    spot += (solid[seen] - spot) * alpha
    return Placed(left=x0, top=y0, coverage=np.asarray(mask)[seen], ends=np.add(ends, (left, top)))


def _drawn(
    rng: np.random.Generator, shape: Shape, side: int, extent_px: float, angle_deg: float, paint: Paint
) -> tuple[Image.Image, Image.Image, npt.NDArray[np.float64]]:
    """The flat colours (RGB) and the coverage (L), both `side` square; and where the shape's two ends are."""
    every = np.concatenate([part.points for part in shape])
    c, s = np.cos(np.radians(angle_deg)), np.sin(np.radians(angle_deg))
    stretch = np.diag([rng.choice([-1.0, 1.0]) * rng.uniform(0.85, 1.0), rng.uniform(0.85, 1.0)])
    turn = stretch @ np.array([[c, -s], [s, c]])
    turned = every @ turn
    low, high = turned.min(axis=0), turned.max(axis=0)
    scale = extent_px / float((high - low).max()) * _SUPERSAMPLING
    shift = side * _SUPERSAMPLING / 2 - (low + high) / 2 * scale
    large = (side * _SUPERSAMPLING, side * _SUPERSAMPLING)
    colours, mask = Image.new("RGB", large, paint.body), Image.new("L", large, 0)
    on_colours, on_mask = ImageDraw.Draw(colours), ImageDraw.Draw(mask)
    fills = {"body": paint.body, "accent": paint.accent, "detail": paint.detail}
    for part in shape:
        outline = (part.points @ turn * scale + shift).ravel().tolist()
        on_mask.polygon(outline, fill=0 if part.role == "hole" else 255)
        if part.role != "hole":
            on_colours.polygon(outline, fill=fills[part.role])
    ends = turned[[every[:, 0].argmax(), every[:, 0].argmin()]] * scale + shift
    return colours.reduce(_SUPERSAMPLING), mask.reduce(_SUPERSAMPLING), ends / _SUPERSAMPLING


def _shaded(rng: np.random.Generator, colours: Image.Image, mask: Image.Image, extent_px: float, sun_x: float) -> Field:
    """The object's colours with a pattern, rounded edges and light from above."""
    side = colours.width
    solid = np.array(colours, dtype=np.float32)
    thick = max(1.0, extent_px * 0.05)
    relief = np.asarray(mask.filter(ImageFilter.GaussianBlur(thick)), dtype=np.float32) / 255
    down, across = np.gradient(relief)
    gain = 1.0 + np.clip((0.8 * down - 0.5 * sun_x * across) * thick * 0.9, -0.45, 0.4)
    gain *= np.linspace(1.1, 0.88, side, dtype=np.float32)[:, None]
    gain *= 1.0 + rng.uniform(0.02, 0.1) * fractal(rng, side, side, cell_px=max(3.0, extent_px / 5), roughness=0.8)
    solid *= gain.astype(np.float32)[:, :, None]
    return solid
