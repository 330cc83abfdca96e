"""Targets of every backend are those of one thread of the CPU to the last bit, and lie where the images do."""

from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Recipe, TargetOptions
from augpipe.ops import (
    CenterCrop,
    CutMix,
    ElasticTransform,
    Flip,
    GridDistortion,
    KeepObjects,
    LensDistortion,
    Noise,
    Op,
    OpticalDistortion,
    RandomResizedCrop,
    Rotate,
)
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.loader_sources import TEXT
from tests.augpipe.loader.target_sources import (
    LabelMapSource,
    ObjectSource,
    label_map_source_of,
    object_source_of,
    plain,
    targets_by_id,
)
from tests.contracts.backends import JPEGS, VIEWS, Backend
from tests.contracts.backends import PLAIN as CPU

BENT = Recipe(name="bent", ops=(RandomResizedCrop(size=(4, 5)), LensDistortion(), Rotate(), Flip()))
KEEP = KeepObjects(rule="visible", classes={"cat": 2.0, "dog": 1.0, "owl": 1.0}, tries=4)
KEEPING = Recipe(name="keeping", ops=(Flip(), RandomResizedCrop(size=(4, 5), scale=(0.05, 0.3), keep_objects=KEEP)))
TURNED = Recipe(name="turned", border="constant", ops=(Noise(p=1.0), Rotate(), RandomResizedCrop(size=(4, 5)), Flip()))
ELASTIC = Recipe(name="elastic", ops=(RandomResizedCrop(size=(4, 5)), ElasticTransform(alpha=20.0, sigma=2.0, p=1.0)))
PASTED = Recipe(name="pasted", ops=(RandomResizedCrop(size=(4, 5)), Flip()), mixing=(CutMix(),))
CONTENTS = [*JPEGS[:6], scene(15, 14, 3)]


def sources() -> list[ObjectSource]:
    return [object_source_of(CONTENTS), object_source_of(CONTENTS, maps=True)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("cache", ["off", "device"])
@pytest.mark.parametrize("recipe", [BENT, VIEWS, KEEPING, TURNED, ELASTIC, PASTED], ids=lambda recipe: recipe.name)
def test_targets_are_those_of_one_thread(backend: Backend, recipe: Recipe, cache: Any) -> None:
    options = TargetOptions(masks=True)
    for source in sources():
        loader = backend.of(source, recipe, targets=options, cache=cache)
        expected = CPU.of(source, recipe, targets=options, num_threads=1)
        for _ in range(2):
            batches, wanted = [*loader], [*expected]
            assert targets_by_id(batches) == targets_by_id(wanted) and len(batches) == 2
            assert backend.assert_as_plain(batches, wanted) == len(CONTENTS)


@pytest.mark.parametrize("form", ["list", "padded", "flat"])
def test_tensors_lie_where_the_images_do(backend: Backend, form: Any) -> None:
    batch = next(iter(backend.of(sources()[1], BENT, targets=form)))
    names = ("bboxes", "cls", "mask") if form == "flat" else ("boxes", "labels", "mask")
    for target in batch.targets if form == "list" else [batch.targets]:
        assert {target[name].device for name in names} == {batch.images.device}
    wanted = next(iter(CPU.of(sources()[1], BENT, targets=form)))
    assert plain(batch.targets) == plain(wanted.targets)


def test_label_maps_alone_are_a_tensor(backend: Backend) -> None:
    source = label_map_source_of(CONTENTS)
    for batch, wanted in zip(backend.of(source, BENT), CPU.of(source, BENT), strict=True):
        assert isinstance(batch.targets, torch.Tensor) and batch.targets.equal(wanted.targets)
        assert batch.targets.device == batch.images.device


@pytest.mark.parametrize(
    "op", [ElasticTransform(alpha=30.0, sigma=2.0, p=1.0), GridDistortion(p=1.0), OpticalDistortion(p=1.0)]
)
def test_a_label_map_shows_what_an_image_of_its_labels_does(backend: Backend, op: Op) -> None:
    labels = np.arange(12 * 15, dtype=np.uint8).reshape(12, 15)
    source = LabelMapSource([np.dstack([labels] * 3)] * 4, [], [labels] * 4)
    always = op.model_copy(update={"p": 1.0})
    recipe = Recipe(ops=(always, Rotate(max_deg=20, p=1.0)), interpolation="nearest", border="constant")
    for batch in backend.of(source, recipe, dtype="uint8"):
        shown = batch.images[:, 0].int()
        apart = (shown != batch.targets.int()) & (batch.targets != 255)
        assert apart.float().mean() <= 0.01 and (batch.targets != 255).float().mean() > 0.6


def test_a_replaced_sample_brings_its_own_targets(backend: Backend) -> None:
    recipe = Recipe(ops=(CenterCrop(size=(4, 5)),))
    sound = sources()[1]
    whole = targets_by_id(CPU.of(sound, recipe))
    damaged = ObjectSource([*CONTENTS], sound.objects, [*sound.maps])
    damaged.contents[1], damaged.maps[3] = TEXT, OSError("gone")
    damaged.objects[5].boxes = damaged.objects[5].boxes + 1000.0
    loader = backend.of(damaged, recipe, on_error="skip", shuffle=False)
    for _ in range(2):
        batches = [*loader]
        assert [i for batch in batches for i in batch.sample_ids] == [0, 2, 2, 4, 4, 6, 6]
        assert all(whole[i] == targets for i, targets in targets_by_id(batches).items())
    assert set(loader.skipped) == {1, 3, 5}
