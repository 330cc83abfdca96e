"""The CUDA loop: every op of a recipe in one launch, from a table of images to finished pixels of a batch.

A thread block belongs to one image, so what its row asks for (a lens, a wide filter) is the same for all its threads.
A thread makes two pixels side by side in every n-th row of its tile: it reads the row once, and the pair is one store.
A half-warp is 32 pixels wide: 224 is a multiple, and a slanted look-up touches few lines of the image.
"""

from typing import Any

import numpy as np
from numba import cuda

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import kept, load_f32, load_i32, load_i64, reciprocal, saturated
from augpipe.gpu_ops.image import lens, sampling, scratch_rows
from augpipe.gpu_ops.image.cuda.antialias import averaged
from augpipe.gpu_ops.image.cuda.bilinear import RAISED_BITS, bilinear_pair
from augpipe.gpu_ops.image.cuda.field import displaced_pair
from augpipe.gpu_ops.image.cuda.records import (
    AFTER_XX,
    AFTER_XY,
    AFTER_YX,
    AFTER_YY,
    BEFORE_W0,
    BEFORE_WX,
    BEFORE_WY,
    BEFORE_X0,
    BEFORE_XX,
    BEFORE_XY,
    BEFORE_Y0,
    BEFORE_YX,
    BEFORE_YY,
    BIAS,
    CAST,
    CASTS_LAST,
    CHANNELS,
    FIELD,
    FIRST_X,
    FIRST_Y,
    HAS_LENS,
    HAS_PROJECTION,
    HIGH_X,
    HIGH_Y,
    INNER_R2,
    INVERSE_CORNER_R2,
    INVERSE_SPAN,
    IS_CONSTANT,
    K1,
    K2,
    K3,
    LOW_X,
    LOW_Y,
    OFFSET_X,
    OFFSET_Y,
    ORIGIN_X,
    ORIGIN_Y,
    P1,
    P2,
    PIXEL_RECORD_BYTES,
    ROW_BYTES,
    SCALE,
    STRENGTH,
    STRIDE,
    SUPPORT_X,
    SUPPORT_Y,
)
from augpipe.gpu_ops.image.cuda.writing import ITEM_BYTES, write, write_pair

centred, linear, divisor = shared(scratch_rows.centred), shared(sampling.linear), shared(sampling.divisor)
radial_gain, distort = shared(lens.radial_gain), shared(lens.distort)

ZERO = np.float32(0.0)
HALF = np.float32(0.5)
ONE = np.float32(1.0)
LEVELS = np.float32(255.0)
LEVEL = np.float32(1.0 / 255.0)

HAS_LENS_BIT, IS_TANGENTIAL_BIT, IS_BILINEAR_BIT, HAS_PROJECTION_BIT, HAS_FIELD_BIT = 1, 2, 4, 8, 16

FUSED_SIGNATURE = "void(int64, int64, int64, int64, int64, int64, int64, int64)"
THREADS = (16, 8)
"""Along x and y of a block, on the device."""

FUSED_LAUNCH_BOUNDS = (128, 6)
"""Threads of a block, and blocks on a multiprocessor at once: 80 registers a thread; with 72 some spill on sm_100."""


@function("int32")
def ways_of(row):
    """Which ways the row's pixels take, as bits of one register, where predicates would be worked out in each round."""
    is_narrow = (load_f32(row + SUPPORT_X) == ONE) & (load_f32(row + SUPPORT_Y) == ONE)
    ways = np.int32(HAS_LENS_BIT if load_i32(row + HAS_LENS) else 0)
    ways |= np.int32(IS_TANGENTIAL_BIT if (load_f32(row + P1) != ZERO) | (load_f32(row + P2) != ZERO) else 0)
    ways |= np.int32(HAS_PROJECTION_BIT if load_i32(row + HAS_PROJECTION) else 0)
    ways |= np.int32(HAS_FIELD_BIT if load_i32(row + FIELD) else 0)
    ways |= np.int32(IS_BILINEAR_BIT if is_narrow & (load_i32(row + IS_CONSTANT) == 0) else 0)
    return kept(ways)


@function("float32", "float32", "float32", "float32")
def projected_pair(row, x0, x1, y, before):
    """The lens coordinates of two points that are moved or projected; few rows are, so no register is kept for it."""
    offset_u, offset_v = load_f32(row + BEFORE_X0), load_f32(row + BEFORE_Y0)
    along_x, along_y, at_centre = load_f32(row + BEFORE_WX), load_f32(row + BEFORE_WY), load_f32(row + BEFORE_W0)
    inverse0 = reciprocal(divisor(x0, y, along_x, along_y, at_centre))
    inverse1 = reciprocal(divisor(x1, y, along_x, along_y, at_centre))
    return (
        linear(x0, y, before[0], before[1], offset_u) * inverse0,
        linear(x0, y, before[2], before[3], offset_v) * inverse0,
        linear(x1, y, before[0], before[1], offset_u) * inverse1,
        linear(x1, y, before[2], before[3], offset_v) * inverse1,
    )


@function("float32", "float32", "float32", "float32")
def bent_pair(row, x0, x1, y, before, radial, ways):
    """Where two points of the output are looked up in the frame before the lens."""
    if ways & HAS_PROJECTION_BIT:
        u0, v0, u1, v1 = projected_pair(row, x0, x1, y, before)
    else:
        u0, v0 = linear(x0, y, before[0], before[1], ZERO), linear(x0, y, before[2], before[3], ZERO)
        u1, v1 = linear(x1, y, before[0], before[1], ZERO), linear(x1, y, before[2], before[3], ZERO)
    square0, square1 = u0 * u0 + v0 * v0, u1 * u1 + v1 * v1
    gain0 = radial_gain(square0, radial[0], radial[1], radial[2])
    gain1 = radial_gain(square1, radial[0], radial[1], radial[2])
    if ways & IS_TANGENTIAL_BIT:
        p1, p2 = load_f32(row + P1), load_f32(row + P2)  # most lenses have none: no register is kept for them
        seen0 = distort(u0, v0, square0, gain0, p2, p1), distort(v0, u0, square0, gain0, p1, p2)
        seen1 = distort(u1, v1, square1, gain1, p2, p1), distort(v1, u1, square1, gain1, p1, p2)
    else:
        seen0, seen1 = (u0 * gain0, v0 * gain0), (u1 * gain1, v1 * gain1)
    return seen0[0], seen0[1], seen1[0], seen1[1]


@function("float32", "float32", "float32")
def finished(red, green, blue, lost, last, cast, scale, bias):
    """(red, green, blue) after vignette, cast and normalisation; as the leaves of `tone` have it, in units of 255."""
    before, after = LEVEL + lost * last[0], ONE + lost * last[1]
    return (
        saturated(red, before, cast[0]) * (after * scale[0]) + bias[0],
        saturated(green, before, cast[1]) * (after * scale[1]) + bias[1],
        saturated(blue, before, cast[2]) * (after * scale[2]) + bias[2],
    )


@function("float32", "float32", "float32")
def load_three(address, factor):
    """Three float32 in a row, each times `factor`."""
    return load_f32(address) * factor, load_f32(address + 4) * factor, load_f32(address + 8) * factor


def fused_kernel(held_as: int, planar: bool) -> Any:
    """The kernel's Python function for one number type (`writing.HELD_AS`) and layout; its arguments are int64."""
    item_bytes = ITEM_BYTES[held_as]

    def render(pixels, rows, batch, height, width, rows_per_thread, plane_bytes, step_bytes):
        image = np.int64(cuda.blockIdx.z)
        column = np.int32(2 * (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x))
        if column >= width:
            return
        num_rows, step = np.int32(height), np.int32(cuda.blockDim.y)
        first_row = np.int32(cuda.blockIdx.y * cuda.blockDim.y * rows_per_thread + cuda.threadIdx.y)
        end_row = min(num_rows, np.int32(first_row + step * rows_per_thread))
        # threadIdx.z is 0: a constant would be put in the wrong operand, and each use be preceded by a move
        raised = np.uint32(RAISED_BITS + np.uint32(cuda.threadIdx.z))

        row = rows + image * ROW_BYTES
        after_xx, after_xy, offset_x = load_f32(row + AFTER_XX), load_f32(row + AFTER_XY), load_f32(row + OFFSET_X)
        after_yx, after_yy, offset_y = load_f32(row + AFTER_YX), load_f32(row + AFTER_YY), load_f32(row + OFFSET_Y)
        offset_x, offset_y = offset_x - HALF, offset_y - HALF
        before_xx, before_xy = load_f32(row + BEFORE_XX), load_f32(row + BEFORE_XY)
        before = before_xx, before_xy, load_f32(row + BEFORE_YX), load_f32(row + BEFORE_YY)
        radial = (load_f32(row + K1), load_f32(row + K2), load_f32(row + K3))
        low_x, low_y = load_i32(row + LOW_X), load_i32(row + LOW_Y)
        span_x, span_y = np.int32(load_i32(row + HIGH_X) - low_x), np.int32(load_i32(row + HIGH_Y) - low_y)
        bounds = low_x, low_y, span_x, span_y
        ways = ways_of(row)
        inverse_corner_r2, inner_r2 = load_f32(row + INVERSE_CORNER_R2), load_f32(row + INNER_R2)
        inverse_span = load_f32(row + INVERSE_SPAN)
        darkening = -load_f32(row + STRENGTH) * (inverse_span * inverse_span)
        casts_last = np.float32(load_i32(row + CASTS_LAST))
        last = casts_last * LEVEL, ONE - casts_last
        cast, scale = load_three(row + CAST, LEVEL), load_three(row + SCALE, LEVELS)
        bias = load_three(row + BIAS, ONE)

        record = pixels + image * PIXEL_RECORD_BYTES
        long_stride, num_channels = load_i64(record + STRIDE), load_i64(record + CHANNELS)
        stride, channels = np.int32(long_stride), np.int32(num_channels)
        row_bytes = long_stride * num_channels
        base = load_i64(record) + (np.int64(load_i32(row + ORIGIN_Y)) - load_i64(record + FIRST_Y)) * row_bytes
        base = base + (np.int64(load_i32(row + ORIGIN_X)) - load_i64(record + FIRST_X)) * num_channels
        below = base + row_bytes

        # an odd width's last pair looks one column up twice: what lies next to it may not be in memory
        columns = np.int32(width)
        x0, x1 = centred(column, columns), centred(min(np.int32(column + 1), np.int32(columns - 1)), columns)
        far0, far1 = x0 * x0 * inverse_corner_r2, x1 * x1 * inverse_corner_r2
        is_paired = columns & np.int32(1) == 0  # else every other pair starts at half a pair
        pixel_bytes = item_bytes if planar else 3 * item_bytes
        at = batch + image * (3 * plane_bytes) + (np.int64(first_row) * width + column) * pixel_bytes
        y, end_y, step_y = centred(first_row, num_rows), centred(end_row, num_rows), np.float32(step)  # halves: exact
        while y < end_y:
            u0, v0, u1, v1 = x0, y, x1, y
            if ways & HAS_LENS_BIT:
                u0, v0, u1, v1 = bent_pair(row, x0, x1, y, before, radial, ways)
            at_x0, at_y0 = linear(u0, v0, after_xx, after_xy, offset_x), linear(u0, v0, after_yx, after_yy, offset_y)
            at_x1, at_y1 = linear(u1, v1, after_xx, after_xy, offset_x), linear(u1, v1, after_yx, after_yy, offset_y)
            if ways & HAS_FIELD_BIT:
                at_x0, at_y0, at_x1, at_y1 = displaced_pair(row, x0, x1, y, at_x0, at_y0, at_x1, at_y1)
            if ways & IS_BILINEAR_BIT:
                red0, green0, blue0, red1, green1, blue1 = bilinear_pair(
                    row, base, below, stride, channels, at_x0, at_y0, at_x1, at_y1, bounds, raised
                )
            else:
                red0, green0, blue0 = averaged(row, base, stride, channels, at_x0, at_y0, raised)
                red1, green1, blue1 = averaged(row, base, stride, channels, at_x1, at_y1, raised)

            beyond = y * y * inverse_corner_r2 - inner_r2
            depth0, depth1 = max(far0 + beyond, ZERO), max(far1 + beyond, ZERO)
            red0, green0, blue0 = finished(red0, green0, blue0, darkening * depth0 * depth0, last, cast, scale, bias)
            red1, green1, blue1 = finished(red1, green1, blue1, darkening * depth1 * depth1, last, cast, scale, bias)

            if planar:
                if is_paired:
                    write_pair(at, red0, red1, held_as)
                    write_pair(at + plane_bytes, green0, green1, held_as)
                    write_pair(at + 2 * plane_bytes, blue0, blue1, held_as)
                else:
                    write(at, red0, held_as)
                    write(at + plane_bytes, green0, held_as)
                    write(at + 2 * plane_bytes, blue0, held_as)
                    if column + 1 < width:
                        write(at + item_bytes, red1, held_as)
                        write(at + plane_bytes + item_bytes, green1, held_as)
                        write(at + 2 * plane_bytes + item_bytes, blue1, held_as)
            elif is_paired:
                write_pair(at, red0, green0, held_as)
                write_pair(at + 2 * item_bytes, blue0, red1, held_as)
                write_pair(at + 4 * item_bytes, green1, blue1, held_as)
            else:
                write(at, red0, held_as)
                write(at + item_bytes, green0, held_as)
                write(at + 2 * item_bytes, blue0, held_as)
                if column + 1 < width:
                    write(at + 3 * item_bytes, red1, held_as)
                    write(at + 4 * item_bytes, green1, held_as)
                    write(at + 5 * item_bytes, blue1, held_as)
            at += step_bytes
            y += step_y

    return render
