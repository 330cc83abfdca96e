"""Scalar math of the 8-bit codecs: a float32's bits to the place in a table, and the table's entry to a code.

A codebook's magnitudes lie in 0..1. The upper 15 bits of a float32 (sign, exponent, six of the mantissa) choose an
entry, and no such bucket holds more than one border between two codes; so an entry is a code and where in the bucket
the border lies, in one int32, and adding a number's lower bits carries into the code where they reach the border.
"""

import numpy as np

from augpipe.gpu_ops.jit import leaf

BUCKET_BITS = 17
"""Bits of a float32 below those that choose the entry."""

MAGNITUDE = np.int32(0x7FFFFFFF)
INFINITE = np.int32(0x7F800000)
"""Bits of infinity: those of a NaN are above, those of finite numbers below."""

WITHIN = np.int32((1 << BUCKET_BITS) - 1)
SHIFT = np.int32(BUCKET_BITS)
SIGN_SHIFT = np.int32(31)
MIRROR = np.int32(127)
"""Codes are sorted by value: magnitude k of the negative side is code 127 - k, which is 127 ^ k."""

HEADER_BYTES = 8
"""Bytes of the count, int64, with which payloads begin whose size does not say how many numbers they hold."""

ZERO = np.int32(0)
ONE = np.float32(1.0)
SMALLEST_BFLOAT16_INFINITY = np.int32(0x7F80)


@leaf
def magnitude_bits(bits):
    """The bits of |x| from the bits of x, int32; ordered as the magnitudes are, infinity and NaN last."""
    return np.int32(bits & MAGNITUDE)


@leaf
def table_slot(bits, first_bucket, num_buckets):
    """Where in a table of 2 * `num_buckets` entries the scaled number with these bits (int32) finds its own.

    The negative side is the upper half. Everything smaller than the first bucket shares its entry.
    """
    above = np.int32(np.int32(np.int32(bits & MAGNITUDE) >> SHIFT) - first_bucket)
    side = np.int32(np.int32(bits >> SIGN_SHIFT) & num_buckets)
    return np.int32(max(above, ZERO) + side)


@leaf
def code_of(bits, entry):
    """The code, 0..255 as int32, of the scaled number with these bits (int32), from its entry."""
    carried = np.int32(entry + np.int32(bits & WITHIN)) >> SHIFT
    return np.int32(carried ^ np.int32(np.int32(bits >> SIGN_SHIFT) & MIRROR))


@leaf
def divisor_of(absmax):
    """What a block's numbers are divided by: its absmax, or 1 where all are zero."""
    return absmax if absmax > np.float32(0.0) else ONE


@leaf
def bfloat16_code(bits):
    """The bfloat16's 16 bits for a float32's bits, int32 both: halves to even, and what is finite stays finite.

    A NaN stays one, quiet; a finite number that would round to infinity becomes the largest finite one.
    """
    whole = np.int32(bits & MAGNITUDE)
    odd = np.int32(np.int32(whole >> np.int32(16)) & np.int32(1))
    rounded = np.int32(np.int32(np.int32(whole + np.int32(0x7FFF)) + odd) >> np.int32(16))
    finite = np.int32(min(rounded, np.int32(SMALLEST_BFLOAT16_INFINITY - np.int32(1))))
    beyond = np.int32(np.int32(whole >> np.int32(16)) | np.int32(np.int32(0x40) if whole > INFINITE else ZERO))
    chosen = np.int32(finite if whole < INFINITE else beyond)
    return np.int32(chosen | np.int32(np.int32(bits >> np.int32(16)) & np.int32(0x8000)))
