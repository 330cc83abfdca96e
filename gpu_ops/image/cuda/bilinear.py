"""Bilinear sampling on the device: a triangle filter of half-width 1 has four taps, whose weights sum to 1.

It differs from the CPU's sums in rounding alone. Two points are looked up together, so that eight loads are under way
at once. `base` and `below` are the addresses of the pixel at the row's origin and of the one under it, whether or not
the image holds them.
"""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function
from augpipe.gpu_ops.cuda.memory import floor_index, load_i32, load_u32, raised_blue, raised_green, raised_red
from augpipe.gpu_ops.image.cuda.pixels import existing, load_pixel
from augpipe.gpu_ops.image.cuda.records import HIGH_X, HIGH_Y, LOW_X, LOW_Y, REFLECTS

ONE = np.float32(1.0)
RAISED_ZERO = np.float32(2.0**23)
RAISED_BITS = np.uint32(0x4B000000)
"""The bits of 2^23, where a float32's last place is 1: with a byte in the lowest place it is 2^23 + that byte."""


@function("boolean")
def is_within(x, y, low_x, low_y, span_x, span_y):
    """Whether the pixel and those to the right of it and below it exist; a span is one less than there are pixels."""
    return (np.uint32(x - low_x) < np.uint32(span_x)) & (np.uint32(y - low_y) < np.uint32(span_y))


@function("uint32", "uint32", "uint32", "uint32")
def beyond(row, base, stride, channels, x, y):
    """The four pixels where some of them may lie beyond the border; what it needs is loaded when it is needed."""
    low_x, high_x = np.float32(load_i32(row + LOW_X)), np.float32(load_i32(row + HIGH_X))
    low_y, high_y = np.float32(load_i32(row + LOW_Y)), np.float32(load_i32(row + HIGH_Y))
    reflects = load_i32(row + REFLECTS)
    left = existing(np.float32(x), low_x, high_x, reflects)
    right = existing(np.float32(x) + ONE, low_x, high_x, reflects)
    top = np.int32(existing(np.float32(y), low_y, high_y, reflects) * stride)
    low = np.int32(existing(np.float32(y) + ONE, low_y, high_y, reflects) * stride)
    return (
        load_pixel(base + np.int64(np.int32(top + left)) * channels, channels),
        load_pixel(base + np.int64(np.int32(top + right)) * channels, channels),
        load_pixel(base + np.int64(np.int32(low + left)) * channels, channels),
        load_pixel(base + np.int64(np.int32(low + right)) * channels, channels),
    )


@function(*["uint32"] * 8)
def eight_taps(row, base, below, stride, channels, x0, y0, x1, y1, bounds):
    """The pixels at and right of, below, and below right of two indices; only threads at a border diverge."""
    low_x, low_y, span_x, span_y = bounds
    is_within0 = is_within(x0, y0, low_x, low_y, span_x, span_y)
    if is_within0 & is_within(x1, y1, low_x, low_y, span_x, span_y):
        index0, index1 = np.int32(y0 * stride + x0), np.int32(y1 * stride + x1)
        if channels == 4:
            top0, low0 = base + np.int64(index0) * 4, below + np.int64(index0) * 4
            top1, low1 = base + np.int64(index1) * 4, below + np.int64(index1) * 4
            a0, b0, c0, d0 = load_u32(top0), load_u32(top0 + 4), load_u32(low0), load_u32(low0 + 4)
            a1, b1, c1, d1 = load_u32(top1), load_u32(top1 + 4), load_u32(low1), load_u32(low1 + 4)
        else:
            top0, low0 = base + np.int64(index0) * channels, below + np.int64(index0) * channels
            top1, low1 = base + np.int64(index1) * channels, below + np.int64(index1) * channels
            a0, b0 = load_pixel(top0, channels), load_pixel(top0 + channels, channels)
            c0, d0 = load_pixel(low0, channels), load_pixel(low0 + channels, channels)
            a1, b1 = load_pixel(top1, channels), load_pixel(top1 + channels, channels)
            c1, d1 = load_pixel(low1, channels), load_pixel(low1 + channels, channels)
    else:
        a0, b0, c0, d0 = beyond(row, base, stride, channels, x0, y0)
        a1, b1, c1, d1 = beyond(row, base, stride, channels, x1, y1)
    return a0, b0, c0, d0, a1, b1, c1, d1


@function("float32")
def mixed(top_left, top_right, low_left, low_right, right, down):
    """One channel between four raised ones."""
    top = (top_left - RAISED_ZERO) + right * (top_right - top_left)
    low = (low_left - RAISED_ZERO) + right * (low_right - low_left)
    return top + down * (low - top)


@function("float32", "float32", "float32")
def blended(a, b, c, d, right, down, raised):
    """(red, green, blue) at the point that lies `right` and `down` of the first of four pixels, 0..1 both."""
    red = mixed(raised_red(a, raised), raised_red(b, raised), raised_red(c, raised), raised_red(d, raised), right, down)
    green = mixed(
        raised_green(a, raised), raised_green(b, raised), raised_green(c, raised), raised_green(d, raised), right, down
    )
    blue = mixed(
        raised_blue(a, raised), raised_blue(b, raised), raised_blue(c, raised), raised_blue(d, raised), right, down
    )
    return red, green, blue


@function(*["float32"] * 6)
def bilinear_pair(row, base, below, stride, channels, at_x0, at_y0, at_x1, at_y1, bounds, raised):
    """(red, green, blue) at two points, given from the row's origin in pixels."""
    x0, y0, x1, y1 = floor_index(at_x0), floor_index(at_y0), floor_index(at_x1), floor_index(at_y1)
    a0, b0, c0, d0, a1, b1, c1, d1 = eight_taps(row, base, below, stride, channels, x0, y0, x1, y1, bounds)
    red0, green0, blue0 = blended(a0, b0, c0, d0, at_x0 - np.float32(x0), at_y0 - np.float32(y0), raised)
    red1, green1, blue1 = blended(a1, b1, c1, d1, at_x1 - np.float32(x1), at_y1 - np.float32(y1), raised)
    return red0, green0, blue0, red1, green1, blue1
