"""From plan records to the rows that the image kernel reads, at the scale at which an image was decoded."""

import math

import numpy as np
from numba import carray

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.plan_records import (
    BORDERS,
    FIELD,
    RECORD,
    RECORD_BYTES,
    memory_at,
    product,
    product_by_vector,
)
from augpipe.gpu_ops.image.program_rows import HEADER
from augpipe.gpu_ops.image.rows import (
    GRID,
    KERNEL_ROW,
    MEETING,
    NUM_NODES,
    REFLECT,
    REFLECT_101,
    SHARP,
    SPLINE,
    WRAP,
)
from augpipe.gpu_ops.image.sampling import LEAST_DIVISOR
from augpipe.gpu_ops.jit import kernel, leaf

HALF_WIDTHS = np.array([1.0, 2.0, 0.5, 2.0])
"""Of `INTERPOLATIONS`, in output pixels of an image that is not enlarged."""

_KINDS = {"context": REFLECT, "reflect": REFLECT, "reflect_101": REFLECT_101, "wrap": WRAP}
GOES_ON = np.array([_KINDS.get(name, 0) for name in BORDERS])
"""For each of BORDERS how the image goes on beyond it; 0 where it does not."""
FILLS = np.array([{"constant": 1, "sharp": SHARP, "meeting": MEETING}.get(name, 0) for name in BORDERS])
"""For each of BORDERS how a fill is seen beyond it; 0 where none is."""
AT_HEADER = KERNEL_ROW.itemsize
CONTEXT, MEETING_BORDER = BORDERS.index("context"), BORDERS.index("meeting")

ROUNDING_PX = 1e-6
"""More than a crop's corner is off by rounding, and less than the smallest fraction of a pixel that it can lie at."""


@kernel(fastmath=False)
def fill_kernel_rows(records_at, record_bytes, bends, num_steps, factors, table_at, row_bytes, has_header):
    """Fill in `KERNEL_ROW`s by `PLAN_FIELDS`, each at its address, so many bytes apart, and headers of programs.

    Args:
        records_at, record_bytes: of the plan's records.
        bends: whether a `FIELD` follows in each.
        num_steps: (B,) int32 steps of their programs: an image that takes some is rendered as levels first.
        factors: (B,) float64 by which decoded images are smaller.
        table_at, row_bytes: of the kernel's rows.
        has_header: whether a `HEADER` follows in each.
    """
    for i in range(len(factors)):
        record = carray(memory_at(records_at + i * record_bytes), 1, RECORD)[0]
        row = carray(memory_at(table_at + i * row_bytes), 1, KERNEL_ROW)[0]
        factor, further_x, further_y = factors[i], 0.0, 0.0
        if bends:
            field = carray(memory_at(records_at + i * record_bytes + RECORD_BYTES), 1, FIELD)[0]
            write_field_row(row, field, factor)
            least_x, most_x, least_y, most_y = displacement(row)
            further_x, further_y = max(abs(least_x), abs(most_x)), max(abs(least_y), abs(most_y))
            row.before_w0 = 1.0
        before, after, lens = record.before, record.after, record.lens
        before_xx, before_xy, before_yx, before_yy = before[0, 0], before[0, 1], before[1, 0], before[1, 1]
        linear_xx, linear_xy, centre_x = after[0, 0] / factor, after[0, 1] / factor, after[0, 2] / factor
        linear_yx, linear_yy, centre_y = after[1, 0] / factor, after[1, 1] / factor, after[1, 2] / factor
        k1, k2, k3, p1, p2 = lens[0], lens[1], lens[2], lens[3], lens[4]
        move_x, move_y = record.before_offset[0], record.before_offset[1]
        divisor_x, divisor_y, divisor = record.before_divisor[0], record.before_divisor[1], record.before_divisor[2]
        is_projective = divisor_x != 0.0 or divisor_y != 0.0
        has_lens = k1 != 0.0 or k2 != 0.0 or k3 != 0.0 or p1 != 0.0 or p2 != 0.0
        has_lens = has_lens or is_projective or row.field == GRID
        if has_lens and (is_projective or move_x != 0.0 or move_y != 0.0):
            row.has_projection = 1
            row.before_x0, row.before_y0 = move_x, move_y
            row.before_wx, row.before_wy, row.before_w0 = divisor_x, divisor_y, divisor
        direct_xx = product(linear_xx, linear_xy, before_xx, before_yx)
        direct_xy = product(linear_xx, linear_xy, before_xy, before_yy)
        direct_yx = product(linear_yx, linear_yy, before_xx, before_yx)
        direct_yy = product(linear_yx, linear_yy, before_xy, before_yy)
        half_x, half_y = 0.5 * record.out_width, 0.5 * record.out_height
        if has_lens:  # lens coordinates, which all that moves or projects acts on
            row.after_xx, row.after_xy, row.after_yx, row.after_yy = linear_xx, linear_xy, linear_yx, linear_yy
            extent_x = product_by_vector(abs(before_xx), abs(before_xy), half_x, half_y)
            extent_y = product_by_vector(abs(before_yx), abs(before_yy), half_x, half_y)
            least = max(divisor - (abs(divisor_x) * half_x + abs(divisor_y) * half_y), LEAST_DIVISOR)
            extent_x, extent_y = (extent_x + abs(move_x)) / least, (extent_y + abs(move_y)) / least
            r2 = extent_x * extent_x + extent_y * extent_y
            gain = 1.0 + r2 * (abs(k1) + r2 * (abs(k2) + r2 * abs(k3)))
            tangential = 3.0 * (abs(p1) + abs(p2)) * r2
            bent_x, bent_y = extent_x * gain + tangential, extent_y * gain + tangential
            reach_x = product_by_vector(abs(linear_xx), abs(linear_xy), bent_x, bent_y)
            reach_y = product_by_vector(abs(linear_yx), abs(linear_yy), bent_x, bent_y)
        else:  # what only moves is part of the offset
            row.after_xx, row.after_xy, row.after_yx, row.after_yy = direct_xx, direct_xy, direct_yx, direct_yy
            centre_x += product_by_vector(linear_xx, linear_xy, move_x, move_y)
            centre_y += product_by_vector(linear_yx, linear_yy, move_x, move_y)
            reach_x = product_by_vector(abs(direct_xx), abs(direct_xy), half_x, half_y)
            reach_y = product_by_vector(abs(direct_yx), abs(direct_yy), half_x, half_y)
        row.before_xx, row.before_xy, row.before_yx, row.before_yy = before_xx, before_xy, before_yx, before_yy
        row.offset_x, row.offset_y = centre_x, centre_y
        row.k1, row.k2, row.k3, row.p1, row.p2 = k1, k2, k3, p1, p2
        row.has_lens, row.filter = has_lens, record.interpolation
        half_width = HALF_WIDTHS[record.interpolation]
        row.support_x = _support(record.support[0] / factor, record.blur[0] / factor) * half_width
        row.support_y = _support(record.support[1] / factor, record.blur[1] / factor) * half_width
        height, width = float(record.out_height), float(record.out_width)
        row.inverse_corner_r2 = 4.0 / (height * height + width * width)
        inner_r2 = record.vignette[0] * record.vignette[0]
        row.vignette_inner_r2, row.vignette_inverse_span = inner_r2, 1.0 / (1.0 - inner_r2)
        row.vignette_strength, row.casts_last = record.vignette[1], record.cast_is_last
        takes_more = num_steps[i] > 0
        for channel in range(3):
            scale, bias = 1.0 / (255.0 * record.std[channel]), -record.mean[channel] / record.std[channel]
            row.cast[channel], row.fill[channel] = record.cast[channel], record.fill[channel]
            row.scale[channel], row.bias[channel] = (1.0, 0.0) if takes_more else (scale, bias)
            if has_header:
                header = carray(memory_at(table_at + i * row_bytes + AT_HEADER), 1, HEADER)[0]
                header.scale[channel], header.bias[channel] = (scale, bias) if takes_more else (1.0, 0.0)
                header.inverse_corner_r2, header.num_steps = row.inverse_corner_r2, num_steps[i]
        # which pixels exist to the sampler, and whether any tap can lie outside them
        border = record.border
        origin_x, low_x, high_x, begin_x, end_x = _bounds(
            border, record.width, record.crop[0], record.crop[2], record.origin[0], factor
        )
        origin_y, low_y, high_y, begin_y, end_y = _bounds(
            border, record.height, record.crop[1], record.crop[3], record.origin[1], factor
        )
        row.origin_x, row.low_x, row.high_x, row.begin_x, row.end_x = origin_x, low_x, high_x, begin_x, end_x
        row.origin_y, row.low_y, row.high_y, row.begin_y, row.end_y = origin_y, low_y, high_y, begin_y, end_y
        reach_x, reach_y = reach_x + row.support_x + 1.0 + further_x, reach_y + row.support_y + 1.0 + further_y
        is_inside = centre_x - reach_x >= begin_x + 0.5 and centre_x + reach_x <= end_x - 0.5
        is_inside = is_inside and centre_y - reach_y >= begin_y + 0.5 and centre_y + reach_y <= end_y - 0.5
        row.reflects, row.is_constant = (0, 0) if is_inside else (GOES_ON[border], FILLS[border])


@leaf
def _support(support, blur):
    """How far one output pixel reaches, in source pixels."""
    return math.hypot(max(support, 1.0), blur)


@leaf
def _bounds(border, side, crop_low, crop_high, origin, factor):
    """Where the image as decoded is counted from along an axis, and, from there, its first and last pixel, and where
    what is shown of it begins and ends."""
    last, begin = np.ceil(side / factor) - 1.0, origin / factor
    low = 0.0 if border == CONTEXT else np.floor(crop_low / factor + ROUNDING_PX)
    high = last if border == CONTEXT else np.ceil(crop_high / factor - ROUNDING_PX) - 1.0
    low = min(max(low, 0.0), last)
    high = min(max(high, low), last)
    first_edge, last_edge = low - 0.5, high + 0.5
    if border != CONTEXT and border != MEETING_BORDER:  # which meets others in whole pixels
        first_edge = max(first_edge, crop_low / factor - 0.5)
        last_edge = last_edge if crop_high >= side else min(last_edge, crop_high / factor - 0.5)
    return begin, low - begin, high - begin, first_edge - begin, last_edge - begin


@leaf
def write_field_row(row, field, factor):
    """Fill in what a kernel row says of a record's `FIELD`, for an image decoded at 1/`factor` of its size."""
    row.field, row.field_cells, matrix = field.kind, field.cells, field.matrix
    for axis in range(2):
        for node in range(NUM_NODES):
            row.field_nodes[axis, node] = field.nodes[axis, node]
        row.field_key[axis] = field.key[axis]
    row.field_xx, row.field_xy = matrix[0, 0] / factor, matrix[0, 1] / factor
    row.field_yx, row.field_yy = matrix[1, 0] / factor, matrix[1, 1] / factor
    row.field_scale_x, row.field_scale_y = field.scale[0], field.scale[1]
    row.field_x0, row.field_y0 = field.origin[0], field.origin[1]


@leaf
def displacement(row):
    """Least and largest displacement along x, and along y, of a kernel row, in source pixels; never too little.

    Lines between nodes do not leave their range; a B-spline's weights are none below 0 and add up to 1.
    """
    most_of_kind = 1.0 if row.field == SPLINE else 0.0
    least_x, most_x = -most_of_kind, most_of_kind
    least_y, most_y = -most_of_kind, most_of_kind
    # cells that end a pixel further
    further_x = 1.0 if row.field == GRID and row.field_key[0] > 0 else 0.0
    further_y = 1.0 if row.field == GRID and row.field_key[1] > 0 else 0.0
    for node in range(NUM_NODES):
        x, y = float(row.field_nodes[0, node]), float(row.field_nodes[1, node])
        least_x, most_x = min(least_x, x), max(most_x, x + further_x)
        least_y, most_y = min(least_y, y), max(most_y, y + further_y)
    xx, xy, yx, yy = row.field_xx, row.field_xy, row.field_yx, row.field_yy
    return (
        min(xx * least_x, xx * most_x) + min(xy * least_y, xy * most_y),
        max(xx * least_x, xx * most_x) + max(xy * least_y, xy * most_y),
        min(yx * least_x, yx * most_x) + min(yy * least_y, yy * most_y),
        max(yx * least_x, yx * most_x) + max(yy * least_y, yy * most_y),
    )


@kernel(fastmath=False)
def write_displacements(table_at, row_bytes, found):
    """Write (B, 4) `displacement` of kernel rows at an address, so many bytes apart."""
    for i in range(len(found)):
        row = carray(memory_at(table_at + i * row_bytes), 1, KERNEL_ROW)[0]
        found[i, 0], found[i, 1], found[i, 2], found[i, 3] = displacement(row)


declare(__name__, fill_kernel_rows, any=lambda: (0, 0, False, np.zeros(1, np.int32), np.ones(1), 0, 0, False))
declare(__name__, write_displacements, bends=lambda: (0, 0, np.zeros((1, 4))))
