"""What a JPEG file keeps of a rendered image in the CUDA loop, in steps that the caller waits for in between.

`copy` holds three planes of int32, each of whole blocks: Y, and Cb and Cr of half the size. A thread takes a row or a
column of a block at a time, in place: a column's coefficients are rounded on the way.
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
    return 4 * (whole(height) * whole(width) + 2 * whole((height + 1) // 2) * whole((width + 1) // 2))


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
    """Where the plane of Y (0), Cb (1) or Cr (2) lies."""
    half = whole_blocks((height + 1) // 2) * whole_blocks((width + 1) // 2)
    return copy + 4 * (whole_blocks(height) * whole_blocks(width) + (plane - 1) * half) if plane > 0 else copy


@function("int32", "int32", "int32")
def levels_at(address, channel_step):
    """The nearest levels of a pixel."""
    red, green = nearest_level(load_changing_f32(address)), nearest_level(load_changing_f32(address + 4 * channel_step))
    return np.int32(red), np.int32(green), np.int32(nearest_level(load_changing_f32(address + 8 * channel_step)))


@function("int32")
def taken(kind, address, channel_step):
    """Y (0), Cb (1) or Cr (2) of a pixel."""
    red, green, blue = levels_at(address, channel_step)
    if kind == 0:
        return np.int32(luma(red, green, blue))
    return np.int32(blueness(red, green, blue) if kind == 1 else redness(red, green, blue))


@function()
def take_planes(start, copy, height, width, pixel_step, channel_step, thread, num_threads):
    """Write the samples of all planes, less 128: the last pixels and the last rows of samples go on to the end."""
    for plane in range(kept(np.int32(3))):
        halves = 1 if plane > 0 else 0
        last_row, across = (height + halves) // (1 + halves) - 1, whole_blocks((width + halves) // (1 + halves))
        at = plane_at(copy, plane, height, width)
        for nth in range(thread, whole_blocks(last_row + 1) * across, num_threads):
            row, total = quotient(nth, across), np.int32(0)
            column, row = nth - row * across, min(row, last_row)
            for place in range(kept(np.int32(1 + 3 * halves))):  # not unrolled, for its registers
                y, x = row * (1 + halves) + place // 2, column * (1 + halves) + place % 2
                pixel = min(y, height - 1) * width + min(x, width - 1)
                total = np.int32(total + taken(plane, start + 4 * pixel * pixel_step, channel_step))
            if plane > 0:
                total = np.int32((total + 1 + column % 2) >> 2)
            store_i32(at + 4 * nth, np.int32(total - CENTRE))


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


@function("int32")
def widened(plane, near, near_side, far, far_side, half):
    """A sample at the whole size, of the four about it: where they lie, and what is rounded up, of sixteen."""
    total = np.int32(9 * sample_at(plane + 4 * near) + 3 * sample_at(plane + 4 * near_side) + half)
    return np.int32((total + 3 * sample_at(plane + 4 * far) + sample_at(plane + 4 * far_side)) >> 4)


@function()
def put_colours(start, copy, height, width, pixel_step, channel_step, thread, num_threads):
    """The colours of all pixels, of the planes."""
    half_height, half_width = (height + 1) // 2, (width + 1) // 2
    across = whole_blocks(half_width)
    for pixel in range(thread, height * width, num_threads):
        y = quotient(pixel, width)
        x = pixel - y * width
        row, column, far, side = y // 2, x // 2, y // 2, x // 2
        if half_width > 2:
            far, side = far_row(y, half_height), min(max(column - 1 + 2 * (x % 2), 0), half_width - 1)
        near, near_side = row * across + column, row * across + side
        far_side, half = far * across + side, np.int32(8 - x % 2)
        far = far * across + column
        level = sample_at(copy + 4 * (y * whole_blocks(width) + x))
        address, plane = start + 4 * pixel * pixel_step, plane_at(copy, 1, height, width)
        cb = np.int32(widened(plane, near, near_side, far, far_side, half) - CENTRE)
        plane = plane_at(copy, 2, height, width)
        cr = np.int32(widened(plane, near, near_side, far, far_side, half) - CENTRE)
        store_f32(address, np.float32(red_of(level, cr)))
        store_f32(address + 4 * channel_step, np.float32(green_of(level, cb, cr)))
        store_f32(address + 8 * channel_step, np.float32(blue_of(level, cb)))
