"""The CPU loop over a rendered image: the steps of its colours, and how levels become a batch's numbers.

`gpu_ops.image.fused` has written levels in 0..255; they are changed row by row of the output, in the order of the row's
program. A step that looks at the whole image waits until all rows have come as far.
"""

import numpy as np
from numba import types

from augpipe.gpu_ops.image.colour import combined, nearest_level
from augpipe.gpu_ops.image.finish_rows import (
    AT_STEPS,
    AT_TABLES,
    BIAS,
    FIRST_LOOK,
    INVERSE_CORNER_R2,
    MATRIX,
    NUM_STEPS,
    SCALE,
    SHARPNESS,
    STEP_BYTES,
    STEP_NUMBERS,
    STEP_TABLE,
    TABLE,
    TABLE_BYTES,
    VIGNETTE,
)
from augpipe.gpu_ops.image.fused import centred, finish
from augpipe.gpu_ops.image.looks import look_up_tables, sharpen
from augpipe.gpu_ops.image.tone import normalise, vignette_gain
from augpipe.gpu_ops.jit import kernel, subroutine
from augpipe.gpu_ops.memory import load, load_bytes, prefer_wide_vectors

load_number, load_whole = load_bytes("values", types.float32), load_bytes("values", types.int32)
load_level = load("table", types.uint8, types.int32)

ONE = np.float32(1.0)


@kernel()
def finish_images(rows, first_byte, levels, batch, height, width, planar):
    """Finish images that lie one behind the other.

    Args:
        rows: (B, row bytes) uint8: `finish_rows.row_dtype`.
        first_byte: of a row's header.
        levels: (B * height * width * 3,) float32, overwritten.
        batch: (B * height * width * 3,) float32 or uint8, written; it may be `levels` itself.
        height, width: of an image, in pixels.
        planar: True for channels, rows, columns, False for rows, columns, channels.
    """
    planes = np.empty((3, width), np.float32)
    tables = np.empty((3, 256), np.uint8)
    for image in range(len(rows)):
        at = np.uintp(rows.ctypes.data + image * rows.shape[1] + first_byte)
        _finish_image(at, levels, batch, image * height * width * 3, height, width, planar, planes, tables)


@subroutine
def _finish_image(at, levels, batch, start, height, width, planar, planes, tables):
    """Pass over the image's rows once, and once more for each step that looks at all of it."""
    num_steps = load_whole(at, NUM_STEPS)
    step, has_tables = 0, False
    while True:
        stop = step
        while stop < num_steps and load_whole(at, AT_STEPS + stop * STEP_BYTES) < FIRST_LOOK:
            stop += 1
        is_end = stop == num_steps
        if is_end or stop > step or has_tables:
            for y in range(height):
                _load_row(levels, start, y, height, width, planar, planes)
                if has_tables:
                    for channel in range(3):
                        _look_up(tables.ctypes.data + 256 * channel, planes[channel], width)
                for nth in range(step, stop):
                    _change_row(at, nth, y, height, width, planes)
                if is_end:
                    for channel in range(3):
                        scale = load_number(at, SCALE + 4 * channel)
                        _normalise_row(planes[channel], scale, load_number(at, BIAS + 4 * channel), width)
                    _store_row(batch, start, y, height, width, planar, planes)
                else:
                    _store_row(levels, start, y, height, width, planar, planes)
        if is_end:
            return
        at_step = AT_STEPS + stop * STEP_BYTES
        kind, factor = load_whole(at, at_step), load_number(at, at_step + STEP_NUMBERS)
        has_tables = kind != SHARPNESS
        if has_tables:
            look_up_tables(kind, factor, levels, start, height * width, planar, tables)
        else:
            sharpen(factor, levels, start, height, width, planar)
        step = stop + 1


@subroutine
def _load_row(levels, start, y, height, width, planar, planes):
    """Fill the planes with a row's levels."""
    prefer_wide_vectors()
    red, green, blue = planes[0], planes[1], planes[2]
    if planar:
        first, plane = start + y * width, height * width
        for i in range(width):
            red[i] = levels[first + i]
            green[i] = levels[first + plane + i]
            blue[i] = levels[first + 2 * plane + i]
    else:
        first = start + y * width * 3
        for i in range(width):
            red[i] = levels[first + 3 * i]
            green[i] = levels[first + 3 * i + 1]
            blue[i] = levels[first + 3 * i + 2]


@subroutine
def _store_row(batch, start, y, height, width, planar, planes):
    """Write the planes to a row, as the batch holds numbers."""
    prefer_wide_vectors()
    red, green, blue = planes[0], planes[1], planes[2]
    if planar:
        first, plane = start + y * width, height * width
        for i in range(width):
            batch[first + i] = finish(batch, red[i])
            batch[first + plane + i] = finish(batch, green[i])
            batch[first + 2 * plane + i] = finish(batch, blue[i])
    else:
        first = start + y * width * 3
        for i in range(width):
            batch[first + 3 * i] = finish(batch, red[i])
            batch[first + 3 * i + 1] = finish(batch, green[i])
            batch[first + 3 * i + 2] = finish(batch, blue[i])


@subroutine
def _change_row(at, step, y, height, width, planes):
    """One step of the program on one row."""
    at_step = AT_STEPS + step * STEP_BYTES
    kind, at_numbers = load_whole(at, at_step), at_step + STEP_NUMBERS
    if kind == MATRIX:
        _combine(at, at_numbers, planes[0], planes[1], planes[2], width)
    elif kind == TABLE:
        table = load_whole(at, at_step + STEP_TABLE)
        for channel in range(3):
            _look_up(at + load_whole(at, AT_TABLES) + table * TABLE_BYTES, planes[channel], width)
    elif kind == VIGNETTE:
        inverse_corner_r2, inner_r2 = load_number(at, INVERSE_CORNER_R2), load_number(at, at_numbers)
        inverse_span, strength = load_number(at, at_numbers + 4), load_number(at, at_numbers + 8)
        row_y = centred(y, height)
        for channel in range(3):
            _darken(planes[channel], row_y, inverse_corner_r2, inner_r2, inverse_span, strength, width)


@subroutine
def _combine(at, at_numbers, red, green, blue, width):
    prefer_wide_vectors()
    m00, m01 = load_number(at, at_numbers), load_number(at, at_numbers + 4)
    m02, m03 = load_number(at, at_numbers + 8), load_number(at, at_numbers + 12)
    m10, m11 = load_number(at, at_numbers + 16), load_number(at, at_numbers + 20)
    m12, m13 = load_number(at, at_numbers + 24), load_number(at, at_numbers + 28)
    m20, m21 = load_number(at, at_numbers + 32), load_number(at, at_numbers + 36)
    m22, m23 = load_number(at, at_numbers + 40), load_number(at, at_numbers + 44)
    for i in range(width):
        r, g, b = red[i], green[i], blue[i]
        red[i] = combined(r, g, b, m00, m01, m02, m03)
        green[i] = combined(r, g, b, m10, m11, m12, m13)
        blue[i] = combined(r, g, b, m20, m21, m22, m23)


@subroutine
def _look_up(table, levels, width):
    for i in range(width):
        levels[i] = np.float32(load_level(np.uintp(table), nearest_level(levels[i])))


@subroutine
def _darken(levels, y, inverse_corner_r2, inner_r2, inverse_span, strength, width):
    prefer_wide_vectors()
    for i in range(width):
        x = centred(np.int32(i), width)
        levels[i] *= vignette_gain((x * x + y * y) * inverse_corner_r2, inner_r2, inverse_span, strength)


@subroutine
def _normalise_row(levels, scale, bias, width):
    prefer_wide_vectors()
    for i in range(width):
        levels[i] = normalise(levels[i], scale, bias)
