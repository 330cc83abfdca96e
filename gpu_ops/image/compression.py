"""What a JPEG file keeps of a rendered image, on the CPU, in place: what libjpeg writes and reads again, bit by bit.

That is Y, Cb and Cr of whole levels, the latter two at half the size, blocks of 8x8 whose coefficients are rounded to
multiples of a table's steps (ITU-T T.81, Annex K, scaled by the quality), and the way back with libjpeg's smooth
upsampling. Coding what is rounded loses nothing, so it is left out.
"""

import numpy as np
from numba import int16, int32, uint8, uint64

from augpipe.gpu_ops.image.dct import forward_pass, four_levels, inverse_pass, minus, plus, times
from augpipe.gpu_ops.image.level_rows import load_row, store_levels
from augpipe.gpu_ops.image.scratch_rows import load_blue, load_green, load_red, store_blue, store_green, store_red
from augpipe.gpu_ops.image.tone import nearest_level
from augpipe.gpu_ops.jit import leaf, subroutine

LANES = 16
"""Blocks that are transformed side by side."""
HALF, ONE, EIGHT = np.float32(0.5), np.float32(1.0), np.float32(8.0)
HALF_BITS = np.int32(1 << 15)
"""A half, in 65,536ths."""
CENTRE = np.int32((128 << 16) + (1 << 15) - 1)
"""What gray has for Cb and Cr, and less than a half."""
ROUNDING = np.int32((128 << 18) + (1 << 17))
"""Samples are transformed less 128."""
TABLES = np.array(
    [
        *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55),
        *(14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62),
        *(18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
        *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
        *(17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99),
        *(24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99),
        *((99,) * 32),
    ],
    np.int32,
)
"""The steps of coefficients at quality 50: 64 of Y, row by row, and 64 of Cb and Cr (T.81, tables K.1 and K.2)."""


@leaf
def step_at(place, quality):
    """The step of a coefficient at a quality in 1..100, from its place in `TABLES`."""
    percent = int32(5000 // quality if quality < 50 else 200 - 2 * quality)
    return int32(min(max((TABLES[place] * percent + 50) // 100, 1), 255))


@leaf
def rounded_to(value, step, inverse):
    """The nearest multiple of a step to a coefficient that is given 8 times too large; `inverse` is 1 / (8 step).

    Half a unit more than what is rounded down is far enough from a whole number for float32.
    """
    size = plus(max(value, int32(-value)), times(step, int32(4)))
    nearest = times(int32((np.float32(size) + HALF) * inverse), step)
    return nearest if value >= int32(0) else int32(-nearest)


@leaf
def luma(red, green, blue):
    """Y of three levels."""
    of_two = plus(times(red, int32(19595)), times(green, int32(38470)))
    return int32(plus(of_two, plus(times(blue, int32(7471)), HALF_BITS)) >> 16)


@leaf
def blueness(red, green, blue):
    """Cb of three levels."""
    less = plus(times(red, int32(11059)), times(green, int32(21709)))
    return int32(minus(plus(int32(blue << 15), CENTRE), less) >> 16)


@leaf
def redness(red, green, blue):
    """Cr of three levels."""
    less = plus(times(green, int32(27439)), times(blue, int32(5329)))
    return int32(minus(plus(int32(red << 15), CENTRE), less) >> 16)


@leaf
def red_of(y, cr):
    """The red of Y, and of Cr less 128."""
    return min(max(plus(y, int32(plus(times(cr, int32(91881)), HALF_BITS) >> 16)), int32(0)), int32(255))


@leaf
def green_of(y, cb, cr):
    """The green of Y, and of Cb and Cr less 128."""
    more = minus(minus(HALF_BITS, times(cb, int32(22554))), times(cr, int32(46802)))
    return min(max(plus(y, int32(more >> 16)), int32(0)), int32(255))


@leaf
def blue_of(y, cb):
    """The blue of Y, and of Cb less 128."""
    return min(max(plus(y, int32(plus(times(cb, int32(116130)), HALF_BITS) >> 16)), int32(0)), int32(255))


@leaf
def far_row(y, num_rows):
    """The row of half the size that a row lies near, besides the one that it lies in."""
    return min(max(y // 2 - 1 + 2 * (y % 2), 0), num_rows - 1)


@subroutine
def compress(quality, levels, start, height, width, planar, scratch):
    """Make an image what a JPEG file of a quality shows, with three rows of `scratch`, (3 * width,) float32."""
    at_red = np.uintp(scratch.ctypes.data)
    at_green, at_blue = np.uintp(at_red + 4 * width), np.uintp(at_red + 8 * width)
    half_height, half_width = (height + 1) // 2, (width + 1) // 2
    row_bytes, half_bytes = _row_bytes(width), _row_bytes(half_width)
    luma_plane = np.empty((height, row_bytes), np.uint8)
    blue_plane, red_plane = np.empty((half_height, half_bytes), np.uint8), np.empty((half_height, half_bytes), np.uint8)
    blues, reds = np.empty((2, 2 * half_bytes), np.uint8), np.empty((2, 2 * half_bytes), np.uint8)
    step, plane = width * (1 if planar else 3), height * width
    for y in range(height):
        load_row(levels, start + y * step, plane, width, planar, at_red, at_green, at_blue)
        _take_colours(at_red, at_green, at_blue, width, luma_plane[y], blues[y % 2], reds[y % 2])
        if y % 2 == 1 or y == height - 1:
            _halve(blues[0], blues[y % 2], blue_plane[y // 2])
            _halve(reds[0], reds[y % 2], red_plane[y // 2])
    between, coded = np.empty(64 * LANES, np.int32), np.empty(64 * LANES, np.int32)
    steps, inverses = np.empty(128, np.int32), np.empty(128, np.float32)
    for place in range(128):
        steps[place] = step_at(place, np.int64(quality))
        inverses[place] = ONE / (EIGHT * np.float32(steps[place]))
    _round_plane(luma_plane, steps[:64], inverses[:64], between, coded)
    _round_plane(blue_plane, steps[64:], inverses[64:], between, coded)
    _round_plane(red_plane, steps[64:], inverses[64:], between, coded)
    sums, wide_blue, wide_red = np.empty(half_width + 2, np.int16), blues[0], reds[0]
    for y in range(height):
        near, far = y // 2, far_row(y, half_height)
        _widen(blue_plane[near], blue_plane[far], half_width, sums, wide_blue)
        _widen(red_plane[near], red_plane[far], half_width, sums, wide_red)
        _put_colours(luma_plane[y], wide_blue, wide_red, width, at_red, at_green, at_blue)
        store_levels(levels, start + y * step, plane, width, planar, at_red, at_green, at_blue)


@subroutine
def _row_bytes(num):
    """Bytes of a row of samples: whole groups of blocks."""
    return (num + 8 * LANES - 1) // (8 * LANES) * (8 * LANES)


@subroutine
def _take_colours(at_red, at_green, at_blue, width, lumas, blues, reds):
    """Y, Cb and Cr of a row, whose last pixel goes on to the rows' end."""
    for i in range(width):
        red, green = nearest_level(load_red(at_red, i)), nearest_level(load_green(at_green, i))
        blue = nearest_level(load_blue(at_blue, i))
        x = uint64(i)
        lumas[x] = uint8(luma(red, green, blue))
        blues[x] = uint8(blueness(red, green, blue))
        reds[x] = uint8(redness(red, green, blue))
    lumas[width:] = lumas[width - 1]
    blues[width:], reds[width:] = blues[width - 1], reds[width - 1]


@subroutine
def _halve(upper, lower, halved):
    """The means of four samples, of which a half is rounded down and up in turn."""
    for i in range(len(halved)):
        x = uint64(i)
        left, right = uint64(2 * x), uint64(2 * x + uint64(1))
        total = int32(int32(upper[left]) + int32(upper[right])) + int32(int32(lower[left]) + int32(lower[right]))
        halved[x] = uint8(int32(total + int32(1 + i % 2)) >> 2)


@subroutine
def _round_plane(plane, steps, inverses, between, coded):
    """Round the coefficients of all blocks of a plane, whose last row goes on to the last blocks' end."""
    num_rows, num_groups = len(plane), plane.shape[1] // (8 * LANES)
    words = plane.reshape(-1).view(np.uint64).reshape((num_rows, -1))
    for top in range(0, num_rows, 8):
        for group in range(num_groups):
            for row in range(8):
                _transform_row(words[min(top + row, num_rows - 1)], group * LANES, row, between)
            for column in range(8):
                _round_column(column, steps, inverses, between, coded)
            for row in range(min(8, num_rows - top)):
                _restore_row(row, coded, words[top + row], group * LANES)


@subroutine
def _transform_row(words, first, row, between):
    """The coefficients of a row of each of `LANES` blocks, four times too large."""
    for i in range(LANES):
        word, x = words[uint64(first + i)], uint64(8 * LANES * row + i)
        c0, c1, c2, c3, c4, c5, c6, c7 = forward_pass(
            int32(1 << 10),
            int32(int32(word & uint64(255)) - int32(128)),
            int32(int32((word >> uint64(8)) & uint64(255)) - int32(128)),
            int32(int32((word >> uint64(16)) & uint64(255)) - int32(128)),
            int32(int32((word >> uint64(24)) & uint64(255)) - int32(128)),
            int32(int32((word >> uint64(32)) & uint64(255)) - int32(128)),
            int32(int32((word >> uint64(40)) & uint64(255)) - int32(128)),
            int32(int32((word >> uint64(48)) & uint64(255)) - int32(128)),
            int32(int32(word >> uint64(56)) - int32(128)),
        )
        between[x], between[x + uint64(LANES)] = c0 >> 11, c1 >> 11
        between[x + uint64(2 * LANES)], between[x + uint64(3 * LANES)] = c2 >> 11, c3 >> 11
        between[x + uint64(4 * LANES)], between[x + uint64(5 * LANES)] = c4 >> 11, c5 >> 11
        between[x + uint64(6 * LANES)], between[x + uint64(7 * LANES)] = c6 >> 11, c7 >> 11


@subroutine
def _round_column(column, steps, inverses, between, coded):
    """The coefficients of a column, rounded, and what the first pass back makes of them."""
    s0, s1, s2, s3 = steps[column], steps[8 + column], steps[16 + column], steps[24 + column]
    s4, s5, s6, s7 = steps[32 + column], steps[40 + column], steps[48 + column], steps[56 + column]
    i0, i1, i2, i3 = inverses[column], inverses[8 + column], inverses[16 + column], inverses[24 + column]
    i4, i5, i6, i7 = inverses[32 + column], inverses[40 + column], inverses[48 + column], inverses[56 + column]
    for i in range(LANES):
        x = uint64(LANES * column + i)
        c0, c1, c2, c3, c4, c5, c6, c7 = forward_pass(
            int32(1 << 14),
            between[x],
            between[x + uint64(8 * LANES)],
            between[x + uint64(16 * LANES)],
            between[x + uint64(24 * LANES)],
            between[x + uint64(32 * LANES)],
            between[x + uint64(40 * LANES)],
            between[x + uint64(48 * LANES)],
            between[x + uint64(56 * LANES)],
        )
        r0, r1, r2, r3, r4, r5, r6, r7 = inverse_pass(
            int32(1 << 10),
            rounded_to(int32(c0 >> 15), s0, i0),
            rounded_to(int32(c1 >> 15), s1, i1),
            rounded_to(int32(c2 >> 15), s2, i2),
            rounded_to(int32(c3 >> 15), s3, i3),
            rounded_to(int32(c4 >> 15), s4, i4),
            rounded_to(int32(c5 >> 15), s5, i5),
            rounded_to(int32(c6 >> 15), s6, i6),
            rounded_to(int32(c7 >> 15), s7, i7),
        )
        coded[x], coded[x + uint64(8 * LANES)] = r0 >> 11, r1 >> 11
        coded[x + uint64(16 * LANES)], coded[x + uint64(24 * LANES)] = r2 >> 11, r3 >> 11
        coded[x + uint64(32 * LANES)], coded[x + uint64(40 * LANES)] = r4 >> 11, r5 >> 11
        coded[x + uint64(48 * LANES)], coded[x + uint64(56 * LANES)] = r6 >> 11, r7 >> 11


@subroutine
def _restore_row(row, coded, words, first):
    """The samples of a row of each of `LANES` blocks."""
    for i in range(LANES):
        x = uint64(8 * LANES * row + i)
        r0, r1, r2, r3, r4, r5, r6, r7 = inverse_pass(
            ROUNDING,
            coded[x],
            coded[x + uint64(LANES)],
            coded[x + uint64(2 * LANES)],
            coded[x + uint64(3 * LANES)],
            coded[x + uint64(4 * LANES)],
            coded[x + uint64(5 * LANES)],
            coded[x + uint64(6 * LANES)],
            coded[x + uint64(7 * LANES)],
        )
        high = uint64(four_levels(r4, r5, r6, r7)) << uint64(32)
        words[uint64(first + i)] = uint64(four_levels(r0, r1, r2, r3)) | high


@subroutine
def _widen(near, far, num, sums, wide):
    """Twice as many samples as in a row and the one next to it: 9, 3, 3 and 1 sixteenths; of up to two, each twice."""
    if num <= 2:
        for i in range(num):
            wide[2 * i], wide[2 * i + 1] = near[i], near[i]
        return
    for i in range(num):
        x = uint64(i)
        sums[x + uint64(1)] = int16(int32(int32(near[x]) * int32(3)) + int32(far[x]))
    sums[0], sums[num + 1] = sums[1], sums[num]
    for i in range(num):
        x = uint64(i)
        middle = int32(int32(sums[x + uint64(1)]) * int32(3))
        wide[uint64(2 * x)] = uint8(int32(int32(middle + int32(sums[x])) + int32(8)) >> 4)
        wide[uint64(2 * x + uint64(1))] = uint8(int32(int32(middle + int32(sums[x + uint64(2)])) + int32(7)) >> 4)


@subroutine
def _put_colours(lumas, blues, reds, width, at_red, at_green, at_blue):
    """The colours of a row of Y, Cb and Cr."""
    for i in range(width):
        x = uint64(i)
        y = int32(lumas[x])
        cb, cr = int32(int32(blues[x]) - int32(128)), int32(int32(reds[x]) - int32(128))
        store_red(at_red, i, np.float32(red_of(y, cr)))
        store_green(at_green, i, np.float32(green_of(y, cb, cr)))
        store_blue(at_blue, i, np.float32(blue_of(y, cb)))
