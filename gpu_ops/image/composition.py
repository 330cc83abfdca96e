"""What a pass of a plan looks up: from the maps of frames to plan records, the form that the kernel evaluates.

An output pixel (x, y), counted from the frame's centre, has lens coordinates (before (x, y) + offset) / divisor, where
the divisor is linear in x and y. Where it would be below `LEAST_DIVISOR`, nothing of the projected frame is seen.
"""

import math

import numpy as np
from numba import carray

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.plan_records import BEND, FIELD, MAX_DCT_FACTOR, RECORD, RECORD_BYTES, memory_at, product
from augpipe.gpu_ops.image.rows import GRID, NUM_NODES, SPLINE
from augpipe.gpu_ops.image.sampling import LEAST_DIVISOR
from augpipe.gpu_ops.jit import kernel, leaf

WIDEST_FILTER = 2
"""Half-widths of the filter where the frame is moved under a lens: this times the image's longer side at most."""
MOST_NODES_PER_PX = 1.0
"""A field that is finer than the output is looked at this often: more would not be seen."""
NO_BENDS = np.zeros(0, BEND)
NUM_NUMBERS = 12
"""Of an image, apart from its maps: what `compose_records` takes."""


@kernel(fastmath=False)
def compose_records(numbers, after_maps, before_maps, bends, records_at, record_bytes):
    """Fill in what `plan_records.PLAN_FIELDS` say of the look-up, where an image's sides and its lens are in already.

    Args:
        numbers: (`NUM_NUMBERS`, B) float64: left, top, right and bottom of what crops keep; x, y, width and height of
            the crop; its width and height as the frame counts them; the distance of the frame's corner; and the
            variance of what blurs it.
        after_maps, before_maps: (B, 2, 2) or (B, 3, 3) float64, of `ops.frame.Frame.maps`.
        bends: (B,) `plan_records.BEND`; none where nothing bends.
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
            linear_xx, linear_xy, linear_yx, linear_yy = (
                product(after[0, 0], after[0, 1], xx, yx),
                product(after[0, 0], after[0, 1], xy, yy),
                product(after[1, 0], after[1, 1], xx, yx),
                product(after[1, 0], after[1, 1], xy, yy),
            )
        else:
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


@leaf
def slope_at_centre(before, offset, divisor, lens):
    """xx, xy, yx and yy of the look-up's derivatives behind the lens, at the centre of a plan record's frame.

    Its arguments are `before` (2, 2), `before_offset` (2,), `before_divisor` (3,) and `lens` (5,) of the record.
    """
    is_in_front = divisor[2] > LEAST_DIVISOR
    whole = divisor[2] if is_in_front else float(LEAST_DIVISOR)
    u, v = offset[0] / whole, offset[1] / whole
    turning_x, turning_y = (divisor[0], divisor[1]) if is_in_front else (0.0, 0.0)
    before_xx, before_xy = (before[0, 0] - u * turning_x) / whole, (before[0, 1] - u * turning_y) / whole
    before_yx, before_yy = (before[1, 0] - v * turning_x) / whole, (before[1, 1] - v * turning_y) / whole
    # the derivatives of `gpu_ops.image.lens.distort` at (u, v)
    k1, k2, k3, p1, p2 = lens[0], lens[1], lens[2], lens[3], lens[4]
    r2 = u * u + v * v
    gain = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
    growth = 2.0 * (k1 + r2 * (2.0 * k2 + r2 * 3.0 * k3))
    lens_xx = gain + growth * u * u + 2.0 * p1 * v + 6.0 * p2 * u
    lens_yy = gain + growth * v * v + 6.0 * p1 * v + 2.0 * p2 * u
    lens_xy = growth * u * v + 2.0 * (p1 * u + p2 * v)
    return (
        product(lens_xx, lens_xy, before_xx, before_yx),
        product(lens_xx, lens_xy, before_xy, before_yy),
        product(lens_xy, lens_yy, before_xx, before_yx),
        product(lens_xy, lens_yy, before_xy, before_yy),
    )


@leaf
def write_field(field, bend, linear, corner, slope, half_sides):
    """Fill in a record's `FIELD`.

    Args:
        field: the record.
        bend: what bends, of `plan_records.BEND`.
        linear: xx, xy, yx and yy from the frame that bends to source pixels.
        corner: the distance of its corner, in its pixels.
        slope: `slope_at_centre`.
        half_sides: half of the output's width and height, in pixels.
    """
    xx, xy, yx, yy = linear
    slope_xx, slope_xy, slope_yx, slope_yy = slope
    matrix, target = bend.matrix, field.matrix
    for column in range(2):
        target[0, column] = product(xx, xy, matrix[0, column], matrix[1, column])
        target[1, column] = product(yx, yy, matrix[0, column], matrix[1, column])
    field.kind, field.cells = bend.kind, bend.cells
    covered_x = np.sqrt(slope_xx * slope_xx + slope_yx * slope_yx) * corner
    covered_y = np.sqrt(slope_xy * slope_xy + slope_yy * slope_yy) * corner
    for axis in range(2):
        for node in range(NUM_NODES):
            field.nodes[axis, node] = bend.nodes[axis, node]
        key, side = bend.key[axis], bend.sides[axis]
        field.key[axis] = key
        if bend.kind == SPLINE:  # alike in all places and directions, so it may lie over the output
            covered, half = covered_x if axis == 0 else covered_y, half_sides[axis]
            fine = min(covered / bend.spacing[0], MOST_NODES_PER_PX)
            field.scale[axis], field.origin[axis] = fine, 1.0 + bend.phase[axis] + fine * half
        else:  # over the frame that it bends, in lens coordinates
            cells = float(bend.cells)
            if bend.kind == GRID and key > 0:
                cells = side / key
            field.scale[axis] = cells * corner / side if bend.kind != 0 else 0.0
            field.origin[axis] = 0.5 * cells


declare(__name__, compose_records, any=lambda: (np.zeros((NUM_NUMBERS, 1)), *np.zeros((2, 1, 2, 2)), NO_BENDS, 0, 0))
