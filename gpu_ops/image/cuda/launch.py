"""Launching the kernels: from raw addresses and sizes to work queued on a stream.

Nothing here waits for the device or allocates on it, except the first call of each kernel, which loads or compiles it.
"""

import threading
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from augpipe.gpu_ops.image.cuda import clahe, compression
from augpipe.gpu_ops.image.cuda.fused import FUSED_LAUNCH_BOUNDS, FUSED_SIGNATURE, THREADS, fused_kernel
from augpipe.gpu_ops.image.cuda.label_maps import (
    AS_TAPS_BIT,
    FILLS_BIT,
    LABEL_BYTES,
    LABELS_LAUNCH_BOUNDS,
    LABELS_SIGNATURE,
    look_up_labels,
)
from augpipe.gpu_ops.image.cuda.mix import MIX_JOB_BYTES, MIX_LAUNCH_BOUNDS, MIX_SIGNATURE, MIX_THREADS, mix_kernel
from augpipe.gpu_ops.image.cuda.pack import PACK_LAUNCH_BOUNDS, PACK_RECORD_BYTES, PACK_SIGNATURE, PACK_THREADS, pack
from augpipe.gpu_ops.image.cuda.program import (
    FILTER_LAUNCH_BOUNDS,
    FINISH_LAUNCH_BOUNDS,
    FINISH_SIGNATURE,
    FINISH_THREADS,
    filter_kernel,
    finish_kernel,
)
from augpipe.gpu_ops.image.cuda.records import PIXEL_RECORD_BYTES, ROW_BYTES
from augpipe.gpu_ops.image.cuda.writing import HELD_AS, ITEM_BYTES
from augpipe.gpu_ops.image.program_rows import CLAHE, COARSEN, CONVOLVE, JPEG, MEDIAN, SEPARABLE, SHARPNESS, SHUFFLE
from augpipe.gpu_ops.image.rows import KERNEL_ROW

BLOCK = (4, 2) if IS_SIMULATED else THREADS
PACK_BLOCK = 4 if IS_SIMULATED else PACK_THREADS
"""The simulator starts a Python thread for each thread of a block."""

MAX_ROWS_PER_THREAD = 16
"""A thread reads its image's row first, which takes as many instructions as two or three pairs of pixels."""

FEWEST_BLOCKS = 8 if IS_SIMULATED else 1024
"""Smaller batches are cut finer, down to two rows a thread: an H200 holds 792 blocks at once. Not measured yet."""

PIXELS_PER_PACK_THREAD = 8
PIXELS_PER_MIX_THREAD = 4
MAX_GRID_ROWS = 65_535
"""CUDA's limit along y and z: larger tables take several launches."""

_lock = threading.Lock()
"""Held while a kernel is compiled or loaded, and during a simulated launch: the simulator runs one at a time."""


def render_batch(
    pixels: int,
    rows: int,
    batch: int,
    *,
    num: int,
    height: int,
    width: int,
    planar: bool,
    held_as: str,
    stream: int,
) -> None:
    """Queue the augmentation of a batch: all images of one view in one launch.

    The device must be the current one, and all memory must be left alone until the stream has passed this launch.

    Args:
        pixels: device address of (num, 5) int64, see `records.DEVICE_PIXEL_COLUMNS`.
        rows: device address of (num,) `gpu_ops.image.rows.KERNEL_ROW`.
        batch: device address of num * height * width * 3 items, written; a multiple of 8.
        num: images.
        height, width: of an output image, in pixels.
        planar: True for channels, rows, columns (NCHW), False for rows, columns, channels (NHWC).
        held_as: "float32", "float16", "bfloat16" or "uint8".
        stream: cudaStream_t as a number; 0 is the default stream.
    """
    item_bytes = ITEM_BYTES[HELD_AS[held_as]]
    plane_bytes = height * width * item_bytes
    if not plane_bytes:
        return
    kernel = _fused(held_as, planar)
    tiles_x, tiles_y = _tiles(num, height, width)
    sizes = (
        height,
        width,
        -(-height // (tiles_y * BLOCK[1])),  # rows a thread: tiles of one height, so that none is nearly empty
        plane_bytes,
        BLOCK[1] * width * item_bytes * (1 if planar else 3),
    )
    for first in range(0, num, MAX_GRID_ROWS):
        _launch(
            kernel,
            (tiles_x, tiles_y, min(num - first, MAX_GRID_ROWS)),
            BLOCK,
            stream,
            pixels + first * PIXEL_RECORD_BYTES,
            rows + first * ROW_BYTES,
            batch + first * 3 * plane_bytes,
            *sizes,
        )


def look_up_label_maps(
    labels: int,
    rows: int,
    batch: int,
    *,
    num: int,
    height: int,
    width: int,
    fill: int,
    fills: bool,
    as_taps: bool,
    stream: int,
) -> None:
    """Queue the look-up of a view's label maps in one launch; on the terms of `render_batch`.

    Args:
        labels: device address of (num, 5) int64, as `render_batch` takes of pixels: a label's bytes in the place of
            channels, 1 for uint8, 2 for uint16, 4 for int32, 8 for int64, of which the address is a multiple.
        rows: device address of (num,) `KERNEL_ROW` at the label maps' own size.
        batch: device address of num * height * width int64, written.
        num: label maps.
        height, width: of an output image, in pixels.
        fill: the label where nothing is shown.
        fills, as_taps: as `gpu_ops.image.nearest.nearest_pixels` takes them.
        stream: as in `render_batch`.
    """
    if not height * width:
        return
    tiles_x, tiles_y = _tiles(num, height, width)
    asked = FILLS_BIT * fills + AS_TAPS_BIT * as_taps
    sizes = (height, width, -(-height // (tiles_y * BLOCK[1])), fill, asked)
    for first in range(0, num, MAX_GRID_ROWS):
        _launch(
            _labels(),
            (tiles_x, tiles_y, min(num - first, MAX_GRID_ROWS)),
            BLOCK,
            stream,
            labels + first * PIXEL_RECORD_BYTES,
            rows + first * ROW_BYTES,
            batch + first * height * width * LABEL_BYTES,
            *sizes,
        )


def finish_batch(
    rows: int,
    levels: int,
    batch: int,
    copies: int,
    *,
    row_bytes: int,
    copied_bytes: int,
    filters: bool = False,
    num: int,
    height: int,
    width: int,
    planar: bool,
    held_as: str,
    stream: int,
) -> None:
    """Queue what follows the rendering of a batch whose rows hold more than a `KERNEL_ROW`; on its terms.

    Args:
        rows: device address of (num, row_bytes), `finish_rows.row_dtype`.
        levels: device address of num * height * width * 3 float32 that `render_batch` has written; overwritten.
        batch: as in `render_batch`; it may be `levels` itself where that is held as float32.
        copies: device address of num * copied_bytes bytes that may be overwritten.
        row_bytes: of a row.
        copied_bytes: at least `most_copied_bytes` of the rows' steps, and a multiple of 4.
        filters: whether any of the rows' steps is a filter: `program_rows.are_filters`.
        num: images.
        height, width: of an output image, in pixels.
        planar: as in `render_batch`.
        held_as: as above.
        stream: as above.
    """
    if num and height * width:
        sizes = (copies, copied_bytes, height, width)
        if filters:
            first = row_bytes, KERNEL_ROW.itemsize, levels, levels
            _launch(_filter(planar), (num,), FINISH_THREADS, stream, rows, *first, *sizes)
        kernel = _finish(held_as, planar)
        _launch(kernel, (num,), FINISH_THREADS, stream, rows, row_bytes, KERNEL_ROW.itemsize, levels, batch, *sizes)


def most_copied_bytes(steps: npt.NDArray[np.void], height: int, width: int) -> int:
    """Bytes that `COLOUR_STEP`s need for an image in addition to its levels; 0 where none looks at neighbours."""
    num_pixels, kinds = height * width, steps["kind"]
    needed = [0]
    if ((kinds == SHARPNESS) | (kinds == MEDIAN)).any():
        needed.append(-(-3 * num_pixels // 4) * 4)
    if np.isin(kinds, (SEPARABLE, CONVOLVE, SHUFFLE, COARSEN)).any():
        needed.append(12 * num_pixels)
    if (kinds == JPEG).any():
        needed.append(compression.copied_bytes(height, width))
    for _, num_down, num_across in steps["numbers"][kinds == CLAHE][:, :3]:
        needed.append(clahe.copied_bytes(int(num_down * num_across), num_pixels))
    return max(needed)


def mix_batch(
    jobs: int, batch: int, *, num_jobs: int, height: int, width: int, planar: bool, held_as: str, stream: int
) -> None:
    """Queue the mixing of finished images of a batch, in place; on the terms of `render_batch`.

    Args:
        jobs: device address of (num_jobs,) `gpu_ops.image.mix.MIX_JOB`.
        batch: as in `render_batch`.
        num_jobs: pairs of images.
        height, width: of an image, in pixels.
        planar, held_as, stream: as in `render_batch`.
    """
    if not height * width:
        return
    kernel = _mix(held_as, planar)
    blocks = -(-height * width // (MIX_THREADS * PIXELS_PER_MIX_THREAD))
    for first in range(0, num_jobs, MAX_GRID_ROWS):
        grid = (blocks, min(num_jobs - first, MAX_GRID_ROWS))
        _launch(kernel, grid, MIX_THREADS, stream, jobs + first * MIX_JOB_BYTES, batch, height, width)


def pack_rgbx(table: int, *, num: int, max_pixels: int, stream: int) -> None:
    """Queue the packing of images to RGBX, X = 255, in one launch; on the terms of `render_batch`.

    Args:
        table: device address of (num, 4) int64, see `pack.PACK_COLUMNS`.
        num: images.
        max_pixels: the most pixels that one of them has.
        stream: cudaStream_t as a number; 0 is the default stream.
    """
    if not max_pixels:
        return
    blocks = -(-max_pixels // (PACK_BLOCK * PIXELS_PER_PACK_THREAD))
    for first in range(0, num, MAX_GRID_ROWS):
        grid = (blocks, min(num - first, MAX_GRID_ROWS))
        _launch(_pack(), grid, PACK_BLOCK, stream, table + first * PACK_RECORD_BYTES)


def _tiles(num: int, height: int, width: int) -> tuple[int, int]:
    """How many blocks an image is cut into along x and y; no pixel depends on it."""
    tiles_x, rows_per_thread = -(-width // (2 * BLOCK[0])), MAX_ROWS_PER_THREAD
    while True:
        tiles_y = -(-height // (rows_per_thread * BLOCK[1]))
        if rows_per_thread == 2 or num * tiles_x * tiles_y >= FEWEST_BLOCKS:
            return tiles_x, tiles_y
        rows_per_thread //= 2


def _launch(kernel: Any, grid: tuple[int, ...], block: Any, stream: int, *arguments: int) -> None:
    if IS_SIMULATED:
        with _lock:
            kernel[grid, block](*arguments)
    else:
        kernel.launch(grid, block, stream, *arguments)


def _fused(held_as: str, planar: bool) -> Any:
    with _lock:
        return _compiled_fused(held_as, planar)


def _finish(held_as: str, planar: bool) -> Any:
    with _lock:
        return _compiled_finish(held_as, planar)


def _filter(planar: bool) -> Any:
    with _lock:
        return _compiled_filter(planar)


def _mix(held_as: str, planar: bool) -> Any:
    with _lock:
        return _compiled_mix(held_as, planar)


def _pack() -> Any:
    with _lock:
        return _compiled_pack()


def _labels() -> Any:
    with _lock:
        return _compiled_labels()


@cache
def _compiled_fused(held_as: str, planar: bool) -> Any:
    return _compiled(fused_kernel(HELD_AS[held_as], planar), FUSED_SIGNATURE, FUSED_LAUNCH_BOUNDS)


@cache
def _compiled_finish(held_as: str, planar: bool) -> Any:
    return _compiled(finish_kernel(HELD_AS[held_as], planar), FINISH_SIGNATURE, FINISH_LAUNCH_BOUNDS)


@cache
def _compiled_filter(planar: bool) -> Any:
    return _compiled(filter_kernel(planar), FINISH_SIGNATURE, FILTER_LAUNCH_BOUNDS)


@cache
def _compiled_mix(held_as: str, planar: bool) -> Any:
    return _compiled(mix_kernel(HELD_AS[held_as], planar), MIX_SIGNATURE, MIX_LAUNCH_BOUNDS)


@cache
def _compiled_pack() -> Any:
    return _compiled(pack, PACK_SIGNATURE, PACK_LAUNCH_BOUNDS)


@cache
def _compiled_labels() -> Any:
    return _compiled(look_up_labels, LABELS_SIGNATURE, LABELS_LAUNCH_BOUNDS)


def _compiled(body: Any, signature: str, launch_bounds: tuple[int, int]) -> Any:
    if IS_SIMULATED:
        return cuda.jit(body)
    from augpipe.gpu_ops.cuda.machine_code import Kernel, Source

    return Kernel(Source(body=body, signature=signature, launch_bounds=launch_bounds))
