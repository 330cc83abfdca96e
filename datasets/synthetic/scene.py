"""One image of the sample dataset: a backdrop, things that lie about, the objects of its class, and the light."""

import numpy as np
from PIL import Image, ImageFilter

from augpipe.datasets.synthetic import shapes
from augpipe.datasets.synthetic.backdrops import BACKDROPS
from augpipe.datasets.synthetic.mood import Mood, draw_mood
from augpipe.datasets.synthetic.sprites import Placed, place
from augpipe.datasets.synthetic.textures import Field

_UPRIGHT = frozenset({"bird", "fish", "butterfly"})
"""Kinds that lean by a few degrees only; the others may lie at any angle."""
_IN_THEIR_COLOUR = 0.75
"""How often an object has about the hue of its kind, as birds and fruit do; else, and for distractors, any colour."""
_HUE_STEP = 0.3819660112501051
"""From one kind's hue to the next: the golden section spreads any number of them evenly."""
_SHAPES_OF_IMAGES = (4 / 3, 3 / 2, 1.0, 16 / 9, 3 / 4, 2 / 3, 5 / 4)
"""Width to height, the frequent ones first."""


def draw_scene(seed: int, index: int, kind: str) -> Image.Image:
    """The image of `draw_scene_with_objects`."""
    return draw_scene_with_objects(seed, index, kind)[0]


def draw_scene_with_objects(seed: int, index: int, kind: str) -> tuple[Image.Image, list[Placed]]:
    """The image number `index` of `seed`, and the objects of `kind` that it shows; a pure function of the three.

    Sizes vary: short side about 180..750 px, long side up to 1000 px. Where the objects lie, how large they are and
    all else in the image is the same for every kind: each of the three parts draws from a stream of its own.
    """
    streams = np.random.SeedSequence([seed, index]).spawn(3)
    rng, on_objects, on_light = (np.random.Generator(np.random.Philox(stream)) for stream in streams)
    height, width = _size(rng)
    mood = draw_mood(rng)
    pixels = np.zeros((height, width, 3), dtype=np.float32)
    backdrop = list(BACKDROPS)[int(rng.choice(len(BACKDROPS), p=list(BACKDROPS.values())))]
    horizon = backdrop(rng, pixels, mood)
    objects = _scatter(rng, on_objects, pixels, mood, horizon, kind)
    return _imageed(on_light, pixels), objects


def _size(rng: np.random.Generator) -> tuple[int, int]:
    ratio = _SHAPES_OF_IMAGES[int(rng.choice(len(_SHAPES_OF_IMAGES), p=(0.3, 0.22, 0.1, 0.1, 0.12, 0.08, 0.08)))]
    ratio *= np.exp(rng.normal(0.0, 0.02))
    short = 180 + 570 * rng.beta(1.6, 2.4)
    short = min(short, 1000 / max(ratio, 1 / ratio))
    return (round(short), round(short * ratio)) if ratio >= 1 else (round(short / ratio), round(short))


def _extent(rng: np.random.Generator, width: int) -> float:
    """An object's larger side in px: in every third image 4 to 12 % of the width, in another third over 30 %."""
    share = rng.random()
    low, high = (0.04, 0.12) if share < 0.33 else (0.12, 0.3) if share < 0.67 else (0.3, 0.55)
    return max(14.0, width * float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def _scatter(
    rng: np.random.Generator, on_objects: np.random.Generator, pixels: Field, mood: Mood, horizon_px: int, kind: str
) -> list[Placed]:
    """Draw the distractors, then the objects over them, without hiding one behind another; returns the objects."""
    height, width = pixels.shape[:2]
    num_distractors = int(rng.integers(1, 6))
    extent = _extent(rng, min(width, round(1.3 * height)))
    num_objects = 1 + int(rng.integers(0, 3)) * (extent < 0.15 * width)
    sizes = [_extent(rng, width) * 0.6 for _ in range(num_distractors)]
    sizes = [min(size, 0.2 * width) for size in sizes] + [extent * rng.uniform(0.85, 1.15) for _ in range(num_objects)]
    spots: list[tuple[float, float, float]] = []
    for number, size in reversed(list(enumerate(sizes))):  # the objects choose their places first
        share_low = 1.0 if number < num_distractors else 0.75
        spot = _free_spot(rng, height, width, horizon_px, size, spots, share_low=share_low)
        if spot is not None:
            spots.append((*spot, size))
        elif number >= num_distractors and not spots:
            spots.append((width / 2, height / 2, size))
    num_objects = max(1, min(num_objects, len(spots)))
    objects = []
    for number, (x, y, size) in reversed(list(enumerate(spots))):
        hue = None
        if number < num_objects:
            drawn_by = on_objects
            if on_objects.random() < _IN_THEIR_COLOUR:
                hue = list(shapes.KINDS).index(kind) * _HUE_STEP % 1.0
            shape = shapes.KINDS[kind](on_objects)
            angle = on_objects.normal(0.0, 11.0) if kind in _UPRIGHT else on_objects.uniform(0, 360)
        else:
            drawn_by = rng
            shape = shapes.DISTRACTORS[int(rng.integers(len(shapes.DISTRACTORS)))](rng)
            angle = rng.uniform(0, 360)
        placed = place(
            drawn_by,
            pixels,
            shape,
            (x, y),
            size,
            angle_deg=float(angle),
            sun_x=mood.sun_x,
            grounded=y + size / 2 > horizon_px,
            hue=hue,
        )
        if placed is not None and number < num_objects:
            objects.append(placed)
    return objects


def _free_spot(
    rng: np.random.Generator,
    height: int,
    width: int,
    horizon_px: int,
    size: float,
    taken: list[tuple[float, float, float]],
    *,
    share_low: float,
) -> tuple[float, float] | None:
    """A place inside the image that touches no other, with probability `share_low` on the ground; None if full."""
    margin = 0.55 * size + 2
    for _ in range(20):
        x = rng.uniform(margin, max(margin + 1, width - margin))
        top = horizon_px if rng.random() < share_low else 0
        y = rng.uniform(min(max(margin, top), height - margin - 1), height - margin)
        if all(np.hypot(x - u, y - v) > 0.62 * (size + other) for u, v, other in taken):
            return float(x), float(y)
    return None


def _imageed(rng: np.random.Generator, pixels: Field) -> Image.Image:
    """The scene (float32 of shape (H, W, 3), 0..255) under a light of its own: cast, fall-off, tone curve, grain."""
    height, width = pixels.shape[:2]
    warm, tint = rng.normal(0.0, 0.09), rng.normal(0.0, 0.035)
    cast = np.array([1.0 + warm, 1.0 + tint, 1.0 - warm], dtype=np.float32) * rng.uniform(0.78, 1.22)
    y, x = np.linspace(-1, 1, height, dtype=np.float32)[:, None], np.linspace(-1, 1, width, dtype=np.float32)[None, :]
    gain = (1 - np.float32(rng.uniform(0.0, 0.25)) * (x * x + y * y)) * (1 + np.float32(rng.uniform(-0.28, 0.28)) * x)
    grain = rng.standard_normal((height, width), dtype=np.float32) * np.float32(rng.uniform(0.5, 4.0))
    exposed = np.empty(pixels.shape, dtype=np.uint8)
    for channel in range(3):  # by planes: numpy is slow where the last axis is as short as 3
        exposed[:, :, channel] = np.clip(pixels[:, :, channel] * (gain * cast[channel]) + grain, 0.0, 255.0)
    level = (np.arange(256) / 255) ** np.exp(rng.normal(0.0, 0.16))
    level += rng.uniform(0.0, 0.5) * (level * level * (3 - 2 * level) - level)  # contrast
    image = Image.fromarray(exposed).point(np.round(level * 255).astype(int).tolist() * 3)
    return image.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.0))) if rng.random() < 0.15 else image
