"""The CPU loops over rendered images for filters, and for what compresses, on levels in place.

Kernels of their own: recipes without any need not compile them.
"""

from typing import Any

import numpy as np
from numba import types

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.cells import coarsen, shuffle
from augpipe.gpu_ops.image.clahe import equalize_tiles
from augpipe.gpu_ops.image.compression import compress
from augpipe.gpu_ops.image.neighbours import convolve, filter_separably, take_median
from augpipe.gpu_ops.image.program_rows import (
    AT_STEPS,
    AT_TABLES,
    CLAHE,
    COARSEN,
    FINISHED,
    FIRST_FILTER,
    JPEG,
    MEDIAN,
    NUM_STEPS,
    SEPARABLE,
    SHUFFLE,
    STEP_BYTES,
    STEP_NUMBERS,
    STEP_TABLE,
    TABLE_BYTES,
)
from augpipe.gpu_ops.jit import kernel, subroutine
from augpipe.gpu_ops.memory import load_bytes

load_number, load_whole = load_bytes("values", types.float32), load_bytes("values", types.int32)


@kernel()
def filter_images(rows, first_byte, places, levels, height, width, planar):
    """Take the filters that come next for images that lie one behind the other.

    Args:
        rows, first_byte, places, height, width, planar: as `program.finish_images` takes them.
        levels: (B * height * width * 3,) float32, changed.
    """
    scratch = np.empty(3 * width, np.float32)
    for image in range(len(rows)):
        at, start = np.uintp(rows.ctypes.data + image * rows.shape[1] + first_byte), image * height * width * 3
        step, num_steps = places[image], np.int64(load_whole(at, NUM_STEPS))
        if step == FINISHED:
            continue
        while step < num_steps:
            kind = load_whole(at, AT_STEPS + step * STEP_BYTES)
            if kind < FIRST_FILTER or kind == JPEG:
                break
            _filter(at, AT_STEPS + step * STEP_BYTES, levels, start, height, width, planar, scratch)
            step += 1
        places[image] = step


@kernel()
def compress_images(rows, first_byte, places, levels, height, width, planar):
    """Compress the images for which that comes next; arguments as of `filter_images`."""
    scratch = np.empty(3 * width, np.float32)
    for image in range(len(rows)):
        at, start = np.uintp(rows.ctypes.data + image * rows.shape[1] + first_byte), image * height * width * 3
        step = places[image]
        if step == FINISHED or step == load_whole(at, NUM_STEPS):
            continue
        if load_whole(at, AT_STEPS + step * STEP_BYTES) == JPEG:
            quality = np.int64(load_number(at, AT_STEPS + step * STEP_BYTES + STEP_NUMBERS))
            compress(quality, levels, start, height, width, planar, scratch)
            places[image] = step + 1


def _filtering() -> Any:
    return np.zeros((1, 1), np.uint8), 0, np.zeros(1, np.int64), np.zeros(1, np.float32), 1, 1, True


declare(__name__, filter_images, filters=_filtering)
declare(__name__, compress_images, compresses=_filtering)


@subroutine
def _filter(at, at_step, levels, start, height, width, planar, scratch):
    kind, number = load_whole(at, at_step), load_number(at, at_step + STEP_NUMBERS)
    at_weights = np.uintp(at + load_whole(at, AT_TABLES) + load_whole(at, at_step + STEP_TABLE) * TABLE_BYTES)
    size = np.int64(number)
    if kind == CLAHE:
        num_down = np.int64(load_number(at, at_step + STEP_NUMBERS + 4))
        num_across = np.int64(load_number(at, at_step + STEP_NUMBERS + 8))
        at_rows = np.uintp(scratch.ctypes.data)
        equalize_tiles(number, num_down, num_across, levels, start, height, width, planar, at_rows)
    elif kind == MEDIAN:
        take_median(size, levels, start, height, width, planar)
    elif kind == SEPARABLE:
        filter_separably(at_weights, size, levels, start, height, width, planar)
    elif kind == SHUFFLE or kind == COARSEN:
        num_across = np.int64(load_number(at, at_step + STEP_NUMBERS + 4))
        if kind == SHUFFLE:
            shuffle(at_weights, size, num_across, levels, start, height, width, planar)
        else:
            apart = load_number(at, at_step + STEP_NUMBERS + 8)
            coarsen(size, num_across, apart, levels, start, height, width, planar)
    else:
        weight = load_number(at, at_step + STEP_NUMBERS + 4)
        convolve(at_weights, size, weight, levels, start, height, width, planar)
