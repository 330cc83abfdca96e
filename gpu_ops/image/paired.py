"""Look-ups of what is paired with an image: the label that most of a pixel shows, and values between pixels."""

from typing import Any

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.field import BEYOND, NODE_ROWS, TAPS
from augpipe.gpu_ops.image.fused import NO_ROW
from augpipe.gpu_ops.image.nearest import FURTHEST, HALF, ONE, SCRATCH_ROWS, ZERO, look_up_row, nearest
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.gpu_ops.image.sampling import border_period, border_turn, clamp, continued, floor, is_inside
from augpipe.gpu_ops.image.scratch_rows import centred
from augpipe.gpu_ops.jit import kernel, subroutine


@subroutine
def _in_image(tap, low, high, reflects):
    """The pixel along an axis that stands for a whole number: beyond the edge, the outermost or a mirrored one."""
    if reflects and is_inside(tap, low, high) == ZERO:
        num = high - low + ONE
        period = border_period(reflects, num)
        tap = continued(tap, low, period, ONE / period, border_turn(reflects, num))
    return np.int32(clamp(tap, low, high))


@subroutine
def _most_frequent(labels, pixels, fill, sorted_labels):
    """The first of the pixels whose label is the most frequent of theirs, the least of those where several are."""
    num, are_alike = len(pixels), True
    label = labels[pixels[0]] if pixels[0] >= 0 else fill
    for i in range(num):
        sorted_labels[i] = labels[pixels[i]] if pixels[i] >= 0 else fill
        are_alike &= sorted_labels[i] == label
    if are_alike:
        return pixels[0]
    for i in range(1, num):
        label, place = sorted_labels[i], i
        while place > 0 and sorted_labels[place - 1] > label:
            sorted_labels[place] = sorted_labels[place - 1]
            place -= 1
        sorted_labels[place] = label
    best, most, start = sorted_labels[0], 0, 0
    for i in range(1, num + 1):
        if i == num or sorted_labels[i] != sorted_labels[start]:
            if i - start > most:
                best, most = sorted_labels[start], i - start
            start = i
    for i in range(num):
        if (labels[pixels[i]] if pixels[i] >= 0 else fill) == best:
            return pixels[i]
    return pixels[0]


@kernel()
def majority_pixels(rows, item, fills, image_width, labels, fill, parts, found, bends, as_taps):
    """Write a pixel of the image that has the label which most of each output pixel shows.

    Each output pixel is looked at in `parts` x `parts` places, all as far from each other; each shows the pixel of the
    image that is nearest.

    Args:
        rows, item, fills, image_width, bends, as_taps: of `gpu_ops.image.nearest.nearest_pixels`.
        labels: (height * width,) int64 of the source.
        fill: an int64, the label where nothing is shown.
        parts: of an output pixel along each side.
        found: (H, W) int32 of an output image, written: a pixel's number, -1 where nothing is shown.
    """
    row = rows[item]
    height, width = found.shape
    scratch = np.empty(SCRATCH_ROWS * width + NODE_ROWS * BEYOND, np.float32)
    nodes_held = np.full(TAPS, NO_ROW)
    low_x, low_y, high_x, high_y = (
        np.float32(row.low_x),
        np.float32(row.low_y),
        np.float32(row.high_x),
        np.float32(row.high_y),
    )
    may_fill = fills or row.is_constant != 0
    reflects = np.int32(0) if may_fill else np.int32(row.reflects)
    first = np.int32(row.origin_y * image_width + row.origin_x)
    pixels, sorted_labels = np.empty((width, parts * parts), np.int32), np.empty(parts * parts, np.int64)
    for i in range(height):
        for across in range(parts):
            nodes_held[:] = NO_ROW
            first_x = centred(np.int32(0), width) + (np.float32(across) + HALF) / np.float32(parts) - HALF
            for down in range(parts):
                y = centred(np.int32(i), height) + (np.float32(down) + HALF) / np.float32(parts) - HALF
                look_up_row(row, width, first_x, y, scratch, nodes_held, bends, as_taps)
                for j in range(width):
                    at_x, at_y = nearest(scratch[j]), nearest(scratch[width + j])
                    inside = is_inside(at_x, low_x, high_x) * is_inside(at_y, low_y, high_y)
                    pixel = _in_image(at_y, low_y, high_y, reflects) * np.int32(image_width)
                    pixel += _in_image(at_x, low_x, high_x, reflects) + first
                    pixels[j, across * parts + down] = np.int32(-1) if may_fill and inside == ZERO else pixel
        for j in range(width):
            found[i, j] = _most_frequent(labels, pixels[j], fill, sorted_labels)


@kernel()
def linear_values(rows, item, fills, values, fill, out, bends):
    """Interpolate linearly between the four pixels around the place that each output pixel shows.

    Args:
        rows, item, fills, bends: of `gpu_ops.image.nearest.nearest_pixels`.
        values: (height, width, C) float32 of the source.
        fill: a float32, the value where nothing is shown.
        out: (H, W, C) float32, written.
    """
    row = rows[item]
    height, width, num = out.shape
    scratch = np.empty(SCRATCH_ROWS * width + NODE_ROWS * BEYOND, np.float32)
    nodes_held = np.full(TAPS, NO_ROW)
    low_x, low_y, high_x, high_y = (
        np.float32(row.low_x),
        np.float32(row.low_y),
        np.float32(row.high_x),
        np.float32(row.high_y),
    )
    may_fill = fills or row.is_constant != 0
    reflects = np.int32(0) if may_fill else np.int32(row.reflects)
    origin_x, origin_y = np.int32(row.origin_x), np.int32(row.origin_y)
    for i in range(height):
        y = centred(np.int32(i), height)
        look_up_row(row, width, centred(np.int32(0), width), y, scratch, nodes_held, bends, False)
        for j in range(width):
            at_x = clamp(scratch[j], -FURTHEST, FURTHEST)
            at_y = clamp(scratch[width + j], -FURTHEST, FURTHEST)
            inside = is_inside(nearest(at_x), low_x, high_x) * is_inside(nearest(at_y), low_y, high_y)
            if may_fill and inside == ZERO:
                for c in range(num):
                    out[i, j, c] = fill
                continue
            left, top = floor(at_x), floor(at_y)
            right_part, lower_part = at_x - left, at_y - top
            x0, x1 = _in_image(left, low_x, high_x, reflects), _in_image(left + ONE, low_x, high_x, reflects)
            y0, y1 = _in_image(top, low_y, high_y, reflects), _in_image(top + ONE, low_y, high_y, reflects)
            x0, x1, y0, y1 = x0 + origin_x, x1 + origin_x, y0 + origin_y, y1 + origin_y
            for c in range(num):
                upper = values[y0, x0, c] + right_part * (values[y0, x1, c] - values[y0, x0, c])
                lower = values[y1, x0, c] + right_part * (values[y1, x1, c] - values[y1, x0, c])
                out[i, j, c] = upper + lower_part * (lower - upper)


def _voting(bends: Any) -> tuple[Any, ...]:
    found = np.zeros((1, 1), np.int32)
    return np.zeros(1, KERNEL_ROW), 0, True, 1, np.zeros(1, np.int64), 0, 2, found, bends, True


def _interpolating(bends: Any) -> tuple[Any, ...]:
    values = np.zeros((1, 1, 1), np.float32)
    return np.zeros(1, KERNEL_ROW), 0, True, values, np.float32(0.0), values, bends


declare(__name__, majority_pixels, any=lambda: _voting(None), bends=lambda: _voting(True))
declare(__name__, linear_values, any=lambda: _interpolating(None), bends=lambda: _interpolating(True))
