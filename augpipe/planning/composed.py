"""What a pass looks up and the steps behind it, from its frame to plan records: the form that the kernel evaluates."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image import affine
from augpipe.gpu_ops.image.composition import NO_BENDS, NUM_NUMBERS, compose_records
from augpipe.gpu_ops.image.plan_records import BORDERS
from augpipe.gpu_ops.image.rows import GRID
from augpipe.ops.colour_program import num_tables, write_program
from augpipe.ops.frame import Frame
from augpipe.ops.op import Beyond
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.view import View

Rows = npt.NDArray[np.void]
Floats = npt.NDArray[np.floating[Any]]
Edges = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Left, top, right and bottom of what is seen of each image."""

SLACK_PX = 1e-6
"""How far beyond an edge, in source pixels, a corner still counts as within it: rounding moves it by less."""


def write_look_up(
    rows: Rows,
    frame: Frame,
    recipe: Recipe,
    view: View,
    *,
    stands_alone: bool = False,
    own_beyond: Beyond | None = None,
) -> None:
    """Fill in what a pass looks up; one that stands alone has a group with an `own_look`, and maybe its border."""
    border, fill = own_beyond or recipe.beyond_of(view)
    rows["border"], rows["fill"] = BORDERS.index(border), fill
    seen = frame.seen_in_crops if recipe.border == "constant" else frame.seen
    if border in ("constant", "wrap"):  # others go on at the edge as the image does
        is_sharp = _hides_border(frame, seen)
        if border == "constant":
            is_sharp |= frame.is_edge_sharp | frame.is_edge_kept | stands_alone
        rows["border"][is_sharp] = BORDERS.index("sharp")
    _compose(rows, frame, seen)
    if recipe.interpolation == "nearest" or not recipe.antialias or stands_alone:
        rows["support"] = 1.0


def _hides_border(frame: Frame, seen: Edges) -> npt.NDArray[np.bool_]:
    """(B,) whether nothing beyond the part that crops keep is shown: its edge does not mix with the border."""
    after, before = frame.maps
    left, top, right, bottom = seen
    half_sides = [0.5 * frame.out_widths, 0.5 * frame.out_heights]
    hides: npt.NDArray[np.bool_] = ~np.any(frame.lens, axis=1)
    if before is not None:
        before = affine.homogeneous(before)
        hides = hides & (before[:, 2] == (0.0, 0.0, 1.0)).all(axis=1)
        after, of_bend = affine.homogeneous(affine.compose(after, before)), affine.homogeneous(after)
        if frame.bends is not None and (is_bent := frame.bends["kind"] != 0).any():
            # all that a grid shows lies in its frame, or else where it would lie without it
            hides = hides & (~is_bent | _stays_within(frame.bends))
            after[is_bent] = of_bend[is_bent]
            reaches = [_reach(before[:, axis].T, *half_sides) + np.abs(before[:, axis, 2]) for axis in (0, 1)]
            for axis, reach in enumerate(reaches):
                within = np.maximum(reach, 0.5 * frame.bends["sides"][:, axis])
                half_sides[axis] = np.where(is_bent, within, half_sides[axis])
    for axis, (low, high, first, side, kept) in enumerate(
        (
            (left, right, frame.crop_x, frame.crop_width, frame.kept_widths),
            (top, bottom, frame.crop_y, frame.crop_height, frame.kept_heights),
        )
    ):
        along = side / kept * after[:, axis].T
        reach = _reach(along, *half_sides)
        centre = first + 0.5 * side + (along[2] if len(along) == 3 else 0.0)
        hides = hides & (centre - reach >= low - SLACK_PX) & (centre + reach <= high + SLACK_PX)
    return hides


def _reach(along: Floats, half_width: Floats, half_height: Floats) -> Floats:
    """(B,) how far to both sides of its centre an affine map takes a rectangle, along an axis of which it is a row."""
    reach: Floats = np.abs(along[0]) * half_width + np.abs(along[1]) * half_height
    return reach


def _stays_within(bends: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """(B,) whether each is a grid of which no cell shows what lies outside its frame."""
    sides, cells = bends["sides"][:, :, None], bends["cells"][:, None, None]
    ends = np.minimum(np.arange(bends["nodes"].shape[2]), cells) * (sides / np.maximum(cells, 1)) + bends["nodes"]
    is_within = ((ends >= -SLACK_PX) & (ends <= sides + SLACK_PX)).all(axis=(1, 2))
    stays: npt.NDArray[np.bool_] = is_within & (bends["kind"] == GRID) & (bends["key"] == 0).all(axis=1)
    return stays


def _compose(rows: Rows, frame: Frame, seen: Edges) -> None:
    """Bring the frame's maps into the form that the kernel evaluates."""
    num = len(rows)
    if not num:
        return
    rows["height"], rows["width"] = frame.heights, frame.widths
    rows["out_height"], rows["out_width"] = frame.out_heights, frame.out_widths
    rows["lens"] = frame.lens
    heights, widths = frame.lens_sizes or (frame.out_heights, frame.out_widths)
    corner = 0.5 * np.hypot(heights, widths)
    after, before = frame.maps
    numbers = np.empty((NUM_NUMBERS, num))
    for nth, values in enumerate(
        (
            *(*seen, frame.crop_x, frame.crop_y, frame.crop_width, frame.crop_height),
            *(frame.kept_widths, frame.kept_heights, corner),
            0.0 if frame.blur_variance is None else frame.blur_variance,
        )
    ):
        numbers[nth] = values
    after, before = map(np.ascontiguousarray, (after, affine.identity(num) if before is None else before))
    bends = NO_BENDS if frame.bends is None else np.ascontiguousarray(frame.bends)
    compose_records(numbers, after, before, bends, rows.ctypes.data, rows.strides[0])


def write_steps(rows: Rows, frame: Frame) -> None:
    """Fill in the steps behind the look-up of a pass."""
    rows["vignette"] = frame.vignette
    rows["cast"], rows["cast_is_last"] = frame.cast, frame.cast_is_last
    rows["mean"], rows["std"] = frame.mean, frame.std
    if frame.steps:
        tables = rows["tables"] if num_tables(frame.steps) else None
        rows["num_steps"] = write_program(frame.steps, rows["steps"], tables)
