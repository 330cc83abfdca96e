"""Where the pixels of an output's row come from, and their taps along x."""

import numpy as np

from augpipe.gpu_ops.image.lens import distort, radial_gain
from augpipe.gpu_ops.image.rows import SHARP, TRIANGLE
from augpipe.gpu_ops.image.sampling import (
    border_period,
    border_turn,
    clamp,
    continued,
    divisor,
    filter_weight,
    first_tap,
    is_inside,
    linear,
    num_taps,
    sharp_weight,
    tap_weight,
    where_it_meets,
)
from augpipe.gpu_ops.image.scratch_rows import (
    FIRST_X,
    HALF,
    INSIDE_X,
    ONE,
    SOURCE_X,
    SOURCE_Y,
    SUM_X,
    WEIGHTS_X,
    ZERO,
    centred,
    load_first_x,
    load_inside_x,
    load_source_x,
    load_source_y,
    load_sum_x,
    load_weight_x,
    store_first_x,
    store_index_x,
    store_inside_x,
    store_source_x,
    store_source_y,
    store_sum_x,
    store_weight_x,
)
from augpipe.gpu_ops.jit import subroutine
from augpipe.gpu_ops.memory import prefer_wide_vectors


@subroutine
def locate_row(row, s, width, y, num):
    """Where the first `num` pixels of a row come from."""
    prefer_wide_vectors()
    offset = width * 4
    at_source_x, at_source_y = s + SOURCE_X * offset, s + SOURCE_Y * offset
    after_xx, after_xy, offset_x = row.after_xx, row.after_xy, row.offset_x - HALF
    after_yx, after_yy, offset_y = row.after_yx, row.after_yy, row.offset_y - HALF
    if row.has_projection:
        before_xx, before_xy, before_yx, before_yy = row.before_xx, row.before_xy, row.before_yx, row.before_yy
        before_x0, before_y0 = row.before_x0, row.before_y0
        before_wx, before_wy, before_w0 = row.before_wx, row.before_wy, row.before_w0
        k1, k2, k3, p1, p2 = row.k1, row.k2, row.k3, row.p1, row.p2
        for i in range(num):
            x = centred(np.int32(i), width)
            inverse = ONE / divisor(x, y, before_wx, before_wy, before_w0)
            u = linear(x, y, before_xx, before_xy, before_x0) * inverse
            v = linear(x, y, before_yx, before_yy, before_y0) * inverse
            r2 = u * u + v * v
            gain = radial_gain(r2, k1, k2, k3)
            lens_u = distort(u, v, r2, gain, p2, p1)
            lens_v = distort(v, u, r2, gain, p1, p2)
            store_source_x(at_source_x, i, linear(lens_u, lens_v, after_xx, after_xy, offset_x))
            store_source_y(at_source_y, i, linear(lens_u, lens_v, after_yx, after_yy, offset_y))
    elif row.has_lens:
        before_xx, before_xy, before_yx, before_yy = row.before_xx, row.before_xy, row.before_yx, row.before_yy
        k1, k2, k3, p1, p2 = row.k1, row.k2, row.k3, row.p1, row.p2
        for i in range(num):
            x = centred(np.int32(i), width)
            u = linear(x, y, before_xx, before_xy, ZERO)
            v = linear(x, y, before_yx, before_yy, ZERO)
            r2 = u * u + v * v
            gain = radial_gain(r2, k1, k2, k3)
            lens_u = distort(u, v, r2, gain, p2, p1)
            lens_v = distort(v, u, r2, gain, p1, p2)
            store_source_x(at_source_x, i, linear(lens_u, lens_v, after_xx, after_xy, offset_x))
            store_source_y(at_source_y, i, linear(lens_u, lens_v, after_yx, after_yy, offset_y))
    else:
        for i in range(num):
            x = centred(np.int32(i), width)
            store_source_x(at_source_x, i, linear(x, y, after_xx, after_xy, offset_x))
            store_source_y(at_source_y, i, linear(x, y, after_yx, after_yy, offset_y))


@subroutine
def meet_edges(row, s, width, num):
    """Move where the first `num` pixels of a row come from into the image, where they lie next to its edge."""
    offset = width * 4
    at_source_x, at_source_y = s + SOURCE_X * offset, s + SOURCE_Y * offset
    low_x, high_x = np.float32(row.low_x), np.float32(row.high_x)
    low_y, high_y = np.float32(row.low_y), np.float32(row.high_y)
    for i in range(num):
        store_source_x(at_source_x, i, where_it_meets(load_source_x(at_source_x, i), low_x, high_x))
        store_source_y(at_source_y, i, where_it_meets(load_source_y(at_source_y, i), low_y, high_y))


@subroutine
def weigh_x(row, s, width):
    """Weights and indices of a row's taps along x, and whether all of them lie in the image."""
    prefer_wide_vectors()
    offset = width * 4
    at_source_x, at_first_x, at_sum_x = s + SOURCE_X * offset, s + FIRST_X * offset, s + SUM_X * offset
    at_inside_x, at_weight_x = s + INSIDE_X * offset, s + WEIGHTS_X * offset
    num_taps_x = num_taps(row.support_x)
    at_index_x = at_weight_x + num_taps_x * offset
    low_x, high_x = np.float32(row.low_x), np.float32(row.high_x)
    support_x, last_tap_x = row.support_x, np.float32(num_taps_x - 1)
    num_outside = np.int32(0)
    for i in range(width):
        first_x = first_tap(load_source_x(at_source_x, i), support_x)
        num_outside += np.int32(1) - np.int32(is_inside(first_x, low_x, high_x - last_tap_x))
        store_first_x(at_first_x, i, first_x)
        store_sum_x(at_sum_x, i, ZERO)
        store_inside_x(at_inside_x, i, ZERO)
    period_x = border_period(row.reflects, high_x - low_x + ONE)
    turn_x = border_turn(row.reflects, high_x - low_x + ONE)
    inverse_support_x, inverse_period_x = ONE / support_x, ONE / period_x
    is_triangle = row.filter == TRIANGLE
    reflects, is_constant = row.reflects != 0 and num_outside > 0, row.is_constant != 0
    for tap in range(num_taps_x):
        nth = np.float32(tap)
        if not is_triangle:
            for i in range(width):
                index, source_x = load_first_x(at_first_x, i) + nth, load_source_x(at_source_x, i)
                weight = filter_weight(row.filter, index, source_x, inverse_support_x)
                store_weight_x(at_weight_x, tap * width + i, weight)
        for i in range(width):
            index = load_first_x(at_first_x, i) + nth
            weight = tap_weight(index, load_source_x(at_source_x, i), inverse_support_x)
            if not is_triangle:
                weight = load_weight_x(at_weight_x, tap * width + i)
            store_sum_x(at_sum_x, i, load_sum_x(at_sum_x, i) + weight)
            if reflects:
                index = continued(index, low_x, period_x, inverse_period_x, turn_x)
            store_weight_x(at_weight_x, tap * width + i, weight)
            store_index_x(at_index_x, tap * width + i, np.int32(clamp(index, low_x, high_x)))
        if is_constant:
            for i in range(width):
                inside = is_inside(load_first_x(at_first_x, i) + nth, low_x, high_x)
                weight = load_weight_x(at_weight_x, tap * width + i) * inside
                store_weight_x(at_weight_x, tap * width + i, weight)
                store_inside_x(at_inside_x, i, load_inside_x(at_inside_x, i) + weight)
    if row.is_constant >= SHARP:
        for i in range(width):
            inside = sharp_weight(load_inside_x(at_inside_x, i), load_source_x(at_source_x, i), row.begin_x, row.end_x)
            store_inside_x(at_inside_x, i, inside)
    return num_outside == 0
