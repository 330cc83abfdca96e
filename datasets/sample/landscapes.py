"""Backdrops under the open sky: meadow, mountains, shore, dunes."""

import numpy as np

from augpipe.datasets.sample.mood import Mood, Ramp, lit, mixed, mixed_ramp
from augpipe.datasets.sample.textures import (
    Field,
    coloured,
    fractal,
    line,
    receding,
    resized,
    smoothstep,
    streaks,
)

SNOW: Ramp = ((150, 164, 190), (198, 208, 224), (232, 236, 242), (252, 252, 252))
ROCK: Ramp = ((58, 58, 64), (92, 90, 92), (128, 124, 120), (166, 160, 152))


def sky(rng: np.random.Generator, pixels: Field, horizon_px: int, mood: Mood) -> None:
    """Paint a gradient and clouds on the rows above `horizon_px`."""
    width = pixels.shape[1]
    rows = horizon_px // 2 + 1  # at half the size: clouds are soft
    half = width // 2 + 1
    down = np.linspace(0.0, 1.0, rows, dtype=np.float32)[:, None] ** 0.8
    field = streaks(rng, rows, half, cell_px=max(16.0, rows * rng.uniform(0.4, 0.9)), stretch=rng.uniform(1.5, 3.0))
    cover = rng.uniform(-0.9, 1.0)
    thick = smoothstep(-cover, 2.2 - cover, field - 0.6 * down) * rng.uniform(0.6, 1.0)
    lift = max(1, rows // 40)
    shade = 1.0 - 0.1 * np.clip(field - np.roll(field, lift, axis=0) + 0.6 * field, -1.0, 1.6)
    for channel in range(3):
        clear = mood.sky_high[channel] + (mood.sky_low[channel] - mood.sky_high[channel]) * down
        plane = clear + (mood.cloud[channel] * shade - clear) * thick
        pixels[:horizon_px, :, channel] = resized(np.ascontiguousarray(plane), horizon_px, width)


def _fill_below(pixels: Field, edge: Field, colours: Field) -> None:
    """Paint `colours` (the same shape as `pixels`) below the row `edge[x]` of each column, with a smooth edge."""
    top = max(0, int(edge.min()) - 1)
    rows = np.arange(top, pixels.shape[0], dtype=np.float32)[:, None]
    cover = np.clip(rows - edge[None, :] + 0.5, 0.0, 1.0)[:, :, None]
    part = pixels[top:]
    part += (colours[top:] - part) * cover


def _treetops(rng: np.random.Generator, width: int, tall_px: float, *, pointed: bool) -> Field:
    """How far trees rise above a ridge in each column."""
    x = np.arange(width, dtype=np.float32)
    centres = np.sort(rng.uniform(0, width, max(4, int(width / tall_px * 2))))
    rises = rng.uniform(0.4, 1.0, len(centres)) * tall_px
    away = np.abs(x[None, :] - centres[:, None]) / (rises[:, None] * (0.3 if pointed else 0.5))
    profile = 1.0 - away if pointed else np.sqrt(np.clip(1.0 - away**2, 0.0, 1.0))
    tops: Field = (np.clip(profile, 0.0, 1.0) * rises[:, None]).max(axis=0).astype(np.float32)
    return tops * smoothstep(-0.9, -0.3, line(rng, width, cell_px=width / 3))


def _hills(rng: np.random.Generator, pixels: Field, horizon_px: int, mood: Mood, texture: Field) -> None:
    """Rows of hills from far to near, with woods on their ridges, the last of them at about the horizon."""
    height, width = pixels.shape[:2]
    num = int(rng.integers(1, 4))
    pointed = bool(rng.random() < 0.5)
    for i in range(num):
        near = (i + 1) / (num + 1)
        rise = height * rng.uniform(0.03, 0.12) * (1.2 - near)
        edge = horizon_px - height * 0.14 * (1 - near) + rise * line(rng, width, cell_px=width / rng.uniform(1.5, 4))
        if rng.random() < 0.7:
            edge = edge - _treetops(rng, width, height * (0.02 + 0.06 * near), pointed=pointed)
        ramp = mixed_ramp(lit(mood.plants, mood), mood.sky_low, 0.75 * (1 - near) ** 1.2)
        colours = coloured(np.roll(texture, 37 * i, axis=1) - 0.5, ramp, contrast=0.4 + 0.6 * near)
        _fill_below(pixels, np.minimum(edge, horizon_px + 0.02 * height).astype(np.float32), colours)


def meadow(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """Hills, woods and grass, at times with a path; returns the horizon's row."""
    height, width = pixels.shape[:2]
    horizon = int(height * rng.uniform(0.3, 0.58))
    sky(rng, pixels, min(height, horizon + 4), mood)
    texture = fractal(rng, height, width, cell_px=height / 6, roughness=0.72)
    _hills(rng, pixels, horizon, mood, texture)
    edge = horizon + height * 0.025 * line(rng, width, cell_px=width / 2)
    snowy = rng.random() < 0.12
    ramp = SNOW if snowy else lit(mood.plants, mood)
    ground = height - max(0, int(edge.min()) - 1)
    field = np.zeros((height, width), dtype=np.float32)
    blades = resized(fractal(rng, -(-ground // 4), width, cell_px=4.0, roughness=0.9), ground, width)
    field[-ground:] = 0.7 * receding(texture, ground) + 0.4 * texture[-ground:] + 0.45
    field[-ground:] += np.linspace(0.1, 0.55, ground, dtype=np.float32)[:, None] * blades
    colours = coloured(field, ramp, contrast=0.6 if snowy else 0.9)
    if rng.random() < 0.4:
        _path(rng, field, colours, horizon, lit(mood.soil, mood))
    _fill_below(pixels, edge.astype(np.float32), colours)
    return horizon


def _path(rng: np.random.Generator, field: Field, colours: Field, horizon_px: int, ramp: Ramp) -> None:
    """A path that narrows towards the horizon."""
    height, width = field.shape
    near = np.linspace(0.0, 1.0, height - horizon_px, dtype=np.float32)[:, None]
    bend = np.sin(near * rng.uniform(2.0, 5.0) + rng.uniform(0, 6)) * width * 0.08
    centre = width * (rng.uniform(0.3, 0.7) + (rng.uniform(0.2, 0.8) - 0.5) * near) + bend * near
    half = width * (0.01 + rng.uniform(0.08, 0.16) * near)
    away = np.abs(np.arange(width, dtype=np.float32)[None, :] - centre) / half + 0.12 * field[horizon_px:]
    cover = (1.0 - smoothstep(0.85, 1.1, away))[:, :, None]
    part = colours[horizon_px:]
    part += (coloured(field[horizon_px:] * 0.5, ramp) - part) * cover


def mountains(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """Peaks with snow or rock over a valley; returns the horizon's row."""
    height, width = pixels.shape[:2]
    horizon = int(height * rng.uniform(0.45, 0.62))
    sky(rng, pixels, min(height, horizon + 4), mood)
    texture = fractal(rng, height, width, cell_px=height / 5, roughness=0.68)
    rows = np.arange(height, dtype=np.float32)[:, None]
    away = max(1, height // 60)
    relief: Field = np.roll(texture, (-away, round(away * mood.sun_x)), axis=(0, 1)) - texture
    for i, near in enumerate((0.3, 0.6)):
        ridge = -np.abs(line(rng, width, cell_px=width / rng.uniform(2, 3.5), roughness=0.45))
        edge = horizon - height * 0.16 + (ridge + 0.8) * height * rng.uniform(0.07, 0.13) + i * height * 0.07
        lines: Field = 1.1 * np.roll(relief, 91 * i, axis=1) + 0.2
        rock = coloured(lines, mixed_ramp(lit(ROCK, mood), mood.sky_low, 0.6 * (1 - near)))
        snow = coloured(lines + 0.6, mixed_ramp(SNOW, mood.sky_low, 0.5 * (1 - near)), contrast=0.8)
        depth = (rows - edge[None, :]) / (height * rng.uniform(0.06, 0.2)) + 0.35 * texture
        rock += (snow - rock) * (1.0 - smoothstep(0.7, 1.0, depth))[:, :, None]
        _fill_below(pixels, edge.astype(np.float32), rock)
    _hills(rng, pixels, horizon, mood, texture)
    ground = height - horizon
    field = np.zeros((height, width), dtype=np.float32)
    field[horizon:] = 0.7 * receding(texture, ground) + 0.5 * texture[horizon:] + 0.3
    stony = rng.random() < 0.4
    colours = coloured(field, lit(mood.soil if stony else mood.plants, mood), contrast=0.8)
    _fill_below(pixels, np.full(width, horizon, dtype=np.float32), colours)
    return horizon


def shore(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """A lake or the sea, with sand in front; returns the horizon's row."""
    height, width = pixels.shape[:2]
    horizon = int(height * rng.uniform(0.28, 0.5))
    sky(rng, pixels, horizon, mood)
    if rng.random() < 0.7:
        texture = fractal(rng, height, width, cell_px=height / 8, roughness=0.7)
        _hills(rng, pixels[:horizon], horizon, mood, texture[:horizon])
    depth = height - horizon
    waves = receding(streaks(rng, depth, width, cell_px=depth / 10, stretch=6.0), depth, strength=10.0)
    near = np.linspace(0.0, 1.0, depth, dtype=np.float32)[:, None]
    deep = mixed(mood.sky_high, (24, 84, 92), rng.uniform(0.3, 0.8))
    flatter = min(0.8, (horizon - 1) / depth)
    mirrored = horizon - 1 - (np.arange(depth) * flatter).astype(np.int32)
    water = pixels[mirrored] * (0.75 - 0.4 * near)[:, :, None]
    water += np.array(deep, dtype=np.float32) * (0.25 + 0.4 * near)[:, :, None]
    water *= (1.0 + 0.13 * waves)[:, :, None]
    water += 70.0 * smoothstep(1.3, 2.6, waves)[:, :, None]
    pixels[horizon:] = water
    if rng.random() < 0.7:
        _beach(rng, pixels, horizon, mood)
    return horizon


def _beach(rng: np.random.Generator, pixels: Field, horizon_px: int, mood: Mood) -> None:
    height, width = pixels.shape[:2]
    slope = rng.uniform(-0.18, 0.18) * height * np.linspace(-1.0, 1.0, width)
    edge = horizon_px + (height - horizon_px) * rng.uniform(0.35, 0.7) + slope
    edge = np.maximum(edge + height * 0.015 * line(rng, width, cell_px=width / 3), horizon_px + 4).astype(np.float32)
    sand = 0.5 * fractal(rng, height, width, cell_px=height / 8, roughness=0.85)
    colours = coloured(sand, lit(((150, 124, 90), (196, 170, 130), (220, 198, 160), (240, 224, 194)), mood))
    rows = np.arange(height, dtype=np.float32)[:, None]
    beyond = (rows - edge[None, :]) / (height * 0.05)
    colours *= (0.68 + 0.32 * smoothstep(0.0, 1.2, beyond))[:, :, None]  # wet sand is darker
    _fill_below(pixels, edge, colours)
    foam = np.clip(1.0 - np.abs(beyond + 0.1) * 3.0 + 0.25 * sand, 0.0, 1.0)[:, :, None]
    pixels += (np.array((246, 248, 250), dtype=np.float32) * np.array(mood.light, dtype=np.float32) - pixels) * foam


def dunes(rng: np.random.Generator, pixels: Field, mood: Mood) -> int:
    """Sand hills with wind ripples; returns the horizon's row."""
    height, width = pixels.shape[:2]
    horizon = int(height * rng.uniform(0.3, 0.5))
    sky(rng, pixels, min(height, horizon + 4), mood)
    ramp = lit(((132, 84, 46), (190, 134, 78), (220, 170, 110), (244, 208, 156)), mood)
    ripples = streaks(rng, height, width, cell_px=height / 28, stretch=7.0)
    grain = fractal(rng, height, width, cell_px=6.0, roughness=0.9)
    rows = np.arange(height, dtype=np.float32)[:, None]
    num = int(rng.integers(3, 6))
    for i in range(num):
        near = i / (num - 1)
        middle = horizon + (height - horizon) * 0.75 * near**1.3
        rise = height * (0.03 + 0.07 * near)
        edge = middle + rise * line(rng, width, cell_px=width / rng.uniform(1.2, 2.5), roughness=0.25)
        edge = np.minimum(edge, horizon) if i == 0 else edge
        side = np.clip(np.gradient(edge) * mood.sun_x * 2.5, -1.4, 1.4)[None, :]
        below = np.clip((rows - edge[None, :]) / (height * 0.22), 0.0, 1.0)
        field = side * (1.0 - below) ** 2 - 0.5 * below + 0.4 + (0.15 + 0.4 * near) * ripples + 0.2 * near * grain
        _fill_below(pixels, edge.astype(np.float32), coloured(field, mixed_ramp(ramp, mood.sky_low, 0.5 * (1 - near))))
    return horizon
