"""Look-ups of what is paired with an image: the label that most of a pixel shows, and values between pixels."""

from typing import Any

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.field import BEYOND, NODE_ROWS, TAPS
from augpipe.gpu_ops.image.fused import NO_ROW
from augpipe.gpu_ops.image.nearest import FURTHEST, HALF, ONE, SCRATCH_ROWS, ZERO, look_up_row, nearest
from augpipe.gpu_ops.image.rows import KERNEL_ROW, MEETING
from augpipe.gpu_ops.image.sampling import border_period, border_turn, clamp, continued, floor, is_inside
from augpipe.gpu_ops.image.scratch_rows import centred
from augpipe.gpu_ops.jit import kernel, leaf, subroutine


@subroutine
def _shown(row, fills):
    """First and last pixel of the image along x and y, whether a fill is seen beyond them, or how the image goes on."""
    may_fill = fills or row.is_constant != 0
    reflects = np.int32(0) if may_fill else np.int32(row.reflects)
    low_x, low_y = np.float32(row.low_x), np.float32(row.low_y)
    return low_x, low_y, np.float32(row.high_x), np.float32(row.high_y), may_fill, reflects


@subroutine
def _in_image(tap, low, high, reflects):
    """The pixel along an axis that stands for a whole number: beyond the edge, the outermost or a mirrored one."""
    if reflects and is_inside(tap, low, high) == ZERO:
        num = high - low + ONE
        period = border_period(reflects, num)
        tap = continued(tap, low, period, ONE / period, border_turn(reflects, num))
    return np.int32(clamp(tap, low, high))


@leaf
def _between(first, second, part):
    """The number that lies a part of 0..1 from one to another; only where both have a part does one that is not finite
    count."""
    is_first = (part == ZERO) | (first == second)
    return first if is_first else first * (ONE - part) + second * part


@subroutine
def _pixel(at_x, at_y, low_x, low_y, high_x, high_y, reflects, may_fill, first, image_width):
    """The number of the pixel that is nearest to a place, -1 where nothing is shown there."""
    x, y = nearest(at_x), nearest(at_y)
    inside = is_inside(x, low_x, high_x) * is_inside(y, low_y, high_y)
    pixel = _in_image(y, low_y, high_y, reflects) * np.int32(image_width) + _in_image(x, low_x, high_x, reflects)
    return np.int32(-1) if may_fill and inside == ZERO else np.int32(pixel + first)


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
    image that is nearest. Where images of a mosaic meet, the middle says whether an output pixel shows this one, and
    what lies outside does not count.

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
    low_x, low_y, high_x, high_y, may_fill, reflects = _shown(row, fills)
    first = np.int32(row.origin_y * image_width + row.origin_x)
    meets = row.is_constant == MEETING
    pixels, sorted_labels = np.empty((width, parts * parts), np.int32), np.empty(parts * parts, np.int64)
    nums, middles = np.zeros(width, np.int64), np.zeros(width, np.int32)
    for i in range(height):
        nums[:] = 0
        if meets:
            nodes_held[:] = NO_ROW
            y = centred(np.int32(i), height)
            look_up_row(row, width, centred(np.int32(0), width), y, scratch, nodes_held, bends, as_taps)
            for j in range(width):
                at_x, at_y = scratch[j], scratch[width + j]
                middles[j] = _pixel(at_x, at_y, low_x, low_y, high_x, high_y, reflects, may_fill, first, image_width)
        for across in range(parts):
            nodes_held[:] = NO_ROW
            first_x = centred(np.int32(0), width) + (np.float32(across) + HALF) / np.float32(parts) - HALF
            for down in range(parts):
                y = centred(np.int32(i), height) + (np.float32(down) + HALF) / np.float32(parts) - HALF
                look_up_row(row, width, first_x, y, scratch, nodes_held, bends, as_taps)
                for j in range(width):
                    at_x, at_y = scratch[j], scratch[width + j]
                    pixel = _pixel(at_x, at_y, low_x, low_y, high_x, high_y, reflects, may_fill, first, image_width)
                    if pixel >= 0 or not meets:
                        pixels[j, nums[j]] = pixel
                        nums[j] += 1
        for j in range(width):
            if middles[j] < 0 or nums[j] == 0:
                found[i, j] = middles[j]
            else:
                found[i, j] = _most_frequent(labels, pixels[j, : nums[j]], fill, sorted_labels)


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
    low_x, low_y, high_x, high_y, may_fill, reflects = _shown(row, fills)
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
                upper = _between(values[y0, x0, c], values[y0, x1, c], right_part)
                lower = _between(values[y1, x0, c], values[y1, x1, c], right_part)
                out[i, j, c] = _between(upper, lower, lower_part)


def _voting(bends: Any) -> tuple[Any, ...]:
    found = np.zeros((1, 1), np.int32)
    return np.zeros(1, KERNEL_ROW), 0, True, 1, np.zeros(1, np.int64), 0, 2, found, bends, True


def _interpolating(bends: Any) -> tuple[Any, ...]:
    values = np.zeros((1, 1, 1), np.float32)
    return np.zeros(1, KERNEL_ROW), 0, True, values, np.float32(0.0), values, bends


declare(__name__, majority_pixels, any=lambda: _voting(None), bends=lambda: _voting(True))
declare(__name__, linear_values, any=lambda: _interpolating(None), bends=lambda: _interpolating(True))
