"""What bends the frame as a lens does not: a displacement that is added to where an output pixel comes from.

Two kinds, of numbers that are interpolated between nodes: `GRID` has lines of nodes along x and y, given in the row,
with straight lines between them; cells of whole pixels go from the centre of their first pixel to that of their last.
`SPLINE` has nodes over the output frame that are made of the row's random key, with cubic B-splines between them: a
random field with nearly the variance and the correlation of filtered noise.
"""

import numpy as np
from numba import types

from augpipe.gpu_ops.image.rows import NUM_NODES, SPLINE
from augpipe.gpu_ops.image.sampling import clamp, divisor, floor, linear
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import load, prefer_wide_vectors, store
from augpipe.gpu_ops.random.philox import philox_block

TAPS = 4
"""Nodes along an axis that a point of the field draws on."""
BEYOND = 8
"""Nodes along x beyond as many as there are pixels; they lie at least a pixel apart."""
NODE_ROWS = 2 * (TAPS + 1)
"""Rows of scratch, each `BEYOND` longer than one of the output: a line of nodes, and what the last four lines have made
of each column, along x and y."""

ZERO, HALF, ONE, TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
HALF_WORD, SHIFT_16, LARGEST = np.uint64(0xFFFF), np.uint64(16), np.float32(65535.0)

load_node, store_node = load("nodes", types.float32, types.int32), store("nodes", types.float32)
load_line, store_line = load("node_lines", types.float32), store("node_lines", types.float32)
load_source_x, store_source_x = load("source_x", types.float32), store("source_x", types.float32)
load_source_y, store_source_y = load("source_y", types.float32), store("source_y", types.float32)


@leaf
def spline(distance):
    """The cubic B-spline at a distance from its middle, in nodes."""
    outer, inner = max(TWO - abs(distance), ZERO), max(ONE - abs(distance), ZERO)
    return (outer * outer * outer - np.float32(4.0) * inner * inner * inner) * np.float32(1 / 6)


@leaf
def triangular(word):
    """A number in -1..1 of a random word's halves, nearer to 0 as often as two dice are to 7."""
    summed = (np.uint64(word) & HALF_WORD) + (np.uint64(word) >> SHIFT_16)
    return np.float32(np.int32(summed)) * (ONE / LARGEST) - ONE


@leaf
def two_nodes(pair, line, key0, key1):
    """Displacements of the nodes 2 * pair and 2 * pair + 1 of a line: along x and y of the first, then the second."""
    zero = np.uint64(0)
    word0, word1, word2, word3 = philox_block(
        np.uint64(pair), np.uint64(line), zero, zero, np.uint64(key0), np.uint64(key1)
    )
    return triangular(word0), triangular(word1), triangular(word2), triangular(word3)


@leaf
def between(first, second, right):
    """From one number straight to another one."""
    return first + right * (second - first)


@leaf
def cell_slope(cell_px):
    """How far a part of a cell leads from its first node to its second one, of cells of so many whole pixels; of joined
    ones, for which that is 0, 1."""
    return np.float32(cell_px) / np.float32(cell_px - 1) if cell_px > 1 else ONE


@leaf
def cell_start(cell_px):
    """What is taken off that: half a pixel."""
    return HALF / np.float32(cell_px - 1) if cell_px > 1 else ZERO


@leaf
def cell_jump(cell_px):
    """By how many pixels a displacement falls to the next cell of whole pixels, which begins where it ended."""
    return ONE if cell_px > 1 else ZERO


@subroutine
def bend_row(row, s, at_nodes, width, first_x, y, num, held):
    """Add the row's displacement to where its first `num` pixels come from.

    Args:
        row, s, width, num: as the fused loop's; source coordinates are scratch's first two rows.
        at_nodes: address of scratch for `NODE_ROWS`.
        first_x, y: where the row's first pixel lies.
        held: (TAPS,) int64, of which lines of nodes scratch holds what the rows before made.
    """
    if row.field == SPLINE:
        _bend_by_spline(row, s, at_nodes, width, first_x, y, held)
    else:
        _bend_over_frame(row, s, at_nodes, width, first_x, y, num)


@subroutine
def _bend_over_frame(row, s, at_nodes, width, first_x, y, num):
    """By a grid, which lies over the frame that it bends."""
    prefer_wide_vectors()
    at_source_x, at_source_y = s, s + 4 * width
    for i in range(NUM_NODES):
        store_node(at_nodes, i, row.field_nodes[0, i])
        store_node(at_nodes, NUM_NODES + i, row.field_nodes[1, i])
    cells = np.float32(row.field_cells)
    wide, high = np.int32(row.field_key[0]), np.int32(row.field_key[1])
    slope_x, slope_y = cell_slope(wide), cell_slope(high)
    start_x, start_y, jump_x, jump_y = cell_start(wide), cell_start(high), cell_jump(wide), cell_jump(high)
    field_xx, field_xy, field_yx, field_yy = row.field_xx, row.field_xy, row.field_yx, row.field_yy
    scale_x, scale_y, field_x0, field_y0 = row.field_scale_x, row.field_scale_y, row.field_x0, row.field_y0
    before_xx, before_xy, before_yx, before_yy = row.before_xx, row.before_xy, row.before_yx, row.before_yy
    before_x0, before_y0 = row.before_x0, row.before_y0
    before_wx, before_wy, before_w0 = row.before_wx, row.before_wy, row.before_w0
    for i in range(num):
        x = np.float32(np.int32(i)) + first_x
        inverse = ONE / divisor(x, y, before_wx, before_wy, before_w0)
        u = linear(x, y, before_xx, before_xy, before_x0) * inverse
        v = linear(x, y, before_yx, before_yy, before_y0) * inverse
        along_x, along_y = scale_x * u + field_x0, scale_y * v + field_y0
        along_x, along_y = clamp(along_x, ZERO, cells), clamp(along_y, ZERO, cells)
        column, line = np.int32(min(along_x, cells - ONE)), np.int32(min(along_y, cells - ONE))
        left, right = load_node(at_nodes, column), load_node(at_nodes, np.int32(column + 1))
        above = load_node(at_nodes, np.int32(NUM_NODES + line))
        below = load_node(at_nodes, np.int32(NUM_NODES + line + 1))
        part_x = clamp((along_x - np.float32(column)) * slope_x - start_x, ZERO, ONE)
        part_y = clamp((along_y - np.float32(line)) * slope_y - start_y, ZERO, ONE)
        moved_x = between(left, right + jump_x, part_x)
        moved_y = between(above, below + jump_y, part_y)
        store_source_x(at_source_x, i, load_source_x(at_source_x, i) + field_xx * moved_x + field_xy * moved_y)
        store_source_y(at_source_y, i, load_source_y(at_source_y, i) + field_yx * moved_x + field_yy * moved_y)


@subroutine
def _make_nodes(row, at_x, at_y, num, line):
    """The nodes of a line, into scratch."""
    key0, key1 = row.field_key[0], row.field_key[1]
    for pair in range((num + 1) // 2):
        first_x, first_y, second_x, second_y = two_nodes(pair, line, key0, key1)
        store_node(at_x, 2 * pair, first_x)
        store_node(at_y, 2 * pair, first_y)
        store_node(at_x, 2 * pair + 1, second_x)
        store_node(at_y, 2 * pair + 1, second_y)


@subroutine
def _spread_line(row, at_nodes, at_line, width, first_x, num):
    """What a line's nodes make of each pixel's column: displacements along x, and then along y."""
    prefer_wide_vectors()
    scale_x, field_x0 = row.field_scale_x, row.field_x0
    at_nodes_y, at_line_y = at_nodes + 4 * (width + BEYOND), at_line + 4 * (width + BEYOND)
    last = np.float32(num - TAPS)
    for i in range(width):
        along_x = scale_x * (np.float32(np.int32(i)) + first_x) + field_x0
        whole_x = floor(along_x)
        right = along_x - whole_x
        first = np.int32(clamp(whole_x - ONE, ZERO, last))
        second, third, fourth = np.int32(first + 1), np.int32(first + 2), np.int32(first + 3)
        before, at, after, beyond = spline(right + ONE), spline(right), spline(ONE - right), spline(TWO - right)
        moved_x = before * load_node(at_nodes, first) + at * load_node(at_nodes, second)
        moved_x += after * load_node(at_nodes, third) + beyond * load_node(at_nodes, fourth)
        moved_y = before * load_node(at_nodes_y, first) + at * load_node(at_nodes_y, second)
        moved_y += after * load_node(at_nodes_y, third) + beyond * load_node(at_nodes_y, fourth)
        store_line(at_line, i, moved_x)
        store_line(at_line_y, i, moved_y)


@subroutine
def _bend_by_spline(row, s, at_nodes, width, first_x, y, held):
    prefer_wide_vectors()
    at_source_x, at_source_y = s, s + 4 * width
    row_bytes = 4 * (width + BEYOND)
    last_x = row.field_scale_x * (np.float32(np.int32(width - 1)) + first_x) + row.field_x0
    num = max(min(np.int64(floor(last_x)) + TAPS - 1, width + BEYOND - 2), TAPS)
    along_y = row.field_scale_y * y + row.field_y0
    whole_y = floor(along_y)
    down = along_y - whole_y
    first_line = np.int64(whole_y) - 1
    at_lines = at_nodes + 2 * row_bytes
    for line in range(first_line, first_line + TAPS):
        slot = line % TAPS
        if held[slot] != line:
            _make_nodes(row, at_nodes, at_nodes + row_bytes, num, line)
            _spread_line(row, at_nodes, at_lines + 2 * slot * row_bytes, width, first_x, num)
            held[slot] = line
    at_first = at_lines + 2 * (first_line % TAPS) * row_bytes
    at_second = at_lines + 2 * ((first_line + 1) % TAPS) * row_bytes
    at_third = at_lines + 2 * ((first_line + 2) % TAPS) * row_bytes
    at_fourth = at_lines + 2 * ((first_line + 3) % TAPS) * row_bytes
    above, at, below, beyond = spline(down + ONE), spline(down), spline(ONE - down), spline(TWO - down)
    field_xx, field_xy, field_yx, field_yy = row.field_xx, row.field_xy, row.field_yx, row.field_yy
    to_y = width + BEYOND
    for i in range(width):
        moved_x = above * load_line(at_first, i) + at * load_line(at_second, i)
        moved_x += below * load_line(at_third, i) + beyond * load_line(at_fourth, i)
        moved_y = above * load_line(at_first, to_y + i) + at * load_line(at_second, to_y + i)
        moved_y += below * load_line(at_third, to_y + i) + beyond * load_line(at_fourth, to_y + i)
        store_source_x(at_source_x, i, load_source_x(at_source_x, i) + field_xx * moved_x + field_xy * moved_y)
        store_source_y(at_source_y, i, load_source_y(at_source_y, i) + field_yx * moved_x + field_yy * moved_y)
