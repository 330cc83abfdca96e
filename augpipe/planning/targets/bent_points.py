"""Points through a grid or an elastic field: from the nearest corner of the output's pixels by Newton's method."""

import numpy as np
import numpy.typing as npt

from augpipe.planning.fields import bent_points_of_pass

Rows = npt.NDArray[np.void]
Float = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

STARTS = 16
"""Corners that Newton's method begins at for each point where a map folds: it may find the point's other places."""
SAME_PX = 0.01
MOST_STEPS = 20
LONGEST_STEP_PX = 1.0
DIFFERENCE_PX = 1e-5
NEAR_PX = 1e-4
"""A point is found where its place in the image is missed by less."""


def unbent_points(row: Rows, points: Float) -> tuple[Float, Bool]:
    """(N, 2) output points that show source points, by a (1,) record of a pass, and whether each is shown just once.

    Where the map folds the image over itself, a place is shown by several points, one of them mirrored: none counts.
    Points outside the frame are not found.
    """
    height, width = int(row["out_height"][0]), int(row["out_width"][0])
    y, x = np.mgrid[: height + 1, : width + 1].astype(np.float64)
    corners = np.stack([x, y], axis=-1).reshape(-1, 2)
    sources = _sources(row, corners)
    mirrored = _mirrored(sources.reshape(height + 1, width + 1, 2))
    num = STARTS if len(mirrored) else 1
    start = np.array([np.argpartition(((sources - point) ** 2).sum(axis=1), num)[:num] for point in points], np.int64)
    wanted = np.repeat(points, num, axis=0)
    found = _newton(row, wanted, corners[start.ravel()])
    is_found: Bool = np.all(np.abs(wanted - _sources(row, found)) < NEAR_PX, axis=1).reshape(-1, num)
    found = found.reshape(-1, num, 2)
    first = found[np.arange(len(points)), is_found.argmax(axis=1)]
    is_other = (np.abs(found - first[:, None]) > SAME_PX).any(axis=2) & is_found
    is_folded = [bool(((point >= mirrored[:, 0]) & (point <= mirrored[:, 1])).all(axis=1).any()) for point in points]
    return first, is_found.any(axis=1) & ~is_other.any(axis=1) & ~np.array(is_folded, np.bool_)


def _newton(row: Rows, wanted: Float, found: Float) -> Float:
    """(N, 2) output points whose sources come near (N, 2) wanted ones, from (N, 2) places to begin with."""
    for _ in range(MOST_STEPS):
        missed = wanted - _sources(row, found)
        if (np.abs(missed) < 0.01 * NEAR_PX).all():
            break
        along_x, along_y = (
            (_sources(row, found + step) - _sources(row, found - step)) / (2.0 * DIFFERENCE_PX)
            for step in DIFFERENCE_PX * np.eye(2)
        )
        area = along_x[:, 0] * along_y[:, 1] - along_x[:, 1] * along_y[:, 0]
        area = np.where(np.abs(area) > 1e-9, area, np.inf)
        step_x = (missed[:, 0] * along_y[:, 1] - missed[:, 1] * along_y[:, 0]) / area
        step_y = (missed[:, 1] * along_x[:, 0] - missed[:, 0] * along_x[:, 1]) / area
        found = found + np.clip(np.stack([step_x, step_y], axis=1), -LONGEST_STEP_PX, LONGEST_STEP_PX)
    return found


def _sources(row: Rows, points: Float) -> Float:
    return bent_points_of_pass(row, points, np.zeros(len(points), np.int64))


def _mirrored(sources: Float) -> Float:
    """(M, 2, 2) left and top, right and bottom of pixels that are shown mirrored and of those next to them, in sources.

    (H + 1, W + 1, 2) `sources` are of the pixels' corners.
    """
    across, down = np.diff(sources, axis=1), np.diff(sources, axis=0)
    areas = [
        along[..., 0] * below[..., 1] - along[..., 1] * below[..., 0]
        for along in (across[:-1], across[1:])
        for below in (down[:, :-1], down[:, 1:])
    ]
    is_mirrored = np.pad((np.stack(areas) * np.sign(np.median(areas)) <= 0.0).any(axis=0), 1)
    is_near = np.lib.stride_tricks.sliding_window_view(is_mirrored, (3, 3)).any(axis=(2, 3))
    rows, columns = np.nonzero(is_near)
    pixels = np.stack([sources[rows + i, columns + j] for i in (0, 1) for j in (0, 1)])
    return np.stack([pixels.min(axis=0), pixels.max(axis=0)], axis=1)
