"""Boxes of COCO's objects through torchvision's and albumentations' transforms, next to those of `boxes="corners"`, or
of `"ellipse"` where theirs are.

Every number of a transform is the same on both sides: it is fixed, or else drawn here and handed to theirs. Of boxes
that are not wholly outside, a difference is how far the farthest of the four edges lies from theirs, in pixels.

    python -m benchmarks.parity.boxes    # in an environment that has both libraries; one that is missing is left out
"""

import importlib
import tarfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe import Augment, Plan, Recipe, TargetOptions, ops, plan
from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.open import open_source
from augpipe.planning.targets.boxes import box_areas
from benchmarks.harness import Bench
from benchmarks.parity.theirs import schemas

Boxes = npt.NDArray[np.float64]
Theirs = Callable[[Boxes, tuple[int, int], Plan], Any]
"""(N, 4) boxes of an image of a height and width, through what the plan of it says."""
CORNERS = TargetOptions(boxes="corners", drop_empty=False, clip=True)
ELLIPSES = TargetOptions(boxes="ellipse", drop_empty=False, clip=True)
PERSPECTIVE = Recipe(ops=(ops.Perspective(distortion=0.5, p=1.0),))
CROP = Recipe(ops=(ops.RandomResizedCrop(size=320),))


def torchvision_cases() -> dict[str, tuple[Recipe, Theirs]]:
    """Transforms of version 2 on `BoundingBoxes`."""
    schemas()
    t = importlib.import_module("torchvision.transforms.v2")
    functional = importlib.import_module("torchvision.transforms.v2.functional")
    tv_tensors = importlib.import_module("torchvision.tv_tensors")

    def boxes_of(boxes: Boxes, size: tuple[int, int]) -> Any:
        return tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size)

    def fixed(*transforms: Any) -> tuple[Recipe, Theirs]:
        chain = t.Compose([*transforms])
        return Recipe.from_torchvision(chain), lambda boxes, size, _: chain(boxes_of(boxes, size))

    def perspective(boxes: Boxes, size: tuple[int, int], drawn: Plan) -> Any:
        begins, ends = quadrangles(size, drawn)
        return functional.perspective(boxes_of(boxes, size), begins, ends)

    def crop(boxes: Boxes, size: tuple[int, int], drawn: Plan) -> Any:
        left, top, width, height = region(drawn)
        return functional.resized_crop(boxes_of(boxes, size), top, left, height, width, [320, 320])

    return {
        "flips": fixed(t.RandomHorizontalFlip(1.0), t.RandomVerticalFlip(1.0)),
        "rotation by 20 degrees": fixed(t.RandomRotation((20.0, 20.0))),
        "affine map": fixed(t.RandomAffine((15.0, 15.0), scale=(1.3, 1.3), shear=(12.0, 12.0, -8.0, -8.0))),
        "perspectives of 0.5": (PERSPECTIVE, perspective),
        "crops, resized": (CROP, crop),
        "centre crop of 300": fixed(t.CenterCrop(300)),
    }


def albumentations_cases() -> dict[str, tuple[Recipe, Theirs]]:
    """Transforms with their `BboxParams`, and for perspectives what these do with a matrix."""
    a = importlib.import_module("albumentations")
    functional = importlib.import_module("albumentations.augmentations.geometric.functional")

    def through(*transforms: Any) -> Theirs:
        chain = a.Compose([*transforms], bbox_params=a.BboxParams("pascal_voc", clip=True, filter_invalid_bboxes=False))

        def mapped(boxes: Boxes, size: tuple[int, int], drawn: Plan) -> Any:
            numbered = np.concatenate([boxes, np.arange(len(boxes))[:, None]], axis=1)
            found, kept = np.zeros_like(boxes), chain(image=np.zeros((*size, 3), np.uint8), bboxes=numbered)["bboxes"]
            kept = np.reshape(kept, (-1, 5))
            found[kept[:, 4].astype(np.int64)] = kept[:, :4]
            return found

        return mapped

    def fixed(*transforms: Any) -> tuple[Recipe, Theirs]:
        return Recipe.from_albumentations(a.Compose([*transforms])), through(*transforms)

    def perspective(boxes: Boxes, size: tuple[int, int], drawn: Plan) -> Any:
        import cv2

        matrix = cv2.getPerspectiveTransform(*(np.array(each, np.float32) for each in quadrangles(size, drawn)))
        sides = np.array([*size[::-1]] * 2)
        found = functional.perspective_bboxes(boxes / sides, size, matrix, *size[::-1], keep_size=False)
        return np.clip(found, 0.0, 1.0) * sides

    def crop(boxes: Boxes, size: tuple[int, int], drawn: Plan) -> Any:
        left, top, width, height = region(drawn)
        crop = a.Crop(left, top, left + width, top + height)
        return through(crop, a.Resize(320, 320))(boxes, size, drawn)

    return {
        "flips": fixed(a.HorizontalFlip(p=1), a.VerticalFlip(p=1)),
        "rotation by 20 degrees": fixed(a.Rotate((20, 20), p=1)),
        "affine map": fixed(a.Affine(scale=(1.3, 1.3), rotate=(15, 15), shear={"x": (12, 12), "y": (-8, -8)}, p=1)),
        "ellipses turned by 20 degrees": fixed(a.Rotate((20, 20), rotate_method="ellipse", p=1)),
        "perspectives of 0.5": (PERSPECTIVE, perspective),
        "crops, resized": (CROP, crop),
        "centre crop of 300": fixed(a.CenterCrop(300, 300, p=1)),
    }


def quadrangles(size: tuple[int, int], drawn: Plan) -> tuple[list[list[float]], list[list[float]]]:
    """The corners of an image's edges, and where they are moved; upper left, upper right, lower right, lower left."""
    height, width = size
    inwards = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * drawn.rows["drawn"]["perspective"]["moved"][0]
    begins = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)
    return begins.tolist(), (begins + inwards * (0.5 * width, 0.5 * height)).tolist()


def region(drawn: Plan) -> list[int]:
    """Left, top, width and height of the drawn crop, in whole pixels."""
    row = drawn.rows[0]
    left, top = drawn.to_source([[0.0, 0.0]])[0]
    right, bottom = drawn.to_source([[row["out_width"], row["out_height"]]])[0]
    return [round(float(each)) for each in (left, top, right - left, bottom - top)]


def compared(recipe: Recipe, theirs: Theirs, source: CocoSource, options: TargetOptions) -> dict[str, float]:
    augment, apart = Augment(recipe), []
    for sample_id in range(len(source)):
        boxes, size = source.targets_of(np.array([sample_id])).boxes, source.turned(sample_id)[1]
        drawn = plan(recipe, [sample_id], sizes=[size])
        image = np.zeros((*size, 3), np.uint8)
        found = augment(image=image, bboxes=boxes, bbox_format="pascal_voc", targets=options, plan=drawn)["bboxes"]
        expected = np.asarray(theirs(boxes, size, drawn), np.float64).reshape(-1, 4)
        is_shown = box_areas(expected) > 0.0
        apart += np.abs(found - expected)[is_shown].max(axis=1).tolist()
    return {
        "boxes": len(apart),
        "mean, px": round(float(np.mean(apart)), 5),
        "largest, px": round(float(np.max(apart)), 5),
    }


def main() -> None:
    bench = Bench(__doc__)
    found: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as folder:
        with tarfile.open(bench.data("coco80.tar") / "coco80.tar") as tar:
            tar.extractall(folder, filter="data")
        source = open_source(Path(folder, "coco80"))
        assert isinstance(source, CocoSource)
        for library, cases in {"torchvision": torchvision_cases, "albumentations": albumentations_cases}.items():
            if find_spec(library) is None:
                continue
            for name, (recipe, theirs) in cases().items():
                options = ELLIPSES if name.startswith("ellipses") else CORNERS
                found.setdefault(library, {})[name] = compared(recipe, theirs, source, options)
                print(f"  {library:16}{name:26}{found[library][name]}", flush=True)
    what = 'boxes of 80 photographs of COCO: ours with boxes="corners" or "ellipse", next to theirs'
    bench.keep("parity_boxes", {"what": what, "libraries": found})


if __name__ == "__main__":
    main()
