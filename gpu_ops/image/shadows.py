"""Shadows of polygons: which pixels they cover, what those become, and the CPU's loop over a row of them.

As OpenCV's `fillPoly` has it, a polygon covers what lies within it by the even-odd rule, and the pixels of its edges.
All of it is whole numbers, of pixels' centres: CPU and CUDA cover the same pixels.
"""

import numpy as np
from numba import types

from augpipe.gpu_ops.image.scratch_rows import (
    load_blue,
    load_green,
    load_red,
    store_blue,
    store_green,
    store_red,
)
from augpipe.gpu_ops.image.tone import HALF, ONE, WHITE, ZERO, kept_within
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import load, load_bytes, prefer_wide_vectors, store

load_number, load_end = load_bytes("values", types.float32), load_bytes("values", types.uint32)
load_mark, store_mark = load("slots", types.uint32), store("slots", types.uint32)
load_gain, store_gain = load("scaled", types.float32), store("scaled")


@leaf
def end_x(end):
    """The column of an edge's end, of column and row in the halves of a word."""
    return np.int32(end & np.uint32(0xFFFF))


@leaf
def end_y(end):
    """Its row."""
    return np.int32(end >> np.uint32(16))


@leaf
def edge_least(across, rise):
    """Of an edge that goes so far, how much twice a pixel may lie aside of it, at the least, to be on it; times `rise`.

    Halves are rounded towards the left end, as OpenCV's `line` rounds them.
    """
    return np.int32(-abs(across) if abs(across) > rise else min(1 - rise, 0))


@leaf
def edge_most(across, rise):
    """The same, at the most."""
    return np.int32(abs(across) - 1 if abs(across) > rise else rise)


@leaf
def edge_mark(x, along, rise, least, most, left, right, crosses):
    """What an edge says of a pixel of a row: 1 if it crosses the row to the right of it, and 2 more if it goes over it.

    Args:
        x: the pixel's column.
        along: where the edge meets the row, times `rise`.
        rise: how many rows the edge goes down, from 0 on.
        least, most: of `edge_least` and `edge_most`.
        left, right: its least and largest column.
        crosses: 1 where it reaches the row beyond its upper end, else 0.
    """
    aside = along - np.int64(x) * np.int64(rise)
    is_on = left <= x and x <= right and least <= aside + aside and aside + aside <= most
    return np.int32(crosses if aside > 0 else 0) | np.int32(2 if is_on else 0)


@leaf
def joined(marks, mark):
    """What edges say of a pixel together: 0 where none goes over it and an even number of them crosses its row."""
    return (marks ^ (mark & np.int32(1))) | (mark & np.int32(2))


@leaf
def chroma_gain(twice, gain):
    """What becomes of the chroma if the lightness of HLS changes by `gain`, of twice the lightness, 0..510."""
    room = WHITE - abs(twice - WHITE)
    return (WHITE - abs(twice * gain - WHITE)) / room if room > ZERO else ZERO


@leaf
def shaded(level, twice, gain, of_chroma):
    """A level whose pixel's lightness and chroma change by their gains."""
    return kept_within(HALF * twice * gain + (level - HALF * twice) * of_chroma)


@subroutine
def shade_row(at, at_numbers, at_edges, y, width, at_red, at_green, at_blue, at_marks, at_gains):
    """Darken the part of row y of an image that lies in the polygons of a `SHADE` step."""
    num, num_edges = np.int64(load_number(at, at_numbers)), np.int64(load_number(at, at_numbers + 4))
    is_of_lightness = load_number(at, at_numbers + 8) > 0.0
    is_shaded = False
    for nth in range(num):
        if _mark_row(at_edges + 8 * nth * num_edges, num_edges, y, width, at_marks):
            if not is_shaded:
                for i in range(width):
                    store_gain(at_gains, i, ONE)
            is_shaded = True
            gain = load_number(at, at_numbers + 12 + 4 * nth)
            for i in range(width):
                before = load_gain(at_gains, i)
                after = min(before, gain) if is_of_lightness else before * gain
                store_gain(at_gains, i, after if load_mark(at_marks, i) != 0 else before)
    if is_shaded:
        _shade(is_of_lightness, width, at_red, at_green, at_blue, at_gains)


@subroutine
def _mark_row(at_edges, num_edges, y, width, at_marks):
    """Mark the pixels of a row that a polygon covers; whether any edge reaches the row."""
    prefer_wide_vectors()
    is_met = False
    for nth in range(num_edges):
        upper, lower = load_end(at_edges, 8 * nth), load_end(at_edges, 8 * nth + 4)
        first, top = end_x(upper), end_y(upper)
        last, bottom = end_x(lower), end_y(lower)
        if top <= y and y <= bottom:
            if not is_met:
                for i in range(width):
                    store_mark(at_marks, i, np.uint32(0))
            is_met = True
            left, right, rise = min(first, last), max(first, last), bottom - top
            along = np.int64(last - first) * (y - top) + first * np.int64(rise)
            least, most = edge_least(last - first, rise), edge_most(last - first, rise)
            crosses = 1 if y < bottom else 0
            for i in range(width):
                mark = edge_mark(i, along, rise, least, most, left, right, crosses)
                store_mark(at_marks, i, np.uint32(joined(np.int32(load_mark(at_marks, i)), mark)))
    return is_met


@subroutine
def _shade(is_of_lightness, width, at_red, at_green, at_blue, at_gains):
    prefer_wide_vectors()
    for i in range(width):
        red, green, blue = load_red(at_red, i), load_green(at_green, i), load_blue(at_blue, i)
        gain = load_gain(at_gains, i)
        twice = max(red, max(green, blue)) + min(red, min(green, blue))
        of_chroma = chroma_gain(twice, gain) if is_of_lightness else gain
        store_red(at_red, i, shaded(red, twice, gain, of_chroma))
        store_green(at_green, i, shaded(green, twice, gain, of_chroma))
        store_blue(at_blue, i, shaded(blue, twice, gain, of_chroma))
