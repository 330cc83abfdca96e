"""What a grid of holes and dropped pixels fill: whether a pixel is among them, and the CPU's loops over a row.

A hole's place in its cell, and which pixels are dropped, are made of Philox words, as noise is.
"""

import numpy as np
from numba import types

from augpipe.gpu_ops.image.noise import ROOM
from augpipe.gpu_ops.image.scratch_rows import (
    load_blue,
    load_green,
    load_red,
    store_blue,
    store_green,
    store_red,
)
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import load, load_bytes, prefer_wide_vectors
from augpipe.gpu_ops.random.philox import SHIFT_32, philox_block

load_number, load_key = load_bytes("values", types.float32), load_bytes("values", types.uint32)
load_word = load("slots", types.uint32)


@leaf
def hole_cell(position, num, length):
    """The cell along an axis that a position lies in, of `num` that take `length` pixels; 32 bits, as GPUs divide."""
    return np.int32(np.uint32((position + 1) * num - 1) // np.uint32(length))


@leaf
def cell_start(nth, num, length):
    """Where the nth of so many cells along an axis begins."""
    return np.int32(np.uint32(nth * length) // np.uint32(num))


@leaf
def hole_side(both, cell, least):
    """A hole's side in a cell: `both` is the sum of that in a cell of `least` pixels and in one of a pixel more."""
    return np.int32(np.uint32(both + cell - least) >> np.uint32(1))


@leaf
def hole_start(room, shift, word):
    """Where in its cell a hole begins that has `room` there: after `shift` pixels, or, below 0, as a word draws it."""
    if shift < 0:
        return np.int32((np.uint64(word) * np.uint64(room + 1)) >> SHIFT_32)
    return np.int32(min(shift, room))


@leaf
def is_dropped(word, limit):
    """Whether a pixel is, of a limit of 0..2^24: by the upper bits of its word, which float32 holds exactly."""
    return np.float32(np.int32(np.uint32(word) >> ROOM)) < limit


@subroutine
def drop_cells_row(at, at_numbers, at_key, y, width, at_red, at_green, at_blue):
    """Fill the part of row y of an image that lies in the holes of a `HOLES` step."""
    num_x, length_x = np.int32(load_number(at, at_numbers)), np.int32(load_number(at, at_numbers + 4))
    both_x, shift_x = np.int32(load_number(at, at_numbers + 8)), np.int32(load_number(at, at_numbers + 12))
    num_y, length_y = np.int32(load_number(at, at_numbers + 16)), np.int32(load_number(at, at_numbers + 20))
    both_y, shift_y = np.int32(load_number(at, at_numbers + 24)), np.int32(load_number(at, at_numbers + 28))
    red, green = load_number(at, at_numbers + 32), load_number(at, at_numbers + 36)
    blue = load_number(at, at_numbers + 40)
    zero, key0, key1 = np.uint64(0), np.uint64(load_key(at, at_key)), np.uint64(load_key(at, at_key + 4))
    row = hole_cell(y, num_y, length_y)
    top = cell_start(row, num_y, length_y)
    height = cell_start(row + 1, num_y, length_y) - top
    side_y = hole_side(both_y, height, length_y // num_y)
    word_x, word_y, left = zero, zero, np.int32(0)
    for column in range(num_x):
        if left >= width:
            return
        right = cell_start(column + 1, num_x, length_x)
        side_x = hole_side(both_x, right - left, length_x // num_x)
        if shift_x < 0:
            word_x, word_y, _, _ = philox_block(np.uint64(row * num_x + column), zero, zero, zero, key0, key1)
        above = y - top - hole_start(height - side_y, shift_y, word_y)
        if 0 <= above and above < side_y:
            first = left + hole_start(right - left - side_x, shift_x, word_x)
            for i in range(first, min(first + side_x, width)):
                store_red(at_red, i, red)
                store_green(at_green, i, green)
                store_blue(at_blue, i, blue)
        left = right


@subroutine
def drop_pixels_row(at, at_numbers, width, at_red, at_green, at_blue, at_words):
    """Fill the pixels of a row that a `DROP` step drops, by the words of each."""
    prefer_wide_vectors()
    limit = load_number(at, at_numbers)
    apart = np.int64(0) if load_number(at, at_numbers + 4) > 0.0 else np.int64(width)
    red, green = load_number(at, at_numbers + 8), load_number(at, at_numbers + 12)
    blue = load_number(at, at_numbers + 16)
    for i in range(width):
        store_red(at_red, i, red if is_dropped(load_word(at_words, i), limit) else load_red(at_red, i))
        of_green, of_blue = load_word(at_words, apart + i), load_word(at_words, 2 * apart + i)
        store_green(at_green, i, green if is_dropped(of_green, limit) else load_green(at_green, i))
        store_blue(at_blue, i, blue if is_dropped(of_blue, limit) else load_blue(at_blue, i))
