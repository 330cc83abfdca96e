"""Runs in an environment that has the library: augments images by its transforms, and reads what comes out.

    python -m benchmarks.parity.theirs LIBRARY ORDER.json IMAGES.npz FOLDER

The order lists cases, each of a `fixed` call, whose images are kept, and a `drawn` one, of which numbers are kept: a
file for each case in the folder.
"""

import functools
import importlib
import json
import random
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.parity.probes import Pixels, read, shown_in, stacked

Image = npt.NDArray[np.uint8]
Transform = Callable[[Image, int], Pixels]
"""(num, H, W, channels) outcomes of an image."""
WAYS = {"torchvision": ("PIL", "tensor"), "timm": ("PIL",)}
"""A library -> the containers that images are given in; arrays where it is not named."""


@functools.cache
def schemas() -> object:
    """What torchvision's compiled part would define; without it, torchvision is not imported next to torch for CPUs."""
    torch = importlib.import_module("torch")
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor a, Tensor b, float c) -> Tensor")
    return library


def names_of(library: str, way: str) -> dict[str, Any]:
    """What the names of a call stand for."""
    load = importlib.import_module
    if library.startswith("albumentations"):
        return {"A": load("albumentations"), "cv2": load("cv2")}
    schemas()
    names = {"torch": load("torch")}
    if library == "kornia":
        return names | {"K": load("kornia.augmentation"), "kornia": load("kornia")}
    if library == "timm":
        return names | {"create_transform": load("timm.data").create_transform}
    module = load("torchvision.transforms" if way == "PIL" else "torchvision.transforms.v2")
    transforms = types.SimpleNamespace(**{**vars(load("torchvision.transforms.v2")), **vars(module)})
    return names | {"T": transforms, "InterpolationMode": module.InterpolationMode}


def seed_all(seed: int) -> None:
    """The generators that libraries draw from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - some of them draw from it
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def transform_of(library: str, way: str, call: str, seed: int, white: float = 1.0) -> Transform:
    """A call of the library as a function of arrays; kornia is given numbers from 0 to `white`."""
    seed_all(seed)
    made = eval(call, names_of(library, way))
    if library.startswith("albumentations"):
        if hasattr(made, "random_generator"):
            seed_each(made, seed)
        return each(lambda image: levels(made(image=image)["image"]))
    torch = importlib.import_module("torch")

    def tensor(image: Image) -> Any:
        return torch.from_numpy(image.copy()).permute(2, 0, 1)

    if library == "kornia":  # draws for each image of a batch
        return lambda image, num: 255.0 * numpy_of(made(tensor(image).expand(num, -1, -1, -1) * (white / 255.0)))
    if way == "PIL":
        pil = importlib.import_module("PIL.Image")
        return each(lambda image: from_pil(made(pil.fromarray(image))))
    return each(lambda image: from_tensor(made(tensor(image))))


def seed_each(made: Any, seed: int) -> None:
    """Seed transforms that have generators of their own, each by another number: by one number all would draw alike."""
    made.py_random, made.random_generator = random.Random(seed), np.random.default_rng(seed)
    for place, inner in enumerate(getattr(made, "transforms", ())):
        seed_each(inner, 31 * seed + place + 1)


def each(one: Callable[[Image], Pixels]) -> Transform:
    return lambda image, num: stacked([one(image) for _ in range(num)])


def numpy_of(tensor: Any) -> Pixels:
    found: Pixels = tensor.movedim(-3, -1).numpy().astype(np.float32)
    return found


def from_pil(image: Any) -> Pixels:
    return from_tensor(image) if hasattr(image, "permute") else levels(np.asarray(image))


def from_tensor(tensor: Any) -> Pixels:
    """Numbers in 0..1 are levels, and so are normalised ones, times 255."""
    return np.float32(255.0 if tensor.dtype.is_floating_point else 1.0) * numpy_of(tensor)


def levels(image: npt.NDArray[Any]) -> Pixels:
    found = np.float32(255.0) * image if image.dtype.kind == "f" else image.astype(np.float32)
    return found if found.ndim == 3 else found[..., None]


def outcomes(library: str, way: str, case: dict[str, Any], images: list[Image], probes: list[Image]) -> dict[str, Any]:
    """What a case makes of images that are given in one kind of container; an error is one, too."""
    found: dict[str, Any] = {}
    try:
        fixed = transform_of(library, way, case["fixed"], case["seed"], 255.0 if case["how"] == "levels" else 1.0)
        for place, image in enumerate(images):
            found[f"{way} {place}"] = fixed(image, case["num_turns"] if case["how"] else 1)
        if case["drawn"] and way in ("PIL", "array"):  # tensors are drawn for by the same code
            drawn = transform_of(library, way, case["drawn"], case["seed"])
            for place, probe in enumerate(probes):
                found[f"{way} probe {place}"] = read(three(drawn(probe, case["num_draws"])))
    except Exception as error:  # of any library, about a call that it has not or an image that it does not take
        print(f"{library} {way}: {case['fixed']}: {type(error).__name__}: {error}"[:300], flush=True)
        return {}
    return found


def main(library: str, order_path: str, images_path: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    given = np.load(images_path)
    images, probes = list(given["images"]), list(given["probes"])
    for case in json.loads(Path(order_path).read_text(encoding="utf-8")):
        found: dict[str, Any] = {}
        for way in WAYS.get(library, ("array",)):
            found |= outcomes(library, way, case, shown_in(case["how"], images), probes)
        if not found:
            continue
        names = ("albumentations", "imgaug", "torchvision", "timm", "kornia", "torch", "cv2", "PIL", "numpy")
        versions = {name: str(sys.modules[name].__version__) for name in names if name in sys.modules}
        np.savez_compressed(Path(folder, f"{case['key']}.npz"), versions=np.array(json.dumps(versions)), **found)


def three(image: Pixels) -> Pixels:
    return image if image.shape[-1] == 3 else np.repeat(image[..., :1], 3, axis=-1)


if __name__ == "__main__":
    main(*sys.argv[1:])
