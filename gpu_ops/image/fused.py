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
from augpipe.gpu_ops.image.row_taps import locate_row, meet_edges, weigh_x
from augpipe.gpu_ops.image.rows import KERNEL_ROW, MEETING, TRIANGLE
from augpipe.gpu_ops.image.sampling import num_taps
from augpipe.gpu_ops.image.scratch_rows import HALF, INDEX_Y, ONE, WEIGHTS_X, centred
from augpipe.gpu_ops.image.slanted import sample_slanted
from augpipe.gpu_ops.image.windows import find_windows, span
from augpipe.gpu_ops.jit import kernel, subroutine

ROWS_PER_JOB = 32
"""Rows of an output image in one job: at 224x224 a job takes about 25 microseconds."""

SHRINKS = np.float32(3.0)
"""Source pixels that an output pixel covers along x from which on columns are summed first, if it covers several along
y: next to each other, they are fetched without gathers."""

NO_ROW = np.int64(2**62)

SLANTED, ALIGNED, BENT = 1, 2, 4
"""What `kinds_of` finds."""


def run_jobs(
    pixel_table: npt.NDArray[np.int64],
    rows: npt.NDArray[np.void],
    batch: npt.NDArray[np.generic],
    height: int,
    width: int,
    planar: bool,
    first_job: int,
    last_job: int,
    rgb_rows: npt.NDArray[np.int64] | None = None,
) -> None:
    """Run jobs `first_job`..`last_job` - 1 of a batch; any split over calls and threads gives the same bits.

    Only the kernels are called that the batch needs: each takes seconds to compile.

    Args:
        pixel_table: (B, 4) int64, see `rows.PIXEL_TABLE_COLUMNS`; images are uint8 RGBX and stay the caller's.
        rows: (B,) `rows.KERNEL_ROW`.
        batch: (B * height * width * 3,) float32 or uint8, written; image i starts at i * height * width * 3. uint8
            holds levels: the rows' `scale` and `bias` are not looked at.
        height, width: of an output image, in pixels.
        planar: True for channels, rows, columns (NCHW), False for rows, columns, channels (NHWC).
        first_job, last_job: image i has jobs i * n .. i * n + n - 1, where n is `jobs_per_image(height)`.
        rgb_rows: None; or (B,) int64: bytes from row to row of images whose pixels are of three bytes, which `find_rgb`
            has found, 0 of others. Their stride is not read.
    """
    kinds = kinds_of(rows, height, width)
    bends = True if kinds & BENT else None
    if kinds & ALIGNED:
        run_aligned(pixel_table, rows, batch, height, width, planar, first_job, last_job, bends, rgb_rows)
    if kinds & SLANTED:
        run_slanted(pixel_table, rows, batch, height, width, planar, first_job, last_job, bends)


@kernel()
def kinds_of(rows, height, width):
    """Whether any output of the (B,) `rows` is `SLANTED`, `ALIGNED`, `BENT`; their sum."""
    kinds = 0
    for image in range(len(rows)):
        if rows[image].field:
            kinds = BENT
    for image in range(len(rows)):
        kinds |= SLANTED if is_slanted(rows[image], height, width, kinds & BENT != 0) else ALIGNED
    return kinds


@kernel()
def run_slanted(pixel_table, rows, batch, height, width, planar, first_job, last_job, bends):
    """`run_jobs` of the images whose outputs are slanted; `bends` is as for `run_aligned`."""
    blocks = (height + ROWS_PER_JOB - 1) // ROWS_PER_JOB
    num_scratch = np.int64(0)
    for job in range(first_job, last_job):
        num_scratch = max(num_scratch, (WEIGHTS_X + 3 * num_taps(rows[job // blocks].support_x)) * width)
    scratch = np.empty(num_scratch + NODE_ROWS * (width + BEYOND), np.float32)
    nodes_held = np.empty(TAPS, np.int64)
    for job in range(first_job, last_job):
        s = scratch.ctypes.data  # here, as numba frees an array after its last use
        at_nodes = s + 4 * num_scratch
        image, block = job // blocks, job % blocks
        row = rows[image]
        if not is_slanted(row, height, width, bends is not None):
            continue
        pixels = pixel_table[image, 0], pixel_table[image, 1], pixel_table[image, 2], pixel_table[image, 3]
        for n in range(TAPS):
            nodes_held[n] = NO_ROW
        for row_y in range(block * ROWS_PER_JOB, min((block + 1) * ROWS_PER_JOB, height)):
            y = centred(row_y, height)
            locate_row(row, s, width, y, width)
            if bends is not None and row.field:
                bend_row(row, s, at_nodes, width, centred(0, width), y, width, nodes_held)
            if row.is_constant == MEETING:
                meet_edges(row, s, width, width)
            are_taps_inside = weigh_x(row, s, width)
            sample_slanted(pixels, row, s, width, are_taps_inside)
            start = image * height * width * 3 + row_y * width * (1 if planar else 3)
            finish_row(row, s, width, y, batch, start, height * width, planar)


@kernel()
def run_aligned(pixel_table, rows, batch, height, width, planar, first_job, last_job, bends, rgb_rows):
    """`run_jobs` of the images whose outputs are not slanted, or show whole pixels.

    Args:
        pixel_table, rows, batch, height, width, planar, first_job, last_job, rgb_rows: as there; of None for `rgb_rows`
            numba leaves out what reads RGB.
        bends: True where any row has a `field`, which then reads whole pixels as others, to the bit; else None, for
            which numba leaves out what bends.
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
        if not is_aligned(row):
            continue
        # rows of an output share what belongs to x, and all pixels of one of them what belongs to y
        is_shrunk = _shrinks(row)
        for n in range(TAPS):
            nodes_held[n] = NO_ROW
        if image != image_held:
            lines_held[0, :] = NO_ROW
            forget_sums_of_weights(s, width)
        for row_y in range(first, last):
            y = centred(row_y, height)
            shares_x = image == image_held
            image_held = image
            num_located = np.int64(1) if shares_x else width
            locate_row(row, s, width, y, num_located)
            if bends is not None and row.field:
                bend_row(row, s, at_nodes, width, centred(0, width), y, num_located, nodes_held)
            if row.is_constant == MEETING:
                meet_edges(row, s, width, num_located)
            if not shares_x:
                are_taps_inside = weigh_x(row, s, width)
                taps = num_taps(row.support_x)
                at_index_x = s + 4 * width * (WEIGHTS_X + taps)
                window = find_windows(at_index_x, s + 4 * width * INDEX_Y, width, taps)
                first_x, num_columns = span(at_index_x, width * taps)
            if is_shrunk:
                sample_shrunk(pixels, row, s, width, first_x, num_columns, at_held, rgb_bytes)
            else:
                columns, scratch_rows = (first_x, num_columns), (at_packed, at_held)
                sample_aligned(pixels, row, s, width, are_taps_inside, window, *columns, *scratch_rows, rgb_bytes)
            start = image * height * width * 3 + row_y * width * (1 if planar else 3)
            finish_row(row, s, width, y, batch, start, height * width, planar)


@kernel()
def find_rgb(rows, found):
    """Clear (B,) bool `found` where `run_jobs` does not take pixels of three bytes: only images read row by row."""
    for image in range(len(rows)):
        found[image] &= is_aligned(rows[image])


def _slanted(dtype: Any, bends: bool | None) -> Any:
    return np.zeros((1, 4), np.int64), np.zeros(1, KERNEL_ROW), np.zeros(1, dtype), 1, 1, True, 0, 1, bends


def _aligned(dtype: Any, bends: bool | None, rgb_rows: npt.NDArray[np.int64] | None = None) -> Any:
    return *_slanted(dtype, bends), rgb_rows


declare(__name__, kinds_of, any=lambda: (np.zeros(1, KERNEL_ROW), 1, 1))
declare(__name__, find_rgb, any=lambda: (np.zeros(1, KERNEL_ROW), np.zeros(1, np.bool_)))
declare(
    __name__,
    run_slanted,
    float32=lambda: _slanted(np.float32, None),
    uint8=lambda: _slanted(np.uint8, None),
    float32_bends=lambda: _slanted(np.float32, True),
    uint8_bends=lambda: _slanted(np.uint8, True),
)
declare(
    __name__,
    run_aligned,
    float32=lambda: _aligned(np.float32, None),
    uint8=lambda: _aligned(np.uint8, None),
    float32_bends=lambda: _aligned(np.float32, True),
    uint8_bends=lambda: _aligned(np.uint8, True),
    float32_rgb=lambda: _aligned(np.float32, None, np.zeros(1, np.int64)),
    uint8_rgb=lambda: _aligned(np.uint8, None, np.zeros(1, np.int64)),
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
def is_slanted(row, height, width, is_filtered):
    """Whether an output is one for `run_slanted`; those of whole pixels are not, unless each `is_filtered`."""
    return not is_aligned(row) and (is_filtered or not is_copied(row, height, width))


@subroutine
def _shrinks(row):
    """Whether an axis-aligned output is a task for `sample_shrunk`."""
    covered = row.support_x if row.filter == TRIANGLE else HALF * row.support_x
    return covered > SHRINKS and row.support_y > ONE


def bends(rows: npt.NDArray[np.void]) -> bool | None:
    """True where any row has a `field`; else None, for which numba leaves out what bends: a quarter of its work."""
    return True if np.count_nonzero(rows["field"]) else None  # `any` takes several times as long


def jobs_per_image(height: int) -> int:
    """Blocks of rows that one output image is cut into."""
    return -(-height // ROWS_PER_JOB)
