"""What a call is given with its image: masks, boxes, outlines, key points, checked and in pixels of the image."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from augpipe.augment_call.box_formats import check_format, checked_edges, refuse_parts, to_edges
from augpipe.augment_call.inputs import host_array, is_tensor
from augpipe.ops.keep_objects import KnownObjects
from augpipe.pipeline.objects_of_crops import without_crowds
from augpipe.recipes.recipe import Recipe
from augpipe.sources.targets import cross_themselves
from augpipe.validation.arguments import check_choice
from augpipe.validation.plural import count

Float = npt.NDArray[np.float64]
Mask = npt.NDArray[Any]
KeypointFormat = Literal["xy", "coco"]
"""Of rows (M, C) of numbers. xy: points that belong to no object, with columns of one's own behind x and y. coco: x, y
and visibility of K points in turn, a row for each object."""


@dataclass(kw_only=True)
class GivenTargets:
    """The targets of one image; None for what was not given."""

    num: int | None
    """How many objects there are; None where nothing says so."""
    boxes: Float | None = None
    """(N, 4) left, top, right, bottom in pixels."""
    box_columns: Float | None = None
    """(N, M) what boxes had behind their four numbers."""
    polygons: list[list[Float]] | None = None
    rotated_boxes: Float | None = None
    """(N, 4, 2) corners."""
    keypoints: Float | None = None
    """(N, K, 3) of objects."""
    points: Float | None = None
    """(M, 2 ..) that belong to no object."""
    mask: Mask | None = None
    masks: list[Mask] | None = None
    paired: dict[str, Mask] = field(default_factory=dict)
    """Further images by their names."""
    fields: dict[str, Any] = field(default_factory=dict)
    """What is said of each object by its name, an entry each."""


def given_targets(
    size: tuple[int, int],
    *,
    clip: bool,
    bbox_format: str | None,
    keypoint_format: str | None = None,
    mask: Any = None,
    masks: Any = None,
    bboxes: Any = None,
    polygons: Any = None,
    rotated_boxes: Any = None,
    keypoints: Any = None,
    paired: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any],
) -> GivenTargets:
    """See what was given for an image of (height, width) `size`.

    Raises:
        ValueError: something is not what it should be; the message names it, and the object.
    """
    boxes = columns = points = None
    if bbox_format is not None:
        check_format(bbox_format)
    if keypoint_format is not None:
        check_choice("keypoint_format", keypoint_format, get_args(KeypointFormat))
    if bboxes is not None:
        if bbox_format is None:
            raise ValueError(
                'bboxes are given, and bbox_format says how they are written: "coco" (left, top, width, height), '
                '"pascal_voc" (left, top, right, bottom), or "yolo" and "albumentations", in parts of the image.'
            )
        rows = _numbers(
            "bboxes", bboxes, "(N, 4) numbers, or more columns of them; give other labels as lists of names"
        )
        rows = rows.reshape(len(rows), -1) if rows.size else np.empty((0, 4))
        if rows.shape[1] < 4:
            raise ValueError(f"bboxes has shape {rows.shape}. Give (N, 4), or more columns for labels.")
        refuse_parts(rows[:, :4], bbox_format)
        boxes, columns = checked_edges(to_edges(rows[:, :4], bbox_format, size), size, clip), rows[:, 4:]
    of_objects = None if polygons is None else [_rings(one, number) for number, one in enumerate(polygons)]
    rotated = None if rotated_boxes is None else _rotated(rotated_boxes)
    if polygons is not None and rotated is not None:
        raise ValueError("polygons and rotated_boxes are given. Give one: they say what is shown of an object.")
    if keypoints is not None:
        keypoints = _numbers("keypoints", keypoints, "(M, 2) points, or (N, K, 3): K of each object, with visibility")
        keypoints, points = _taken_apart(keypoints, keypoint_format)
    masks = None if masks is None else [_mask(f"masks[{number}]", one, size) for number, one in enumerate(masks)]
    counts = {
        name: len(values)
        for name, values in (
            ("bboxes", boxes),
            ("polygons", of_objects),
            ("rotated_boxes", rotated),
            ("keypoints", keypoints),
        )
        if values is not None
    }
    if masks is not None and (counts or fields):  # else they need not be of objects
        counts["masks"] = len(masks)
    num = next(iter(counts.values()), None)
    counts |= {name: _length(name, values) for name, values in fields.items()}
    _check_counts(counts)
    return GivenTargets(
        num=num,
        boxes=boxes,
        box_columns=columns,
        polygons=of_objects,
        rotated_boxes=rotated,
        keypoints=keypoints,
        points=points,
        mask=None if mask is None else _mask("mask", mask, size),
        masks=masks,
        paired={name: _mask(name, one, size) for name, one in (paired or {}).items()},
        fields=dict(fields),
    )


def known_objects(given: GivenTargets, recipe: Recipe) -> KnownObjects | None:
    """What crops with `keep_objects` look at, without crowds; None where there are no boxes.

    Raises:
        ValueError: such a crop names classes, and labels are numbers.
    """
    boxes = given.boxes
    if boxes is None and given.rotated_boxes is not None:  # the boxes around them
        boxes = np.concatenate([given.rotated_boxes.min(axis=1), given.rotated_boxes.max(axis=1)], axis=1)
    if boxes is None:
        return None
    found = given.fields.get("labels")
    found = host_array(found, "labels") if is_tensor(found) else found
    labels = None if found is None else np.asarray(found).reshape(-1)
    names: Any = ()
    if labels is not None and labels.dtype.kind in "US":
        names, labels = np.unique(labels.astype(str), return_inverse=True)
    elif labels is not None and len(labels) and labels.dtype.kind not in "biu":
        labels = None
    elif labels is not None:
        unknown = [name for _, keep in recipe.keeping for name, _ in keep.classes if not name.isdecimal()]
        if unknown:
            raise ValueError(
                f"keep_objects names the class {unknown[0]!r}, and labels are numbers. Give the names of classes as "
                'labels, or name it by its number, as classes={"3": 1.0}.'
            )
    known = KnownObjects(
        counts=np.array([len(boxes)]),
        boxes=boxes,
        labels=None if labels is None else np.maximum(labels.astype(np.int64), 0),
        classes=list(names),
    )
    return known if "iscrowd" not in given.fields else without_crowds(known, given.fields["iscrowd"])


def check_owners(given: GivenTargets) -> None:
    """Refuse lists with an entry for each object where a call has none, as they would come to nothing.

    Raises:
        ValueError: there are such.
    """
    for name in () if given.num is not None else given.fields:
        raise ValueError(
            f"{name} is taken for a list with an entry for each object, and no objects are given as bboxes, polygons, "
            f"rotated_boxes, masks or (N, K, 3) keypoints. Leave it out; name an image of the same size in "
            f"TargetOptions(paired={{{name!r}: 'linear'}}); of (M, 2) keypoints, take the entries at keypoint_ids "
            "yourself."
        )


def _check_counts(counts: Mapping[str, int]) -> None:
    first = next(iter(counts), None)
    for name, num in counts.items():
        if num != counts[first or name]:
            raise ValueError(
                f"{name} is of length {num}, and {first} of {counts[first or name]}. Give one entry for each object, "
                "in the same order."
            )


def _length(name: str, values: Any) -> int:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise ValueError(
            f"{name}={values!r:.60} is not a known argument, nor a list with an entry for each object. Known are "
            "image, mask, masks, bboxes, polygons, rotated_boxes, keypoints, bbox_format, keypoint_format, targets, "
            "and the names in TargetOptions.paired."
        )
    return len(values)


def _numbers(name: str, values: Any, wanted: str) -> Float:
    given = host_array(values, name) if is_tensor(values) else values
    try:
        array = np.asarray(given)
        numbers = array.astype(np.float64, copy=False) if array.dtype.kind != "c" else None
    except (TypeError, ValueError):
        raise ValueError(f"{name} is not numbers of one shape. Give {wanted}.") from None
    if numbers is None:
        raise ValueError(f"{name} is of the type {array.dtype}. Give {wanted}.")
    return numbers


def _rings(polygons: Any, number: int) -> list[Float]:
    """(K, 2) corners of each ring of an object, which may be one ring or several, with flat coordinates or points."""
    is_one = len(polygons) > 0 and (np.ndim(polygons[0]) == 0 or np.shape(polygons[0]) == (2,))
    rings = []
    for ring in [polygons] if is_one else polygons:
        corners = _numbers(f"object {number}: a polygon", ring, "x and y of its corners in turn, or (K, 2) points")
        if corners.size % 2 or corners.size < 6:
            raise ValueError(
                f"object {number}: a polygon has {count(corners.size, 'number')}, and takes x and y of 3 corners at "
                "least."
            )
        if not np.isfinite(corners).all():
            raise ValueError(f"object {number}: a polygon's corner is not finite. Leave the object out, or mend it.")
        rings.append(corners.reshape(-1, 2))
    return rings


def _rotated(boxes: Any) -> Float:
    """(N, 4, 2) corners, which may also come as (N, 8): x and y of each in turn."""
    wanted = "(N, 4, 2) corners x, y, one after the other around each object"
    corners = _numbers("rotated_boxes", boxes, wanted)
    if not corners.size:
        return np.empty((0, 4, 2))
    if corners.shape[1:] not in ((4, 2), (8,)):
        raise ValueError(f"rotated_boxes has shape {corners.shape}. Give {wanted}.")
    corners = corners.reshape(-1, 4, 2)
    is_finite = np.isfinite(corners).all(axis=(1, 2))
    for number in np.flatnonzero(~is_finite)[:1]:
        raise ValueError(f"object {number}: a rotated box's corner is not finite. Leave the object out, or mend it.")
    for number in np.flatnonzero(cross_themselves(corners))[:1]:
        raise ValueError(f"object {number}: sides of its rotated box cross. Give its corners around it.")
    return corners


def _taken_apart(keypoints: Float, form: str | None) -> tuple[Float | None, Float | None]:
    """(N, K, 3) key points of objects, or (M, 2 ..) that belong to none."""
    if not keypoints.size:
        keypoints = keypoints.reshape(0, 2) if keypoints.ndim < 3 else keypoints
    if keypoints.ndim not in (2, 3) or keypoints.shape[-1] < 2 or (keypoints.ndim == 3 and keypoints.shape[2] > 3):
        raise ValueError(
            f"keypoints has shape {keypoints.shape}. Give (M, 2) points, or (N, K, 3): K of each object, with "
            "visibility."
        )
    if form == "xy" and keypoints.ndim == 3:
        raise ValueError(
            f"keypoints has shape {keypoints.shape}, and keypoint_format='xy' is of (M, 2) points that belong to no "
            "object. Leave it out for (N, K, 3), K of each object."
        )
    if form == "coco" and keypoints.ndim == 2:
        if keypoints.shape[1] % 3 and keypoints.size:
            raise ValueError(
                f"keypoints has shape {keypoints.shape}, and keypoint_format='coco' is of x, y and visibility of each "
                "point in turn: (N, 3 K) numbers. Leave it out for (M, 2) points that belong to no object."
            )
        keypoints = keypoints.reshape(len(keypoints), -1, 3)
    if keypoints.ndim == 2:
        _check_finite(keypoints[:, :2], "keypoints[{}]")
        num, columns = keypoints.shape
        looks_like_coco = columns > 3 and columns % 3 == 0 and np.isin(keypoints[:, 2::3], (0, 1, 2)).all()
        if num and looks_like_coco and form is None:
            raise ValueError(
                f"keypoints has shape {keypoints.shape}, which is that of x, y and visibility in turn, as in COCO's "
                "files. Give keypoint_format='coco' if they are; 'xy' if each row is one point with columns of its own."
            )
        return None, keypoints
    if keypoints.shape[2] == 2:
        keypoints = np.concatenate([keypoints, np.full((*keypoints.shape[:2], 1), 2.0)], axis=2)
    _check_finite(keypoints.sum(axis=(1, 2))[:, None], "object {}: a key point")
    wrong = np.argwhere(~np.isin(keypoints[:, :, 2], (0, 1, 2)))
    if len(wrong):
        number, point = wrong[0]
        raise ValueError(
            f"object {number}: key point {point} has the visibility {keypoints[number, point, 2]:g}. It is 0 (not "
            "labelled), 1 (hidden) or 2 (visible)."
        )
    return keypoints, None


def _check_finite(values: Float, name: str) -> None:
    for number in np.flatnonzero(~np.isfinite(values).all(axis=1))[:1]:
        raise ValueError(f"{name.format(number)} is not finite. Leave it out, or give it the visibility 0 and a place.")


def _mask(name: str, mask: Any, size: tuple[int, int]) -> Mask:
    if isinstance(mask, str | os.PathLike):
        path = f"{os.fspath(mask)!r:.100}"
        raise ValueError(f"{name} is the path {path}. Give its pixels, numpy.asarray(PIL.Image.open({path})).")
    pixels = host_array(mask, name) if is_tensor(mask) else mask
    try:
        array = np.asarray(pixels)
    except ValueError:
        raise ValueError(f"{name} is not numbers of one shape. Give (height, width) numbers.") from None
    if array.ndim < 2 or array.shape[:2] != size or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has the shape {array.shape} and the type {array.dtype}, and its image is {size[0]}x{size[1]}. "
            "Give (height, width) numbers of the same size, or more of each pixel with the channels last."
        )
    return array


def chosen(values: Any, stays: npt.NDArray[np.bool_]) -> Any:
    """The entries that stay, as the kind of list, array or tensor that they came as."""
    if is_tensor(values):
        return values[np.flatnonzero(stays).tolist()]
    if isinstance(values, np.ndarray):
        return values[stays]
    kept = [value for value, stay in zip(values, stays, strict=True) if stay]
    return tuple(kept) if isinstance(values, tuple) else kept
