"""The CPU loop over rendered images for steps of patterns: haze, grain, holes in a grid, dropped pixels and shadows.

Few recipes have any, and others need not compile them.
"""

import numpy as np
from numba import types

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.dropouts import drop_cells_row, drop_pixels_row
from augpipe.gpu_ops.image.level_rows import load_row, store_levels
from augpipe.gpu_ops.image.noise_rows import draw_normals, draw_words
from augpipe.gpu_ops.image.program_rows import (
    AT_STEPS,
    AT_TABLES,
    DROP,
    FINISHED,
    GRAIN,
    HAZE,
    HOLES,
    NONE,
    NUM_STEPS,
    SHADE,
    STEP_BYTES,
    STEP_KEY,
    STEP_NUMBERS,
    STEP_TABLE,
    TABLE_BYTES,
)
from augpipe.gpu_ops.image.shadows import shade_row
from augpipe.gpu_ops.image.weather import grain_row, veil_row
from augpipe.gpu_ops.jit import kernel, subroutine
from augpipe.gpu_ops.memory import load_bytes

load_whole = load_bytes("values", types.int32)


@kernel()
def take_patterns(rows, first_byte, places, levels, height, width, planar):
    """Take the patterns that come next for images that lie one behind the other.

    Args:
        rows, first_byte, places, height, width, planar: as `program.finish_images` takes them.
        levels: (B * height * width * 3,) float32, changed.
    """
    scratch = np.empty(10 * width, np.float32)  # three channels, 4 words, 3 normal numbers
    for image in range(len(rows)):
        at, start = np.uintp(rows.ctypes.data + image * rows.shape[1] + first_byte), image * height * width * 3
        step, num_steps = places[image], np.int64(load_whole(at, NUM_STEPS))
        if step == FINISHED:
            continue
        stop = step
        while stop < num_steps and load_whole(at, AT_STEPS + stop * STEP_BYTES) < NONE:
            stop += 1
        places[image] = stop
        if stop > step:
            _take(at, step, stop, levels, start, height, width, planar, scratch)


declare(
    __name__,
    take_patterns,
    patterns=lambda: (np.zeros((1, 1), np.uint8), 0, np.zeros(1, np.int64), np.zeros(1, np.float32), 1, 1, True),
)


@subroutine
def _take(at, step, stop, levels, start, height, width, planar, scratch):
    at_red = np.uintp(scratch.ctypes.data)
    at_green, at_blue = at_red + 4 * width, at_red + 8 * width
    for y in range(height):
        first, plane = start + y * width * (1 if planar else 3), height * width
        load_row(levels, first, plane, width, planar, at_red, at_green, at_blue)
        for nth in range(step, stop):
            _change_row(at, AT_STEPS + nth * STEP_BYTES, y, height, width, at_red, at_green, at_blue)
        store_levels(levels, first, plane, width, planar, at_red, at_green, at_blue)


@subroutine
def _change_row(at, at_step, y, height, width, at_red, at_green, at_blue):
    kind, at_numbers, at_key = load_whole(at, at_step), at_step + STEP_NUMBERS, at_step + STEP_KEY
    at_words, at_normals = at_red + 12 * width, at_red + 28 * width
    if kind == HAZE:
        veil_row(at, at_numbers, at_key, y, height, width, at_red, at_green, at_blue, at_normals)
    elif kind == GRAIN:
        draw_normals(at, at_key, y * width, width, at_words, at_normals)
        grain_row(at, at_numbers, width, at_red, at_green, at_blue, at_normals)
    elif kind == HOLES:
        drop_cells_row(at, at_numbers, at_key, y, width, at_red, at_green, at_blue)
    elif kind == DROP:
        draw_words(at, at_key, y * width, width, at_words)
        drop_pixels_row(at, at_numbers, width, at_red, at_green, at_blue, at_words)
    elif kind == SHADE:
        at_edges = np.uintp(at + load_whole(at, AT_TABLES) + load_whole(at, at_step + STEP_TABLE) * TABLE_BYTES)
        shade_row(at, at_numbers, at_edges, y, width, at_red, at_green, at_blue, at_words, at_normals)
