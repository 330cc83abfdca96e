"""What the sample dataset's images show, as a COCO file: masks, boxes and key points of the objects."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from augpipe.datasets.annotations.run_lengths import encode
from augpipe.datasets.synthetic.sprites import Placed

ANNOTATIONS_FILE = "annotations.json"
KEYPOINTS = ("head", "tail")
"""The two ends of an object, before it was turned and mirrored."""
_SOLID = 128
"""From which coverage on, of 255, a pixel belongs to the object."""


def describe(image: Image.Image, objects: Sequence[Placed]) -> dict[str, Any]:
    """Size of an image, and the objects of it of which something is seen, as COCO describes them."""
    described = []
    for placed in objects:
        mask = np.zeros((image.height, image.width), np.bool_)
        height, width = placed.coverage.shape
        mask[placed.top : placed.top + height, placed.left : placed.left + width] = placed.coverage >= _SOLID
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        if not len(rows):
            continue
        left, top = int(columns[0]), int(rows[0])
        points: list[float] = []
        for x, y in placed.ends.tolist():
            is_seen = 0 <= x <= image.width and 0 <= y <= image.height
            points += [round(x, 2), round(y, 2), 2] if is_seen else [0, 0, 0]
        described.append(
            {
                "bbox": [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top],
                "area": int(mask.sum()),
                "segmentation": encode(mask),
                "keypoints": points,
                "num_keypoints": sum(visibility > 0 for visibility in points[2::3]),
                "iscrowd": 0,
            }
        )
    return {"height": image.height, "width": image.width, "objects": described}


def merge(described: Sequence[Path], names: Sequence[str], classes: Sequence[str], out: Path) -> None:
    """Write the COCO file of all images.

    Args:
        described: of each image the file that holds what `describe` gave.
        names: their paths below the data set's folder, as `CLASS/00001.jpg`.
        classes: in the order of their category ids, from 1.
        out: the file.
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, (path, name) in enumerate(zip(described, names, strict=True)):
        found = json.loads(path.read_text(encoding="utf-8"))
        images.append({"id": number, "file_name": name, "height": found["height"], "width": found["width"]})
        category = classes.index(name.partition("/")[0]) + 1
        for own in found["objects"]:
            annotations.append({"id": len(annotations) + 1, "image_id": number, "category_id": category, **own})
    categories = [
        {"id": place + 1, "name": name, "keypoints": KEYPOINTS, "skeleton": [[1, 2]]}
        for place, name in enumerate(classes)
    ]
    unfinished = out.with_name(f".{out.name}.tmp")
    content = {"images": images, "annotations": annotations, "categories": categories}
    unfinished.write_text(json.dumps(content) + "\n", encoding="utf-8")
    unfinished.replace(out)
