"""Filters over a rendered image, on the CPU, in place: a ring of rows as they were is all that is kept.

A separable filter sums columns of the ring into one row, and that row into the image; another filter sums padded
rows of the ring; a median sorts. Where channels are interleaved, a row of all three is one whose neighbours lie
`apart` = 3 from one another. Beyond the image lies its mirror image without the outermost pixel; for a median, the
outermost pixel itself: as OpenCV has it for each of them.
"""

import numpy as np
from numba import types

from augpipe.gpu_ops.image.medians import BLOCK, median_of_9, median_of_25, median_of_49
from augpipe.gpu_ops.image.scratch_rows import load_sum_x, load_sum_y, store_batch, store_sum_x
from augpipe.gpu_ops.image.tap_sums import BLOCK as SUM_BLOCK
from augpipe.gpu_ops.image.tap_sums import sum_pairs, sum_taps
from augpipe.gpu_ops.image.tone import kept_within, nearest_level
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import load, load_bytes, prefer_wide_vectors, store

load_levels = load("pixels", types.float32)
load_tap, load_byte = load_bytes("values", types.float32), load_bytes("values", types.uint8)
load_kept, store_kept = load("fetched", types.float32), store("fetched", types.float32)
load_level, store_level = load("fetched", types.uint8), store("fetched", types.uint8)
load_found = load("scaled", types.uint8)

ZERO = np.float32(0.0)


@leaf
def mirrored(index, length):
    """Where an index outside 0..length - 1 lies in the mirror image without the outermost pixel."""
    inside = abs(index) if length > 1 else 0
    while inside >= length:
        inside = abs(2 * (length - 1) - inside)
    return inside


@leaf
def repeated(index, length):
    """The index kept within 0..length - 1."""
    return min(max(index, 0), length - 1)


@subroutine
def filter_separably(at_taps, radius, levels, start, height, width, planar):
    """Make each level a sum over its column, and then over its row, of 2 * radius + 1, by taps from the middle on."""
    num_planes, apart = (3, 1) if planar else (1, 3)
    length, num_kept = width * apart, min(2 * radius + 1, height)
    before = radius * apart
    row_floats = max(length, SUM_BLOCK)  # a block of a shorter row looks beyond its end
    kept = np.zeros(num_kept * row_floats, np.float32)
    summed = np.zeros(row_floats + 2 * before, np.float32)
    made, rows = np.empty(SUM_BLOCK, np.float32), np.empty(2 * radius + 1, np.uintp)
    for plane in range(num_planes):
        # in the loop, as numba frees an array after its last use
        at_kept, at_padded, at_rows = kept.ctypes.data, np.uintp(summed.ctypes.data), np.uintp(rows.ctypes.data)
        at_summed, at_made = np.uintp(at_padded + 4 * before), np.uintp(made.ctypes.data)
        first, num_taken = start + plane * height * width, 0
        for y in range(height):
            while num_taken < min(y + radius + 1, height):
                at_row = np.uintp(at_kept + 4 * row_floats * (num_taken % num_kept))
                _keep_row(levels, first + num_taken * length, length, at_row)
                num_taken += 1
            for nth in range(2 * radius + 1):  # the row itself, and then those above and below it
                rows[nth] = at_kept + 4 * row_floats * (mirrored(y + _away(nth), height) % num_kept)
            _sum_pairs(at_rows, at_taps, radius, row_floats, at_summed)
            _pad_row(at_padded, radius, width, apart)
            for nth in range(2 * radius + 1):
                rows[nth] = at_summed + 4 * _away(nth) * apart
            if length < SUM_BLOCK:
                _sum_pairs(at_rows, at_taps, radius, row_floats, at_made)
                _put_row(at_made, levels, first + y * length, length)
            else:
                at_levels = np.uintp(levels.ctypes.data + 4 * (first + y * length))
                _sum_pairs(at_rows, at_taps, radius, row_floats, at_levels)


@leaf
def _away(nth):
    """How far off the rows of `sum_pairs` lie: 0, and then one before and one behind, each pair further."""
    return (nth + 1) // 2 if nth % 2 == 0 else -((nth + 1) // 2)


@subroutine
def _sum_pairs(at_rows, at_taps, num_pairs, length, at_sums):
    """Write a row of sums over rows at addresses: the first one, and pairs that share a tap."""
    for i in range(0, length, SUM_BLOCK):
        sum_pairs(at_rows, at_taps, num_pairs, min(np.int64(i), length - SUM_BLOCK), at_sums)


@subroutine
def _put_row(at_made, levels, first, length):
    prefer_wide_vectors()
    out = levels.ctypes.data
    for i in range(length):
        store_batch(out, first + i, load_sum_y(at_made, i))


@subroutine
def _keep_row(levels, first, length, at_row):
    prefer_wide_vectors()
    source = levels.ctypes.data
    for i in range(length):
        store_kept(at_row, i, load_levels(source, first + i))


@subroutine
def _pad_row(at_padded, radius, width, apart):
    """Put the mirror image of a row before and behind it."""
    before = radius * apart
    for i in range(radius):
        left, right = mirrored(i - radius, width), mirrored(width + i, width)
        for channel in range(apart):
            store_sum_x(at_padded, i * apart + channel, load_sum_x(at_padded, before + left * apart + channel))
            at_right = before + (width + i) * apart + channel
            store_sum_x(at_padded, at_right, load_sum_x(at_padded, before + right * apart + channel))


@subroutine
def convolve(at_taps, side, weight, levels, start, height, width, planar):
    """Make each level a weighted sum over a square around it, kept within 0..255; of one weight where there is one."""
    num_planes, apart = (3, 1) if planar else (1, 3)
    radius, length = side // 2, width * apart
    row_floats = length + 2 * radius * apart + SUM_BLOCK  # the last block of a row looks beyond its end
    kept = np.empty(side * row_floats, np.float32)
    made = np.empty(length + SUM_BLOCK, np.float32)
    rows, taps = np.empty(side * side, np.uintp), np.empty(side * side, np.float32)
    for plane in range(num_planes):
        at_made = np.uintp(made.ctypes.data)  # in the loop, as numba frees an array after its last use
        first, num_taken = start + plane * height * width, 0
        for y in range(height):
            while num_taken < min(y + radius + 1, height):
                at_row = np.uintp(kept.ctypes.data + 4 * row_floats * (num_taken % side))
                _keep_row(levels, first + num_taken * length, length, np.uintp(at_row + 4 * radius * apart))
                _pad_kept(at_row, radius, width, apart)
                num_taken += 1
            num_taps = 0
            for down in range(side):
                at_row = np.uintp(kept.ctypes.data + 4 * row_floats * (mirrored(y + down - radius, height) % side))
                for across in range(side):
                    nth = side * down + across
                    is_alike = weight > ZERO
                    tap = weight * np.float32(load_byte(at_taps, nth)) if is_alike else load_tap(at_taps, 4 * nth)
                    if tap != ZERO:
                        rows[num_taps], taps[num_taps] = at_row + 4 * across * apart, tap
                        num_taps += 1
            for block in range(0, length, SUM_BLOCK):
                sum_taps(np.uintp(rows.ctypes.data), np.uintp(taps.ctypes.data), num_taps, block, at_made)
            _put_kept_within(at_made, levels, first + y * length, length)


@subroutine
def _pad_kept(at_padded, radius, width, apart):
    before = radius * apart
    for i in range(radius):
        left, right = mirrored(i - radius, width), mirrored(width + i, width)
        for channel in range(apart):
            store_kept(at_padded, i * apart + channel, load_kept(at_padded, before + left * apart + channel))
            at_right = before + (width + i) * apart + channel
            store_kept(at_padded, at_right, load_kept(at_padded, before + right * apart + channel))


@subroutine
def _put_kept_within(at_made, levels, first, length):
    prefer_wide_vectors()
    out = levels.ctypes.data
    for i in range(length):
        store_batch(out, first + i, kept_within(load_sum_y(at_made, i)))


@subroutine
def take_median(side, levels, start, height, width, planar):
    """Make each level the median of the nearest levels in a square around it."""
    num_planes, apart = (3, 1) if planar else (1, 3)
    radius, length = side // 2, width * apart
    row_bytes = length + 2 * radius * apart + BLOCK  # the last block of a row looks beyond its end
    kept = np.empty(side * row_bytes, np.uint8)
    found = np.empty(length + BLOCK, np.uint8)
    rows = np.empty(side, np.uintp)
    for plane in range(num_planes):
        at_found = np.uintp(found.ctypes.data)  # in the loop, as numba frees an array after its last use
        first, num_taken = start + plane * height * width, 0
        for y in range(height):
            while num_taken < min(y + radius + 1, height):
                at_row = np.uintp(kept.ctypes.data + row_bytes * (num_taken % side))
                _keep_levels(levels, first + num_taken * length, length, np.uintp(at_row + radius * apart))
                _repeat_ends(at_row, radius, width, apart)
                num_taken += 1
            for block in range(0, length, BLOCK):
                for down in range(side):
                    row = repeated(y + down - radius, height) % side
                    rows[down] = kept.ctypes.data + row_bytes * row + block
                at_rows, at_block = np.uintp(rows.ctypes.data), np.uintp(at_found + block)
                if side == 3:
                    median_of_9(at_rows, apart, at_block)
                elif side == 5:
                    median_of_25(at_rows, apart, at_block)
                else:
                    median_of_49(at_rows, apart, at_block)
            _put_levels(at_found, levels, first + y * length, length)


@subroutine
def _keep_levels(levels, first, length, at_row):
    prefer_wide_vectors()
    source = levels.ctypes.data
    for i in range(length):
        store_level(at_row, i, np.uint8(nearest_level(load_levels(source, first + i))))


@subroutine
def _repeat_ends(at_padded, radius, width, apart):
    before, last = radius * apart, (radius + width - 1) * apart
    for i in range(before):
        store_level(at_padded, i, load_level(at_padded, before + i % apart))
        store_level(at_padded, last + apart + i, load_level(at_padded, last + i % apart))


@subroutine
def _put_levels(at_found, levels, first, length):
    prefer_wide_vectors()
    out = levels.ctypes.data
    for i in range(length):
        store_batch(out, first + i, np.float32(load_found(at_found, i)))
