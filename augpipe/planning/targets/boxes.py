"""Boxes through a map: the bound of what is shown of each one's outline."""

import numpy as np
import numpy.typing as npt

from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.polygons import map_rings
from augpipe.planning.targets.rings import boxes_as_rings

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]

OUTLINE_POINTS = 32
"""Of an outline that a lens bends; where lines stay straight, the corners are enough."""


def map_boxes(inverse: InverseMap, boxes: Float, item: Int) -> tuple[Float, Float]:
    """(N, 4) output boxes left, top, right, bottom, and (N,) the share of each that is shown; zeros where none is.

    Each is the least box around the part of the mapped outline that lies within the frame.

    Args:
        inverse: the map.
        boxes: (N, 4) in source pixels, in the same order of edges.
        item: (N,) whose plan record each belongs to.
    """
    num_points = OUTLINE_POINTS if inverse.bends[item].any() else 4
    shown, shares = map_rings(inverse, boxes_as_rings(boxes, item, num_points))
    return shown.measured()[1], shares


def map_corners(inverse: InverseMap, boxes: Float, item: Int) -> tuple[Float, Float]:
    """As `map_boxes`, of the box around all four mapped corners, which is cut at the frame after that.

    This is what torchvision and albumentations do: such a box may be much larger than what is shown.
    """
    rings = boxes_as_rings(boxes, item, 4)
    whole = inverse.project(rings.at(inverse.to_lens(rings.points, rings.item_of_points)[0])).measured()[1]
    sizes = np.tile(inverse.sizes[item], 2)
    mapped = np.clip(whole, 0.0, sizes)
    areas, shown = box_areas(whole), box_areas(mapped)
    return mapped, np.divide(shown, areas, out=np.zeros_like(areas), where=areas > 0.0)


def box_areas(boxes: Float) -> Float:
    """(N,) width times height."""
    areas: Float = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return areas
