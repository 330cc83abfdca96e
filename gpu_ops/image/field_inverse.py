"""The inverse of grids and elastic fields: which places of the frame show a point of the image.

A grid is inverted axis by axis and cell by cell. For an elastic field there is a look at the corners of all pixels of
the output: Newton's method begins in those pixels in which a point may lie, in float64 on the kernel row's numbers.
"""

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.field import TAPS, spline, two_nodes
from augpipe.gpu_ops.image.frame_look import TILE
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.gpu_ops.jit import kernel, leaf, subroutine

MOST_PLACES = 16
"""Different places that are kept of those that show a point."""
MOST_STEPS = 20
LONGEST_STEP_PX = 1.0
NEAR_PX = 1e-4
"""A point is found where its place in the image is missed by less."""
SAME_PX = 0.01
WIDER = 0.25
"""How far beyond a triangle's sides, in parts of them, Newton's method begins there: its sides are curved."""
NUM_GUESSES = 12
"""Rounds that guess where a point outside the frame lies; displacements there are those of the nearest border."""


@subroutine
def _hold_nodes(row, column, line, held, nodes):
    """Have (TAPS, TAPS, 2) `nodes` be those from a column and a line on; `held` says which they are."""
    if held[0] == column and held[1] == line:
        return
    held[0], held[1] = column, line
    for down in range(TAPS):
        for pair in range(column // 2, (column + TAPS - 1) // 2 + 1):
            made = two_nodes(pair, line + down, row.field_key[0], row.field_key[1])
            for nth in range(2):
                right = 2 * pair + nth - column
                if 0 <= right and right < TAPS:
                    nodes[down, right, 0], nodes[down, right, 1] = made[2 * nth], made[2 * nth + 1]


@leaf
def _spline_slope(signed):
    """The slope of the cubic B-spline at a signed distance from its middle, in nodes."""
    distance = abs(signed)
    outer, inner = max(2.0 - distance, 0.0), max(1.0 - distance, 0.0)
    slope = 0.5 * (4.0 * inner * inner - outer * outer)
    return slope if signed > 0.0 else -slope


@subroutine
def _displacement(row, x, y, half_x, half_y, held, nodes, found):
    """Write how far the field moves what a point shows, in source pixels, and how that changes along x and y.

    Args:
        x, y: in pixels from the output's centre; outside the frame the field is that of its edge.
        found: (6,) moved along x and y, and the slopes of these along x, and along y.
    """
    within_x, within_y = min(max(x, -half_x), half_x), min(max(y, -half_y), half_y)
    along_x = row.field_scale_x * within_x + row.field_x0
    along_y = row.field_scale_y * within_y + row.field_y0
    column, line = np.int64(max(np.floor(along_x) - 1.0, 0.0)), np.int64(np.floor(along_y) - 1.0)
    _hold_nodes(row, column, line, held, nodes)
    found[:] = 0.0
    for down in range(TAPS):
        off_y = along_y - (line + down)
        weight_y, slope_y = spline(off_y), _spline_slope(off_y)
        for right in range(TAPS):
            off_x = along_x - (column + right)
            weight_x, slope_x = spline(off_x), _spline_slope(off_x)
            for axis in range(2):
                node = nodes[down, right, axis]
                found[axis] += node * weight_x * weight_y
                found[2 + axis] += node * slope_x * weight_y
                found[4 + axis] += node * weight_x * slope_y
    scale_x = row.field_scale_x if x == within_x else 0.0
    scale_y = row.field_scale_y if y == within_y else 0.0
    for nth in range(3):
        scale = 1.0 if nth == 0 else scale_x if nth == 1 else scale_y
        moved_x, moved_y = found[2 * nth] * scale, found[2 * nth + 1] * scale
        found[2 * nth] = row.field_xx * moved_x + row.field_xy * moved_y
        found[2 * nth + 1] = row.field_yx * moved_x + row.field_yy * moved_y


@subroutine
def _forward(row, x, y, half_x, half_y, held, nodes, moved, found):
    """Write into (6,) `found` what a point of the output shows, and the slopes along x and along y; `moved` is of the
    displacement in it."""
    _displacement(row, x, y, half_x, half_y, held, nodes, moved)
    u, v, u_x, v_x, u_y, v_y = x, y, 1.0, 0.0, 0.0, 1.0
    if row.has_lens:
        inverse = 1.0
        wx, wy = 0.0, 0.0
        u, v = row.before_xx * x + row.before_xy * y, row.before_yx * x + row.before_yy * y
        if row.has_projection:
            divisor = row.before_wx * x + row.before_wy * y + row.before_w0
            is_far = divisor < 0.125
            wx, wy = 0.0 if is_far else row.before_wx, 0.0 if is_far else row.before_wy
            inverse = 1.0 / max(divisor, 0.125)
            u, v = u + row.before_x0, v + row.before_y0
        u, v = u * inverse, v * inverse
        u_x, v_x = (row.before_xx - u * wx) * inverse, (row.before_yx - v * wx) * inverse
        u_y, v_y = (row.before_xy - u * wy) * inverse, (row.before_yy - v * wy) * inverse
    found[0] = row.after_xx * u + row.after_xy * v + row.offset_x + moved[0]
    found[1] = row.after_yx * u + row.after_yy * v + row.offset_y + moved[1]
    found[2] = row.after_xx * u_x + row.after_xy * v_x + moved[2]
    found[3] = row.after_yx * u_x + row.after_yy * v_x + moved[3]
    found[4] = row.after_xx * u_y + row.after_xy * v_y + moved[4]
    found[5] = row.after_yx * u_y + row.after_yy * v_y + moved[5]


@subroutine
def _newton(row, point_x, point_y, x, y, half_x, half_y, held, nodes, moved, at):
    """The place that shows a point, from one on, whether it does, and the turn of the map there: x, y, missed, turn."""
    missed = np.inf
    turn = 0.0
    for _ in range(MOST_STEPS):
        _forward(row, x, y, half_x, half_y, held, nodes, moved, at)
        off_x, off_y = point_x - at[0], point_y - at[1]
        missed, turn = max(abs(off_x), abs(off_y)), at[2] * at[5] - at[3] * at[4]
        if missed < 0.01 * NEAR_PX or abs(turn) < 1e-9:
            break
        step_x, step_y = (off_x * at[5] - off_y * at[4]) / turn, (off_y * at[2] - off_x * at[3]) / turn
        x += min(max(step_x, -LONGEST_STEP_PX), LONGEST_STEP_PX)
        y += min(max(step_y, -LONGEST_STEP_PX), LONGEST_STEP_PX)
    return x, y, missed, turn


@subroutine
def _begin(sources, i, j, is_lower, point_x, point_y):
    """Where in one of a pixel's two triangles a point lies, in pixels from its upper left corner; NaN outside."""
    first_i, first_j = (i + 1, j + 1) if is_lower else (i, j)
    x, y = np.float64(sources[first_i, first_j, 0]), np.float64(sources[first_i, first_j, 1])
    across_i, across_j = (i + 1, j) if is_lower else (i, j + 1)
    down_i, down_j = (i, j + 1) if is_lower else (i + 1, j)
    across_x, across_y = sources[across_i, across_j, 0] - x, sources[across_i, across_j, 1] - y
    down_x, down_y = sources[down_i, down_j, 0] - x, sources[down_i, down_j, 1] - y
    area = across_x * down_y - across_y * down_x
    off_x, off_y = point_x - x, point_y - y
    if abs(area) < 1e-12:
        return np.nan, np.nan
    across, down = (off_x * down_y - off_y * down_x) / area, (off_y * across_x - off_x * across_y) / area
    if across < -WIDER or down < -WIDER or across + down > 1.0 + WIDER:
        return np.nan, np.nan
    return (1.0 - across, 1.0 - down) if is_lower else (across, down)


@subroutine
def _bounds(sources, i, j):
    """Left, top, right and bottom of what a pixel's corners show."""
    above, below = min(sources[i, j, 0], sources[i, j + 1, 0]), min(sources[i + 1, j, 0], sources[i + 1, j + 1, 0])
    left = min(above, below)
    above, below = max(sources[i, j, 0], sources[i, j + 1, 0]), max(sources[i + 1, j, 0], sources[i + 1, j + 1, 0])
    right = max(above, below)
    above, below = min(sources[i, j, 1], sources[i, j + 1, 1]), min(sources[i + 1, j, 1], sources[i + 1, j + 1, 1])
    top = min(above, below)
    above, below = max(sources[i, j, 1], sources[i, j + 1, 1]), max(sources[i + 1, j, 1], sources[i + 1, j + 1, 1])
    return left, top, right, max(above, below)


@kernel()
def unbend_spline(points, rows, item, back, turn, sources, tiles, folds, finds_one, moved, is_found, is_single):
    """Find which displacements bring (N, 2) points of an image to where its output shows them.

    Of several places that show a point it is one at which the image is not mirrored, if there is one. A point that the
    frame does not show is moved as its edge is.

    Args:
        points: float64, in source pixels from the row's origin.
        rows: (B,) `KERNEL_ROW` at full scale.
        item: the one of them, whose field is a `SPLINE`.
        back: (3, 3) float64, from such points to the output's, counted from its centre, as if nothing bent them.
        turn, sources, folds: as of `frame_look.find_folds`.
        tiles: of `frame_look.bound_tiles`.
        finds_one: whether a place at which the image is not mirrored is enough, and `is_single` is of no use.
        moved: (N, 2) float64, written, in source pixels.
        is_found: (N,) bool, written: whether the frame shows the point.
        is_single: (N,) bool, written: whether the frame shows it once, and not near a fold.
    """
    row = rows[item]
    height, width = folds.shape
    half_x, half_y = 0.5 * width, 0.5 * height
    held, nodes = np.full(2, -10), np.empty((TAPS, TAPS, 2))
    by_field, at = np.empty(6), np.empty(6)
    places = np.empty((MOST_PLACES, 2))
    for n in range(len(points)):
        point_x, point_y = points[n, 0], points[n, 1]
        num, is_folded, is_upright = 0, False, False
        for line in range(tiles.shape[0]):
            for column in range(tiles.shape[1]):
                if finds_one and is_upright:
                    break
                room = WIDER * tiles[line, column, 4]
                if point_x < tiles[line, column, 0] - room or point_x > tiles[line, column, 2] + room:
                    continue
                if point_y < tiles[line, column, 1] - room or point_y > tiles[line, column, 3] + room:
                    continue
                largest = room + tiles[line, column, 4]
                for i in range(line * TILE, min((line + 1) * TILE, height)):
                    if finds_one and is_upright:
                        break
                    for j in range(column * TILE, min((column + 1) * TILE, width)):
                        if abs(point_x - sources[i, j, 0]) > largest or abs(point_y - sources[i, j, 1]) > largest:
                            continue
                        left, top, right, bottom = _bounds(sources, i, j)
                        room_x, room_y = WIDER * (right - left), WIDER * (bottom - top)
                        if point_x < left - room_x or point_x > right + room_x:
                            continue
                        if point_y < top - room_y or point_y > bottom + room_y:
                            continue
                        is_within = left <= point_x and point_x <= right and top <= point_y and point_y <= bottom
                        is_folded |= folds[i, j] and is_within
                        for nth in range(2):
                            right_px, down_px = _begin(sources, i, j, nth == 1, point_x, point_y)
                            if np.isnan(right_px) or num == MOST_PLACES:
                                continue
                            x, y, missed, here = _newton(
                                row,
                                point_x,
                                point_y,
                                j + right_px - half_x,
                                i + down_px - half_y,
                                half_x,
                                half_y,
                                held,
                                nodes,
                                by_field,
                                at,
                            )
                            is_inside = abs(x) <= half_x + SAME_PX and abs(y) <= half_y + SAME_PX
                            if not (missed < NEAR_PX and is_inside):
                                continue
                            is_new = True
                            for place in range(num):
                                if max(abs(places[place, 0] - x), abs(places[place, 1] - y)) <= SAME_PX:
                                    is_new = False
                            if not is_new:
                                continue
                            places[num, 0], places[num, 1] = x, y
                            num += 1
                            is_folded |= here * turn <= 0.0
                            if num == 1 or (here * turn > 0.0 and not is_upright):
                                moved[n, 0], moved[n, 1] = by_field[0], by_field[1]
                                is_upright = here * turn > 0.0
        is_found[n], is_single[n] = num > 0, num == 1 and not is_folded
        if num > 0:
            continue
        x, y = 0.0, 0.0
        moved[n, 0], moved[n, 1] = 0.0, 0.0
        for _ in range(NUM_GUESSES):
            from_x, from_y = point_x - moved[n, 0], point_y - moved[n, 1]
            divisor = back[2, 0] * from_x + back[2, 1] * from_y + back[2, 2]
            if not divisor > 1e-9:
                break
            x = (back[0, 0] * from_x + back[0, 1] * from_y + back[0, 2]) / divisor
            y = (back[1, 0] * from_x + back[1, 1] * from_y + back[1, 2]) / divisor
            _displacement(row, x, y, half_x, half_y, held, nodes, by_field)
            moved[n, 0], moved[n, 1] = by_field[0], by_field[1]


@subroutine
def _piece(row, axis, cell, piece):
    """Where one of a cell's three pieces begins and ends, in cells, and by how many pixels it moves its ends.

    Cells of whole pixels move all of their first half pixel and of their last one alike; the outer pieces of other ones
    have no length.
    """
    cell_px = np.float64(row.field_key[axis])
    is_whole = cell_px > 1.0
    margin, jump = (0.5 / cell_px, 1.0) if is_whole else (0.0, 0.0)
    left, right = np.float64(row.field_nodes[axis, cell]), np.float64(row.field_nodes[axis, cell + 1]) + jump
    start = 0.0 if piece == 0 else margin if piece == 1 else 1.0 - margin
    end = margin if piece == 0 else 1.0 - margin if piece == 1 else 1.0
    return cell + start, cell + end, right if piece == 2 else left, left if piece == 0 else right


@kernel()
def unbend_grid(points, rows, item, per_px, found, is_single):
    """Find the points of the frame, in lens coordinates, that grids of cells lead to (N, 2) others.

    Of several places it is the first one along each axis, and at a seam the one that lies between two pixels' centres.

    Args:
        points: float64, in lens coordinates as if nothing bent them.
        rows: (B,) `KERNEL_ROW` at full scale.
        item: (N,) int64, the row of each, whose field is a `GRID`.
        per_px: (B, 2) float64, a displacement's length in lens coordinates along x and along y.
        found: (N, 2) float64, written.
        is_single: (N,) bool, written: whether it is shown once, and the same to both sides of a seam.
    """
    for n in range(len(points)):
        row = rows[item[n]]
        is_single[n] = True
        for axis in range(2):
            scale = np.float64(row.field_scale_x if axis == 0 else row.field_scale_y)
            middle = np.float64(row.field_x0 if axis == 0 else row.field_y0)
            per, wanted, place, is_proper = per_px[item[n], axis], points[n, axis], np.nan, False
            begin = per * row.field_nodes[axis, 0] - middle / scale
            if wanted <= begin:  # before the first cell it goes on straight
                place = (wanted - begin) * scale
            for is_beyond in range(2):  # the last cells of whole pixels may reach beyond the frame, which then is last
                for cell in range(row.field_cells):
                    for piece in range(3):
                        start, end, leads_from, leads_to = _piece(row, axis, cell, piece)
                        length = end - start
                        edge = min(max(2.0 * middle, start), end)
                        if not length > 0.0 or edge == (end if is_beyond else start):
                            continue
                        leads_from, leads_to = per * leads_from, per * leads_to
                        at_edge = leads_from + (edge - start) / length * (leads_to - leads_from)
                        if is_beyond:
                            start, leads_from = edge, at_edge
                        else:
                            end, leads_to = edge, at_edge
                        leads_from += (start - middle) / scale
                        leads_to += (end - middle) / scale
                        if wanted < min(leads_from, leads_to) or wanted > max(leads_from, leads_to):
                            continue
                        if not is_beyond:
                            is_single[n] &= leads_to >= leads_from
                        if np.isnan(place) or (piece == 1 and not is_proper and not is_beyond):
                            is_proper = piece == 1
                            share = (wanted - leads_from) / (leads_to - leads_from) if leads_to != leads_from else 0.0
                            place = start + share * (end - start)
            if np.isnan(place):
                last = _piece(row, axis, row.field_cells - 1, 2)[3]
                place = row.field_cells + (wanted - (row.field_cells - middle) / scale - per * last) * scale
            found[n, axis] = (place - middle) / scale


_ROWS, _POINTS, _SOURCES = np.zeros(1, KERNEL_ROW), np.zeros((1, 2)), np.zeros((2, 2, 2), np.float32)
_TILES, _ANY, _ITEMS = np.zeros((1, 1, 5), np.float32), np.zeros((1, 1), np.bool_), np.zeros(1, np.int64)
declare(
    __name__,
    unbend_spline,
    any=lambda: (_POINTS, _ROWS, 0, np.eye(3), 1.0, _SOURCES, _TILES, _ANY, True, _POINTS, _ANY[0], _ANY[0]),
)
declare(__name__, unbend_grid, any=lambda: (_POINTS, _ROWS, _ITEMS, _POINTS, _POINTS, _ANY[0]))
