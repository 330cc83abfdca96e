"""Cells of a rendered image that change places, and cells that show one of its pixels, on the CPU."""

import numpy as np
from numba import types

from augpipe.gpu_ops.image.level_rows import load_levels
from augpipe.gpu_ops.image.scratch_rows import store_batch
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import load, load_bytes

load_source = load_bytes("table", types.uint8)

load_written = load("batch", types.float32)
"""Levels that `store_batch` has put there."""


@leaf
def edge(nth, num, length):
    """Where the nth of so many cells along an axis begins."""
    return nth * length // num


@leaf
def cell_of(position, num, length):
    """The cell along an axis that a pixel lies in."""
    return ((position + 1) * num - 1) // length


@leaf
def coarse(position, num, length, apart):
    """The pixel along an axis that one shows, where so many of them, that far apart, stand for all."""
    return min(np.int64(np.float32(position * num // length) * apart), length - 1)


@subroutine
def shuffle(at_table, num_down, num_across, levels, start, height, width, planar):
    """Show in each cell what stood in the one that the table names, of the same size."""
    num_planes, apart = (3, 1) if planar else (1, 3)
    length = width * apart
    kept = levels[start : start + 3 * height * width].copy()
    for nth in range(num_down * num_across):
        source = np.int64(load_source(at_table, nth))
        left, right = edge(nth % num_across, num_across, width), edge(nth % num_across + 1, num_across, width)
        top, bottom = edge(nth // num_across, num_down, height), edge(nth // num_across + 1, num_down, height)
        from_left, from_top = edge(source % num_across, num_across, width), edge(source // num_across, num_down, height)
        num = (right - left) * apart
        for plane in range(num_planes):
            for row in range(bottom - top):
                to = (plane * height + top + row) * length + left * apart
                at = (plane * height + from_top + row) * length + from_left * apart
                levels[start + to : start + to + num] = kept[at : at + num]


@subroutine
def coarsen(num_down, num_across, apart, levels, start, height, width, planar):
    """Show the pixels of a smaller image, each as often as it takes to fill this one."""
    num_planes, step = (3, 1) if planar else (1, 3)
    length = width * step
    kept = levels[start : start + 3 * height * width].copy()
    sources = np.empty(length, np.int64)
    for i in range(length):
        sources[i] = coarse(i // step, num_across, width, apart) * step + i % step
    out = levels.ctypes.data
    for plane in range(num_planes):
        at_kept, line_above = kept.ctypes.data, np.int64(-1)
        for y in range(height):
            line, to = coarse(y, num_down, height, apart), start + (plane * height + y) * length
            if line == line_above:
                for i in range(length):
                    store_batch(out, to + i, load_written(out, to - length + i))
            else:
                at = (plane * height + line) * length
                for i in range(length):
                    store_batch(out, to + i, load_levels(at_kept, at + sources[i]))
            line_above = line
