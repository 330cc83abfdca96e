"""The CUDA loop that looks up label maps: for each output pixel the label of the pixel nearest to what it shows.

Where a pixel comes from is worked out by the functions of the fused loop, so that a mask lies where its image does.
"""

import numpy as np
from numba import cuda

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import load_f32, load_i32, load_i64, load_u8, load_u16, store_i64
from augpipe.gpu_ops.image import nearest, sampling, scratch_rows
from augpipe.gpu_ops.image.cuda.field import displaced_pair
from augpipe.gpu_ops.image.cuda.fused import HAS_FIELD_BIT, HAS_LENS_BIT, bent_pair, ways_of
from augpipe.gpu_ops.image.cuda.pixels import existing
from augpipe.gpu_ops.image.cuda.records import (
    AFTER_XX,
    AFTER_XY,
    AFTER_YX,
    AFTER_YY,
    BEFORE_XX,
    BEFORE_XY,
    BEFORE_YX,
    BEFORE_YY,
    BEGIN_X,
    BEGIN_Y,
    CHANNELS,
    END_X,
    END_Y,
    FIRST_X,
    FIRST_Y,
    HIGH_X,
    HIGH_Y,
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
    PIXEL_RECORD_BYTES,
    REFLECTS,
    ROW_BYTES,
    STRIDE,
)
from augpipe.gpu_ops.image.rows import MEETING, SHARP

centred, linear, clamp = shared(scratch_rows.centred), shared(sampling.linear), shared(sampling.clamp)
first_tap, is_inside = shared(sampling.first_tap), shared(sampling.is_inside)
where_it_meets, nearest_to = shared(sampling.where_it_meets), shared(nearest.nearest)

HALF, ZERO, FURTHEST = nearest.HALF, nearest.ZERO, nearest.FURTHEST

FILLS_BIT, AS_TAPS_BIT = 1, 2
"""What is asked of all images, as `nearest_pixels` has it: its `fills` and `as_taps`."""

LABEL_BYTES = 8
"""Of an int64, which a label map is written as."""

LABELS_SIGNATURE = "void(int64, int64, int64, int64, int64, int64, int64, int64)"
LABELS_LAUNCH_BOUNDS = (128, 6)


@function("float32")
def shown(coordinate, low, high, meets, as_taps):
    """The index, as a whole float, of the pixel along an axis that a coordinate shows, in the image or not."""
    if meets:
        coordinate = where_it_meets(coordinate, low, high)
    if as_taps:
        coordinate = first_tap(clamp(coordinate, -FURTHEST, FURTHEST), HALF)
    return nearest_to(coordinate)


@function("int64")
def load_label(address, num_bytes):
    """A label of uint8, uint16, int32 or int64, by its bytes."""
    if num_bytes == 1:
        label = np.int64(load_u8(address))
    elif num_bytes == 2:
        label = np.int64(load_u16(address))
    elif num_bytes == 4:
        label = np.int64(load_i32(address))
    else:
        label = load_i64(address)
    return label


@function("int64")
def label_at(row, base, stride, num_bytes, at_x, at_y, fill, asked):
    """The label at a point, given from the row's origin in pixels."""
    low_x, high_x = np.float32(load_i32(row + LOW_X)), np.float32(load_i32(row + HIGH_X))
    low_y, high_y = np.float32(load_i32(row + LOW_Y)), np.float32(load_i32(row + HIGH_Y))
    is_constant = load_i32(row + IS_CONSTANT)
    meets, as_taps = is_constant == MEETING, asked & AS_TAPS_BIT != 0
    x, y = shown(at_x, low_x, high_x, meets, as_taps), shown(at_y, low_y, high_y, meets, as_taps)
    is_outside = is_inside(x, low_x, high_x) * is_inside(y, low_y, high_y) == ZERO
    if is_constant == SHARP:
        is_outside |= (at_x <= load_f32(row + BEGIN_X)) | (at_x >= load_f32(row + END_X))
        is_outside |= (at_y <= load_f32(row + BEGIN_Y)) | (at_y >= load_f32(row + END_Y))
    may_fill = (asked & FILLS_BIT != 0) | (is_constant != 0)
    label = np.int64(fill)
    if not (is_outside & may_fill):
        reflects = load_i32(row + REFLECTS)
        column, line = existing(x, low_x, high_x, reflects), existing(y, low_y, high_y, reflects)
        label = load_label(base + np.int64(np.int32(line * stride + column)) * num_bytes, num_bytes)
    return label


def look_up_labels(labels, rows, out, height, width, rows_per_thread, fill, asked):
    """As the fused kernel: a block belongs to one image, and a thread makes two pixels side by side in every n-th row.

    In the table of label maps, `CHANNELS` are the bytes of a label.
    """
    image = np.int64(cuda.blockIdx.z)
    column = np.int32(2 * (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x))
    if column >= width:
        return
    num_rows, step = np.int32(height), np.int32(cuda.blockDim.y)
    line = np.int32(cuda.blockIdx.y * cuda.blockDim.y * rows_per_thread + cuda.threadIdx.y)
    end_line = min(num_rows, np.int32(line + step * rows_per_thread))

    row = rows + image * ROW_BYTES
    after_xx, after_xy, offset_x = load_f32(row + AFTER_XX), load_f32(row + AFTER_XY), load_f32(row + OFFSET_X) - HALF
    after_yx, after_yy, offset_y = load_f32(row + AFTER_YX), load_f32(row + AFTER_YY), load_f32(row + OFFSET_Y) - HALF
    before_xx, before_xy = load_f32(row + BEFORE_XX), load_f32(row + BEFORE_XY)
    before = before_xx, before_xy, load_f32(row + BEFORE_YX), load_f32(row + BEFORE_YY)
    radial = (load_f32(row + K1), load_f32(row + K2), load_f32(row + K3))
    ways = ways_of(row)

    record = labels + image * PIXEL_RECORD_BYTES
    stride, num_bytes = load_i64(record + STRIDE), load_i64(record + CHANNELS)
    base = load_i64(record) + (np.int64(load_i32(row + ORIGIN_Y)) - load_i64(record + FIRST_Y)) * stride * num_bytes
    base = base + (np.int64(load_i32(row + ORIGIN_X)) - load_i64(record + FIRST_X)) * num_bytes
    stride = np.int32(stride)

    columns = np.int32(width)
    x0, x1 = centred(column, columns), centred(min(np.int32(column + 1), np.int32(columns - 1)), columns)
    while line < end_line:
        y = centred(line, num_rows)
        u0, v0, u1, v1 = x0, y, x1, y
        if ways & HAS_LENS_BIT:
            u0, v0, u1, v1 = bent_pair(row, x0, x1, y, before, radial, ways)
        at_x0, at_y0 = linear(u0, v0, after_xx, after_xy, offset_x), linear(u0, v0, after_yx, after_yy, offset_y)
        at_x1, at_y1 = linear(u1, v1, after_xx, after_xy, offset_x), linear(u1, v1, after_yx, after_yy, offset_y)
        if ways & HAS_FIELD_BIT:
            at_x0, at_y0, at_x1, at_y1 = displaced_pair(row, x0, x1, y, at_x0, at_y0, at_x1, at_y1)
        at = out + ((image * height + line) * width + column) * LABEL_BYTES
        store_i64(at, label_at(row, base, stride, num_bytes, at_x0, at_y0, fill, asked))
        if column + 1 < width:
            store_i64(at + LABEL_BYTES, label_at(row, base, stride, num_bytes, at_x1, at_y1, fill, asked))
        line = np.int32(line + step)
