"""Masks through a map: for each output pixel the label of the one source pixel that it shows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image import rings as loops
from augpipe.gpu_ops.image.fused import bends
from augpipe.gpu_ops.image.nearest import nearest_pixels, take_classes
from augpipe.gpu_ops.image.program_rows import first_parts
from augpipe.planning.fields import ON_THE_CPU, drawn_by
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.record_passes import has_passes, passes_of

Rows = npt.NDArray[np.void]
Mask = npt.NDArray[Any]


def shown_pixels(
    row: Rows, *, fills: bool, table: Rows | None = None, as_taps: bool | None = None
) -> npt.NDArray[np.int32]:
    """(H, W) of a (1,) plan record's output: the number of the source pixel that each pixel shows, -1 for none.

    Args:
        row: the record; the image's own scale does not matter, masks are always looked up at full size.
        fills: whether nothing is shown outside the image; else its border is the mask's, too.
        table: its (1,) `kernel_rows`, where they were made: for many records at once that takes less.
        as_taps: of `nearest_pixels`. None: True where an op bends the frame, as all recipes could be, if those without
            such ops had not been otherwise before.
    """
    if as_taps is None:
        as_taps = not drawn_by(row).isdisjoint(ON_THE_CPU)
    if has_passes(row):
        earlier, *others = (shown_pixels(own, fills=fills, as_taps=as_taps) for own in passes_of(row))
        for later in others:
            earlier = np.where(later < 0, np.int32(-1), earlier.reshape(-1)[later])
        return earlier
    found = np.empty((int(row["out_height"][0]), int(row["out_width"][0])), np.int32)
    table = kernel_rows(row) if table is None else table
    nearest_pixels(first_parts(table), 0, fills, int(row["width"][0]), found, bends(table), as_taps)
    return found


def map_mask(mask: Mask, shown: npt.NDArray[np.int32], fill: float, into: Mask | None = None) -> Mask:
    """(H, W, ..) of a (height, width, ..) mask of any type, with `fill` where nothing is shown.

    Args:
        mask: of the image.
        shown: of `shown_pixels`.
        fill: a number of the result's type.
        into: (H, W, ..) of a type that holds the mask's, to be written and returned; None: an array of its own.
    """
    if into is not None and into.dtype == np.int64 and mask.dtype == np.uint8 and mask.ndim == 2:
        take_classes(mask.reshape(-1), shown, int(fill), into)
        return into
    mapped: Mask = np.take(mask.reshape(-1, *mask.shape[2:]), shown, axis=0)
    if into is not None:
        into[...] = mapped
        mapped = into
    is_outside = shown < 0
    if is_outside.any():
        mapped[is_outside] = fill
    return mapped


def fill_of(mask: Mask, fill: int) -> Any:
    """What a mask holds where nothing is shown: `fill`, and False in a Boolean one.

    Raises:
        ValueError: its type does not hold it.
    """
    if mask.dtype.kind == "b":
        return False
    largest = np.iinfo(mask.dtype).max if mask.dtype.kind in "iu" else np.inf
    if fill > largest:
        raise ValueError(
            f"mask_fill={fill} does not fit into the mask's {mask.dtype}. Give a smaller one with "
            f"TargetOptions(mask_fill={largest}), or a mask of a wider type."
        )
    return fill


def filled_rings(rings: Sequence[Sequence[npt.NDArray[np.float64]]], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """(N, H, W): 1 where a pixel's centre lies within one of an object's rings, which are in pixels of the masks."""
    masks = np.zeros((len(rings), *size), np.uint8)
    flat = [ring for of_one in rings for ring in of_one]
    if flat:
        owners = np.repeat(np.arange(len(rings)), [len(of_one) for of_one in rings])
        loops.fill(np.concatenate(flat), np.cumsum([0, *map(len, flat)]), owners, masks)
    return masks


def mask_bounds(masks: Mask) -> npt.NDArray[np.float64]:
    """(N, 4) left, top, right, bottom around what is not 0 of (N, H, W) masks; zeros where nothing is."""
    bounds = np.zeros((len(masks), 4))
    for position, mask in enumerate(masks):
        columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
        if len(columns):
            bounds[position] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return bounds
