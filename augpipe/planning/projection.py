"""The look-up where the frame is moved or projected before the lens: its slope, and how far from the centre it leads.

An output pixel (x, y), counted from the frame's centre, has lens coordinates (before (x, y) + offset) / divisor, where
the divisor is linear in x and y. Where it would be below `LEAST_DIVISOR`, nothing of the projected frame is seen.
"""

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.sampling import LEAST_DIVISOR

Rows = npt.NDArray[np.void]
Float = npt.NDArray[np.float64]


def is_moved(rows: Rows) -> bool:
    """Whether any of the plan records is more than linear before the lens."""
    return bool(rows["before_offset"].any() or rows["before_divisor"][:, :2].any())


def slope_at_centre(rows: Rows) -> Float:
    """(B, 2, 2): how plan records' look-ups after the lens change with the output pixel, at the frame's centre."""
    divisor = rows["before_divisor"][:, 2]
    is_in_front = divisor > LEAST_DIVISOR
    divisor = np.where(is_in_front, divisor, LEAST_DIVISOR)
    point = rows["before_offset"] / divisor[:, None]
    turning = np.where(is_in_front[:, None], rows["before_divisor"][:, :2], 0.0)
    before = (rows["before"] - point[:, :, None] * turning[:, None, :]) / divisor[:, None, None]
    slope: Float = np.matmul(_lens_slope(*point.T, *rows["lens"].T), before)
    return slope


def _lens_slope(u: Float, v: Float, k1: Float, k2: Float, k3: Float, p1: Float, p2: Float) -> Float:
    """(B, 2, 2): derivatives of `gpu_ops.image.lens.distort` at (B,) u and v."""
    r2 = u * u + v * v
    gain = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
    growth = 2.0 * (k1 + r2 * (2.0 * k2 + r2 * 3.0 * k3))
    slope = np.empty((len(u), 2, 2))
    slope[:, 0, 0] = gain + growth * u * u + 2.0 * p1 * v + 6.0 * p2 * u
    slope[:, 1, 1] = gain + growth * v * v + 6.0 * p1 * v + 2.0 * p2 * u
    slope[:, 0, 1] = slope[:, 1, 0] = growth * u * v + 2.0 * (p1 * u + p2 * v)
    return slope


def moved_extent(rows: Rows, extent: Float, half: Float) -> Float:
    """(B, 2): the largest lens coordinates of frames of `half` a width and height, given those of `before` alone.

    Never too little, with the frames' edges.
    """
    divisor = rows["before_divisor"]
    least = divisor[:, 2] - (np.abs(divisor[:, :2]) * half).sum(axis=1)
    furthest: Float = (extent + np.abs(rows["before_offset"])) / np.maximum(least, LEAST_DIVISOR)[:, None]
    return furthest
