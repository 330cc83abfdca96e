"""Closed outlines, one behind the other in one array, and what lies of them on one side of a line."""

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel


@kernel()
def clip(points, starts, lines, kept, ends):
    """Cut each ring at a line of its own (Sutherland and Hodgman 1974); parts stay connected along the line.

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
        first, last = starts[ring], starts[ring + 1]
        for n in range(first, last):
            before = n - 1 if n > first else last - 1
            x, y, from_x, from_y = points[n, 0], points[n, 1], points[before, 0], points[before, 1]
            here, there = a * x + b * y + c, a * from_x + b * from_y + c
            if (here >= 0.0) != (there >= 0.0):
                share = there / (there - here)
                kept[num, 0], kept[num, 1] = from_x + share * (x - from_x), from_y + share * (y - from_y)
                num += 1
            if here >= 0.0:
                kept[num, 0], kept[num, 1] = x, y
                num += 1
        ends[ring + 1] = num


declare(
    __name__,
    clip,
    any=lambda: (np.zeros((1, 2)), np.zeros(2, np.int64), np.zeros((1, 3)), np.zeros((2, 2)), np.zeros(2, np.int64)),
)


@kernel()
def measure(points, starts, areas, bounds):
    """Write (R,) areas of the rings, and (R, 4) left, top, right, bottom; zeros for a ring without corners."""
    for ring in range(len(starts) - 1):
        first, last = starts[ring], starts[ring + 1]
        areas[ring] = 0.0
        bounds[ring, :] = 0.0
        if first == last:
            continue
        bounds[ring, 0], bounds[ring, 1] = np.inf, np.inf
        bounds[ring, 2], bounds[ring, 3] = -np.inf, -np.inf
        doubled = 0.0
        at_x, at_y = points[first, 0], points[first, 1]  # areas are summed up from there, so that little is cancelled
        for n in range(first, last):
            before = n - 1 if n > first else last - 1
            x, y = points[n, 0], points[n, 1]
            doubled += (points[before, 0] - at_x) * (y - at_y) - (x - at_x) * (points[before, 1] - at_y)
            bounds[ring, 0], bounds[ring, 1] = min(bounds[ring, 0], x), min(bounds[ring, 1], y)
            bounds[ring, 2], bounds[ring, 3] = max(bounds[ring, 2], x), max(bounds[ring, 3], y)
        areas[ring] = 0.5 * abs(doubled)


declare(__name__, measure, any=lambda: (np.zeros((1, 2)), np.zeros(2, np.int64), np.zeros(1), np.zeros((1, 4))))
