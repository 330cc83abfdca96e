"""Normal numbers for each pixel, from Philox' words alone: the same on every machine except for rounding in float32.

Box and Muller's transform (1958), with its logarithm, sine and cosine as sums of a few powers, which are off by less
than 1e-5 and which every compiler vectorises.
"""

import numpy as np

from augpipe.gpu_ops.jit import leaf

ONE = np.float32(1.0)
TWO = np.float32(2.0)
HALF = np.float32(0.5)
LN_2 = np.float32(0.6931471805599453)
PI = np.float32(3.141592653589793)
PART = np.float32(2.0**-24)
ROOM = np.uint32(8)
"""Bits of a word that float32 would round away."""

ROOM_FOR_ONE = np.float32(24.0)
"""`above_zero` lies below 2^24: taken off first, as large numbers of like size would leave rounding alone."""

EXPONENT_SHIFT = np.int32(23)
EXPONENT_BIAS = np.int32(127)
MANTISSA = np.int32(0x7FFFFF)
BITS_OF_ONE = np.int32(0x3F800000)
"""What float32 is made of."""


@leaf
def above_zero(word):
    """A number in 0..2^24, neither of them included, of a random word's upper bits."""
    return np.float32(np.int32(np.uint32(word) >> ROOM)) + HALF


@leaf
def logarithm(mantissa, exponent):
    """The natural logarithm of mantissa * 2^exponent, for a mantissa in 1..2."""
    s = (mantissa - ONE) / (mantissa + ONE)
    s2 = s * s
    series = ONE + s2 * (
        np.float32(1 / 3) + s2 * (np.float32(1 / 5) + s2 * (np.float32(1 / 7) + s2 * np.float32(1 / 9)))
    )
    return TWO * s * series + exponent * LN_2


@leaf
def sine_and_cosine(turn):
    """Sine and cosine of a part of a whole turn in -0.5..0.5, by way of half the angle."""
    a = PI * turn
    a2 = a * a
    sine = a * (
        ONE
        - a2
        * (np.float32(1 / 6) - a2 * (np.float32(1 / 120) - a2 * (np.float32(1 / 5040) - a2 * np.float32(1 / 362880))))
    )
    cosine = ONE - a2 * (
        HALF
        - a2
        * (
            np.float32(1 / 24)
            - a2 * (np.float32(1 / 720) - a2 * (np.float32(1 / 40320) - a2 * np.float32(1 / 3628800)))
        )
    )
    return TWO * sine * cosine, ONE - TWO * sine * sine


@leaf
def radius_squared(mantissa, exponent):
    """The square of two normal numbers' distance from zero, for a number of `above_zero`, mantissa * 2^exponent."""
    return np.float32(-2.0) * logarithm(mantissa, exponent - ROOM_FOR_ONE)


@leaf
def turn_of(word):
    """A part of a whole turn, -0.5..0.5, of a random word."""
    return np.float32(np.int32(np.uint32(word) >> ROOM)) * PART - HALF
