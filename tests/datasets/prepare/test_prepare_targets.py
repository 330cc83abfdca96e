"""Shards keep the targets of their source: objects and label maps, scaled with the images."""

import json
import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe, TargetOptions, ops
from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.results import coco_results
from augpipe.datasets.open import open_source
from augpipe.datasets.prepare.local_engine import LocalEngine
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.manifest import Manifest
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.shard_targets import HEAD, Origin, pack_map, pack_targets, resized_map, unpack_map
from augpipe.datasets.shards.verify import verify
from augpipe.errors import SampleError
from augpipe.sources import Subset
from augpipe.sources.targets import Targets
from tests.augpipe.loader.target_sources import label_map_source, object_source, plain, targets_by_id
from tests.datasets.annotations.annotated_sets import coco_content, everything, put_coco, put_image, put_images
from tests.datasets.prepare.prepare_sources import InlineEngine, prepare_inline, tree, write_photos

KEEP = PrepareSettings(keep=True)
SCALES = PrepareSettings(scales=("16", "full"), originals="always")
OUTLINE = [[4, 6, 24, 6, 24, 16, 4.25, 16.125]]
CROWD: dict[str, Any] = {"iscrowd": 1, "segmentation": {"size": [48, 64], "counts": [10, 38, 48 * 63]}}
OBJECTS = [
    {"segmentation": OUTLINE, "keypoints": [5, 7, 2, 0, 0, 0], "area": 200.5},
    {**CROWD, "bbox": [0, 10, 1, 38], "keypoints": [0, 0, 0, 0, 0, 0], "category_id": 3},
    {"image_id": 20, "bbox": [1.5, 2.25, 10, 30], "keypoints": [0, 0, 0, 9, 8, 1]},
]
PERSONS = [{"id": 7, "name": "dog", "keypoints": ["left_ear", "right_ear"]}, {"id": 3, "name": "cat"}]


def make(source: Any, out: Path, settings: PrepareSettings = KEEP, **options: Any) -> ShardSource:
    prepare(source, out, settings, engine=InlineEngine(), **options)
    assert verify(out, deep=True) == []
    return ShardSource(out)


def coco(folder: Path) -> CocoSource:
    return CocoSource(put_coco(folder, OBJECTS, categories=PERSONS))


def assert_same(found: Targets, expected: Targets) -> None:
    for name in ("counts", "labels", "boxes", "rotated_boxes", "keypoints"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other)
    assert (found.polygons is None) == (expected.polygons is None)
    for rings, others in zip(found.polygons or (), expected.polygons or (), strict=True):
        for ring, other in zip(rings, others, strict=True):
            np.testing.assert_allclose(ring, other, atol=1e-5)
    assert list(found.fields) == list(expected.fields)
    for name, values in found.fields.items():
        assert list(values) == list(expected.fields[name]), name


def test_rotated_boxes_are_in_the_shards_and_scaled_with_the_images(tmp_path: Path) -> None:
    put_images(tmp_path / "dota/images")
    (tmp_path / "dota/labelTxt").mkdir()
    for name in "abc":
        (tmp_path / f"dota/labelTxt/{name}.txt").write_text(
            "gsd:1\n4 2 20 10 18 14 2 6 ship 1\n-2 2 9 2 9 9 -2 9 plane 0\n"
        )
    source = open_source(tmp_path / "dota")
    expected = everything(source)
    make(source, tmp_path / "out", SCALES)
    assert_same(everything(ShardSource(tmp_path / "out", "full")), expected)
    small = ShardSource(tmp_path / "out", 16)
    found = small.targets_of(np.array([0]))
    assert found is not None and found.rotated_boxes is not None and expected.rotated_boxes is not None
    height, width = small.size(0)
    np.testing.assert_allclose(found.rotated_boxes, expected.rotated_boxes[:2] * (width / 64, height / 48), atol=1e-5)


def test_all_that_a_coco_file_says_is_in_the_shards(tmp_path: Path) -> None:
    source = coco(tmp_path / "coco")
    found = make(source, tmp_path / "out")
    assert_same(everything(found), everything(source))
    assert everything(found).fields["iscrowd"].tolist() == [0, 0, 1]  # images go by their ids
    for name in ("object_classes", "category_ids", "keypoint_names", "keypoint_swaps", "has_label_maps", "has_targets"):
        assert getattr(found, name) == getattr(source, name) or list(getattr(found, name)) == list(
            getattr(source, name)
        )
    assert found.keypoint_swaps == ((0, 1),) and not found.has_label_maps
    assert found.columns_of(np.array([2, 0]))["image_id"].tolist() == [
        source.image_ids[2],
        source.image_ids[0],
    ]
    some = np.array([2, 0, 2])
    assert_same(found.targets_of(some) or everything(found), source.targets_of(some))
    assert found.targets_of(np.empty(0, np.int64)) is not None
    assert_same(everything(pickle.loads(pickle.dumps(found))), everything(source))
    assert open_source(tmp_path / "out" / "full").has_targets  # type: ignore[attr-defined]


def test_each_scale_has_objects_in_its_own_pixels(tmp_path: Path) -> None:
    source = coco(tmp_path / "coco")
    make(source, tmp_path / "out", SCALES)
    whole, small = everything(source), ShardSource(tmp_path / "out", 16)
    assert_same(everything(ShardSource(tmp_path / "out", "full")), whole)
    found, at = everything(small), 0
    assert whole.boxes is not None and found.boxes is not None and found.polygons is not None
    assert found.keypoints is not None and whole.keypoints is not None and whole.polygons is not None
    for sample_id, num in enumerate(whole.counts.tolist()):
        height, width = small.size(sample_id)
        _, (full_height, full_width) = source.turned(sample_id)
        along_x, along_y = width / full_width, height / full_height
        assert min(height, width) == 16
        for number in range(at, at + num):
            np.testing.assert_allclose(found.boxes[number], whole.boxes[number] * ([along_x, along_y] * 2))
            points = whole.keypoints[number] * [along_x, along_y, 1]
            np.testing.assert_allclose(found.keypoints[number], points, atol=1e-5)
            for ring, other in zip(found.polygons[number], whole.polygons[number], strict=True):
                np.testing.assert_allclose(ring, other * [along_x, along_y], atol=1e-5)
            assert found.fields["area"][number] == pytest.approx(whole.fields["area"][number] * along_x * along_y)
        at += num


def detections(source: Any) -> list[dict[str, Any]]:
    found = []
    for batch in Loader(source, Recipe(), batch_size=1, shuffle=False, framework="numpy", dtype="uint8"):
        (target,) = batch.targets
        taken = {name: target[name].astype(np.float64) for name in ("boxes", "keypoints")}
        found.append({**taken, "labels": target["labels"], "scores": np.ones(len(target["labels"]))})
    return found


@pytest.mark.parametrize("orientation", [1, 6])
def test_there_and_back_to_the_coco_file_by_a_loader_and_coco_results(tmp_path: Path, orientation: int) -> None:
    folder = tmp_path / "coco"
    put_coco(folder, OBJECTS, categories=PERSONS)
    put_image(folder / "a.jpg", (48, 64), orientation)
    source = CocoSource(folder / "coco.json")
    make(source, tmp_path / "out", SCALES)
    expected = coco_results(source, range(3), detections(source))
    assert [row["image_id"] for row in expected] and len(expected) == 3
    for scale in ("full", "16"):
        shards = ShardSource(tmp_path / "out", scale)
        found = coco_results(shards, range(3), detections(shards))
        assert [row["image_id"] for row in found] == [row["image_id"] for row in expected]
        assert [row["category_id"] for row in found] == [row["category_id"] for row in expected]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one["bbox"], other["bbox"], atol=2e-3)
            np.testing.assert_allclose(one["keypoints"], other["keypoints"], atol=2e-3)
    part = Subset(ShardSource(tmp_path / "out", "full"), [2])
    assert coco_results(part, [0], detections(part)) == [
        row for row in expected if row["image_id"] == source.image_ids[2]
    ]


def test_a_part_of_a_source_and_shards_themselves_are_prepared_alike(tmp_path: Path) -> None:
    source = coco(tmp_path / "coco")
    part = make(Subset(source, [2, 0]), tmp_path / "part")
    assert part.category_ids == tuple(source.category_ids) and part.columns_of(np.array([0]))["image_id"] == [
        source.image_ids[2]
    ]
    assert_same(everything(part), source.targets_of(np.array([2, 0])))
    again = make(part, tmp_path / "again", SCALES)
    assert_same(everything(again), everything(part))
    assert again.image_id(1) == source.image_ids[0] and again.turned(1) == source.turned(0)


def test_label_maps_and_fields_of_any_source_are_kept(tmp_path: Path) -> None:
    source = object_source(9, maps=True)
    found = make(source, tmp_path / "out")
    whole = source.targets_of(np.arange(9))
    assert whole is not None and whole.keypoints is not None and whole.polygons is not None
    stored = everything(found)
    assert stored.fields["tag"] == whole.fields["tag"] and found.has_label_maps
    np.testing.assert_array_equal(stored.boxes, whole.boxes)
    np.testing.assert_allclose(stored.keypoints, whole.keypoints, atol=1e-4)
    for sample_id in range(9):
        np.testing.assert_array_equal(found.label_map(sample_id), source.label_map(sample_id), strict=True)
    make(source, tmp_path / "small", PrepareSettings(scales=("20",)))
    small = ShardSource(tmp_path / "small")
    for sample_id in range(9):
        height, width = small.size(sample_id)
        expected, labels = np.empty((height, width), np.uint8), source.label_map(sample_id)
        for y in range(height):
            for x in range(width):
                place = (y + 0.5) / height * labels.shape[0], (x + 0.5) / width * labels.shape[1]
                expected[y, x] = labels[int(place[0]), int(place[1])]
        np.testing.assert_array_equal(small.label_map(sample_id), expected, strict=True)


def test_label_maps_without_objects(tmp_path: Path) -> None:
    source = label_map_source(4)
    found = make(source, tmp_path / "out")
    assert found.targets_of(np.arange(2)) is None and found.columns_of(np.arange(2)) == {}
    np.testing.assert_array_equal(found.label_map(3), source.label_map(3))
    with pytest.raises(IndexError):
        found.label_map(4)


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(12, dtype=np.uint16).reshape(3, 4),
        np.array([[True, False]]),
        np.zeros((2, 3, 3), np.uint8),
        np.array([[0.5, -1.0]], np.float32),
        np.zeros((0, 2), np.int32),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_a_label_map_stays_what_it_is(labels: Any) -> None:
    np.testing.assert_array_equal(unpack_map(pack_map(labels)), labels, strict=True)
    assert resized_map(labels, *labels.shape[:2]) is labels


def test_batches_are_those_of_the_source(tmp_path: Path) -> None:
    """Files that are kept as they are give the same pixels, plans and targets, with crops that keep objects too."""
    source = object_source(9, maps=True)
    found = make(source, tmp_path / "out")
    keep = ops.KeepObjects(rule="whole", tries=5)
    recipe = Recipe(ops=[ops.RandomResizedCrop(size=24, keep_objects=keep), ops.Flip()])
    options: Any = {"batch_size": 4, "framework": "numpy", "dtype": "uint8", "seed": 3}
    targets = TargetOptions(masks=True)
    before, after = ([*Loader(each, recipe, **options, targets=targets, num_threads=2)] for each in (source, found))
    for one, other in zip(before, after, strict=True):
        assert one.sample_ids.tolist() == other.sample_ids.tolist()
        assert one.images.tobytes() == other.images.tobytes()
        assert one.plan.rows.tobytes() == other.plan.rows.tobytes()
    first, second = targets_by_id(before), targets_by_id(after)
    for sample_id, (views, dropped) in first.items():
        assert second[sample_id][1] == dropped
        for name, value in views[0].items():
            if name not in ("masks", "keypoints", "area", "boxes"):  # outlines and points are float32 in shards
                assert second[sample_id][0][0][name] == value, name


@pytest.mark.slow
def test_the_files_do_not_depend_on_workers_nor_on_stops(tmp_path: Path) -> None:
    put_coco(tmp_path / "coco", OBJECTS, categories=PERSONS)
    many = coco_content(OBJECTS, categories=PERSONS)
    write_photos(tmp_path / "coco/many", 70)
    paths = sorted((tmp_path / "coco/many").rglob("*.*"))
    many["images"] = [{"id": n, "file_name": str(path), "height": 0, "width": 0} for n, path in enumerate(paths)]
    for image in many["images"]:
        del image["height"], image["width"]
    many["annotations"] = [
        {"id": n, "image_id": n % 60, "category_id": 7, "bbox": [n % 30, 3, 9, 4], "keypoints": [1, 2, 2, 0, 0, 0]}
        for n in range(150)
    ]
    (tmp_path / "coco/many.json").write_text(json.dumps(many))
    source = CocoSource(tmp_path / "coco/many.json")
    settings = PrepareSettings(scales=("24",))
    prepare(source, tmp_path / "one", settings, engine=InlineEngine())
    prepare(source, tmp_path / "two", settings, engine=LocalEngine(2))
    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "stopped", settings, engine=InlineEngine(backwards=True, stop_before=1))
    made = sorted((tmp_path / "stopped/24").glob("*.targets"))
    assert made
    made[0].unlink()  # its chunk is made again
    prepare(source, tmp_path / "stopped", settings, engine=InlineEngine(), resume=True)
    expected = tree(tmp_path / "one")
    assert sum(name.endswith(".targets") for name in expected) == 2
    assert tree(tmp_path / "two") == expected and tree(tmp_path / "stopped") == expected
    assert everything(ShardSource(tmp_path / "one")).counts.tolist() == everything(source).counts.tolist()


@pytest.mark.parametrize("change", [{"bbox": [2, 2.25, 10, 30]}, {"category_id": 3}, {"iscrowd": 1}])
def test_shards_of_other_annotations_are_not_taken_for_these(tmp_path: Path, change: dict[str, Any]) -> None:
    make(coco(tmp_path / "coco"), tmp_path / "out")
    prepare(coco(tmp_path / "coco"), tmp_path / "out", KEEP, engine=InlineEngine(), resume=True)
    changed = put_coco(tmp_path / "coco", [*OBJECTS[:2], OBJECTS[2] | change], categories=PERSONS)
    with pytest.raises(ValueError, match="names, labels and objects in the source"):
        prepare(CocoSource(changed), tmp_path / "out", KEEP, engine=InlineEngine(), resume=True)


def test_an_image_with_an_unusable_label_map_is_rejected(tmp_path: Path) -> None:
    source = object_source(5, maps=True)
    source.maps[1], source.maps[3] = OSError("gone"), np.zeros((2, 2), np.uint8)
    with pytest.raises(SampleError, match=r"photo 1.jpg: gone"):
        prepare(source, tmp_path / "raise", KEEP, engine=InlineEngine())
    found = make(source, tmp_path / "out", on_error="skip")
    assert len(found) == 3 and found.manifest.num_rejected == 2
    assert "its label map has shape (2, 2)" in (tmp_path / "out/rejects.csv").read_text()
    np.testing.assert_array_equal(found.label_map(1), source.label_map(2))
    assert everything(found).counts.tolist() == [len(source.objects[i].labels) for i in (0, 2, 4)]


def test_a_field_that_no_file_holds_is_named(tmp_path: Path) -> None:
    source = object_source(3)
    for one in source.objects:
        one.fields["tag"] = [object() for _ in one.labels]
    with pytest.raises(ValueError, match="its objects' tag cannot be kept"):
        prepare(source, tmp_path / "out", KEEP, engine=InlineEngine())


def test_a_data_set_without_targets_is_written_as_before(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", 5)
    manifest = prepare_inline(photos, tmp_path / "out")
    assert b"targets" not in manifest.to_json() and not [*(tmp_path / "out").rglob("*.targets")]
    source = ShardSource(tmp_path / "out")
    assert not source.has_targets and source.columns_of(np.arange(2)) == {} and source.targets_of(np.arange(2)) is None
    with pytest.raises(ValueError, match="has no label maps"):
        source.label_map(0)
    assert Manifest.model_validate_json(manifest.to_json()) == manifest


# --- what is damaged


@pytest.fixture
def out(tmp_path: Path) -> Path:
    make(object_source(6, maps=True), tmp_path / "set")
    return tmp_path / "set"


FILE = "full/000000.targets"


def faults(out: Path) -> list[tuple[str, str]]:
    return [(fault.path, fault.reason.partition(" (")[0]) for fault in verify(out)]


def test_a_missing_or_foreign_file_is_found(out: Path) -> None:
    shutil.copy(out / FILE, out / "full/000077.targets")
    assert faults(out) == [("full/000077.targets", "is not in the manifest")]
    (out / "full/000077.targets").unlink()
    (out / FILE).unlink()
    assert faults(out) == [(FILE, "is missing")]
    with pytest.raises(ValueError, match=r"000000.targets is missing: the manifest says that the shards have targets"):
        ShardSource(out)


def problem_of(read: Callable[[], Any]) -> str | None:
    try:
        read()
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.slow
def test_each_damaged_byte_is_found_and_ends_in_an_error_that_names_the_file(out: Path) -> None:
    content, rng = (out / FILE).read_bytes(), np.random.default_rng(0)
    for place in [0, 9, 14, HEAD.size, *rng.integers(0, len(content), 40).tolist()]:
        damaged = bytearray(content)
        damaged[place] ^= 0x55
        (out / FILE).write_bytes(damaged)
        assert any(path == FILE and "SHA-256" in reason for path, reason in faults(out)), place
        source = ShardSource(out)
        reads = [partial(everything, source), *(partial(source.label_map, sample_id) for sample_id in range(6))]
        for read in reads:
            if (problem := problem_of(read)) is not None:
                assert "000000.targets" in problem or "its label map is damaged" in problem


def test_a_file_that_is_cut_short_or_of_another_shard_is_refused(out: Path) -> None:
    content = (out / FILE).read_bytes()
    (out / FILE).write_bytes(content[: HEAD.size + 40])
    with pytest.raises(ValueError, match="000000.targets"):
        everything(ShardSource(out))
    (out / FILE).write_bytes(
        pack_targets(Targets(counts=np.array([0, 0])), [Origin(image_id=None, orientation=1, size=(4, 4))] * 2, [])
    )
    with pytest.raises(ValueError, match="it is of 2 samples, and the shard has 6"):
        everything(ShardSource(out))
    (out / FILE).write_bytes(content[:8] + b"\2" + content[9:])
    with pytest.raises(ValueError, match="has version 2, and this augpipe reads version 1"):
        everything(ShardSource(out))


def test_a_file_that_was_rewritten_is_noticed(out: Path) -> None:
    source = ShardSource(out)
    (out / FILE).write_bytes((out / FILE).read_bytes() + b"x")
    with pytest.raises(ValueError, match="000000.targets"):
        source.check_unchanged()


def test_a_manifest_that_tells_of_targets_in_part_is_refused(out: Path) -> None:
    told = json.loads((out / "manifest.json").read_text())
    del told["targets"]
    (out / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match="targets must be told of all shards and of the data set, or of none"):
        ShardSource(out)


def test_results_need_shards_that_were_made_of_coco(out: Path) -> None:
    with pytest.raises(ValueError, match="only a CocoSource, and shards made of one"):
        coco_results(ShardSource(out), [0], [{}])


def test_yolo_and_folders_of_maps_are_prepared(tmp_path: Path) -> None:
    images = put_images(tmp_path / "images")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/a.txt").write_text("0 0.5 0.5 0.25 0.5\n")
    for name in ("b", "c"):
        (tmp_path / f"labels/{name}.txt").write_text("")
    (tmp_path / "data.yaml").write_text(f"path: {tmp_path}\ntrain: images\nval: images\nnames: [dog]\n")
    source = open_source(tmp_path / "data.yaml", split="train")
    found = make(source, tmp_path / "out")
    assert_same(everything(found), everything(source))
    assert plain(everything(found).boxes) == plain(everything(source).boxes) and images.exists()
