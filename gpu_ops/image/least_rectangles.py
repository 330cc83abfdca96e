"""Rectangles of least area around groups of points.

One side lies on an edge of the convex hull (Freeman and Shapira 1975).
"""

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel, leaf, subroutine

LESS = 1.0 - 1e-12
"""A direction is taken if its rectangle is smaller by more than rounding: all sides of a rectangle give the same."""


@leaf
def turn(hull, num, x, y):
    """Twice the area on the left of a way from the last but one of `num` corners by the last one to a point."""
    from_x, from_y = hull[num - 2, 0], hull[num - 2, 1]
    return (hull[num - 1, 0] - from_x) * (y - from_y) - (hull[num - 1, 1] - from_y) * (x - from_x)


@subroutine
def sort(points, first, last, ordered):
    """Write points into `ordered`, those on the left first, and of these the upper ones."""
    for n in range(last - first):
        x, y = points[first + n, 0], points[first + n, 1]
        place = n
        while place > 0 and (ordered[place - 1, 0] > x or (ordered[place - 1, 0] == x and ordered[place - 1, 1] > y)):
            ordered[place, 0], ordered[place, 1] = ordered[place - 1, 0], ordered[place - 1, 1]
            place -= 1
        ordered[place, 0], ordered[place, 1] = x, y


@subroutine
def hull_of(ordered, num, hull):
    """Write the corners of the convex hull of sorted points, and say how many there are (Andrew 1979)."""
    size = 0
    for way in range(2):  # along one side, and back along the other
        begin = max(size, 1)
        for step in range(way, num):
            n = step if way == 0 else num - 1 - step
            x, y = ordered[n, 0], ordered[n, 1]
            while size > begin and turn(hull, size, x, y) <= 0.0:
                size -= 1
            hull[size, 0], hull[size, 1] = x, y
            size += 1
    return max(size - 1, min(num, 1))  # the way back ends where it began


@kernel()
def enclose(points, starts, corners):
    """Write the rectangle of least area around each group of points; zeros where a group has none.

    Args:
        points: (N, 2) float64, group after group.
        starts: (R + 1,) int64, where each group begins and the last one ends.
        corners: (R, 4, 2) float64, written: clockwise as seen, with y downwards.
    """
    most = 0
    for group in range(len(starts) - 1):
        most = max(most, starts[group + 1] - starts[group])
    ordered, hull = np.empty((most, 2)), np.empty((2 * most + 2, 2))
    for group in range(len(starts) - 1):
        first, last = starts[group], starts[group + 1]
        corners[group] = 0.0
        if last == first:
            continue
        sort(points, first, last, ordered)
        size = hull_of(ordered, last - first, hull)
        at_x, at_y = hull[0, 0], hull[0, 1]
        corners[group, :, 0], corners[group, :, 1] = at_x, at_y
        least = np.inf
        for n in range(size):
            following = n + 1 if n + 1 < size else 0
            along_x, along_y = hull[following, 0] - hull[n, 0], hull[following, 1] - hull[n, 1]
            length = np.sqrt(along_x * along_x + along_y * along_y)
            if not length > 0.0:
                continue
            along_x, along_y = along_x / length, along_y / length
            low_u, low_v, high_u, high_v = np.inf, np.inf, -np.inf, -np.inf
            for corner in range(size):
                x, y = hull[corner, 0] - at_x, hull[corner, 1] - at_y
                u, v = x * along_x + y * along_y, y * along_x - x * along_y
                low_u, low_v, high_u, high_v = min(low_u, u), min(low_v, v), max(high_u, u), max(high_v, v)
            area = (high_u - low_u) * (high_v - low_v)
            if area < LESS * least:
                least = area
                for corner in range(4):
                    u = low_u if corner == 0 or corner == 3 else high_u
                    v = low_v if corner < 2 else high_v
                    corners[group, corner, 0] = at_x + u * along_x - v * along_y
                    corners[group, corner, 1] = at_y + u * along_y + v * along_x


declare(__name__, enclose, any=lambda: (np.zeros((1, 2)), np.zeros(2, np.int64), np.zeros((1, 4, 2))))
