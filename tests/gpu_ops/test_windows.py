"""Sums over windows of pixels: which windows are found, and that nothing outside what is looked at is loaded."""

import numpy as np
import pytest

from augpipe.gpu_ops.image.windows import (
    BLOCK,
    WIDE_WINDOW,
    WINDOW,
    find_windows,
    sum_wide_window,
    sum_wide_window_of_rgb,
    sum_window,
    sum_window_of_rgb,
)
from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.memory import has_avx512


@kernel()
def can_sum():
    return has_avx512()


@kernel()
def windows_of(indices, bases):
    taps, width = indices.shape
    return find_windows(indices.ctypes.data, bases.ctypes.data, width, taps)


@kernel()
def sums_of(row, indices, weights, bases, window, sums):
    """Block after block, as `aligned` sums a row."""
    taps, width = indices.shape
    step = 4 * width
    for block in range((width + BLOCK - 1) // BLOCK):
        ahead, base = 4 * min(block * BLOCK, width - BLOCK), bases[block]
        at = np.uintp(row.ctypes.data + row.shape[1] * np.int64(base))
        at_indices, at_weights = np.uintp(indices.ctypes.data + ahead), np.uintp(weights.ctypes.data + ahead)
        at_sums = np.uintp(sums.ctypes.data + ahead)
        if row.shape[1] == 3 and window == WINDOW:
            sum_window_of_rgb(at, base, at_indices, at_weights, step, taps, at_sums)
        elif row.shape[1] == 3:
            sum_wide_window_of_rgb(at, base, at_indices, at_weights, step, taps, at_sums)
        elif window == WINDOW:
            sum_window(at, base, at_indices, at_weights, step, taps, at_sums)
        else:
            sum_wide_window(at, base, at_indices, at_weights, step, taps, at_sums)


def indices_of(width: int, first: float, step: float, taps: int) -> np.ndarray:
    """(taps, width) int32: neighbours of evenly spaced points."""
    return (np.floor(first + step * np.arange(width)) + np.arange(taps)[:, None]).astype(np.int32)


CASES = {
    "upscaled": (indices_of(100, 3, 0.4, 2), WINDOW),
    "whole pixels": (indices_of(64, 0, 1, 2), WINDOW),
    "mirrored": (indices_of(53, 90, -1.4, 3), WINDOW),
    "halved": (indices_of(37, 5, 2.0, 4), WIDE_WINDOW),
    "halved and mirrored": (indices_of(224, 500, -2.2, 5), WIDE_WINDOW),
    "a window, no more": (indices_of(16, 7, 2, 2), WINDOW),
    "too far apart": (indices_of(64, 0, 4.2, 2), 0),
    "fewer than a window": (indices_of(20, 0, 0.4, 2), 0),
    "fewer than a block": (indices_of(15, 0, 2.2, 2), 0),
    "border": (np.clip(indices_of(96, -9, 1.2, 3), 0, 99), WINDOW),
}


@pytest.mark.parametrize("case", CASES)
def test_windows_hold_what_their_blocks_look_at(case: str) -> None:
    indices, expected = CASES[case]
    bases = np.full(indices.shape[1], -1, np.int32)
    window = windows_of(indices, bases)
    assert window == (expected if can_sum() else 0)
    for block in range(-(-indices.shape[1] // BLOCK) if window else 0):
        first = min(block * BLOCK, indices.shape[1] - BLOCK)
        places = indices[:, first : first + BLOCK] - bases[block]
        assert places.min() >= 0 and places.max() < window
        assert indices.min() <= bases[block] <= indices.max() - window + 1


@pytest.mark.parametrize("case", [case for case, (_, window) in CASES.items() if window])
def test_sums(case: str) -> None:
    if not can_sum():
        pytest.skip("this CPU has no AVX-512")
    indices, _ = CASES[case]
    rng = np.random.default_rng(len(case))
    row = rng.integers(0, 256, (indices.max() + 1, 4), np.uint8)
    weights = rng.normal(size=indices.shape).astype(np.float32)
    bases, sums = np.zeros(indices.shape[1], np.int32), np.full((3, indices.shape[1]), np.nan, np.float32)
    sums_of(row, indices, weights, bases, windows_of(indices, bases), sums)
    expected = (row[indices, :3] * weights[:, :, None].astype(np.float64)).sum(axis=0).T
    np.testing.assert_allclose(sums, expected, atol=1e-3)
    of_rgb = np.full_like(sums, np.nan)
    sums_of(row[:, :3].copy(), indices, weights, bases, windows_of(indices, bases), of_rgb)
    np.testing.assert_array_equal(of_rgb, sums)
