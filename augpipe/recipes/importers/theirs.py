"""The library's own transforms, of calls that were read from a script: built where it is installed, to compare with."""

import importlib
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.recipes.importers.calls import Call, Script

Pixels = npt.NDArray[np.uint8]
Transform = Callable[[Pixels], npt.NDArray[Any]]
"""What a library makes of an (H, W, 3) image: (H, W, channels) levels, or 255 times what it normalises."""


def of_text(text: str, name: str | None = None) -> Any:
    """The transforms that a script assigns to `name`, built by their library; nothing else of the script is run.

    Raises:
        ValueError: there are none, or their library is not installed, or does not take these arguments.
    """
    call = Script(text).find(name)
    try:
        return _built(call)
    except ImportError as error:
        raise ValueError(f"{call.path} cannot be compared with: {error}. Install its library.") from None
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{call.path} cannot be compared with: its library that is installed says {error}.") from None


def _built(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_built, value))
    if not isinstance(value, Call):
        return value
    path = value.path
    if "." not in path and path != "Compose":
        path = f"albumentations.{path}"
    module, _, last = path.rpartition(".")
    kind = getattr(importlib.import_module(module), last)
    arguments = [_argument(module, "", one) for one in value.args]
    return kind(*arguments, **{name: _argument(module, name, one) for name, one in value.kwargs.items()})


def _argument(module: str, name: str, value: Any) -> Any:
    """An argument as the library takes it: members of enumerations were read as their names."""
    if not isinstance(value, str) or not module.startswith("torchvision"):
        return _built(value)
    transforms = importlib.import_module("torchvision.transforms")
    if name in ("interpolation", "resample"):
        return transforms.InterpolationMode(value)
    if name == "policy" or value in ("imagenet", "cifar10", "svhn"):
        return transforms.AutoAugmentPolicy(value)
    torch = importlib.import_module("torch")
    return getattr(torch, value) if name == "dtype" or value in ("float", "float32", "uint8") else value


def as_transform(made: Any) -> Transform:
    """A transform of a library as a function of arrays.

    Raises:
        ValueError: it is of no library that is known.
    """
    libraries = [one.__module__.partition(".")[0] for one in type(made).__mro__]
    if "albumentations" in libraries:
        return lambda image: _as_array(made(image=image)["image"])
    if "kornia" in libraries:
        torch = importlib.import_module("torch")
        return lambda image: 255.0 * _as_array(made(torch.from_numpy(image.copy()).permute(2, 0, 1)[None] / 255.0)[0])
    if not {"torchvision", "torch"}.intersection(libraries):
        raise ValueError(f"{type(made).__name__} of {type(made).__module__} is not a transform that can be compared.")
    pil = importlib.import_module("PIL.Image")
    return lambda image: _as_array(made(pil.fromarray(image)))


def seed_all(seed: int) -> None:
    """Seed the generators that libraries draw from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - some of them draw from it
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def _as_array(image: Any) -> npt.NDArray[Any]:
    """(H, W, channels); of floats, 1 is 255."""
    if hasattr(image, "movedim"):
        image = image.detach().movedim(0, -1).numpy()
    found = np.asarray(image)
    found = found if found.ndim == 3 else found[..., None]
    return 255.0 * found if found.dtype.kind == "f" else found
