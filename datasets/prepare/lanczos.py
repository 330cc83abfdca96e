"""Lanczos resampling of 8-bit RGBX pixels: the numbers that Pillow gives, by loops that the compiler vectorises."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel
from augpipe.sources.protocol import Pixels

_LOBES = 3.0
_BITS = 22
"""Bits of the weights' fractions, as Pillow has it: of 32 bits, 8 are left for pixels, 2 for weights below 0 or above
1."""
_HALF = np.int32(1 << (_BITS - 1))
_SHIFT = np.int32(_BITS)
_ZERO, _MOST = np.int32(0), np.int32(255)
_BLOCK_ROWS = 32
"""Rows that are turned at once: such a block of an image stays in the second cache."""
_TURNED_PX = 8
_Weights = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]


def lanczos(pixels: Pixels, height: int, width: int) -> Pixels:
    """Resize to (height, width, 4) by Lanczos with three lobes: first along rows, then along columns.

    Bit for bit what `PIL.Image.resize` gives when it is asked for the width first and the height then, in a quarter of
    its time. One call of it does the same, except for images some times as high as wide, whose columns it takes first.

    Args:
        pixels: (H, W, 4) uint8, C-contiguous; the fourth byte is resampled like the others.
        height: of the result, in pixels.
        width: as above.

    Returns:
        (height, width, 4) uint8, C-contiguous; `pixels` itself where the size is the same.
    """
    rows, columns = pixels.shape[:2]
    if columns != width:
        narrow = np.empty((rows, width), np.uint32)
        # one turned block of the image and one of the result: 32 rows each
        scratch = np.empty((columns, _BLOCK_ROWS), np.uint32), np.empty((width, _BLOCK_ROWS), np.uint32)
        _along_rows(pixels.view(np.uint32)[..., 0], *_weights(columns, width), *scratch, narrow)
        pixels = narrow.view(np.uint8).reshape(rows, width, 4)
    if rows != height:
        low = np.empty((height, width, 4), np.uint8)
        _along_columns(pixels.reshape(rows, -1), *_weights(rows, height), low.reshape(height, -1))
        pixels = low
    return pixels


@lru_cache(maxsize=64)
def _weights(num_in: int, num_out: int) -> _Weights:
    """For each pixel of the result: the first one that it is made of, and their weights times 2^22, padded by zeros.

    Data sets have few sizes, so that most are made once.
    """
    support = _LOBES * max(num_in / num_out, 1.0)
    num_taps = min(2 * math.ceil(support) + 1, num_in)
    starts, weights = np.zeros(num_out, np.int64), np.zeros((num_out, num_taps), np.int32)
    _fill(num_in, support, starts, weights)
    used = max(int(np.flatnonzero(weights.any(axis=0))[-1]) + 1, 1)
    return starts, np.ascontiguousarray(weights[:, :used])


@kernel(fastmath=False)  # a sum rounded once less would not be Pillow's
def _fill(num_in, support, starts, weights):  # type: ignore[no-untyped-def]
    """Fill (num_out,) starts and (num_out, num_taps) weights; every window of `num_taps` lies within the image."""
    num_out, num_taps = weights.shape
    scale = num_in / num_out
    shrink = 1.0 / max(scale, 1.0)
    found = np.empty(num_taps + 1, np.float64)
    for place in range(num_out):
        center = (place + 0.5) * scale
        first = max(int(center - support + 0.5), 0)
        num = min(int(center + support + 0.5), num_in) - first
        total = 0.0
        for tap in range(num):
            x = (tap + first - center + 0.5) * shrink
            weight = 0.0
            if -_LOBES <= x < _LOBES:
                weight = 1.0
                if x != 0.0:
                    angle, third = x * math.pi, x / 3 * math.pi
                    weight = math.sin(angle) / angle * (math.sin(third) / third)
            found[tap] = weight
            total += weight
        start = min(first, num_in - num_taps)
        starts[place] = start
        for tap in range(num):
            exact = found[tap] / total * (1 << _BITS)
            weights[place, first - start + tap] = int(exact - 0.5) if exact < 0 else int(exact + 0.5)


@kernel()
def _along_rows(pixels, starts, weights, turned, narrow_turned, narrow):  # type: ignore[no-untyped-def]
    """Resample (H, W) uint32 pixels to (H, width) in blocks of rows, turned so that neighbours share their weights."""
    rows, columns = pixels.shape
    width = narrow.shape[1]
    for top in range(0, rows, _BLOCK_ROWS):
        num = min(_BLOCK_ROWS, rows - top)
        for left in range(0, columns, _TURNED_PX):
            for row in range(num):
                for column in range(left, min(left + _TURNED_PX, columns)):
                    turned[column, row] = pixels[top + row, column]
        _mix(turned.view(np.uint8), starts, weights, narrow_turned.view(np.uint8))
        for left in range(0, width, _TURNED_PX):
            for row in range(num):
                for column in range(left, min(left + _TURNED_PX, width)):
                    narrow[top + row, column] = narrow_turned[column, row]


@kernel()
def _along_columns(rows, starts, weights, low):  # type: ignore[no-untyped-def]
    """Resample (H, 4 W) bytes to (height, 4 W)."""
    _mix(rows, starts, weights, low)


@kernel()
def _mix(rows, starts, weights, mixed):  # type: ignore[no-untyped-def]
    """Each row of (num_out, N) bytes as the weighted sum of a few neighbouring rows of (num_in, N) bytes."""
    num_out, num_taps = weights.shape
    length = rows.shape[1]
    sums = np.empty(length, np.int32)
    for place in range(num_out):
        start = starts[place]
        for i in range(length):
            sums[i] = _HALF
        tap = 0
        while tap + 4 <= num_taps:  # four at a time: a quarter of the loads and stores of sums
            a, b, c, d = weights[place, tap], weights[place, tap + 1], weights[place, tap + 2], weights[place, tap + 3]
            first, second = rows[start + tap], rows[start + tap + 1]
            third, fourth = rows[start + tap + 2], rows[start + tap + 3]
            for i in range(length):
                sums[i] = np.int32(
                    sums[i]
                    + np.int32(np.int32(first[i]) * a)
                    + np.int32(np.int32(second[i]) * b)
                    + np.int32(np.int32(third[i]) * c)
                    + np.int32(np.int32(fourth[i]) * d)
                )
            tap += 4
        while tap < num_taps:
            a = weights[place, tap]
            first = rows[start + tap]
            for i in range(length):
                sums[i] = np.int32(sums[i] + np.int32(np.int32(first[i]) * a))
            tap += 1
        for i in range(length):
            level = np.int32(sums[i] >> _SHIFT)
            mixed[place, i] = np.uint8(min(max(level, _ZERO), _MOST))


def _tables() -> _Weights:
    return np.zeros(1, np.int64), np.zeros((1, 1), np.int32)


declare(__name__, _fill, any=lambda: (1, 1.0, *_tables()))
declare(__name__, _along_rows, any=lambda: (np.zeros((1, 1), np.uint32), *_tables(), *np.zeros((3, 1, 1), np.uint32)))
declare(__name__, _along_columns, any=lambda: (np.zeros((1, 1), np.uint8), *_tables(), np.zeros((1, 1), np.uint8)))
