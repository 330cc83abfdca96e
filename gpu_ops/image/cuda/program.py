"""The CUDA loop over rendered images: the steps of their colours, and how levels become a batch's numbers.

A thread block belongs to one image, whose levels the fused kernel has written; they are changed in place. A step that
looks at the whole image waits for all threads of its block, which count levels in memory that they share. From the same
levels a step makes what the CPU's makes of them, within a level: see `gpu_ops.image.program`. Filters, and what stands
before them, are another kernel's, which is launched first: they take registers that other steps need not pay for.
"""

import math
from typing import Any

import numpy as np
from numba import cuda

from augpipe.gpu_ops.cuda.functions import IS_SIMULATED, function, shared
from augpipe.gpu_ops.cuda.memory import (
    bits_of,
    float32_of,
    kept,
    load_changing_f32,
    load_changing_u8,
    load_f32,
    load_i32,
    load_u8,
    load_u32,
    store_f32,
    store_u8,
)
from augpipe.gpu_ops.image import clahe, noise, scratch_rows, tone, weather, whole_image
from augpipe.gpu_ops.image.cuda.cells import coarsen, shuffle
from augpipe.gpu_ops.image.cuda.clahe import count, make_tables, relight, take_lightness
from augpipe.gpu_ops.image.cuda.compression import (
    halve_planes,
    put_colours,
    restore_columns,
    restore_rows,
    round_columns,
    take_planes,
    transform_rows,
    widen_planes,
)
from augpipe.gpu_ops.image.cuda.dropouts import dropped, in_grid
from augpipe.gpu_ops.image.cuda.neighbours import (
    convolve,
    copy_levels,
    copy_whole_levels,
    sum_columns,
    sum_rows,
    take_median,
)
from augpipe.gpu_ops.image.cuda.shadows import light_left, shaded
from augpipe.gpu_ops.image.cuda.weather import grainy, seen_through
from augpipe.gpu_ops.image.cuda.writing import FLOAT32, ITEM_BYTES, write
from augpipe.gpu_ops.image.noise import BITS_OF_ONE, EXPONENT_BIAS, EXPONENT_SHIFT, MANTISSA
from augpipe.gpu_ops.image.program_rows import (
    AT_STEPS,
    AT_TABLES,
    AUTO_CONTRAST,
    BIAS,
    CLAHE,
    COARSEN,
    DROP,
    EQUALIZE,
    FILL,
    FIRST_FILTER,
    FIRST_LOOK,
    GRAIN,
    HAZE,
    HOLES,
    HSV,
    INVERSE_CORNER_R2,
    JPEG,
    MATRIX,
    MEDIAN,
    NOISE,
    NUM_STEPS,
    SCALE,
    SEPARABLE,
    SHADE,
    SHARPNESS,
    SHUFFLE,
    STEP_BYTES,
    STEP_KEY,
    STEP_NUMBERS,
    STEP_TABLE,
    TABLE,
    TABLE_BYTES,
)
from augpipe.gpu_ops.random import philox

centred = shared(scratch_rows.centred)
combined, gray, nearest_level = shared(tone.combined), shared(tone.gray), shared(tone.nearest_level)
kept_within, away_from, smoothed = shared(tone.kept_within), shared(tone.away_from), shared(whole_image.smoothed)
noisy, above_zero, turn_of = shared(tone.noisy), shared(noise.above_zero), shared(noise.turn_of)
radius_squared, sine_and_cosine = shared(noise.radius_squared), shared(noise.sine_and_cosine)
hue_of, saturation_of, of_hue = shared(tone.hue_of), shared(tone.saturation_of), shared(tone.of_hue)
philox_block = shared(philox.philox_block)
tile_side, hazy = shared(clahe.tile_side), shared(weather.hazy)
normalise, vignette_gain = shared(tone.normalise), shared(tone.vignette_gain)

ZERO = np.float32(0.0)
WHITE = np.float32(255.0)
NUM_COUNTS = 768
"""256 levels of three channels."""

FINISH_SIGNATURE = "void(int64, int64, int64, int64, int64, int64, int64, int64, int64)"
FINISH_THREADS = 4 if IS_SIMULATED else 512
FINISH_LAUNCH_BOUNDS = (512, 2)
FILTER_LAUNCH_BOUNDS = (512, 1)


@function("float32", "float32", "float32")
def changed(at, first, stop, red, green, blue, pixel, height, width):
    """A pixel after the steps `first`..`stop` - 1, none of which looks at the image."""
    for step in range(first, stop):
        at_step = at + AT_STEPS + np.int64(step) * STEP_BYTES
        kind, numbers = load_i32(at_step), at_step + STEP_NUMBERS
        if kind == MATRIX:
            old_red, old_green, old_blue = red, green, blue
            red = row_of(numbers, old_red, old_green, old_blue)
            green = row_of(numbers + 16, old_red, old_green, old_blue)
            blue = row_of(numbers + 32, old_red, old_green, old_blue)
        elif kind == TABLE:
            table = at + load_i32(at + AT_TABLES) + np.int64(load_i32(at_step + STEP_TABLE)) * TABLE_BYTES
            red = np.float32(load_u8(table + nearest_level(red)))
            green = np.float32(load_u8(table + nearest_level(green)))
            blue = np.float32(load_u8(table + nearest_level(blue)))
        elif kind == NOISE:
            normal_r, normal_g, normal_b = normals(at_step + STEP_KEY, pixel)
            std, speckle = load_f32(numbers), load_f32(numbers + 4)
            if load_f32(numbers + 8) > ZERO:
                normal_g, normal_b = normal_r, normal_r
            red = np.float32(noisy(red, normal_r, std, speckle))
            green = np.float32(noisy(green, normal_g, std, speckle))
            blue = np.float32(noisy(blue, normal_b, std, speckle))
        elif kind == HSV:
            value = max(red, max(green, blue))
            chroma = value - min(red, min(green, blue))
            hue = np.float32(hue_of(red, green, blue, value, chroma)) + load_f32(numbers)
            saturation = np.float32(saturation_of(value, chroma, load_f32(numbers + 4), load_f32(numbers + 12)))
            value = np.float32(kept_within(value + load_f32(numbers + 8)))
            chroma = saturation * value
            red = np.float32(of_hue(tone.RED_AT, hue, value, chroma))
            green = np.float32(of_hue(tone.GREEN_AT, hue, value, chroma))
            blue = np.float32(of_hue(tone.BLUE_AT, hue, value, chroma))
        elif kind == HAZE:
            seen = seen_through(numbers, at_step + STEP_KEY, pixel, height, width)
            red, green, blue = (
                np.float32(hazy(red, seen)),
                np.float32(hazy(green, seen)),
                np.float32(hazy(blue, seen)),
            )
        elif kind == GRAIN:
            of_hue_normal, of_lightness, _ = normals(at_step + STEP_KEY, pixel)
            red, green, blue = grainy(red, green, blue, numbers, of_hue_normal, of_lightness)
        elif kind == HOLES:
            red, green, blue = in_grid(red, green, blue, numbers, at_step + STEP_KEY, pixel, width)
        elif kind == DROP:
            red, green, blue = dropped(red, green, blue, numbers, at_step + STEP_KEY, pixel)
        elif kind == SHADE:
            edges = at + load_i32(at + AT_TABLES) + np.int64(load_i32(at_step + STEP_TABLE)) * TABLE_BYTES
            left = light_left(numbers, edges, pixel, width)
            red, green, blue = shaded(red, green, blue, left, load_f32(numbers + 8))
        elif kind == FILL:
            column, row = np.float32(pixel % width), np.float32(pixel // width)
            is_within = load_f32(numbers) <= column and column < load_f32(numbers + 8)
            if is_within and load_f32(numbers + 4) <= row and row < load_f32(numbers + 12):
                red, green, blue = load_f32(numbers + 16), load_f32(numbers + 20), load_f32(numbers + 24)
                if load_f32(numbers + 28) > ZERO:
                    normal_r, normal_g, normal_b = normals(at_step + STEP_KEY, pixel)
                    red = red + load_f32(numbers + 28) * normal_r
                    green = green + load_f32(numbers + 32) * normal_g
                    blue = blue + load_f32(numbers + 36) * normal_b
        else:
            x = centred(np.int32(pixel % width), np.int32(width))
            y = centred(np.int32(pixel // width), np.int32(height))
            r2 = (x * x + y * y) * load_f32(at + INVERSE_CORNER_R2)
            left = vignette_gain(r2, load_f32(numbers), load_f32(numbers + 4), load_f32(numbers + 8))
            red, green, blue = red * left, green * left, blue * left
    return red, green, blue


@function("float32")
def radius(word):
    """The distance from zero of a pair of normal numbers."""
    bits = bits_of(np.float32(above_zero(word)))
    mantissa = float32_of(np.int32((bits & MANTISSA) | BITS_OF_ONE))
    squared = radius_squared(mantissa, np.float32(np.int32(bits >> EXPONENT_SHIFT) - EXPONENT_BIAS))
    return np.float32(math.sqrt(np.float32(squared)))


@function("float32", "float32", "float32")
def normals(at_key, pixel):
    """Three normal numbers for a pixel."""
    zero, key0, key1 = np.uint64(0), np.uint64(load_u32(at_key)), np.uint64(load_u32(at_key + 4))
    word0, word1, word2, word3 = philox_block(np.uint64(pixel), zero, zero, zero, key0, key1)
    first, second = radius(np.uint32(word0)), radius(np.uint32(word2))
    sine, cosine = sine_and_cosine(turn_of(np.uint32(word1)))
    _, other = sine_and_cosine(turn_of(np.uint32(word3)))
    return first * np.float32(cosine), first * np.float32(sine), second * np.float32(other)


@function("float32")
def row_of(numbers, red, green, blue):
    """A channel, by one row of a matrix."""
    of_red, of_green, of_blue = load_f32(numbers), load_f32(numbers + 4), load_f32(numbers + 8)
    return np.float32(combined(red, green, blue, of_red, of_green, of_blue, load_f32(numbers + 12)))


@function("float32")
def whole_level(address):
    """The nearest level of what lies there."""
    return np.float32(nearest_level(load_changing_f32(address)))


@function("float32")
def copied_level(address):
    """A level that was copied aside."""
    return np.float32(load_changing_u8(address))


@function()
def filter_image(kind, factor, at, at_step, start, copy, height, width, pixel_step, channel_step, thread, num_threads):
    """Take the step at `at_step`, whose first number is `factor`, of the row's header at `at`.

    `start` is the address of the image's levels, `copy` that of its scratch memory; all threads of the block call it.
    """
    # what follows from the size is worked out in each step: ready for all, it takes more registers than there are
    height, width = np.int64(kept(np.int32(height))), np.int64(kept(np.int32(width)))
    taps = at + load_i32(at + AT_TABLES) + np.int64(load_i32(at_step + STEP_TABLE)) * TABLE_BYTES
    size = np.int64(factor)
    if kind == CLAHE:
        num_down = np.int64(load_f32(at_step + STEP_NUMBERS + 4))
        num_across = np.int64(load_f32(at_step + STEP_NUMBERS + 8))
        counts, num_tiles = copy + (height * width + 3) // 4 * 4, num_down * num_across
        area = tile_side(height, num_down, width, num_across) * tile_side(width, num_across, height, num_down)
        take_lightness(start, copy, counts, num_tiles, height * width, pixel_step, channel_step, thread, num_threads)
        cuda.syncthreads()
        count(copy, counts, num_down, num_across, height, width, thread, num_threads)
        cuda.syncthreads()
        make_tables(counts, factor, num_tiles, area, thread, num_threads)
        cuda.syncthreads()
        relight(start, copy, counts, num_down, num_across, height, width, pixel_step, channel_step, thread, num_threads)
    elif kind == SEPARABLE:
        sum_columns(start, copy, taps, size, height, width, pixel_step, channel_step, thread, num_threads)
        cuda.syncthreads()
        sum_rows(start, copy, taps, size, height, width, pixel_step, channel_step, thread, num_threads)
    elif kind == MEDIAN:
        copy_whole_levels(start, copy, height * width, pixel_step, channel_step, thread, num_threads)
        cuda.syncthreads()
        take_median(start, copy, size, height, width, pixel_step, channel_step, thread, num_threads)
    elif kind == JPEG:
        take_planes(start, copy, height, width, pixel_step, channel_step, thread, num_threads)
        cuda.syncthreads()
        halve_planes(copy, height, width, thread, num_threads)
        cuda.syncthreads()
        transform_rows(copy, height, width, thread, num_threads)
        cuda.syncthreads()
        round_columns(copy, size, height, width, thread, num_threads)
        cuda.syncthreads()
        restore_columns(copy, height, width, thread, num_threads)
        cuda.syncthreads()
        restore_rows(copy, height, width, thread, num_threads)
        cuda.syncthreads()
        widen_planes(copy, height, width, thread, num_threads)
        cuda.syncthreads()
        put_colours(start, copy, height, width, pixel_step, channel_step, thread, num_threads)
    else:
        copy_levels(start, copy, height * width, pixel_step, channel_step, thread, num_threads)
        cuda.syncthreads()
        num_across, apart = np.int64(load_f32(at_step + STEP_NUMBERS + 4)), load_f32(at_step + STEP_NUMBERS + 8)
        if kind == COARSEN:
            coarsen(start, copy, size, num_across, apart, height, width, pixel_step, channel_step, thread, num_threads)
        elif kind == SHUFFLE:
            shuffle(start, copy, taps, size, num_across, height, width, pixel_step, channel_step, thread, num_threads)
        else:
            weight = load_f32(at_step + STEP_NUMBERS + 4)
            convolve(start, copy, taps, size, weight, height, width, pixel_step, channel_step, thread, num_threads)


def filter_kernel(planar: bool) -> Any:
    """As `finish_kernel`, of the kernel that takes all steps up to the last filter, and leaves levels."""
    return _program_kernel(FLOAT32, planar, filters=True)


def finish_kernel(held_as: int, planar: bool) -> Any:
    """The kernel's Python function for one number type (`writing.HELD_AS`) and layout; its arguments are int64.

    It takes the steps behind the last filter, and writes finished images.
    """
    return _program_kernel(held_as, planar, filters=False)


def _program_kernel(held_as: int, planar: bool, *, filters: bool) -> Any:
    item_bytes = ITEM_BYTES[held_as]

    def finish(rows, row_bytes, first_byte, levels, batch, copies, copied_bytes, height, width):
        image, thread, num_threads = np.int64(cuda.blockIdx.x), np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
        counts = cuda.shared.array(NUM_COUNTS, np.int32)
        tables = cuda.shared.array(NUM_COUNTS, np.int32)
        at = rows + image * row_bytes + first_byte
        num_pixels = height * width
        pixel_step, channel_step = (1, num_pixels) if planar else (3, 1)
        start, copy = levels + image * 12 * num_pixels, copies + image * copied_bytes
        target = batch + image * 3 * num_pixels * item_bytes
        num_steps, step, has_tables = load_i32(at + NUM_STEPS), np.int32(0), False
        for nth in range(num_steps):
            if load_i32(at + AT_STEPS + np.int64(nth) * STEP_BYTES) >= FIRST_FILTER:
                step = np.int32(nth + 1)
        if filters:
            num_steps, step = step, np.int32(0)
        is_end = num_steps == 0 and (filters or levels == batch)  # then it is finished
        while not is_end:
            stop = step
            while stop < num_steps and load_i32(at + AT_STEPS + np.int64(stop) * STEP_BYTES) < FIRST_LOOK:
                stop = np.int32(stop + 1)
            is_end = stop == num_steps
            if (is_end and not filters) or stop > step or has_tables:
                for pixel in range(thread, num_pixels, num_threads):
                    nth = pixel * pixel_step
                    red = load_changing_f32(start + 4 * nth)
                    green = load_changing_f32(start + 4 * (nth + channel_step))
                    blue = load_changing_f32(start + 4 * (nth + 2 * channel_step))
                    if has_tables:
                        red = np.float32(tables[nearest_level(red)])
                        green = np.float32(tables[256 + nearest_level(green)])
                        blue = np.float32(tables[512 + nearest_level(blue)])
                    red, green, blue = changed(at, step, stop, red, green, blue, pixel, height, width)
                    if is_end and not filters:
                        red = normalise(red, load_f32(at + SCALE), load_f32(at + BIAS))
                        green = normalise(green, load_f32(at + SCALE + 4), load_f32(at + BIAS + 4))
                        blue = normalise(blue, load_f32(at + SCALE + 8), load_f32(at + BIAS + 8))
                        write(target + nth * item_bytes, red, held_as)
                        write(target + (nth + channel_step) * item_bytes, green, held_as)
                        write(target + (nth + 2 * channel_step) * item_bytes, blue, held_as)
                    else:
                        store_f32(start + 4 * nth, red)
                        store_f32(start + 4 * (nth + channel_step), green)
                        store_f32(start + 4 * (nth + 2 * channel_step), blue)
            if not is_end:
                at_step = at + AT_STEPS + np.int64(stop) * STEP_BYTES
                kind, factor = load_i32(at_step), load_f32(at_step + STEP_NUMBERS)
                has_tables = kind < SHARPNESS
                cuda.syncthreads()
                if has_tables:
                    for nth in range(thread, NUM_COUNTS, num_threads):
                        counts[nth] = 0
                    cuda.syncthreads()
                    for pixel in range(thread, num_pixels, num_threads):
                        address = start + 4 * pixel * pixel_step
                        red, green = whole_level(address), whole_level(address + 4 * channel_step)
                        blue = whole_level(address + 8 * channel_step)
                        if kind == AUTO_CONTRAST or kind == EQUALIZE:
                            cuda.atomic.add(counts, np.int32(red), 1)
                            cuda.atomic.add(counts, 256 + np.int32(green), 1)
                            cuda.atomic.add(counts, 512 + np.int32(blue), 1)
                        else:
                            cuda.atomic.add(counts, np.int32(gray(red, green, blue)), 1)
                    cuda.syncthreads()
                    for channel in range(thread, 3, num_threads):
                        first = 256 * channel
                        low, high, seen, total = np.int64(0), np.int64(255), np.int64(0), np.int64(0)
                        if kind == AUTO_CONTRAST or kind == EQUALIZE:
                            while low < 255 and counts[first + low] == 0:
                                low += 1
                            while high > 0 and counts[first + high] == 0:
                                high -= 1
                        else:
                            for value in range(256):
                                total += np.int64(counts[value]) * value
                        spacing = (num_pixels - counts[first + high]) // 255
                        seen = spacing // 2
                        mean = np.float32(np.float64(total) / np.float64(num_pixels))
                        for value in range(256):
                            made = np.float32(value)
                            if kind == AUTO_CONTRAST:
                                if high > low:
                                    made = np.float32(value - low) * (WHITE / np.float32(high - low))
                            elif kind == EQUALIZE:
                                if spacing > 0:
                                    made = np.float32(seen // spacing)
                                    seen += counts[first + value]
                            else:
                                made = mean + factor * (np.float32(value) - mean)
                            tables[first + value] = np.int32(kept_within(made))
                elif filters and kind >= FIRST_FILTER:
                    shape = height, width, pixel_step, channel_step, thread, num_threads
                    filter_image(kind, factor, at, at_step, start, copy, *shape)
                else:
                    for pixel in range(thread, num_pixels, num_threads):
                        for channel in range(3):
                            level = whole_level(start + 4 * (pixel * pixel_step + channel * channel_step))
                            store_u8(copy + 3 * pixel + channel, np.uint32(level))
                    cuda.syncthreads()
                    above, below = copy - 3 * width, copy + 3 * width
                    for pixel in range(thread, num_pixels, num_threads):
                        x, y = pixel % width, pixel // width
                        is_inner = 0 < x and x < width - 1 and 0 < y and y < height - 1
                        for channel in range(3):
                            nth = 3 * pixel + channel
                            level = copied_level(copy + nth)
                            if is_inner:
                                over = copied_level(above + nth - 3) + copied_level(above + nth)
                                over = over + copied_level(above + nth + 3)
                                beside = copied_level(copy + nth - 3) + copied_level(copy + nth + 3)
                                under = copied_level(below + nth - 3) + copied_level(below + nth)
                                under = under + copied_level(below + nth + 3)
                                blurred = smoothed(over, beside, under, level)
                                level = np.float32(np.int32(away_from(blurred, level, factor)))
                            store_f32(start + 4 * (pixel * pixel_step + channel * channel_step), level)
                cuda.syncthreads()
                step = np.int32(stop + 1)

    return finish
