"""Masks through a map: for each output pixel the label of the one source pixel that it shows."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.nearest import nearest_pixels
from augpipe.gpu_ops.image.program_rows import first_parts
from augpipe.planning.kernel_rows import kernel_rows

Rows = npt.NDArray[np.void]
Mask = npt.NDArray[Any]


def shown_pixels(row: Rows, *, fills: bool) -> npt.NDArray[np.int32]:
    """(H, W) of a (1,) plan record's output: the number of the source pixel that each pixel shows, -1 for none.

    Args:
        row: the record; the image's own scale does not matter, masks are always looked up at full size.
        fills: whether nothing is shown outside the image; else its border is the mask's, too.
    """
    found = np.empty((int(row["out_height"][0]), int(row["out_width"][0])), np.int32)
    nearest_pixels(first_parts(kernel_rows(row)), 0, fills, int(row["width"][0]), found)
    return found


def map_mask(mask: Mask, shown: npt.NDArray[np.int32], fill: float) -> Mask:
    """(H, W, ..) of a (height, width, ..) mask of any type, with `fill` where nothing is shown."""
    mapped: Mask = np.take(mask.reshape(-1, *mask.shape[2:]), shown, axis=0)
    is_outside = shown < 0
    if is_outside.any():
        mapped[is_outside] = fill
    return mapped


def mask_bounds(masks: Mask) -> npt.NDArray[np.float64]:
    """(N, 4) left, top, right, bottom around what is not 0 of (N, H, W) masks; zeros where nothing is."""
    bounds = np.zeros((len(masks), 4))
    for position, mask in enumerate(masks):
        columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
        if len(columns):
            bounds[position] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return bounds
