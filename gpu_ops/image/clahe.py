"""Contrast-limited adaptive histogram equalization of a rendered image's lightness, on the CPU: OpenCV's, in place.

The nearest of 256 levels of the lightness is looked up in tables of the four nearest tiles (Zuiderveld, Graphics Gems
IV, 1994), and interpolated between them; OpenCV rounds what comes of it, too. An image that tiles do not fill goes on
as its mirror image.
"""

import numpy as np

from augpipe.gpu_ops.image.lab import LIGHT, LIGHTNESS, brightness, relit, roots
from augpipe.gpu_ops.image.level_rows import load_row, store_levels
from augpipe.gpu_ops.image.neighbours import mirrored
from augpipe.gpu_ops.image.scratch_rows import load_blue, load_green, load_red, store_blue, store_green, store_red
from augpipe.gpu_ops.image.tone import nearest_level
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import prefer_wide_vectors

NUM_LEVELS = 256
HALF, ONE = np.float32(0.5), np.float32(1.0)
WHITE = np.float32(255.0)


@leaf
def tile_side(length, num, other_length, other_num):
    """Pixels of a tile along an axis; as in OpenCV, both axes are filled up where either is not whole tiles."""
    is_whole = length % num == 0 and other_length % other_num == 0
    return length // num if is_whole else length // num + 1


@leaf
def most_counted(clip_limit, area):
    """How often a level may occur in a tile of so many pixels."""
    return max(np.int64(clip_limit * np.float32(area) / np.float32(256.0)), 1)


@leaf
def rounded(value):
    """The nearest whole number of one from 0 on, halves to even ones."""
    floor = np.int32(value)
    rest = value - np.float32(floor)
    return floor + 1 if rest > HALF or (rest == HALF and floor % 2 == 1) else floor


@leaf
def table_entry(num_seen, area):
    """The new level of a pixel that is at most as bright as `num_seen` of a tile's pixels."""
    return min(rounded(np.float32(num_seen) * (WHITE / np.float32(area))), 255)


@leaf
def place_among(position, side):
    """A pixel's place among the centres of tiles."""
    return np.float32(position) * (ONE / np.float32(side)) - HALF


@leaf
def between(first, second, part):
    """A number between two, a `part` of the way to the second."""
    return first * (ONE - part) + second * part


@subroutine
def equalize_tiles(clip_limit, num_down, num_across, levels, start, height, width, planar, at_red):
    """Equalize the lightness of an image in tiles, with three rows of scratch at `at_red`."""
    at_green, at_blue = np.uintp(at_red + 4 * width), np.uintp(at_red + 8 * width)
    side_y = tile_side(height, num_down, width, num_across)
    side_x = tile_side(width, num_across, height, num_down)
    plane = np.empty((height, width), np.uint8)
    step = width * (1 if planar else 3)
    for y in range(height):
        load_row(levels, start + y * step, height * width, width, planar, at_red, at_green, at_blue)
        _take_lightness(plane[y], width, at_red, at_green, at_blue)
    tables = np.empty((num_down, num_across * NUM_LEVELS), np.uint8)
    counts = np.empty(256, np.int64)
    for down in range(num_down):
        for across in range(num_across):
            counts[:] = 0
            for y in range(down * side_y, (down + 1) * side_y):
                row = plane[mirrored(y, height)]
                for x in range(across * side_x, (across + 1) * side_x):
                    counts[row[mirrored(x, width)]] += 1
            _clip(counts, most_counted(clip_limit, side_y * side_x))
            _add_up(counts, side_y * side_x, tables[down, across * NUM_LEVELS : (across + 1) * NUM_LEVELS])
    equalized, parts = np.empty(width, np.float32), np.empty(width, np.float32)
    left, right = np.empty(width, np.uint32), np.empty(width, np.uint32)
    _place_columns(side_x, num_across, width, left, right, parts)
    for y in range(height):
        _look_up_between(tables, plane[y], y, side_y, left, right, parts, width, equalized)
        load_row(levels, start + y * step, height * width, width, planar, at_red, at_green, at_blue)
        _relight(equalized, width, at_red, at_green, at_blue)
        store_levels(levels, start + y * step, height * width, width, planar, at_red, at_green, at_blue)


@subroutine
def _take_lightness(row, width, at_red, at_green, at_blue):
    for i in range(width):
        red, green = _light(load_red(at_red, i)), _light(load_green(at_green, i))
        row[i] = LIGHTNESS[np.uintp(brightness(red, green, _light(load_blue(at_blue, i))))]


@leaf
def _light(level):
    return LIGHT[np.uintp(nearest_level(level))]  # numba need not look whether an unsigned index is below 0


@subroutine
def _clip(counts, most):
    """Spread what levels occur more often than `most` over all of them, evenly."""
    excess = 0
    for level in range(256):
        excess += max(counts[level] - most, 0)
        counts[level] = min(counts[level], most)
    counts += excess // 256
    rest = excess % 256
    if rest > 0:
        step = max(256 // rest, 1)
        for nth in range(min(rest, (255 // step) + 1)):
            counts[nth * step] += 1


@subroutine
def _add_up(counts, area, table):
    num_seen = 0
    for level in range(256):
        num_seen += counts[level]
        table[level] = np.uint8(table_entry(num_seen, area))


@subroutine
def _place_columns(side_x, num_across, width, left, right, parts):
    """Where the tables of the tiles left and right of each column begin, and how far it is on the way between them."""
    for i in range(width):
        at_x = place_among(i, side_x)
        before = np.int64(np.floor(at_x))
        parts[i] = at_x - np.float32(before)
        left[i], right[i] = max(NUM_LEVELS * before, 0), NUM_LEVELS * np.int64(min(before + 1, num_across - 1))


@subroutine
def _look_up_between(tables, row, y, side_y, left, right, parts, width, equalized):
    """A row's new lightness, between the tables of the tiles about each pixel."""
    at_y = place_among(y, side_y)
    above = np.int64(np.floor(at_y))
    part_y = at_y - np.float32(above)
    upper, lower = tables[max(above, 0)], tables[min(above + 1, len(tables) - 1)]
    for i in range(width):
        at_left, at_right = np.uintp(left[i] + row[i]), np.uintp(right[i] + row[i])
        high = between(np.float32(upper[at_left]), np.float32(upper[at_right]), parts[i])
        low = between(np.float32(lower[at_left]), np.float32(lower[at_right]), parts[i])
        equalized[i] = between(high, low, part_y)


@subroutine
def _relight(equalized, width, at_red, at_green, at_blue):
    prefer_wide_vectors()
    for i in range(width):
        red, green = np.float32(nearest_level(load_red(at_red, i))), np.float32(nearest_level(load_green(at_green, i)))
        root_x, root_y, root_z = roots(red, green, np.float32(nearest_level(load_blue(at_blue, i))))
        red, green, blue = relit(root_x, root_y, root_z, equalized[i])
        store_red(at_red, i, red)
        store_green(at_green, i, green)
        store_blue(at_blue, i, blue)
