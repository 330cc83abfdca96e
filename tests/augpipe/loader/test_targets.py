"""Batches with targets: what a call of `Augment` gives for one image, in the forms that a loader has."""

from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Loader, Recipe, TargetOptions
from tests.augpipe.loader.target_sources import (
    CLASSES,
    CROPPED,
    TARGET_RECIPES,
    ObjectSource,
    object_source,
)

torch = pytest.importorskip("torch")

NUM = 11


@pytest.fixture(scope="module")
def source() -> ObjectSource:
    return object_source(NUM)


def loader_of(source: Any, recipe: Recipe = CROPPED, **options: Any) -> Loader:
    return Loader(source, recipe, **{"batch_size": 4, "num_threads": 2, "seed": 3, **options})


def called(source: ObjectSource, recipe: Recipe, batch: Any, position: int, **options: Any) -> Any:
    """What a call of `Augment` gives for one sample of a batch, by the same plan row: a dict a view."""
    sample_id = int(batch.sample_ids[position])
    objects = source.objects[sample_id]
    results = Augment(recipe)(
        image=source.contents[sample_id],
        bboxes=objects.boxes,
        bbox_format="pascal_voc",
        polygons=objects.polygons,
        keypoints=objects.keypoints,
        labels=objects.labels,
        plan=batch.plan[position : position + 1],
        targets=TargetOptions(keypoint_swaps=((0, 1),), **options),
        **objects.fields,
    )
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("name", TARGET_RECIPES)
def test_a_batch_holds_what_a_call_gives_for_each_image(source: ObjectSource, name: str) -> None:
    recipe = TARGET_RECIPES[name]
    num_objects = 0
    for batch in loader_of(source, recipe):
        images, targets = batch
        views = targets if isinstance(targets, tuple) else (targets,)
        assert images is batch.images and len(batch.labels) == len(batch)
        for position in range(len(batch)):
            for view, expected in zip(views, called(source, recipe, batch, position), strict=True):
                found = view[position]
                np.testing.assert_array_equal(found["boxes"].numpy(), expected["bboxes"])
                np.testing.assert_array_equal(found["keypoints"].numpy(), expected["keypoints"])
                assert found["labels"].tolist() == expected["labels"] and found["tag"] == expected["tag"]
                assert found["object_ids"].tolist() == expected["object_ids"].tolist()
                assert found["id"].tolist() == expected["id"] and found["iscrowd"].tolist() == expected["iscrowd"]
                assert found["image_id"] == batch.sample_ids[position]
                num_objects += len(found["labels"])
    assert num_objects > NUM


def test_what_torchvision_s_models_ask_of_a_list(source: ObjectSource) -> None:
    images, targets = next(iter(loader_of(source)))
    assert isinstance(images, torch.Tensor) and isinstance(targets, list)
    types = {"boxes": torch.float32, "labels": torch.int64, "area": torch.float32, "iscrowd": torch.int64}
    for target in targets:
        assert {name: target[name].dtype for name in types} == types
        assert target["boxes"].shape == (len(target["labels"]), 4) and isinstance(target["image_id"], int)
        assert (target["boxes"][:, 2:] > target["boxes"][:, :2]).all()
        assert set(target["labels"].tolist()) <= set(range(len(CLASSES)))
