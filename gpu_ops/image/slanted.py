"""Sampling where the output is slanted against the image: taps along x and along y of each pixel."""

import numpy as np

from augpipe.gpu_ops.image.rows import SHARP, TRIANGLE
from augpipe.gpu_ops.image.sampling import (
    border_period,
    border_turn,
    clamp,
    continued,
    filter_weight,
    first_tap,
    is_inside,
    num_taps,
    sharp_weight,
    tap_weight,
)
from augpipe.gpu_ops.image.scratch_rows import (
    BLUE,
    FIRST_Y,
    GREEN,
    INDEX_Y,
    INSIDE_Y,
    INVERSE,
    ONE,
    PREFETCH_ROWS,
    PREFETCH_STEP,
    RED,
    SOURCE_Y,
    SUM_X,
    SUM_Y,
    WEIGHT_Y,
    WEIGHTS_X,
    ZERO,
    load_blue,
    load_fetched,
    load_first_y,
    load_green,
    load_index_x,
    load_index_y,
    load_inside_y,
    load_pixel,
    load_red,
    load_source_y,
    load_sum_x,
    load_sum_y,
    load_two_pixels,
    load_weight_x,
    load_weight_y,
    store_blue,
    store_fetched,
    store_first_y,
    store_green,
    store_index_y,
    store_inside_y,
    store_inverse,
    store_red,
    store_sum_y,
    store_two_fetched,
    store_weight_y,
)
from augpipe.gpu_ops.image.tone import channel
from augpipe.gpu_ops.jit import subroutine
from augpipe.gpu_ops.memory import prefer_wide_vectors, prefetch


@subroutine
def sample_slanted(pixels, row, s, width, are_taps_inside):
    """For each tap along y its weights and pixel rows, the pixels at the taps along x, and the sums over them."""
    prefer_wide_vectors()
    offset = width * 4
    at_source_y, at_first_y, at_sum_y = s + SOURCE_Y * offset, s + FIRST_Y * offset, s + SUM_Y * offset
    at_inside_y, at_weight_y, at_index_y = s + INSIDE_Y * offset, s + WEIGHT_Y * offset, s + INDEX_Y * offset
    at_red, at_green, at_blue = s + RED * offset, s + GREEN * offset, s + BLUE * offset
    num_taps_x, num_taps_y = num_taps(row.support_x), num_taps(row.support_y)
    num_paired = num_taps_x // 2 * 2
    at_weight_x, at_index_x = s + WEIGHTS_X * offset, s + (WEIGHTS_X + num_taps_x) * offset
    at_fetched = s + (WEIGHTS_X + 2 * num_taps_x) * offset
    low_y, high_y = np.float32(row.low_y), np.float32(row.high_y)
    support_y, last_tap_y = row.support_y, np.float32(num_taps_y - 1)
    num_outside = np.int32(0)
    for i in range(width):
        first_y = first_tap(load_source_y(at_source_y, i), support_y)
        num_outside += np.int32(1) - np.int32(is_inside(first_y, low_y, high_y - last_tap_y))
        store_first_y(at_first_y, i, first_y)
        store_sum_y(at_sum_y, i, ZERO)
        store_inside_y(at_inside_y, i, ZERO)
    for i in range(width):
        store_red(at_red, i, ZERO)
        store_green(at_green, i, ZERO)
        store_blue(at_blue, i, ZERO)
    period_y = border_period(row.reflects, high_y - low_y + ONE)
    turn_y = border_turn(row.reflects, high_y - low_y + ONE)
    inverse_support_y, inverse_period_y = ONE / support_y, ONE / period_y
    is_triangle = row.filter == TRIANGLE
    address, stride = np.uintp(pixels[0]), np.int32(pixels[1])
    shift = np.int32((row.origin_y - pixels[3]) * pixels[1] + (row.origin_x - pixels[2]))
    reflects, is_constant = row.reflects != 0 and num_outside > 0, row.is_constant != 0

    # what rows further down will read: the CPU foresees neither a slanted walk nor where the next row starts
    ahead_x, ahead_y = PREFETCH_ROWS * row.after_xy, PREFETCH_ROWS * row.after_yy
    if row.has_lens:
        ahead_x, ahead_y = ahead_x * row.before_yy, ahead_y * row.before_yy
    ahead = np.int64(np.rint(ahead_y)) * pixels[1] + np.int64(np.rint(ahead_x))

    for tap_y in range(num_taps_y):
        nth = np.float32(tap_y)
        if not is_triangle:
            for i in range(width):
                index, source_y = load_first_y(at_first_y, i) + nth, load_source_y(at_source_y, i)
                store_weight_y(at_weight_y, i, filter_weight(row.filter, index, source_y, inverse_support_y))
        for i in range(width):
            index = load_first_y(at_first_y, i) + nth
            weight = tap_weight(index, load_source_y(at_source_y, i), inverse_support_y)
            if not is_triangle:
                weight = load_weight_y(at_weight_y, i)
            store_sum_y(at_sum_y, i, load_sum_y(at_sum_y, i) + weight)
            if reflects:
                index = continued(index, low_y, period_y, inverse_period_y, turn_y)
            pixel_row = np.int32(np.int32(np.int32(clamp(index, low_y, high_y)) * stride) + shift)
            store_weight_y(at_weight_y, i, weight)
            store_index_y(at_index_y, i, np.int32(pixel_row + load_index_x(at_index_x, i)))
        if is_constant:
            for i in range(width):
                weight = load_weight_y(at_weight_y, i) * is_inside(load_first_y(at_first_y, i) + nth, low_y, high_y)
                store_weight_y(at_weight_y, i, weight)
                store_inside_y(at_inside_y, i, load_inside_y(at_inside_y, i) + weight)

        # the pixels at the taps, which CPUs with slow gathers load two by two where taps are neighbours
        for i in range(0, width, PREFETCH_STEP):
            prefetch(np.uintp(address + 4 * (np.int64(load_index_y(at_index_y, i)) + ahead)))
        if are_taps_inside:
            for tap in range(0, num_paired, 2):
                for i in range(width):
                    pair = load_two_pixels(address + 4 * tap, 4 * np.int64(load_index_y(at_index_y, i)))
                    store_two_fetched(at_fetched + tap * offset, i, pair)
            for tap in range(num_paired, num_taps_x):
                for i in range(width):
                    pixel = load_pixel(address + 4 * tap, load_index_y(at_index_y, i))
                    store_fetched(at_fetched + tap * offset, i, pixel)
        else:
            for i in range(width):
                store_index_y(at_index_y, i, np.int32(load_index_y(at_index_y, i) - load_index_x(at_index_x, i)))
            for tap in range(0, num_paired, 2):
                for i in range(width):
                    pixel_row = load_index_y(at_index_y, i)
                    left = load_index_x(at_index_x, tap * width + i)
                    right = load_index_x(at_index_x, (tap + 1) * width + i)
                    pair = np.uint64(load_pixel(address, np.int32(pixel_row + right))) << np.uint64(32)
                    pair |= np.uint64(load_pixel(address, np.int32(pixel_row + left)))
                    store_two_fetched(at_fetched + tap * offset, i, pair)
            for tap in range(num_paired, num_taps_x):
                for i in range(width):
                    index = np.int32(load_index_y(at_index_y, i) + load_index_x(at_index_x, tap * width + i))
                    store_fetched(at_fetched + tap * offset, i, load_pixel(address, index))

        # and the sums
        for tap in range(0, num_paired, 2):
            for i in range(width):
                left = load_fetched(at_fetched + tap * offset, 2 * i)
                right = load_fetched(at_fetched + tap * offset, 2 * i + 1)
                weight_y = load_weight_y(at_weight_y, i)
                weight_l = load_weight_x(at_weight_x, tap * width + i) * weight_y
                weight_r = load_weight_x(at_weight_x, (tap + 1) * width + i) * weight_y
                red = load_red(at_red, i) + channel(left, 0) * weight_l
                green = load_green(at_green, i) + channel(left, 8) * weight_l
                blue = load_blue(at_blue, i) + channel(left, 16) * weight_l
                store_red(at_red, i, red + channel(right, 0) * weight_r)
                store_green(at_green, i, green + channel(right, 8) * weight_r)
                store_blue(at_blue, i, blue + channel(right, 16) * weight_r)
        for tap in range(num_paired, num_taps_x):
            for i in range(width):
                pixel = load_fetched(at_fetched + tap * offset, i)
                weight = load_weight_x(at_weight_x, tap * width + i) * load_weight_y(at_weight_y, i)
                store_red(at_red, i, load_red(at_red, i) + channel(pixel, 0) * weight)
                store_green(at_green, i, load_green(at_green, i) + channel(pixel, 8) * weight)
                store_blue(at_blue, i, load_blue(at_blue, i) + channel(pixel, 16) * weight)
    if row.is_constant >= SHARP:
        for i in range(width):
            inside = sharp_weight(load_inside_y(at_inside_y, i), load_source_y(at_source_y, i), row.begin_y, row.end_y)
            store_inside_y(at_inside_y, i, inside)
    at_sum_x, at_inverse = s + SUM_X * offset, s + INVERSE * offset
    for i in range(width):
        store_inverse(at_inverse, i, ONE / (load_sum_x(at_sum_x, i) * load_sum_y(at_sum_y, i)))
