"""What an image may show behind its objects: a landscape, a wall, a table, the ground from above."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from augpipe.datasets.synthetic.mood import Colour, Mood, Ramp, mixed, scaled
from augpipe.datasets.synthetic.textures import Field, coloured, fractal, streaks

Backdrop = Callable[[np.random.Generator, Field, Mood], int]

SNOW: Ramp = ((150, 164, 190), (198, 208, 224), (232, 236, 242), (252, 252, 252))
ROCK: Ramp = ((58, 58, 64), (92, 90, 92), (128, 124, 120), (196, 194, 190))
WATER: Ramp = ((16, 52, 72), (38, 92, 112), (84, 138, 156), (196, 216, 222))
WALLS: Ramp = ((196, 178, 150), (176, 112, 88), (206, 198, 184), (148, 152, 156), (214, 184, 128), (136, 160, 166))
WOODS: tuple[Ramp, ...] = (
    ((78, 48, 26), (124, 80, 46), (160, 110, 68), (190, 144, 98)),
    ((120, 92, 60), (168, 134, 92), (198, 166, 122), (222, 196, 156)),
    ((48, 34, 28), (76, 56, 44), (102, 78, 62), (132, 106, 86)),
)


def landscape(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """Hills or mountains under a sky, before them water or not, and the ground; returns the horizon's row."""
    height, width = pixels.shape[:2]
    horizon = int(height * rng.uniform(0.3, 0.58))
    _sky(rng, pixels, horizon + height // 10, mood)
    texture = fractal(rng, height, width, cell_px=height / 6, roughness=0.72)
    ramp, steep = ((ROCK, 0.13), (mood.plants, 0.05))[int(rng.random() < 0.7)]
    num = int(rng.integers(1, 4))
    for number in range(num):
        near = (number + 1) / (num + 1)
        edge = horizon - height * 0.16 * (1 - near)
        edge = edge + height * steep * (1.3 - near) * fractal(rng, 1, width, cell_px=width / rng.uniform(1.5, 4.0))[0]
        hazy = tuple(mixed(colour, mood.sky_low, 0.75 * (1 - near)) for colour in ramp)
        _fill_below(pixels, np.minimum(edge, horizon), coloured(np.roll(texture, 37 * number, axis=1), hazy))
    front = horizon
    if rng.random() < 0.4:
        waves = streaks(rng, height, width, cell_px=height / 20, stretch=7.0)
        tinted = tuple(mixed(colour, mood.sky_low, 0.35) for colour in WATER)
        _fill_below(pixels, np.full(width, horizon), coloured(waves, tinted, contrast=0.6))
        front += int((height - horizon) * rng.uniform(0.3, 0.7))
    ground = (mood.plants, mood.plants, mood.soil, SNOW)[int(rng.choice(4, p=(0.3, 0.3, 0.3, 0.1)))]
    grain = streaks(rng, height, width, cell_px=6.0, stretch=2.0)
    edge = front + 0.02 * height * fractal(rng, 1, width, cell_px=width / 2)[0]
    _fill_below(pixels, edge, coloured(0.6 * texture + 0.5 * grain, ground, contrast=0.8))
    return horizon


def brick_wall(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """A wall of bricks; returns 0, for things may hang on it anywhere."""
    height, width = pixels.shape[:2]
    course = max(8, int(height * rng.uniform(0.035, 0.075)))
    long = int(course * rng.uniform(2.0, 2.8))
    base = scaled(WALLS[int(rng.integers(len(WALLS)))], rng.uniform(0.7, 0.95))
    sheet = Image.new("RGB", (width, height), _as_levels(mixed(base, (200, 196, 188), 0.6)))
    draw = ImageDraw.Draw(sheet)
    gap = max(1, course // 9)
    for row, y in enumerate(range(0, height, course)):
        for x in range(-(row % 2) * long // 2, width, long):
            brick = _as_levels(scaled(base, float(rng.normal(1.0, 0.09))))
            draw.rectangle((x, y, x + long - gap - 1, y + course - gap - 1), fill=brick)
    pixels[:] = np.asarray(sheet)
    pixels *= (1.0 + 0.055 * fractal(rng, height, width, cell_px=height / 3, roughness=0.8))[:, :, None]
    return 0


def table(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """A wooden table, at times before a painted wall; returns the row of the table's far edge."""
    height, width = pixels.shape[:2]
    edge = max(0, int(height * rng.uniform(-0.2, 0.4)))
    pixels[:edge] = WALLS[int(rng.integers(len(WALLS)))]
    depth = height - edge
    field = streaks(rng, depth, width, cell_px=depth / 9, stretch=rng.uniform(9.0, 16.0))
    plank = max(24, int(depth * rng.uniform(0.12, 0.3)))
    rows = np.arange(depth)
    tones = rng.normal(0.0, 0.5, depth // plank + 1).astype(np.float32)[rows // plank]
    pixels[edge:] = coloured(0.75 * field + tones[:, None], WOODS[int(rng.integers(len(WOODS)))])
    pixels[edge:][rows % plank < max(1, plank // 45)] *= 0.55
    return edge


def ground(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """Blades of grass or pebbles seen from above; returns 0, for the ground is everywhere."""
    height, width = pixels.shape[:2]
    is_grass = rng.random() < 0.6
    ramp = mood.plants if is_grass else mood.soil
    texture = fractal(rng, height, width, cell_px=min(height, width) / 3, roughness=0.75)
    pixels[:] = coloured(texture - 0.7, ramp)
    sheet = _as_image(pixels)
    draw = ImageDraw.Draw(sheet)
    size = min(height, width) * rng.uniform(0.05, 0.1)
    num = 1600 if is_grass else int(2.0 * height * width / size**2)
    for y in np.sort(rng.uniform(0, height + size, num)):
        x, lean, long = rng.uniform(0, width), rng.normal(0.0, 0.5), size * rng.uniform(0.5, 1.2)
        tone = ramp[int(rng.integers(1, 4))]
        if is_grass:
            draw.line((x, y, x + lean * long, y - long), fill=_as_levels(tone), width=max(1, round(size / 14)))
        else:
            for gain, shift in ((0.45, 0.1), (rng.uniform(0.8, 1.15), 0.0)):  # shadow, stone
                cx, cy = x - shift * size * mood.sun_x, y + shift * size
                box = (cx - 0.5 * long, cy - 0.4 * long, cx + 0.5 * long, cy + 0.4 * long)
                draw.ellipse(box, fill=_as_levels(scaled(tone, gain)))
    pixels[:] = np.asarray(sheet.filter(ImageFilter.GaussianBlur(0.6)))
    pixels *= (1.0 + 0.08 * texture)[:, :, None]
    return 0


BACKDROPS: dict[Backdrop, float] = {landscape: 0.5, brick_wall: 0.14, table: 0.16, ground: 0.2}
"""Each with its share of the images."""


def _sky(rng: np.random.Generator, pixels: Field, rows: int, mood: Mood) -> None:
    """Paint a gradient and clouds on the first `rows`."""
    down = np.linspace(0.0, 1.0, rows, dtype=np.float32)[:, None] ** 0.8
    field = streaks(rng, rows, pixels.shape[1], cell_px=max(16.0, rows * rng.uniform(0.4, 0.9)), stretch=2.0)
    cover = np.clip(0.4 * (field + rng.uniform(-1.2, 0.6)), 0.0, 0.9)
    for channel in range(3):
        clear = mood.sky_high[channel] + (mood.sky_low[channel] - mood.sky_high[channel]) * down
        cloud = 0.5 * mood.sky_low[channel] + 124.0 - 8.0 * field
        pixels[:rows, :, channel] = clear + (cloud - clear) * cover


def _fill_below(pixels: Field, edge: np.ndarray, colours: Field) -> None:
    """Paint `colours` (the same shape as `pixels`) below the row `edge[x]` of each column, with a smooth edge."""
    top = max(0, int(edge.min()) - 1)
    rows = np.arange(top, pixels.shape[0], dtype=np.float32)[:, None]
    cover = np.clip(rows - edge.astype(np.float32)[None, :] + 0.5, 0.0, 1.0)[:, :, None]
    pixels[top:] += (colours[top:] - pixels[top:]) * cover


def _as_levels(colour: Colour) -> tuple[int, int, int]:
    red, green, blue = (int(min(max(value, 0.0), 255.0)) for value in colour)
    return red, green, blue


def _as_image(pixels: Field) -> Image.Image:
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
