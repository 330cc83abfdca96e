"""The objects of some images through their map: boxes by the best that is known of each, key points, and who stays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from augpipe.planning.targets.boxes import OF_BOXES, box_areas
from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.options import TargetOptions, reasons_to_drop
from augpipe.planning.targets.points import map_points
from augpipe.planning.targets.polygons import map_rings, shares_of
from augpipe.planning.targets.rings import Bool, Float, Int, Rings
from augpipe.planning.targets.rotated_boxes import Polygons, map_rotated, points_shown


@dataclass(frozen=True, kw_only=True)
class Objects:
    """N objects of some images, in pixels of the upright images; what is not known is None."""

    item: Int
    """(N,) whose plan record each belongs to."""
    boxes: Float | None = None
    """(N, 4) left, top, right, bottom."""
    polygons: Polygons | None = None
    """Not with rotated boxes, which are their objects' outlines."""
    rotated_boxes: Float | None = None
    """(N, 4, 2) corners, one after the other around each."""
    keypoints: Float | None = None
    """(N, K, 3): x, y and COCO's visibility, 0 for a point that is not labelled."""


@dataclass(frozen=True, kw_only=True)
class MappedObjects:
    """The same objects in output pixels, all of them and in their order."""

    boxes: Float | None
    shares: Float | None
    """(N,) how much of each object's area is shown, in 0..1."""
    areas: Float | None
    """(N,) in square pixels: that of what is shown of the polygon, or of the box where there is none."""
    polygons: list[list[Float]] | None
    rotated_boxes: Float | None
    """(N, 4, 2) corners of rectangles, clockwise as seen; zeros where nothing is shown."""
    keypoints: Float | None
    reasons: list[str | None]
    """Why each is dropped; None for those that stay."""

    @property
    def stays(self) -> Bool:
        """(N,)."""
        return np.array([reason is None for reason in self.reasons], np.bool_)


def map_objects(
    inverse: InverseMap,
    objects: Objects,
    options: TargetOptions,
    *,
    drops_empty: bool,
    by_masks: tuple[Float, Float] | None = None,
) -> MappedObjects:
    """Map objects, and say which are dropped.

    Args:
        inverse: the map.
        objects: what is known of them.
        options: how boxes are made, and who stays.
        drops_empty: whether those go of which nothing is shown.
        by_masks: (N, 4) bounds of the objects' mapped masks, and (N,) shares that are shown of them: the boxes of
            those without polygons, unless boxes are made of corners.
    """
    boxes = shares = areas = polygons = rotated = None
    known, kept = objects, np.ones(len(objects.item))
    if objects.rotated_boxes is not None:
        known = replace(objects, polygons=[[corners] for corners in objects.rotated_boxes], rotated_boxes=None)
    for earlier in inverse.before:  # a box becomes the box around what the pass shows of it
        passed = map_objects(earlier, replace(known, keypoints=None), options, drops_empty=False)
        known = replace(known, boxes=known.boxes if known.boxes is None else passed.boxes, polygons=passed.polygons)
        kept = kept if passed.shares is None else kept * passed.shares
    has_rings = np.zeros(len(known.item), np.bool_)
    if known.polygons is not None:
        has_rings = np.array([len(rings) > 0 for rings in known.polygons], np.bool_)
    if known.boxes is not None:
        boxes, shares = np.zeros((len(known.item), 4)), np.zeros(len(known.item))
        chosen = ~has_rings if options.boxes == "tight" else np.ones_like(has_rings)  # the others' come of outlines
        boxes[chosen], shares[chosen] = OF_BOXES[options.boxes](inverse, known.boxes[chosen], known.item[chosen])
        shares *= kept
    if by_masks is not None and (options.boxes == "tight" or (boxes is None and known.polygons is None)):
        boxes, shares = by_masks
    if known.polygons is not None:
        polygons, bounds, shown, areas = map_polygons(inverse, known.polygons, known.item)
        shown = shown * kept
        if boxes is None or shares is None:
            boxes, shares = bounds, shown
        elif options.boxes == "tight":
            boxes = np.where(has_rings[:, None], bounds, boxes)
            shares = np.where(has_rings, shown, shares)
        if objects.rotated_boxes is not None:
            around = points_shown(inverse, objects.item, known.polygons, polygons, bounds)
            rotated = map_rotated(inverse, objects.rotated_boxes, objects.item, around, options.rotated_boxes)
            polygons, is_hidden = None, (rotated == 0.0).all(axis=(1, 2))
            boxes, shares = np.where(is_hidden[:, None], 0.0, boxes), np.where(is_hidden, 0.0, shares)
    if boxes is not None:
        areas = box_areas(boxes) if areas is None else np.where(has_rings, areas, box_areas(boxes))
    keypoints = None
    if objects.keypoints is not None:
        visibility = objects.keypoints[:, :, 2].astype(np.int64)
        points, seen = map_points(
            inverse, objects.keypoints[:, :, :2], visibility, objects.item, options.keypoint_swaps
        )
        keypoints = np.concatenate([points, seen[:, :, None]], axis=2)
    reasons: list[str | None] = [None] * len(objects.item)
    if boxes is not None and shares is not None:
        reasons = reasons_to_drop(boxes, shares, options, drops_empty=drops_empty)
    return MappedObjects(
        boxes=boxes,
        shares=shares,
        areas=areas,
        polygons=polygons,
        rotated_boxes=rotated,
        keypoints=keypoints,
        reasons=reasons,
    )


def map_polygons(inverse: InverseMap, polygons: Polygons, item: Int) -> tuple[list[list[Float]], Float, Float, Float]:
    """What is shown of objects' polygons in output pixels, (N, 4) bounds, (N,) shares of their areas, (N,) areas of it.

    A polygon that a cut parts stays one, whose parts hang together along the frame's edge. One that another image
    covers in part has a ring on each side of that.
    """
    owner = np.repeat(np.arange(len(polygons)), [len(rings) for rings in polygons])
    rings = [ring for rings in polygons for ring in rings]
    starts = np.cumsum([0, *map(len, rings)])
    points = np.concatenate([np.empty((0, 2)), *rings])
    shown, ring_bounds, areas = map_rings(inverse, Rings(points=points, starts=starts, item=item[owner]))
    shown_areas = shown.areas()
    mapped: list[list[Float]] = [[] for _ in polygons]
    bounds = np.tile([np.inf, np.inf, -np.inf, -np.inf], (len(polygons), 1))
    counts = inverse.is_looked_at[item[owner]]  # a fold may show what its outline does not
    for part in np.flatnonzero(np.diff(shown.starts) > 0):
        ring = part % len(rings)
        mapped[owner[ring]].append(shown.points[shown.starts[part] : shown.starts[part + 1]])
        counts[ring] = True
    for ring in np.flatnonzero(counts & ring_bounds.any(axis=1)):
        bounds[owner[ring], :2] = np.minimum(bounds[owner[ring], :2], ring_bounds[ring, :2])
        bounds[owner[ring], 2:] = np.maximum(bounds[owner[ring], 2:], ring_bounds[ring, 2:])
    bounds[~np.isfinite(bounds).all(axis=1)] = 0.0
    whole, shown_of_each = np.zeros(len(polygons)), np.zeros(len(polygons))
    np.add.at(whole, owner, areas)
    np.add.at(shown_of_each, np.tile(owner, len(shown_areas) // max(len(rings), 1)), shown_areas)
    return mapped, bounds, shares_of(shown_of_each, whole), shown_of_each


MOST_SAMPLES = 1024
"""Pixels of a mask by which it is judged how much of it is shown."""


def shares_of_masks(inverse: InverseMap, masks: Sequence[npt.NDArray[np.generic]], item: Int) -> Float:
    """(N,): of how many of each mask's pixels that are not 0 the output shows the place, in 0..1."""
    shares = np.zeros(len(masks))
    for position, mask in enumerate(masks):
        rows, columns = np.nonzero(mask)
        if len(rows):
            every = -(-len(rows) // MOST_SAMPLES)
            points: Float = np.stack([columns[::every], rows[::every]], axis=1).astype(np.float64) + 0.5
            _, is_shown = inverse.to_output(points, np.full(len(points), item[position]), counts_folds=True)
            shares[position] = is_shown.mean()
    return shares
