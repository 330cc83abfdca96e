"""What is left of objects that others are pasted on, and the alpha plane of what is pasted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from augpipe.planning.targets.boxes import box_areas
from augpipe.planning.targets.mask_rings import rings_of, runs_of
from augpipe.planning.targets.masks import filled_rings, mask_bounds
from augpipe.planning.targets.objects import MappedObjects
from augpipe.planning.targets.options import TargetOptions, reasons_to_drop
from augpipe.planning.targets.rings import Bool, Float, Int

Region = tuple[int, int, int, int]

REACH = 3.0
"""How far a Gaussian is followed, in standard deviations."""


def alpha_plane(mask: Bool, blur_px: float) -> tuple[Region, npt.NDArray[np.float32]]:
    """Left, top, right and bottom of what an (H, W) mask covers, with its blurred edge, and the alpha there, in 0..1.

    The mask goes on beyond the frame as it is at its edge.
    """
    height, width = mask.shape
    left, top, right, bottom = mask_bounds(mask[None])[0].astype(np.int64).tolist()
    reach = math.ceil(REACH * blur_px)
    if left == right:
        return (0, 0, 0, 0), np.zeros((0, 0), np.float32)
    left, top, right, bottom = max(left - reach, 0), max(top - reach, 0), right + reach, bottom + reach
    right, bottom = min(right, width), min(bottom, height)
    plane = mask[top:bottom, left:right].astype(np.float32)
    if reach:
        weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / blur_px) ** 2)
        weights = (weights / weights.sum()).astype(np.float32)
        for axis, side in enumerate(plane.shape):
            padding = [(reach, reach) if axis == padded else (0, 0) for padded in (0, 1)]
            wide = np.moveaxis(np.pad(plane, padding, mode="edge"), axis, 0)
            plane = np.moveaxis(sum(weight * wide[n : n + side] for n, weight in enumerate(weights)), 0, axis)
        plane = np.clip(plane, 0.0, 1.0)
    return (left, top, right, bottom), plane


def covered_objects(
    mapped: MappedObjects, covers: Mapping[int, Bool], options: TargetOptions, *, drops_empty: bool
) -> MappedObjects:
    """What is left of objects under what is pasted on them.

    A box's sides move to what is left of the object's outline, or of the box itself where there is none; sides that are
    not reached stay as they are. Key points under what is pasted get visibility 0. Polygons of objects that lose
    something go along the edges of the pixels that are left.

    Args:
        mapped: N objects.
        covers: number of an object -> (H, W) where it is covered.
        options: who stays.
        drops_empty: whether those go of which nothing is shown.
    """
    if mapped.boxes is None or mapped.shares is None or mapped.areas is None or not covers:
        return mapped
    boxes, shares, areas = mapped.boxes.copy(), mapped.shares.copy(), mapped.areas.copy()
    polygons = None if mapped.polygons is None else list(mapped.polygons)
    keypoints = None if mapped.keypoints is None else mapped.keypoints.copy()
    for number, cover in covers.items():
        if keypoints is not None:
            keypoints[number, _are_within(cover, keypoints[number, :, :2]), 2] = 0
        rings = polygons[number] if polygons is not None else []
        masks = filled_rings([rings or [_corners(boxes[number])]], cover.shape)
        left = masks * ~cover
        num, num_left = int(masks.sum()), int(left.sum())
        if num_left == num:
            continue
        before, after = mask_bounds(masks)[0], mask_bounds(left)[0]
        boxes[number] = np.where(before == after, boxes[number], after) if num_left else 0.0
        shares[number] *= num_left / num
        areas[number] = areas[number] * num_left / num if rings else box_areas(boxes[[number]])[0]
        if polygons is not None and rings:
            polygons[number] = rings_of(runs_of(left[0]), len(cover))
    return replace(
        mapped,
        boxes=boxes,
        shares=shares,
        areas=areas,
        polygons=polygons,
        keypoints=keypoints,
        reasons=reasons_to_drop(boxes, shares, options, drops_empty=drops_empty),
    )


def _corners(box: Float) -> Float:
    return box[[0, 1, 2, 1, 2, 3, 0, 3]].reshape(4, 2)


def _are_within(mask: Bool, points: Float) -> Bool:
    """(N,) which of (N, 2) points lie in a pixel of an (H, W) mask."""
    height, width = mask.shape
    with np.errstate(invalid="ignore"):
        x, y = np.nan_to_num(np.floor(points), nan=-1.0, posinf=-1.0, neginf=-1.0).T
    is_in: Bool = (x >= 0) & (y >= 0) & (x < width) & (y < height)
    is_in[is_in] = mask[y[is_in].astype(np.int64), x[is_in].astype(np.int64)]
    return is_in


def order_of_outlines(polygons: Sequence[Sequence[Float]]) -> Int:
    """(N,) the place of each object among N with outlines, by where these lie: in which order a source lists its
    objects does not matter."""
    bounds = np.empty((len(polygons), 4))
    for number, rings in enumerate(polygons):
        points = np.concatenate(list(rings))
        bounds[number] = *points.min(axis=0), *points.max(axis=0)
    x0, y0, x1, y1 = bounds.T
    places: Int = np.argsort(np.lexsort((y1, x1, y0, x0)))
    return places
