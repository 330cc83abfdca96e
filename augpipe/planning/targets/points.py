"""Key points through a map, with their visibility, and left and right swapped where the image is mirrored."""

from collections.abc import Sequence

import numpy as np

from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.rings import Float, Int


def map_points(
    inverse: InverseMap, points: Float, visibility: Int, item: Int, swaps: Sequence[tuple[int, int]] = ()
) -> tuple[Float, Int]:
    """(N, K, 2) output points and (N, K) visibility, which is 0 for what the output does not show.

    Args:
        inverse: the map.
        points: (N, K, 2) in source pixels, K of each of N objects.
        visibility: (N, K), COCO's: 0 is not labelled, 1 labelled and hidden, 2 visible. Points of 0 stay as they are.
        item: (N,) whose plan record each object belongs to.
        swaps: pairs of points, as (left eye, right eye), that trade places where the image is mirrored.

    Raises:
        ValueError: a pair names a point that there is not.
    """
    num, each = visibility.shape
    if swaps and num and (last := max(map(max, swaps))) >= each:
        raise ValueError(f"keypoint_swaps names point {last}, and objects have the {each} points 0..{each - 1}.")
    mapped, is_shown = inverse.to_output(points.reshape(-1, 2), np.repeat(item, each))
    found = np.where(visibility[:, :, None] > 0, mapped.reshape(num, each, 2), points)
    seen = np.where(is_shown.reshape(num, each), visibility, 0)
    if swaps:
        order = np.arange(each)
        for left, right in swaps:
            order[left], order[right] = right, left
        mirrored = inverse.is_mirrored[item]
        found[mirrored], seen[mirrored] = found[mirrored][:, order], seen[mirrored][:, order]
    return found, seen
