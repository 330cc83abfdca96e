"""Filters over a rendered image in the CUDA loop: each thread makes every `num_threads`-th pixel of its block's image.

They read levels that were copied aside, or the image, and write the other: the caller waits for all threads between.
`copy` holds float32 of a row's pixels with their three channels side by side, for a median bytes.
"""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import load_changing_f32, load_changing_u8, load_f32, load_u8, store_f32, store_u8
from augpipe.gpu_ops.image import neighbours, tone

mirrored, repeated = shared(neighbours.mirrored), shared(neighbours.repeated)
kept_within, nearest_level = shared(tone.kept_within), shared(tone.nearest_level)

ZERO = np.float32(0.0)


@function()
def sum_columns(start, copy, taps, radius, height, width, pixel_step, channel_step, thread, num_threads):
    """Sum each level's column of 2 * radius + 1 from the image into `copy`."""
    for pixel in range(thread, height * width, num_threads):
        x, y = pixel % width, pixel // width
        for channel in range(3):
            plane = start + 4 * channel * channel_step
            made = load_f32(taps) * load_changing_f32(plane + 4 * pixel * pixel_step)
            for distance in range(1, radius + 1):
                above = (mirrored(y - distance, height) * width + x) * pixel_step
                below = (mirrored(y + distance, height) * width + x) * pixel_step
                both = load_changing_f32(plane + 4 * above) + load_changing_f32(plane + 4 * below)
                made = np.float32(made + load_f32(taps + 4 * distance) * both)
            store_f32(copy + 4 * (3 * pixel + channel), made)


@function()
def sum_rows(start, copy, taps, radius, height, width, pixel_step, channel_step, thread, num_threads):
    """Sum each row of 2 * radius + 1 from `copy` into the image."""
    for pixel in range(thread, height * width, num_threads):
        x, row = pixel % width, pixel - pixel % width
        for channel in range(3):
            made = load_f32(taps) * load_changing_f32(copy + 4 * (3 * pixel + channel))
            for distance in range(1, radius + 1):
                left = 3 * (row + mirrored(x - distance, width)) + channel
                right = 3 * (row + mirrored(x + distance, width)) + channel
                both = load_changing_f32(copy + 4 * left) + load_changing_f32(copy + 4 * right)
                made = np.float32(made + load_f32(taps + 4 * distance) * both)
            store_f32(start + 4 * (pixel * pixel_step + channel * channel_step), made)


@function()
def copy_levels(start, copy, num_pixels, pixel_step, channel_step, thread, num_threads):
    """Copy the image aside."""
    for pixel in range(thread, num_pixels, num_threads):
        for channel in range(3):
            level = load_changing_f32(start + 4 * (pixel * pixel_step + channel * channel_step))
            store_f32(copy + 4 * (3 * pixel + channel), level)


@function()
def copy_whole_levels(start, copy, num_pixels, pixel_step, channel_step, thread, num_threads):
    """Copy the image's nearest levels aside, as bytes."""
    for pixel in range(thread, num_pixels, num_threads):
        for channel in range(3):
            level = load_changing_f32(start + 4 * (pixel * pixel_step + channel * channel_step))
            store_u8(copy + 3 * pixel + channel, np.uint32(nearest_level(level)))


@function()
def convolve(start, copy, taps, side, weight, height, width, pixel_step, channel_step, thread, num_threads):
    """Make each level a weighted sum over a square of what was copied; of one weight where there is one."""
    radius = side // 2
    for pixel in range(thread, height * width, num_threads):
        x, y = pixel % width, pixel // width
        red, green, blue = ZERO, ZERO, ZERO
        for nth in range(side * side):
            tap = weight * np.float32(load_u8(taps + nth)) if weight > ZERO else load_f32(taps + 4 * nth)
            if tap != ZERO:
                row = mirrored(y + nth // side - radius, height)
                at = copy + 12 * (row * width + mirrored(x + nth % side - radius, width))
                red = np.float32(red + tap * load_changing_f32(at))
                green = np.float32(green + tap * load_changing_f32(at + 4))
                blue = np.float32(blue + tap * load_changing_f32(at + 8))
        at = start + 4 * pixel * pixel_step
        store_f32(at, np.float32(kept_within(red)))
        store_f32(at + 4 * channel_step, np.float32(kept_within(green)))
        store_f32(at + 8 * channel_step, np.float32(kept_within(blue)))


@function()
def take_median(start, copy, side, height, width, pixel_step, channel_step, thread, num_threads):
    """Make each level the median of a square of the bytes that were copied, bit by bit of 256 levels."""
    radius = side // 2
    for nth in range(thread, 3 * height * width, num_threads):
        pixel, channel = nth // 3, nth % 3
        x, y = pixel % width, pixel // width
        found, bit = np.uint32(0), np.uint32(128)
        while bit > 0:
            num_reached = 0
            for down in range(-radius, radius + 1):
                row = copy + 3 * width * repeated(y + down, height) + channel
                for across in range(-radius, radius + 1):
                    if load_changing_u8(row + 3 * repeated(x + across, width)) >= found + bit:
                        num_reached += 1
            if num_reached > side * side // 2:
                found = np.uint32(found + bit)
            bit = np.uint32(bit >> np.uint32(1))
        store_f32(start + 4 * (pixel * pixel_step + channel * channel_step), np.float32(np.int32(found)))
