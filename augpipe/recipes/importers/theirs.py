"""The library's own transforms, of calls that were read from a script: built where it is installed, to compare with."""

import importlib
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.recipes.importers.calls import Call, Script, with_calls
from augpipe.recipes.importers.functions import OF_SCRIPT, Pixels
from augpipe.recipes.importers.script_recipe import find_recipe

Transform = Callable[[Pixels], npt.NDArray[Any]]
"""What a library makes of an (H, W, 3) image: (H, W, channels) levels, or 255 times what it normalises."""


def of_text(text: str, name: str | None = None) -> Any:
    """The transforms that a script assigns to `name`, built by their library; nothing else of the script is run.

    Raises:
        ValueError: there are none, or their library is not installed, or does not take these arguments.
    """
    return _built("", find_recipe(Script(text), name))


def installed(made: Any) -> str:
    """The library of a transform with its version, as `albumentations 2.0.8`."""
    return _with_version(_library_of(made))


def _built(around: str, call: Call) -> Any:
    """What a call makes; where its name stands alone, that of the module `around`, as of what holds it."""
    if call.path.endswith(OF_SCRIPT):
        raise ValueError(f"{call.path} is not run, and --compare cannot show it. Leave --compare out.")
    path = call.path if "." in call.path else f"{around}.{call.path}"
    module, _, last = path.rpartition(".")
    library = module.partition(".")[0]
    try:
        found = importlib.import_module(module)
    except Exception as error:  # some that do not fit to their torch raise other errors than ImportError
        raise ValueError(
            f"{library} cannot be imported: {error}. Mend its installation, or leave --compare out."
        ) from None
    arguments = [_argument(module, "", one) for one in call.args]
    named = {name: _argument(module, name, one) for name, one in call.kwargs.items()}
    try:
        return getattr(found, last)(*arguments, **named)
    except Exception as error:  # whatever it raises is the library's own
        raise ValueError(
            f"{_with_version(library)} cannot make {path}: {error}. It may be written for another version."
        ) from None


def _argument(module: str, name: str, value: Any) -> Any:
    """An argument as the library takes it: members of enumerations were read as their names."""
    if not isinstance(value, str) or not module.startswith("torchvision"):
        return with_calls(value, partial(_built, module))
    transforms = importlib.import_module("torchvision.transforms")
    if name in ("interpolation", "resample") or value in [mode.value for mode in transforms.InterpolationMode]:
        return transforms.InterpolationMode(value)
    if name == "policy" or value in ("imagenet", "cifar10", "svhn"):
        return transforms.AutoAugmentPolicy(value)
    is_dtype = name == "dtype" or value in ("float", "float32", "uint8")
    return getattr(importlib.import_module("torch"), value) if is_dtype else value


def as_transform(made: Any, *, is_normalized: bool) -> Transform:
    """A transform of a library as a function of arrays.

    Args:
        made: the transform. Of albumentations, boxes and key points that it asks for are none.
        is_normalized: whether what it gives as floats is 1 for white, before any mean and deviation; else they are
            levels, as of `ToDtype(torch.float32)`. kornia is given images in 0..1, and gives such ones.

    Raises:
        ValueError: it is of no library that is known; the function, that the library raised an error.
    """
    library = _library_of(made)
    result_of = {"albumentations": _by_albumentations, "kornia": _by_kornia}.get(library, _by_pillow)
    white = 255.0 if is_normalized or library == "kornia" else 1.0

    def transform(image: Pixels) -> npt.NDArray[Any]:
        try:
            result = result_of(made, image)
        except Exception as error:  # whatever it raises is the library's own
            raise ValueError(f"{_with_version(library)} cannot transform this image: {error}.") from error
        return _as_array(result, white)

    return transform


def _by_albumentations(made: Any, image: Pixels) -> Any:
    asking = getattr(made, "processors", {}).values()  # of a Compose with boxes or key points
    names = [name for one in asking for name in (*one.data_fields, *(one.params.label_fields or ()))]
    return made(image=image, **{name: [] for name in names})["image"]


def _by_kornia(made: Any, image: Pixels) -> Any:
    torch = importlib.import_module("torch")
    return made(torch.from_numpy(image.copy()).permute(2, 0, 1)[None] / 255.0)[0]


def _by_pillow(made: Any, image: Pixels) -> Any:
    return made(importlib.import_module("PIL.Image").fromarray(image))


def _library_of(made: Any) -> str:
    """The library of a transform, or of those that one of torch's holds."""
    parts = [*made.modules()] if hasattr(made, "modules") else [made]
    libraries = {one.__module__.partition(".")[0] for part in parts for one in type(part).__mro__}
    known = [one for one in ("albumentations", "kornia", "torchvision", "timm", "torch") if one in libraries]
    if not known:
        raise ValueError(f"{type(made).__name__} of {type(made).__module__} is not a transform that can be compared.")
    return known[0]


def _with_version(library: str) -> str:
    return f"{library} {getattr(sys.modules.get(library), '__version__', '')}".rstrip()


def seed_all(seed: int) -> None:
    """Seed the generators that libraries draw from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - some of them draw from it
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def _as_array(image: Any, white: float) -> npt.NDArray[Any]:
    """(H, W, channels); floats are multiplied by `white`."""
    if hasattr(image, "movedim"):
        image = image.detach().movedim(0, -1).numpy()
    found = np.asarray(image)
    found = found if found.ndim == 3 else found[..., None]
    return white * found if found.dtype.kind == "f" else found
