"""Outputs that show whole pixels of the image: moved, flipped or turned without a new scale, or the nearest ones. They
need no filter."""

import numpy as np

from augpipe.gpu_ops.image.aligned import is_aligned
from augpipe.gpu_ops.image.pixels import RGB_BYTES, pack_row, prefetch_row
from augpipe.gpu_ops.image.rows import BOX, MEETING, SHARP, TRIANGLE
from augpipe.gpu_ops.image.sampling import (
    border_period,
    border_turn,
    clamp,
    continued,
    first_tap,
    floor,
    is_inside,
    linear,
)
from augpipe.gpu_ops.image.scratch_rows import (
    HALF,
    INDEX_Y,
    ONE,
    SUM_X,
    SUM_Y,
    WEIGHT_Y,
    ZERO,
    centred,
    finish,
    load_index_y,
    load_pixel,
    load_weight_y,
    store_batch,
    store_index_y,
    store_weight_y,
)
from augpipe.gpu_ops.image.tone import channel
from augpipe.gpu_ops.image.windows import span
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import prefer_wide_vectors

TWO = np.float32(2.0)
FARTHEST = np.float32(2.0**22)
"""In pixels: nearer, halves are exact in float32."""


@subroutine
def keeps_colours(row):
    """Whether nothing but the normalisation is done to colours."""
    is_cast = row.cast[0] != ZERO or row.cast[1] != ZERO or row.cast[2] != ZERO
    return not is_cast and row.vignette_strength == ZERO


@subroutine
def is_copied(row, height, width):
    """Whether each pixel of the output is one of the image or the fill, normalised: other taps weigh nothing."""
    half_width = ONE if row.filter == TRIANGLE else (HALF if row.filter == BOX else TWO)
    if row.support_x != half_width or row.support_y != half_width or row.is_constant == MEETING:
        return False
    if row.has_lens or row.has_projection or row.field or not keeps_colours(row):
        return False
    if row.is_constant == SHARP and not ends_whole(row):
        return False
    return are_places_whole(row, height, width) or (row.filter == BOX and not is_aligned(row))


@leaf
def ends_whole(row):
    """Whether what is shown of the image begins and ends between pixels."""
    begins = row.begin_x == np.float32(row.low_x) - HALF and row.begin_y == np.float32(row.low_y) - HALF
    return begins and row.end_x == np.float32(row.high_x) + HALF and row.end_y == np.float32(row.high_y) + HALF


@subroutine
def are_places_whole(row, height, width):
    """Whether pixels of an affine output show whole ones of the image, next to each other."""
    along, across = abs(row.after_xx), abs(row.after_xy)
    if not (along + across == ONE and along * across == ZERO):
        return False
    if abs(row.after_yy) != along or abs(row.after_yx) != across:
        return False
    x, y = centred(np.int32(0), width), centred(np.int32(0), height)
    at_x = linear(x, y, row.after_xx, row.after_xy, row.offset_x - HALF)
    at_y = linear(x, y, row.after_yx, row.after_yy, row.offset_y - HALF)
    return max(abs(at_x), abs(at_y)) < FARTHEST and at_x == floor(at_x) and at_y == floor(at_y)


@leaf
def levels_of(pixel, kept, fill_r, fill_g, fill_b):
    """R, G and B of a pixel of the image where `kept` is 1, of the fill where it is 0."""
    lost = ONE - kept
    return (
        channel(pixel, 0) * kept + lost * fill_r,
        channel(pixel, 8) * kept + lost * fill_g,
        channel(pixel, 16) * kept + lost * fill_b,
    )


@subroutine
def copy_rows(pixels, row, batch, image, height, width, planar, first, last, s, at_packed, rgb_bytes):
    """Write rows `first`..`last` - 1 of an output that `is_copied`.

    Where places are whole, columns of the output run along one axis of the image, and rows along the other.

    Args:
        pixels, row, batch, height, width, planar, rgb_bytes: of this image, as in `fused.run_jobs`.
        image: its number.
        first, last: rows.
        s: address of scratch.
        at_packed: address of scratch for the columns of the image that are seen.
    """
    prefer_wide_vectors()
    address, plane = np.uintp(pixels[0]), np.int64(height) * width
    stride, shift = strides(pixels, row, rgb_bytes)
    at_index, at_kept = s + INDEX_Y * width * 4, s + WEIGHT_Y * width * 4
    at_row, at_row_kept = s + SUM_X * width * 4, s + SUM_Y * width * 4
    is_slanted, is_turned = not are_places_whole(row, height, width), row.after_xx == ZERO
    step, row_step = (row.after_yx, row.after_xy) if is_turned else (row.after_xx, row.after_yy)
    first_x, num = np.int64(0), np.int64(0)
    if not is_slanted:
        place(stride, row, is_turned, step, np.int64(0), width, width, at_index, at_kept)
        first_x, num = span(at_index, width)
    out = batch.ctypes.data
    fill_r, fill_g, fill_b = row.fill[0], row.fill[1], row.fill[2]
    scale_r, scale_g, scale_b = row.scale[0], row.scale[1], row.scale[2]
    bias_r, bias_g, bias_b = row.bias[0], row.bias[1], row.bias[2]
    for row_y in range(first, last):
        of_row, kept_row = shift, ONE
        if is_slanted:
            find_nearest(stride, row, centred(row_y, height), width, at_index, at_kept)
        else:
            place(stride, row, not is_turned, row_step, row_y, row_y + 1, height, at_row, at_row_kept)
            of_row, kept_row = np.int32(load_index_y(at_row, 0) + shift), load_weight_y(at_row_kept, 0)
        if rgb_bytes is not None:
            if rgb_bytes:
                pack_line(
                    pixels, row, rgb_bytes, load_index_y(at_row, 0), row_step, first_x, num, step < ZERO, at_packed
                )
                address, of_row = np.uintp(at_packed), np.int32(-first_x)
        start = image * plane * 3 + row_y * width * (1 if planar else 3)
        if planar:
            for i in range(width):
                pixel = load_pixel(address, np.int32(of_row + load_index_y(at_index, i)))
                red, green, blue = levels_of(pixel, load_weight_y(at_kept, i) * kept_row, fill_r, fill_g, fill_b)
                store_batch(out, start + i, finish(batch, red, scale_r, bias_r))
                store_batch(out, start + plane + i, finish(batch, green, scale_g, bias_g))
                store_batch(out, start + 2 * plane + i, finish(batch, blue, scale_b, bias_b))
        else:
            for i in range(width):
                pixel = load_pixel(address, np.int32(of_row + load_index_y(at_index, i)))
                red, green, blue = levels_of(pixel, load_weight_y(at_kept, i) * kept_row, fill_r, fill_g, fill_b)
                store_batch(out, start + 3 * i, finish(batch, red, scale_r, bias_r))
                store_batch(out, start + 3 * i + 1, finish(batch, green, scale_g, bias_g))
                store_batch(out, start + 3 * i + 2, finish(batch, blue, scale_b, bias_b))


@subroutine
def strides(pixels, row, rgb_bytes):
    """What a row of the image adds to a pixel's index, and what is added to all of them.

    Images of three bytes, whose rows are `rgb_bytes` apart, have indices of columns and of rows, both from the part's
    origin on; `pack_line` needs them.
    """
    if rgb_bytes is not None:
        if rgb_bytes:
            return np.int32(1), np.int32(0)
    shift = (row.origin_y - pixels[3]) * pixels[1] + (row.origin_x - pixels[2])
    return np.int32(pixels[1]), np.int32(shift)


@subroutine
def pack_line(pixels, row, rgb_bytes, line, row_step, first_x, num, turns, at_packed):
    """Pack `num` columns of a line of an image of three bytes a pixel, both counted from the part's origin, and ask for
    lines ahead, of which each follows the one before it by `row_step`, and is read from its end if it `turns`."""
    pack_row(
        find_line(pixels, row, rgb_bytes, line, row_step, first_x, num, turns), RGB_BYTES, num, np.uintp(at_packed)
    )


@subroutine
def find_line(pixels, row, rgb_bytes, line, row_step, first_x, num, turns):
    """The address of `pack_line`'s line; it asks for lines ahead, too."""
    at_line = pixels[0] + rgb_bytes * (line + row.origin_y - pixels[3])
    at_first = np.uintp(at_line + RGB_BYTES * (first_x + row.origin_x - pixels[2]))
    prefetch_row(at_first, np.int64(row_step) * rgb_bytes, RGB_BYTES * num, turns or row_step < ZERO)
    return at_first


@subroutine
def place(stride, row, is_down, step, first, last, length, at_index, at_kept):
    """For columns or rows of an output `first`..`last` - 1, of `length`: where along y or x their pixels lie in memory,
    and 0 where that is outside and the fill is seen, else 1. A row of the image adds `stride`."""
    prefer_wide_vectors()
    stride, offset = (stride, row.offset_y - HALF) if is_down else (np.int32(1), row.offset_x - HALF)
    low, high = np.float32(row.low_y if is_down else row.low_x), np.float32(row.high_y if is_down else row.high_x)
    period, turn = border_period(row.reflects, high - low + ONE), border_turn(row.reflects, high - low + ONE)
    goes_on, is_constant, inverse_period = row.reflects != 0, row.is_constant != 0, ONE / period
    for i in range(last - first):
        at = step * centred(np.int32(first + i), length) + offset
        inside = continued(at, low, period, inverse_period, turn) if goes_on else at
        store_index_y(at_index, i, np.int32(np.int32(clamp(inside, low, high)) * stride))
        store_weight_y(at_kept, i, is_inside(at, low, high) if is_constant else ONE)


@subroutine
def find_nearest(stride, row, y, width, at_index, at_kept):
    """For a row of an affine output: where the pixels nearest to each of its own lie in memory, and 0 where that is
    outside and the fill is seen, else 1."""
    prefer_wide_vectors()
    after_xx, after_xy, offset_x = row.after_xx, row.after_xy, row.offset_x - HALF
    after_yx, after_yy, offset_y = row.after_yx, row.after_yy, row.offset_y - HALF
    low_x, high_x = np.float32(row.low_x), np.float32(row.high_x)
    low_y, high_y = np.float32(row.low_y), np.float32(row.high_y)
    num_x, num_y = high_x - low_x + ONE, high_y - low_y + ONE
    period_x, turn_x = border_period(row.reflects, num_x), border_turn(row.reflects, num_x)
    period_y, turn_y = border_period(row.reflects, num_y), border_turn(row.reflects, num_y)
    inverse_period_x, inverse_period_y = ONE / period_x, ONE / period_y
    goes_on, is_constant = row.reflects != 0, row.is_constant != 0
    for i in range(width):
        x = centred(np.int32(i), width)
        near_x = first_tap(linear(x, y, after_xx, after_xy, offset_x), HALF)
        near_y = first_tap(linear(x, y, after_yx, after_yy, offset_y), HALF)
        kept = is_inside(near_x, low_x, high_x) * is_inside(near_y, low_y, high_y) if is_constant else ONE
        if goes_on:
            near_x = continued(near_x, low_x, period_x, inverse_period_x, turn_x)
            near_y = continued(near_y, low_y, period_y, inverse_period_y, turn_y)
        column, line = np.int32(clamp(near_x, low_x, high_x)), np.int32(clamp(near_y, low_y, high_y))
        store_index_y(at_index, i, np.int32(np.int32(line * stride) + column))
        store_weight_y(at_kept, i, kept)
