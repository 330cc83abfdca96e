"""The end of a row of the image kernel: what the constant border adds, tone, and the write."""

import numpy as np

from augpipe.gpu_ops.image.pixels import CACHE_LINE
from augpipe.gpu_ops.image.rows import SHARP, TRIANGLE
from augpipe.gpu_ops.image.sampling import clamp, sharp_gain
from augpipe.gpu_ops.image.scratch_rows import (
    BLUE,
    GREEN,
    INSIDE_X,
    INSIDE_Y,
    INVERSE,
    ONE,
    RED,
    SUM_X,
    SUM_Y,
    ZERO,
    centred,
    finish,
    finish_kept,
    load_blue,
    load_green,
    load_inside_x,
    load_inside_y,
    load_inverse,
    load_red,
    load_sum_x,
    load_sum_y,
    store_batch,
    store_blue,
    store_green,
    store_red,
)
from augpipe.gpu_ops.image.tone import cast, vignette_gain
from augpipe.gpu_ops.jit import subroutine
from augpipe.gpu_ops.memory import prefer_wide_vectors, prefetch_for_writing


@subroutine
def finish_row(row, s, width, y, batch, start, plane, planar):
    """What the constant border adds, tone, and the write at item `start` of the batch."""
    prefer_wide_vectors()
    offset = width * 4
    at_sum_x, at_sum_y = s + SUM_X * offset, s + SUM_Y * offset
    at_inverse = s + INVERSE * offset
    at_inside_x, at_inside_y = s + INSIDE_X * offset, s + INSIDE_Y * offset
    at_red, at_green, at_blue = s + RED * offset, s + GREEN * offset, s + BLUE * offset
    out = batch.ctypes.data

    # the next row is about to be written
    next_row = np.int64(out) + batch.itemsize * (start + width * (1 if planar else 3))
    step = batch.itemsize * (plane if planar else width)
    for ahead in range(0, batch.itemsize * width, CACHE_LINE):
        for channel_or_third in range(3):
            prefetch_for_writing(np.uintp(next_row + ahead + channel_or_third * step))

    fill_r, fill_g, fill_b = row.fill[0], row.fill[1], row.fill[2]
    if row.is_constant >= SHARP:
        for i in range(width):
            sum_x, inside_x = load_sum_x(at_sum_x, i), load_inside_x(at_inside_x, i)
            sum_y, inside_y = load_sum_y(at_sum_y, i), load_inside_y(at_inside_y, i)
            kept = sharp_gain(sum_x, inside_x) * sharp_gain(sum_y, inside_y)
            filled = sum_x * sum_y if kept == ZERO else ZERO
            store_red(at_red, i, load_red(at_red, i) * kept + filled * fill_r)
            store_green(at_green, i, load_green(at_green, i) * kept + filled * fill_g)
            store_blue(at_blue, i, load_blue(at_blue, i) * kept + filled * fill_b)
    elif row.is_constant:
        for i in range(width):
            whole = load_sum_x(at_sum_x, i) * load_sum_y(at_sum_y, i)
            missing = whole - load_inside_x(at_inside_x, i) * load_inside_y(at_inside_y, i)
            store_red(at_red, i, load_red(at_red, i) + missing * fill_r)
            store_green(at_green, i, load_green(at_green, i) + missing * fill_g)
            store_blue(at_blue, i, load_blue(at_blue, i) + missing * fill_b)
    if row.filter != TRIANGLE:
        for i in range(width):  # a bicubic look-up reaches beyond what is there
            white = np.float32(255.0) * load_sum_x(at_sum_x, i) * load_sum_y(at_sum_y, i)
            store_red(at_red, i, clamp(load_red(at_red, i), ZERO, white))
            store_green(at_green, i, clamp(load_green(at_green, i), ZERO, white))
            store_blue(at_blue, i, clamp(load_blue(at_blue, i), ZERO, white))
    inverse_corner_r2, inner_r2, inverse_span = row.inverse_corner_r2, row.vignette_inner_r2, row.vignette_inverse_span
    strength, casts_last = row.vignette_strength, np.float32(row.casts_last)
    cast_r, cast_g, cast_b = row.cast[0], row.cast[1], row.cast[2]
    scale_r, scale_g, scale_b = row.scale[0], row.scale[1], row.scale[2]
    bias_r, bias_g, bias_b = row.bias[0], row.bias[1], row.bias[2]
    is_plain = strength == ZERO and cast_r == ZERO and cast_g == ZERO and cast_b == ZERO
    if planar and is_plain:  # as below, to the bit
        for i in range(width):
            inverse_weight = load_inverse(at_inverse, i)
            red, green = load_red(at_red, i) * inverse_weight, load_green(at_green, i) * inverse_weight
            blue = load_blue(at_blue, i) * inverse_weight
            store_batch(out, start + i, finish_kept(batch, red, scale_r, bias_r))
            store_batch(out, start + plane + i, finish_kept(batch, green, scale_g, bias_g))
            store_batch(out, start + 2 * plane + i, finish_kept(batch, blue, scale_b, bias_b))
    elif is_plain:
        for i in range(width):
            inverse_weight = load_inverse(at_inverse, i)
            red, green = load_red(at_red, i) * inverse_weight, load_green(at_green, i) * inverse_weight
            blue = load_blue(at_blue, i) * inverse_weight
            store_batch(out, start + 3 * i, finish_kept(batch, red, scale_r, bias_r))
            store_batch(out, start + 3 * i + 1, finish_kept(batch, green, scale_g, bias_g))
            store_batch(out, start + 3 * i + 2, finish_kept(batch, blue, scale_b, bias_b))
    elif planar:
        for i in range(width):
            x = centred(np.int32(i), width)
            lost = vignette_gain((x * x + y * y) * inverse_corner_r2, inner_r2, inverse_span, strength) - ONE
            inverse_weight = load_inverse(at_inverse, i)
            before, after = ONE + lost * casts_last, ONE + lost * (ONE - casts_last)
            red = cast(load_red(at_red, i) * inverse_weight, before, cast_r, after)
            green = cast(load_green(at_green, i) * inverse_weight, before, cast_g, after)
            blue = cast(load_blue(at_blue, i) * inverse_weight, before, cast_b, after)
            store_batch(out, start + i, finish(batch, red, scale_r, bias_r))
            store_batch(out, start + plane + i, finish(batch, green, scale_g, bias_g))
            store_batch(out, start + 2 * plane + i, finish(batch, blue, scale_b, bias_b))
    else:
        for i in range(width):
            x = centred(np.int32(i), width)
            lost = vignette_gain((x * x + y * y) * inverse_corner_r2, inner_r2, inverse_span, strength) - ONE
            inverse_weight = load_inverse(at_inverse, i)
            before, after = ONE + lost * casts_last, ONE + lost * (ONE - casts_last)
            red = cast(load_red(at_red, i) * inverse_weight, before, cast_r, after)
            green = cast(load_green(at_green, i) * inverse_weight, before, cast_g, after)
            blue = cast(load_blue(at_blue, i) * inverse_weight, before, cast_b, after)
            store_batch(out, start + 3 * i, finish(batch, red, scale_r, bias_r))
            store_batch(out, start + 3 * i + 1, finish(batch, green, scale_g, bias_g))
            store_batch(out, start + 3 * i + 2, finish(batch, blue, scale_b, bias_b))
