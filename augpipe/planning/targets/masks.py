"""Masks through a map: for each output pixel the label of the one source pixel that it shows, or the most frequent one
of those that it covers; and values that are interpolated."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image import rings as loops
from augpipe.gpu_ops.image.fused import bends
from augpipe.gpu_ops.image.nearest import nearest_pixels, take_classes
from augpipe.gpu_ops.image.paired import linear_values, majority_pixels
from augpipe.gpu_ops.image.program_rows import first_parts
from augpipe.planning.fields import BENDING, bent_points_of_pass, drawn_by
from augpipe.planning.kernel_rows import Rows, kernel_rows
from augpipe.planning.record_passes import has_passes, passes_of
from augpipe.planning.targets.holes import holes_of_pass
from augpipe.planning.targets.options import Interpolation

Mask = npt.NDArray[Any]

MOST_PARTS = 16
"""In how many parts along each side an output pixel is looked at for the most frequent label."""
LOOKS = (np.arange(5) + 0.5) / 5
"""Where along the frame's sides it is seen how much of the image an output pixel covers, in parts of these."""
LARGEST_WHOLE = 2**24
"""Whole numbers up to this one are those of float32, in which values are interpolated."""
ROUNDING_PX = 1e-3
"""By how much an output pixel may cover more than whole pixels, and count as if it did not."""


def mapped_mask(
    mask: Mask,
    row: Rows,
    *,
    by: Interpolation,
    fill: float,
    fills: bool,
    holes: bool = False,
    table: Rows | None = None,
    into: Mask | None = None,
) -> Mask:
    """(H, W, ..) of a (height, width, ..) mask, or of an image that is paired with the image, by a (1,) plan record.

    Args:
        mask: of the image.
        row: the record.
        by: how it is looked up. Of several passes, each looks at what the one before it gave, unless it is nearest.
        fill: where nothing is shown, a number of the mask's type.
        fills, holes: of `shown_pixels`.
        table: of `shown_pixels`.
        into: of `map_mask`.

    Raises:
        ValueError: the mask's type cannot be looked up like that.
    """
    if by == "nearest":
        return map_mask(mask, shown_pixels(row, fills=fills, holes=holes, table=table), fill, into)
    as_taps = not drawn_by(row).isdisjoint(BENDING)
    passes = passes_of(row)
    if into is not None and len(passes) > 1:
        mask = mask.astype(into.dtype)  # which holds the fill, too
    for nth, own in enumerate(passes):
        kernel_row = table if table is not None and len(passes) == 1 else kernel_rows(own)
        out = into if nth == len(passes) - 1 else None
        if by == "linear":
            mask = _interpolated(mask, own, kernel_row, fill, fills, out)
        else:
            mask = map_mask(mask, _majority(mask, own, kernel_row, fill, fills, as_taps), fill, out)
        if holes and (are_holes := holes_of_pass(own)) is not None:
            mask[are_holes] = fill
    return mask


def _majority(mask: Mask, row: Rows, table: Rows, fill: float, fills: bool, as_taps: bool) -> npt.NDArray[np.int32]:
    """(H, W) of one pass: the number of a pixel with the label that each output pixel shows most of, -1 for none."""
    _check_labels(mask)
    parts = parts_of(row)
    if parts == 1:
        return shown_pixels(row, fills=fills, table=table, as_taps=as_taps)
    labels = _numbered(mask, fill)
    found = np.empty((int(row["out_height"][0]), int(row["out_width"][0])), np.int32)
    rows, width = first_parts(table), int(row["width"][0])
    majority_pixels(rows, 0, fills, width, labels[:-1], int(labels[-1]), parts, found, bends(table), as_taps)
    return found


def parts_of(row: Rows) -> int:
    """How many pixels of the image an output pixel of one pass covers along a side, at most, where the frame is looked
    at; rounded up, and at most `MOST_PARTS`."""
    size = np.array([row["out_width"][0], row["out_height"][0]], np.float64)
    middles = np.stack(np.meshgrid(*(LOOKS * size[:, None])), axis=-1).reshape(-1, 1, 2)
    ends = middles + 0.5 * np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
    found = bent_points_of_pass(row, ends.reshape(-1, 2), np.zeros(4 * len(middles), np.int64)).reshape(-1, 2, 2, 2)
    lengths = np.linalg.norm(found[:, :, 1] - found[:, :, 0], axis=2)
    longest = lengths[np.isfinite(lengths)].max(initial=1.0)
    return int(np.clip(np.ceil(longest - ROUNDING_PX), 1, MOST_PARTS))


def _check_labels(mask: Mask) -> None:
    num_planes = math.prod(mask.shape[2:])
    is_colours = mask.dtype == np.uint8 and 1 < num_planes < 8
    if mask.dtype.kind not in "biu" or (num_planes != 1 and not is_colours):
        raise ValueError(
            f"mask_interpolation='majority' counts labels: (H, W) whole numbers, or 8-bit colours (H, W, C). The mask "
            f"has the shape {mask.shape} and the type {mask.dtype}. Choose 'nearest' or 'linear'."
        )


def _numbered(mask: Mask, fill: float) -> npt.NDArray[np.int64]:
    """(height * width + 1,) a number for each pixel's label, and for `fill`: the least has the least."""
    planes = mask.reshape(mask.shape[0] * mask.shape[1], -1)
    numbers = np.empty(len(planes) + 1, np.int64)
    numbers[:-1], numbers[-1] = planes[:, -1], fill
    for plane in range(planes.shape[1] - 2, -1, -1):
        numbers *= 256  # in place: eight bytes for each pixel of a photograph are enough
        numbers[:-1] += planes[:, plane]
        numbers[-1] += int(fill)
    return numbers


def _interpolated(mask: Mask, row: Rows, table: Rows, fill: float, fills: bool, into: Mask | None) -> Mask:
    """What one pass shows of values, between the four pixels around each place, in the numbers of float32.

    Raises:
        ValueError: the mask is Boolean, or has whole numbers that float32 does not hold.
    """
    if mask.dtype.kind == "b":
        raise ValueError(
            "the look-up 'linear' is for numbers such as depths, and a mask or paired image is Boolean. Choose "
            "'nearest'."
        )
    if mask.dtype.kind in "iu" and mask.dtype.itemsize > 2 and mask.size:
        for largest in (int(mask.min()), int(mask.max()), int(fill)):
            if abs(largest) > LARGEST_WHOLE:
                raise ValueError(
                    f"the look-up 'linear' works in float32, which holds whole numbers up to {LARGEST_WHOLE}, and a "
                    f"mask or paired image, or its fill, has {largest}. Choose 'nearest' for labels, and for other "
                    "numbers give it as floats."
                )
    # kernels are compiled ahead for arrays that can be written to
    values = np.require(mask.reshape(*mask.shape[:2], -1), np.float32, ["C", "W"])
    out = np.empty((int(row["out_height"][0]), int(row["out_width"][0]), values.shape[2]), np.float32)
    linear_values(first_parts(table), 0, fills, values, np.float32(fill), out, bends(table))
    mapped: Mask = out.reshape(*out.shape[:2], *mask.shape[2:])
    mapped = (np.rint(mapped) if mask.dtype.kind in "iu" else mapped).astype(mask.dtype)
    if into is None:
        return mapped
    into[...] = mapped
    return into


def shown_pixels(
    row: Rows, *, fills: bool, holes: bool = False, table: Rows | None = None, as_taps: bool | None = None
) -> npt.NDArray[np.int32]:
    """(H, W) of a (1,) plan record's output: the number of the source pixel that each pixel shows, -1 for none.

    Args:
        row: the record; the image's own scale does not matter, masks are always looked up at full size.
        fills: whether nothing is shown outside the image; else its border is the mask's, too.
        holes: whether nothing is shown where the record fills holes; of several passes, a later one moves them.
        table: its (1,) `kernel_rows`, where they were made: for many records at once that takes less.
        as_taps: of `nearest_pixels`. None: True where an op bends the frame, as all recipes could be, if those without
            such ops had not been otherwise before.
    """
    if as_taps is None:
        as_taps = not drawn_by(row).isdisjoint(BENDING)
    if has_passes(row):
        earlier, *others = (shown_pixels(own, fills=fills, holes=holes, as_taps=as_taps) for own in passes_of(row))
        for later in others:
            earlier = np.where(later < 0, np.int32(-1), earlier.reshape(-1)[later])
        return earlier
    found = np.empty((int(row["out_height"][0]), int(row["out_width"][0])), np.int32)
    table = kernel_rows(row) if table is None else table
    nearest_pixels(first_parts(table), 0, fills, int(row["width"][0]), found, bends(table), as_taps)
    if holes and (are_holes := holes_of_pass(row)) is not None:
        found[are_holes] = -1
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
