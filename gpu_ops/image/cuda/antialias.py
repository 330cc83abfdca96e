"""Antialiased sampling on the device: a filter over as many taps as its half-width takes, and fillings.

Sums are those of the CPU's loop, in its order: along x within each tap along y. Taps along an axis are a tuple here:
the first one's index, the coordinate that they surround, 1 / half-width, how many there are, and the filter.
"""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import (
    load_f32,
    load_i32,
    load_u32,
    raised_blue,
    raised_green,
    raised_red,
    reciprocal,
)
from augpipe.gpu_ops.image import sampling
from augpipe.gpu_ops.image.cuda.pixels import existing, load_pixel
from augpipe.gpu_ops.image.cuda.records import (
    BEGIN_X,
    BEGIN_Y,
    END_X,
    END_Y,
    FILL,
    FILTER,
    HIGH_X,
    HIGH_Y,
    IS_CONSTANT,
    LOW_X,
    LOW_Y,
    REFLECTS,
    SUPPORT_X,
    SUPPORT_Y,
)
from augpipe.gpu_ops.image.rows import MEETING, SHARP, TRIANGLE

first_tap, floor = shared(sampling.first_tap), shared(sampling.floor)
sharp_gain, sharp_weight = shared(sampling.sharp_gain), shared(sampling.sharp_weight)
is_inside, tap_weight = shared(sampling.is_inside), shared(sampling.tap_weight)
filter_weight, clamp = shared(sampling.filter_weight), shared(sampling.clamp)
where_it_meets = shared(sampling.where_it_meets)

ZERO, HALF, ONE, TWO, THREE = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0), np.float32(3.0)
WHITE = np.float32(255.0)
RAISED_ZERO = np.float32(2.0**23)

MAX_KEPT = 4
"""Taps along x whose weights stay in registers: as many as an image brought to half its size takes."""


@function("float32", "float32", "float32", "int32", "int32")
def taps_around(at, support, kind):
    """The taps of a filter nearer than `support` to a coordinate."""
    return first_tap(at, support), at, reciprocal(support), np.int32(-floor(-TWO * support)), np.int32(kind)


@function("boolean")
def all_exist(taps, begin, end):
    """Whether what is shown of the image holds all of an axis' taps."""
    first, _, _, num, _ = taps
    return (first - HALF >= begin) & (first + HALF <= end - (np.float32(num) - ONE))


@function("float32", "float32")
def weighed(taps, nth):
    """Index and weight of the nth tap."""
    first, at, inverse, _, kind = taps
    index = first + np.float32(nth)
    if kind == TRIANGLE:
        return index, tap_weight(index, at, inverse)
    return index, np.float32(filter_weight(kind, index, at, inverse))


@function("float32", "float32", "float32")
def added(red, green, blue, pixel, weight, raised):
    """Three sums with one more tap."""
    red += (raised_red(pixel, raised) - RAISED_ZERO) * weight
    green += (raised_green(pixel, raised) - RAISED_ZERO) * weight
    blue += (raised_blue(pixel, raised) - RAISED_ZERO) * weight
    return red, green, blue


@function("uint32", "uint32", "uint32", "uint32")
def adjacent_pixels(address, channels, num):
    """The first `num` of four pixels side by side, at least 2, all under way at once; 0 for the others."""
    c, d = np.uint32(0), np.uint32(0)
    if channels == 4:
        a, b = load_u32(address), load_u32(address + 4)
        if num > 2:
            c = load_u32(address + 8)
        if num > 3:
            d = load_u32(address + 12)
    else:
        a, b = load_pixel(address, channels), load_pixel(address + channels, channels)
        if num > 2:
            c = load_pixel(address + 2 * channels, channels)
        if num > 3:
            d = load_pixel(address + 3 * channels, channels)
    return a, b, c, d


@function("float32", "float32", "float32", "float32")
def sums_of_few(address, row_bytes, channels, taps_x, taps_y, raised):
    """(red, green, blue, weight) over 2 to 4 pixels a row that all exist, from the address of the first one."""
    num_x, num_y = taps_x[3], taps_y[3]
    w0, w1, w2, w3 = weighed(taps_x, ZERO)[1], weighed(taps_x, ONE)[1], ZERO, ZERO
    if num_x > 2:
        w2 = weighed(taps_x, TWO)[1]
    if num_x > 3:
        w3 = weighed(taps_x, THREE)[1]
    red, green, blue, sum_y = ZERO, ZERO, ZERO, ZERO
    tap_y = np.int32(0)
    while tap_y < num_y:
        weight = weighed(taps_y, tap_y)[1]
        sum_y += weight
        a, b, c, d = adjacent_pixels(address, channels, num_x)
        red, green, blue = added(red, green, blue, a, w0 * weight, raised)
        red, green, blue = added(red, green, blue, b, w1 * weight, raised)
        red, green, blue = added(red, green, blue, c, w2 * weight, raised)
        if num_x > 3:
            red, green, blue = added(red, green, blue, d, w3 * weight, raised)
        address += row_bytes
        tap_y = np.int32(tap_y + 1)
    return red, green, blue, (w0 + w1 + w2 + w3) * sum_y


@function("float32", "float32", "float32", "float32")
def sums_of_any(row, base, stride, channels, taps_x, taps_y, exist, raised):
    """(red, green, blue, weight) over any taps, where need be with what stands for pixels beyond the border."""
    low_x, high_x = np.float32(load_i32(row + LOW_X)), np.float32(load_i32(row + HIGH_X))
    low_y, high_y = np.float32(load_i32(row + LOW_Y)), np.float32(load_i32(row + HIGH_Y))
    reflects, kind = load_i32(row + REFLECTS), load_i32(row + IS_CONSTANT)
    is_constant = kind != 0
    red, green, blue = ZERO, ZERO, ZERO
    sum_x, sum_y, inside_x, inside_y = ZERO, ZERO, ZERO, ZERO
    for tap_y in range(taps_y[3]):
        index, weight_y = weighed(taps_y, tap_y)
        sum_y += weight_y
        if is_constant:
            weight_y = weight_y * is_inside(index, low_y, high_y)
            inside_y += weight_y
        y = np.int32(index) if exist else existing(index, low_y, high_y, reflects)
        line = np.int32(y * stride)
        sum_x, inside_x = ZERO, ZERO
        for tap_x in range(taps_x[3]):
            index, weight_x = weighed(taps_x, tap_x)
            sum_x += weight_x
            if is_constant:
                weight_x = weight_x * is_inside(index, low_x, high_x)
                inside_x += weight_x
            x = np.int32(index) if exist else existing(index, low_x, high_x, reflects)
            pixel = load_pixel(base + np.int64(np.int32(line + x)) * channels, channels)
            red, green, blue = added(red, green, blue, pixel, weight_x * weight_y, raised)
    whole = sum_x * sum_y
    if kind >= SHARP:
        inside_x = sharp_weight(inside_x, taps_x[1], load_f32(row + BEGIN_X), load_f32(row + END_X))
        inside_y = sharp_weight(inside_y, taps_y[1], load_f32(row + BEGIN_Y), load_f32(row + END_Y))
        kept = sharp_gain(sum_x, inside_x) * sharp_gain(sum_y, inside_y)
        filled = whole if kept == ZERO else ZERO
        red = red * kept + filled * load_f32(row + FILL)
        green = green * kept + filled * load_f32(row + FILL + 4)
        blue = blue * kept + filled * load_f32(row + FILL + 8)
    elif is_constant:
        missing = whole - inside_x * inside_y
        red += missing * load_f32(row + FILL)
        green += missing * load_f32(row + FILL + 4)
        blue += missing * load_f32(row + FILL + 8)
    return red, green, blue, whole


@function("float32", "float32", "float32")
def averaged(row, base, stride, channels, at_x, at_y, raised):
    """(red, green, blue) at a point, given from the row's origin in pixels."""
    kind = load_i32(row + FILTER)
    if load_i32(row + IS_CONSTANT) == MEETING:
        at_x = where_it_meets(at_x, np.float32(load_i32(row + LOW_X)), np.float32(load_i32(row + HIGH_X)))
        at_y = where_it_meets(at_y, np.float32(load_i32(row + LOW_Y)), np.float32(load_i32(row + HIGH_Y)))
    taps_x = taps_around(at_x, load_f32(row + SUPPORT_X), kind)
    taps_y = taps_around(at_y, load_f32(row + SUPPORT_Y), kind)
    exist_x = all_exist(taps_x, load_f32(row + BEGIN_X), load_f32(row + END_X))
    exist = exist_x & all_exist(taps_y, load_f32(row + BEGIN_Y), load_f32(row + END_Y))
    if exist & (taps_x[3] > 1) & (taps_x[3] <= MAX_KEPT):
        row_bytes = np.int64(np.int32(stride * channels))
        first_byte = np.int32(np.int32(taps_x[0]) * channels)
        address = base + np.int64(np.int32(taps_y[0])) * row_bytes + np.int64(first_byte)
        red, green, blue, whole = sums_of_few(address, row_bytes, channels, taps_x, taps_y, raised)
    else:
        red, green, blue, whole = sums_of_any(row, base, stride, channels, taps_x, taps_y, exist, raised)
    inverse = reciprocal(whole)
    red, green, blue = red * inverse, green * inverse, blue * inverse
    if kind != TRIANGLE:  # a bicubic look-up reaches beyond what is there
        red, green, blue = clamp(red, ZERO, WHITE), clamp(green, ZERO, WHITE), clamp(blue, ZERO, WHITE)
    return red, green, blue
