"""The pixel of a grid of holes, and of dropped pixels, by the leaves of `gpu_ops.image.dropouts`."""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import load_f32, load_u32
from augpipe.gpu_ops.image import dropouts
from augpipe.gpu_ops.random import philox

philox_block, is_dropped = shared(philox.philox_block), shared(dropouts.is_dropped)
hole_cell, cell_start = shared(dropouts.hole_cell), shared(dropouts.cell_start)
hole_side, hole_start = shared(dropouts.hole_side), shared(dropouts.hole_start)


@function("int32")
def nth_cell(numbers, position):
    """The cell that a position along an axis lies in."""
    return np.int32(hole_cell(position, np.int32(load_f32(numbers)), np.int32(load_f32(numbers + 4))))


@function("int32")
def is_within(numbers, position, word):
    """Whether the hole of the cell along an axis reaches over a position, by four numbers and a random word."""
    num, length = np.int32(load_f32(numbers)), np.int32(load_f32(numbers + 4))
    nth = nth_cell(numbers, position)
    first = cell_start(nth, num, length)
    cell = cell_start(nth + 1, num, length) - first
    side = hole_side(np.int32(load_f32(numbers + 8)), cell, np.uint32(length) // np.uint32(num))
    into = position - first - hole_start(cell - side, np.int32(load_f32(numbers + 12)), word)
    return np.int32(0 <= into and into < side)


@function("float32", "float32", "float32")
def in_grid(red, green, blue, numbers, at_key, pixel, width):
    """A pixel behind a `HOLES` step."""
    x, y, zero = np.int32(pixel % width), np.int32(pixel // width), np.uint64(0)
    word_x, word_y = zero, zero
    if load_f32(numbers + 12) < np.float32(0.0):
        nth = nth_cell(numbers + 16, y) * np.int32(load_f32(numbers)) + nth_cell(numbers, x)
        key0, key1 = np.uint64(load_u32(at_key)), np.uint64(load_u32(at_key + 4))
        word_x, word_y, _, _ = philox_block(np.uint64(nth), zero, zero, zero, key0, key1)
    if is_within(numbers, x, np.uint32(word_x)) and is_within(numbers + 16, y, np.uint32(word_y)):
        red, green, blue = load_f32(numbers + 32), load_f32(numbers + 36), load_f32(numbers + 40)
    return red, green, blue


@function("float32", "float32", "float32")
def dropped(red, green, blue, numbers, at_key, pixel):
    """A pixel behind a `DROP` step."""
    zero, limit = np.uint64(0), load_f32(numbers)
    key0, key1 = np.uint64(load_u32(at_key)), np.uint64(load_u32(at_key + 4))
    of_red, of_green, of_blue, _ = philox_block(np.uint64(pixel), zero, zero, zero, key0, key1)
    if load_f32(numbers + 4) > np.float32(0.0):
        of_green, of_blue = of_red, of_red
    if is_dropped(of_red, limit):
        red = load_f32(numbers + 8)
    if is_dropped(of_green, limit):
        green = load_f32(numbers + 12)
    if is_dropped(of_blue, limit):
        blue = load_f32(numbers + 16)
    return red, green, blue
