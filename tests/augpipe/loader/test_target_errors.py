"""What is refused where batches have targets, and what becomes of samples whose targets are damaged."""

from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Recipe, SampleError, TargetOptions, ops
from augpipe.sources.targets import Targets
from tests.augpipe.loader.loader_sources import TEXT, MemorySource, jpegs, truncated
from tests.augpipe.loader.target_sources import (
    CROPPED,
    ObjectSource,
    label_map_source,
    loader_of,
    object_source,
    targets_by_id,
)

torch = pytest.importorskip("torch")

NUM = 11
FORMS: tuple[Any, ...] = ("list", "padded", "flat")


@pytest.fixture(scope="module")
def source() -> ObjectSource:
    return object_source(NUM)


def test_a_damaged_label_map_is_a_damaged_sample() -> None:
    for wrong in (OSError("gone"), ValueError("no PNG"), np.zeros((3, 4), np.uint8), np.array("text")):
        source = object_source(6, maps=True)
        source.maps[2] = wrong
        with pytest.raises(SampleError, match=r"photo 2.jpg: its label map"):
            [*loader_of(source)]
        loader = loader_of(source, on_error="skip", shuffle=False, batch_size=3)
        first, second = loader
        assert first.sample_ids.tolist() == [0, 1, 3] and list(loader.skipped) == [2]
        for name in ("boxes", "mask", "id"):
            assert first.targets[2][name].equal(second.targets[0][name])
    source.maps[2] = ConnectionError("storage does not answer")
    with pytest.raises(ConnectionError):
        [*loader_of(source, on_error="skip")]


def test_an_impossible_object_makes_a_damaged_sample() -> None:
    for change, text in (
        ((0, np.nan), "not finite"),
        ((2, -5.0), "negative size"),
        ((2, 1e4), "reaches outside its image"),
    ):
        source = object_source(6)
        source.objects[2].boxes[0, change[0]] = change[1]
        with pytest.raises(SampleError, match=rf"photo 2.jpg: object 0 \(id 2000\): the box .*{text}"):
            [*loader_of(source)]
        first, _ = loader_of(source, on_error="skip", shuffle=False, batch_size=3)
        assert first.sample_ids.tolist() == [0, 1, 3] and first.targets[2]["id"].tolist() == []  # it has no objects
    cut = next(iter(loader_of(source, shuffle=False, targets=TargetOptions(clip=True))))
    assert cut.sample_ids.tolist() == [0, 1, 2, 3]
    for wrong, text in (((0, 0, 2), "visibility"), ((0, 0, 0), "key point is not finite")):
        source = object_source(6)
        source.objects[2].keypoints[wrong] = 7.0 if text == "visibility" else np.inf
        with pytest.raises(SampleError, match=text):
            [*loader_of(source)]
    source = object_source(6)
    source.objects[2].polygons[0][0][0] = np.nan
    with pytest.raises(SampleError, match="a corner of its polygon is not finite"):
        [*loader_of(source)]


def test_a_damaged_photograph_s_place_has_the_targets_of_the_one_that_replaces_it() -> None:
    sound = object_source(8, maps=True)
    damaged = ObjectSource(sound.contents, sound.objects, sound.maps)
    damaged.contents[1], damaged.contents[5] = TEXT, truncated()
    recipe = Recipe(ops=(ops.CenterCrop(size=30),))
    whole = targets_by_id(loader_of(sound, recipe))
    for options in ({"batch_size": 3}, {"batch_size": 1}, {"num_threads": 1, "batch_size": 8}):
        loader = loader_of(damaged, recipe, on_error="skip", shuffle=False, **options)
        for _ in range(2):  # sizes are known beforehand in the second epoch
            batches = [*loader]
            assert [i for batch in batches for i in batch.sample_ids] == [0, 2, 2, 3, 4, 6, 6, 7]
            assert all(whole[i] == targets for i, targets in targets_by_id(batches).items())
        assert set(loader.skipped) == {1, 5}


# What is refused


def test_recipes_that_targets_do_not_follow_are_refused(source: ObjectSource) -> None:
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=32), ops.OneOf(ops=(ops.Flip(), ops.GridShuffle()))))
    with pytest.raises(ValueError, match=r'do not follow .* build the loader with targets="off"'):
        loader_of(source, recipe)
    with pytest.raises(ValueError, match="do not follow"):
        loader_of(source, {0: CROPPED, 2: recipe})
    assert len(loader_of(source, recipe, targets="off")) == 3


def test_what_the_source_does_not_know_is_refused(source: ObjectSource) -> None:
    with pytest.raises(ValueError, match="the source has none"):
        loader_of(MemorySource(jpegs(2)), targets="padded")
    with pytest.raises(ValueError, match="targets='dict' is not known"):
        loader_of(source, targets="dict")
    with pytest.raises(ValueError, match="masks=True needs outlines"):
        loader_of(label_map_source(3), targets=TargetOptions(masks=True))
    for options in (TargetOptions(form="flat"), TargetOptions(masks=True)):
        with pytest.raises(ValueError, match="is for batches of a Loader"):
            Augment(CROPPED)(image=source.contents[0], bboxes=[], bbox_format="coco", targets=options)


def test_a_source_that_counts_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = object_source(3)
    monkeypatch.setattr(source, "targets_of", lambda ids: Targets(counts=np.zeros(len(ids) + 1, np.int64)))
    with pytest.raises(ValueError, match="targets_of gave counts of"):
        [*loader_of(source)]


def test_a_recipe_that_keeps_whole_images_has_targets_of_their_size() -> None:
    source, recipe = object_source(4, maps=True), Recipe(ops=(ops.Flip(p=1.0),))
    for batch in loader_of(source, recipe, batch_size=1):
        (target,) = batch.targets
        size = source.maps[batch.sample_ids[0]].shape
        assert tuple(target["mask"].shape) == size == tuple(batch.images.shape[2:])
        np.testing.assert_array_equal(target["mask"], source.maps[batch.sample_ids[0]][:, ::-1])
