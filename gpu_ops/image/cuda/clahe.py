"""Contrast-limited adaptive histogram equalization in the CUDA loop, in steps that the caller waits for in between.

`plane` holds a byte a pixel, `counts` behind it 256 int32 a tile: how often each level occurs, and then the new level.
"""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import (
    add_to,
    load_changing_f32,
    load_changing_i32,
    load_changing_u8,
    store_f32,
    store_i32,
    store_u8,
)
from augpipe.gpu_ops.image import clahe, lab, neighbours, tone
from augpipe.gpu_ops.image.lab import LIGHT, LIGHTNESS

mirrored, nearest_level = shared(neighbours.mirrored), shared(tone.nearest_level)
tile_side, most_counted, table_entry = shared(clahe.tile_side), shared(clahe.most_counted), shared(clahe.table_entry)
place_among, between = shared(clahe.place_among), shared(clahe.between)
roots, brightness, relit = shared(lab.roots), shared(lab.brightness), shared(lab.relit)

LEVELS = 256


def copied_bytes(num_tiles: int, num_pixels: int) -> int:
    """Bytes that an image takes in addition to its levels; a multiple of 4."""
    return 4 * (-(-num_pixels // 4) + LEVELS * num_tiles)


@function("int32")
def level_at(address):
    """The nearest level of what lies there."""
    return np.int32(nearest_level(load_changing_f32(address)))


@function("uint32")
def lightness_at(address, channel_step):
    """The nearest level of a pixel's lightness."""
    red, green = LIGHT[level_at(address)], LIGHT[level_at(address + 4 * channel_step)]
    return np.uint32(LIGHTNESS[brightness(red, green, LIGHT[level_at(address + 8 * channel_step)])])


@function("float32", "float32", "float32")
def roots_at(address, channel_step):
    """What L*, a* and b* of a pixel are sums of."""
    red, green = np.float32(level_at(address)), np.float32(level_at(address + 4 * channel_step))
    x, y, z = roots(red, green, np.float32(level_at(address + 8 * channel_step)))
    return np.float32(x), np.float32(y), np.float32(z)


@function()
def take_lightness(start, plane, counts, num_tiles, num_pixels, pixel_step, channel_step, thread, num_threads):
    """Write the nearest level of each pixel's lightness, and set all counts to 0."""
    for pixel in range(thread, num_pixels, num_threads):
        store_u8(plane + pixel, lightness_at(start + 4 * pixel * pixel_step, channel_step))
    for nth in range(thread, LEVELS * num_tiles, num_threads):
        store_i32(counts + 4 * nth, np.int32(0))


@function()
def count(plane, counts, num_down, num_across, height, width, thread, num_threads):
    """Count how often each level occurs in each tile."""
    side_y = tile_side(height, num_down, width, num_across)
    side_x = tile_side(width, num_across, height, num_down)
    padded = num_across * side_x
    for nth in range(thread, num_down * side_y * padded, num_threads):
        x, y = nth % padded, nth // padded
        level = load_changing_u8(plane + mirrored(y, height) * width + mirrored(x, width))
        tile = y // side_y * num_across + x // side_x
        add_to(counts + 4 * (LEVELS * tile + np.int64(level)), np.int32(1))


@function()
def make_tables(counts, clip_limit, num_tiles, area, thread, num_threads):
    """Clip the counts of each tile, spread the rest evenly, and put new levels in their place."""
    most = np.int64(most_counted(clip_limit, area))
    for tile in range(thread, num_tiles, num_threads):
        at, excess = counts + 4 * LEVELS * tile, np.int64(0)
        for level in range(LEVELS):
            excess += max(np.int64(load_changing_i32(at + 4 * level)) - most, np.int64(0))
        spread, rest = excess // LEVELS, excess % LEVELS
        step = max(LEVELS // max(rest, np.int64(1)), np.int64(1))
        num_seen = np.int64(0)
        for level in range(LEVELS):
            num_seen += min(np.int64(load_changing_i32(at + 4 * level)), most) + spread
            if level % step == 0 and level // step < rest:
                num_seen += 1
            store_i32(at + 4 * level, np.int32(table_entry(num_seen, area)))


@function("float32")
def entry(counts, tile, level):
    """What a tile's table makes of a level."""
    return np.float32(load_changing_i32(counts + 4 * (LEVELS * tile + level)))


@function()
def relight(start, plane, counts, num_down, num_across, height, width, pixel_step, channel_step, thread, num_threads):
    """Give each pixel the lightness that lies between the tables of the tiles about it."""
    side_y = tile_side(height, num_down, width, num_across)
    side_x = tile_side(width, num_across, height, num_down)
    for pixel in range(thread, height * width, num_threads):
        at_x, at_y = np.float32(place_among(pixel % width, side_x)), np.float32(place_among(pixel // width, side_y))
        before, above = np.int64(at_x + np.float32(1.0)) - 1, np.int64(at_y + np.float32(1.0)) - 1
        left, right = max(before, np.int64(0)), min(before + 1, num_across - 1)
        upper, lower = max(above, np.int64(0)) * num_across, min(above + 1, num_down - 1) * num_across
        level, part_x = np.int64(load_changing_u8(plane + pixel)), at_x - np.float32(before)
        high = np.float32(between(entry(counts, upper + left, level), entry(counts, upper + right, level), part_x))
        low = np.float32(between(entry(counts, lower + left, level), entry(counts, lower + right, level), part_x))
        new = np.float32(between(high, low, at_y - np.float32(above)))
        address = start + 4 * pixel * pixel_step
        root_x, root_y, root_z = roots_at(address, channel_step)
        red, green, blue = relit(root_x, root_y, root_z, new)
        store_f32(address, np.float32(red))
        store_f32(address + 4 * channel_step, np.float32(green))
        store_f32(address + 8 * channel_step, np.float32(blue))
