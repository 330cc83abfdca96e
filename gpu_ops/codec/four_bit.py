"""The 4-bit codec: its levels, the leaves that find and pack a number's code, and the CPU loops that run them.

The levels are those of NormalFloat (NF4) by T. Dettmers, A. Pagnoni, A. Holtzman and L. Zettlemoyer, QLoRA, 2023
(arXiv:2305.14314, appendix E): quantiles of a normal distribution, with zero and both ends among them. There are so few
that a number's code is a count of the borders that it reaches: comparisons, which vectorise, and no table.
"""

import numpy as np

from augpipe.gpu_ops.codec.leaves import HEADER_BYTES, INFINITE, divisor_of, magnitude_bits
from augpipe.gpu_ops.codec.memory import (
    load_bits,
    load_byte,
    load_float,
    load_level,
    load_value,
    load_value_bits,
    store_bits,
    store_byte,
    store_count,
    store_float,
    store_value,
)
from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.memory import prefer_wide_vectors

LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
"""What code k stands for in units of its block's absmax, each a float32; as in bitsandbytes' `create_normal_map`."""


def _borders() -> tuple[np.float32, ...]:
    """The smallest float32 that takes level k or a higher one, k from 1; midway the level nearer to zero is taken."""
    levels = np.array(LEVELS, np.float64)
    middles = (levels[:-1] + levels[1:]) / 2  # exact: the levels are float32
    nearest = middles.astype(np.float32)
    above = np.nextafter(nearest, np.float32(np.inf))
    reached = np.where(middles > 0, nearest.astype(np.float64) > middles, nearest.astype(np.float64) >= middles)
    return tuple(np.float32(border) for border in np.where(reached, nearest, above))


B1, B2, B3, B4, B5, B6, B7, B8, B9, B10, B11, B12, B13, B14, B15 = _borders()

NAN = np.float32(np.nan)
RUN = 256
"""Numbers whose codes lie in scratch until they are packed; even, so that no byte is shared by two."""


@leaf
def nibble_of(scaled):
    """The code, 0..15 as int32, of a number in units of its block's absmax: how many borders it reaches."""
    a = np.int32(np.int32(np.int32(scaled >= B1) + np.int32(scaled >= B2)) + np.int32(scaled >= B3))
    b = np.int32(np.int32(np.int32(scaled >= B4) + np.int32(scaled >= B5)) + np.int32(scaled >= B6))
    c = np.int32(np.int32(np.int32(scaled >= B7) + np.int32(scaled >= B8)) + np.int32(scaled >= B9))
    d = np.int32(np.int32(np.int32(scaled >= B10) + np.int32(scaled >= B11)) + np.int32(scaled >= B12))
    e = np.int32(np.int32(np.int32(scaled >= B13) + np.int32(scaled >= B14)) + np.int32(scaled >= B15))
    return np.int32(np.int32(np.int32(a + b) + np.int32(c + d)) + e)


@leaf
def byte_of_nibbles(first, second):
    """Two codes in a byte, int32: the first number's in its lower half."""
    return np.int32(first | np.int32(second << np.int32(4)))


@leaf
def first_nibble(byte):
    """The code of the first of two numbers."""
    return np.int32(byte & np.int32(15))


@leaf
def second_nibble(byte):
    """The code of the second."""
    return np.int32(np.int32(byte >> np.int32(4)) & np.int32(15))


@leaf
def bytes_of_block(num):
    """Bytes that the codes of a block of `num` numbers take: no byte is shared by two blocks."""
    return (num + 1) >> 1


@kernel(fastmath=False)
def encode_nibbles(values, payload, num, block, scratch):
    """Blocks of float32 to how many they are, a scale (absmax) each, and a code of four bits a number.

    A block with a number that is not finite gets a NaN for a scale. Where a block's numbers are odd, its last byte has
    an upper half of zero.

    Args:
        values: (num,) float32.
        payload: `HEADER_BYTES`, 4 bytes a block and the codes' `bytes_of_block`, written.
        block: numbers that share a scale.
        scratch: (RUN,) int32.
    """
    prefer_wide_vectors()
    values, payload, scratch = np.uintp(values), np.uintp(payload), np.uintp(scratch)
    store_count(payload, 0, np.int64(num))
    num_blocks = (num + block - 1) // block
    scales = np.uintp(payload + np.uintp(HEADER_BYTES))
    codes = np.uintp(scales + np.uintp(4 * num_blocks))
    num_non_finite = np.int64(0)
    for nth in range(num_blocks):
        first = nth * block
        last = min(first + block, num)
        packed = np.uintp(codes + np.uintp(nth * bytes_of_block(block)))
        largest = np.int32(0)
        for i in range(first, last):
            largest = np.int32(max(largest, magnitude_bits(load_value_bits(values, i))))
        if largest >= INFINITE:
            store_float(scales, nth, NAN)
            for i in range(first, last):
                num_non_finite += np.int64(magnitude_bits(load_value_bits(values, i)) >= INFINITE)
            for j in range(bytes_of_block(last - first)):
                store_byte(packed, j, np.uint8(0))
            continue
        found = np.int32(largest)  # numba views only what is assigned once
        absmax = found.view(np.float32)
        store_float(scales, nth, absmax)
        divisor = divisor_of(absmax)
        for start in range(first, last, RUN):
            run = min(RUN, last - start)
            for i in range(run):
                scaled = np.float32(load_value(values, start + i) / divisor)
                store_bits(scratch, i, nibble_of(scaled))
            if run & 1:
                store_bits(scratch, run, np.int32(0))
            place = (start - first) >> 1
            for j in range(bytes_of_block(run)):
                byte = byte_of_nibbles(load_bits(scratch, 2 * j), load_bits(scratch, 2 * j + 1))
                store_byte(packed, place + j, np.uint8(byte))
    return num_non_finite


@kernel(fastmath=False)
def decode_nibbles(payload, values, num, block, levels, add):
    """What `encode_nibbles` wrote as float32: level times scale, written over `values` or added to them.

    Args:
        levels: (16,) float32.
        add: whether to add.
    """
    prefer_wide_vectors()
    values, payload, levels = np.uintp(values), np.uintp(payload), np.uintp(levels)
    num_blocks = (num + block - 1) // block
    scales = np.uintp(payload + np.uintp(HEADER_BYTES))
    codes = np.uintp(scales + np.uintp(4 * num_blocks))
    for nth in range(num_blocks):
        first = nth * block
        last = min(first + block, num)
        packed = np.uintp(codes + np.uintp(nth * bytes_of_block(block)))
        scale = load_float(scales, nth)
        pairs = (last - first) >> 1
        if add:
            for j in range(pairs):
                byte, i = np.int32(load_byte(packed, j)), first + 2 * j
                one, two = load_level(levels, first_nibble(byte)), load_level(levels, second_nibble(byte))
                store_value(values, i, load_value(values, i) + one * scale)
                store_value(values, i + 1, load_value(values, i + 1) + two * scale)
        else:
            for j in range(pairs):
                byte, i = np.int32(load_byte(packed, j)), first + 2 * j
                store_value(values, i, load_level(levels, first_nibble(byte)) * scale)
                store_value(values, i + 1, load_level(levels, second_nibble(byte)) * scale)
        if (last - first) & 1:
            value = load_level(levels, first_nibble(np.int32(load_byte(packed, pairs)))) * scale
            store_value(values, last - 1, load_value(values, last - 1) + value if add else value)


# addresses and numbers of items
declare(__name__, encode_nibbles, any=lambda: (1,) * 5)
declare(__name__, decode_nibbles, any=lambda: (*(1,) * 5, True))
