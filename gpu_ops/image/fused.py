"""The CPU loop: every op of a recipe in one pass from RGBX images to finished pixels of a batch.

A job is a block of rows of one output image. Each row runs through steps, each of them vectorised loops over x: where
the row's pixels come from; the weights and indices of the taps along x; for each tap along y its weights and indices,
the pixels that they draw on, and the sums; then tone, and the write. Between the steps a row's numbers lie in scratch
of a few kilobytes. Where the output is not slanted against the image, what rows have in common is worked out once.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.aligned import forget_sums_of_weights, is_aligned, sample_aligned, sample_shrunk
from augpipe.gpu_ops.image.copied import copy_rows, is_copied
from augpipe.gpu_ops.image.field import BEYOND, NODE_ROWS, TAPS, bend_row
from augpipe.gpu_ops.image.finished_rows import finish_row
from augpipe.gpu_ops.image.lens import distort, radial_gain
from augpipe.gpu_ops.image.rows import KERNEL_ROW, MEETING, SHARP, TRIANGLE
from augpipe.gpu_ops.image.sampling import (
    border_period,
    border_turn,
    clamp,
    continued,
    divisor,
    filter_weight,
    first_tap,
    is_inside,
    linear,
    num_taps,
    sharp_weight,
    tap_weight,
    where_it_meets,
)
from augpipe.gpu_ops.image.scratch_rows import (
    BLUE,
    FIRST_X,
    FIRST_Y,
    GREEN,
    HALF,
    INDEX_Y,
    INSIDE_X,
    INSIDE_Y,
    INVERSE,
    ONE,
    PREFETCH_ROWS,
    PREFETCH_STEP,
    RED,
    SOURCE_X,
    SOURCE_Y,
    SUM_X,
    SUM_Y,
    WEIGHT_Y,
    WEIGHTS_X,
    ZERO,
    centred,
    load_blue,
    load_fetched,
    load_first_x,
    load_first_y,
    load_green,
    load_index_x,
    load_index_y,
    load_inside_x,
    load_inside_y,
    load_pixel,
    load_red,
    load_source_x,
    load_source_y,
    load_sum_x,
    load_sum_y,
    load_two_pixels,
    load_weight_x,
    load_weight_y,
    store_blue,
    store_fetched,
    store_first_x,
    store_first_y,
    store_green,
    store_index_x,
    store_index_y,
    store_inside_x,
    store_inside_y,
    store_inverse,
    store_red,
    store_source_x,
    store_source_y,
    store_sum_x,
    store_sum_y,
    store_two_fetched,
    store_weight_x,
    store_weight_y,
)
from augpipe.gpu_ops.image.tone import channel
from augpipe.gpu_ops.image.windows import find_windows, span
from augpipe.gpu_ops.jit import kernel, subroutine
from augpipe.gpu_ops.memory import prefer_wide_vectors, prefetch

ROWS_PER_JOB = 32
"""Rows of an output image in one job: at 224x224 a job takes about 25 microseconds."""

SHRINKS = np.float32(3.0)
"""Source pixels that an output pixel covers along x from which on columns are summed first, if it covers several along
y: next to each other, they are fetched without gathers."""

NO_ROW = np.int64(2**62)


@kernel()
def run_jobs(pixel_table, rows, batch, height, width, planar, first_job, last_job, bends, rgb_rows):
    """Run jobs `first_job`..`last_job` - 1 of a batch; any split over calls and threads gives the same bits.

    Args:
        pixel_table: (B, 4) int64, see `rows.PIXEL_TABLE_COLUMNS`; images are uint8 RGBX and stay the caller's.
        rows: (B,) `rows.KERNEL_ROW`.
        batch: (B * height * width * 3,) float32 or uint8, written; image i starts at i * height * width * 3. uint8
            holds levels: the rows' `scale` and `bias` are not looked at.
        height, width: of an output image, in pixels.
        planar: True for channels, rows, columns (NCHW), False for rows, columns, channels (NHWC).
        first_job, last_job: image i has jobs i * n .. i * n + n - 1, where n is `jobs_per_image(height)`.
        bends: `bends(rows)`.
        rgb_rows: None, for which numba leaves out what reads RGB; or (B,) int64: bytes from row to row of images
            whose pixels are of three bytes, which `find_rgb` has found, 0 of others. Their stride is not read.
    """
    blocks = (height + ROWS_PER_JOB - 1) // ROWS_PER_JOB
    num_scratch, num_packed, most_taps_y = np.int64(0), np.int64(0), np.int64(0)
    for job in range(first_job, last_job):
        row = rows[job // blocks]
        taps_y = num_taps(row.support_y)
        num_summed = 3 * taps_y * width
        if _shrinks(row):
            num_summed = 4 * np.int64(row.high_x - row.low_x + 1)
        num_scratch = max(num_scratch, (WEIGHTS_X + 3 * num_taps(row.support_x)) * width + num_summed)
        most_taps_y = max(most_taps_y, taps_y)
        if rgb_rows is not None:
            num_packed = max(num_packed, np.int64(row.high_x - row.low_x + 1))
    num_nodes = NODE_ROWS * (width + BEYOND)
    scratch = np.empty(num_scratch + num_nodes + num_packed, np.float32)
    nodes_held, lines_held = np.empty(TAPS, np.int64), np.empty((3, most_taps_y), np.int64)
    image_held, are_taps_inside, window, first_x, num_columns = NO_ROW, False, np.int64(0), np.int64(0), np.int64(0)
    for job in range(first_job, last_job):
        s, at_held = scratch.ctypes.data, lines_held.ctypes.data  # here, as numba frees an array after its last use
        at_nodes = s + 4 * num_scratch
        at_packed = at_nodes + 4 * num_nodes
        image, block = job // blocks, job % blocks
        row = rows[image]
        pixels = pixel_table[image, 0], pixel_table[image, 1], pixel_table[image, 2], pixel_table[image, 3]
        rgb_bytes = _item(rgb_rows, image)
        first, last = block * ROWS_PER_JOB, min((block + 1) * ROWS_PER_JOB, height)
        if bends is None and is_copied(row, height, width):
            copy_rows(pixels, row, batch, image, height, width, planar, first, last, s, at_packed, rgb_bytes)
            continue
        # rows of an axis-aligned output share what belongs to x, and all pixels of one of them what belongs to y
        is_axis_aligned = is_aligned(row)
        is_shrunk = is_axis_aligned and _shrinks(row)
        for n in range(TAPS):
            nodes_held[n] = NO_ROW
        if image != image_held:
            lines_held[0, :] = NO_ROW
            forget_sums_of_weights(s, width)
        for row_y in range(first, last):
            y = centred(row_y, height)
            shares_x = is_axis_aligned and image == image_held
            image_held = image
            num_located = np.int64(1) if shares_x else width
            _locate(row, s, width, y, num_located)
            if bends is not None and row.field:
                bend_row(row, s, at_nodes, width, centred(0, width), y, num_located, nodes_held)
            if row.is_constant == MEETING:
                _meet(row, s, width, num_located)
            if not shares_x:
                are_taps_inside = _weigh_x(row, s, width)
            if is_axis_aligned and not shares_x:
                taps = num_taps(row.support_x)
                at_index_x = s + 4 * width * (WEIGHTS_X + taps)
                window = find_windows(at_index_x, s + 4 * width * INDEX_Y, width, taps)
                first_x, num_columns = span(at_index_x, width * taps)
            if is_shrunk:
                sample_shrunk(pixels, row, s, width, first_x, num_columns, at_held, rgb_bytes)
            elif is_axis_aligned:
                columns, scratch_rows = (first_x, num_columns), (at_packed, at_held)
                sample_aligned(pixels, row, s, width, are_taps_inside, window, *columns, *scratch_rows, rgb_bytes)
            else:
                _sample(pixels, row, s, width, are_taps_inside)
            start = image * height * width * 3 + row_y * width * (1 if planar else 3)
            finish_row(row, s, width, y, batch, start, height * width, planar)


def _rendering(dtype: Any, bends: bool | None, rgb_rows: npt.NDArray[np.int64] | None = None) -> Any:
    return np.zeros((1, 4), np.int64), np.zeros(1, KERNEL_ROW), np.zeros(1, dtype), 1, 1, True, 0, 1, bends, rgb_rows


@kernel()
def find_rgb(rows, found):
    """Clear (B,) bool `found` where `run_jobs` does not take pixels of three bytes: only images read row by row."""
    for image in range(len(rows)):
        found[image] &= is_aligned(rows[image])


declare(__name__, find_rgb, any=lambda: (np.zeros(1, KERNEL_ROW), np.zeros(1, np.bool_)))
declare(
    __name__,
    run_jobs,
    float32=lambda: _rendering(np.float32, None),
    uint8=lambda: _rendering(np.uint8, None),
    float32_bends=lambda: _rendering(np.float32, True),
    uint8_bends=lambda: _rendering(np.uint8, True),
    float32_rgb=lambda: _rendering(np.float32, None, np.zeros(1, np.int64)),
    uint8_rgb=lambda: _rendering(np.uint8, None, np.zeros(1, np.int64)),
)


def _item(numbers, nth):
    """Of an array; None of None."""
    return None if numbers is None else numbers[nth]


@overload(_item)
def _compiled_item(numbers, nth):
    if isinstance(numbers, types.NoneType):
        return lambda numbers, nth: None
    return lambda numbers, nth: numbers[nth]


@subroutine
def _shrinks(row):
    """Whether an axis-aligned output is a task for `sample_shrunk`."""
    covered = row.support_x if row.filter == TRIANGLE else HALF * row.support_x
    return covered > SHRINKS and row.support_y > ONE


@subroutine
def _locate(row, s, width, y, num):
    """Where the first `num` pixels of a row come from."""
    prefer_wide_vectors()
    offset = width * 4
    at_source_x, at_source_y = s + SOURCE_X * offset, s + SOURCE_Y * offset
    after_xx, after_xy, offset_x = row.after_xx, row.after_xy, row.offset_x - HALF
    after_yx, after_yy, offset_y = row.after_yx, row.after_yy, row.offset_y - HALF
    if row.has_projection:
        before_xx, before_xy, before_yx, before_yy = row.before_xx, row.before_xy, row.before_yx, row.before_yy
        before_x0, before_y0 = row.before_x0, row.before_y0
        before_wx, before_wy, before_w0 = row.before_wx, row.before_wy, row.before_w0
        k1, k2, k3, p1, p2 = row.k1, row.k2, row.k3, row.p1, row.p2
        for i in range(num):
            x = centred(np.int32(i), width)
            inverse = ONE / divisor(x, y, before_wx, before_wy, before_w0)
            u = linear(x, y, before_xx, before_xy, before_x0) * inverse
            v = linear(x, y, before_yx, before_yy, before_y0) * inverse
            r2 = u * u + v * v
            gain = radial_gain(r2, k1, k2, k3)
            lens_u = distort(u, v, r2, gain, p2, p1)
            lens_v = distort(v, u, r2, gain, p1, p2)
            store_source_x(at_source_x, i, linear(lens_u, lens_v, after_xx, after_xy, offset_x))
            store_source_y(at_source_y, i, linear(lens_u, lens_v, after_yx, after_yy, offset_y))
    elif row.has_lens:
        before_xx, before_xy, before_yx, before_yy = row.before_xx, row.before_xy, row.before_yx, row.before_yy
        k1, k2, k3, p1, p2 = row.k1, row.k2, row.k3, row.p1, row.p2
        for i in range(num):
            x = centred(np.int32(i), width)
            u = linear(x, y, before_xx, before_xy, ZERO)
            v = linear(x, y, before_yx, before_yy, ZERO)
            r2 = u * u + v * v
            gain = radial_gain(r2, k1, k2, k3)
            lens_u = distort(u, v, r2, gain, p2, p1)
            lens_v = distort(v, u, r2, gain, p1, p2)
            store_source_x(at_source_x, i, linear(lens_u, lens_v, after_xx, after_xy, offset_x))
            store_source_y(at_source_y, i, linear(lens_u, lens_v, after_yx, after_yy, offset_y))
    else:
        for i in range(num):
            x = centred(np.int32(i), width)
            store_source_x(at_source_x, i, linear(x, y, after_xx, after_xy, offset_x))
            store_source_y(at_source_y, i, linear(x, y, after_yx, after_yy, offset_y))


@subroutine
def _meet(row, s, width, num):
    """Move where the first `num` pixels of a row come from into the image, where they lie next to its edge."""
    offset = width * 4
    at_source_x, at_source_y = s + SOURCE_X * offset, s + SOURCE_Y * offset
    low_x, high_x = np.float32(row.low_x), np.float32(row.high_x)
    low_y, high_y = np.float32(row.low_y), np.float32(row.high_y)
    for i in range(num):
        store_source_x(at_source_x, i, where_it_meets(load_source_x(at_source_x, i), low_x, high_x))
        store_source_y(at_source_y, i, where_it_meets(load_source_y(at_source_y, i), low_y, high_y))


@subroutine
def _weigh_x(row, s, width):
    """Weights and indices of a row's taps along x, and whether all of them lie in the image."""
    prefer_wide_vectors()
    offset = width * 4
    at_source_x, at_first_x, at_sum_x = s + SOURCE_X * offset, s + FIRST_X * offset, s + SUM_X * offset
    at_inside_x, at_weight_x = s + INSIDE_X * offset, s + WEIGHTS_X * offset
    num_taps_x = num_taps(row.support_x)
    at_index_x = at_weight_x + num_taps_x * offset
    low_x, high_x = np.float32(row.low_x), np.float32(row.high_x)
    support_x, last_tap_x = row.support_x, np.float32(num_taps_x - 1)
    num_outside = np.int32(0)
    for i in range(width):
        first_x = first_tap(load_source_x(at_source_x, i), support_x)
        num_outside += np.int32(1) - np.int32(is_inside(first_x, low_x, high_x - last_tap_x))
        store_first_x(at_first_x, i, first_x)
        store_sum_x(at_sum_x, i, ZERO)
        store_inside_x(at_inside_x, i, ZERO)
    period_x = border_period(row.reflects, high_x - low_x + ONE)
    turn_x = border_turn(row.reflects, high_x - low_x + ONE)
    inverse_support_x, inverse_period_x = ONE / support_x, ONE / period_x
    is_triangle = row.filter == TRIANGLE
    reflects, is_constant = row.reflects != 0 and num_outside > 0, row.is_constant != 0
    for tap in range(num_taps_x):
        nth = np.float32(tap)
        if not is_triangle:
            for i in range(width):
                index, source_x = load_first_x(at_first_x, i) + nth, load_source_x(at_source_x, i)
                weight = filter_weight(row.filter, index, source_x, inverse_support_x)
                store_weight_x(at_weight_x, tap * width + i, weight)
        for i in range(width):
            index = load_first_x(at_first_x, i) + nth
            weight = tap_weight(index, load_source_x(at_source_x, i), inverse_support_x)
            if not is_triangle:
                weight = load_weight_x(at_weight_x, tap * width + i)
            store_sum_x(at_sum_x, i, load_sum_x(at_sum_x, i) + weight)
            if reflects:
                index = continued(index, low_x, period_x, inverse_period_x, turn_x)
            store_weight_x(at_weight_x, tap * width + i, weight)
            store_index_x(at_index_x, tap * width + i, np.int32(clamp(index, low_x, high_x)))
        if is_constant:
            for i in range(width):
                inside = is_inside(load_first_x(at_first_x, i) + nth, low_x, high_x)
                weight = load_weight_x(at_weight_x, tap * width + i) * inside
                store_weight_x(at_weight_x, tap * width + i, weight)
                store_inside_x(at_inside_x, i, load_inside_x(at_inside_x, i) + weight)
    if row.is_constant >= SHARP:
        for i in range(width):
            inside = sharp_weight(load_inside_x(at_inside_x, i), load_source_x(at_source_x, i), low_x, high_x)
            store_inside_x(at_inside_x, i, inside)
    return num_outside == 0


@subroutine
def _sample(pixels, row, s, width, are_taps_inside):
    """For each tap along y its weights and pixel rows, the pixels at the taps along x, and the sums over them."""
    prefer_wide_vectors()
    offset = width * 4
    at_source_y, at_first_y, at_sum_y = s + SOURCE_Y * offset, s + FIRST_Y * offset, s + SUM_Y * offset
    at_inside_y, at_weight_y, at_index_y = s + INSIDE_Y * offset, s + WEIGHT_Y * offset, s + INDEX_Y * offset
    at_red, at_green, at_blue = s + RED * offset, s + GREEN * offset, s + BLUE * offset
    num_taps_x, num_taps_y = num_taps(row.support_x), num_taps(row.support_y)
    num_paired = num_taps_x // 2 * 2
    at_weight_x, at_index_x = s + WEIGHTS_X * offset, s + (WEIGHTS_X + num_taps_x) * offset
    at_fetched = s + (WEIGHTS_X + 2 * num_taps_x) * offset
    low_y, high_y = np.float32(row.low_y), np.float32(row.high_y)
    support_y, last_tap_y = row.support_y, np.float32(num_taps_y - 1)
    num_outside = np.int32(0)
    for i in range(width):
        first_y = first_tap(load_source_y(at_source_y, i), support_y)
        num_outside += np.int32(1) - np.int32(is_inside(first_y, low_y, high_y - last_tap_y))
        store_first_y(at_first_y, i, first_y)
        store_sum_y(at_sum_y, i, ZERO)
        store_inside_y(at_inside_y, i, ZERO)
    for i in range(width):
        store_red(at_red, i, ZERO)
        store_green(at_green, i, ZERO)
        store_blue(at_blue, i, ZERO)
    period_y = border_period(row.reflects, high_y - low_y + ONE)
    turn_y = border_turn(row.reflects, high_y - low_y + ONE)
    inverse_support_y, inverse_period_y = ONE / support_y, ONE / period_y
    is_triangle = row.filter == TRIANGLE
    address, stride = np.uintp(pixels[0]), np.int32(pixels[1])
    shift = np.int32((row.origin_y - pixels[3]) * pixels[1] + (row.origin_x - pixels[2]))
    reflects, is_constant = row.reflects != 0 and num_outside > 0, row.is_constant != 0

    # what rows further down will read: the CPU foresees neither a slanted walk nor where the next row starts
    ahead_x, ahead_y = PREFETCH_ROWS * row.after_xy, PREFETCH_ROWS * row.after_yy
    if row.has_lens:
        ahead_x, ahead_y = ahead_x * row.before_yy, ahead_y * row.before_yy
    ahead = np.int64(np.rint(ahead_y)) * pixels[1] + np.int64(np.rint(ahead_x))

    for tap_y in range(num_taps_y):
        nth = np.float32(tap_y)
        if not is_triangle:
            for i in range(width):
                index, source_y = load_first_y(at_first_y, i) + nth, load_source_y(at_source_y, i)
                store_weight_y(at_weight_y, i, filter_weight(row.filter, index, source_y, inverse_support_y))
        for i in range(width):
            index = load_first_y(at_first_y, i) + nth
            weight = tap_weight(index, load_source_y(at_source_y, i), inverse_support_y)
            if not is_triangle:
                weight = load_weight_y(at_weight_y, i)
            store_sum_y(at_sum_y, i, load_sum_y(at_sum_y, i) + weight)
            if reflects:
                index = continued(index, low_y, period_y, inverse_period_y, turn_y)
            pixel_row = np.int32(np.int32(np.int32(clamp(index, low_y, high_y)) * stride) + shift)
            store_weight_y(at_weight_y, i, weight)
            store_index_y(at_index_y, i, np.int32(pixel_row + load_index_x(at_index_x, i)))
        if is_constant:
            for i in range(width):
                weight = load_weight_y(at_weight_y, i) * is_inside(load_first_y(at_first_y, i) + nth, low_y, high_y)
                store_weight_y(at_weight_y, i, weight)
                store_inside_y(at_inside_y, i, load_inside_y(at_inside_y, i) + weight)

        # the pixels at the taps, which CPUs with slow gathers load two by two where taps are neighbours
        for i in range(0, width, PREFETCH_STEP):
            prefetch(np.uintp(address + 4 * (np.int64(load_index_y(at_index_y, i)) + ahead)))
        if are_taps_inside:
            for tap in range(0, num_paired, 2):
                for i in range(width):
                    pair = load_two_pixels(address + 4 * tap, 4 * np.int64(load_index_y(at_index_y, i)))
                    store_two_fetched(at_fetched + tap * offset, i, pair)
            for tap in range(num_paired, num_taps_x):
                for i in range(width):
                    pixel = load_pixel(address + 4 * tap, load_index_y(at_index_y, i))
                    store_fetched(at_fetched + tap * offset, i, pixel)
        else:
            for i in range(width):
                store_index_y(at_index_y, i, np.int32(load_index_y(at_index_y, i) - load_index_x(at_index_x, i)))
            for tap in range(0, num_paired, 2):
                for i in range(width):
                    pixel_row = load_index_y(at_index_y, i)
                    left = load_index_x(at_index_x, tap * width + i)
                    right = load_index_x(at_index_x, (tap + 1) * width + i)
                    pair = np.uint64(load_pixel(address, np.int32(pixel_row + right))) << np.uint64(32)
                    pair |= np.uint64(load_pixel(address, np.int32(pixel_row + left)))
                    store_two_fetched(at_fetched + tap * offset, i, pair)
            for tap in range(num_paired, num_taps_x):
                for i in range(width):
                    index = np.int32(load_index_y(at_index_y, i) + load_index_x(at_index_x, tap * width + i))
                    store_fetched(at_fetched + tap * offset, i, load_pixel(address, index))

        # and the sums
        for tap in range(0, num_paired, 2):
            for i in range(width):
                left = load_fetched(at_fetched + tap * offset, 2 * i)
                right = load_fetched(at_fetched + tap * offset, 2 * i + 1)
                weight_y = load_weight_y(at_weight_y, i)
                weight_l = load_weight_x(at_weight_x, tap * width + i) * weight_y
                weight_r = load_weight_x(at_weight_x, (tap + 1) * width + i) * weight_y
                red = load_red(at_red, i) + channel(left, 0) * weight_l
                green = load_green(at_green, i) + channel(left, 8) * weight_l
                blue = load_blue(at_blue, i) + channel(left, 16) * weight_l
                store_red(at_red, i, red + channel(right, 0) * weight_r)
                store_green(at_green, i, green + channel(right, 8) * weight_r)
                store_blue(at_blue, i, blue + channel(right, 16) * weight_r)
        for tap in range(num_paired, num_taps_x):
            for i in range(width):
                pixel = load_fetched(at_fetched + tap * offset, i)
                weight = load_weight_x(at_weight_x, tap * width + i) * load_weight_y(at_weight_y, i)
                store_red(at_red, i, load_red(at_red, i) + channel(pixel, 0) * weight)
                store_green(at_green, i, load_green(at_green, i) + channel(pixel, 8) * weight)
                store_blue(at_blue, i, load_blue(at_blue, i) + channel(pixel, 16) * weight)
    if row.is_constant >= SHARP:
        for i in range(width):
            inside = sharp_weight(load_inside_y(at_inside_y, i), load_source_y(at_source_y, i), low_y, high_y)
            store_inside_y(at_inside_y, i, inside)
    at_sum_x, at_inverse = s + SUM_X * offset, s + INVERSE * offset
    for i in range(width):
        store_inverse(at_inverse, i, ONE / (load_sum_x(at_sum_x, i) * load_sum_y(at_sum_y, i)))


def bends(rows: npt.NDArray[np.void]) -> bool | None:
    """True where any row has a `field`; else None, for which numba leaves out what bends: a quarter of its work."""
    return True if np.count_nonzero(rows["field"]) else None  # `any` takes several times as long


def jobs_per_image(height: int) -> int:
    """Blocks of rows that one output image is cut into."""
    return -(-height // ROWS_PER_JOB)
