"""Closed outlines, one behind the other in one array, and what lies of them on one side of a line."""

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel, leaf, subroutine

INSET = 1e-9
"""Of a frame's sides, from its corner to the point that stands for it."""
STRAIGHT = 1e-18
"""The squared sine below which three points lie on a line."""


@leaf
def turns_back(points, first, second, third):
    """Whether a way along three points leads back on itself at the second one, or stands still there."""
    to_x, to_y = points[second, 0] - points[first, 0], points[second, 1] - points[first, 1]
    on_x, on_y = points[third, 0] - points[second, 0], points[third, 1] - points[second, 1]
    length2 = (to_x * to_x + to_y * to_y) * (on_x * on_x + on_y * on_y)
    cross = to_x * on_y - to_y * on_x
    return cross * cross <= STRAIGHT * length2 and to_x * on_x + to_y * on_y <= 0.0


@subroutine
def pixels_before(edge, num):
    """How many of `num` pixels have their centres before a place; none before what is not a number."""
    if not edge > 0.5:
        return 0
    return num if edge >= num else int(np.ceil(edge - 0.5))


@subroutine
def without_spur(kept, begin, num):
    """How many of the `num` points stay where those before the last one lead back on themselves."""
    while num - begin >= 3 and turns_back(kept, num - 3, num - 2, num - 1):
        num -= 1
        kept[num - 1] = kept[num]
    return num


@kernel()
def clip(points, starts, lines, kept, ends):
    """Cut each ring at a line of its own (Sutherland and Hodgman 1974); parts stay connected along the line.

    Where the ring goes along the line and back without an area, nothing of that stays.

    Args:
        points: (N, 2) float64 corners, ring after ring.
        starts: (R + 1,) int64, where each ring begins and the last one ends.
        lines: (R, 3) float64: a point (x, y) stays where a x + b y + c is at least 0.
        kept: (2 N, 2) float64, written: the corners that stay or are new, as many as `ends` says last.
        ends: (R + 1,) int64, written: the `starts` of what stays; some rings may have no corners then.
    """
    num = 0
    ends[0] = 0
    for ring in range(len(starts) - 1):
        a, b, c = lines[ring]
        first, last, begin = starts[ring], starts[ring + 1], num
        is_cut = False
        for n in range(first, last):
            is_cut |= not a * points[n, 0] + b * points[n, 1] + c >= 0.0
        if not is_cut:  # to the last bit what it was, whatever other rings are cut with it
            for n in range(first, last):
                kept[num, 0], kept[num, 1] = points[n, 0], points[n, 1]
                num += 1
            ends[ring + 1] = num
            continue
        for n in range(first, last):
            before = n - 1 if n > first else last - 1
            x, y, from_x, from_y = points[n, 0], points[n, 1], points[before, 0], points[before, 1]
            here, there = a * x + b * y + c, a * from_x + b * from_y + c
            if (here >= 0.0) != (there >= 0.0):
                share = there / (there - here)
                kept[num, 0], kept[num, 1] = from_x + share * (x - from_x), from_y + share * (y - from_y)
                num = without_spur(kept, begin, num + 1)
            if here >= 0.0:
                kept[num, 0], kept[num, 1] = x, y
                num = without_spur(kept, begin, num + 1)
        while num - begin >= 3 and turns_back(kept, num - 2, num - 1, begin):
            num -= 1
        while num - begin >= 3 and turns_back(kept, num - 1, begin, begin + 1):
            num -= 1
            kept[begin] = kept[num]
        num = num if num - begin >= 3 else begin
        ends[ring + 1] = num


declare(
    __name__,
    clip,
    any=lambda: (np.zeros((1, 2)), np.zeros(2, np.int64), np.zeros((1, 3)), np.zeros((2, 2)), np.zeros(2, np.int64)),
)


@kernel()
def measure(points, starts, areas):
    """Write (R,) areas of the rings; 0 for one without corners."""
    for ring in range(len(starts) - 1):
        first, last = starts[ring], starts[ring + 1]
        doubled = 0.0
        for n in range(first, last):
            before = n - 1 if n > first else last - 1
            # counted from the first corner, so that little is cancelled
            x, y = points[n, 0] - points[first, 0], points[n, 1] - points[first, 1]
            from_x, from_y = points[before, 0] - points[first, 0], points[before, 1] - points[first, 1]
            doubled += from_x * y - x * from_y
        areas[ring] = 0.5 * abs(doubled)


declare(__name__, measure, any=lambda: (np.zeros((1, 2)), np.zeros(2, np.int64), np.zeros(1)))


@kernel()
def bound(points, starts, frames, bounds):
    """Write (R, 4) left, top, right and bottom of what lies of each ring's area within its frame; zeros of nothing.

    That is bounded by the edges within the frame, and by those corners of the frame that the ring holds. What only
    touches the frame from outside does not count.

    Args:
        points, starts: the rings.
        frames: (R, 4) left, top, right, bottom.
        bounds: (R, 4) float64, written.
    """
    for ring in range(len(starts) - 1):
        first, last = starts[ring], starts[ring + 1]
        left, top, right, bottom = frames[ring]
        low_x, low_y, high_x, high_y = np.inf, np.inf, -np.inf, -np.inf
        holds = np.zeros(4, np.bool_)
        inset_x, inset_y = INSET * (right - left), INSET * (bottom - top)
        for n in range(first, last):
            before = n - 1 if n > first else last - 1
            x, y, from_x, from_y = points[n, 0], points[n, 1], points[before, 0], points[before, 1]
            step_x, step_y = x - from_x, y - from_y
            begin, end = 0.0, 1.0
            for way, room in (
                (-step_x, from_x - left),
                (step_x, right - from_x),
                (-step_y, from_y - top),
                (step_y, bottom - from_y),
            ):
                if way == 0.0:
                    end = end if room > 0.0 else -1.0
                elif way < 0.0:
                    begin = max(begin, room / way)
                else:
                    end = min(end, room / way)
            if begin < end:
                for share in (begin, end):
                    at_x, at_y = from_x + share * step_x, from_y + share * step_y
                    low_x, low_y, high_x, high_y = (
                        min(low_x, at_x),
                        min(low_y, at_y),
                        max(high_x, at_x),
                        max(high_y, at_y),
                    )
            for corner in range(4):
                corner_x = left + inset_x if corner % 2 == 0 else right - inset_x
                corner_y = top + inset_y if corner < 2 else bottom - inset_y
                if (from_y <= corner_y) != (y <= corner_y):
                    holds[corner] ^= corner_x < from_x + (corner_y - from_y) * step_x / step_y
        for corner in range(4):
            if holds[corner]:
                corner_x, corner_y = left if corner % 2 == 0 else right, top if corner < 2 else bottom
                low_x, low_y = min(low_x, corner_x), min(low_y, corner_y)
                high_x, high_y = max(high_x, corner_x), max(high_y, corner_y)
        bounds[ring, 0], bounds[ring, 1], bounds[ring, 2], bounds[ring, 3] = low_x, low_y, high_x, high_y
        if low_x > high_x:
            bounds[ring, :] = 0.0


declare(__name__, bound, any=lambda: (np.zeros((1, 2)), np.zeros(2, np.int64), np.zeros((1, 4)), np.zeros((1, 4))))


@kernel()
def fill(points, starts, owners, masks):
    """Write 1 into the pixels whose centre lies within a ring: a line to it crosses the ring an odd number of times.

    Args:
        points, starts: R rings, in pixels of the masks.
        owners: (R,) int64, the mask that each belongs to.
        masks: (N, H, W) uint8, written.
    """
    height, width = masks.shape[1], masks.shape[2]
    most = 0
    for ring in range(len(starts) - 1):
        most = max(most, starts[ring + 1] - starts[ring])
    crossings = np.empty(most, np.float64)
    for ring in range(len(starts) - 1):
        first, last, mask = starts[ring], starts[ring + 1], masks[owners[ring]]
        low, high = np.inf, -np.inf
        for n in range(first, last):
            low, high = min(low, points[n, 1]), max(high, points[n, 1])
        for i in range(pixels_before(low, height), pixels_before(high, height)):
            y, num = i + 0.5, 0
            for n in range(first, last):
                before = n - 1 if n > first else last - 1
                from_y, to_y = points[before, 1], points[n, 1]
                if (from_y <= y) != (to_y <= y):
                    share = (y - from_y) / (to_y - from_y)
                    x = points[before, 0] + share * (points[n, 0] - points[before, 0])
                    place = num
                    while place > 0 and crossings[place - 1] > x:
                        crossings[place] = crossings[place - 1]
                        place -= 1
                    crossings[place] = x
                    num += 1
            for pair in range(0, num - 1, 2):
                for j in range(pixels_before(crossings[pair], width), pixels_before(crossings[pair + 1], width)):
                    mask[i, j] = 1


declare(
    __name__,
    fill,
    any=lambda: (np.zeros((1, 2)), np.zeros(2, np.int64), np.zeros(1, np.int64), np.zeros((1, 1, 1), np.uint8)),
)
