"""The CPU loop over rendered images that filters change: all steps up to the last filter, on levels in place.

Kernels of their own, for recipes that have filters, or compress: others need not compile them.
"""

from typing import Any

import numpy as np
from numba import types

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.cells import coarsen, shuffle
from augpipe.gpu_ops.image.clahe import equalize_tiles
from augpipe.gpu_ops.image.compression import compress
from augpipe.gpu_ops.image.neighbours import convolve, filter_separably, take_median
from augpipe.gpu_ops.image.program import behind_filters, take_steps
from augpipe.gpu_ops.image.program_rows import (
    AT_STEPS,
    AT_TABLES,
    CLAHE,
    COARSEN,
    FIRST_FILTER,
    JPEG,
    MEDIAN,
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
def filter_images(rows, first_byte, levels, height, width, planar, begin):
    """Take the steps of images that lie one behind the other, up to their last filters, or up to a `JPEG`.

    Args:
        rows, first_byte, height, width, planar: as `program.finish_images` takes them.
        levels: (B * height * width * 3,) float32, changed.
        begin: the step to begin with, `image << 32 | step`.

    Returns:
        Where the next step is that compresses, which is left to `compress_image`; -1 at the end.
    """
    scratch = np.empty(12 * width, np.float32)
    tables = np.empty((3, 256), np.uint8)
    first, step = np.int64(begin >> 32), np.int64(begin & 0xFFFFFFFF)
    for image in range(first, len(rows)):
        at, start = np.uintp(rows.ctypes.data + image * rows.shape[1] + first_byte), image * height * width * 3
        end = behind_filters(at)
        while step < end:
            stop = step
            while load_whole(at, AT_STEPS + stop * STEP_BYTES) < FIRST_FILTER:
                stop += 1
            if stop > step:
                take_steps(at, step, stop, False, levels, levels, start, height, width, planar, scratch, tables)
            if load_whole(at, AT_STEPS + stop * STEP_BYTES) == JPEG:
                return image << 32 | stop
            _filter(at, AT_STEPS + stop * STEP_BYTES, levels, start, height, width, planar, scratch)
            step = np.int64(stop + 1)
        step = np.int64(0)
    return np.int64(-1)


@kernel()
def compress_image(rows, first_byte, levels, height, width, planar, which):
    """Take the step of an image that compresses it, `image << 32 | step`; other arguments as of `filter_images`."""
    image, step = np.int64(which >> 32), np.int64(which & 0xFFFFFFFF)
    at = np.uintp(rows.ctypes.data + image * rows.shape[1] + first_byte)
    quality = np.int64(load_number(at, AT_STEPS + step * STEP_BYTES + STEP_NUMBERS))
    scratch = np.empty(3 * width, np.float32)
    compress(quality, levels, image * height * width * 3, height, width, planar, scratch)


def _filtering() -> Any:
    return np.zeros((1, 1), np.uint8), 0, np.zeros(1, np.float32), 1, 1, True, 0


declare(__name__, filter_images, filters=_filtering)
declare(__name__, compress_image, compresses=_filtering)


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
        convolve(at_weights, size, levels, start, height, width, planar)
