"""What a contact sheet shows of an image's targets: those that the loader gives, and those of the whole original."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.batch import Batch
from augpipe.planning.fields import not_followed
from augpipe.planning.targets.options import TargetOptions
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Source
from augpipe.sources.targets import LabelMap, Targets, has_targets

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownTargets:
    """The targets of one image, in its pixels; None or empty for what is not known."""

    classes: Sequence[int]
    """(N,) class numbers of the objects; -1 without one."""
    names: Sequence[str]
    """(N,) names of these classes; empty without one."""
    boxes: Floats | None
    """(N, 4) left, top, right, bottom."""
    polygons: Sequence[Sequence[Floats]]
    """(N,) lists of rings, (K, 2) corners each."""
    keypoints: Floats | None
    """(N, K, 3) x, y and COCO's visibility."""
    label_map: LabelMap | None
    """(H, W) or (H, W, C)."""
    are_rotated: bool = False
    """Whether the polygons are rotated boxes: those along the axes only say where names stand."""


def options_for(source: Source, recipe: Recipe) -> TargetOptions | None:
    """How targets are mapped for a sheet; None where there are none, or they do not follow the recipe."""
    if not has_targets(source) or not_followed(recipe, has_label_maps=source.has_label_maps):
        return None
    return TargetOptions(polygons=True, keypoint_swaps=tuple(source.keypoint_swaps))


def of_view(source: Source, batch: Batch, view: int) -> ShownTargets | None:
    """Those of a batch of one that holds numpy arrays."""
    if batch.targets is None or not has_targets(source):
        return None
    targets = batch.targets[view] if isinstance(batch.targets, tuple) else batch.targets
    if isinstance(targets, np.ndarray):
        return _shown(source, {}, 0, targets[0])
    (target,) = targets
    num = len(target["object_ids"])
    return _shown(source, target, num, target.get("mask"))


def of_original(source: Source, sample_id: int) -> ShownTargets | None:
    """All that the source says of a sample."""
    if not has_targets(source):
        return None
    objects: Targets | None = source.targets_of(np.array([sample_id]))
    label_map = source.label_map(sample_id) if source.has_label_maps else None
    known = {} if objects is None else {name: getattr(objects, name) for name in _NAMES}
    return _shown(source, known, 0 if objects is None else int(objects.counts[0]), label_map)


_NAMES = ("labels", "boxes", "polygons", "rotated_boxes", "keypoints")


def outlines_of(polygons: Any, rotated_boxes: Any, num: int) -> Sequence[Sequence[Floats]]:
    """The rings of each of so many objects: of their outlines or rotated boxes, or none."""
    if rotated_boxes is not None:
        return [[corners] for corners in rotated_boxes]
    return [()] * num if polygons is None else polygons


def _shown(source: Source, known: dict[str, Any], num: int, label_map: LabelMap | None) -> ShownTargets:
    labels, boxes, polygons, rotated, keypoints = (known.get(name) for name in _NAMES)
    polygons = outlines_of(polygons, rotated, num)
    classes = [-1] * num if labels is None else [int(label) for label in labels]
    assert has_targets(source)
    names = source.object_classes
    return ShownTargets(
        classes=classes,
        names=[names[number] if 0 <= number < len(names) else "" for number in classes],
        boxes=boxes,
        polygons=polygons,
        keypoints=keypoints,
        label_map=label_map,
        are_rotated=rotated is not None,
    )
