"""Polygons, and the outlines of boxes, through a map: divided where it bends them, then cut at what is shown."""

import numpy as np
import numpy.typing as npt

from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.rings import Rings, all_of, bounds_of_all, within

Float = npt.NDArray[np.float64]

TOLERANCE_PX = 0.0625
"""How far a mapped edge may lie from the curve that it stands for; a quarter of a pixel is what is promised."""
FIRST_PIECES = 4
"""An edge begins in as many pieces: the middle of one that bends both ways may lie on its chord."""
MOST_ROUNDS = 7


def map_rings(inverse: InverseMap, rings: Rings) -> tuple[Rings, Float, Float]:
    """What is shown of R source rings, in output pixels, its (R, 4) bounds, and (R,) areas uncut.

    The rings are cut at the frame. Where another image covers a part, there are four times as many: R in each of the
    rectangles around that part, most of them without corners.
    """
    seen = within(rings, inverse.seen[rings.item])
    whole = mapped(inverse, divided(inverse, rings))
    shown = whole if seen is rings else mapped(inverse, divided(inverse, seen))
    parts = inverse.parts_shown(rings.item, shown.bounds())
    bounds = bounds_of_all([shown.bounds_within(limits) for limits in parts])
    return all_of([within(shown, limits) for limits in parts]), bounds, whole.areas()


def mapped(inverse: InverseMap, rings: Rings) -> Rings:
    """Source rings in output pixels, straight from corner to corner."""
    return inverse.project(rings.at(inverse.to_lens(rings.points, rings.item_of_points)[0]))


def shares_of(shown_areas: Float, areas: Float) -> Float:
    """(N,) how much of each area is shown, in 0..1; 0 of what has none."""
    return np.minimum(np.divide(shown_areas, areas, out=np.zeros_like(areas), where=areas > 0.0), 1.0)


def divided(inverse: InverseMap, rings: Rings) -> Rings:
    """Source rings with points added until their mapped edges follow the map's curves to `TOLERANCE_PX`.

    Edges outside the frame stay as they are, and so do all where the map keeps lines straight.
    """
    is_bent = inverse.bends[rings.item_of_points]
    if not is_bent.any():
        return rings
    shares = np.arange(FIRST_PIECES) / FIRST_PIECES
    rings, is_new = _with_points(rings, is_bent, shares), None
    scale = inverse.px_per_unit()
    for _ in range(MOST_ROUNDS):
        ends = _next_in_ring(rings)
        item = rings.item_of_points
        is_open = inverse.bends[item] if is_new is None else is_new
        chosen = np.flatnonzero(is_open)
        middles = 0.5 * (rings.points[chosen] + rings.points[ends[chosen]])
        first, last, middle = (
            inverse.to_lens(points, item[chosen])[0]
            for points in (rings.points[chosen], rings.points[ends[chosen]], middles)
        )
        missed = np.linalg.norm(middle - 0.5 * (first + last), axis=1) * scale[item[chosen]]
        is_far = missed > TOLERANCE_PX
        if not is_far.any():
            break
        splits = np.zeros(len(rings.points), np.bool_)
        splits[chosen[is_far]] = True
        rings = _with_points(rings, splits, np.array([0.0, 0.5]))
        is_new = np.repeat(splits, np.where(splits, 2, 1))
    return rings


def _next_in_ring(rings: Rings) -> npt.NDArray[np.int64]:
    """(N,): the number of the corner that follows each."""
    following = np.arange(1, len(rings.points) + 1)
    filled = rings.starts[1:] > rings.starts[:-1]
    following[rings.starts[1:][filled] - 1] = rings.starts[:-1][filled]
    return following


def _with_points(rings: Rings, splits: npt.NDArray[np.bool_], shares: Float) -> Rings:
    """The rings with each edge of `splits` cut at shares of its length, of which the first is 0."""
    num = np.where(splits, len(shares), 1)
    first = np.concatenate([[0], np.cumsum(num)])
    nth = np.arange(first[-1]) - np.repeat(first[:-1], num)
    edge = np.repeat(np.arange(len(num)), num)
    ends = rings.points[_next_in_ring(rings)]
    points = rings.points[edge] + shares[nth][:, None] * (ends - rings.points)[edge]
    return Rings(points=points, starts=first[rings.starts], item=rings.item)
