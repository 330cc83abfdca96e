"""Functions that transforms of other libraries call, as what `ops.Custom` calls."""

import functools
import inspect
from collections.abc import Callable
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
NOTE = "your function is called on the CPU; what it draws by global generators is not the sample's."
"""What differs of one that is called as in its library."""


class _Called:
    """A function that goes by the name of another one, which it calls."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]
        self._fn = fn


class OfPillow(_Called):
    """A function of a PIL image, as one of an (H, W, 3) uint8 array."""

    def __call__(self, image: Pixels) -> Any:
        return np.asarray(self._fn(Image.fromarray(image)))


class WithSides(_Called):
    """A function of albumentations, which is told of the image's sides, by as many of these names as it takes."""

    def __call__(self, image: Pixels) -> Any:
        height, width = image.shape[:2]
        given = {"rows": height, "cols": width, "shape": image.shape}
        parameters = inspect.signature(self._fn).parameters
        if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            return self._fn(image, **given)
        return self._fn(image, **{name: value for name, value in given.items() if name in parameters})


def custom(fn: Any, p: float = 1.0, name: Any = None) -> ops.Custom:
    """A function as an op, under a name that a transform may have."""
    fields: dict[str, Any] = {"name": name} if isinstance(name, str) and name.isidentifier() else {}
    try:
        return ops.Custom(fn=fn, p=p, **fields)
    except ValueError:  # an op of ours is called so
        return ops.Custom(fn=fn, p=p)
