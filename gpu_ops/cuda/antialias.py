"""Antialiased sampling on the device: the triangle filter over as many taps as its half-width takes, and fillings."""

import numpy as np

from augpipe.gpu_ops import sampling, tone
from augpipe.gpu_ops.cuda.border import existing
from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import load_f32, load_i32, reciprocal
from augpipe.gpu_ops.cuda.pixels import load_pixel
from augpipe.gpu_ops.cuda.records import FILL, HIGH_X, HIGH_Y, IS_CONSTANT, LOW_X, LOW_Y, REFLECTS, SUPPORT_X, SUPPORT_Y

channel = shared(tone.channel)
first_tap, floor = shared(sampling.first_tap), shared(sampling.floor)
is_inside, tap_weight = shared(sampling.is_inside), shared(sampling.tap_weight)

ZERO = np.float32(0.0)
TWO = np.float32(2.0)


@function("float32", "float32", "float32")
def averaged(row, base, stride, channels, at_x, at_y):
    """(red, green, blue) at a point, summed as the CPU's loop sums them: along x within each tap along y."""
    low_x, high_x = np.float32(load_i32(row + LOW_X)), np.float32(load_i32(row + HIGH_X))
    low_y, high_y = np.float32(load_i32(row + LOW_Y)), np.float32(load_i32(row + HIGH_Y))
    support_x, support_y = load_f32(row + SUPPORT_X), load_f32(row + SUPPORT_Y)
    reflects, is_constant = load_i32(row + REFLECTS) != 0, load_i32(row + IS_CONSTANT) != 0
    num_x, num_y = np.int32(-floor(-TWO * support_x)), np.int32(-floor(-TWO * support_y))
    inverse_x, inverse_y = reciprocal(support_x), reciprocal(support_y)
    first_x, first_y = first_tap(at_x, support_x), first_tap(at_y, support_y)
    within_x = is_inside(first_x, low_x, high_x - np.float32(num_x - 1))
    is_within = within_x * is_inside(first_y, low_y, high_y - np.float32(num_y - 1)) != ZERO
    red, green, blue = ZERO, ZERO, ZERO
    sum_x, sum_y, inside_x, inside_y = ZERO, ZERO, ZERO, ZERO
    for tap_y in range(num_y):
        index = first_y + np.float32(tap_y)
        weight_y = tap_weight(index, at_y, inverse_y)
        sum_y += weight_y
        if is_constant:
            weight_y = weight_y * is_inside(index, low_y, high_y)
            inside_y += weight_y
        y = np.int32(index) if is_within else existing(index, low_y, high_y, reflects)
        line = np.int32(y * stride)
        sum_x, inside_x = ZERO, ZERO
        for tap_x in range(num_x):
            index = first_x + np.float32(tap_x)
            weight_x = tap_weight(index, at_x, inverse_x)
            sum_x += weight_x
            if is_constant:
                weight_x = weight_x * is_inside(index, low_x, high_x)
                inside_x += weight_x
            x = np.int32(index) if is_within else existing(index, low_x, high_x, reflects)
            pixel = load_pixel(base + np.int64(np.int32(line + x)) * channels, channels)
            weight = weight_x * weight_y
            red += channel(pixel, 0) * weight
            green += channel(pixel, 8) * weight
            blue += channel(pixel, 16) * weight
    whole = sum_x * sum_y
    if is_constant:
        missing = whole - inside_x * inside_y
        red += missing * load_f32(row + FILL)
        green += missing * load_f32(row + FILL + 4)
        blue += missing * load_f32(row + FILL + 8)
    inverse = reciprocal(whole)
    return red * inverse, green * inverse, blue * inverse
