"""What a pass looks up and the steps behind it, from its frame to plan records: the form that the kernel evaluates."""

import math

import numpy as np
import numpy.typing as npt
from numba import carray

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image import affine
from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.records import memory_at, product
from augpipe.ops.colour_program import num_tables, write_program
from augpipe.ops.frame import BEND, Frame
from augpipe.planning.fields import FIELD, write_field
from augpipe.planning.plan_record import BORDERS, MAX_DCT_FACTOR, RECORD, RECORD_BYTES
from augpipe.planning.projection import slope_at_centre
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.view import View

Rows = npt.NDArray[np.void]

WIDEST_FILTER = 2
"""Half-widths of the filter where the frame is moved under a lens: this times the image's longer side at most."""


def write_look_up(rows: Rows, frame: Frame, recipe: Recipe, view: View, *, stands_alone: bool = False) -> None:
    """Fill in what a pass looks up; one that stands alone has a group with an `own_look`."""
    border, fill = recipe.beyond_of(view)
    rows["border"], rows["fill"] = BORDERS.index(border), fill
    if border == "constant":
        is_sharp = frame.is_edge_sharp | frame.is_edge_kept | frame.snaps | stands_alone
        rows["border"][is_sharp] = BORDERS.index("sharp")
    _compose(rows, frame)
    if recipe.interpolation == "nearest" or not recipe.antialias or stands_alone:
        rows["support"] = 1.0


def _compose(rows: Rows, frame: Frame) -> None:
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
            *(*frame.seen, frame.crop_x, frame.crop_y, frame.crop_width, frame.crop_height),
            *(frame.kept_widths, frame.kept_heights, corner),
            0.0 if frame.blur_variance is None else frame.blur_variance,
        )
    ):
        numbers[nth] = values
    after, before = map(np.ascontiguousarray, (after, affine.identity(num) if before is None else before))
    bends = NO_BENDS if frame.bends is None else np.ascontiguousarray(frame.bends)
    _compose_records(numbers, after, before, frame.snaps, bends, rows.ctypes.data, rows.strides[0])


NO_BENDS = np.zeros(0, BEND)
NUM_NUMBERS = 12
"""Of an image, apart from its maps: what `_compose_records` takes."""


@kernel(fastmath=False)
def _compose_records(numbers, after_maps, before_maps, snaps, bends, records_at, record_bytes):  # type: ignore[no-untyped-def]
    """Fill in what `PLAN_FIELDS` say of the look-up, where an image's sides and its lens are in already.

    Args:
        numbers: (`NUM_NUMBERS`, B) float64: left, top, right and bottom of what crops keep; x, y, width and height of
            the crop; its width and height as the frame counts them; the distance of the frame's corner; and the
            variance of what blurs it.
        after_maps, before_maps: (B, 2, 2) or (B, 3, 3) float64, of `Frame.maps`.
        snaps: whether whole pixels of the frame are shown.
        bends: (B,) `ops.frame.BEND`; none where nothing bends.
        records_at, record_bytes: where the records lie, and how far apart; a `FIELD` follows where anything bends.
    """
    for i in range(numbers.shape[1]):
        record = carray(memory_at(records_at + i * record_bytes), 1, RECORD)[0]
        for edge in range(4):
            record.crop[edge] = numbers[edge, i]
        x, y, width, height = numbers[4, i], numbers[5, i], numbers[6, i], numbers[7, i]
        scale_x, scale_y, corner = width / numbers[8, i], height / numbers[9, i], numbers[10, i]
        map_after, map_before = after_maps[i], before_maps[i]
        linear_xx, linear_xy = scale_x * map_after[0, 0], scale_x * map_after[0, 1]
        linear_yx, linear_yy = scale_y * map_after[1, 0], scale_y * map_after[1, 1]
        centre_x, centre_y = x + 0.5 * width, y + 0.5 * height
        origin_x = np.floor(centre_x / MAX_DCT_FACTOR) * MAX_DCT_FACTOR
        origin_y = np.floor(centre_y / MAX_DCT_FACTOR) * MAX_DCT_FACTOR
        record.origin[0], record.origin[1] = origin_x, origin_y
        centre_x, centre_y = centre_x - origin_x, centre_y - origin_y
        if len(map_after) == 3:
            centre_x, centre_y = centre_x + scale_x * map_after[0, 2], centre_y + scale_y * map_after[1, 2]
        after = record.after
        after[0, 0], after[0, 1], after[0, 2] = linear_xx * corner, linear_xy * corner, centre_x
        after[1, 0], after[1, 1], after[1, 2] = linear_yx * corner, linear_yy * corner, centre_y
        before = record.before
        for row in range(2):
            for column in range(2):
                before[row, column] = map_before[row, column] / corner
        record.before_divisor[2] = 1.0
        if len(map_before) == 3:
            for axis in range(2):
                record.before_offset[axis] = map_before[axis, 2] / corner
            for axis in range(3):
                record.before_divisor[axis] = map_before[2, axis]
        xx, xy, yx, yy = slope_at_centre(before, record.before_offset, record.before_divisor, record.lens)
        if len(bends):
            field = carray(memory_at(records_at + i * record_bytes + RECORD_BYTES), 1, FIELD)[0]
            half_x, half_y = 0.5 * record.out_width, 0.5 * record.out_height
            linear = linear_xx, linear_xy, linear_yx, linear_yy
            write_field(field, bends[i], linear, corner, (xx, xy, yx, yy), (half_x, half_y))
        if len(map_before) == 3:
            if not snaps:
                linear_xx, linear_xy, linear_yx, linear_yy = (
                    product(after[0, 0], after[0, 1], xx, yx),
                    product(after[0, 0], after[0, 1], xy, yy),
                    product(after[1, 0], after[1, 1], xx, yx),
                    product(after[1, 0], after[1, 1], xy, yy),
                )
        elif not snaps:
            xx, xy, yx, yy = map_before[0, 0], map_before[0, 1], map_before[1, 0], map_before[1, 1]
            linear_xx, linear_xy, linear_yx, linear_yy = (
                product(linear_xx, linear_xy, xx, yx),
                product(linear_xx, linear_xy, xy, yy),
                product(linear_yx, linear_yy, xx, yx),
                product(linear_yx, linear_yy, xy, yy),
            )
        covered_x, covered_y = math.hypot(linear_xx, linear_xy), math.hypot(linear_yx, linear_yy)
        if len(map_before) == 3:  # far beyond the corner a lens grows without bound
            widest = float(WIDEST_FILTER * max(record.height, record.width))
            covered_x, covered_y = min(covered_x, widest), min(covered_y, widest)
        # a scale within rounding of 1 is 1: a third tap of weight 1e-12 would be read for nothing
        record.support[0] = 1.0 if covered_x < 1.0 + 1e-6 else covered_x
        record.support[1] = 1.0 if covered_y < 1.0 + 1e-6 else covered_y
        # a triangle of half-width s has the variance s^2 / 6
        sigma = math.sqrt(6.0 * numbers[11, i])
        record.blur[0], record.blur[1] = sigma * covered_x, sigma * covered_y


declare(
    __name__, _compose_records, any=lambda: (np.zeros((NUM_NUMBERS, 1)), *np.zeros((2, 1, 2, 2)), False, NO_BENDS, 0, 0)
)


def write_steps(rows: Rows, frame: Frame) -> None:
    """Fill in the steps behind the look-up of a pass."""
    rows["vignette"] = frame.vignette
    rows["cast"], rows["cast_is_last"] = frame.cast, frame.cast_is_last
    rows["mean"], rows["std"] = frame.mean, frame.std
    if frame.steps:
        tables = rows["tables"] if num_tables(frame.steps) else None
        rows["num_steps"] = write_program(frame.steps, rows["steps"], tables)
