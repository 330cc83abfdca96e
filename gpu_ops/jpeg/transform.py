"""The inverse DCT of blocks side by side, in the integers of libjpeg's accurate one (jidctint, after Loeffler et al.).

Its passes are libjpeg-turbo's vectorised ones wherever numbers stay as small as those of images do; where they do not,
those round off in 16 bits, and the caller is told so.
"""

import numpy as np
from numba import int32, uint32, uint64

from augpipe.gpu_ops.image.dct import four_levels, inverse_pass, plus, times
from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.jpeg.bits import U
from augpipe.gpu_ops.jpeg.huffman import LANES

LIMIT = np.int32(1 << 14)
"""Coefficients times quantization, and what the first pass makes of them, lie within it in images of 8 bits; sums of
two take 16 bits then."""

BETWEEN_ITEMS = (64 + 1) * LANES
"""What the first pass leaves for the second, and all its numbers' bits."""


@leaf
def all_bits(a, b, c, d, e, f, g, h):
    """What lies in 0..2 LIMIT - 1 where all of them lie in -LIMIT..LIMIT - 1, and does not where one does not."""
    low = int32(plus(a, LIMIT) | plus(b, LIMIT) | plus(c, LIMIT) | plus(d, LIMIT))
    return int32(low | int32(plus(e, LIMIT) | plus(f, LIMIT) | plus(g, LIMIT) | plus(h, LIMIT)))


@kernel()
def transform(coefficients, first, quantization, between, plane, start, row_words):
    """LANES blocks from a group of coefficients to levels 0..255, side by side.

    Args:
        coefficients: int16; number k of lane i lies at `first` + LANES k + i, in natural order.
        first: where the group begins.
        quantization: (64,) int32 in natural order.
        between: (BETWEEN_ITEMS,) int32 to work in.
        plane: uint64, eight levels each, filled.
        start: of the first block's first row there.
        row_words: from row to row.

    Returns:
        Whether all numbers were small enough to be what libjpeg-turbo's are.
    """
    between[64 * LANES : BETWEEN_ITEMS] = 0
    for column in range(8):
        q0, q1 = quantization[column], quantization[8 + column]
        q2, q3 = quantization[16 + column], quantization[24 + column]
        q4, q5 = quantization[32 + column], quantization[40 + column]
        q6, q7 = quantization[48 + column], quantization[56 + column]
        to = uint64(column * LANES)
        at = first + to
        for i in range(LANES):
            x = uint64(i)
            c0 = times(int32(coefficients[at + x]), q0)
            c1 = times(int32(coefficients[at + x + U(8 * LANES)]), q1)
            c2 = times(int32(coefficients[at + x + U(16 * LANES)]), q2)
            c3 = times(int32(coefficients[at + x + U(24 * LANES)]), q3)
            c4 = times(int32(coefficients[at + x + U(32 * LANES)]), q4)
            c5 = times(int32(coefficients[at + x + U(40 * LANES)]), q5)
            c6 = times(int32(coefficients[at + x + U(48 * LANES)]), q6)
            c7 = times(int32(coefficients[at + x + U(56 * LANES)]), q7)
            seen = all_bits(c0, c1, c2, c3, c4, c5, c6, c7)
            r0, r1, r2, r3, r4, r5, r6, r7 = inverse_pass(int32(1 << 10), c0, c1, c2, c3, c4, c5, c6, c7)
            r0, r1, r2, r3 = int32(r0 >> 11), int32(r1 >> 11), int32(r2 >> 11), int32(r3 >> 11)
            r4, r5, r6, r7 = int32(r4 >> 11), int32(r5 >> 11), int32(r6 >> 11), int32(r7 >> 11)
            seen = int32(seen | all_bits(r0, r1, r2, r3, r4, r5, r6, r7))
            between[U(64 * LANES) + x] |= seen
            between[to + x], between[to + x + U(8 * LANES)] = r0, r1
            between[to + x + U(16 * LANES)], between[to + x + U(24 * LANES)] = r2, r3
            between[to + x + U(32 * LANES)], between[to + x + U(40 * LANES)] = r4, r5
            between[to + x + U(48 * LANES)], between[to + x + U(56 * LANES)] = r6, r7
    rounding = int32((128 << 18) + (1 << 17))  # levels are stored less 128
    for row in range(8):
        at, to = uint64(row * 8 * LANES), start + uint64(row) * row_words
        for i in range(LANES):
            x = at + uint64(i)
            r0, r1, r2, r3, r4, r5, r6, r7 = inverse_pass(
                rounding,
                between[x],
                between[x + U(LANES)],
                between[x + U(2 * LANES)],
                between[x + U(3 * LANES)],
                between[x + U(4 * LANES)],
                between[x + U(5 * LANES)],
                between[x + U(6 * LANES)],
                between[x + U(7 * LANES)],
            )
            high = uint64(four_levels(r4, r5, r6, r7)) << U(32)
            plane[to + uint64(i)] = uint64(four_levels(r0, r1, r2, r3)) | high
    seen = int32(0)
    for i in range(LANES):
        seen = int32(seen | between[64 * LANES + i])
    return uint32(seen) < uint32(2 * LIMIT)
