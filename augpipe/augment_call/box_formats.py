"""Boxes as other libraries write them, to and from left, top, right and bottom in pixels."""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from augpipe.validation.arguments import check_choice

Float = npt.NDArray[np.float64]

BoxFormat = Literal["coco", "pascal_voc", "yolo", "albumentations"]
"""coco is left, top, width, height in pixels; pascal_voc left, top, right, bottom; yolo the centre, width and height in
parts of the image; albumentations left, top, right, bottom in parts of it."""

_IN_PARTS = ("yolo", "albumentations")
BEYOND_PX = 0.5
"""How far a box may reach outside its image: files round, and what is shown is cut at the image's edge."""


def check_format(name: str) -> None:
    """Raise ValueError unless it is the name of a format."""
    check_choice("bbox_format", name, get_args(BoxFormat))


def to_edges(boxes: Float, name: str, size: tuple[int, int]) -> Float:
    """(N, 4) left, top, right, bottom in pixels, of boxes in a format, for an image of (height, width)."""
    if name in _IN_PARTS:
        boxes = boxes * (size[1], size[0], size[1], size[0])
    first, last = boxes[:, :2], boxes[:, 2:]
    if name == "coco":
        return np.concatenate([first, first + last], axis=1)
    if name == "yolo":
        return np.concatenate([first - 0.5 * last, first + 0.5 * last], axis=1)
    return boxes


def from_edges(edges: Float, name: str, size: tuple[int, int]) -> Float:
    """The reverse of `to_edges`."""
    first, last = edges[:, :2], edges[:, 2:]
    boxes = edges
    if name == "coco":
        boxes = np.concatenate([first, last - first], axis=1)
    elif name == "yolo":
        boxes = np.concatenate([0.5 * (first + last), last - first], axis=1)
    return boxes / (size[1], size[0], size[1], size[0]) if name in _IN_PARTS else boxes


def refuse_parts(boxes: Float, name: str) -> None:
    """Refuse boxes in pixels that look like parts of the image: all lie in its first pixel, and one touches no edge.

    Boxes that another library has cut there touch it, and one of whole numbers is that pixel.

    Raises:
        ValueError: they do.
    """
    if name in _IN_PARTS or not len(boxes) or boxes.min() < 0.0 or boxes.max() > 1.0:
        return
    are_parts = (boxes > 0).all(axis=1) & (boxes < 1).any(axis=1)
    if are_parts.any():
        number = int(are_parts.argmax())
        raise ValueError(
            f"object {number}: the numbers {boxes[number].tolist()} of its box are below 1, as in parts of the image, "
            f"and bbox_format={name!r} is in pixels. Give bbox_format={_IN_PARTS[0]!r} or {_IN_PARTS[1]!r}."
        )


def checked_edges(edges: Float, size: tuple[int, int], clip: bool) -> Float:
    """(N, 4) boxes within their image of (height, width).

    Raises:
        ValueError: a box is not finite, has a negative size or reaches outside; the message names the object.
    """
    height, width = size
    for number, (left, top, right, bottom) in enumerate(edges.tolist()):
        where, found = f"object {number}: the box", f"({left:g}, {top:g}) to ({right:g}, {bottom:g})"
        if not np.isfinite([left, top, right, bottom]).all():
            raise ValueError(f"{where} from {found} is not finite. Leave the object out, or mend its box.")
        if right < left or bottom < top:
            raise ValueError(f"{where} from {found} has a negative size. Is bbox_format the one it is written in?")
        if not clip and (min(left, top) < -BEYOND_PX or right > width + BEYOND_PX or bottom > height + BEYOND_PX):
            raise ValueError(
                f"{where} from {found} px reaches outside its image of {width}x{height}. Mend it, give the bbox_format "
                "that it is written in, or cut such boxes with TargetOptions(clip=True)."
            )
    return np.clip(edges, 0.0, (width, height, width, height))
