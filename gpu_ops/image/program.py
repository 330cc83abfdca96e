"""The CPU loop over a rendered image: the steps of its colours, and how levels become a batch's numbers.

`gpu_ops.image.fused` has written levels in 0..255; they are changed row by row of the output, in the order of the row's
program. A step that looks at the whole image waits until all rows have come as far. Filters and patterns, and what
compresses, have kernels of their own: each kernel takes the steps of its kind as far as they follow each other, and
only those that a batch needs are compiled.

A table, and a step that looks at the whole image, takes the nearest of 256 levels. Where a number lies within 0.01
level of half a level, CUDA may take the neighbouring one, as it rounds float32 in a different order: docs/gpu.md says
what is promised behind such a step. Everything up to it is within a level of CUDA's.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.level_rows import load_row, store_levels
from augpipe.gpu_ops.image.level_tables import NUM_LEVELS, look_up_row
from augpipe.gpu_ops.image.noise_rows import draw_normals
from augpipe.gpu_ops.image.program_rows import (
    AT_STEPS,
    AT_TABLES,
    BIAS,
    FILL,
    FINISHED,
    FIRST_FILTER,
    FIRST_LOOK,
    HSV,
    INVERSE_CORNER_R2,
    JPEG,
    MATRIX,
    NOISE,
    NONE,
    NUM_STEPS,
    SCALE,
    SHARPNESS,
    STEP_BYTES,
    STEP_KEY,
    STEP_NUMBERS,
    STEP_TABLE,
    TABLE,
    TABLE_BYTES,
    VIGNETTE,
    as_bytes,
)
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.gpu_ops.image.scratch_rows import (
    ONE,
    ZERO,
    centred,
    finish,
    load_blue,
    load_green,
    load_red,
    store_batch,
    store_blue,
    store_green,
    store_red,
)
from augpipe.gpu_ops.image.tone import (
    BLUE_AT,
    GREEN_AT,
    RED_AT,
    combined,
    hue_of,
    kept_within,
    nearest_level,
    noisy,
    of_hue,
    saturation_of,
    vignette_gain,
)
from augpipe.gpu_ops.image.whole_image import look_up_tables, sharpen
from augpipe.gpu_ops.jit import kernel, subroutine
from augpipe.gpu_ops.memory import load, load_bytes, prefer_wide_vectors, store

load_number, load_whole = load_bytes("values", types.float32), load_bytes("values", types.int32)
load_normal = load("scaled", types.float32)
load_levels = load("pixels", types.float32)
store_pixel, load_level = store("fetched", types.uint32), load("batch", types.uint8)


def take_programs(
    rows: npt.NDArray[np.void],
    levels: npt.NDArray[Any],
    batch: npt.NDArray[Any],
    height: int,
    width: int,
    planar: bool,
) -> None:
    """Take images that lie one behind the other through the steps of their rows, and finish them.

    Args:
        rows: (B,) of a `program_rows.row_dtype`.
        levels: (B * height * width * 3,) float32, overwritten.
        batch: (B * height * width * 3,) float32 or uint8, written; it may be `levels` itself.
        height, width: of an image, in pixels.
        planar: True for channels, rows, columns, False for rows, columns, channels.
    """
    places, shape = np.zeros(len(rows), np.int64), (height, width, planar)
    of_rows = as_bytes(rows), KERNEL_ROW.itemsize, places
    while finish_images(*of_rows, levels, batch, *shape):
        left = np.flatnonzero(places != FINISHED)
        kinds = rows["steps"]["kind"][left, places[left]]
        if (kinds < NONE).any():
            from augpipe.gpu_ops.image.pattern_program import take_patterns

            take_patterns(*of_rows, levels, *shape)
        if (kinds >= FIRST_FILTER).any():
            from augpipe.gpu_ops.image.filter_program import compress_images, filter_images

            if ((kinds >= FIRST_FILTER) & (kinds != JPEG)).any():
                filter_images(*of_rows, levels, *shape)
            if (kinds == JPEG).any():
                compress_images(*of_rows, levels, *shape)


@kernel()
def finish_images(rows, first_byte, places, levels, batch, height, width, planar):
    """Take images through the steps up to one that other kernels take, and finish those that have none.

    Args:
        rows: (B, row bytes) uint8: `program_rows.row_dtype`.
        first_byte: of a row's header.
        places: (B,) int64, the step that comes next for each image, or `FINISHED`; changed.
        levels, batch, height, width, planar: see `take_programs`.

    Returns:
        How many images are not finished.
    """
    scratch = np.empty(12 * width, np.float32)  # three channels, 4 words, 3 normal numbers, a pixel and its levels
    tables = np.empty((3, 256), np.uint8)
    is_in_place = levels.ctypes.data == batch.ctypes.data
    num_left = 0
    for image in range(len(rows)):
        at, start = np.uintp(rows.ctypes.data + image * rows.shape[1] + first_byte), image * height * width * 3
        step, num_steps = places[image], np.int64(load_whole(at, NUM_STEPS))
        if step == FINISHED:
            continue
        stop = step
        while stop < num_steps and NONE <= load_whole(at, AT_STEPS + stop * STEP_BYTES) < FIRST_FILTER:
            stop += 1
        finishes = stop == num_steps
        places[image] = FINISHED if finishes else stop
        num_left += 0 if finishes else 1
        if finishes and step == stop and _keeps_levels(at):
            if not is_in_place:
                _store_levels(levels, batch, start, height * width * 3)
        elif (finishes and not (is_in_place and num_steps == 0)) or stop > step:
            take_steps(at, step, stop, finishes, levels, batch, start, height, width, planar, scratch, tables)
    return num_left


def _finishing(dtype: Any) -> Any:
    places = np.zeros(1, np.int64)
    return np.zeros((1, 1), np.uint8), 0, places, np.zeros(1, np.float32), np.zeros(1, dtype), 1, 1, True


declare(__name__, finish_images, float32_steps=lambda: _finishing(np.float32), uint8_steps=lambda: _finishing(np.uint8))


@subroutine
def _keeps_levels(at):
    """Whether the header's scale and bias change nothing."""
    keeps = True
    for channel in range(3):
        keeps &= load_number(at, SCALE + 4 * channel) == ONE and load_number(at, BIAS + 4 * channel) == ZERO
    return keeps


@subroutine
def _store_levels(levels, batch, start, num):
    """Write so many levels as the batch holds them."""
    prefer_wide_vectors()
    source, out = levels.ctypes.data, batch.ctypes.data
    for i in range(num):
        store_batch(out, start + i, finish(batch, load_levels(source, start + i), ONE, ZERO))


@subroutine
def take_steps(at, step, num_steps, finishes, levels, batch, start, height, width, planar, scratch, tables):
    """Take the steps `step`..`num_steps` - 1, all of this file, and write the batch where that `finishes` the image.

    It passes over the image's rows once, and once more for each step that looks at all of it.
    """
    has_tables = False
    at_red = np.uintp(scratch.ctypes.data)
    at_green, at_blue = at_red + 4 * width, at_red + 8 * width
    while True:
        stop = step
        while stop < num_steps and load_whole(at, AT_STEPS + stop * STEP_BYTES) < FIRST_LOOK:
            stop += 1
        is_end = stop == num_steps
        if is_end or stop > step or has_tables:
            for y in range(height):
                first, plane = start + y * width * (1 if planar else 3), height * width
                load_row(levels, first, plane, width, planar, at_red, at_green, at_blue)
                for nth in range(step - np.int64(has_tables), stop):
                    _change_row(at, nth, y, height, width, tables, at_red, at_green, at_blue)
                if is_end and finishes:
                    _store_row(at, batch, first, plane, width, planar, at_red, at_green, at_blue)
                else:
                    store_levels(levels, first, plane, width, planar, at_red, at_green, at_blue)
        if is_end:
            return
        at_step = AT_STEPS + stop * STEP_BYTES
        kind, factor = load_whole(at, at_step), load_number(at, at_step + STEP_NUMBERS)
        has_tables = kind < SHARPNESS
        if has_tables:
            look_up_tables(kind, factor, levels, start, height * width, planar, tables)
        else:
            sharpen(factor, levels, start, height, width, planar)
        step = stop + 1


@subroutine
def _store_row(at, batch, first, plane, width, planar, at_red, at_green, at_blue):
    """Normalise a row by the header at `at`, and write it as the batch holds numbers."""
    prefer_wide_vectors()
    out = batch.ctypes.data
    scale_r, scale_g, scale_b = load_number(at, SCALE), load_number(at, SCALE + 4), load_number(at, SCALE + 8)
    bias_r, bias_g, bias_b = load_number(at, BIAS), load_number(at, BIAS + 4), load_number(at, BIAS + 8)
    if planar:
        for i in range(width):
            store_batch(out, first + i, finish(batch, load_red(at_red, i), scale_r, bias_r))
            store_batch(out, first + plane + i, finish(batch, load_green(at_green, i), scale_g, bias_g))
            store_batch(out, first + 2 * plane + i, finish(batch, load_blue(at_blue, i), scale_b, bias_b))
    else:
        for i in range(width):
            store_batch(out, first + 3 * i, finish(batch, load_red(at_red, i), scale_r, bias_r))
            store_batch(out, first + 3 * i + 1, finish(batch, load_green(at_green, i), scale_g, bias_g))
            store_batch(out, first + 3 * i + 2, finish(batch, load_blue(at_blue, i), scale_b, bias_b))


@subroutine
def _change_row(at, step, y, height, width, tables, at_red, at_green, at_blue):
    """One step of the program on one row; what looks at the whole image has left `tables`."""
    at_step = AT_STEPS + step * STEP_BYTES
    kind, at_numbers = load_whole(at, at_step), at_step + STEP_NUMBERS
    at_words, at_normals = at_red + 12 * width, at_red + 28 * width
    if kind == MATRIX:
        _combine(at, at_numbers, width, at_red, at_green, at_blue)
    elif kind == TABLE or kind >= FIRST_LOOK:
        table, table_step = np.uintp(tables.ctypes.data), np.int64(NUM_LEVELS)
        if kind == TABLE:
            table = np.uintp(at + load_whole(at, AT_TABLES) + load_whole(at, at_step + STEP_TABLE) * TABLE_BYTES)
            table_step = np.int64(0)
        _look_up(table, table_step, width, at_red, at_green, at_blue)
    elif kind == NOISE:
        draw_normals(at, at_step + STEP_KEY, y * width, width, at_words, at_normals)
        _add_noise(at, at_numbers, width, at_red, at_green, at_blue, at_normals)
    elif kind == FILL:
        if load_number(at, at_numbers + 4) <= y < load_number(at, at_numbers + 12):
            if load_number(at, at_numbers + 28) > 0.0:
                draw_normals(at, at_step + STEP_KEY, y * width, width, at_words, at_normals)
            _fill(at, at_numbers, width, at_red, at_green, at_blue, at_normals)
    elif kind == HSV:
        _shift_hsv(at, at_numbers, width, at_red, at_green, at_blue)
    elif kind == VIGNETTE:
        _darken(at, at_numbers, centred(y, height), width, at_red, at_green, at_blue)


@subroutine
def _combine(at, at_numbers, width, at_red, at_green, at_blue):
    prefer_wide_vectors()
    m00, m01 = load_number(at, at_numbers), load_number(at, at_numbers + 4)
    m02, m03 = load_number(at, at_numbers + 8), load_number(at, at_numbers + 12)
    m10, m11 = load_number(at, at_numbers + 16), load_number(at, at_numbers + 20)
    m12, m13 = load_number(at, at_numbers + 24), load_number(at, at_numbers + 28)
    m20, m21 = load_number(at, at_numbers + 32), load_number(at, at_numbers + 36)
    m22, m23 = load_number(at, at_numbers + 40), load_number(at, at_numbers + 44)
    for i in range(width):
        red, green, blue = load_red(at_red, i), load_green(at_green, i), load_blue(at_blue, i)
        store_red(at_red, i, combined(red, green, blue, m00, m01, m02, m03))
        store_green(at_green, i, combined(red, green, blue, m10, m11, m12, m13))
        store_blue(at_blue, i, combined(red, green, blue, m20, m21, m22, m23))


@subroutine
def _shift_hsv(at, at_numbers, width, at_red, at_green, at_blue):
    prefer_wide_vectors()
    turned, saturated = load_number(at, at_numbers), load_number(at, at_numbers + 4)
    lightened, least = load_number(at, at_numbers + 8), load_number(at, at_numbers + 12)
    for i in range(width):
        red, green, blue = load_red(at_red, i), load_green(at_green, i), load_blue(at_blue, i)
        value = max(red, max(green, blue))
        chroma = value - min(red, min(green, blue))
        hue = hue_of(red, green, blue, value, chroma) + turned
        saturation, value = saturation_of(value, chroma, saturated, least), kept_within(value + lightened)
        chroma = saturation * value
        store_red(at_red, i, of_hue(RED_AT, hue, value, chroma))
        store_green(at_green, i, of_hue(GREEN_AT, hue, value, chroma))
        store_blue(at_blue, i, of_hue(BLUE_AT, hue, value, chroma))


@subroutine
def _look_up(at_table, table_step, width, at_red, at_green, at_blue):
    """Replace levels by those of tables, see `look_up_row`."""
    prefer_wide_vectors()
    at_pixels, at_levels = at_red + 40 * width, at_red + 44 * width
    for i in range(width):
        red, green = nearest_level(load_red(at_red, i)), nearest_level(load_green(at_green, i))
        blue = nearest_level(load_blue(at_blue, i))
        store_pixel(at_pixels, i, np.uint32(red | green << np.int32(8) | blue << np.int32(16)))
    look_up_row(at_pixels, at_table, table_step, at_levels, width, width, True)
    for i in range(width):
        store_red(at_red, i, np.float32(load_level(at_levels, i)))
        store_green(at_green, i, np.float32(load_level(at_levels, width + i)))
        store_blue(at_blue, i, np.float32(load_level(at_levels, 2 * width + i)))


@subroutine
def _darken(at, at_numbers, y, width, at_red, at_green, at_blue):
    prefer_wide_vectors()
    inverse_corner_r2, inner_r2 = load_number(at, INVERSE_CORNER_R2), load_number(at, at_numbers)
    inverse_span, strength = load_number(at, at_numbers + 4), load_number(at, at_numbers + 8)
    for i in range(width):
        x = centred(np.int32(i), width)
        left = vignette_gain((x * x + y * y) * inverse_corner_r2, inner_r2, inverse_span, strength)
        store_red(at_red, i, load_red(at_red, i) * left)
        store_green(at_green, i, load_green(at_green, i) * left)
        store_blue(at_blue, i, load_blue(at_blue, i) * left)


@subroutine
def _add_noise(at, at_numbers, width, at_red, at_green, at_blue, at_normals):
    prefer_wide_vectors()
    std, speckle = load_number(at, at_numbers), load_number(at, at_numbers + 4)
    apart = np.int64(0) if load_number(at, at_numbers + 8) > 0.0 else np.int64(width)
    for i in range(width):
        red, green, blue = load_red(at_red, i), load_green(at_green, i), load_blue(at_blue, i)
        store_red(at_red, i, noisy(red, load_normal(at_normals, i), std, speckle))
        store_green(at_green, i, noisy(green, load_normal(at_normals, apart + i), std, speckle))
        store_blue(at_blue, i, noisy(blue, load_normal(at_normals, 2 * apart + i), std, speckle))


@subroutine
def _fill(at, at_numbers, width, at_red, at_green, at_blue, at_normals):
    """Write the part of a row that lies in a rectangle."""
    left, right = np.int64(load_number(at, at_numbers)), np.int64(load_number(at, at_numbers + 8))
    level_r, level_g = load_number(at, at_numbers + 16), load_number(at, at_numbers + 20)
    level_b = load_number(at, at_numbers + 24)
    spread_r, spread_g = load_number(at, at_numbers + 28), load_number(at, at_numbers + 32)
    spread_b = load_number(at, at_numbers + 36)
    if spread_r > 0.0:
        for i in range(left, right):
            store_red(at_red, i, level_r + spread_r * load_normal(at_normals, i))
            store_green(at_green, i, level_g + spread_g * load_normal(at_normals, width + i))
            store_blue(at_blue, i, level_b + spread_b * load_normal(at_normals, 2 * width + i))
    else:
        for i in range(left, right):
            store_red(at_red, i, level_r)
            store_green(at_green, i, level_g)
            store_blue(at_blue, i, level_b)
