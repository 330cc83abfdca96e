"""What a JPEG file keeps of a rendered image in the CUDA loop, in steps that the caller waits for in between.

`copy` holds three planes of int32, each of whole blocks: Y, and Cb and Cr of half the size; behind them these two at
the whole size. A thread takes a row or a column of a block at a time, in place.
"""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import kept, load_changing_f32, load_changing_i32, store_f32, store_i32
from augpipe.gpu_ops.image import compression, dct, tone

nearest_level = shared(tone.nearest_level)
forward_pass, inverse_pass = shared(dct.forward_pass), shared(dct.inverse_pass)
step_at, rounded_to, far_row = shared(compression.step_at), shared(compression.rounded_to), shared(compression.far_row)
luma, blueness, redness = shared(compression.luma), shared(compression.blueness), shared(compression.redness)
red_of, green_of, blue_of = shared(compression.red_of), shared(compression.green_of), shared(compression.blue_of)

SIDE = 8
"""Of a block."""
CENTRE = 128


def copied_bytes(height: int, width: int) -> int:
    """Bytes that an image takes in addition to its levels; a multiple of 4."""
    halves = whole((height + 1) // 2) * whole((width + 1) // 2)
    return 4 * (whole(height) * whole(width) + 2 * halves + 2 * height * width)


def whole(length: int) -> int:
    """Samples along an axis, filled up to whole blocks."""
    return (length + SIDE - 1) // SIDE * SIDE


whole_blocks = function("int64")(whole)


@function("int64")
def quotient(number, divisor):
    """How often a divisor goes into a number below 2^32: with 64 bits it would take several times as long."""
    return np.int64(np.uint32(number) // np.uint32(divisor))


@function("int64")
def plane_at(copy, plane, height, width):
    """Where the plane of Y (0), Cb (1) or Cr (2) lies, or what is behind them (3)."""
    half = whole_blocks((height + 1) // 2) * whole_blocks((width + 1) // 2)
    return copy + 4 * (whole_blocks(height) * whole_blocks(width) + (plane - 1) * half) if plane > 0 else copy


@function("int32", "int32", "int32")
def levels_at(address, channel_step):
    """The nearest levels of a pixel."""
    red, green = nearest_level(load_changing_f32(address)), nearest_level(load_changing_f32(address + 4 * channel_step))
    return np.int32(red), np.int32(green), np.int32(nearest_level(load_changing_f32(address + 8 * channel_step)))


@function()
def take_planes(start, copy, height, width, pixel_step, channel_step, thread, num_threads):
    """Write Y less 128, whose last pixels go on to the end of blocks, and Cb and Cr at the whole size."""
    across, wide = whole_blocks(width), plane_at(copy, 3, height, width)
    for nth in range(thread, whole_blocks(height) * across, num_threads):
        row = quotient(nth, across)
        column = min(nth - row * across, width - 1)
        is_pixel = row < height and column == nth - row * across
        pixel = min(row, height - 1) * width + column
        red, green, blue = levels_at(start + 4 * pixel * pixel_step, channel_step)
        store_i32(copy + 4 * nth, np.int32(np.int32(luma(red, green, blue)) - CENTRE))
        if is_pixel:
            store_i32(wide + 4 * pixel, np.int32(blueness(red, green, blue)))
            store_i32(wide + 4 * (height * width + pixel), np.int32(redness(red, green, blue)))


@function()
def halve_planes(copy, height, width, thread, num_threads):
    """Write the means of four of Cb and of Cr, less 128: the last column and the last row of means go on to the end."""
    half_height, across = (height + 1) // 2, whole_blocks((width + 1) // 2)
    num = whole_blocks(half_height) * across
    for nth in range(thread, 2 * num, num_threads):
        wide, place = plane_at(copy, 3, height, width), nth
        if nth >= num:
            wide, place = wide + 4 * height * width, nth - num
        row = quotient(place, across)
        column = place - row * across
        total, y = np.int32(1 + column % 2), 2 * min(row, half_height - 1)
        for corner in range(kept(np.int32(4))):  # not unrolled, for its registers
            at_x = min(2 * column + corner % 2, width - 1)
            total = np.int32(total + load_changing_i32(wide + 4 * (min(y + corner // 2, height - 1) * width + at_x)))
        store_i32(plane_at(copy, 1, height, width) + 4 * nth, np.int32((total >> 2) - CENTRE))


@function("int32", "int32", "int32", "int32", "int32", "int32", "int32", "int32")
def eight_at(address, apart):
    """Eight numbers, so many bytes from one to the next."""
    first, second = load_changing_i32(address), load_changing_i32(address + apart)
    third, fourth = load_changing_i32(address + 2 * apart), load_changing_i32(address + 3 * apart)
    fifth, sixth = load_changing_i32(address + 4 * apart), load_changing_i32(address + 5 * apart)
    seventh, eighth = load_changing_i32(address + 6 * apart), load_changing_i32(address + 7 * apart)
    return first, second, third, fourth, fifth, sixth, seventh, eighth


@function()
def put_eight(address, apart, shift, a, b, c, d, e, f, g, h):
    """Write eight numbers less so many bits, so many bytes from one to the next."""
    store_i32(address, np.int32(a >> shift))
    store_i32(address + apart, np.int32(b >> shift))
    store_i32(address + 2 * apart, np.int32(c >> shift))
    store_i32(address + 3 * apart, np.int32(d >> shift))
    store_i32(address + 4 * apart, np.int32(e >> shift))
    store_i32(address + 5 * apart, np.int32(f >> shift))
    store_i32(address + 6 * apart, np.int32(g >> shift))
    store_i32(address + 7 * apart, np.int32(h >> shift))


@function()
def transform_rows(copy, height, width, thread, num_threads):
    """The first pass: rows of samples to coefficients."""
    for nth in range(thread, whole_rows(height, width), num_threads):
        at = copy + 4 * SIDE * nth
        a, b, c, d, e, f, g, h = eight_at(at, 4)
        put_eight(at, 4, 11, *forward_pass(np.int32(1 << 10), a, b, c, d, e, f, g, h))


@function("int64")
def whole_rows(height, width):
    """Rows of blocks of all planes, one behind the other."""
    half = whole_blocks((height + 1) // 2) * whole_blocks((width + 1) // 2)
    return (whole_blocks(height) * whole_blocks(width) + 2 * half) // SIDE


@function("int32")
def rounded_at(place, quality, coefficient):
    """A coefficient of the second pass, rounded."""
    step = np.int32(step_at(place, quality))
    inverse = np.float32(1.0) / (np.float32(8.0) * np.float32(step))
    return np.int32(rounded_to(np.int32(coefficient >> 15), step, inverse))


@function("int64", "int64", "int64")
def column_at(copy, nth, height, width):
    """Where the nth column of a block lies, bytes from one of its numbers to the next, and its place in the tables."""
    plane = 0
    across, num = whole_blocks(width), whole_blocks(height) * whole_blocks(width) // SIDE
    while nth >= num:
        nth -= num
        plane += 1
        across = whole_blocks((width + 1) // 2)
        num = whole_blocks((height + 1) // 2) * across // SIDE
    row = quotient(nth, across)
    at = plane_at(copy, plane, height, width) + 4 * (row * SIDE * across + nth - row * across)
    return at, 4 * across, nth % SIDE + (64 if plane > 0 else 0)


@function()
def round_columns(copy, quality, height, width, thread, num_threads):
    """The second pass, and rounding."""
    for nth in range(thread, whole_rows(height, width), num_threads):
        at, apart, place = column_at(copy, nth, height, width)
        a, b, c, d, e, f, g, h = eight_at(at, apart)
        a, b, c, d, e, f, g, h = forward_pass(np.int32(1 << 14), a, b, c, d, e, f, g, h)
        store_i32(at, rounded_at(place, quality, np.int32(a)))
        store_i32(at + apart, rounded_at(place + 8, quality, np.int32(b)))
        store_i32(at + 2 * apart, rounded_at(place + 16, quality, np.int32(c)))
        store_i32(at + 3 * apart, rounded_at(place + 24, quality, np.int32(d)))
        store_i32(at + 4 * apart, rounded_at(place + 32, quality, np.int32(e)))
        store_i32(at + 5 * apart, rounded_at(place + 40, quality, np.int32(f)))
        store_i32(at + 6 * apart, rounded_at(place + 48, quality, np.int32(g)))
        store_i32(at + 7 * apart, rounded_at(place + 56, quality, np.int32(h)))


@function()
def restore_columns(copy, height, width, thread, num_threads):
    """The first pass back: columns of coefficients."""
    for nth in range(thread, whole_rows(height, width), num_threads):
        at, apart, _ = column_at(copy, nth, height, width)
        a, b, c, d, e, f, g, h = eight_at(at, apart)
        put_eight(at, apart, 11, *inverse_pass(np.int32(1 << 10), a, b, c, d, e, f, g, h))


@function()
def restore_rows(copy, height, width, thread, num_threads):
    """The second pass back: rows of samples, not kept within 0..255 yet."""
    for nth in range(thread, whole_rows(height, width), num_threads):
        at = copy + 4 * SIDE * nth
        a, b, c, d, e, f, g, h = eight_at(at, 4)
        put_eight(at, 4, 18, *inverse_pass(compression.ROUNDING, a, b, c, d, e, f, g, h))


@function("int32")
def sample_at(address):
    """A sample in 0..255."""
    return np.int32(min(max(load_changing_i32(address), np.int32(0)), np.int32(255)))


@function()
def widen_planes(copy, height, width, thread, num_threads):
    """Write Cb and Cr less 128 at the whole size, behind the planes: 9, 3, 3 and 1 sixteenths of four samples."""
    half_height, half_width = (height + 1) // 2, (width + 1) // 2
    across = whole_blocks(half_width)
    for nth in range(thread, 2 * height * width, num_threads):
        plane = np.int64(1 if nth < height * width else 2)
        pixel = nth - (plane - 1) * height * width
        y = quotient(pixel, width)
        x = pixel - y * width
        row, column, total, weight = y // 2, x // 2, np.int32(8 - x % 2), np.int32(9)
        at = plane_at(copy, plane, height, width)
        for place in range(kept(np.int32(4))):  # not unrolled, for its registers
            total = np.int32(total + weight * sample_at(at + 4 * (row * across + column)))
            weight = np.int32(1 if place == 2 else 3)
            row, column = y // 2, x // 2
            if half_width > 2 and place > 0:
                row = far_row(y, half_height)
            if half_width > 2 and place != 1:
                column = min(max(column - 1 + 2 * (x % 2), 0), half_width - 1)
        store_i32(plane_at(copy, 3, height, width) + 4 * nth, np.int32((total >> 4) - CENTRE))


@function()
def put_colours(start, copy, height, width, pixel_step, channel_step, thread, num_threads):
    """The colours of all pixels, of their Y, Cb and Cr."""
    wide = plane_at(copy, 3, height, width)
    for pixel in range(thread, height * width, num_threads):
        y = quotient(pixel, width)
        level = sample_at(copy + 4 * (y * whole_blocks(width) + pixel - y * width))
        cb = load_changing_i32(wide + 4 * pixel)
        cr = load_changing_i32(wide + 4 * (height * width + pixel))
        address = start + 4 * pixel * pixel_step
        store_f32(address, np.float32(red_of(level, cr)))
        store_f32(address + 4 * channel_step, np.float32(green_of(level, cb, cr)))
        store_f32(address + 8 * channel_step, np.float32(blue_of(level, cb)))
