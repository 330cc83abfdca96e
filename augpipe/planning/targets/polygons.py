"""Polygons, and the outlines of boxes, through a map: divided where it bends them, then cut at what is shown."""

import numpy as np

from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.rings import Float, Int, Rings, all_of, bounds_of_all, within

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
    whole = mapped_finely(inverse, rings)
    shown = whole if seen is rings else mapped_finely(inverse, seen)
    parts = inverse.parts_shown(shown)
    bounds = bounds_of_all([inverse.fitted(seen, limits, shown.bounds_within(limits)) for limits in parts])
    return all_of([within(shown, limits) for limits in parts]), bounds, whole.areas()


def mapped(inverse: InverseMap, rings: Rings) -> Rings:
    """Source rings in output pixels, straight from corner to corner."""
    return inverse.project(rings.at(inverse.to_lens(rings.points, rings.item_of_points, is_outline=True)[0]))


def shares_of(shown_areas: Float, areas: Float) -> Float:
    """(N,) how much of each area is shown, in 0..1; 0 of what has none."""
    return np.minimum(np.divide(shown_areas, areas, out=np.zeros_like(areas), where=areas > 0.0), 1.0)


def mapped_finely(inverse: InverseMap, rings: Rings) -> Rings:
    """Source rings in output pixels, with points added until their edges follow the map's curves to `TOLERANCE_PX`.

    Edges outside the frame stay as they are, and so do all where the map keeps lines straight.
    """
    is_open = inverse.bends[rings.item_of_points]
    if not is_open.any():
        return mapped(inverse, rings)
    num = np.where(is_open, inverse.pieces(rings, rings.points[_next_in_ring(rings)], FIRST_PIECES), 1)
    rings, is_open = _with_points(rings, num), np.repeat(is_open, num)
    in_lens = inverse.to_lens(rings.points, rings.item_of_points, is_outline=True)[0]
    scale = inverse.px_per_unit()
    for _ in range(MOST_ROUNDS):
        chosen, following, item = np.flatnonzero(is_open), _next_in_ring(rings), rings.item_of_points
        middles = rings.points[chosen] + 0.5 * (rings.points[following[chosen]] - rings.points[chosen])
        found = inverse.to_lens(middles, item[chosen], is_outline=True)[0]
        chord = 0.5 * (in_lens[chosen] + in_lens[following[chosen]])
        is_far = np.linalg.norm(found - chord, axis=1) * scale[item[chosen]] > TOLERANCE_PX
        if not is_far.any():
            break
        num = np.ones(len(rings.points), np.int64)
        num[chosen[is_far]] = 2
        rings, is_open = _with_points(rings, num), np.repeat(num > 1, num)
        in_lens = np.repeat(in_lens, num, axis=0)
        in_lens[np.cumsum(num)[chosen[is_far]] - 1] = found[is_far]
    return inverse.project(rings.at(in_lens))


def _next_in_ring(rings: Rings) -> Int:
    """(N,): the number of the corner that follows each."""
    following = np.arange(1, len(rings.points) + 1)
    filled = rings.starts[1:] > rings.starts[:-1]
    following[rings.starts[1:][filled] - 1] = rings.starts[:-1][filled]
    return following


def _with_points(rings: Rings, num: Int) -> Rings:
    """The rings with each edge cut into (N,) `num` pieces of one length."""
    first = np.concatenate([[0], np.cumsum(num)])
    nth = np.arange(first[-1]) - np.repeat(first[:-1], num)
    edge = np.repeat(np.arange(len(num)), num)
    ends = rings.points[_next_in_ring(rings)]
    points = rings.points[edge] + (nth / num[edge])[:, None] * (ends - rings.points)[edge]
    return Rings(points=points, starts=first[rings.starts], item=rings.item)
