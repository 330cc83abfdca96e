"""Crops of random area: the first of several rectangles that fits into an image, at a random place."""

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.random.philox import SHIFT_32


@kernel(fastmath=False)
def choose_crops(heights, widths, is_open, sizes, ratios, least, most, are_heights, is_whole, words, chosen):
    """Choose a rectangle for each of n images; where none of its t tries fits, the largest centred one.

    Args:
        heights, widths: (n,) int64 sides of images, in pixels.
        is_open: (n,) whether any try is made.
        sizes: (n, t) float64 parts of the area, or heights in pixels.
        ratios: (n, t) float64 widths over heights.
        least, most: what ratios lie between.
        are_heights: whether `sizes` are heights.
        is_whole: whether rectangles begin and end at whole pixels.
        words: (n, 4 + 4 t) uint32; the third and fourth of each four from 4 on say where a try lies.
        chosen: (4, n) float64, written: left, top, width and height.
    """
    for i in range(len(heights)):
        height, width = float(heights[i]), float(widths[i])
        ratio = min(max(width / height, least), most)
        wide, high = min(width, height * ratio), min(height, width / ratio)
        if is_whole:  # a flat ratio leaves less than a pixel of a thin image
            wide, high = max(np.rint(wide), 1.0), max(np.rint(high), 1.0)
        x, y = (width - wide) / 2, (height - high) / 2
        if is_whole:
            x, y = np.floor(x), np.floor(y)
        for nth in range(sizes.shape[1] if is_open[i] else 0):
            ratio = ratios[i, nth]
            if are_heights:
                # the logarithm and back leave a ratio that is not drawn a bit below itself
                try_wide = np.floor(sizes[i, nth] * min(max(ratio, least), most))
                try_wide, try_high = min(max(try_wide, 1.0), width), min(sizes[i, nth], height)
            else:
                area = sizes[i, nth] * width * height
                try_wide, try_high = np.sqrt(area * ratio), np.sqrt(area / ratio)
            if is_whole:
                try_wide, try_high = np.rint(try_wide), np.rint(try_high)
            if 1.0 <= try_wide <= width and 1.0 <= try_high <= height:
                wide, high = try_wide, try_high
                x = _place(words[i, 6 + 4 * nth], width - wide, is_whole)
                y = _place(words[i, 7 + 4 * nth], height - high, is_whole)
                break
        chosen[0, i], chosen[1, i], chosen[2, i], chosen[3, i] = x, y, wide, high


@leaf
def _place(word, room, is_whole):
    """Where in the room that an image leaves it a rectangle begins."""
    if is_whole:
        return float((np.uint64(word) * np.uint64(np.int64(room) + 1)) >> SHIFT_32)
    return float(word) * 2.0**-32 * room


declare(
    __name__,
    choose_crops,
    any=lambda: (
        *(*np.zeros((2, 1), np.int64), np.zeros(1, np.bool_), *np.zeros((2, 1, 1)), 1.0, 1.0, False, True),
        *(np.zeros((1, 8), np.uint32), np.zeros((4, 1))),
    ),
)
