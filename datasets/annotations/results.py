"""Detections as COCO's evaluation takes them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.run_lengths import encode
from augpipe.datasets.annotations.stored_pixels import stored_boxes, stored_map, stored_points
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.shard_targets import resized_map
from augpipe.sources import Subset
from augpipe.sources.protocol import Source
from augpipe.sources.subset import check_id
from augpipe.validation.plural import count

_KNOWN = ("boxes", "scores", "labels", "masks", "keypoints")


def coco_results(
    source: CocoSource | ShardSource | Subset, sample_ids: Sequence[int], detections: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A dict for each detection: image_id, category_id, bbox, score, and segmentation and keypoints where given.

    `json.dump` writes the list, and pycocotools' `loadRes` takes it. Ids are those of the source's file, and places
    count as they do there.

    Args:
        source: a `CocoSource`, a `ShardSource` that `augpipe prepare` made of one, or a `Subset` of either.
        sample_ids: the images, as in `batch.sample_ids`.
        detections: for each image arrays or tensors, in pixels of the upright photograph (`Plan.to_source` takes them
            there), or of the shards' scale: boxes (N, 4) left, top, right, bottom; scores (N,); labels (N,), numbers of
            `object_classes`; if you like masks (N, H, W), of which what is at least 0.5 is inside, and keypoints
            (N, K, 3).

    Raises:
        IndexError: a sample id is not one of the source's.
        ValueError: something is missing, of another shape, not finite, or not a class, or a box's right edge is left
            of its left one; names the image.
        OSError: an image whose orientation is asked for cannot be read.
    """
    whole: Source = source
    ids = [int(sample_id) for sample_id in sample_ids]
    for sample_id in ids:
        check_id(sample_id, len(source))
    while isinstance(whole, Subset):
        ids, whole = whole.ids[ids].tolist(), whole.whole
    if not isinstance(whole, CocoSource) and not (isinstance(whole, ShardSource) and whole.category_ids):
        what = (
            "ShardSource that was not made of COCO's files" if isinstance(whole, ShardSource) else type(whole).__name__
        )
        raise ValueError(
            f"source is a {what}, and only a CocoSource, and shards made of one, know the ids of COCO's files."
        )
    if len(ids) != len(detections):
        raise ValueError(
            f"{count(len(ids), 'sample id')} and detections of {count(len(detections), 'image')} are given."
        )
    return [row for sample_id, found in zip(ids, detections, strict=True) for row in _of_image(whole, sample_id, found)]


def _of_image(source: CocoSource | ShardSource, sample_id: int, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    name = source.name(sample_id)
    arrays = {key: _array(found[key]) for key in _KNOWN if key in found}
    if missing := {"boxes", "scores", "labels"} - arrays.keys():
        raise ValueError(f"{name}: its detections have no {', '.join(sorted(missing))}.")
    num = len(arrays["scores"])
    for key, array in arrays.items():
        if len(array) != num:
            raise ValueError(f"{name}: {count(num, 'score')}, and {key} of length {len(array)}. Give one each.")
    if not num:
        return []
    _check_numbers(name, arrays)
    labels = arrays["labels"].tolist()
    for label in labels:
        if label % 1 or not 0 <= label < len(source.category_ids):
            most = len(source.category_ids) - 1
            raise ValueError(
                f"{name}: label {label} is not a number of object_classes (0..{most}). Is one a background?"
            )
    orientation, size = source.turned(sample_id)
    shown_size = source.size(sample_id) if isinstance(source, ShardSource) else size
    factors = np.array(size[::-1]) / shown_size[::-1]  # 1 but for shards of another scale
    boxes = stored_boxes(arrays["boxes"].reshape(num, 4) * np.tile(factors, 2), orientation, size)
    boxes[:, 2:] -= boxes[:, :2]
    rows = [
        {
            "image_id": source.image_id(sample_id),
            "category_id": source.category_ids[int(label)],
            "bbox": [round(edge, 3) for edge in box],
            "score": score,
        }
        for label, box, score in zip(labels, boxes.tolist(), arrays["scores"].tolist(), strict=True)
    ]
    if "masks" in arrays:
        for row, mask in zip(rows, arrays["masks"].reshape(num, *arrays["masks"].shape[-2:]) >= 0.5, strict=True):
            if mask.shape != shown_size:
                raise ValueError(f"{name}: a mask has the shape {mask.shape}, and the photograph {shown_size}.")
            row["segmentation"] = encode(stored_map(resized_map(mask, *size), orientation))
    if "keypoints" in arrays:
        points = arrays["keypoints"].astype(np.float64)
        points[..., :2] = stored_points(points[..., :2] * factors, orientation, size)
        for row, own in zip(rows, points.reshape(num, -1).tolist(), strict=True):
            row["keypoints"] = [round(value, 3) for value in own]
    return rows


def _check_numbers(name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Refuse what JSON has no number for, and boxes inside out.

    Raises:
        ValueError: names the image and the first such detection.
    """
    num = len(arrays["scores"])
    for key in ("boxes", "scores", "keypoints"):
        values = arrays[key].reshape(num, -1) if key in arrays else np.zeros((num, 1))
        for place in np.flatnonzero(~np.isfinite(values).all(axis=1)).tolist():
            raise ValueError(f"{name}: {key}[{place}] is {values[place].tolist()}, and must be finite.")
    boxes = arrays["boxes"].reshape(num, 4)
    for place in np.flatnonzero((boxes[:, 2:] < boxes[:, :2]).any(axis=1)).tolist():
        raise ValueError(
            f"{name}: boxes[{place}] is {boxes[place].tolist()}, and must be left, top, right, bottom. "
            "Is it left, top, width, height?"
        )


def _array(values: Any) -> npt.NDArray[Any]:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
