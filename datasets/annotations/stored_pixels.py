"""Places in the pixels of a file as they are stored, to and from the upright image, by EXIF's orientation."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.decoding.orientation import swaps_sides, upright

Floats = npt.NDArray[np.float64]
Size = tuple[int, int]
"""Height and width in pixels."""

_MIRRORS_X = (2, 3, 6, 7)
_MIRRORS_Y = (3, 4, 7, 8)


def stored_size(size: Size, orientation: int) -> Size:
    """That of the stored pixels, of the upright image's."""
    return size[::-1] if swaps_sides(orientation) else size


def upright_points(points: Floats, orientation: int, size: Size) -> Floats:
    """(.., 2) x, y in the upright image of `size`, of places in the stored pixels; see `decoding.orientation`."""
    turned = points[..., ::-1].copy() if swaps_sides(orientation) else points.copy()
    return _mirrored(turned, orientation, size)


def stored_points(points: Floats, orientation: int, size: Size) -> Floats:
    """The reverse: (.., 2) in the stored pixels, of places in the upright image of `size`."""
    turned = _mirrored(points.copy(), orientation, size)
    return turned[..., ::-1] if swaps_sides(orientation) else turned


def upright_boxes(boxes: Floats, orientation: int, size: Size) -> Floats:
    """(N, 4) left, top, right, bottom in the upright image, of boxes in the stored pixels."""
    return _around(upright_points(boxes.reshape(-1, 2, 2), orientation, size))


def stored_boxes(boxes: Floats, orientation: int, size: Size) -> Floats:
    """The reverse of `upright_boxes`."""
    return _around(stored_points(boxes.reshape(-1, 2, 2), orientation, size))


def upright_map(labels: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """(H, W, ..) labels of the upright image, of those of the stored pixels."""
    turned = upright(labels.reshape(*labels.shape[:2], -1), orientation)
    return np.ascontiguousarray(turned.reshape(*turned.shape[:2], *labels.shape[2:]))


def stored_map(labels: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """The reverse: a quarter turn is undone by the opposite one, and all else by itself."""
    return upright_map(labels, {6: 8, 8: 6}.get(orientation, orientation))


def _mirrored(points: Floats, orientation: int, size: Size) -> Floats:
    if orientation in _MIRRORS_X:
        points[..., 0] = size[1] - points[..., 0]
    if orientation in _MIRRORS_Y:
        points[..., 1] = size[0] - points[..., 1]
    return points


def _around(corners: Floats) -> Floats:
    """(N, 4) bounds of (N, 2, 2) opposite corners."""
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
