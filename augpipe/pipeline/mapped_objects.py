"""What a view of a batch shows of the objects of its images: those that stay, one behind the other in arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.batch_targets import ViewTargets
from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.masks import filled_rings
from augpipe.planning.targets.objects import MappedObjects, Objects, map_objects
from augpipe.planning.targets.options import TargetOptions
from augpipe.sources.targets import LabelMap, Targets

Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]


def view_targets(
    objects: Targets | None,
    rows: Rows,
    size: tuple[int, int],
    image_ids: Sequence[Any],
    options: TargetOptions,
    label_maps: LabelMap | None,
) -> ViewTargets:
    """Map the objects of a batch's images by the (B,) plan records of a view.

    Args:
        objects: of the images; None where only label maps are known.
        rows: the records.
        size: height and width of the outputs.
        image_ids: (B,) of the images.
        options: how they are mapped, and who stays.
        label_maps: mapped ones, handed on.
    """
    if objects is None:
        return ViewTargets(
            size=size, image_ids=image_ids, counts=None, columns={}, dropped=[[] for _ in rows], label_maps=label_maps
        )
    image = np.repeat(np.arange(len(rows)), objects.counts)
    boxes = objects.boxes
    if boxes is not None and options.clip:
        edges = np.stack([rows["width"], rows["height"]] * 2, axis=1)
        boxes = np.clip(boxes, 0.0, edges[image])
    known = Objects(item=image, boxes=boxes, polygons=objects.polygons, keypoints=objects.keypoints)
    mapped = map_objects(InverseMap(rows), known, options, drops_empty=options.drop_empty is not False)
    stays, ids = mapped.stays, _object_ids(objects)
    dropped: list[list[tuple[Any, str]]] = [[] for _ in rows]
    for number in np.flatnonzero(~stays).tolist():
        own = ids[number].item() if isinstance(ids, np.ndarray) else ids[number]
        dropped[image[number]].append((own, str(mapped.reasons[number])))
    return ViewTargets(
        size=size,
        image_ids=image_ids,
        counts=np.bincount(image[stays], minlength=len(rows)),
        columns=_columns(objects, mapped, {"object_ids": ids}, np.flatnonzero(stays), size, options),
        dropped=dropped,
        label_maps=label_maps,
    )


def _object_ids(objects: Targets) -> Any:
    """(N,): what the source calls them, or the place of each among the objects of its image, from 0."""
    if "object_ids" in objects.fields:
        return objects.fields["object_ids"]
    first = np.cumsum(objects.counts) - objects.counts
    return np.arange(int(objects.counts.sum())) - np.repeat(first, objects.counts)


def _columns(
    objects: Targets,
    mapped: MappedObjects,
    ids: Mapping[str, Any],
    stays: Ints,
    size: tuple[int, int],
    options: TargetOptions,
) -> dict[str, Any]:
    """What is said of the objects that stay, by its name."""
    columns: dict[str, Any] = {}
    if mapped.boxes is not None:
        columns["boxes"] = mapped.boxes[stays].astype(np.float32)
    if objects.labels is not None:
        columns["labels"] = objects.labels[stays].astype(np.int64)
    if mapped.areas is not None:
        columns["area"] = mapped.areas[stays].astype(np.float32)
        columns["iscrowd"] = np.zeros(len(stays), np.int64)
    if mapped.keypoints is not None:
        columns["keypoints"] = mapped.keypoints[stays].astype(np.float32)
    if mapped.polygons is not None:
        shown = [mapped.polygons[number] for number in stays]
        if options.masks:
            columns["masks"] = filled_rings(shown, size)
        if options.polygons:
            columns["polygons"] = shown
    fields = {name: values for name, values in objects.fields.items() if name != "area"}  # that of the photograph
    for name, values in {**fields, **ids}.items():
        if name == "iscrowd":
            values = np.asarray(values, np.int64)
        is_array = isinstance(values, np.ndarray) and values.dtype.kind in "biuf"
        columns[name] = values[stays] if is_array else [values[number] for number in stays]
    return columns
