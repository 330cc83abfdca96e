"""The CPU loop that mixes rendered images of a batch: an image and its partner, weighted, within a rectangle.

MixUp is a weight over the whole image, CutMix a weight of 0 within a rectangle. It works on numbers as the batch holds
them, so after normalisation: float32 is rounded once, uint8 to the nearest level (halves upwards) once more.
"""

from typing import Any

import numpy as np
from numba import types

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.scratch_rows import as_held
from augpipe.gpu_ops.jit import kernel, leaf, subroutine
from augpipe.gpu_ops.memory import load_bytes, prefer_wide_vectors

MIX_JOB = np.dtype([("places", np.int32, (2,)), ("weights", np.float32, (2,)), ("regions", np.int32, (2, 4))])
"""Two images of a batch by their places in it. Each becomes its weight times itself and the rest times what the other
one was, in its region: left, top, right, bottom in pixels, empty where it stays as it is."""

PLACES, WEIGHTS, REGIONS, REGION_BYTES = 0, 8, 16, 16
"""Bytes from a job's start, and of one region."""

load_number, load_whole = load_bytes("values", types.float32), load_bytes("values", types.int32)


@leaf
def mixed(own, partner, weight):
    """`weight` of one number and the rest of the other; at a weight of 0 exactly the other."""
    return partner + weight * (own - partner)


@kernel()
def mix_images(jobs, batch, height, width, planar):
    """Mix images in place; no image may be written by one job and touched by another.

    Args:
        jobs: (n, bytes of a `MIX_JOB`) uint8.
        batch: (images * height * width * 3,) float32 or uint8.
        height, width: of an image, in pixels.
        planar: True for channels, rows, columns, False for rows, columns, channels.
    """
    num_rows, row_items, pixel_items = (3 * height, width, 1) if planar else (height, 3 * width, 3)
    kept = np.empty(row_items, batch.dtype)
    for job in range(len(jobs)):
        at = np.uintp(jobs.ctypes.data + job * jobs.shape[1])
        first = np.int64(load_whole(at, PLACES)) * num_rows
        second = np.int64(load_whole(at, PLACES + 4)) * num_rows
        for row in range(num_rows):
            own = batch[(first + row) * row_items : (first + row + 1) * row_items]
            partner = batch[(second + row) * row_items : (second + row + 1) * row_items]
            is_mutual = _is_within(at, 1, row % height)
            if is_mutual:
                kept[:] = own  # the partner takes of it what it was
            if _is_within(at, 0, row % height):
                _mix_row(at, 0, own, partner, pixel_items)
            if is_mutual:
                _mix_row(at, 1, partner, kept, pixel_items)


def _mixing(dtype: Any) -> Any:
    return np.zeros((1, MIX_JOB.itemsize), np.uint8), np.zeros(1, dtype), 1, 1, True


declare(__name__, mix_images, float32_mixing=lambda: _mixing(np.float32), uint8_mixing=lambda: _mixing(np.uint8))


@subroutine
def _is_within(at, which, y):
    """Whether the job's first (0) or second (1) image changes in this row."""
    region = REGIONS + which * REGION_BYTES
    return load_whole(at, region + 4) <= y and y < load_whole(at, region + 12)


@subroutine
def _mix_row(at, which, own, partner, pixel_items):
    """Mix a row of one image with that of its partner, which it does not overlap."""
    prefer_wide_vectors()
    region, weight = REGIONS + which * REGION_BYTES, load_number(at, WEIGHTS + 4 * which)
    left, right = pixel_items * load_whole(at, region), pixel_items * load_whole(at, region + 8)
    changed, other = own[left:right], partner[left:right]
    for i in range(len(changed)):
        changed[i] = as_held(changed, np.float32(mixed(np.float32(changed[i]), np.float32(other[i]), weight)))
