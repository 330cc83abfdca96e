"""The look-up that plan records hold, as the kernels carry it out: where in the image lies what an output shows."""

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.lens import distort, radial_gain
from augpipe.gpu_ops.image.sampling import LEAST_DIVISOR
from augpipe.planning.record_passes import passes_of

Rows = npt.NDArray[np.void]
Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]


def look_up_matrices(rows: Rows) -> tuple[Float, Float]:
    """(B, 3, 3) from output pixels to lens coordinates, and (B, 3, 3) from these, bent, to pixels of the image."""
    after = np.zeros((len(rows), 3, 3))
    after[:, :2] = rows["after"]
    after[:, :2, 2] += rows["origin"]
    after[:, 2, 2] = 1.0
    before = np.zeros((len(rows), 3, 3))
    before[:, :2, :2], before[:, :2, 2] = rows["before"], rows["before_offset"]
    before[:, 2] = rows["before_divisor"]
    from_centre = np.tile(np.eye(3), (len(rows), 1, 1))
    from_centre[:, 0, 2], from_centre[:, 1, 2] = -0.5 * rows["out_width"], -0.5 * rows["out_height"]
    return np.matmul(before, from_centre), after


def looked_at(rows: Rows) -> Float:
    """(B, 4) left, top, right, bottom of what the crops of (B,) records keep, in pixels of the image; of several passes
    the rectangle around that."""
    *before, last = passes_of(rows)
    found: Float = last["crop"].astype(np.float64)
    item = np.repeat(np.arange(len(rows)), 4)
    for own in reversed(before):
        outline = found[:, [[0, 1], [2, 1], [2, 3], [0, 3]]].reshape(-1, 2)
        corners = points_of_pass(own, outline, item).reshape(-1, 4, 2)
        found = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    return found


def lens_points(rows: Rows, points: Float, item: Int) -> Float:
    """(N, 2) points of a pass in lens coordinates, which the lens has not bent; arguments as of `points_of_pass`."""
    at = mapped_points(look_up_matrices(rows)[0], points, item)
    found: Float = at[:, :2] / np.maximum(at[:, 2:], LEAST_DIVISOR)
    return found


def points_of_pass(rows: Rows, points: Float, item: Int) -> Float:
    """(N, 2) points of the image that output points of one pass show; what fields move them by is not in it.

    Args:
        rows: (B,) plan records of a view.
        points: (N, 2) in output pixels, from the upper left corner.
        item: (N,) whose record each belongs to.
    """
    after = look_up_matrices(rows)[1]
    u, v = lens_points(rows, points, item).T
    k1, k2, k3, p1, p2 = rows["lens"][item].T
    r2 = u * u + v * v
    gain = radial_gain.py_func(r2, k1, k2, k3)
    bent = np.stack([distort.py_func(u, v, r2, gain, p2, p1), distort.py_func(v, u, r2, gain, p1, p2)], axis=1)
    return mapped_points(after, bent, item)[:, :2]


def mapped_points(matrices: Float, points: Float, item: Int) -> Float:
    """(N, 3) homogeneous points, by (B, 3, 3) matrices."""
    chosen = matrices[item]
    mapped: Float = chosen[:, :, 0] * points[:, :1] + chosen[:, :, 1] * points[:, 1:] + chosen[:, :, 2]
    return mapped
