"""The targets of a batch in the form that a loader was asked for: lists of dicts, padded arrays, or flat ones."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from augpipe.validation.written import array_text

if TYPE_CHECKING:
    from augpipe.planning.targets.options import TargetForm

Place = Callable[[Any], Any]
"""Makes of an array what the batch holds: itself, or a tensor where the images are; of such a tensor itself."""
OF_IMAGES = ("image_id", "mask")
"""What flat targets say of images, and not of objects."""
NO_LABEL = -1
"""The label of a place without an object in padded targets."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ViewTargets:
    """The targets of a batch's B images, as one view shows them, on the host; label maps may lie on a device."""

    size: tuple[int, int]
    """Height and width of the images."""
    image_ids: Sequence[Any]
    """(B,) what `image_id` is to say."""
    counts: npt.NDArray[np.int64] | None
    """(B,) how many objects of each stay, N together; None where the source has label maps only."""
    columns: Mapping[str, Any]
    """Name -> (N, ..) array, or a list of N, of the objects that stay, image by image."""
    dropped: Sequence[Sequence[tuple[Any, str]]]
    """For each image the objects that do not: (its object id, why)."""
    label_maps: Any
    """(B, H, W, ..) array, or tensor where the images are; None where there are none, or not yet."""


def in_form(found: ViewTargets, form: "TargetForm", place: Place) -> Any:
    """What `Batch.targets` is of one view; see `TargetOptions.form`."""
    if found.counts is None:
        if found.label_maps is None:
            raise ValueError(
                "the source's has_targets is True, has_label_maps False, and targets_of gives None: there are no "
                "targets. Set has_label_maps = True where it has a label_map, or has_targets = False."
            )
        return place(found.label_maps)
    return {"list": _as_list, "padded": _as_padded, "flat": _as_flat}[form](found, found.counts, place)


def _as_list(found: ViewTargets, counts: npt.NDArray[np.int64], place: Place) -> list[dict[str, Any]]:
    ends = np.cumsum(counts).tolist()
    starts = [0, *ends[:-1]]
    # a whole column is placed at once, and cut there: on a device each copy has to be launched
    placed = {name: _placed(values, place) for name, values in found.columns.items()}
    maps = None if found.label_maps is None else place(found.label_maps)
    results = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=False)):
        result = {name: values[start:end] for name, values in placed.items()}
        if maps is not None:
            result["mask"] = maps[number]
        for name, kind in (("boxes", "BoundingBoxes"), ("masks", "Mask"), ("mask", "Mask")):
            if name in result:
                result[name] = _as_tv(result[name], kind, found.size)
        results.append(result | {"image_id": _plain(found.image_ids[number])})
    return results


def _as_padded(found: ViewTargets, counts: npt.NDArray[np.int64], place: Place) -> dict[str, Any]:
    num, most = len(counts), int(counts.max(initial=0))
    image = np.repeat(np.arange(num), counts)
    nth = np.arange(len(image)) - np.repeat(np.cumsum(counts) - counts, counts)
    result: dict[str, Any] = {"lengths": place(counts)}
    for name, values in found.columns.items():
        if isinstance(values, np.ndarray):
            padded = np.full((num, most, *values.shape[1:]), NO_LABEL if name == "labels" else 0, values.dtype)
            padded[image, nth] = values
            result[name] = place(padded)
        else:
            rows: list[list[Any]] = [[None] * most for _ in range(num)]
            for row, column, value in zip(image.tolist(), nth.tolist(), values, strict=True):
                rows[row][column] = value
            result[name] = rows
    return result | _of_images(found, place)


def _as_flat(found: ViewTargets, counts: npt.NDArray[np.int64], place: Place) -> dict[str, Any]:
    height, width = found.size
    columns = dict(found.columns)
    columns["batch_idx"] = np.repeat(np.arange(len(counts), dtype=np.float32), counts)
    rotated, xywhr = columns.pop("rotated_boxes", None), columns.pop("xywhr", None)
    labels, boxes, keypoints = (columns.pop(name, None) for name in ("labels", "boxes", "keypoints"))
    if labels is not None:
        columns["cls"] = labels[:, None].astype(np.float32)
    if boxes is not None:
        centres = np.concatenate([0.5 * (boxes[:, :2] + boxes[:, 2:]), boxes[:, 2:] - boxes[:, :2]], axis=1)
        columns["bboxes"] = centres / np.array([width, height] * 2, np.float32)
    if rotated is not None and xywhr is not None:  # in place of those along the axes, as models of rotated boxes take
        columns["bboxes"] = xywhr / np.array([width, height, width, height, 1], np.float32)
        columns["rotated_boxes"] = rotated / np.array([width, height], np.float32)
    if keypoints is not None:
        columns["keypoints"] = keypoints / np.array([width, height, 1], np.float32)
    placed = {name: _placed(values, place) for name, values in columns.items()}
    return placed | _of_images(found, place)


def _of_images(found: ViewTargets, place: Place) -> dict[str, Any]:
    ids = found.image_ids
    as_array = np.asarray(ids)
    result = {"image_id": place(as_array) if as_array.dtype.kind in "iu" else list(ids)}
    return result if found.label_maps is None else result | {"mask": place(found.label_maps)}


def _placed(values: Any, place: Place) -> Any:
    return place(values) if isinstance(values, np.ndarray) else values


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _as_tv(values: Any, kind: str, size: tuple[int, int]) -> Any:
    """A tensor as torchvision's own class where that is installed; an array as it is."""
    tv_tensors = None if isinstance(values, np.ndarray) else _tv_tensors()
    if tv_tensors is None:
        return values
    if kind == "Mask":
        return tv_tensors.Mask(values)
    return tv_tensors.BoundingBoxes(values, format="XYXY", canvas_size=size)


@cache
def _tv_tensors() -> Any:
    try:
        return import_module("torchvision.tv_tensors")
    except (ImportError, RuntimeError):  # the latter of one that was built for another torch
        return None


def changed_tensors(targets: Any, change: Callable[[Any], Any]) -> Any:
    """Targets with each tensor of theirs changed; all else as it is."""
    if isinstance(targets, Mapping):
        return {name: changed_tensors(values, change) for name, values in targets.items()}
    if isinstance(targets, list | tuple):
        return type(targets)(changed_tensors(values, change) for values in targets)
    if not hasattr(targets, "pin_memory"):
        return targets
    made = change(targets)
    # torchvision's own classes are lost in what it does not know, such as pin_memory
    return made if type(made) is type(targets) else sys.modules["torchvision.tv_tensors"].wrap(made, like=targets)


def targets_of_one(targets: Any, position: int) -> Any:
    """Targets of one image of a batch, in the form that they have."""
    one = slice(position, position + 1)
    if isinstance(targets, tuple):
        return tuple(targets_of_one(each, position) for each in targets)
    if not isinstance(targets, Mapping):
        return targets if targets is None else targets[one]
    if "batch_idx" not in targets:
        return {name: values[one] for name, values in targets.items()}
    is_own = targets["batch_idx"] == position
    own = {name: values[one] if name in OF_IMAGES else _chosen(values, is_own) for name, values in targets.items()}
    return own | {"batch_idx": own["batch_idx"] * 0}


def _chosen(values: Any, are_chosen: Any) -> Any:
    if isinstance(values, list):
        return [value for value, is_chosen in zip(values, are_chosen.tolist(), strict=True) if is_chosen]
    return values[are_chosen]


def targets_text(targets: Any) -> str:
    """What a batch's targets are, for its repr: their form and names."""
    if isinstance(targets, tuple):
        return " and ".join(map(targets_text, targets))
    if isinstance(targets, list):
        return f"list of {len(targets)} dicts" + (f" ({', '.join(targets[0])})" if targets else "")
    return f"dict of {', '.join(targets)}" if isinstance(targets, Mapping) else array_text(targets)
