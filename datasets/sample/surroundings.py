"""Backdrops that people made or that are seen from near: a street, a wall, a table, pebbles, grass."""

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from augpipe.datasets.sample.landscapes import sky
from augpipe.datasets.sample.mood import Colour, Mood, Ramp, lit, mixed
from augpipe.datasets.sample.textures import Field, coloured, fractal, receding, streaks

WALLS: tuple[Colour, ...] = (
    (196, 178, 150),
    (176, 112, 88),
    (206, 198, 184),
    (148, 152, 156),
    (214, 184, 128),
    (136, 160, 166),
    (188, 140, 128),
    (112, 100, 96),
)
WOODS: tuple[Ramp, ...] = (
    ((78, 48, 26), (124, 80, 46), (160, 110, 68), (190, 144, 98)),
    ((120, 92, 60), (168, 134, 92), (198, 166, 122), (222, 196, 156)),
    ((48, 34, 28), (76, 56, 44), (102, 78, 62), (132, 106, 86)),
    ((150, 144, 136), (184, 178, 170), (206, 202, 194), (226, 222, 216)),
)


def _as_colour(colour: Colour) -> tuple[int, int, int]:
    red, green, blue = (int(min(max(value, 0.0), 255.0)) for value in colour)
    return red, green, blue


def _scaled(colour: Colour, by: float) -> Colour:
    return colour[0] * by, colour[1] * by, colour[2] * by


def _sheet(pixels: Field) -> Image.Image:
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def street(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """A row of houses behind a pavement; returns the row where they stand."""
    height, width = pixels.shape[:2]
    foot = int(height * rng.uniform(0.5, 0.68))
    sky(rng, pixels, foot, mood)
    sheet = _sheet(pixels)
    draw = ImageDraw.Draw(sheet)
    x = -int(rng.integers(0, width // 6))
    while x < width:
        wide = int(height * rng.uniform(0.16, 0.34))
        _house(rng, draw, x, foot, wide, int(foot * rng.uniform(0.4, 0.88)), mood)
        x += wide
    pixels[:] = np.asarray(sheet)
    texture = fractal(rng, height, width, cell_px=height / 10, roughness=0.8)
    pixels[:foot] *= (1.0 + 0.045 * texture[:foot])[:, :, None]
    ground = height - foot
    field = 0.5 * receding(texture, ground) + 0.4 * texture[foot:]
    pixels[foot:] = coloured(field, lit(mood.soil, mood), contrast=0.7)
    kerb = foot + max(2, ground // 6)
    pixels[foot:kerb] *= 1.12
    pixels[kerb : kerb + max(2, ground // 40)] *= 0.6
    return foot


def _house(
    rng: np.random.Generator, draw: ImageDraw.ImageDraw, left: int, foot: int, wide: int, tall: int, mood: Mood
) -> None:
    wall = lit((WALLS[int(rng.integers(len(WALLS)))],), mood)[0]
    wall = _scaled(wall, rng.uniform(0.8, 1.1))
    right, top = left + wide, foot - tall
    draw.rectangle((left, top, right, foot), fill=_as_colour(wall))
    roof = _as_colour(_scaled((150, 82, 62) if rng.random() < 0.5 else (92, 92, 100), rng.uniform(0.7, 1.1)))
    if rng.random() < 0.6:
        peak = top - int(wide * rng.uniform(0.15, 0.4))
        draw.polygon(
            [(left - 2, top), (right + 2, top), (left + wide * 0.7, peak), (left + wide * 0.3, peak)], fill=roof
        )
    else:
        draw.rectangle((left, top - max(2, wide // 20), right, top), fill=roof)
    shadow = (left, top, left + wide * 0.06, foot) if mood.sun_x > 0 else (right - wide * 0.06, top, right, foot)
    draw.rectangle(shadow, fill=_as_colour(_scaled(wall, 0.75)))
    columns = int(rng.integers(2, 5))
    step = wide / (columns + 0.5)
    storey = step * rng.uniform(1.2, 1.6)
    floors = max(1, int((tall - 0.2 * step) / storey))
    frame = _as_colour(_scaled(wall, 1.25))
    for floor in range(floors):
        for column in range(columns):
            x = left + step * (column + 0.5)
            y = foot - tall + storey * (floor + 0.3)
            glass = mixed((44, 54, 70), mood.sky_low, float(rng.uniform(0.0, 0.6)))
            glass = (240, 206, 130) if rng.random() < 0.08 else glass
            draw.rectangle((x - 1, y - 1, x + step * 0.55 + 1, y + storey * 0.55 + 1), fill=frame)
            draw.rectangle((x, y, x + step * 0.55, y + storey * 0.55), fill=_as_colour(glass))
            draw.line((x + step * 0.27, y, x + step * 0.27, y + storey * 0.55), fill=frame)
    door = left + step * (0.5 + int(rng.integers(columns)))
    draw.rectangle(
        (door, foot - storey * 0.75, door + step * 0.55, foot), fill=_as_colour(_scaled(wall, rng.uniform(0.3, 0.6)))
    )


def brick_wall(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """A wall of bricks, at times over paving; returns 0, for things may hang on it anywhere."""
    height, width = pixels.shape[:2]
    foot = int(height * rng.uniform(0.7, 1.05))
    foot = height if foot > height * 0.95 else foot
    course = max(8, int(height * rng.uniform(0.035, 0.075)))
    long = int(course * rng.uniform(2.0, 2.8))
    base = _scaled(WALLS[int(rng.choice([0, 1, 3, 6, 7]))], rng.uniform(0.75, 0.95))
    mortar = _as_colour(lit((mixed(base, (200, 196, 188), 0.6),), mood)[0])
    sheet = Image.new("RGB", (width, foot), mortar)
    draw = ImageDraw.Draw(sheet)
    gap = max(1, course // 9)
    for row, y in enumerate(range(0, foot, course)):
        starts = range(-(row % 2) * long // 2, width, long)
        tones = rng.normal(1.0, 0.09, len(starts))
        for x, tone in zip(starts, tones, strict=True):
            brick = lit((_scaled(base, float(tone)),), mood)[0]
            draw.rectangle((x, y, x + long - gap - 1, y + course - gap - 1), fill=_as_colour(brick))
    texture = fractal(rng, height, width, cell_px=height / 3, roughness=0.8)
    pixels[:foot] = np.asarray(sheet)
    pixels[:foot] *= (0.9 + 0.055 * texture[:foot])[:, :, None]
    if foot < height:
        field = 0.5 * receding(texture, height - foot, strength=3.0) + 0.4 * texture[foot:]
        pixels[foot:] = coloured(field, lit(mood.soil, mood), contrast=0.7)
        pixels[foot : foot + max(2, height // 60)] *= 0.6
    return 0


def table(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """A wooden table before a painted wall; returns the row of the table's far edge."""
    height, width = pixels.shape[:2]
    edge = int(height * rng.uniform(0.0, 0.4))
    edge = 0 if edge < height * 0.12 else edge
    wall = lit((WALLS[int(rng.integers(len(WALLS)))],), mood)[0]
    if edge:
        plaster = fractal(rng, edge, width, cell_px=edge, roughness=0.7)
        pixels[:edge] = np.array(wall, dtype=np.float32) * (1.0 + 0.05 * plaster)[:, :, None]
        pixels[max(0, edge - height // 14) : edge] *= 0.86  # a skirting board
    depth = height - edge
    ramp = lit(WOODS[int(rng.integers(len(WOODS)))], mood)
    field = streaks(rng, depth, width, cell_px=depth / 9, stretch=rng.uniform(9.0, 16.0))
    plank = max(24, int(depth * rng.uniform(0.12, 0.3)))
    rows = np.arange(depth) + int(rng.integers(plank))
    tones = rng.normal(0.0, 0.5, int(rows[-1]) // plank + 1).astype(np.float32)[rows // plank]
    pixels[edge:] = coloured(0.75 * field + tones[:, None], ramp)
    joint = rows % plank < max(1, plank // 45)
    pixels[edge:][joint] *= 0.55
    if edge:
        pixels[edge : edge + max(2, height // 90)] *= 1.2
    return edge


def pebbles(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """A beach of pebbles seen from above; returns 0, for the ground is everywhere."""
    height, width = pixels.shape[:2]
    side = min(height, width) * rng.uniform(0.06, 0.12)
    ramp = np.array(lit(mood.soil, mood))
    sheet = Image.new("RGB", (width, height), _as_colour(_scaled(tuple(ramp[0]), 0.5)))
    draw = ImageDraw.Draw(sheet)
    turns = np.linspace(0.0, 2 * np.pi, 12, endpoint=False)
    rows, columns = np.mgrid[0 : height + side : side * 0.62, 0 : width + side : side * 0.72]
    order = rng.permutation(rows.size)
    for y, x in zip(rows.ravel()[order], columns.ravel()[order], strict=True):
        cx, cy = x + rng.normal(0, side * 0.2), y + rng.normal(0, side * 0.2)
        big, flat, tilt = side * rng.uniform(0.4, 0.72), rng.uniform(0.6, 0.95), rng.uniform(0, np.pi)
        u, v = big * np.cos(turns), big * flat * np.sin(turns)
        outline = np.column_stack([u * np.cos(tilt) - v * np.sin(tilt), u * np.sin(tilt) + v * np.cos(tilt)])
        tone = ramp[int(rng.integers(1, 4))] * rng.uniform(0.8, 1.15) + rng.normal(0, 9, 3)
        for gain, size, shift in ((0.45, 1.0, 0.1), (0.86, 1.0, 0.0), (1.02, 0.8, -0.07)):  # shadow, stone, lit top
            moved = outline * size + (cx - shift * side * mood.sun_x, cy + shift * side)
            draw.polygon(moved.ravel().tolist(), fill=_as_colour(tuple((tone * gain).tolist())))
    pixels[:] = np.asarray(sheet.filter(ImageFilter.GaussianBlur(side * 0.02 + 0.4)))
    pixels *= (1.0 + 0.07 * fractal(rng, height, width, cell_px=side, roughness=0.9))[:, :, None]
    return 0


def grass(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """Blades of grass seen from above, with small flowers; returns 0, for the ground is everywhere."""
    height, width = pixels.shape[:2]
    texture = fractal(rng, height, width, cell_px=min(height, width) / 3, roughness=0.7)
    ramp = lit(mood.plants, mood)
    pixels[:] = coloured(texture - 0.7, ramp)
    sheet = _sheet(pixels)
    draw = ImageDraw.Draw(sheet)
    long = min(height, width) * rng.uniform(0.06, 0.13)
    num = int(2000 * rng.uniform(0.7, 1.2))
    x, y = rng.uniform(0, width, num), rng.uniform(0, height + long, num)
    order = np.argsort(y)
    lean, length = rng.normal(0.0, 0.5, num), long * rng.uniform(0.5, 1.2, num)
    tone = rng.normal(0.5, 0.8, num) + 0.9 * np.linspace(-0.5, 0.8, num)[np.argsort(order)]
    colours = np.clip(coloured(tone.astype(np.float32)[None, :], ramp)[0], 0, 255).astype(np.uint8)
    thick = max(1, round(long / 14))
    for i in order:
        tip = (x[i] + lean[i] * length[i], y[i] - length[i])
        middle = (x[i] + lean[i] * length[i] * 0.3, y[i] - length[i] * 0.55)
        draw.line([(x[i], y[i]), middle, tip], fill=tuple(colours[i].tolist()), width=thick)
    if rng.random() < 0.6:
        _sprinkle(rng, draw, width, height, long)
    pixels[:] = np.asarray(sheet.filter(ImageFilter.GaussianBlur(0.6)))
    pixels *= (1.0 + 0.08 * texture)[:, :, None]
    return 0


def _sprinkle(rng: np.random.Generator, draw: ImageDraw.ImageDraw, width: int, height: int, long: float) -> None:
    """Daisies and the like: dots too small to be taken for an object."""
    tint = ((250, 248, 240), (248, 214, 80), (206, 150, 210), (236, 120, 110))[int(rng.integers(4))]
    for _ in range(int(rng.integers(8, 40))):
        x, y, r = rng.uniform(0, width), rng.uniform(0, height), long * rng.uniform(0.05, 0.1)
        draw.ellipse((x - r, y - r * 0.8, x + r, y + r * 0.8), fill=tint)
