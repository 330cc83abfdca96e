"""The targets of one image as a view of it shows them."""

from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from augpipe.augment_call.given_targets import GivenTargets, Mask
from augpipe.planning.targets.fill_notice import tell_of_fill
from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.masks import fill_of, map_mask, mapped_mask, mask_bounds, shown_pixels
from augpipe.planning.targets.objects import MappedObjects, Objects, map_objects, shares_of_masks
from augpipe.planning.targets.options import Interpolation, TargetOptions

Rows = npt.NDArray[np.void]


@dataclass(frozen=True, kw_only=True)
class MappedTargets:
    """What a view shows of an image's targets; all objects are there, `objects.reasons` says which are dropped."""

    size: tuple[int, int]
    """Height and width of the output."""
    objects: MappedObjects | None
    points: npt.NDArray[np.float64] | None
    """(M, 2 ..) points that belong to no object."""
    points_are_shown: npt.NDArray[np.bool_] | None
    mask: Mask | None
    masks: list[Mask] | None
    paired: dict[str, Mask]


def mapped_targets(given: GivenTargets, row: Rows, options: TargetOptions, *, drops_empty: bool) -> MappedTargets:
    """Map the targets by a (1,) plan record of a view."""
    inverse = InverseMap(row)
    mask = masks = by_masks = objects = points = are_shown = None
    fills = options.mask_border == "fill"
    shown = cache(partial(shown_pixels, row, fills=fills))

    def looked_up(one: Mask, by: Interpolation, *, holes: bool = False) -> Mask:
        fill = fill_of(one, options.mask_fill)
        if by == "nearest":
            return map_mask(one, shown(holes=holes), fill)
        return mapped_mask(one, row, by=by, fill=fill, fills=fills, holes=holes)

    if given.mask is not None:
        mask = looked_up(given.mask, options.mask_interpolation, holes=options.mask_holes)
        tell_of_fill(given.mask, row, options)
    if given.masks is not None:
        masks = [map_mask(one, shown(holes=options.mask_holes), 0) for one in given.masks]
    paired = {name: looked_up(one, options.paired[name]) for name, one in given.paired.items()}
    if given.num is not None:
        item = np.zeros(given.num, np.int64)
        if given.masks is not None and masks is not None and given.num:
            shares = np.ones(given.num)
            if options.min_visibility > 0.0:  # which nothing else asks for, and it takes longest
                shares = shares_of_masks(inverse, given.masks, item)
            whole = [map_mask(one, shown(holes=False), 0) for one in given.masks] if options.mask_holes else masks
            by_masks = mask_bounds(np.stack(whole)), shares
        known = Objects(
            item=item,
            boxes=given.boxes,
            polygons=given.polygons,
            rotated_boxes=given.rotated_boxes,
            keypoints=given.keypoints,
        )
        objects = map_objects(inverse, known, options, drops_empty=drops_empty, by_masks=by_masks)
    if given.points is not None:
        places, are_shown = inverse.to_output(given.points[:, :2], np.zeros(len(given.points), np.int64))
        points = np.concatenate([places, given.points[:, 2:]], axis=1)
    return MappedTargets(
        size=(int(row["out_height"][0]), int(row["out_width"][0])),
        objects=objects,
        points=points,
        points_are_shown=are_shown,
        mask=mask,
        masks=masks,
        paired=paired,
    )
