"""Rows of a rendered image between its memory, planar or interleaved, and three rows of scratch."""

from numba import types

from augpipe.gpu_ops.image.scratch_rows import (
    load_blue,
    load_green,
    load_red,
    store_batch,
    store_blue,
    store_green,
    store_red,
)
from augpipe.gpu_ops.jit import subroutine
from augpipe.gpu_ops.memory import load, prefer_wide_vectors

load_levels = load("pixels", types.float32)


@subroutine
def load_row(levels, first, plane, width, planar, at_red, at_green, at_blue):
    """Take the levels of the row that begins at item `first`."""
    prefer_wide_vectors()
    source = levels.ctypes.data
    if planar:
        for i in range(width):
            store_red(at_red, i, load_levels(source, first + i))
            store_green(at_green, i, load_levels(source, first + plane + i))
            store_blue(at_blue, i, load_levels(source, first + 2 * plane + i))
    else:
        for i in range(width):
            store_red(at_red, i, load_levels(source, first + 3 * i))
            store_green(at_green, i, load_levels(source, first + 3 * i + 1))
            store_blue(at_blue, i, load_levels(source, first + 3 * i + 2))


@subroutine
def store_levels(levels, first, plane, width, planar, at_red, at_green, at_blue):
    """Put the levels of a row back."""
    prefer_wide_vectors()
    out = levels.ctypes.data
    if planar:
        for i in range(width):
            store_batch(out, first + i, load_red(at_red, i))
            store_batch(out, first + plane + i, load_green(at_green, i))
            store_batch(out, first + 2 * plane + i, load_blue(at_blue, i))
    else:
        for i in range(width):
            store_batch(out, first + 3 * i, load_red(at_red, i))
            store_batch(out, first + 3 * i + 1, load_green(at_green, i))
            store_batch(out, first + 3 * i + 2, load_blue(at_blue, i))
