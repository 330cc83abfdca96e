"""Sampling: which pixels a point of the source draws on, with which weights, and what lies beyond the border.

Coordinates here count pixels along one axis with centres at whole numbers (a pixel's index). The filter is a triangle
unless its kind says otherwise: with support 1 it is bilinear interpolation; a larger support averages over as many
pixels as one output pixel covers.
"""

import numpy as np

from augpipe.gpu_ops.image.rows import BOX, REFLECT_101, SHARP_CUBIC, WRAP
from augpipe.gpu_ops.jit import leaf

LEAST_DIVISOR = np.float32(0.125)
"""What a projection divides by at least. A perspective that a recipe may draw divides by more wherever its image shows,
relative to the frame's centre; what lies beyond, up to the horizon and behind it, is looked up far outside."""


MEETS_PX = np.float32(2.0**-7)
"""How far, in pixels, an image that meets others goes on beyond its edge: more than float32 loses of a coordinate."""


@leaf
def floor(value):
    """The largest whole number not above `value`, for |value| < 2^31; numba-cuda lowers no np.floor."""
    whole = np.float32(np.int32(value))
    return whole - (np.float32(1.0) if whole > value else np.float32(0.0))


@leaf
def linear(at_x, at_y, along_x, along_y, offset):
    """One coordinate of an affine map at the point (at_x, at_y)."""
    return along_x * at_x + (along_y * at_y + offset)


@leaf
def divisor(at_x, at_y, along_x, along_y, at_centre):
    """What a projection divides by at the point (at_x, at_y)."""
    return max(along_x * at_x + (along_y * at_y + at_centre), LEAST_DIVISOR)


@leaf
def first_tap(coordinate, support):
    """The lowest pixel index nearer than `support` to the coordinate, as a whole float."""
    return floor(coordinate - support) + np.float32(1.0)


@leaf
def num_taps(support):
    """Taps along an axis, those of weight 0 included."""
    return np.int64(np.ceil(np.float32(2.0) * support))


@leaf
def tap_weight(tap, coordinate, inverse_support):
    """The triangle filter's weight, before normalisation."""
    return max(np.float32(0.0), np.float32(1.0) - abs(tap - coordinate) * inverse_support)


@leaf
def filter_weight(kind, tap, coordinate, inverse_support):
    """The weight of a filter other than the triangle's, before normalisation; see `rows.TRIANGLE` and its likes.

    Keys (1981), with a = -0.5 as Pillow has it, and -0.75 as OpenCV has it.
    """
    one, two = np.float32(1.0), np.float32(2.0)
    a = np.float32(-0.75) if kind == SHARP_CUBIC else np.float32(-0.5)
    t = min(two * abs(tap - coordinate) * inverse_support, two)
    near = ((a + two) * t - (a + np.float32(3.0))) * t * t + one
    far = a * (((t - np.float32(5.0)) * t + np.float32(8.0)) * t - np.float32(4.0))
    cubic = near if t < one else far
    return one if kind == BOX else cubic


@leaf
def border_period(reflects, num):
    """After how many pixels a row of `num` begins again beyond its border, as `rows.REFLECT` and its likes go on."""
    doubled = np.float32(2.0) * num
    if reflects == REFLECT_101:
        return max(doubled - np.float32(2.0), np.float32(1.0))
    return num if reflects == WRAP else doubled


@leaf
def border_turn(reflects, num):
    """What the numbers of a pixel of the row, from 0, and of its mirror image behind the row add up to."""
    doubled = np.float32(2.0) * num
    if reflects == REFLECT_101:
        return doubled - np.float32(2.0)
    return doubled if reflects == WRAP else doubled - np.float32(1.0)


@leaf
def continued(tap, low, period, inverse_period, turn):
    """The index of the pixel that stands for any index, for a row from `low` on; see `border_period`."""
    offset = tap - low
    offset = offset - period * floor((offset + np.float32(0.5)) * inverse_period)
    return low + min(offset, turn - offset)


@leaf
def sharp_weight(inside, coordinate, begin, end):
    """The weight of the taps inside where the coordinate lies in what is shown of the image, else 0."""
    is_seen = (coordinate > begin) & (coordinate < end)
    return inside if is_seen else np.float32(0.0)


@leaf
def sharp_gain(whole, inside):
    """What sums over the taps inside are multiplied by; 0 where nothing is inside."""
    return whole / inside if inside > np.float32(0.0) else np.float32(0.0)


@leaf
def where_it_meets(coordinate, low, high):
    """The coordinate, moved into the image's outermost pixels if it lies next to the edge of these, low..high."""
    first, last = low - np.float32(0.5), high + np.float32(0.5)
    is_next_to = (coordinate > first - MEETS_PX) & (coordinate < last + MEETS_PX)
    return clamp(coordinate, first + MEETS_PX, last - MEETS_PX) if is_next_to else coordinate


@leaf
def clamp(value, low, high):
    """The nearest number within low..high; NaN becomes `low`."""
    raised = value if value > low else low
    return raised if raised < high else high


@leaf
def is_inside(tap, low, high):
    """1 where the pixel index lies within low..high, 0 elsewhere."""
    return np.float32(1.0) if (tap >= low) & (tap <= high) else np.float32(0.0)
