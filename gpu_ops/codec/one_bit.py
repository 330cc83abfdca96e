"""The CPU loops of the one-bit codec: signs, and the means of either side of a block; all memory by address."""

import numpy as np
from numba import njit

from augpipe.gpu_ops.codec.leaves import HEADER_BYTES, INFINITE, magnitude_bits
from augpipe.gpu_ops.codec.memory import (
    load_byte,
    load_float,
    load_value,
    load_value_bits,
    store_byte,
    store_count,
    store_float,
    store_value,
)
from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.memory import prefer_wide_vectors

MEANS_BYTES = 8
"""The bytes of a block's scales: the mean of its numbers >= 0, then that of those below, float32 both."""

ZERO = np.float32(0.0)
NAN = np.float32(np.nan)


@leaf
def mean_of(total, count):
    """`total` / `count` as float32, or 0 where there is nothing."""
    return np.float32(total / np.float64(max(count, 1)))


@njit(inline="always")
def _sign_bits(values, first, num):
    """Bit k is whether number `first` + k is >= 0, for the `num` <= 8 from there on."""
    bits = np.int32(0)
    for k in range(num):
        bits |= np.int32(np.int32(load_value(values, first + k) >= ZERO) << np.int32(k))
    return np.uint8(bits)


@kernel(fastmath={"reassoc"})  # of the sums, in float64
def encode_signs(values, payload, num, block):
    """(num,) float32 to how many they are, the means of both sides of each block, and their signs.

    Args:
        payload: (8 + 8 * ceil(num / block) + ceil(num / 8)) bytes, written.
    """
    prefer_wide_vectors()
    values, payload = np.uintp(values), np.uintp(payload)
    store_count(payload, 0, np.int64(num))
    num_blocks = (num + block - 1) // block
    means = np.uintp(payload + np.uintp(HEADER_BYTES))
    signs = np.uintp(means + np.uintp(MEANS_BYTES * num_blocks))
    num_non_finite = np.int64(0)
    for nth in range(num_blocks):
        first = nth * block
        last = min(first + block, num)
        above, below = 0.0, 0.0
        num_above, num_infinite = np.int64(0), np.int64(0)
        for i in range(first, last):
            value = load_value(values, i)
            above += np.float64(value if value >= ZERO else ZERO)
            below += np.float64(ZERO if value >= ZERO else value)
            num_above += np.int64(value >= ZERO)
            num_infinite += np.int64(magnitude_bits(load_value_bits(values, i)) >= INFINITE)
        num_non_finite += num_infinite
        is_finite = num_infinite == 0
        store_float(means, 2 * nth, mean_of(above, num_above) if is_finite else NAN)
        store_float(means, 2 * nth + 1, mean_of(below, last - first - num_above) if is_finite else NAN)
    whole = num // 8
    for j in range(whole):
        store_byte(signs, j, _sign_bits(values, 8 * j, 8))
    if num % 8:
        store_byte(signs, whole, _sign_bits(values, 8 * whole, num % 8))
    return num_non_finite


@kernel(fastmath=False)
def decode_signs(payload, values, num, block, add):
    """What `encode_signs` wrote as float32, written over `values` or added to them."""
    prefer_wide_vectors()
    values, payload = np.uintp(values), np.uintp(payload)
    num_blocks = (num + block - 1) // block
    means = np.uintp(payload + np.uintp(HEADER_BYTES))
    signs = np.uintp(means + np.uintp(MEANS_BYTES * num_blocks))
    for nth in range(num_blocks):
        first = nth * block
        last = min(first + block, num)
        above, below = load_float(means, 2 * nth), load_float(means, 2 * nth + 1)
        for i in range(first, last):
            bit = np.int32(np.int32(load_byte(signs, i >> 3)) >> np.int32(i & 7)) & np.int32(1)
            value = above if bit != 0 else below
            if add:
                value = load_value(values, i) + value
            store_value(values, i, value)


# addresses and numbers of items
declare(__name__, encode_signs, any=lambda: (1,) * 4)
declare(__name__, decode_signs, any=lambda: (*(1,) * 4, True))
