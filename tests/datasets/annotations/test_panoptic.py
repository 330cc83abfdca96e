"""COCO's panoptic files: label maps by name, the segments of each image, and what is wrong with real ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from augpipe import Loader, Recipe, TargetOptions, ops
from augpipe.cli.app import app
from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.panoptic import PanopticSource
from augpipe.datasets.open import open_source
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from tests.datasets.annotations.annotated_sets import SIZES, put_images
from tests.datasets.annotations.conversions import as_panoptic, class_names
from tests.datasets.prepare.prepare_sources import InlineEngine

DOG, CAT = 70_000, 255
"""Segments' ids: the colours (112, 17, 1) and (255, 0, 0)."""


def put_panoptic(folder: Path, segments: Any = None, **others: Any) -> Path:
    """Images with panoptic_val.json: a dog in the upper half of each, a cat below, and nothing in the third row."""
    put_images(folder)
    (folder / "panoptic_val").mkdir(exist_ok=True)
    images, annotations = [], []
    for number, (name, (height, width)) in enumerate(SIZES.items()):
        pixels = np.zeros((height, width, 3), np.uint8)
        pixels[: height // 2], pixels[height // 2 :], pixels[2] = (112, 17, 1), (255, 0, 0), 0
        Image.fromarray(pixels).save(folder / f"panoptic_val/{name}.png")
        images.append({"id": number, "file_name": f"{name}.jpg", "height": height, "width": width})
        own = [
            {"id": DOG, "category_id": 7, "iscrowd": 0, "area": 5, "bbox": [0, 0, width, height // 2]},
            {"id": CAT, "category_id": 3, "iscrowd": 1, "area": 6, "bbox": [0, height // 2, width, height // 2]},
        ]
        annotations.append({"image_id": number, "file_name": f"{name}.png", "segments_info": own})
    if segments is not None:
        annotations[0]["segments_info"] = segments
    categories = [{"id": 7, "name": "dog", "isthing": 1}, {"id": 3, "name": "cat", "isthing": 0}]
    content = {"images": images, "annotations": annotations, "categories": categories, **others}
    (folder / "panoptic_val.json").write_text(json.dumps(content))
    return folder / "panoptic_val.json"


def test_maps_of_categories_and_of_segments(tmp_path: Path) -> None:
    path = put_panoptic(tmp_path)
    source = open_source(path)
    assert isinstance(source, PanopticSource) and type(open_source(tmp_path)) is PanopticSource
    assert source.object_classes == ("cat", "dog") and source.category_ids == [3, 7]
    assert source.is_thing == (False, True) and source.void == 255
    expected = np.repeat([1] * 24 + [0] * 24, 64).reshape(48, 64)
    expected[2] = 255
    np.testing.assert_array_equal(source.label_map(0), expected.astype(np.uint8), strict=True)
    assert source.segments_info(1) == [
        {"id": DOG, "category_id": 7, "iscrowd": 0, "area": 5.0, "bbox": [0.0, 0.0, 30.0, 20.0]},
        {"id": CAT, "category_id": 3, "iscrowd": 1, "area": 6.0, "bbox": [0.0, 20.0, 30.0, 20.0]},
    ]
    by_id = PanopticSource(path, label_maps="segments")
    assert by_id.void == 0
    ids = np.array([CAT, DOG, 0])[np.where(expected == 255, 2, expected)].astype(np.int32)
    np.testing.assert_array_equal(by_id.label_map(0), ids, strict=True)
    dogs = PanopticSource(path, classes=["dog"])
    assert dogs.num_objects == 3
    np.testing.assert_array_equal(dogs.label_map(0), np.where(expected == 1, 0, 255).astype(np.uint8), strict=True)


def test_many_classes_have_maps_of_16_bits(tmp_path: Path) -> None:
    categories = [{"id": number, "name": f"class {number}"} for number in range(300)]
    source = PanopticSource(put_panoptic(tmp_path, categories=categories))
    assert source.void == 65535 and source.is_thing == (True,) * 300
    labels = source.label_map(0)
    assert labels.dtype == np.uint16 and np.unique(labels).tolist() == [3, 7, 65535]


@pytest.mark.slow
def test_batches_and_shards_hold_ids_of_24_bits(tmp_path: Path) -> None:
    source = PanopticSource(put_panoptic(tmp_path / "set"), label_maps="segments")
    prepare(source, tmp_path / "out", PrepareSettings(keep=True), engine=InlineEngine())
    shards = open_source(tmp_path / "out")
    assert shards.object_classes == ("cat", "dog")
    recipe = Recipe(ops=[ops.Resize(size=(48, 64))])
    for one in (source, shards):
        for sample in range(3):
            np.testing.assert_array_equal(one.label_map(sample), source.label_map(sample), strict=True)
        options = TargetOptions(mask_fill=source.void)
        batch = next(iter(Loader(one, recipe, batch_size=3, shuffle=False, targets=options, framework="numpy")))
        first = batch.targets[0]
        np.testing.assert_array_equal(first["mask"], source.label_map(0))
        assert first["id"].tolist() == [DOG, CAT] and first["iscrowd"].tolist() == [0, 1]
        assert (first["mask"] == first["id"][0]).sum() == 23 * 64


@pytest.mark.parametrize(
    ("segment", "reason"),
    [
        (3, "it is a int, and no object"),
        ({"id": 0}, "its id must be a whole number within 1..16777215"),
        ({"id": 1 << 24}, "its id must be a whole number within 1..16777215"),
        ({"id": CAT}, "its id is that of another segment of this image"),
        ({"id": 9, "category_id": 4}, "its category_id is 4, which is none of the categories"),
        ({"id": 9, "category_id": 7, "iscrowd": 2}, "iscrowd=2, and it is 0 or 1"),
        ({"id": 9, "category_id": 7}, "it has no bbox"),
        ({"id": 9, "category_id": 7, "bbox": [0, 0, "a", 1]}, "something in it is not a number"),
    ],
)
def test_segments_that_cannot_be_used_are_refused(tmp_path: Path, segment: Any, reason: str) -> None:
    both = [{"id": own, "category_id": 7, "bbox": [0, 0, 9, 9]} for own in (DOG, CAT)]
    path = put_panoptic(tmp_path, [*both, segment])
    with pytest.raises(ValueError, match=rf"panoptic_val.json, segment .* of a.png: .*{reason}"):
        PanopticSource(path)
    source = PanopticSource(path, on_error="skip")
    assert source.num_objects == 6 and source.left_out[0].startswith("1 segment that cannot be used (the first: ")
    assert np.unique(source.label_map(0)).tolist() == [1, 255]


def test_verify_names_the_files_that_are_wrong(tmp_path: Path) -> None:
    path = put_panoptic(tmp_path, [{"id": DOG, "category_id": 7, "bbox": [0, 0, 9, 9]}])
    (tmp_path / "panoptic_val/b.png").unlink()
    Image.new("P", (20, 20)).save(tmp_path / "panoptic_val/c.png")
    with pytest.raises(ValueError, match="c.png: it holds numbers, gray or of a palette, .* Write it in RGB"):
        open_source(path).label_map(2)
    Image.new("RGB", (9, 8)).save(tmp_path / "panoptic_val/c.png")
    result = CliRunner().invoke(app, ["verify", str(path)])
    output = result.output
    assert result.exit_code == 1 and "3 faults" in output
    assert f"a.png has {24 * 64} pixels of the segment 255, which" in output.replace("\n", " ")
    assert "b.png is missing, and" in output and "c.png: it has 9x8 pixels, and its image 20x20" in output
    (tmp_path / "b.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"b\.jpg"):
        open_source(path).label_map(1)


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    path = put_panoptic(tmp_path)
    content = json.loads(path.read_text())
    twice = [content["annotations"][0], *content["annotations"]]
    for annotations, reason in (
        (twice, "annotation 1: its image has another annotation"),
        ([{"image_id": 0}], "annotation 0: it has no list segments_info"),
        ([{**twice[0], "file_name": 3}], "annotation 0: its file_name is 3"),
        ([{**twice[0], "file_name": "\ud83d.png"}], r"annotation 0: its file_name is '\\ud83d.png'"),
        ([{**twice[0], "image_id": 8}], "annotation 0: its image_id is 8, which is none of the images"),
        ([], "has no annotation of any of its images"),
    ):
        path.write_text(json.dumps({**content, "annotations": annotations}))
        with pytest.raises(ValueError, match=reason):
            PanopticSource(path)
    path.write_text(json.dumps({**content, "annotations": twice}))
    assert PanopticSource(path, on_error="skip").left_out[0].startswith("1 annotation that cannot be used (the first: ")
    path.write_text(json.dumps({**content, "annotations": twice[2:]}))
    source = PanopticSource(path)
    assert len(source) == 2 and source.left_out == ["1 image without a label map (the first: a.jpg)"]
    (tmp_path / "panoptic_val").rename(tmp_path / "png")
    assert len(PanopticSource(path, maps=tmp_path / "png")) == 2
    with pytest.raises(ValueError, match="there is no folder .*panoptic_val with the PNG files"):
        PanopticSource(path)
    with pytest.raises(ValueError, match="it is of a panoptic file. Put its PNG files into a folder"):
        CocoSource(path)


def test_names_of_folders_that_windows_wrote(tmp_path: Path) -> None:
    path = put_panoptic(tmp_path)
    (tmp_path / "panoptic_val/sub").mkdir()
    (tmp_path / "panoptic_val/a.png").rename(tmp_path / "panoptic_val/sub/a.png")
    path.write_text(path.read_text().replace('"a.png"', '"sub\\\\a.png"'))
    assert PanopticSource(path).label_map(0).shape == SIZES["a"]


@pytest.mark.slow
def test_real_photographs_there_and_back(coco80: Path, tmp_path: Path) -> None:
    instances = coco80 / "annotations/instances.json"
    path = as_panoptic(instances, coco80 / "images", tmp_path / "set", 6)
    content = json.loads(path.read_text())
    by_class, by_id = PanopticSource(path), PanopticSource(path, label_maps="segments")
    number_of = {own: number for number, own in enumerate(class_names(instances))}
    of_image = {one["image_id"]: one for one in content["annotations"]}
    assert len(by_id) == 6 and by_id.num_objects == sum(len(one["segments_info"]) for one in of_image.values()) > 20
    for sample in range(6):
        known = of_image[by_id.image_ids[sample]]
        assert by_id.segments_info(sample) == known["segments_info"]
        ids, labels = by_id.label_map(sample), by_class.label_map(sample)
        colours = np.stack([ids & 255, ids >> 8 & 255, ids >> 16], axis=2).astype(np.uint8)
        with Image.open(path.parent / "panoptic_val" / known["file_name"]) as image:
            np.testing.assert_array_equal(colours, np.asarray(image))
        for segment in known["segments_info"]:
            where = ids == segment["id"]
            assert where.sum() == segment["area"] and (labels[where] == number_of[segment["category_id"]]).all()
        np.testing.assert_array_equal(labels == 255, ids == 0)
