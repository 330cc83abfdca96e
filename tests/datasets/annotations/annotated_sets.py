"""Small annotated data sets, and what tests ask of their sources."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe.sources.targets import Targets, has_targets

SIZES = {"a": (48, 64), "b": (40, 30), "c": (20, 20)}
"""Height and width of the images a.jpg, b.jpg and c.jpg."""
ORIENTATION = 0x0112


def put_image(path: Path, size: tuple[int, int], orientation: int = 1) -> None:
    """A gray image of stored (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    Image.new("RGB", size[::-1], (90, 90, 90)).save(path, exif=exif)


def put_images(folder: Path, sizes: Mapping[str, tuple[int, int]] = SIZES) -> Path:
    for name, size in sizes.items():
        put_image(folder / f"{name}.jpg", size)
    return folder


def put_texts(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in SIZES:
        (folder / f"{name}.txt").write_text(text)
    return folder


def coco_content(annotations: Any, **others: Any) -> dict[str, Any]:
    """A COCO file of a, b and c with two classes; each annotation has an id, an image and a class unless it says so."""
    return {
        "images": [
            {"id": 10 * (3 - number), "file_name": f"{name}.jpg", "height": height, "width": width}
            for number, (name, (height, width)) in enumerate(SIZES.items())
        ],
        "annotations": annotations
        and [
            {"id": 100 + number, "image_id": 30, "category_id": 7, "bbox": [4, 6, 20, 10], **given}
            for number, given in enumerate(annotations)
        ],
        "categories": [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}],
        **others,
    }


def put_coco(folder: Path, annotations: Any, **others: Any) -> Path:
    """Images and `coco.json` in one folder; returns the file."""
    put_images(folder)
    path = folder / "coco.json"
    path.write_text(json.dumps(coco_content(annotations, **others)))
    return path


def everything(source: Any) -> Targets:
    """The objects of all images."""
    assert has_targets(source)
    found = source.targets_of(np.arange(len(source)))
    assert found is not None
    return found


def filled(rings: Sequence[npt.NDArray[np.float64]], size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """(H, W) whether each pixel's centre lies inside one of some rings: by counting the edges to its right."""
    y, x = np.mgrid[: size[0], : size[1]] + 0.5
    inside = np.zeros(size, np.bool_)
    for ring in rings:
        crossings = np.zeros(size, np.int64)
        for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            if y0 != y1:
                is_level = (y >= min(y0, y1)) & (y < max(y0, y1))
                crossings += is_level & (x < x0 + (y - y0) / (y1 - y0) * (x1 - x0))
        inside |= crossings % 2 == 1
    return inside


def decoded(counts: Sequence[int], size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """The mask of COCO's runs, pixel by pixel down each column."""
    pixels = [number % 2 == 1 for number, run in enumerate(counts) for _ in range(run)]
    return np.array(pixels, np.bool_).reshape(size[::-1]).T
