"""Outputs in uint8 where each channel is changed by itself, from whole pixels or from the nearest levels of what was
sampled: one look-up in a table a level."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.copied import (
    are_places_whole,
    find_line,
    is_copied,
    keeps_colours,
    pack_line,
    place,
    strides,
)
from augpipe.gpu_ops.image.level_tables import BLOCK, NUM_LEVELS, load_level, look_up_rgb_row, look_up_row
from augpipe.gpu_ops.image.program_rows import (
    AT_STEPS,
    MATRIX,
    NONE,
    NUM_STEPS,
    STEP_BYTES,
    STEP_NUMBERS,
    TABLE,
)
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.gpu_ops.image.scratch_rows import ONE, ZERO, load_index_y, load_pixel, load_weight_y
from augpipe.gpu_ops.image.tone import to_uint8
from augpipe.gpu_ops.image.windows import span
from augpipe.gpu_ops.jit import kernel, subroutine
from augpipe.gpu_ops.memory import has_avx512, load, load_bytes, prefer_wide_vectors, store

load_number, load_whole = load_bytes("values", types.float32), load_bytes("values", types.int32)
store_word = store("fetched", types.uint32)
load_backwards = load("pixels", types.uint32)

OF_PIXELS, OF_LEVELS = 1, 2
"""Of images that `find_level_maps` finds: of whole pixels, whose levels are looked up on the way; and those that are
rendered in uint8, and looked up there: their programs begin with a table, which takes the nearest levels."""


@kernel()
def find_level_maps(rows, programs, first_byte, height, width, found):
    """Find images that are better looked up level by level, as each channel is changed by itself.

    Args:
        rows: (B,) `rows.KERNEL_ROW`.
        programs: (B, row bytes) uint8: `program_rows.row_dtype`, or the same rows where none has a program.
        first_byte: of a program's header.
        height, width: of an output image, in pixels.
        found: (B,) uint8, written: `OF_PIXELS`, `OF_LEVELS`, or 0 for what is rendered otherwise.
    """
    has_programs = programs.shape[1] > first_byte
    for image in range(len(rows)):
        row, keeps_levels, is_whole = rows[image], True, True
        for channel in range(3):
            fill = row.fill[channel]
            keeps_levels = keeps_levels and row.scale[channel] == ONE and row.bias[channel] == ZERO
            is_whole = is_whole and (row.is_constant == 0 or fill == np.float32(to_uint8(fill)))
        num_steps, at = np.int64(0), np.uintp(programs.ctypes.data + image * programs.shape[1] + first_byte)
        if has_programs:
            num_steps = np.int64(load_whole(at, NUM_STEPS))
        keeps_levels = keeps_levels and _keeps_channels(at, num_steps)
        if num_steps == 0 and not has_avx512():
            is_whole = False
        found[image] = 0
        if keeps_levels and is_whole and are_places_whole(row, height, width) and is_copied(row, height, width):
            found[image] = OF_PIXELS
        elif keeps_levels and has_programs and keeps_colours(row) and _begins_with_table(at, num_steps):
            found[image] = OF_LEVELS


@subroutine
def _begins_with_table(at, num_steps):
    """Whether the first step of a program, if it has any, is a table."""
    for step in range(num_steps):
        kind = load_whole(at, AT_STEPS + step * STEP_BYTES)
        if kind != NONE:
            return kind == TABLE
    return True


@subroutine
def _keeps_channels(at, num_steps):
    """Whether a program makes each channel of a pixel of that channel only."""
    for step in range(num_steps):
        at_step = AT_STEPS + step * STEP_BYTES
        kind = load_whole(at, at_step)
        if kind == MATRIX:
            for entry in range(12):
                row, column = entry // 4, entry % 4
                if column < 3 and column != row and load_number(at, at_step + STEP_NUMBERS + 4 * entry) != ZERO:
                    return False
        elif kind != TABLE and kind != NONE:
            return False
    return True


@kernel()
def copy_levels(pixel_table, rows, images, tables, batch, height, width, planar, rgb_rows):
    """Write images of which each level of each channel is looked up.

    Args:
        pixel_table, rows, height, width, planar: as `fused.run_jobs` takes them.
        images: (n,) int64 numbers of the images, as `find_level_maps` has found them.
        tables: (n, 3, 256) uint8: what becomes of each level.
        batch: (B * height * width * 3,) uint8, written where these images lie.
        rgb_rows: (B,) int64, as there, 0 for each where images are RGBX.
    """
    most_columns = np.int64(0)
    for image in images:
        most_columns = max(most_columns, np.int64(rows[image].high_x - rows[image].low_x + 1))
    scratch = np.empty(3 * width + 2 * height + most_columns, np.float32)
    for nth in range(len(images)):
        image = images[nth]
        at_table = np.uintp(tables.ctypes.data + nth * 3 * NUM_LEVELS)
        out = np.uintp(batch.ctypes.data + image * height * width * 3)
        s = np.uintp(scratch.ctypes.data)  # in the loop, as numba frees an array after its last use
        _copy_image(pixel_table[image], rows[image], at_table, out, height, width, planar, s, rgb_rows[image])


@subroutine
def _copy_image(pixels, row, at_table, out, height, width, planar, s, rgb_bytes):
    """Write one image at the address `out`; `s` is scratch. See `copied.copy_rows`."""
    prefer_wide_vectors()
    address, plane = np.uintp(pixels[0]), np.int64(height) * width
    stride, shift = strides(pixels, row, rgb_bytes)
    at_index, at_kept, at_words, at_rows = s, s + 4 * width, s + 8 * width, s + 12 * width
    at_rows_kept, at_packed, is_turned = at_rows + 4 * height, at_rows + 8 * height, row.after_xx == ZERO
    step, row_step = (row.after_yx, row.after_xy) if is_turned else (row.after_xx, row.after_yy)
    for is_row in range(2):  # one call, which is compiled once
        is_down, apart, num = is_turned != (is_row == 1), row_step if is_row else step, height if is_row else width
        at_places, at_these_kept = (at_rows, at_rows_kept) if is_row else (at_index, at_kept)
        place(stride, row, is_down, apart, np.int64(0), num, num, at_places, at_these_kept)
    first_x, num = span(at_index, width)
    is_run, direction = not is_turned, np.int32(step)
    for i in range(width):
        follows = load_index_y(at_index, i) == np.int32(load_index_y(at_index, 0) + direction * np.int32(i))
        is_run &= follows & (load_weight_y(at_kept, i) == ONE)
    is_changed = _is_changed(at_table)
    fill = np.uint32(to_uint8(row.fill[0])) | np.uint32(to_uint8(row.fill[1])) << np.uint32(8)
    fill = np.uint32(fill | np.uint32(to_uint8(row.fill[2])) << np.uint32(16))
    for y in range(height):
        of_row, kept_row = np.int32(load_index_y(at_rows, y) + shift), load_weight_y(at_rows_kept, y)
        first = y * width * (1 if planar else 3)
        if rgb_bytes and is_run and kept_row == ONE and width >= BLOCK and has_avx512():
            line = load_index_y(at_rows, y)
            at_line = find_line(pixels, row, rgb_bytes, line, row_step, first_x, num, direction < 0)
            at_out = np.uintp(out + first)
            look_up_rgb_row(at_line, at_table, is_changed, direction < 0, at_out, plane, width, planar)
            continue
        if rgb_bytes:
            pack_line(
                pixels, row, rgb_bytes, load_index_y(at_rows, y), row_step, first_x, num, direction < 0, at_packed
            )
            address, of_row = np.uintp(at_packed), np.int32(-first_x)
        at_first = np.uintp(address + 4 * (np.int64(of_row) + load_index_y(at_index, 0)))
        at_pixels = at_words
        if is_run and kept_row == ONE and direction > 0:
            at_pixels = at_first
        elif is_run and kept_row == ONE:
            for i in range(width):
                store_word(at_words, i, load_backwards(at_first, -i))
        else:
            for i in range(width):
                pixel = load_pixel(address, np.int32(of_row + load_index_y(at_index, i)))
                store_word(at_words, i, pixel if load_weight_y(at_kept, i) * kept_row == ONE else fill)
        look_up_row(at_pixels, at_table, NUM_LEVELS, np.uintp(out + first), plane, width, planar)


@subroutine
def _is_changed(at_table):
    """Whether tables make other levels of any."""
    is_changed = False
    for channel in range(3):
        for level in range(NUM_LEVELS):
            is_changed |= load_level(at_table, np.int32(channel * NUM_LEVELS + level)) != level
    return is_changed


def _finding() -> tuple[Any, ...]:
    return np.zeros(1, KERNEL_ROW), np.zeros((1, 1), np.uint8), 0, 1, 1, np.zeros(1, np.uint8)


def _copying() -> tuple[Any, ...]:
    tables: npt.NDArray[np.uint8] = np.zeros((1, 3, NUM_LEVELS), np.uint8)
    return (np.zeros((1, 4), np.int64), np.zeros(1, KERNEL_ROW), np.zeros(1, np.int64), tables) + (
        *(np.zeros(1, np.uint8), 1, 1, True, np.zeros(1, np.int64)),
    )


declare(__name__, find_level_maps, uint8=_finding)
declare(__name__, copy_levels, uint8=_copying)
