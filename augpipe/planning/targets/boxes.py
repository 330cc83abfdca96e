"""Boxes through a map: the bound of what is shown of each one's outline."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.planning.targets.inverse_map import HIGH, LOW, InverseMap
from augpipe.planning.targets.polygons import map_rings, mapped, shares_of
from augpipe.planning.targets.rings import Float, Int, Rings, bounds_of_all, boxes_as_rings, ellipses_as_rings, within

OUTLINE_POINTS = 32
"""Of an outline that a lens bends; where lines stay straight, the corners are enough, and what bends more strongly
takes as many as it needs."""
ELLIPSE_POINTS = 360
"""As in albumentations."""


def map_boxes(inverse: InverseMap, boxes: Float, item: Int) -> tuple[Float, Float]:
    """(N, 4) output boxes left, top, right, bottom, and (N,) the share of each that is shown; zeros where none is.

    Each is the least box around the part of the mapped outline that lies within the frame. What the recipe's border
    covers of the image is not shown. Of a box without area, nothing is shown.

    Args:
        inverse: the map.
        boxes: (N, 4) in source pixels, in the same order of edges.
        item: (N,) whose plan record each belongs to.
    """
    bounds, shares = np.empty((len(boxes), 4)), np.empty(len(boxes))
    if len(boxes) and not inverse.bends.any():
        return _bounds(inverse, boxes, item, 4)
    is_bent, is_looked_at = inverse.bends[item], inverse.is_looked_at[item]
    ways = ((OUTLINE_POINTS, is_bent & ~is_looked_at), (4, ~is_bent), (None, is_looked_at))
    for num_points, chosen in ways:  # each as if the others were not there
        if chosen.any():
            bounds[chosen], shares[chosen] = _bounds(inverse, boxes[chosen], item[chosen], num_points)
    return bounds, shares


def _bounds(inverse: InverseMap, boxes: Float, item: Int, num_points: int | None) -> tuple[Float, Float]:
    """What `map_boxes` gives, by outlines of so many points, or of as many as polygons get."""
    seen = inverse.seen[item]
    cut = np.clip(boxes, seen[:, LOW], seen[:, HIGH])
    if num_points is None:
        rings, bounds, areas = map_rings(inverse, boxes_as_rings(boxes, item, 4))
        shown: Float = rings.areas().reshape(-1, len(boxes)).sum(axis=0)
    else:
        outlines = mapped(inverse, boxes_as_rings(cut, item, num_points))
        whole = outlines if (cut == boxes).all() else mapped(inverse, boxes_as_rings(boxes, item, num_points))
        parts = inverse.parts_shown(outlines)
        bounds = bounds_of_all([outlines.bounds_within(limits) for limits in parts])
        shown = np.sum([within(outlines, limits).areas() for limits in parts], axis=0)
        areas = whole.areas()
    shares = shares_of(shown, areas)
    # what is cut to a line at an edge would have an area again once it is turned
    is_line = ~(cut[:, 2:] > cut[:, :2]).all(axis=1)
    bounds[is_line], shares[is_line] = 0.0, 0.0
    return bounds, shares


def map_corners(inverse: InverseMap, boxes: Float, item: Int) -> tuple[Float, Float]:
    """As `map_boxes`, of the box around all four mapped corners, which is cut at the frame after that.

    This is what torchvision and albumentations do: such a box may be much larger than what is shown.
    """
    return _cut_after(inverse, boxes, item, partial(boxes_as_rings, num_points=4))


def map_ellipses(inverse: InverseMap, boxes: Float, item: Int) -> tuple[Float, Float]:
    """As `map_corners`, of the box around the ellipse that touches the sides of each, as albumentations has it."""
    return _cut_after(inverse, boxes, item, partial(ellipses_as_rings, num_points=ELLIPSE_POINTS))


def _cut_after(
    inverse: InverseMap, boxes: Float, item: Int, outlines_of: Callable[[Float, Int], Rings]
) -> tuple[Float, Float]:
    """What `map_boxes` gives, by the boxes around mapped outlines of what is seen of each."""
    seen = inverse.seen[item]
    kept = np.clip(boxes, seen[:, LOW], seen[:, HIGH])
    outlines = mapped(inverse, outlines_of(kept, item))
    bounds, parts = outlines.bounds(), inverse.parts_shown(outlines)
    whole = bounds if (kept == boxes).all() else mapped(inverse, outlines_of(boxes, item)).bounds()
    cuts = [np.clip(bounds, limits[:, LOW], limits[:, HIGH]) for limits in parts]
    for cut in cuts:
        cut[~(kept[:, 2:] > kept[:, :2]).all(axis=1)] = 0.0
    shown: Float = np.sum([box_areas(cut) for cut in cuts], axis=0)
    return bounds_of_all(cuts), shares_of(shown, box_areas(whole))


OF_BOXES = {"tight": map_boxes, "corners": map_corners, "ellipse": map_ellipses}
"""By `TargetOptions.boxes`."""


def box_areas(boxes: npt.NDArray[np.floating[Any]]) -> npt.NDArray[Any]:
    """(N,) width times height."""
    areas: npt.NDArray[Any] = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas
