"""From plan records to the table that the fused kernel reads, at the scale at which an image was decoded."""

import math

import numpy as np
import numpy.typing as npt
from numba import carray

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.program_rows import AT_STEPS, HEADER, STEP_BYTES, copied, row_dtype
from augpipe.gpu_ops.image.rows import GRID, KERNEL_ROW, MEETING, REFLECT, REFLECT_101, SHARP, SNAP, WRAP
from augpipe.gpu_ops.image.sampling import LEAST_DIVISOR
from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.records import memory_at, product, product_by_vector
from augpipe.planning.fields import FIELD, displacement, write_field_row
from augpipe.planning.plan_record import BORDERS, MAX_DCT_FACTOR, RECORD, RECORD_BYTES
from augpipe.planning.record_passes import FIRST, first_pass, has_passes, is_joined, joined_tables, passes_of

Rows = npt.NDArray[np.void]
Float = npt.NDArray[np.float64]

HALF_WIDTHS = np.array([1.0, 2.0, 0.5, 2.0])
"""Of `INTERPOLATIONS`, in output pixels of an image that is not enlarged."""

MIN_DCT_SIDE = 64
"""Images with a shorter side are decoded whole: a DCT scale would save nothing."""

_KINDS = {"context": REFLECT, "reflect": REFLECT, "reflect_101": REFLECT_101, "wrap": WRAP}
GOES_ON = np.array([_KINDS.get(name, 0) for name in BORDERS])
"""For each of BORDERS how the image goes on beyond it; 0 where it does not."""
FILLS = np.array([{"constant": 1, "sharp": SHARP, "meeting": MEETING}.get(name, 0) for name in BORDERS])
"""For each of BORDERS how a fill is seen beyond it; 0 where none is."""
AT_HEADER = KERNEL_ROW.itemsize
CONTEXT = BORDERS.index("context")

ROUNDING_PX = 1e-6
"""More than a crop's corner is off by rounding, and less than the smallest fraction of a pixel that it can lie at."""


def dct_factors(views: tuple[Rows, ...]) -> npt.NDArray[np.int64]:
    """(B,) of 1, 2, 4 or 8: the coarsest DCT scale that still holds a source pixel for every output pixel.

    It depends on the plan alone: the least filter support over both axes and all views of the sample, rounded down to
    a power of two, for images of at least `MIN_DCT_SIDE` pixels a side.
    """
    support = np.min([first_pass(rows)["support"].min(axis=1) for rows in views], axis=0)
    factor = np.exp2(np.floor(np.log2(np.clip(support, 1.0, MAX_DCT_FACTOR)))).astype(np.int64)
    side = np.minimum(views[0]["height"], views[0]["width"])
    return np.where(side < MIN_DCT_SIDE, 1, factor)


def kernel_rows(rows: Rows, factors: npt.NDArray[np.int64] | None = None) -> Rows:
    """(B,) `gpu_ops.image.rows.KERNEL_ROW` for (B,) plan records of images decoded at 1/factor of their size.

    Where colours take more steps, each is followed by what `gpu_ops.image.program_rows` holds. Records of several
    passes become `record_passes.joined_tables`, of which the first pass alone looks at the decoded image.
    """
    if has_passes(rows):
        first, *others = passes = passes_of(rows)
        return joined_tables([kernel_rows(first, factors), *map(kernel_rows, others)], passes)
    table: Rows = np.zeros(len(rows), _table_dtype(rows))
    if len(rows):
        _fill(table, rows, factors)
    if table.dtype != KERNEL_ROW:
        table["header"]["at_tables"] = AT_STEPS + table["steps"].shape[1] * STEP_BYTES
        table["steps"] = rows["steps"]
        if "tables" in (rows.dtype.names or ()):
            table["tables"] = rows["tables"]
    return table


def resized_rows(rows: Rows, like: Rows, factors: npt.NDArray[np.int64]) -> Rows:
    """(B,) `kernel_rows`, given those of the same samples for images of other sizes: see `PlannedView.resized`."""
    table = copied(like)
    _fill(table[FIRST]["row"] if is_joined(table) else table, first_pass(rows), factors)
    return table


def _table_dtype(rows: Rows) -> np.dtype[np.void]:
    names = rows.dtype.names or ()
    if "steps" not in names:
        return KERNEL_ROW
    return row_dtype(rows["steps"].shape[1], rows["tables"].shape[1] if "tables" in names else 0)


def _fill(table: Rows, rows: Rows, factors: npt.NDArray[np.int64] | None) -> None:
    """Fill in what does not depend on the program alone."""
    names = rows.dtype.names or ()
    num_steps = np.ascontiguousarray(rows["num_steps"]) if "num_steps" in names else np.zeros(len(rows), np.int32)
    _fill_kernel_rows(
        *(rows.ctypes.data, rows.strides[0], "field" in names, num_steps),
        np.ones(len(rows)) if factors is None else factors.astype(np.float64),
        *(table.ctypes.data, table.strides[0], table.dtype != KERNEL_ROW),
    )


@kernel(fastmath=False)
def _fill_kernel_rows(  # type: ignore[no-untyped-def]
    records_at, record_bytes, bends, num_steps, factors, table_at, row_bytes, has_header
):
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
        has_lens = has_lens or is_projective or row.field == GRID or row.field == SNAP
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
        origin_x, low_x, high_x = _bounds(
            border, record.width, record.crop[0], record.crop[2], record.origin[0], factor
        )
        origin_y, low_y, high_y = _bounds(
            border, record.height, record.crop[1], record.crop[3], record.origin[1], factor
        )
        row.origin_x, row.low_x, row.high_x = origin_x, low_x, high_x
        row.origin_y, row.low_y, row.high_y = origin_y, low_y, high_y
        reach_x, reach_y = reach_x + row.support_x + 1.0 + further_x, reach_y + row.support_y + 1.0 + further_y
        is_inside = centre_x - reach_x >= low_x and centre_x + reach_x <= high_x
        is_inside = is_inside and centre_y - reach_y >= low_y and centre_y + reach_y <= high_y
        row.reflects, row.is_constant = (0, 0) if is_inside else (GOES_ON[border], FILLS[border])


@leaf
def _support(support, blur):  # type: ignore[no-untyped-def]
    """How far one output pixel reaches, in source pixels."""
    return math.hypot(max(support, 1.0), blur)


@leaf
def _bounds(border, side, crop_low, crop_high, origin, factor):  # type: ignore[no-untyped-def]
    """Where the image as decoded is counted from along an axis, and its first and last pixel, from there."""
    last, begin = np.ceil(side / factor) - 1.0, origin / factor
    low = 0.0 if border == CONTEXT else np.floor(crop_low / factor + ROUNDING_PX)
    high = last if border == CONTEXT else np.ceil(crop_high / factor - ROUNDING_PX) - 1.0
    low = min(max(low, 0.0), last)
    return begin, low - begin, min(max(high, low), last) - begin


declare(__name__, _fill_kernel_rows, any=lambda: (0, 0, False, np.zeros(1, np.int32), np.ones(1), 0, 0, False))


def displacements(table: Rows) -> tuple[Float, Float]:
    """(B, 2) least and largest `displacement` of kernel rows, along x and y."""
    found = np.empty((len(table), 4))
    if len(table):
        _write_displacements(table.ctypes.data, table.strides[0], found)
    return found[:, 0::2], found[:, 1::2]


@kernel(fastmath=False)
def _write_displacements(table_at, row_bytes, found):  # type: ignore[no-untyped-def]
    """Write (B, 4) `displacement` of kernel rows at an address, so many bytes apart."""
    for i in range(len(found)):
        row = carray(memory_at(table_at + i * row_bytes), 1, KERNEL_ROW)[0]
        found[i, 0], found[i, 1], found[i, 2], found[i, 3] = displacement(row)


declare(__name__, _write_displacements, bends=lambda: (0, 0, np.zeros((1, 4))))
