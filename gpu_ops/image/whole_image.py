"""Steps that look at a whole rendered image, on the CPU: tables made of its histograms, and sharpening in place.

They take the nearest of 256 levels of each channel, and give such levels, as Pillow and torchvision do to 8-bit images.
"""

import numpy as np
from numba import types

from augpipe.gpu_ops.image.program_rows import AUTO_CONTRAST, EQUALIZE
from augpipe.gpu_ops.image.scratch_rows import store_batch
from augpipe.gpu_ops.image.tone import away_from, gray, kept_within, nearest_level
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import load, prefer_wide_vectors, store

load_levels = load("pixels", types.float32)
load_row, store_row = load("fetched", types.float32), store("fetched", types.float32)

store_level = store("slots", types.uint8)

AT_A_TIME = 1024
"""Levels of a channel that are rounded before they are counted, and gray ones that a sum of 32 bits takes."""
WHITE = np.float32(255.0)
NINTH_OF_THIRTEEN = np.float32(1.0 / 13.0)
CENTRE = np.float32(5.0)


@subroutine
def look_up_tables(kind, factor, levels, start, num_pixels, planar, tables):
    """Fill (3, 256) uint8 `tables` with what a step makes of each level of each channel."""
    counts = np.zeros((3, 256), np.int64)
    mean = np.float32(0.0)
    if kind == AUTO_CONTRAST or kind == EQUALIZE:
        _count_levels(levels, start, num_pixels, planar, counts)
    else:
        mean = mean_gray(levels, start, num_pixels, planar)
    for channel in range(3):
        if kind == AUTO_CONTRAST:
            stretch_levels(counts[channel], tables[channel])
        elif kind == EQUALIZE:
            equalize_levels(counts[channel], num_pixels, tables[channel])
        else:
            for level in range(256):
                tables[channel, level] = np.uint8(kept_within(mean + factor * (np.float32(level) - mean)))


@subroutine
def _count_levels(levels, start, num_pixels, planar, counts):
    """Count the nearest levels of each channel, in four tables in turn: neighbours are often alike, and a CPU waits for
    a number that it has just written."""
    num_runs, length = (3, num_pixels) if planar else (1, 3 * num_pixels)
    source, several = levels.ctypes.data, np.zeros((12, 256), np.int64)
    row = np.empty(3 * AT_A_TIME, np.uint8)
    for run in range(num_runs):
        first = start + run * num_pixels
        for begin in range(0, length, 3 * AT_A_TIME):
            num, at_row = min(3 * AT_A_TIME, length - begin), np.uintp(row.ctypes.data)
            for i in range(num):
                store_level(at_row, i, np.uint8(nearest_level(load_levels(source, first + begin + i))))
            if planar:
                for i in range(num):
                    several[4 * run + (i & 3), row[i]] += 1
            else:
                for i in range(num // 3):
                    for channel in range(3):
                        several[4 * channel + (i & 3), row[3 * i + channel]] += 1
    for channel in range(3):
        for level in range(256):
            counts[channel, level] = several[4 * channel : 4 * channel + 4, level].sum()


@subroutine
def mean_gray(levels, start, num_pixels, planar):
    """The mean brightness, of whole levels rounded down, as torchvision has it."""
    prefer_wide_vectors()
    source, total = levels.ctypes.data, np.int64(0)
    for begin in range(0, num_pixels, AT_A_TIME):
        num, part = min(AT_A_TIME, num_pixels - begin), np.int32(0)
        if planar:
            for i in range(num):
                at = start + begin + i
                red, green = load_levels(source, at), load_levels(source, at + num_pixels)
                part += _whole_gray(red, green, load_levels(source, at + 2 * num_pixels))
        else:
            for i in range(num):
                at = start + 3 * (begin + i)
                red, green = load_levels(source, at), load_levels(source, at + 1)
                part += _whole_gray(red, green, load_levels(source, at + 2))
        total += part
    return np.float32(total / num_pixels)


@leaf
def _whole_gray(red, green, blue):
    """How bright the nearest levels are, rounded down."""
    red, green = np.float32(nearest_level(red)), np.float32(nearest_level(green))
    return np.int32(gray(red, green, np.float32(nearest_level(blue))))


@subroutine
def stretch_levels(counts, table):
    """Stretch the levels that occur to 0..255; a channel of one level stays as it is."""
    low, high = 0, 255
    while low < 255 and counts[low] == 0:
        low += 1
    while high > 0 and counts[high] == 0:
        high -= 1
    for level in range(256):
        if high <= low:
            table[level] = np.uint8(level)
        else:
            scale = WHITE / np.float32(high - low)
            table[level] = np.uint8(kept_within(np.float32(level - low) * scale))


@subroutine
def equalize_levels(counts, num_pixels, table):
    """Spread the levels so that each occurs about as often: Pillow's `ImageOps.equalize`."""
    last = 255
    while last > 0 and counts[last] == 0:
        last -= 1
    step = (num_pixels - counts[last]) // 255
    seen = step // 2
    for level in range(256):
        if step == 0:
            table[level] = np.uint8(level)
        else:
            table[level] = np.uint8(min(seen // step, 255))
            seen += counts[level]


@leaf
def smoothed(above, beside, below, centre):
    """The mean of nine levels, the centre counted five times, to the nearest level: three sums of a row and one."""
    return np.float32(nearest_level((above + beside + below + CENTRE * centre) * NINTH_OF_THIRTEEN))


@subroutine
def sharpen(factor, levels, start, height, width, planar):
    """Move each pixel but the outermost away from its neighbourhood's mean: Pillow's `ImageEnhance.Sharpness`.

    Where channels are interleaved, a row of all three is one whose neighbours lie three apart.
    """
    num_planes, apart = (3, 1) if planar else (1, 3)
    length = width * apart
    rows = np.empty(3 * length, np.float32)
    for plane in range(num_planes):
        first = start + plane * height * width
        at_above = np.uintp(rows.ctypes.data)
        at_here, at_below = at_above + 4 * length, at_above + 8 * length
        _take_whole_levels(levels, first, length, at_here)
        for y in range(height):
            at_row = first + y * length
            if y + 1 < height:
                _take_whole_levels(levels, at_row + length, length, at_below)
            is_inner = 0 < y < height - 1
            _sharpen_row(factor, levels, at_row, length, apart, is_inner, at_above, at_here, at_below)
            at_above, at_here, at_below = at_here, at_below, at_above


@subroutine
def _take_whole_levels(levels, first, length, at_row):
    """The nearest levels of a row."""
    prefer_wide_vectors()
    source = levels.ctypes.data
    for i in range(length):
        store_row(at_row, i, np.float32(nearest_level(load_levels(source, first + i))))


@subroutine
def _sharpen_row(factor, levels, first, length, apart, is_inner, at_above, at_here, at_below):
    """Write a row, sharpened except for its ends where it `is_inner`, of whole levels as they were here and around."""
    prefer_wide_vectors()
    out = levels.ctypes.data
    for i in range(length):
        store_batch(out, first + i, load_row(at_here, i))
    if is_inner:
        for i in range(apart, length - apart):
            level = load_row(at_here, i)
            above = load_row(at_above, i - apart) + load_row(at_above, i) + load_row(at_above, i + apart)
            below = load_row(at_below, i - apart) + load_row(at_below, i) + load_row(at_below, i + apart)
            blurred = smoothed(above, load_row(at_here, i - apart) + load_row(at_here, i + apart), below, level)
            store_batch(out, first + i, np.float32(np.int32(away_from(blurred, level, factor))))
