"""Boxes through a map: the bound of what is shown of each one's outline."""

import numpy as np
import numpy.typing as npt

from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.polygons import frames, mapped, shares_of
from augpipe.planning.targets.rings import boxes_as_rings, within

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]

OUTLINE_POINTS = 32
"""Of an outline that a lens bends; where lines stay straight, the corners are enough."""


def map_boxes(inverse: InverseMap, boxes: Float, item: Int) -> tuple[Float, Float]:
    """(N, 4) output boxes left, top, right, bottom, and (N,) the share of each that is shown; zeros where none is.

    Each is the least box around the part of the mapped outline that lies within the frame. What the recipe's border
    covers of the image is not shown.

    Args:
        inverse: the map.
        boxes: (N, 4) in source pixels, in the same order of edges.
        item: (N,) whose plan record each belongs to.
    """
    num_points = OUTLINE_POINTS if inverse.bends[item].any() else 4
    seen = inverse.seen[item]
    cut = np.clip(boxes, np.tile(seen[:, :2], 2), np.tile(seen[:, 2:], 2))
    outlines = mapped(inverse, boxes_as_rings(cut, item, num_points))
    whole = outlines if (cut == boxes).all() else mapped(inverse, boxes_as_rings(boxes, item, num_points))
    limits = frames(inverse)[item]
    return outlines.bounds_within(limits), shares_of(within(outlines, limits).areas(), whole.areas())


def map_corners(inverse: InverseMap, boxes: Float, item: Int) -> tuple[Float, Float]:
    """As `map_boxes`, of the box around all four mapped corners, which is cut at the frame after that.

    This is what torchvision and albumentations do: such a box may be much larger than what is shown.
    """
    everywhere = np.tile([-1e30, -1e30, 1e30, 1e30], (len(boxes), 1))
    whole = mapped(inverse, boxes_as_rings(boxes, item, 4)).bounds_within(everywhere)
    cut = np.clip(whole, 0.0, np.tile(inverse.sizes[item], 2))
    return cut, shares_of(box_areas(cut), box_areas(whole))


def box_areas(boxes: Float) -> Float:
    """(N,) width times height."""
    areas: Float = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas
