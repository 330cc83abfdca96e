"""Batches with targets: what a call of `Augment` gives for one image, in the forms that a loader has."""

import textwrap
from typing import Any

import cv2
import numpy as np
import pytest

from augpipe import Augment, Batch, Recipe, TargetOptions, ops
from augpipe.batch_targets import _tv_tensors
from augpipe.sources.targets import Targets
from tests.augpipe.augment_call.tv_stand_ins import installed
from tests.augpipe.loader.loader_sources import (
    COMPILING_TIMEOUT_S,
    MemorySource,
    arrays,
    jpegs,
    run_python,
)
from tests.augpipe.loader.target_sources import (
    CLASSES,
    CROPPED,
    TARGET_RECIPES,
    ObjectSource,
    loader_of,
    object_source,
    object_source_of,
)

torch = pytest.importorskip("torch")

NUM = 11
FORMS: tuple[Any, ...] = ("list", "padded", "flat")


@pytest.fixture(scope="module")
def source() -> ObjectSource:
    return object_source(NUM)


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


@pytest.mark.slow
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


def test_ids_of_images_and_objects_may_be_the_source_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = object_source(5)
    for one in own.objects:
        one.fields["object_ids"] = [f"object {number}" for number in one.fields["id"]]
    named = [f"image {number}" for number in range(5)]
    monkeypatch.setattr(
        own, "columns_of", lambda ids: {"image_id": [named[number] for number in ids.tolist()]}, raising=False
    )
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


class Knowing(ObjectSource):
    """Says one thing of its objects."""

    known = ""

    def targets_of(self, sample_ids: Any) -> Targets:
        found = super().targets_of(sample_ids)
        assert found is not None
        return Targets(counts=found.counts, **{self.known: getattr(found, self.known)})


@pytest.mark.parametrize(("known", "flat"), [("keypoints", "keypoints"), ("labels", "cls")])
def test_what_a_source_does_not_know_of_its_objects_is_not_there(source: ObjectSource, known: str, flat: str) -> None:
    knowing = Knowing(source.contents, source.objects)
    knowing.known = known
    num = 0
    for whole, batch in zip(loader_of(source), loader_of(knowing), strict=True):
        for every, found in zip(whole.targets, batch.targets, strict=True):
            assert found.keys() == {known, "object_ids", "image_id"}
            assert len(found[known]) == len(source.objects[found["image_id"]].boxes)  # nothing says what is not shown
            stay = torch.isin(found["object_ids"], every["object_ids"])
            assert found[known][stay].equal(every[known])
            num += int(stay.sum())
    assert num > 10
    batch = next(iter(loader_of(knowing, targets="flat")))
    assert batch.targets.keys() == {flat, "object_ids", "batch_idx", "image_id"}


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
    views = repr(next(iter(loader_of(source, TARGET_RECIPES["views"], targets="flat"))))
    assert views.count("dict of ") == 3 and views.count(" and dict of ") == 2


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


@pytest.mark.slow
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


def test_a_source_whose_images_lie_in_one_array_has_targets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    images = arrays(6)
    source = object_source_of(images, maps=True)
    expected = [*loader_of(source)]
    monkeypatch.setattr(source, "stack", np.stack(images), raising=False)
    for batch, wanted, plain in zip(loader_of(source), expected, loader_of(source, targets="off"), strict=True):
        assert batch.images.equal(wanted.images) and batch.images.equal(plain.images)
        for target, other in zip(in_lists(batch), in_lists(wanted), strict=True):
            assert target["boxes"].equal(other["boxes"]) and target["mask"].equal(other["mask"])
