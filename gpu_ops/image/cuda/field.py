"""The displacement of `gpu_ops.image.field` on the device: few rows have one, so no register is kept for it."""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import floor_index, load_f32, load_i32, load_u32, reciprocal
from augpipe.gpu_ops.image import field, sampling
from augpipe.gpu_ops.image.cuda.records import (
    BEFORE_W0,
    BEFORE_WX,
    BEFORE_WY,
    BEFORE_X0,
    BEFORE_XX,
    BEFORE_XY,
    BEFORE_Y0,
    BEFORE_YX,
    BEFORE_YY,
    FIELD,
    FIELD_CELLS,
    FIELD_KEY,
    FIELD_NODES,
    FIELD_SCALE_X,
    FIELD_SCALE_Y,
    FIELD_X0,
    FIELD_XX,
    FIELD_XY,
    FIELD_Y0,
    FIELD_YX,
    FIELD_YY,
)
from augpipe.gpu_ops.image.rows import GRID, NUM_NODES

clamp, divisor, linear = shared(sampling.clamp), shared(sampling.divisor), shared(sampling.linear)
between, spline, two_nodes = shared(field.between), shared(field.spline), shared(field.two_nodes)
cell_slope, cell_start = shared(field.cell_slope), shared(field.cell_start)
cell_jump = shared(field.cell_jump)

PAIRS = 3
"""Pairs of nodes that hold the four of a line that a point draws on."""
ZERO, ONE = np.float32(0.0), np.float32(1.0)


@function("float32")
def between_nodes(at_nodes, place, cells, cell_px):
    """The displacement along one axis, at a place counted in nodes."""
    place = clamp(place, ZERO, np.float32(cells))
    cell = min(np.int32(place), np.int32(cells - 1))
    address = at_nodes + np.int64(cell) * 4
    part = clamp((place - np.float32(cell)) * cell_slope(cell_px) - cell_start(cell_px), ZERO, ONE)
    return between(load_f32(address), load_f32(address + 4) + cell_jump(cell_px), part)


@function("float32", "float32")
def in_frame(row, x, y):
    """Where in the frame that bends a point of the output lies, counted in nodes."""
    inverse = reciprocal(divisor(x, y, load_f32(row + BEFORE_WX), load_f32(row + BEFORE_WY), load_f32(row + BEFORE_W0)))
    u = linear(x, y, load_f32(row + BEFORE_XX), load_f32(row + BEFORE_XY), load_f32(row + BEFORE_X0)) * inverse
    v = linear(x, y, load_f32(row + BEFORE_YX), load_f32(row + BEFORE_YY), load_f32(row + BEFORE_Y0)) * inverse
    return (
        load_f32(row + FIELD_SCALE_X) * u + load_f32(row + FIELD_X0),
        load_f32(row + FIELD_SCALE_Y) * v + load_f32(row + FIELD_Y0),
    )


@function("float32", "float32")
def of_grid(row, x, y):
    """The displacement of a grid at a point of the output."""
    cells = load_i32(row + FIELD_CELLS)
    along_x, along_y = in_frame(row, x, y)
    at_nodes = row + FIELD_NODES
    wide, high = np.int32(load_u32(row + FIELD_KEY)), np.int32(load_u32(row + FIELD_KEY + 4))
    return (
        between_nodes(at_nodes, along_x, cells, wide),
        between_nodes(at_nodes + 4 * NUM_NODES, along_y, cells, high),
    )


@function("float32", "float32")
def of_spline(row, x, y):
    """The displacement of a random field at a point of the output; what can be computed again takes no register."""
    key0, key1 = np.uint64(load_u32(row + FIELD_KEY)), np.uint64(load_u32(row + FIELD_KEY + 4))
    along_x = load_f32(row + FIELD_SCALE_X) * x + load_f32(row + FIELD_X0)
    along_y = load_f32(row + FIELD_SCALE_Y) * y + load_f32(row + FIELD_Y0)
    moved_x, moved_y = ZERO, ZERO
    nth = np.int32(0)
    while nth < PAIRS * field.TAPS:
        line = np.int32(floor_index(along_y) - 1 + nth // PAIRS)
        pair = np.int32((floor_index(along_x) - 1) // 2 + nth % PAIRS)
        first_x, first_y, second_x, second_y = two_nodes(np.int64(pair), np.int64(line), key0, key1)
        weight, distance = spline(along_y - np.float32(line)), along_x - np.float32(2 * pair)
        first, second = weight * spline(distance), weight * spline(distance - ONE)
        moved_x += first * first_x + second * second_x
        moved_y += first * first_y + second * second_y
        nth = np.int32(nth + 1)
    return moved_x, moved_y


@function("float32", "float32")
def displacement(row, x, y):
    """How far from where it comes from otherwise a point of the output is looked up, in source pixels."""
    if load_i32(row + FIELD) == GRID:
        moved_x, moved_y = of_grid(row, x, y)
    else:
        moved_x, moved_y = of_spline(row, x, y)
    return (
        load_f32(row + FIELD_XX) * moved_x + load_f32(row + FIELD_XY) * moved_y,
        load_f32(row + FIELD_YX) * moved_x + load_f32(row + FIELD_YY) * moved_y,
    )


@function("float32", "float32", "float32", "float32")
def displaced_pair(row, x0, x1, y, at_x0, at_y0, at_x1, at_y1):
    """Where two points of the output come from, with what is added; one after the other, as registers are few."""
    nth = np.int32(0)
    while nth < 2:
        moved_x, moved_y = displacement(row, x0 if nth == 0 else x1, y)
        if nth == 0:
            at_x0, at_y0 = at_x0 + moved_x, at_y0 + moved_y
        else:
            at_x1, at_y1 = at_x1 + moved_x, at_y1 + moved_y
        nth = np.int32(nth + 1)
    return at_x0, at_y0, at_x1, at_y1
