"""A look at what an output shows of an image: at the centres of all its pixels, or at their corners."""

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.field import BEYOND, NODE_ROWS, TAPS, bend_row
from augpipe.gpu_ops.image.fused import NO_ROW
from augpipe.gpu_ops.image.nearest import locate
from augpipe.gpu_ops.image.rings import pixels_before
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.gpu_ops.jit import kernel, subroutine

HALF = np.float32(0.5)
TILE = 16
"""Pixels along each side of a tile, of which the bounds of what it shows are known."""
REACH_PX = 0.25
"""How far beyond known bounds a pixel's centre lies at least that widens them, and they reach beyond it then."""


@kernel()
def look_up_places(rows, item, sources):
    """Write where the centres of an output's pixels come from, or their corners, by the leaves that render it.

    Args:
        rows: (B,) `KERNEL_ROW` at full scale.
        item: the one of them.
        sources: (H, W, 2) float32, of centres, or (H + 1, W + 1, 2) of corners, written: x and y in source pixels from
            the row's origin, where centres lie at +0.5.
    """
    row = rows[item]
    height, width = sources.shape[0], sources.shape[1]
    scratch = np.empty(2 * width + NODE_ROWS * (width + BEYOND), np.float32)
    at_x, at_y = scratch[:width], scratch[width : 2 * width]
    nodes_held = np.full(TAPS, NO_ROW)
    first_x = -HALF * np.float32(width - 1)
    for i in range(height):
        y = np.float32(i) - HALF * np.float32(height - 1)
        locate(row, width, first_x, y, at_x, at_y)
        if row.field:
            s = scratch.ctypes.data  # in the loop, as numba frees an array after its last use
            bend_row(row, s, s + 8 * width, width, first_x, y, width, nodes_held)
        for j in range(width):
            sources[i, j, 0], sources[i, j, 1] = at_x[j] + HALF, at_y[j] + HALF


@kernel()
def bound_tiles(sources, tiles):
    """Write into (.., .., 5) float32 left, top, right and bottom of what the places of each tile show, and those that
    follow it to the right and below; and more than what lies between the corners of a pixel, along x or y."""
    height, width = sources.shape[0], sources.shape[1]
    for line in range(tiles.shape[0]):
        for column in range(tiles.shape[1]):
            left, top, right, bottom = np.float32(np.inf), np.float32(np.inf), -np.float32(np.inf), -np.float32(np.inf)
            across, down = np.float32(0.0), np.float32(0.0)
            for i in range(line * TILE, min((line + 1) * TILE + 1, height)):
                for j in range(column * TILE, min((column + 1) * TILE + 1, width)):
                    x, y = sources[i, j, 0], sources[i, j, 1]
                    left, right = min(left, x), max(right, x)
                    top, bottom = min(top, y), max(bottom, y)
                    if j > column * TILE:
                        across = max(across, max(abs(x - sources[i, j - 1, 0]), abs(y - sources[i, j - 1, 1])))
                    if i > line * TILE:
                        down = max(down, max(abs(x - sources[i - 1, j, 0]), abs(y - sources[i - 1, j, 1])))
            tiles[line, column, 0], tiles[line, column, 1] = left, top
            tiles[line, column, 2], tiles[line, column, 3] = right, bottom
            tiles[line, column, 4] = across + down


@kernel()
def find_folds(sources, turn, folds):
    """Write into (H, W) bool which pixels are shown mirrored or lie next to such.

    Args:
        sources: (H + 1, W + 1, 2) of `look_up_places`.
        turn: 1.0, or -1.0 of an image that is mirrored as a whole.
        folds: written.
    """
    height, width = folds.shape
    folds[:] = False
    for i in range(height):
        for j in range(width):
            x, y = sources[i, j, 0], sources[i, j, 1]
            along_x, along_y = sources[i, j + 1, 0] - x, sources[i, j + 1, 1] - y
            below_x, below_y = sources[i + 1, j, 0] - x, sources[i + 1, j, 1] - y
            to_x, to_y = sources[i + 1, j + 1, 0], sources[i + 1, j + 1, 1]
            on_x, on_y = to_x - sources[i + 1, j, 0], to_y - sources[i + 1, j, 1]
            down_x, down_y = to_x - sources[i, j + 1, 0], to_y - sources[i, j + 1, 1]
            least = min(
                min(turn * (along_x * below_y - along_y * below_x), turn * (along_x * down_y - along_y * down_x)),
                min(turn * (on_x * below_y - on_y * below_x), turn * (on_x * down_y - on_y * down_x)),
            )
            if least <= 0.0:
                folds[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2] = True


@subroutine
def _holds(points, first, last, x, y):
    """Whether a ring, which begins and ends at these numbers of points, has a point inside."""
    is_inside = False
    for n in range(first, last):
        before = n - 1 if n > first else last - 1
        from_y, to_y = points[before, 1], points[n, 1]
        if (from_y <= y) != (to_y <= y):
            share = (y - from_y) / (to_y - from_y)
            is_inside ^= x < points[before, 0] + share * (points[n, 0] - points[before, 0])
    return is_inside


@subroutine
def _first_shown(points, first, last, origin_x, origin_y, sources, bounds, side):
    """The place of the first row or column of pixels whose centres lie within bounds and show a ring's inside, from a
    side on (0 left, 1 top, 2 right, 3 bottom); NaN where there is none."""
    begin_x, end_x = pixels_before(bounds[0], sources.shape[1]), pixels_before(bounds[2], sources.shape[1])
    begin_y, end_y = pixels_before(bounds[1], sources.shape[0]), pixels_before(bounds[3], sources.shape[0])
    is_column = side % 2 == 0
    begin, end = (begin_x, end_x) if is_column else (begin_y, end_y)
    from_other, to_other = (begin_y, end_y) if is_column else (begin_x, end_x)
    for nth in range(end - begin):
        at = begin + nth if side < 2 else end - 1 - nth
        for other in range(from_other, to_other):
            i, j = (other, at) if is_column else (at, other)
            if _holds(points, first, last, sources[i, j, 0] + origin_x, sources[i, j, 1] + origin_y):
                return at + 0.5
    return np.nan


@kernel()
def fit_bounds(points, starts, which, rows, item, sources, tiles, limits, bounds):
    """Bring the bounds of rings to within a pixel of those pixels that show their inside, wherever a fold does.

    Args:
        points, starts: rings, in source pixels.
        which: (M,) int64, the rings that are looked for.
        rows, item: as of `look_up_places`.
        sources, tiles: of pixels' centres, in the same pixels.
        limits: (R, 4) left, top, right, bottom of the part of the output that counts, for each ring.
        bounds: (R, 4) the same of what is known of each, zeros of what is not shown; written.
    """
    origin_x, origin_y = np.float64(rows[item].origin_x), np.float64(rows[item].origin_y)
    height, width = sources.shape[0], sources.shape[1]
    for ring in which:
        first, last = starts[ring], starts[ring + 1]
        left, top, right, bottom = np.inf, np.inf, -np.inf, -np.inf
        for n in range(first, last):
            left, right = min(left, points[n, 0] - origin_x), max(right, points[n, 0] - origin_x)
            top, bottom = min(top, points[n, 1] - origin_y), max(bottom, points[n, 1] - origin_y)
        low_x, low_y, high_x, high_y = bounds[ring]
        if not (high_x > low_x and high_y > low_y):
            low_x, low_y, high_x, high_y = np.inf, np.inf, -np.inf, -np.inf
        begin_x, begin_y, end_x, end_y = limits[ring]
        for line in range(tiles.shape[0]):
            for column in range(tiles.shape[1]):
                if tiles[line, column, 0] > right or tiles[line, column, 2] < left:
                    continue
                if tiles[line, column, 1] > bottom or tiles[line, column, 3] < top:
                    continue
                for i in range(line * TILE, min((line + 1) * TILE, height)):
                    at_y = i + 0.5
                    is_between = at_y >= low_y - REACH_PX and at_y <= high_y + REACH_PX
                    for j in range(column * TILE, min((column + 1) * TILE, width)):
                        at_x = j + 0.5
                        if is_between and at_x >= low_x - REACH_PX and at_x <= high_x + REACH_PX:
                            continue
                        if not (begin_x <= at_x and at_x <= end_x and begin_y <= at_y and at_y <= end_y):
                            continue
                        x, y = np.float64(sources[i, j, 0]), np.float64(sources[i, j, 1])
                        if not (left <= x and x <= right and top <= y and y <= bottom):
                            continue
                        if _holds(points, first, last, x + origin_x, y + origin_y):
                            low_x, high_x = min(low_x, at_x - REACH_PX), max(high_x, at_x + REACH_PX)
                            low_y, high_y = min(low_y, at_y - REACH_PX), max(high_y, at_y + REACH_PX)
                            is_between = True
        if not high_x >= low_x:
            continue
        found = bounds[ring]
        found[0], found[1] = max(low_x, begin_x), max(low_y, begin_y)
        found[2], found[3] = min(high_x, end_x), min(high_y, end_y)
        for side in range(4):
            at = _first_shown(points, first, last, origin_x, origin_y, sources, found, side)
            if np.isnan(at):  # what is thinner than a pixel
                break
            found[side] = max(found[side], at - 1.0) if side < 2 else min(found[side], at + 1.0)


_ROWS, _SOURCES, _TILES = np.zeros(1, KERNEL_ROW), np.zeros((2, 2, 2), np.float32), np.zeros((1, 1, 5), np.float32)
_RINGS, _EDGES = np.zeros(2, np.int64), np.zeros((1, 4))
declare(__name__, look_up_places, any=lambda: (_ROWS, 0, _SOURCES))
declare(__name__, bound_tiles, any=lambda: (_SOURCES, _TILES))
declare(__name__, find_folds, any=lambda: (_SOURCES, 1.0, np.zeros((1, 1), np.bool_)))
declare(
    __name__,
    fit_bounds,
    any=lambda: (np.zeros((1, 2)), _RINGS, _RINGS, _ROWS, 0, _SOURCES, _TILES, _EDGES, _EDGES),
)
