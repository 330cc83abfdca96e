"""The inverse DCT of blocks side by side to 4x4, 2x2 or 1x1 samples, in the integers of libjpeg's reduced ones.

These (jidctred) give averages of neighbouring samples of the whole transform, and do without the coefficients that
matter least there: those of the fifth row and column, and for 2x2 of all even ones but the first. Arguments are those
of `transform.transform`, and what it says of numbers that are not small holds here.
"""

import numpy as np
from numba import int32, uint8, uint16, uint32, uint64

from augpipe.gpu_ops.image.dct import four_levels, minus, plus, times
from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.jpeg.bits import U
from augpipe.gpu_ops.jpeg.colour import level
from augpipe.gpu_ops.jpeg.huffman import LANES
from augpipe.gpu_ops.jpeg.transform import BETWEEN_ITEMS, LIMIT, transform

BITS = U(64 * LANES)
"""Where the bits of all numbers lie between the passes."""

ONE_LIMIT = np.int32(1 << 12)
"""Eight times a sample lies within it, rounding included, or libjpeg's table of levels starts again."""


@leaf
def four_sums(rounding, c0, c1, c2, c3, c5, c6, c7):
    """Four sums of seven coefficients, times 2^14 (and sqrt(8)), plus `rounding`."""
    even = plus(int32(c0 << 14), rounding)
    more = minus(times(c2, int32(15137)), times(c6, int32(6270)))
    outer = minus(plus(times(c1, int32(20995)), times(c3, int32(7373))), times(c5, int32(4926)))
    outer = minus(outer, times(c7, int32(4176)))
    inner = plus(minus(times(c1, int32(8697)), times(c3, int32(17799))), times(c5, int32(11893)))
    inner = minus(inner, times(c7, int32(1730)))
    first, second = plus(even, more), minus(even, more)
    return plus(first, outer), plus(second, inner), minus(second, inner), minus(first, outer)


@leaf
def two_sums(rounding, c0, c1, c3, c5, c7):
    """Two sums of five coefficients, times 2^15 (and sqrt(8)), plus `rounding`."""
    even = plus(int32(c0 << 15), rounding)
    odd = plus(minus(times(c1, int32(29692)), times(c3, int32(10426))), times(c5, int32(6967)))
    odd = minus(odd, times(c7, int32(5906)))
    return plus(even, odd), minus(even, odd)


@leaf
def bits_of(a, b, c, d):
    """Bits as `transform.all_bits` has them, of four numbers."""
    return int32(plus(a, LIMIT) | plus(b, LIMIT) | plus(c, LIMIT) | plus(d, LIMIT))


@kernel()
def to_four(coefficients, first, quantization, between, plane, start, row_samples):
    """LANES blocks to 4x4 samples each; `plane` is uint32."""
    for column in (0, 1, 2, 3, 5, 6, 7):
        q0, q1 = quantization[column], quantization[8 + column]
        q2, q3 = quantization[16 + column], quantization[24 + column]
        q5, q6, q7 = quantization[40 + column], quantization[48 + column], quantization[56 + column]
        to = uint64(column * LANES)
        at = first + to
        for i in range(LANES):
            x = uint64(i)
            c0 = times(int32(coefficients[at + x]), q0)
            c1 = times(int32(coefficients[at + x + U(8 * LANES)]), q1)
            c2 = times(int32(coefficients[at + x + U(16 * LANES)]), q2)
            c3 = times(int32(coefficients[at + x + U(24 * LANES)]), q3)
            c5 = times(int32(coefficients[at + x + U(40 * LANES)]), q5)
            c6 = times(int32(coefficients[at + x + U(48 * LANES)]), q6)
            c7 = times(int32(coefficients[at + x + U(56 * LANES)]), q7)
            r0, r1, r2, r3 = four_sums(int32(1 << 11), c0, c1, c2, c3, c5, c6, c7)
            r0, r1, r2, r3 = int32(r0 >> 12), int32(r1 >> 12), int32(r2 >> 12), int32(r3 >> 12)
            between[BITS + x] |= int32(bits_of(c0, c1, c2, c3) | bits_of(c5, c6, c7, r0) | bits_of(r0, r1, r2, r3))
            between[to + x], between[to + x + U(8 * LANES)] = r0, r1
            between[to + x + U(16 * LANES)], between[to + x + U(24 * LANES)] = r2, r3
    for row in range(4):
        at, to = uint64(row * 8 * LANES), start + uint64(row) * row_samples
        for i in range(LANES):
            x = at + uint64(i)
            r0, r1, r2, r3 = four_sums(
                int32((128 << 19) + (1 << 18)),
                between[x],
                between[x + U(LANES)],
                between[x + U(2 * LANES)],
                between[x + U(3 * LANES)],
                between[x + U(5 * LANES)],
                between[x + U(6 * LANES)],
                between[x + U(7 * LANES)],
            )
            plane[to + uint64(i)] = four_levels(int32(r0 >> 1), int32(r1 >> 1), int32(r2 >> 1), int32(r3 >> 1))


@kernel()
def to_two(coefficients, first, quantization, between, plane, start, row_samples):
    """LANES blocks to 2x2 samples each; `plane` is uint16."""
    for column in (0, 1, 3, 5, 7):
        q0, q1, q3 = quantization[column], quantization[8 + column], quantization[24 + column]
        q5, q7 = quantization[40 + column], quantization[56 + column]
        to = uint64(column * LANES)
        at = first + to
        for i in range(LANES):
            x = uint64(i)
            c0 = times(int32(coefficients[at + x]), q0)
            c1 = times(int32(coefficients[at + x + U(8 * LANES)]), q1)
            c3 = times(int32(coefficients[at + x + U(24 * LANES)]), q3)
            c5 = times(int32(coefficients[at + x + U(40 * LANES)]), q5)
            c7 = times(int32(coefficients[at + x + U(56 * LANES)]), q7)
            r0, r1 = two_sums(int32(1 << 12), c0, c1, c3, c5, c7)
            r0, r1 = int32(r0 >> 13), int32(r1 >> 13)
            between[BITS + x] |= int32(bits_of(c0, c1, c3, c5) | bits_of(c7, r0, r1, r1))
            between[to + x], between[to + x + U(8 * LANES)] = r0, r1
    for row in range(2):
        at, to = uint64(row * 8 * LANES), start + uint64(row) * row_samples
        for i in range(LANES):
            x = at + uint64(i)
            r0, r1 = two_sums(
                int32((128 << 20) + (1 << 19)),
                between[x],
                between[x + U(LANES)],
                between[x + U(3 * LANES)],
                between[x + U(5 * LANES)],
                between[x + U(7 * LANES)],
            )
            plane[to + uint64(i)] = uint16(level(int32(r0 >> 20)) | uint32(level(int32(r1 >> 20)) << 8))


@kernel()
def to_one(coefficients, first, quantization, plane, start):
    """LANES blocks to one sample each, their mean; `plane` is uint8."""
    q0, seen = quantization[0], int32(0)
    for i in range(LANES):
        c0 = plus(times(int32(coefficients[first + uint64(i)]), q0), int32(4))
        seen = int32(seen | plus(c0, ONE_LIMIT))
        plane[start + uint64(i)] = uint8(level(plus(int32(c0 >> 3), int32(128))))
    return uint32(seen) < uint32(2 * ONE_LIMIT)


@kernel()
def transform_to(size, coefficients, first, quantization, between, planes, start, row_bytes):
    """LANES blocks to `size` x `size` samples each, side by side.

    Args:
        size: 8, 4, 2 or 1.
        planes: the same memory as uint8, uint16, uint32 and uint64.
        start: the byte at which the first block's first row lies, a multiple of `size`.
        row_bytes: from row to row, a multiple of 8.

    Returns:
        Whether all numbers were small enough to be what libjpeg-turbo's are.
    """
    if size == 8:
        return transform(coefficients, first, quantization, between, planes[3], start >> U(3), row_bytes >> U(3))
    if size == 1:
        return to_one(coefficients, first, quantization, planes[0], start)
    between[BITS:BETWEEN_ITEMS] = 0
    if size == 4:
        to_four(coefficients, first, quantization, between, planes[2], start >> U(2), row_bytes >> U(2))
    else:
        to_two(coefficients, first, quantization, between, planes[1], start >> U(1), row_bytes >> U(1))
    seen = int32(0)
    for i in range(LANES):
        seen = int32(seen | between[BITS + uint64(i)])
    return uint32(seen) < uint32(2 * LIMIT)
