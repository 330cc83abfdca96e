"""A call by names, as albumentations has it: image, mask, bboxes, keypoints and labels in, the same names out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from augpipe.augment_call.box_formats import from_edges
from augpipe.augment_call.given_targets import GivenTargets, chosen
from augpipe.augment_call.inputs import is_tensor
from augpipe.augment_call.mapped_targets import MappedTargets, mapped_targets
from augpipe.planning.output_format import import_torch
from augpipe.planning.plan import Plan
from augpipe.planning.targets.options import TargetOptions

TARGETS = ("mask", "masks", "bboxes", "polygons", "rotated_boxes", "keypoints")


def named_results(
    given: GivenTargets,
    plan: Plan,
    images: Sequence[Any],
    bbox_format: str | None,
    options: TargetOptions,
    originals: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """For each view its image and targets, under the names that they were given by.

    Args:
        given: the targets.
        plan: of the one image.
        images: of each view.
        bbox_format: how boxes are written.
        options: how targets are mapped.
        originals: the arguments themselves: what came as a tensor comes back as one.
    """
    drops_empty = options.drop_empty is not False
    results = []
    for rows, image in zip(plan.views, images, strict=True):
        found = mapped_targets(given, rows, options, drops_empty=drops_empty)
        if found.masks is not None:
            pairs = zip(found.masks, originals["masks"], strict=True)
            found = replace(found, masks=[_like(one, original, keeps_type=True) for one, original in pairs])
        targets = _targets(given, found, bbox_format, drops_empty=drops_empty)
        targets |= {
            name: _like(targets[name], original, keeps_type=name == "mask" or name in given.paired)
            for name, original in originals.items()
            if name in targets
        }
        results.append({"image": image, **targets})
    return results


def _like(values: Any, original: Any, *, keeps_type: bool) -> Any:
    """An array as a tensor where that is what came; all else as it is."""
    if not is_tensor(original) or not isinstance(values, np.ndarray):
        return values
    tensor = import_torch().from_numpy(values)
    return tensor.to(original.dtype) if keeps_type else tensor


def _targets(
    given: GivenTargets, found: MappedTargets, bbox_format: str | None, *, drops_empty: bool
) -> dict[str, Any]:
    result: dict[str, Any] = dict(found.paired)
    if found.mask is not None:
        result["mask"] = found.mask
    masks, objects = found.masks, found.objects
    if objects is not None:
        stays = objects.stays
        if masks is not None:
            masks = chosen(masks, stays)
        if objects.boxes is not None and given.box_columns is not None and bbox_format is not None:
            boxes = from_edges(objects.boxes[stays], bbox_format, found.size)
            result["bboxes"] = np.concatenate([boxes, given.box_columns[stays]], axis=1).astype(np.float32)
        if objects.polygons is not None:
            result["polygons"] = chosen(objects.polygons, stays)
        if objects.rotated_boxes is not None:
            result["rotated_boxes"] = objects.rotated_boxes[stays].astype(np.float32)
        if objects.keypoints is not None:
            result["keypoints"] = objects.keypoints[stays].astype(np.float32)
        result |= {name: chosen(values, stays) for name, values in given.fields.items()}
        ids = given.fields.get("object_ids", np.arange(len(stays)))
        result["object_ids"] = chosen(ids, stays)
        ids = ids.tolist() if isinstance(ids, np.ndarray) else ids
        result["dropped"] = [(ids[n], reason) for n, reason in enumerate(objects.reasons) if reason is not None]
    if masks is not None:
        result["masks"] = masks
    if found.points is not None and found.points_are_shown is not None:
        kept = found.points_are_shown if drops_empty else np.ones_like(found.points_are_shown)
        result["keypoints"] = found.points[kept].astype(np.float32)
        result["keypoint_ids"] = np.flatnonzero(kept)
    return result
