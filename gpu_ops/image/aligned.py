"""Sampling where the output is not slanted against the image: along one axis, and then along the other.

A row of the image is summed along x once, and kept for all rows of the output that draw on it. Where the output is much
smaller, columns are summed along y first: they lie side by side, and taps along x do not.
"""

import numpy as np
from numba import types

from augpipe.gpu_ops.image.pixels import RGB_BYTES, pack_row
from augpipe.gpu_ops.image.rows import GRID, SHARP, SPLINE, TRIANGLE
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
    WEIGHTS_X,
    ZERO,
    load_blue,
    load_fetched,
    load_green,
    load_index_x,
    load_index_y,
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
    store_green,
    store_inside_y,
    store_inverse,
    store_red,
    store_sum_y,
    store_two_fetched,
    store_weight_y,
)
from augpipe.gpu_ops.image.tap_sums import BLOCK as SUM_BLOCK
from augpipe.gpu_ops.image.tap_sums import PIXELS, sum_pixel, sum_pixels, sum_taps, sum_taps_of_bytes
from augpipe.gpu_ops.image.tone import channel
from augpipe.gpu_ops.image.windows import (
    BLOCK,
    WINDOW,
    sum_wide_window,
    sum_wide_window_of_rgb,
    sum_window,
    sum_window_of_rgb,
)
from augpipe.gpu_ops.jit import subroutine
from augpipe.gpu_ops.memory import load, prefer_wide_vectors, prefetch, store

NOTHING = np.float32(np.nan)
"""What no sum of weights is equal to."""

load_held, store_held = load("slots", types.int64), store("slots", types.int64)
load_line, store_line = load("lines", types.int64), store("lines", types.int64)
load_byte = load("pixels", types.uint8)
store_column = store("values")


@subroutine
def is_aligned(row):
    """Whether a pixel's x comes of its column alone, and its y of its row."""
    if row.field == GRID:
        keeps_axes = row.has_projection == 0 and row.before_xy == ZERO and row.before_yx == ZERO
    else:
        keeps_axes = row.has_lens == 0 and row.field != SPLINE
    return keeps_axes and row.after_xy == ZERO and row.after_yx == ZERO


@subroutine
def sample_aligned(pixels, row, s, width, are_taps_inside, window, first_x, num, at_packed, at_held, rgb_bytes):
    """The sums of one row of the output, which looks at whole rows of the image: along x first.

    Args:
        pixels, row: of this image, as in `fused.run_jobs`.
        s: address of the scratch rows, where the taps along x are already.
        width: pixels of the row.
        are_taps_inside: whether all taps along x lie in the image.
        window: `find_windows` of these taps; bases are in the scratch row `INDEX_Y`.
        first_x, num: the columns of the image, `num` of them, that the taps along x lie in.
        at_packed: address of scratch for as many pixels.
        at_held: address of (3, n) int64, n as many as there are taps along y: which rows of the image are summed in
            scratch; the other two are overwritten.
        rgb_bytes: None, or of the image's `rgb_rows`; see `fused.run_jobs`.
    """
    offset = width * 4
    at_kept = s + (WEIGHTS_X + 3 * num_taps(row.support_x)) * offset
    source_y = load_source_y(s + SOURCE_Y * offset, 0)
    num_held = num_taps(row.support_y)
    at_lines, at_weights = at_held + 8 * num_held, at_held + 16 * num_held
    sum_y, inside_y, num_lines = ZERO, ZERO, 0
    for tap in range(num_held):
        whole, weight, line = _tap_along_y(row, source_y, tap)
        sum_y, inside_y = sum_y + whole, inside_y + weight
        if weight == ZERO:
            continue  # it would add zeros
        slot = line % num_held
        while load_held(at_held, slot) != line and _is_among(at_kept + 3 * slot * offset, at_lines, num_lines):
            slot = (slot + 1) % num_held  # rows beyond a border may lie far from each other
        at_line = at_kept + 3 * slot * offset
        if load_held(at_held, slot) != line:
            store_held(at_held, slot, line)
            columns = first_x, num, at_packed
            _sum_along_x(pixels, row, line, s, width, are_taps_inside, window, *columns, at_line, rgb_bytes)
        store_line(at_lines, num_lines, at_line)
        store_weight_y(at_weights, num_lines, weight)
        num_lines += 1
    _sum_lines(at_lines, at_weights, num_lines, 3 * width, np.uintp(s + RED * offset))
    _store_sums_of_weights(row, s, width, sum_y, inside_y)


@subroutine
def _is_among(at_line, at_lines, num_lines):
    is_found = False
    for nth in range(num_lines):
        is_found |= load_line(at_lines, nth) == at_line
    return is_found


@subroutine
def _sum_lines(at_lines, at_weights, num_lines, length, at_sums):
    """Add up rows that lie at addresses, each times its weight; red, green and blue follow each other in them."""
    end = length if length >= SUM_BLOCK else 0
    for i in range(0, end, SUM_BLOCK):
        sum_taps(at_lines, at_weights, num_lines, min(np.int64(i), length - SUM_BLOCK), at_sums)
    for i in range(end, length):
        total = ZERO
        for nth in range(num_lines):
            total += load_weight_y(at_weights, nth) * load_red(np.uintp(load_line(at_lines, nth)), i)
        store_red(at_sums, i, total)


@subroutine
def sample_shrunk(pixels, row, s, width, first_x, num, at_held, rgb_bytes):
    """`sample_aligned` of an output that is much smaller than what it shows: along y first."""
    prefer_wide_vectors()
    offset, taps = width * 4, num_taps(row.support_x)
    at_red = s + RED * offset  # green and blue follow
    at_weight_x, at_index_x = s + WEIGHTS_X * offset, s + (WEIGHTS_X + taps) * offset
    at_columns = s + (WEIGHTS_X + 3 * taps) * offset
    source_y = load_source_y(s + SOURCE_Y * offset, 0)
    sum_y, inside_y = ZERO, ZERO
    pixel_bytes = np.int64(4)
    if rgb_bytes is not None:
        pixel_bytes = np.int64(RGB_BYTES if rgb_bytes else 4)
    most_lines, num_lines = num_taps(row.support_y), 0
    at_lines, at_weights = at_held + 8 * most_lines, at_held + 16 * most_lines
    for tap in range(most_lines):
        whole, weight, line = _tap_along_y(row, source_y, tap)
        sum_y, inside_y = sum_y + whole, inside_y + weight
        if weight == ZERO:
            continue  # it would add zeros
        store_line(at_lines, num_lines, np.int64(_address_of(pixels, row, line, rgb_bytes) + pixel_bytes * first_x))
        store_weight_y(at_weights, num_lines, weight)
        num_lines += 1
    length = pixel_bytes * num  # with the spare bytes
    end = length if length >= SUM_BLOCK else 0
    for i in range(0, end, SUM_BLOCK):
        sum_taps_of_bytes(at_lines, at_weights, num_lines, min(np.int64(i), length - SUM_BLOCK), at_columns)
    for i in range(end, length):
        total = ZERO
        for nth in range(num_lines):
            level = load_byte(np.uintp(load_line(at_lines, nth)), i)
            total += load_weight_y(at_weights, nth) * np.float32(np.int32(level))
        store_column(at_columns, i, total)
    step = 4 * pixel_bytes
    at_column = np.uintp(at_columns - step * first_x)
    end = width if width >= PIXELS else 0
    for i in range(0, end, PIXELS):
        at = 4 * min(np.int64(i), width - PIXELS)
        sum_pixels(at_column, step, at_index_x + at, at_weight_x + at, offset, taps, np.uintp(at_red + at))
    for i in range(end, width):
        sum_pixel(at_column, step, at_index_x + 4 * i, at_weight_x + 4 * i, offset, taps, np.uintp(at_red + 4 * i))
    _store_sums_of_weights(row, s, width, sum_y, inside_y)


@subroutine
def _tap_along_y(row, source_y, tap):
    """The weight of a tap, what of it lies in the image, and the row of the image that it looks at."""
    low, high, inverse_support = np.float32(row.low_y), np.float32(row.high_y), ONE / row.support_y
    index = first_tap(source_y, row.support_y) + np.float32(tap)
    whole = tap_weight(index, source_y, inverse_support)
    if row.filter != TRIANGLE:
        whole = filter_weight(row.filter, index, source_y, inverse_support)
    weight = whole * is_inside(index, low, high) if row.is_constant else whole
    if row.reflects:
        period = border_period(row.reflects, high - low + ONE)
        index = continued(index, low, period, ONE / period, border_turn(row.reflects, high - low + ONE))
    return whole, weight, np.int64(clamp(index, low, high))


@subroutine
def _address_of(pixels, row, line, rgb_bytes):
    """The address of the image's row `line`, of its column 0."""
    if rgb_bytes is not None:
        if rgb_bytes:
            ahead = rgb_bytes * (line + row.origin_y - pixels[3])
            return pixels[0] + ahead + RGB_BYTES * (row.origin_x - pixels[2])
    return pixels[0] + 4 * ((line + row.origin_y - pixels[3]) * pixels[1] + row.origin_x - pixels[2])


@subroutine
def forget_sums_of_weights(s, width):
    """Called where another image's rows begin."""
    store_sum_y(s + SUM_Y * width * 4, 0, NOTHING)


@subroutine
def _store_sums_of_weights(row, s, width, sum_y, inside_y):
    """Store a row's sums, unless they are those of the row before it."""
    prefer_wide_vectors()
    offset = width * 4
    at_sum_x, at_sum_y, at_inverse = s + SUM_X * offset, s + SUM_Y * offset, s + INVERSE * offset
    if load_sum_y(at_sum_y, 0) != sum_y:
        for i in range(width):
            store_sum_y(at_sum_y, i, sum_y)
            store_inverse(at_inverse, i, ONE / (load_sum_x(at_sum_x, i) * sum_y))
    if row.is_constant:
        if row.is_constant >= SHARP:
            source_y = load_source_y(s + SOURCE_Y * offset, 0)
            inside_y = sharp_weight(inside_y, source_y, row.begin_y, row.end_y)
        for i in range(width):
            store_inside_y(s + INSIDE_Y * offset, i, inside_y)


@subroutine
def _sum_along_x(pixels, row, line, s, width, are_taps_inside, window, first_x, num, at_packed, at_line, rgb_bytes):
    """The sums over the taps along x of the image's row `line`: red, green and blue from the address `at_line` on."""
    prefer_wide_vectors()
    offset = width * 4
    taps = num_taps(row.support_x)
    num_paired = taps // 2 * 2
    at_weight_x, at_index_x = s + WEIGHTS_X * offset, s + (WEIGHTS_X + taps) * offset
    at_fetched = s + (WEIGHTS_X + 2 * taps) * offset
    at_green, at_blue = at_line + offset, at_line + 2 * offset
    address = np.uintp(_address_of(pixels, row, line, rgb_bytes))
    row_bytes, pixel_bytes, is_rgb = 4 * pixels[1], np.int64(4), False
    if rgb_bytes is not None:
        is_rgb = rgb_bytes != 0
        row_bytes, pixel_bytes = (rgb_bytes, np.int64(RGB_BYTES)) if is_rgb else (row_bytes, pixel_bytes)

    # what rows further down will read: the CPU does not foresee where the next row starts
    ahead = np.int64(np.rint(PREFETCH_ROWS * row.after_yy)) * row_bytes
    for i in range(0, width, PREFETCH_STEP):
        prefetch(np.uintp(address + pixel_bytes * np.int64(load_index_x(at_index_x, i)) + ahead))

    if window:
        at_base = s + INDEX_Y * offset
        for block in range((width + BLOCK - 1) // BLOCK):
            first, base = min(block * BLOCK, width - BLOCK), load_index_y(at_base, block)
            at, ahead = np.uintp(address + pixel_bytes * np.int64(base)), 4 * first
            at_indices, at_weights, at_sums = at_index_x + ahead, at_weight_x + ahead, at_line + ahead
            if rgb_bytes is not None:
                if is_rgb and window == WINDOW:
                    sum_window_of_rgb(at, base, at_indices, at_weights, offset, taps, at_sums)
                    continue
                if is_rgb:
                    sum_wide_window_of_rgb(at, base, at_indices, at_weights, offset, taps, at_sums)
                    continue
            if window == WINDOW:
                sum_window(at, base, at_indices, at_weights, offset, taps, at_sums)
            else:
                sum_wide_window(at, base, at_indices, at_weights, offset, taps, at_sums)
        return
    if rgb_bytes is not None:
        if is_rgb:
            pack_row(np.uintp(address + RGB_BYTES * first_x), np.int64(RGB_BYTES), num, np.uintp(at_packed))
            address = np.uintp(at_packed - 4 * first_x)

    # the pixels at the taps, which CPUs with slow gathers load two by two where taps are neighbours
    if are_taps_inside:
        for tap in range(0, num_paired, 2):
            for i in range(width):
                pair = load_two_pixels(address + 4 * tap, 4 * np.int64(load_index_x(at_index_x, i)))
                store_two_fetched(at_fetched + tap * offset, i, pair)
    else:
        for tap in range(0, num_paired, 2):
            for i in range(width):
                left = load_index_x(at_index_x, tap * width + i)
                right = load_index_x(at_index_x, (tap + 1) * width + i)
                pair = np.uint64(load_pixel(address, right)) << np.uint64(32)
                pair |= np.uint64(load_pixel(address, left))
                store_two_fetched(at_fetched + tap * offset, i, pair)
    for tap in range(num_paired, taps):
        for i in range(width):
            pixel = load_pixel(address, load_index_x(at_index_x, tap * width + i))
            store_fetched(at_fetched + tap * offset, i, pixel)

    # and the sums
    for i in range(width):
        store_red(at_line, i, ZERO)
        store_green(at_green, i, ZERO)
        store_blue(at_blue, i, ZERO)
    for tap in range(0, num_paired, 2):
        for i in range(width):
            left = load_fetched(at_fetched + tap * offset, 2 * i)
            right = load_fetched(at_fetched + tap * offset, 2 * i + 1)
            weight_l = load_weight_x(at_weight_x, tap * width + i)
            weight_r = load_weight_x(at_weight_x, (tap + 1) * width + i)
            red = load_red(at_line, i) + channel(left, 0) * weight_l
            green = load_green(at_green, i) + channel(left, 8) * weight_l
            blue = load_blue(at_blue, i) + channel(left, 16) * weight_l
            store_red(at_line, i, red + channel(right, 0) * weight_r)
            store_green(at_green, i, green + channel(right, 8) * weight_r)
            store_blue(at_blue, i, blue + channel(right, 16) * weight_r)
    for tap in range(num_paired, taps):
        for i in range(width):
            pixel = load_fetched(at_fetched + tap * offset, i)
            weight = load_weight_x(at_weight_x, tap * width + i)
            store_red(at_line, i, load_red(at_line, i) + channel(pixel, 0) * weight)
            store_green(at_green, i, load_green(at_green, i) + channel(pixel, 8) * weight)
            store_blue(at_blue, i, load_blue(at_blue, i) + channel(pixel, 16) * weight)
