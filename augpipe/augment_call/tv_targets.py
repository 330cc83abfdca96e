"""Dicts, lists and tuples with torchvision's tv_tensors: one image and its targets, anywhere in them.

torchvision is never imported: a caller with one of its tensors has done so. Classes are told by their names.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from augpipe.augment_call.given_targets import GivenTargets, chosen, given_targets
from augpipe.augment_call.inputs import host_array, is_tensor
from augpipe.augment_call.mapped_targets import MappedTargets, mapped_targets
from augpipe.augment_call.tv_names import tv_name
from augpipe.planning.output_format import import_torch
from augpipe.planning.plan import Plan
from augpipe.planning.targets.options import TargetOptions

ROTATED = ("XYWHR", "CXCYWHR", "XYXYXYXY")
"""torchvision's formats of rotated boxes."""
Leaves = Sequence[tuple[Any, Any, Any]]
"""(key, leaf, what holds it)."""
OF_OBJECTS = ("labels", "area", "iscrowd")
"""Names next to the boxes or masks, in any case, whose entries go with their objects; the last two where there are as
many."""


class Structure:
    """One image and its targets in dicts, lists and tuples.

    Raises:
        ValueError: there is no image, or more than one of a kind; the message says what there is.
    """

    def __init__(self, given: Any) -> None:
        self._given = given
        leaves = list(_leaves(given))
        of_kind: dict[str, list[Any]] = {}
        for _, leaf, _ in leaves:
            of_kind.setdefault(tv_name(type(leaf)), []).append(leaf)
        self.image = _image_of([leaf for _, leaf, _ in leaves])
        self._boxes = _only(of_kind.get("BoundingBoxes", []), "BoundingBoxes")
        self._points = _only(of_kind.get("KeyPoints", []), "KeyPoints")
        masks = of_kind.get("Mask", [])
        objects = self._boxes if self._boxes is not None else _masks_with_labels(leaves)
        num = None if objects is None else len(objects)
        self._masks = _only([one for one in masks if _is_of_objects(one, num)], "Mask of all objects")
        self._mask = _only([one for one in masks if one is not self._masks], "Mask of the image")
        self._fields: dict[str, Any] = {}
        if objects is not None:
            named = _next_to(objects, leaves)
            self._fields = {name: leaf for name, leaf in named.items() if _goes_with(name, leaf, len(objects))}
        self.has_tensors = any(of_kind)
        """Whether any of torchvision's tensors is there: then the image is made as one, too."""

    def given(self, size: tuple[int, int], options: TargetOptions) -> GivenTargets:
        """The targets of the image, of (height, width) `size`."""
        of_objects = self._points is not None and self._boxes is not None and self._points.ndim == 3
        points = None if self._points is None else _array(self._points, np.float64)
        is_rotated = self._boxes is not None and self._boxes.format.name in ROTATED
        boxes = None if self._boxes is None else _corners(self._boxes) if is_rotated else _edges(self._boxes)
        return given_targets(
            size,
            clip=options.clip,
            bbox_format="pascal_voc",
            bboxes=None if is_rotated else boxes,
            rotated_boxes=boxes if is_rotated else None,
            masks=None if self._masks is None else _array(self._masks),
            mask=None if self._mask is None else np.moveaxis(_planes(self._mask), 0, -1),
            keypoints=points if of_objects or points is None else points.reshape(-1, 2),
            fields=self._fields,
        )

    def results(self, given: GivenTargets, plan: Plan, images: Sequence[Any], options: TargetOptions) -> list[Any]:
        """For each view the same structure, with its image and what is shown of the targets."""
        drops_empty = options.drops if options.drop_empty is None else options.drop_empty
        return [
            self._result(mapped_targets(given, rows, options, drops_empty=drops_empty), image)
            for rows, image in zip(plan.views, images, strict=True)
        ]

    def _result(self, found: MappedTargets, image: Any) -> Any:
        instead: dict[int, Any] = {id(self.image): _like(image, self.image)}
        points = found.points
        if found.objects is not None:
            stays, rotated = found.objects.stays, found.objects.rotated_boxes
            if self._boxes is not None and found.objects.boxes is not None:
                values = found.objects.boxes[stays] if rotated is None else rotated[stays]
                written = _boxes_as(values, self._boxes) if rotated is None else _rotated_as(values, self._boxes)
                instead[id(self._boxes)] = _like(written, self._boxes, canvas_size=found.size)
            instead |= {id(values): chosen(values, stays) for values in self._fields.values()}
            if self._masks is not None and found.masks is not None:
                kept = np.stack(found.masks)[stays] if found.masks else np.empty((0, *found.size))
                instead[id(self._masks)] = _like(kept, self._masks)
            if found.objects.keypoints is not None:
                points = found.objects.keypoints[stays][:, :, :2]
        if self._mask is not None and found.mask is not None:
            planes = np.moveaxis(found.mask, -1, 0).reshape(*self._mask.shape[:-2], *found.size)
            instead[id(self._mask)] = _like(planes, self._mask)
        if self._points is not None and points is not None:
            placed = points if points.ndim == 3 else points.reshape(self._points.shape)
            instead[id(self._points)] = _like(placed, self._points, canvas_size=found.size)
        return _rebuilt(self._given, instead)


def _array(tensor: Any, dtype: Any = None) -> Any:
    array = host_array(tensor, f"a {tv_name(type(tensor))}")
    return array if dtype is None else array.astype(dtype)


def _planes(mask: Any) -> Any:
    """(P, H, W) of a mask (H, W) or (.., H, W)."""
    return _array(mask).reshape(-1, *mask.shape[-2:])


def _next_to(one: Any, leaves: Leaves) -> dict[str, Any]:
    """What the dict that holds a leaf has, by name."""
    holder = next(parent for _, leaf, parent in leaves if leaf is one)
    return {name: leaf for name, leaf, parent in leaves if parent is holder and isinstance(name, str)}


def _masks_with_labels(leaves: Leaves) -> Any:
    """The Mask (N, H, W) called masks that has N labels next to it; None where there is none."""
    for name, leaf, _ in leaves:
        if isinstance(name, str) and name.lower() == "masks" and tv_name(type(leaf)) == "Mask" and leaf.ndim == 3:
            labels = [one for key, one in _next_to(leaf, leaves).items() if key.lower() == "labels"]
            if any(np.ndim(one) > 0 and len(one) == len(leaf) for one in labels):
                return leaf
    return None


def _is_of_objects(mask: Any, num: int | None) -> bool:
    return num is not None and mask.ndim == 3 and len(mask) == num


def _leaves(given: Any, name: Any = None, parent: Any = None) -> Iterator[tuple[Any, Any, Any]]:
    """(key, leaf, what holds it) of everything that is not a dict, list or tuple."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            yield from _leaves(value, key, given)
    elif isinstance(given, list | tuple):
        for value in given:
            yield from _leaves(value, None, given)
    else:
        yield name, given, parent


def _rebuilt(given: Any, found: Mapping[int, Any]) -> Any:
    if id(given) in found:
        return found[id(given)]
    if isinstance(given, Mapping):
        return {key: _rebuilt(value, found) for key, value in given.items()}
    if isinstance(given, list | tuple):
        values = [_rebuilt(value, found) for value in given]
        if hasattr(given, "_fields"):
            return type(given)(*values)
        return tuple(values) if isinstance(given, tuple) else values
    return given


def _image_of(leaves: Sequence[Any]) -> Any:
    """The image among the leaves: a tv_tensors.Image or PIL image, else the first plain tensor or array of pixels."""
    images = [leaf for leaf in leaves if tv_name(type(leaf)) == "Image" or hasattr(leaf, "convert")]
    plain = [leaf for leaf in leaves if isinstance(leaf, np.ndarray) or (is_tensor(leaf) and not tv_name(type(leaf)))]
    images = images or [leaf for leaf in plain if leaf.ndim in (2, 3) and str(leaf.dtype).endswith("uint8")][:1]
    if len(images) != 1:
        raise ValueError(
            f"the structure holds {len(images) or 'no'} images. Give one, as a tv_tensors.Image, a PIL image, or an "
            "(H, W, C) or (C, H, W) uint8 array or tensor, with its targets."
        )
    return images[0]


def _goes_with(name: str, leaf: Any, num: int) -> bool:
    if name.lower() == "labels":
        return True
    return name.lower() in OF_OBJECTS and np.ndim(leaf) > 0 and len(leaf) == num


def _only(found: Sequence[Any], name: str) -> Any:
    if len(found) > 1:
        raise ValueError(f"the structure holds {len(found)} {name}. Give one with the boxes or points of all objects.")
    return found[0] if found else None


def _edges(boxes: Any) -> Any:
    """(N, 4) left, top, right, bottom of a tv_tensors.BoundingBoxes."""
    values, name = _array(boxes, np.float64), boxes.format.name
    if name == "XYXY":
        return values
    first, last = values[:, :2], values[:, 2:]
    if name == "XYWH":
        return np.concatenate([first, first + last], axis=1)
    if name == "CXCYWH":
        return np.concatenate([first - 0.5 * last, first + 0.5 * last], axis=1)
    known = ", ".join(("XYXY", "XYWH", "CXCYWH", *ROTATED))
    raise ValueError(f"BoundingBoxes of the format {name} are not known. Give one of {known}.")


def _boxes_as(edges: Any, like: Any) -> Any:
    """(N, 4) left, top, right, bottom in the format of `like`."""
    first, last = edges[:, :2], edges[:, 2:]
    if like.format.name == "XYWH":
        edges = np.concatenate([first, last - first], axis=1)
    elif like.format.name == "CXCYWH":
        edges = np.concatenate([0.5 * (first + last), last - first], axis=1)
    return edges


def _corners(boxes: Any) -> Any:
    """(N, 4, 2) corners of rotated tv_tensors.BoundingBoxes, whose angles are in degrees, anticlockwise as seen."""
    values = _array(boxes, np.float64)
    if boxes.format.name == "XYXYXYXY":
        return values.reshape(-1, 4, 2)
    places, angles = values[:, :2], np.deg2rad(values[:, 4:])
    across = values[:, 2:3] * np.concatenate([np.cos(angles), -np.sin(angles)], axis=1)
    along = values[:, 3:4] * np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    first = places if boxes.format.name == "XYWHR" else places - 0.5 * (across + along)
    return np.stack([first, first + across, first + across + along, first + along], axis=1)


def _rotated_as(corners: Any, like: Any) -> Any:
    """(N, 4, 2) corners of rectangles in the format of `like`."""
    if like.format.name == "XYXYXYXY":
        return corners.reshape(-1, 8)
    across, along = corners[:, 1] - corners[:, 0], corners[:, 3] - corners[:, 0]
    places = corners[:, 0] if like.format.name == "XYWHR" else corners.mean(axis=1)
    sides = np.linalg.norm(np.stack([across, along], axis=1), axis=2)
    return np.concatenate([places, sides, np.rad2deg(np.arctan2(-across[:, 1:], across[:, :1]))], axis=1)


def _like(values: Any, like: Any, **changed: Any) -> Any:
    """A tensor of the class, type and device of `like`; images keep the type that they were made in."""
    name = tv_name(type(like))
    if not name:
        return values
    torch = import_torch()
    made = values if is_tensor(values) else torch.from_numpy(np.ascontiguousarray(values))
    if name != "Image":
        made = made.round() if not like.dtype.is_floating_point and made.dtype.is_floating_point else made
        made = made.to(dtype=like.dtype, device=like.device)
    return sys.modules["torchvision.tv_tensors"].wrap(made, like=like, **changed)
