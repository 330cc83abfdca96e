"""Batches with targets: what a call of `Augment` gives for one image, in the forms that a loader has."""

import textwrap
from typing import Any

import cv2
import numpy as np
import pytest

from augpipe import Augment, Batch, Loader, Recipe, SampleError, TargetOptions, ops
from augpipe.batch_targets import _tv_tensors
from augpipe.sources import Concat, Subset, hold_out
from augpipe.sources.targets import Targets, has_targets
from tests.augpipe.augment_call.tv_stand_ins import installed
from tests.augpipe.loader.loader_sources import (
    COMPILING_TIMEOUT_S,
    TEXT,
    MemorySource,
    jpegs,
    run_python,
    truncated,
)
from tests.augpipe.loader.target_sources import (
    CLASSES,
    CROPPED,
    TARGET_RECIPES,
    ObjectSource,
    label_map_source,
    object_source,
    targets_by_id,
)

torch = pytest.importorskip("torch")

NUM = 11
FORMS: tuple[Any, ...] = ("list", "padded", "flat")


@pytest.fixture(scope="module")
def source() -> ObjectSource:
    return object_source(NUM)


def loader_of(source: Any, recipe: Any = CROPPED, **options: Any) -> Loader:
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


def test_boxes_and_masks_are_torchvision_s_where_it_is_installed(
    source: ObjectSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = next(iter(loader_of(source, targets=TargetOptions(masks=True))))
    tv = installed(monkeypatch)
    _tv_tensors.cache_clear()
    try:
        batch = next(iter(loader_of(source, targets=TargetOptions(masks=True))))
        for target, expected in zip(batch.targets, plain.targets, strict=True):
            assert type(target["boxes"]) is tv.BoundingBoxes and type(target["masks"]) is tv.Mask
            assert target["boxes"].format == "XYXY" and target["boxes"].canvas_size == (36, 44)
            assert target["boxes"].as_subclass(torch.Tensor).equal(expected["boxes"])
            assert type(target["labels"]) is torch.Tensor
        moved = batch.to("meta").targets[0]["boxes"]
        assert type(moved) is tv.BoundingBoxes and moved.device.type == "meta"
    finally:
        _tv_tensors.cache_clear()
    assert {type(target["boxes"]) for target in plain.targets} == {torch.Tensor}


def in_lists(batch: Batch) -> list[dict[str, Any]]:
    assert isinstance(batch.targets, list)
    return batch.targets


def test_padded_and_flat_targets_hold_the_same_as_lists(source: ObjectSource) -> None:
    options = {"masks": True, "polygons": True, "min_area": 30.0}
    forms = {form: [*loader_of(source, targets=TargetOptions(form=form, **options))] for form in FORMS}
    for listed, padded, flat in zip(*forms.values(), strict=True):
        assert listed.dropped == padded.dropped == flat.dropped
        targets, height, width = in_lists(listed), 36, 44
        counts = [len(target["labels"]) for target in targets]
        assert padded.targets["lengths"].tolist() == counts and max(counts) > min(counts)
        assert flat.targets["batch_idx"].tolist() == np.repeat(np.arange(len(counts)), counts).tolist()
        assert padded.targets["image_id"].tolist() == flat.targets["image_id"].tolist() == listed.sample_ids.tolist()
        for name in set(targets[0]) - {"image_id", "polygons", "tag"}:
            together = torch.cat([target[name] for target in targets])
            for position, num in enumerate(counts):
                row = padded.targets[name][position]
                assert row.dtype == together.dtype and row[:num].equal(targets[position][name])
                assert len(row) == max(counts) and (row[num:] == (-1 if name == "labels" else 0)).all()
            if name == "boxes":
                centre = 0.5 * (together[:, :2] + together[:, 2:]) / torch.tensor([width, height])
                size = (together[:, 2:] - together[:, :2]) / torch.tensor([width, height])
                torch.testing.assert_close(flat.targets["bboxes"], torch.cat([centre, size], dim=1))
            elif name == "labels":
                assert flat.targets["cls"].equal(together[:, None].float())
            elif name == "keypoints":
                torch.testing.assert_close(flat.targets[name], together / torch.tensor([width, height, 1]))
            else:
                assert flat.targets[name].equal(together)
        assert flat.targets["tag"] == [tag for target in targets for tag in target["tag"]]
        assert padded.targets["tag"][0] == targets[0]["tag"] + [None] * (max(counts) - counts[0])


def test_numpy_batches_hold_arrays_and_import_no_torch() -> None:
    code = """
        import sys
        from augpipe import Loader, TargetOptions
        from tests.augpipe.loader.target_sources import CROPPED, object_source
        for form in ("list", "padded", "flat"):
            options = TargetOptions(form=form, masks=True)
            for batch in Loader(object_source(5), CROPPED, batch_size=2, framework="numpy", targets=options):
                images, targets = batch
                one = targets[0] if form == "list" else targets
                assert type(one["masks"]).__module__ == "numpy" and one["masks"].dtype == "uint8"
        assert "torch" not in sys.modules
    """
    result = run_python(textwrap.dedent(code), timeout_s=COMPILING_TIMEOUT_S)
    assert result.returncode == 0, result.stderr


def test_masks_of_objects_are_their_filled_outlines(source: ObjectSource) -> None:
    checked = 0
    for batch in loader_of(source, targets=TargetOptions(masks=True, polygons=True)):
        for target in in_lists(batch):
            assert target["masks"].dtype == torch.uint8 and target["masks"].shape[1:] == (36, 44)
            for mask, rings in zip(target["masks"].numpy(), target["polygons"], strict=True):
                fine = np.zeros((36 * 8, 44 * 8), np.uint8)
                for ring in rings:
                    cv2.fillPoly(fine, [np.rint(ring * 8 - 0.5).astype(np.int32)], 1)
                share = fine.reshape(36, 8, 44, 8).mean(axis=(1, 3))
                assert (mask[share > 0.8] == 1).all() and (mask[share < 0.2] == 0).all()
                checked += bool(rings)
    assert checked > 5


def test_crowds_and_areas(source: ObjectSource) -> None:
    for batch in loader_of(source, targets=TargetOptions(polygons=True)):
        for target in in_lists(batch):
            for box, area, rings in zip(target["boxes"].numpy(), target["area"], target["polygons"], strict=True):
                sides = [cv2.contourArea(ring.astype(np.float32)) for ring in rings]
                expected = sum(sides) if rings else (box[2] - box[0]) * (box[3] - box[1])
                assert area == pytest.approx(expected, rel=1e-3, abs=1e-2)


def test_left_out_objects_are_named_with_the_reason(source: ObjectSource) -> None:
    num_dropped = 0
    for batch in loader_of(source, targets=TargetOptions(min_visibility=0.6)):
        for position, (target, dropped) in enumerate(zip(in_lists(batch), batch.dropped, strict=True)):
            (expected,) = called(source, CROPPED, batch, position, min_visibility=0.6)
            assert dropped == expected["dropped"] and target["object_ids"].tolist() == expected["object_ids"].tolist()
            num_dropped += len(dropped)
    assert num_dropped > 3
    kept = next(iter(loader_of(source, targets=TargetOptions(drop_empty=False))))
    assert [len(target["labels"]) for target in in_lists(kept)] == [
        len(source.objects[sample_id].labels) for sample_id in kept.sample_ids
    ]


def test_ids_of_images_and_objects_may_be_the_source_s_own(source: ObjectSource) -> None:
    own = object_source(5)
    for one in own.objects:
        one.fields["object_ids"] = [f"object {number}" for number in one.fields["id"]]
    own.columns_of = lambda ids: {"image_id": [f"image {i}" for i in ids.tolist()]}  # type: ignore[attr-defined]
    for form in FORMS:
        batch = next(iter(loader_of(own, targets=form, shuffle=False)))
        ids = [f"image {number}" for number in range(4)]
        assert [target["image_id"] for target in batch.targets] == ids if form == "list" else True
        assert form == "list" or batch.targets["image_id"] == ids
    assert all(str(one).startswith("object ") for dropped in batch.dropped for one, _ in dropped)
    assert set(batch.targets["object_ids"]) <= {one for each in own.objects for one in each.fields["object_ids"]}


def test_targets_may_be_left_out_and_other_sources_have_labels() -> None:
    source = object_source(5)
    _, labels = next(iter(loader_of(source, targets="off")))
    assert labels.tolist() == [-1] * 4 and source.asked_ids == []
    plain = MemorySource(jpegs(5))
    _, labels = batch = next(iter(loader_of(plain)))
    assert labels.dtype == torch.int64 and batch.targets is None and batch.dropped == ()
    source.has_targets = False
    assert next(iter(loader_of(source))).targets is None


def test_a_batch_moves_and_shows_its_targets(source: ObjectSource) -> None:
    for form in FORMS:
        batch = next(iter(loader_of(source, targets=form)))
        moved = batch.to("meta", torch.float16)
        first = moved.targets[0] if form == "list" else moved.targets
        name = "bboxes" if form == "flat" else "boxes"
        assert first[name].device.type == "meta" and first[name].dtype == torch.float32
        assert first["tag"] == (batch.targets[0] if form == "list" else batch.targets)["tag"]
        assert len(batch) == 4 and f"{name}" in repr(batch) and "labels " not in repr(batch).split("targets")[0]
    assert "targets list of 4 dicts (boxes, labels" in repr(next(iter(loader_of(source))))
    assert "  targets flat" in repr(loader_of(source, targets="flat"))


def test_each_tensor_of_targets_is_pinned(source: ObjectSource, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Any] = []
    batch = next(iter(loader_of(source)))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    batch.pin_memory()
    assert {id(target["boxes"]) for target in in_lists(batch)} <= {id(tensor) for tensor in pinned}


def test_the_last_rank_s_empty_batch_has_empty_targets(source: ObjectSource) -> None:
    for form in FORMS:
        *_, last = loader_of(object_source(9), targets=form, rank=1, world_size=2, batch_size=4)
        assert len(last) == 0
        if form == "list":
            assert last.targets == [] and last.dropped == []
        else:
            assert len(last.targets["image_id"]) == 0 and len(last.targets["object_ids"]) == 0


# Label maps


@pytest.mark.parametrize("name", TARGET_RECIPES)
def test_label_maps_are_those_of_a_call(name: str) -> None:
    source, recipe = label_map_source(NUM), TARGET_RECIPES[name]
    for batch in loader_of(source, recipe):
        views = batch.targets if isinstance(batch.targets, tuple) else (batch.targets,)
        for position, sample_id in enumerate(batch.sample_ids.tolist()):
            results = Augment(recipe)(
                image=source.contents[sample_id],
                mask=source.maps[sample_id],
                plan=batch.plan[position : position + 1],
            )
            for view, expected in zip(views, results if isinstance(results, tuple) else (results,), strict=True):
                assert view.dtype == torch.int64 and view.shape[1:] == expected["mask"].shape
                np.testing.assert_array_equal(view[position].numpy(), expected["mask"])


def test_label_maps_go_along_with_objects() -> None:
    only, both = label_map_source(7), object_source(7, maps=True)
    for form in FORMS:
        for alone, batch in zip(loader_of(only), loader_of(both, targets=form), strict=True):
            masks = torch.stack([one["mask"] for one in batch.targets]) if form == "list" else batch.targets["mask"]
            assert masks.equal(alone.targets)


def test_other_label_maps_keep_their_type() -> None:
    source = label_map_source(5)
    maps = source.maps
    for change, dtype, shape in (
        (lambda one: np.stack([one] * 3, axis=2), torch.uint8, (36, 44, 3)),
        (lambda one: one.astype(np.float32), torch.float32, (36, 44)),
        (lambda one: one > 0, torch.bool, (36, 44)),
        (lambda one: one.astype(np.uint16), torch.int64, (36, 44)),
    ):
        source.maps = [change(one) for one in maps]
        first, *_ = loader_of(source)
        assert first.targets.dtype == dtype and tuple(first.targets.shape[1:]) == shape
    source.maps[1] = source.maps[1].astype(np.float64)
    with pytest.raises(ValueError, match="label maps of one source must be alike"):
        [*loader_of(source, batch_size=5, num_threads=1)]
    source.maps = [np.stack([one] * 3, axis=2) for one in maps]
    with pytest.raises(ValueError, match="mask_fill=300 does not fit into the mask's uint8"):
        [*loader_of(source, targets=TargetOptions(mask_fill=300))]


def test_label_maps_are_filled_or_mirrored_where_the_image_ends() -> None:
    source = label_map_source(4)
    recipe = Recipe(ops=(ops.CenterCrop(size=(36, 40)), ops.Translate(horizontal=(0.5, 0.5), vertical=(0, 0))))
    filled, mirrored, other = (
        next(iter(loader_of(source, recipe, targets=TargetOptions(**options), shuffle=False))).targets
        for options in ({}, {"mask_border": "image"}, {"mask_fill": 1000})
    )
    assert (filled == 255).any() and not (mirrored == 255).any()
    assert (other == 1000).equal(filled == 255)


# Damaged samples


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


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(ops=(ops.RandomResizedCrop(size=32), ops.GridDistortion())),
        Recipe(ops=(ops.RandomResizedCrop(size=32), ops.ElasticTransform())),
        Recipe(ops=(ops.RandomResizedCrop(size=32), ops.OneOf(ops=(ops.Flip(), ops.OpticalDistortion())))),
        Recipe(ops=(ops.RandomResizedCrop(size=32),), mixing=(ops.MixUp(),)),
        Recipe(name="cut", ops=(ops.RandomResizedCrop(size=32),), mixing=(ops.MixUp(p=0.5), ops.CutMix(p=0.5))),
    ],
    ids=lambda recipe: (recipe.mixing or recipe.ops)[-1].op,
)
def test_recipes_that_targets_do_not_follow_are_refused(source: ObjectSource, recipe: Recipe) -> None:
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


def test_a_source_that_counts_wrong_is_named() -> None:
    source = object_source(3)
    source.targets_of = lambda ids: Targets(counts=np.zeros(len(ids) + 1, np.int64))  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="targets_of gave counts of"):
        [*loader_of(source)]


def test_a_recipe_that_keeps_whole_images_has_targets_of_their_size() -> None:
    source, recipe = object_source(4, maps=True), Recipe(ops=(ops.Flip(p=1.0),))
    for batch in loader_of(source, recipe, batch_size=1):
        (target,) = batch.targets
        size = source.maps[batch.sample_ids[0]].shape
        assert tuple(target["mask"].shape) == size == tuple(batch.images.shape[2:])
        np.testing.assert_array_equal(target["mask"], source.maps[batch.sample_ids[0]][:, ::-1])


# Combined sources


def test_parts_of_sources_hand_targets_on() -> None:
    whole = object_source(8, maps=True)
    part, rest = Subset(whole, [6, 1, 3]), object_source(4, maps=True, first=20)
    both = Concat([part, rest])
    recipe = Recipe(ops=(ops.CenterCrop(size=30),))
    of_whole, of_rest = (targets_by_id(loader_of(one, recipe)) for one in (whole, rest))
    found = targets_by_id(loader_of(both, recipe, seed=8))
    expected = [of_whole[6], of_whole[1], of_whole[3], *(of_rest[number] for number in range(4))]
    for number, ((views, dropped), (expected_views, expected_dropped)) in enumerate(
        (found[number], expected[number]) for number in range(7)
    ):
        assert dropped == expected_dropped
        assert [view | {"image_id": 0} for view in views] == [view | {"image_id": 0} for view in expected_views]
        assert views[0]["image_id"] == number
    assert both.object_classes == CLASSES and both.keypoint_swaps == ((0, 1),) and both.has_label_maps
    train, held_out = hold_out(whole, 0.25)
    assert len(next(iter(loader_of(held_out, recipe))).targets) == 2 and has_targets(train)


def test_concatenated_sources_know_the_same(source: ObjectSource) -> None:
    other = object_source(3)
    other.object_classes = ("cat",)
    for second, text in (
        (MemorySource(jpegs(2), labels=[-1, -1]), "whether there are any True and False"),
        (object_source(3, maps=True), "label maps False and True"),
        (other, r"classes of objects \['cat', 'dog', 'owl'\] and \['cat'\]"),
    ):
        with pytest.raises(ValueError, match=text):
            Concat([source, second])
    assert not has_targets(Concat([MemorySource(jpegs(2)), MemorySource(jpegs(2))]))
    assert not has_targets(Subset(MemorySource(jpegs(2)), [0]))
    with pytest.raises(AttributeError, match="has no targets"):
        Subset(MemorySource(jpegs(2)), [0]).object_classes  # noqa: B018


def test_sources_that_know_other_fields_are_joined_with_none_in_their_place() -> None:
    first, second = object_source(3), object_source(3)
    for one in second.objects:
        del one.fields["tag"]
        one.fields["note"] = [7] * len(one.labels)
    whole = Concat([first, second]).targets_of(np.array([5, 0, 4, 2, 1, 3]))
    assert whole is not None
    counts = [len(second.objects[2].labels), len(first.objects[0].labels), len(second.objects[1].labels)]
    assert whole.counts.tolist()[:3] == counts and isinstance(whole.fields["id"], np.ndarray)
    assert whole.fields["tag"][: counts[0]] == [None] * counts[0] and whole.fields["note"][0] == 7
    assert whole.fields["tag"][counts[0]] == "0:0" and whole.fields["note"][counts[0]] is None


# Back to the photograph


def test_boxes_of_a_batch_go_back_to_the_photograph(source: ObjectSource) -> None:
    recipe = Recipe(ops=(ops.Resize(size=(50, 60)), ops.Flip(), ops.QuarterTurn(), ops.LensDistortion(p=0.5)))
    batch = next(iter(loader_of(source, recipe, targets=TargetOptions(form="flat", boxes="corners"))))
    assert isinstance(batch.targets["bboxes"], torch.Tensor)
    position = batch.targets["batch_idx"].numpy().astype(np.int64)
    size = np.array([batch.images.shape[3], batch.images.shape[2]])
    known = batch.targets["keypoints"].numpy()
    is_shown = known[:, :, 2] > 0
    points = (known[:, :, :2] * size)[is_shown]
    of_point = np.broadcast_to(position[:, None], is_shown.shape)[is_shown]
    found = batch.plan.to_source(points, of_point)
    one_by_one = [batch.plan.to_source(points[n : n + 1], int(of_point[n]))[0] for n in range(len(points))]
    np.testing.assert_array_equal(found, one_by_one)
    given = [source.objects[i].keypoints.reshape(-1, 3)[:, :2] for i in batch.sample_ids]
    for point, place in zip(found, of_point, strict=True):
        assert np.abs(given[place] - point).sum(axis=1).min() < 0.01
    for points_, position_, text in (
        ([1.0, 2.0], 0, r"points has shape \(2,\)"),
        ([[1.0, 2.0]], [0, 1], r"position has shape \(2,\)"),
        ([[1.0, 2.0]], 4, "position=4 is out of range"),
    ):
        with pytest.raises(ValueError, match=text):
            batch.plan.to_source(points_, np.asarray(position_))


def test_sources_without_targets_load_none_of_it() -> None:
    code = """
        import sys
        from augpipe import Loader
        from tests.augpipe.loader.loader_sources import CENTRE, MemorySource, jpegs
        from tests.augpipe.loader.target_sources import object_source
        mapping = {"augpipe.planning.targets.inverse_map", "augpipe.pipeline.targets_stage"}
        assert len([*Loader(MemorySource(jpegs(3)), CENTRE, batch_size=2, framework="numpy")]) == 2
        assert len([*Loader(object_source(3), CENTRE, batch_size=2, framework="numpy", targets="off")]) == 2
        assert not mapping & sys.modules.keys()
        assert len([*Loader(object_source(3), CENTRE, batch_size=2, framework="numpy")]) == 2
        assert mapping <= sys.modules.keys()
    """
    result = run_python(textwrap.dedent(code), timeout_s=COMPILING_TIMEOUT_S)
    assert result.returncode == 0, result.stderr
