"""Functions that transforms of other libraries call, as what `ops.Custom` calls."""

import copy
import functools
import inspect
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe import ops

Pixels = npt.NDArray[np.uint8]

NOT_HELD = (
    "calls a function, which is not held here; give the transform itself instead of a text or a dict, or leave it out "
    "and add ops.Custom(my_function) to the recipe"
)
ON_TENSORS = (
    "takes a tensor there; write its function for an (H, W, 3) uint8 array, and put ops.Custom(it) in its place"
)
OF_SCRIPT = " (of this script)"
"""Follows the name of a class in a message, where the script itself defines the class."""
NOT_RUN = "is not run; write it as a function of an (H, W, 3) uint8 array, and put ops.Custom(it) in its place"
NOTE = "your function is called on the CPU; what it draws by global generators is not the sample's."
"""What differs of one that is called as in its library."""


class _Called:
    """A function that goes by the name of another one, which it calls."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn

    def __call__(self, image: Pixels) -> Any:
        return self._fn(image)


class OfPillow(_Called):
    """A function of a PIL image, as one of an (H, W, 3) uint8 array."""

    def __call__(self, image: Pixels) -> Any:
        return np.asarray(self._fn(Image.fromarray(image)))


class WithSides(_Called):
    """A function of albumentations, which is told of the image's sides, by as many of these names as it takes."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        try:
            parameters = inspect.signature(fn).parameters
        except ValueError:  # a function of C may have none
            parameters = MappingProxyType({})
        takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        self._names = [name for name in ("rows", "cols", "shape") if takes_any or name in parameters]

    def __call__(self, image: Pixels) -> Any:
        height, width = image.shape[:2]
        given = {"rows": height, "cols": width, "shape": image.shape}
        return self._fn(image, **{name: given[name] for name in self._names})


def custom(fn: Any, p: float = 1.0, name: Any = None) -> ops.Custom:
    """A function as an op, under a name that a transform may have."""
    fields: dict[str, Any] = {"name": name} if isinstance(name, str) and name.isidentifier() else {}
    try:
        return ops.Custom(fn=fn, p=p, **fields)
    except ValueError:  # an op of ours is called so
        return ops.Custom(fn=fn, p=p)


class _Lambda:
    """Stands for a transform that cannot be written down, and is written with its function."""

    def __init__(self, one: Any) -> None:
        self.to_dict = self._to_dict = self.to_dict_private = lambda: {
            "__class_fullname__": "Lambda",
            "functions": dict(one.custom_apply_fns),
            "name": getattr(one, "name", None),
            "p": 1.0 if getattr(one, "always_apply", False) else one.p,
        }


def with_functions(one: Any) -> Any:
    """A transform of albumentations, with a `_Lambda` in the place of each of its; without any, itself."""
    if type(one).__name__ == "Lambda" and hasattr(one, "custom_apply_fns"):
        return _Lambda(one)
    held = getattr(one, "transforms", None)
    if not isinstance(held, list | tuple):
        return one
    made = [with_functions(inner) for inner in held]
    if all(new is old for new, old in zip(made, held, strict=True)):
        return one
    one = copy.copy(one)
    one.transforms = made
    return one
