"""Haze of discs and a camera's grain: what they make of a pixel, and the CPU's loops over a row of them.

Discs lie in rectangles about the middle of the frame, each larger than the one before it, and here called rings; a
disc's place in its ring is made of a Philox word, as noise is. Grain is counted in hue and lightness of HLS.
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
from augpipe.gpu_ops.image.tone import (
    BLUE_AT,
    GREEN_AT,
    HALF,
    ONE,
    RED_AT,
    SIX,
    TWO,
    WHITE,
    ZERO,
    hue_of,
    kept_within,
    of_hue,
)
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import load, load_bytes, prefer_wide_vectors, store
from augpipe.gpu_ops.random.philox import SHIFT_32, philox_block

load_number, load_key = load_bytes("values", types.float32), load_bytes("values", types.uint32)
load_clear, store_clear = load("scaled", types.float32), store("scaled")
load_normal = load("scaled", types.float32)


@leaf
def disc_place(word, first, room):
    """Where a disc's square begins along an axis: one of `room` whole pixels from `first` on."""
    return np.int32(first) + np.int32((np.uint64(word) * np.uint64(room)) >> SHIFT_32)


@leaf
def half_chord(distance, radius):
    """Squared, how far a disc reaches along a row at a whole distance from its centre; below 0 where it does not."""
    return radius * (radius + np.int32(1)) - distance * distance


@leaf
def hazy(level, clear):
    """The level where a part `clear` of what is seen is not haze."""
    return WHITE - (WHITE - level) * clear


@leaf
def saturation_in_hls(twice, chroma):
    """Of twice the lightness in levels, 0..510, and the chroma."""
    room = WHITE - abs(twice - WHITE)
    return min(chroma / room, ONE) if room > ZERO else ZERO


@leaf
def lighter(twice, normal, mean, std):
    """Twice the lightness with noise of levels, at least none of them, that leaves white as it is."""
    return min(twice + max(mean + std * normal, ZERO) * (TWO - twice / WHITE), TWO * WHITE)


@leaf
def chroma_in_hls(twice, saturation):
    """The chroma that belongs to a saturation of HLS."""
    return saturation * (WHITE - abs(twice - WHITE))


@leaf
def turned_hue(hue, normal, std):
    """A hue in sixths of a turn, moved by a normal number of a standard deviation, by a turn at most."""
    return hue + min(max(std * normal, -SIX), SIX)


@leaf
def ring_start(first, growth, ring):
    """Where along an axis the squares of a ring's discs begin at the earliest, in pixels."""
    return np.int32(first) - np.int32(growth) * np.int32(ring)


@leaf
def ring_room(length, start, side):
    """At how many places along an axis a square of a ring may begin: it lies about the middle of a frame's length."""
    return max(np.int32(length) - np.int32(2) * start - np.int32(side) + np.int32(1), np.int32(1))


@subroutine
def veil_row(at, at_numbers, at_key, y, height, width, at_red, at_green, at_blue, at_clear):
    """Blend row y of an image with the discs of a `HAZE` step."""
    zero, key0, key1 = np.uint64(0), np.uint64(load_key(at, at_key)), np.uint64(load_key(at, at_key + 4))
    first_x, first_y = load_number(at, at_numbers), load_number(at, at_numbers + 4)
    growth_x, growth_y = load_number(at, at_numbers + 8), load_number(at, at_numbers + 12)
    num_rings, num_discs = np.int32(load_number(at, at_numbers + 16)), np.int32(load_number(at, at_numbers + 20))
    side, radius = load_number(at, at_numbers + 24), np.int32(load_number(at, at_numbers + 28))
    clear = load_number(at, at_numbers + 32)
    for i in range(width):
        store_clear(at_clear, i, ONE)
    nth, is_hazy = np.uint64(0), False
    for ring in range(num_rings):
        left, top = ring_start(first_x, growth_x, ring), ring_start(first_y, growth_y, ring)
        room_x, room_y = ring_room(width, left, side), ring_room(height, top, side)
        for _ in range(num_discs * (ring + 1)):
            word_x, word_y, _, _ = philox_block(nth, zero, zero, zero, key0, key1)
            nth += np.uint64(1)
            squared = half_chord(np.int32(y) - disc_place(word_y, top, room_y) - radius, radius)
            if squared >= 0:
                is_hazy, reach = True, np.int64(np.sqrt(np.float64(squared)))
                middle = np.int64(disc_place(word_x, left, room_x) + radius)
                first = max(np.int64(middle - reach), np.int64(0))
                end = min(np.int64(middle + reach + 1), np.int64(width))
                for i in range(first, end):
                    store_clear(at_clear, i, load_clear(at_clear, i) * clear)
    if is_hazy:
        for i in range(width):
            seen = load_clear(at_clear, i)
            store_red(at_red, i, hazy(load_red(at_red, i), seen))
            store_green(at_green, i, hazy(load_green(at_green, i), seen))
            store_blue(at_blue, i, hazy(load_blue(at_blue, i), seen))


@subroutine
def grain_row(at, at_numbers, width, at_red, at_green, at_blue, at_normals):
    """Add the grain of a `GRAIN` step to a row, from two normal numbers a pixel."""
    prefer_wide_vectors()
    of_hues, mean = load_number(at, at_numbers), load_number(at, at_numbers + 4)
    std = load_number(at, at_numbers + 8)
    for i in range(width):
        red, green, blue = load_red(at_red, i), load_green(at_green, i), load_blue(at_blue, i)
        value = max(red, max(green, blue))
        chroma = value - min(red, min(green, blue))
        hue = turned_hue(hue_of(red, green, blue, value, chroma), load_normal(at_normals, i), of_hues)
        twice = value + value - chroma
        saturation = saturation_in_hls(twice, chroma)
        twice = lighter(twice, load_normal(at_normals, width + i), mean, std)
        chroma = chroma_in_hls(twice, saturation)
        value = HALF * (twice + chroma)
        store_red(at_red, i, kept_within(of_hue(RED_AT, hue, value, chroma)))
        store_green(at_green, i, kept_within(of_hue(GREEN_AT, hue, value, chroma)))
        store_blue(at_blue, i, kept_within(of_hue(BLUE_AT, hue, value, chroma)))
