"""Whether a call is given an image with torchvision's tv_tensors, told by the names of their classes."""

from collections.abc import Mapping
from functools import cache
from typing import Any


def tv_name(kind: type) -> str:
    """ "BoundingBoxes" for that class of torchvision, and so on; "" for any other class."""
    return _tv_name(kind)


@cache
def _tv_name(kind: type) -> str:
    return next((base.__name__ for base in kind.__mro__ if base.__module__.startswith("torchvision.tv_tensors")), "")


def is_structure(images: Any) -> bool:
    """Whether an argument is an image with targets, and not an image or a list of them."""
    if type(images) in (list, tuple):
        kinds = set(map(type, images))
        return any(_is_mapping(kind) or tv_name(kind) in ("BoundingBoxes", "Mask", "KeyPoints") for kind in kinds)
    kind: type = type(images)
    return _is_mapping(kind)


@cache
def _is_mapping(kind: type) -> bool:
    return issubclass(kind, Mapping)
