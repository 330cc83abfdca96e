"""A filter over a rendered image in the CUDA loop: the block's threads work on its image together."""

import numpy as np
from numba import cuda

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import load_f32, load_i32
from augpipe.gpu_ops.image import clahe as tiles
from augpipe.gpu_ops.image.cuda.clahe import count, make_tables, relight, take_lightness
from augpipe.gpu_ops.image.cuda.neighbours import (
    convolve,
    copy_levels,
    copy_whole_levels,
    sum_columns,
    sum_rows,
    take_median,
)
from augpipe.gpu_ops.image.program_rows import (
    AT_TABLES,
    CLAHE,
    MEDIAN,
    SEPARABLE,
    STEP_NUMBERS,
    STEP_TABLE,
    TABLE_BYTES,
)

tile_side = shared(tiles.tile_side)


@function()
def filter_image(
    kind, factor, at, at_step, start, copy, height, width, pixel_step, channel_step, thread, num_threads
):
    """Take the step at `at_step`, whose first number is `factor`, of the row's header at `at`.

    `start` is the address of the image's levels, `copy` that of memory beside them.
    """
    taps = at + load_i32(at + AT_TABLES) + np.int64(load_i32(at_step + STEP_TABLE)) * TABLE_BYTES
    size = np.int64(factor)
    if kind == CLAHE:
        num_down = np.int64(load_f32(at_step + STEP_NUMBERS + 4))
        num_across = np.int64(load_f32(at_step + STEP_NUMBERS + 8))
        counts, num_tiles = copy + (height * width + 3) // 4 * 4, num_down * num_across
        area = tile_side(height, num_down, width, num_across) * tile_side(width, num_across, height, num_down)
        take_lightness(
            start, copy, counts, num_tiles, height * width, pixel_step, channel_step, thread, num_threads
        )
        cuda.syncthreads()
        count(copy, counts, num_down, num_across, height, width, thread, num_threads)
        cuda.syncthreads()
        make_tables(counts, factor, num_tiles, area, thread, num_threads)
        cuda.syncthreads()
        relight(
            start, copy, counts, num_down, num_across, height, width, pixel_step, channel_step, thread, num_threads
        )
    elif kind == SEPARABLE:
        sum_columns(start, copy, taps, size, height, width, pixel_step, channel_step, thread, num_threads)
        cuda.syncthreads()
        sum_rows(start, copy, taps, size, height, width, pixel_step, channel_step, thread, num_threads)
    elif kind == MEDIAN:
        copy_whole_levels(start, copy, height * width, pixel_step, channel_step, thread, num_threads)
        cuda.syncthreads()
        take_median(start, copy, size, height, width, pixel_step, channel_step, thread, num_threads)
    else:
        copy_levels(start, copy, height * width, pixel_step, channel_step, thread, num_threads)
        cuda.syncthreads()
        convolve(start, copy, taps, size, height, width, pixel_step, channel_step, thread, num_threads)
