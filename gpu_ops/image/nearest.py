"""The look-up of masks: for each output pixel the one source pixel whose centre is nearest to what it shows."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.field import BEYOND, NODE_ROWS, TAPS, bend_row
from augpipe.gpu_ops.image.fused import NO_ROW
from augpipe.gpu_ops.image.lens import distort, radial_gain
from augpipe.gpu_ops.image.rows import KERNEL_ROW, MEETING, SHARP, SPLINE
from augpipe.gpu_ops.image.sampling import (
    border_period,
    border_turn,
    clamp,
    continued,
    divisor,
    first_tap,
    floor,
    is_inside,
    linear,
    where_it_meets,
)
from augpipe.gpu_ops.image.scratch_rows import centred
from augpipe.gpu_ops.jit import kernel, leaf, subroutine

HALF = np.float32(0.5)
ONE = np.float32(1.0)
ZERO = np.float32(0.0)
FURTHEST = np.float32(2.0**30)
"""Pixels from the origin, of what is looked up further away: whole numbers hold it."""
SCRATCH_ROWS = 2 + NODE_ROWS
"""Rows of scratch of a look-up."""


@subroutine
def locate(row, width, first_x, y, at_x, at_y):
    """Write where `width` places of a row come from, save what bends them: the look-up of `gpu_ops.image.fused`, in the
    same numbers. The first place is `first_x`, the others follow a pixel apart."""
    after_xx, after_xy, offset_x = row.after_xx, row.after_xy, row.offset_x - HALF
    after_yx, after_yy, offset_y = row.after_yx, row.after_yy, row.offset_y - HALF
    if not row.has_lens:
        for j in range(width):
            x = np.float32(np.int32(j)) + first_x
            at_x[j] = linear(x, y, after_xx, after_xy, offset_x)
            at_y[j] = linear(x, y, after_yx, after_yy, offset_y)
        return
    before_xx, before_xy, before_yx, before_yy = row.before_xx, row.before_xy, row.before_yx, row.before_yy
    before_x0, before_y0 = row.before_x0, row.before_y0
    before_wx, before_wy = row.before_wx, row.before_wy
    before_w0 = row.before_w0 if row.has_projection else ONE
    k1, k2, k3, p1, p2 = row.k1, row.k2, row.k3, row.p1, row.p2
    for j in range(width):
        x = np.float32(np.int32(j)) + first_x
        inverse = ONE / divisor(x, y, before_wx, before_wy, before_w0)
        u = linear(x, y, before_xx, before_xy, before_x0) * inverse
        v = linear(x, y, before_yx, before_yy, before_y0) * inverse
        r2 = u * u + v * v
        gain = radial_gain(r2, k1, k2, k3)
        lens_u, lens_v = distort(u, v, r2, gain, p2, p1), distort(v, u, r2, gain, p1, p2)
        at_x[j] = linear(lens_u, lens_v, after_xx, after_xy, offset_x)
        at_y[j] = linear(lens_u, lens_v, after_yx, after_yy, offset_y)


@leaf
def nearest(coordinate):
    """The nearest pixel's index, as a whole float."""
    return floor(clamp(coordinate, -FURTHEST, FURTHEST) + HALF)


@subroutine
def _meet(at, low, high):
    """Move coordinates along an axis into the image, where they lie next to its edge."""
    for i in range(len(at)):
        at[i] = where_it_meets(at[i], low, high)


@subroutine
def _leave_out(at, begin, end, outside):
    for i in range(len(at)):
        at[i] = at[i] if begin < at[i] and at[i] < end else outside


@subroutine
def _snap(at):
    """Move coordinates along an axis to the one tap that an image of nearest pixels has there, as it rounds them."""
    for i in range(len(at)):
        at[i] = first_tap(clamp(at[i], -FURTHEST, FURTHEST), HALF)


@subroutine
def _settle(row, at_x, at_y, as_taps):
    """Move coordinates into the image where images meet, out of it where they lie beyond what is shown of it, and to
    taps where `nearest_pixels` says so."""
    if row.is_constant == MEETING:
        _meet(at_x, np.float32(row.low_x), np.float32(row.high_x))
        _meet(at_y, np.float32(row.low_y), np.float32(row.high_y))
    elif row.is_constant == SHARP:
        _leave_out(at_x, row.begin_x, row.end_x, np.float32(row.low_x) - ONE)
        _leave_out(at_y, row.begin_y, row.end_y, np.float32(row.low_y) - ONE)
    if as_taps:
        _snap(at_x)
        _snap(at_y)


@subroutine
def look_up_row(row, width, first_x, y, scratch, nodes_held, bends, as_taps):
    """Write where `width` places of a row come from into the first two rows of scratch, x and then y.

    Args:
        row: the `KERNEL_ROW`.
        width: of the output.
        first_x, y: the first place; the others follow a pixel apart.
        scratch: (`SCRATCH_ROWS` * width + `NODE_ROWS` * BEYOND,) float32.
        nodes_held: (TAPS,) int64 of which lines of nodes scratch holds what the rows before made; `NO_ROW` wherever
            `first_x` is another one.
        bends: `gpu_ops.image.fused.bends(rows)`.
        as_taps: of `nearest_pixels`.
    """  # scratch stays the caller's: numba frees an array after its last use
    at_x, at_y = scratch[:width], scratch[width : 2 * width]
    locate(row, width, first_x, y, at_x, at_y)
    if bends is not None and row.field:
        s = scratch.ctypes.data
        bend_row(row, s, s + 8 * width, width, first_x, y, width, nodes_held)
    _settle(row, at_x, at_y, as_taps)


@subroutine
def _indices(at, low, high, reflects, may_fill, indices):
    """Along an axis the pixel that stands for each coordinate, -1 where nothing of the image is seen."""
    num = high - low + ONE
    period, turn = border_period(reflects, num), border_turn(reflects, num)
    for i in range(len(at)):
        pixel = nearest(at[i])
        inside = is_inside(pixel, low, high)
        if reflects and not may_fill and inside == ZERO:
            pixel = continued(pixel, low, period, ONE / period, turn)
        shown = np.int32(clamp(pixel, low, high))
        indices[i] = np.int32(-1) if may_fill and inside == ZERO else shown - np.int32(low)


@subroutine
def _aligned_pixels(row, may_fill, first, image_width, found, as_taps):
    """`nearest_pixels` where a column of the output shows one of the image, and a row a row."""
    height, width = found.shape
    at_x, at_y = np.empty(width, np.float32), np.empty(height, np.float32)
    offset_x, offset_y = row.offset_x - HALF, row.offset_y - HALF
    for j in range(width):
        at_x[j] = linear(centred(np.int32(j), width), ZERO, row.after_xx, row.after_xy, offset_x)
    for i in range(height):
        at_y[i] = linear(ZERO, centred(np.int32(i), height), row.after_yx, row.after_yy, offset_y)
    _settle(row, at_x, at_y, as_taps)
    columns, lines = np.empty(width, np.int32), np.empty(height, np.int32)
    _indices(at_x, np.float32(row.low_x), np.float32(row.high_x), row.reflects, may_fill, columns)
    _indices(at_y, np.float32(row.low_y), np.float32(row.high_y), row.reflects, may_fill, lines)
    first += np.int32(row.low_y * image_width + row.low_x)
    for i in range(height):
        line = np.int32(first + lines[i] * image_width)
        for j in range(width):
            is_seen = (lines[i] >= 0) & (columns[j] >= 0)
            found[i, j] = line + columns[j] if is_seen else np.int32(-1)


@kernel()
def nearest_pixels(rows, item, fills, image_width, found, bends, as_taps):
    """Write which pixel of the image each output pixel shows, as its number from the image's first, row by row.

    Args:
        rows: (B,) `KERNEL_ROW` at full scale.
        item: the one of them.
        fills: whether -1 is written where nothing of the image is seen, whatever the image's border; else only where
            that is constant.
        image_width: of the source, in pixels.
        found: (H, W) int32 of an output image, written.
        bends: `gpu_ops.image.fused.bends(rows)`.
        as_taps: whether coordinates midway between two pixels are rounded as for an image that shows nearest pixels:
            the last bit of a coordinate decides.
    """
    row = rows[item]
    height, width = found.shape
    scratch = np.empty(SCRATCH_ROWS * width + NODE_ROWS * BEYOND, np.float32)
    at_x, at_y = scratch[:width], scratch[width : 2 * width]
    nodes_held = np.full(TAPS, NO_ROW)
    low_x, low_y = np.float32(row.low_x), np.float32(row.low_y)
    high_x, high_y = np.float32(row.high_x), np.float32(row.high_y)
    num_x, num_y = high_x - low_x + ONE, high_y - low_y + ONE
    period_x, period_y = border_period(row.reflects, num_x), border_period(row.reflects, num_y)
    turn_x, turn_y = border_turn(row.reflects, num_x), border_turn(row.reflects, num_y)
    inverse_period_x, inverse_period_y = ONE / period_x, ONE / period_y
    may_fill, reflects = fills or row.is_constant != 0, row.reflects != 0
    first = np.int32(row.origin_y * image_width + row.origin_x)
    image_width = np.int32(image_width)
    is_aligned = not row.has_lens and row.after_xy == ZERO and row.after_yx == ZERO
    if is_aligned and row.field != SPLINE:
        _aligned_pixels(row, may_fill, first, image_width, found, as_taps)
        return
    for i in range(height):
        y = centred(np.int32(i), height)
        look_up_row(row, width, centred(np.int32(0), width), y, scratch, nodes_held, bends, as_taps)
        num_outside = np.int32(0)
        for j in range(width):
            inside = is_inside(nearest(at_x[j]), low_x, high_x) * is_inside(nearest(at_y[j]), low_y, high_y)
            num_outside += np.int32(1) - np.int32(inside)
        if reflects and not may_fill and num_outside > 0:
            for j in range(width):
                at_x[j] = continued(nearest(at_x[j]), low_x, period_x, inverse_period_x, turn_x)
                at_y[j] = continued(nearest(at_y[j]), low_y, period_y, inverse_period_y, turn_y)
        if may_fill and num_outside > 0:
            for j in range(width):
                x, y = nearest(at_x[j]), nearest(at_y[j])
                inside = is_inside(x, low_x, high_x) * is_inside(y, low_y, high_y)
                pixel = np.int32(clamp(y, low_y, high_y)) * image_width + np.int32(clamp(x, low_x, high_x)) + first
                found[i, j] = pixel if inside != ZERO else np.int32(-1)
        else:
            for j in range(width):
                x, y = clamp(nearest(at_x[j]), low_x, high_x), clamp(nearest(at_y[j]), low_y, high_y)
                found[i, j] = np.int32(y) * image_width + np.int32(x) + first


declare(
    __name__,
    nearest_pixels,
    any=lambda: (np.zeros(1, KERNEL_ROW), 0, True, 1, np.zeros((1, 1), np.int32), None, True),
    bends=lambda: (np.zeros(1, KERNEL_ROW), 0, True, 1, np.zeros((1, 1), np.int32), True, True),
)


@kernel()
def take_classes(labels, found, fill, out):
    """Write the class of each pixel that an output pixel shows.

    Args:
        labels: (height * width,) uint8 of the source.
        found: (H, W) of `nearest_pixels`.
        fill: an int64, the class where nothing is shown.
        out: (H, W) int64, written.
    """
    height, width = found.shape
    for i in range(height):
        for j in range(width):
            pixel = found[i, j]
            shown = np.int64(labels[max(pixel, np.int32(0))])
            out[i, j] = shown if pixel >= 0 else fill


def _taking(labels: npt.NDArray[np.uint8]) -> tuple[Any, ...]:
    return labels, np.zeros((1, 1), np.int32), 0, np.zeros((1, 1), np.int64)


declare(
    __name__,
    take_classes,
    any=lambda: _taking(np.zeros(1, np.uint8)),
    read_only=lambda: _taking(np.frombuffer(b"\0", np.uint8)),  # as of files
)
