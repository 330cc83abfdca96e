"""Rotated boxes through a map: the rectangle of least area around each, and its centre, sides and angle."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.least_rectangles import enclose
from augpipe.planning.targets.boxes import OUTLINE_POINTS
from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.rings import Float, Int

Polygons = Sequence[Sequence[Float]]
"""For each object its rings, (K, 2) corners each; none for an object that has a box only."""
RotatedRule = Literal["tight", "whole"]
_SAME_SIDE_FIRST = [1, 0, 3, 2]
"""Corners the other way round, with the same first side."""


def map_rotated(inverse: InverseMap, boxes: Float, item: Int, shown: Sequence[Float], rule: RotatedRule) -> Float:
    """(N, 4, 2) corners in output pixels, clockwise as seen; zeros where nothing is shown.

    The first side stays the first one, also where the image is mirrored.

    Args:
        inverse: the map.
        boxes: (N, 4, 2) corners in source pixels.
        item: (N,) whose plan record each belongs to.
        shown: for each (K, 2) output points around what is shown of it, none where nothing is.
        rule: tight: around what is shown; whole: around all of it, as far as a perspective shows it at all.
    """
    found = _around(shown)
    bends = inverse.bends.copy()
    for earlier in inverse.before:
        bends |= earlier.bends
    is_shown = np.array([len(points) > 0 for points in shown], np.bool_)
    for each, chosen in ((OUTLINE_POINTS // 4, bends[item]), (1, ~bends[item])):
        numbers = np.flatnonzero(chosen & is_shown)
        if rule == "whole" and len(numbers):
            points = _with_sides(boxes[numbers], each)
            num = points.shape[1]
            places = inverse.to_output(points.reshape(-1, 2), np.repeat(item[numbers], num))[0].reshape(-1, num, 2)
            is_there = np.isfinite(places).all(axis=(1, 2))
            numbers, groups = numbers[is_there], list(places[is_there])
            if each > 1:  # a field may bend a side further out between these points
                groups = [np.concatenate([own, shown[n]]) for own, n in zip(groups, numbers.tolist(), strict=True)]
            found[numbers] = _around(groups)
    corners = inverse.to_output(boxes.reshape(-1, 2), np.repeat(item, 4))[0].reshape(-1, 4, 2)
    return _in_order(found, np.nan_to_num(corners))


def points_shown(inverse: InverseMap, item: Int, sources: Polygons, outlines: Polygons, bounds: Float) -> list[Float]:
    """(K, 2) output points around what is shown of each of N objects: of its outline, and where a map folds the image
    also of other places that show it.

    Args:
        inverse: the map.
        item: (N,) whose plan record each belongs to.
        sources: the objects' rings in source pixels of the last pass.
        outlines: what is shown of these, in output pixels.
        bounds: (N, 4) of what is shown.
    """
    found = []
    for row, rings, outline, of_one in zip(item.tolist(), sources, outlines, bounds, strict=True):
        elsewhere = inverse.outermost_shown(rings, row, of_one)
        outline = () if len(elsewhere) and inverse.hides_outlines(row) else outline
        found.append(np.concatenate([elsewhere, *outline]))
    return found


def _around(groups: Sequence[Float]) -> Float:
    """(R, 4, 2) rectangles of least area around R groups of (K, 2) points."""
    corners = np.empty((len(groups), 4, 2))
    points = np.concatenate([np.empty((0, 2)), *groups])
    enclose(points, np.cumsum([0, *map(len, groups)]), corners)
    return corners


def _with_sides(boxes: Float, each: int) -> Float:
    """(N, 4 * each, 2) points along the sides of (N, 4, 2) boxes."""
    shares = (np.arange(each) / each)[:, None]
    sides = np.roll(boxes, -1, axis=1) - boxes
    return (boxes[:, :, None] + shares * sides[:, :, None]).reshape(len(boxes), -1, 2)


def _in_order(rectangles: Float, corners: Float) -> Float:
    """(N, 4, 2) clockwise rectangles, whose first side is that of (N, 4, 2) `corners`."""
    wanted = np.where((_doubled_areas(corners) < 0.0)[:, None, None], corners[:, _SAME_SIDE_FIRST], corners)
    turned = np.stack([np.roll(rectangles, -shift, axis=1) for shift in range(4)])
    best = ((turned - wanted) ** 2).sum(axis=(2, 3)).argmin(axis=0)
    ordered: Float = turned[best, np.arange(len(rectangles))]
    return ordered


def _doubled_areas(corners: Float) -> Float:
    """(N,) twice the areas, positive where (N, 4, 2) corners go clockwise as seen."""
    across, along = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    doubled: Float = across[:, 0] * along[:, 1] - across[:, 1] * along[:, 0]
    return doubled


def as_xywhr(boxes: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float32]:
    """(N, 5) float32 centre x, y, width, height and angle of (N, 4, 2) corners of rectangles, as Ultralytics has it.

    The width is that of the longer sides. The angle is theirs from the x axis, clockwise as seen, in radians from
    -pi/4 up to, but without, 3 pi/4.
    """
    corners = np.asarray(boxes, np.float64).reshape(-1, 4, 2)
    first = 0.5 * (corners[:, 1] - corners[:, 0] + corners[:, 2] - corners[:, 3])
    second = 0.5 * (corners[:, 2] - corners[:, 1] + corners[:, 3] - corners[:, 0])
    sides = np.stack([np.linalg.norm(side, axis=1) for side in (first, second)], axis=1)
    along = np.where((sides[:, 0] >= sides[:, 1])[:, None], first, second)
    angles = np.mod(np.arctan2(along[:, 1], along[:, 0]) + np.pi / 4, np.pi)
    angles = np.where(angles < np.pi, angles, 0.0) - np.pi / 4  # mod of a little less than 0 rounds to pi
    centres = corners.mean(axis=1)
    columns = [centres, sides.max(axis=1, keepdims=True), sides.min(axis=1, keepdims=True), angles[:, None]]
    return np.concatenate(columns, axis=1).astype(np.float32)
