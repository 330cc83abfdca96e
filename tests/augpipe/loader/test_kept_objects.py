"""Loaders and calls of `Augment` with crops that know their objects."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Loader, Recipe, ops
from augpipe.sampling import Repeated
from augpipe.sources import Concat, Subset
from augpipe.sources.targets import Outlines, Targets
from tests.augpipe.augment_call.tv_stand_ins import Format, installed, made
from tests.augpipe.loader.loader_sources import TEXT, MemorySource, jpegs
from tests.augpipe.loader.target_sources import (
    KEEPING,
    ObjectSource,
    label_map_source,
    object_source,
    targets_by_id,
)

NUM = 21
torch = pytest.importorskip("torch")

KEEP = ops.KeepObjects(rule="center", tries=200)
RECIPE = Recipe(name="near", ops=[ops.RandomResizedCrop(size=32, scale=(0.02, 0.15), keep_objects=KEEP)])
PLAIN = Recipe(ops=[ops.RandomResizedCrop(size=32, scale=(0.02, 0.15))])


def loader_of(source: Any, recipe: Recipe = RECIPE, **options: Any) -> Loader[Any]:
    return Loader(source, recipe, **{"batch_size": 4, "num_threads": 2, "framework": "numpy", **options})


@pytest.fixture(scope="module")
def source() -> ObjectSource:
    return object_source(NUM)


def plans_by_id(loader: Loader[Any]) -> dict[int, bytes]:
    return {
        int(sample_id): b"".join(rows[place].tobytes() for rows in batch.plan.views)
        for batch in loader
        for place, sample_id in enumerate(batch.sample_ids)
    }


def test_each_crop_shows_an_object_that_is_not_a_crowd(source: ObjectSource) -> None:
    shown = plain_shown = num = 0
    for recipe in (RECIPE, PLAIN):
        for batch in loader_of(source, recipe):
            for sample_id, row in zip(batch.sample_ids, batch.plan.rows, strict=True):
                objects = source.objects[sample_id]
                counted = objects.boxes[[not flag for flag in objects.fields["iscrowd"]]]
                if not len(counted):
                    continue
                left, top, right, bottom = row["crop"]
                x, y = 0.5 * (counted[:, :2] + counted[:, 2:]).T
                is_shown = ((x >= left) & (x <= right) & (y >= top) & (y <= bottom)).any()
                if recipe is RECIPE:
                    shown, num = shown + is_shown, num + 1
                else:
                    plain_shown += is_shown
    assert shown == num > NUM // 2 and plain_shown < num // 2


def test_a_batch_has_the_objects_that_its_crops_kept(source: ObjectSource) -> None:
    boxes_only = [replace(one, polygons=[[] for _ in one.labels]) for one in source.objects]
    for batch in loader_of(ObjectSource(source.contents, boxes_only)):
        for target, row in zip(batch.targets, batch.plan.rows, strict=True):
            found = row["drawn"]["random_resized_crop"]["keep_objects"]
            assert not found["tries"] or (len(target["boxes"]) and found["kept"])


def test_no_image_is_read_twice_and_targets_need_not_be_delivered() -> None:
    source = object_source(NUM)
    with_targets = plans_by_id(loader_of(source))
    assert source.num_reads == NUM
    without = plans_by_id(loader_of(source, targets="off"))
    assert source.num_reads == 2 * NUM and without == with_targets


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [RECIPE, KEEPING], ids=lambda recipe: recipe.name)
def test_plans_do_not_depend_on_how_they_are_made(source: ObjectSource, recipe: Recipe) -> None:
    expected = plans_by_id(loader_of(source, recipe, batch_size=1, num_threads=1))
    for options in ({"batch_size": 7}, {"num_threads": 3, "prefetch": 3}, {"cache": "host"}):
        loader = loader_of(source, recipe, **options)
        assert plans_by_id(loader) == expected
        later = plans_by_id(loader)  # planned block by block where sizes are known by now
        loader.set_epoch(0)
        assert plans_by_id(loader) == expected != later
    ranks = [plans_by_id(loader_of(source, recipe, rank=rank, world_size=3)) for rank in range(3)]
    assert {key: plan for found in ranks for key, plan in found.items()} == expected
    one = loader_of(source, recipe).sample(5)
    assert one.plan.views[0][0].tobytes() == expected[5][: one.plan.views[0].itemsize]


def test_the_first_epoch_is_the_same_whether_sizes_are_known_beforehand(source: ObjectSource) -> None:
    loader = loader_of(source)
    first = plans_by_id(loader)
    loader.set_epoch(0)
    assert plans_by_id(loader) == first


def test_a_damaged_photograph_s_place_has_a_crop_of_the_objects_of_the_one_that_replaces_it() -> None:
    sound = object_source(8)
    damaged = ObjectSource(sound.contents, sound.objects)
    damaged.contents[1] = damaged.contents[5] = TEXT
    whole = targets_by_id(loader_of(sound))
    for options in ({"batch_size": 3}, {"batch_size": 1}, {"cache": "host"}):
        loader = loader_of(damaged, on_error="skip", shuffle=False, **options)
        for _ in range(2):
            loader.set_epoch(0)
            batches = [*loader]
            assert [i for batch in batches for i in batch.sample_ids] == [0, 2, 2, 3, 4, 6, 6, 7]
            assert all(whole[i] == targets for i, targets in targets_by_id(batches).items())


def test_sources_made_of_others_know_their_objects(source: ObjectSource) -> None:
    expected = plans_by_id(loader_of(source))
    joined = Concat([Subset(source, range(9)), Subset(source, range(9, NUM))])
    assert plans_by_id(loader_of(joined)) == expected


def test_mixing_and_samplers_go_with_it(source: ObjectSource) -> None:
    mixed = Recipe(ops=RECIPE.ops, mixing=[ops.MixUp()])
    for batch in loader_of(source, mixed, targets="off"):
        assert batch.plan.rows["drawn"]["random_resized_crop"]["keep_objects"]["kept"].all()
    loader = loader_of(source, sampler=Repeated(3))
    found = [row["crop"].tobytes() for batch in loader for row in batch.plan.rows if batch.sample_ids is not None]
    assert len(found) == len(set(found))


class Unlabelled(ObjectSource):
    def targets_of(self, sample_ids: Any) -> Targets:
        found = super().targets_of(sample_ids)
        assert found is not None
        return replace(found, labels=None)


def without_boxes(source: ObjectSource) -> ObjectSource:
    made = ObjectSource(source.contents, source.objects)
    known = made.targets_of

    def targets_of(ids: Any) -> Any:
        return replace(known(ids), boxes=None, labels=None)

    made.targets_of = targets_of  # type: ignore[method-assign]
    return made


def test_sources_that_do_not_know_the_objects_are_refused(source: ObjectSource) -> None:
    for unknown in (MemorySource(jpegs(2)), label_map_source(2), without_boxes(source)):
        with pytest.raises(ValueError, match="random_resized_crop of recipe 'near' keeps objects, and the source has"):
            loader_of(unknown)
        with pytest.raises(ValueError, match="keeps objects"):
            loader_of(unknown, {0: PLAIN, 3: RECIPE}, targets="off")
    keep = ops.KeepObjects(classes={"dig": 1.0})
    with pytest.raises(ValueError, match="of class 'dig', which is not one of the 3 classes of the source"):
        loader_of(source, Recipe(name="dig", ops=[ops.RandomCrop(size=8, keep_objects=keep)]))
    keep = ops.KeepObjects(classes={"3": 1.0})
    with pytest.raises(ValueError, match="of class '3'"):
        loader_of(source, Recipe(name="three", ops=[ops.RandomCrop(size=8, keep_objects=keep)]))
    with pytest.raises(ValueError, match="of some classes, and the source has no labels of objects"):
        loader_of(Unlabelled(source.contents, source.objects), Recipe(ops=[ops.RandomCrop(size=8, keep_objects=keep)]))


# One image with its boxes


IMAGE = np.random.default_rng(0).integers(0, 256, (200, 240, 3), np.uint8)
BOXES = [[10, 20, 30, 44], [150, 120, 160, 150]]


def call(recipe: Recipe = RECIPE, seed: int = 0, **named: Any) -> dict[str, Any]:
    augment = Augment(recipe, seed=seed)
    result: dict[str, Any] = augment(image=IMAGE, sample_ids=[3], bbox_format="pascal_voc", **named)
    return result


def test_a_call_keeps_the_objects_that_it_is_given() -> None:
    for seed in range(20):
        assert len(call(seed=seed, bboxes=BOXES)["bboxes"]) >= 1
        assert [*call(seed=seed, bboxes=BOXES, iscrowd=[1, 0])["object_ids"]][-1] == 1
    assert call(bboxes=np.empty((0, 4)))["bboxes"].shape == (0, 4)


def test_a_call_with_tensors_of_torchvision_keeps_their_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    tv = installed(monkeypatch)
    for seed in range(9):
        boxes = made(tv.BoundingBoxes, BOXES, format=Format.XYXY, canvas_size=(200, 240))
        given = {"boxes": boxes, "labels": torch.tensor([4, 7])}
        keep = ops.KeepObjects(rule="whole", classes={"7": 1.0}, tries=200)
        augment = Augment(Recipe(ops=[ops.RandomCrop(size=60, keep_objects=keep)]), seed=seed)
        _, target = augment((made(tv.Image, IMAGE.transpose(2, 0, 1).copy(), torch.uint8), given), sample_ids=[3])
        assert len(target["boxes"]) == 2  # all stay there
        left, top, right, bottom = target["boxes"][1].tolist()
        assert (right - left, bottom - top) == (10, 30) and min(left, top) >= -1e-6 and max(right, bottom) <= 60 + 1e-6


def test_a_call_knows_classes_by_the_labels_that_it_is_given() -> None:
    def recipe(**classes: float) -> Recipe:
        keep = ops.KeepObjects(classes=classes, tries=200)
        return Recipe(ops=[ops.RandomCrop(size=40, keep_objects=keep)])

    for labels in (["ball", "dog"], np.array(["ball", "dog"])):
        for seed in range(9):
            assert "dog" in call(recipe(dog=1.0), seed, bboxes=BOXES, labels=labels)["labels"]
    for labels in ([4, 7], np.array([4, 7])):
        assert 7 in call(recipe(**{"7": 1.0}), bboxes=BOXES, labels=labels)["labels"]
    with pytest.raises(ValueError, match="names the class 'dog', and labels are numbers"):
        call(recipe(dog=1.0), bboxes=BOXES, labels=[4, 7])
    with pytest.raises(ValueError, match="the objects have no labels"):
        call(recipe(dog=1.0), bboxes=BOXES)


def test_a_call_without_boxes_is_refused() -> None:
    for wrong in (lambda: Augment(RECIPE)(IMAGE), lambda: Augment(RECIPE)(image=IMAGE, mask=IMAGE[:, :, 0])):
        with pytest.raises(ValueError, match=r"keeps objects \(random_resized_crop\), and no boxes are known here"):
            wrong()


def test_crops_wait_for_no_outlines() -> None:
    made = []

    class Told(ObjectSource):
        def targets_of(self, sample_ids: Any) -> Any:
            known = super().targets_of(sample_ids)
            assert known is not None and known.polygons is not None
            rings = known.polygons

            def make() -> Any:
                made.append(len(rings))
                return rings

            return replace(known, polygons=Outlines(len(rings), make))

    source = object_source(8)
    told = Told(source.contents, source.objects)
    assert plans_by_id(loader_of(told, targets="off")) == plans_by_id(loader_of(source)) and made == []
    halves = Concat([Subset(told, range(4)), Subset(told, range(4, 8))])
    assert len(plans_by_id(loader_of(halves, targets="off"))) == 8 and made == []
    assert targets_by_id(loader_of(told)) == targets_by_id(loader_of(source)) and made
    assert targets_by_id(loader_of(halves)) == targets_by_id(loader_of(source))


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_labels_may_be_of_any_type_that_a_source_is_allowed(dtype: Any) -> None:
    """Small ones, and those of `np.array([])`: float64 where a batch has no object."""
    num = int(dtype is np.uint8)
    source = MemorySource(jpegs(4))
    source.has_targets, source.has_label_maps, source.keypoint_swaps = True, False, ()  # type: ignore[attr-defined]
    source.object_classes = ("cat", "dog")  # type: ignore[attr-defined]
    source.targets_of = lambda ids: Targets(  # type: ignore[attr-defined]
        counts=np.full(len(ids), num),
        labels=np.ones(num * len(ids), dtype),
        boxes=np.tile([2.0, 2.0, 9.0, 9.0], (num * len(ids), 1)),
    )
    keep = ops.KeepObjects(classes={"dog": 1.0})
    (batch,) = loader_of(source, Recipe(ops=[ops.RandomResizedCrop(size=32, keep_objects=keep)]))
    found = batch.plan.rows["drawn"]["random_resized_crop"]["keep_objects"]["label"]
    assert found.tolist() == [1 if num else -1] * 4
