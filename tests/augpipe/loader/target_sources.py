"""Sources in memory that know of objects and label maps, and what the tests of targets read off batches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from augpipe import Batch, Loader, Recipe, View, ops
from augpipe.sources.targets import Targets
from tests.augpipe.loader.loader_sources import MemorySource, jpegs
from tests.parity.dense import star

Float = npt.NDArray[np.float64]

CLASSES = ("cat", "dog", "owl")
CROPPED = Recipe(
    name="cropped",
    ops=(ops.RandomResizedCrop(size=(36, 44), scale=(0.3, 1.0)), ops.Flip(), ops.Rotate(max_deg=20, step=None)),
)
BENT = Recipe(
    name="bent",
    border="reflect",
    ops=(
        ops.RandomResizedCrop(size=40),
        ops.OneOf(
            ops=(
                ops.LensDistortion(),
                ops.ElasticTransform(alpha=20.0, p=1.0),
                ops.GridDistortion(cells="whole_px"),
                ops.OpticalDistortion(k=(-0.5, 0.5)),
            ),
            p=0.7,
        ),
        ops.Perspective(p=0.5),
        ops.Flip(),
    ),
)
VIEWS = Recipe(
    name="views",
    views=(
        View(ops=(ops.RandomResizedCrop(size=32), ops.Flip()), count=2),
        View(ops=(ops.CenterCrop(size=24, scale=30),)),
    ),
)
KEEPING = Recipe(
    name="keeping",
    views=(
        View(
            ops=(
                ops.Flip(),
                ops.RandomResizedCrop(
                    size=32, scale=(0.05, 0.3), keep_objects=ops.KeepObjects(rule="visible", tries=3)
                ),
                ops.Rotate(max_deg=10, step=None),
            )
        ),
        View(
            ops=(
                ops.RandomCrop(
                    size=20, padding=4, keep_objects=ops.KeepObjects(rule="whole", classes={"1": 2.0, "2": 1.0})
                ),
            )
        ),
    ),
)
LISTED = Recipe(
    name="three passes",
    border="edge",
    ops=(
        ops.Emboss(p=0.5),
        ops.RandomResizedCrop(size=(36, 40)),
        ops.Solarize(),
        ops.Rotate(max_deg=30, step=None),
    ),
)
MOSAIC = Recipe(
    name="mosaic",
    mosaic=ops.Mosaic(size=40, p=0.8),
    ops=(ops.Rotate(max_deg=15, step=None), ops.Zoom(factor=(0.6, 1.2)), ops.CenterCrop(size=(36, 40)), ops.Flip()),
)
MOSAIC_OF_NINE = Recipe(
    name="mosaic of nine",
    mosaic=ops.Mosaic(size=30, num_images=9, p=0.8),
    views=(
        View(ops=(ops.Perspective(p=0.5), ops.CenterCrop(size=(30, 28)), ops.HueSaturationValue()), count=2),
        View(ops=(ops.RandomResizedCrop(size=48, scale=(0.4, 1.0)),)),
    ),
)
TARGET_RECIPES = {recipe.name: recipe for recipe in (CROPPED, BENT, VIEWS, KEEPING, LISTED)}


@dataclass(kw_only=True)
class ImageObjects:
    """The objects of one image."""

    boxes: Float
    labels: list[int]
    polygons: list[list[Float]]
    keypoints: Float
    fields: dict[str, list[Any]] = field(default_factory=dict)

    def shuffled(self, order: Sequence[int]) -> "ImageObjects":
        return ImageObjects(
            boxes=self.boxes[order],
            labels=[self.labels[i] for i in order],
            polygons=[self.polygons[i] for i in order],
            keypoints=self.keypoints[order],
            fields={name: [values[i] for i in order] for name, values in self.fields.items()},
        )


def objects_of(seed: int, size: tuple[int, int]) -> ImageObjects:
    """Up to five objects, some without an outline; every fourth image has none."""
    rng, (height, width) = np.random.default_rng(seed), size
    num = 0 if seed % 4 == 3 else int(rng.integers(1, 6))
    polygons: list[list[Float]] = []
    boxes = np.empty((num, 4))
    for number in range(num):
        rings = [star(rng, *rng.uniform((0, 0), (width, height)), rng.uniform(4, 30)) for _ in range(1 + number % 2)]
        rings = [np.clip(ring, 0, (width, height)) for ring in rings]
        corners = np.concatenate(rings)
        boxes[number] = *corners.min(axis=0), *corners.max(axis=0)
        polygons.append(rings if number % 3 < 2 else [])
    points = rng.uniform((0, 0), (width, height), (num, 3, 2))
    visibility = rng.integers(0, 3, (num, 3, 1))
    return ImageObjects(
        boxes=boxes,
        labels=rng.integers(0, len(CLASSES), num).tolist(),
        polygons=polygons,
        keypoints=np.concatenate([points, visibility], axis=2),
        fields={
            "id": [1000 * seed + n for n in range(num)],
            "iscrowd": [int(n % 3 == 2) for n in range(num)],
            "tag": [f"{seed}:{n}" for n in range(num)],
        },
    )


class ObjectSource(MemorySource):
    """JPEGs with objects; with label maps too where those are asked for."""

    has_targets = True
    object_classes: Sequence[str] = CLASSES
    keypoint_swaps: Sequence[tuple[int, int]] = ((0, 1),)

    def __init__(self, contents: Sequence[Any], objects: Sequence[ImageObjects], maps: Sequence[Any] = ()) -> None:
        super().__init__(contents, labels=[-1] * len(contents))
        self.objects, self.maps = list(objects), list(maps)
        self.asked_ids: list[int] = []

    @property
    def has_label_maps(self) -> bool:
        return bool(self.maps)

    def targets_of(self, sample_ids: npt.NDArray[np.int64]) -> Targets | None:
        self.asked_ids += sample_ids.tolist()
        chosen = [self.objects[i] for i in sample_ids.tolist()]
        names = self.objects[0].fields
        fields: dict[str, Any] = {name: [value for one in chosen for value in one.fields[name]] for name in names}
        if "id" in fields:
            fields["id"] = np.array(fields["id"], np.int64)
        return Targets(
            counts=np.array([len(one.labels) for one in chosen], np.int64),
            labels=np.array([label for one in chosen for label in one.labels], np.int64),
            boxes=np.concatenate([np.empty((0, 4)), *(one.boxes for one in chosen)]),
            polygons=[rings for one in chosen for rings in one.polygons],
            keypoints=np.concatenate([np.empty((0, 3, 3)), *(one.keypoints for one in chosen)]),
            fields=fields,
        )

    def label_map(self, sample_id: int) -> Any:
        if isinstance(self.maps[sample_id], BaseException):
            raise self.maps[sample_id]
        return self.maps[sample_id]


class LabelMapSource(ObjectSource):
    """Images of which label maps only are known."""

    def targets_of(self, sample_ids: npt.NDArray[np.int64]) -> None:
        return None


def size_of(content: Any) -> tuple[int, int]:
    if isinstance(content, np.ndarray):
        return content.shape[0], content.shape[1]
    height, width = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR).shape[:2]
    return height, width


def painted(objects: ImageObjects, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """The label map of objects: their class + 1, later ones on top."""
    labels = np.zeros(size, np.uint8)
    for label, (left, top, right, bottom) in zip(objects.labels, objects.boxes.astype(int).tolist(), strict=True):
        labels[top:bottom, left:right] = label + 1
    return labels


def object_source_of(contents: Sequence[Any], *, maps: bool = False, first: int = 0) -> ObjectSource:
    sizes = [size_of(content) for content in contents]
    objects = [objects_of(first + number, size) for number, size in enumerate(sizes)]
    painted_maps = [painted(one, size) for one, size in zip(objects, sizes, strict=True)] if maps else []
    return ObjectSource(contents, objects, painted_maps)


def object_source(num: int, *, maps: bool = False, first: int = 0) -> ObjectSource:
    return object_source_of(jpegs(num, first=first), maps=maps, first=first)


def label_map_source_of(contents: Sequence[Any]) -> LabelMapSource:
    source = object_source_of(contents, maps=True)
    return LabelMapSource(source.contents, source.objects, source.maps)


def label_map_source(num: int) -> LabelMapSource:
    return label_map_source_of(jpegs(num))


def plain(value: Any) -> Any:
    """Targets of an image as what compares equal only where every bit is."""
    if isinstance(value, dict):
        return {name: plain(values) for name, values in value.items()}
    if isinstance(value, list | tuple):
        return [plain(values) for values in value]
    if hasattr(value, "numpy"):
        value = value.cpu().numpy()
    return (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def targets_by_id(batches: Iterable[Batch]) -> dict[int, Any]:
    """Sample id -> its targets in lists of dicts, of each view, and what of them was dropped."""
    found: dict[int, Any] = {}
    for batch in batches:
        views, dropped = batch.targets, batch.dropped
        if not isinstance(views, tuple):
            views, dropped = (views,), (dropped,)
        for position, sample_id in enumerate(batch.sample_ids.tolist()):
            found[sample_id] = [plain(view[position]) for view in views], [plain(view[position]) for view in dropped]
    return found


def loader_of(source: Any, recipe: Any = CROPPED, **options: Any) -> Loader:
    return Loader(source, recipe, **{"batch_size": 4, "num_threads": 2, "seed": 3, **options})
