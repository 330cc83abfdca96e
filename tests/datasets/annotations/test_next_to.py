"""Folders of images whose annotations lie next to them: the log says how they are read."""

import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.label_map_source import LabelMapSource
from augpipe.datasets.annotations.yolo import YoloSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.open import open_source
from augpipe.sources.targets import has_targets
from tests.datasets.annotations.annotated_sets import SIZES, coco_content, everything, put_images, put_texts

YOLO_LINE = "0 0.5 0.5 0.2 0.2\n"


def told(caplog: pytest.LogCaptureFixture, folder: Path) -> str | None:
    """The caution of plain images in a folder, as the log has it; None where it has none."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "augpipe"):
        source = open_source(folder)
    assert isinstance(source, FolderSource)
    (record,) = caplog.records
    text = record.getMessage()
    assert (record.levelno == logging.WARNING) == ("not read" in text)
    return text.rpartition("; ")[2] if "not read" in text else None


def remedy(folder: Path, annotations: Path) -> str:
    how = f"open_source({str(folder)!r}, annotations={str(annotations)!r})"
    return f"its annotations, which lie next to it, are not read: {how} reads them"


def put_maps(folder: Path, ending: str = ".png") -> None:
    folder.mkdir(parents=True)
    for name, (height, width) in SIZES.items():
        Image.new("L", (width, height), 1).save(folder / f"{name}{ending}")


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("images/train", "labels/train"),
        ("train/images", "train/labels"),
        ("images/train", "labelTxt/train"),
        ("same", "same"),
    ],
)
def test_texts_next_to_images_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, images: str, labels: str
) -> None:
    folder = put_images(tmp_path / images)
    put_texts(tmp_path / labels, "10 4 20 4 20 12 10 12 ship 0\n" if "Txt" in labels else YOLO_LINE)
    assert told(caplog, folder) == remedy(folder, tmp_path / labels)
    source = open_source(folder, annotations=tmp_path / labels)
    assert has_targets(source) and len(source) == len(SIZES)


@pytest.mark.parametrize(
    ("images", "maps", "ending"),
    [
        ("images", "masks", ".png"),
        ("imgs", "masks", ".png"),
        ("img", "mask", "_mask.png"),
        ("image", "label", ".png"),
        ("JPEGImages", "SegmentationClass", ".png"),
        ("img_dir/train", "ann_dir/train", ".png"),
        ("images/training", "annotations/training", ".png"),
        ("train", "train_masks", "_mask.gif"),
        ("train", "trainannot", ".png"),
    ],
)
def test_label_maps_next_to_images_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, images: str, maps: str, ending: str
) -> None:
    folder = put_images(tmp_path / images)
    put_maps(tmp_path / maps, ending)
    assert told(caplog, folder) == remedy(folder, tmp_path / maps)
    source = open_source(folder, annotations=tmp_path / maps)
    assert isinstance(source, LabelMapSource) and len(source) == len(SIZES)


@pytest.mark.parametrize(
    ("images", "file"),
    [
        ("train2017", "annotations/instances_train2017.json"),
        ("images/train2017", "annotations/instances_train2017.json"),
        ("images", "annotations.json"),
        ("images", "annotations/instances.json"),
        ("images/train", "train.json"),
        ("train", "train.json"),
    ],
)
def test_a_json_file_of_coco_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, images: str, file: str
) -> None:
    folder, path = put_images(tmp_path / images), tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(coco_content([{}])))
    (path.parent / "captions_train2017.json").write_text(json.dumps(coco_content([{}])).replace("bbox", "caption"))
    (path.parent / "a.json").write_text(json.dumps(coco_content([{}])).replace(".jpg", ".JPG"))  # of other images
    assert told(caplog, folder) == remedy(folder, path)
    source = open_source(folder, annotations=path)
    assert isinstance(source, CocoSource) and len(source) == len(SIZES)


@pytest.mark.parametrize(
    "change", [(".jpg", ".JPG"), ("bbox", "caption"), ('"a.', '"1a.'), ('"images"', '"shapes"')], ids=str
)
def test_a_json_file_of_other_things_is_not_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: tuple[str, str]
) -> None:
    folder = put_images(tmp_path / "train2017", {"a": SIZES["a"]})
    (tmp_path / "annotations").mkdir()
    content = json.dumps(coco_content([{}])).replace(*change)
    (tmp_path / "annotations/instances_val2017.json").write_text(content)
    assert told(caplog, folder) is None


def test_the_file_of_the_folder_s_own_name_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = put_images(tmp_path / "val")
    (tmp_path / "annotations").mkdir()
    for split in ("train", "val"):  # whose images have the same names
        (tmp_path / f"annotations/instances_{split}.json").write_text(json.dumps(coco_content([{}])))
    assert told(caplog, folder) == remedy(folder, tmp_path / "annotations/instances_val.json")


def test_names_that_are_not_escaped_are_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, path = put_images(tmp_path / "photos", {"Zürich": SIZES["a"]}), tmp_path / "photos.json"
    path.write_text(json.dumps(coco_content([{}]), ensure_ascii=False).replace("a.jpg", "Zürich.jpg"), "utf-8")
    assert told(caplog, folder) == remedy(folder, path)


@pytest.mark.parametrize("text", ["1\n2\n3\n4\n5\n", "5\n12.5 30.1\n14 22.5\n", "3 170.5 60.2 32 1.5\n"])
def test_numbers_that_are_no_boxes_of_yolo_are_not_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    folder = put_images(tmp_path / "photos")
    put_texts(folder, text)
    assert told(caplog, folder) is None


@pytest.mark.parametrize("content", [{"version": "5", "flags": {}, "shapes": []}, {"title": "a cat"}], ids=str)
def test_files_of_labelme_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: object) -> None:
    folder = put_images(tmp_path / "photos")
    (folder / "b.json").write_text(json.dumps(content, indent=2))
    expected = "LabelMe's files of its images, as 'b.json', are not read: write them as one JSON file of COCO"
    assert told(caplog, folder) == (expected if "shapes" in str(content) else None)


def test_a_folder_above_that_cannot_be_listed_is_not_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put_images(tmp_path / "mine/train")
    listdir = os.listdir

    def refuses(path: str) -> list[str]:
        if Path(path) != folder:
            raise PermissionError(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuses)
    assert told(caplog, folder) is None


@pytest.mark.parametrize("text", ["2 cats on 4 mats\n", "", "\n\n", "1 2 3 4 cats"])
def test_texts_that_are_captions_are_not_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    put_texts(put_images(tmp_path / "photos"), text)
    assert told(caplog, tmp_path / "photos") is None


def test_texts_of_yolo_among_the_images_are_read_with_them(tmp_path: Path) -> None:
    folder = put_images(tmp_path / "obj_train_data")
    put_texts(folder, YOLO_LINE)
    source = open_source(folder, annotations=folder)
    assert isinstance(source, YoloSource)
    assert source.name(0) == str(folder / "a.jpg")
    np.testing.assert_allclose(everything(source).boxes[0], [25.6, 19.2, 38.4, 28.8])


def test_a_folder_of_mmsegmentation_is_opened_by_its_splits(tmp_path: Path) -> None:
    for split in ("train", "val"):
        put_images(tmp_path / f"img_dir/{split}")
        put_maps(tmp_path / f"ann_dir/{split}")
    source = open_source(tmp_path, split="val")
    assert isinstance(source, LabelMapSource) and "img_dir/val" in source.name(0)
    with pytest.raises(ValueError, match="holds 2 splits"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("current", "given", "labels"), [(".", "images", "labels"), ("images", ".", "{}/labels")], ids=["above", "inside"]
)
def test_annotations_are_found_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, current: str, given: str, labels: str
) -> None:
    put_images(tmp_path / "images")
    put_texts(tmp_path / "labels", "0 0.5 0.5 0.2 0.2\n")
    monkeypatch.chdir(tmp_path / current)
    source = open_source(given)
    assert isinstance(source, FolderSource)
    (caution,) = source.cautions
    assert f"open_source({given!r}, annotations={labels.format(tmp_path)!r})" in caution


def test_images_without_annotations_are_opened_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = put_images(tmp_path / "images/train")
    (tmp_path / "labels/train").mkdir(parents=True)
    (tmp_path / "labels/train/other.txt").write_text("")
    for name in ("cat", "dog"):  # in a class's folder: those of no folder that is opened
        put_images(tmp_path / f"classes/{name}/images")
        put_texts(tmp_path / f"classes/{name}/labels", "")
    with caplog.at_level(logging.INFO, "augpipe"):
        open_source(folder)
        open_source(put_images(tmp_path / "plain"))
        open_source(tmp_path / "classes")
    assert [record.levelno for record in caplog.records] == [logging.INFO] * 3


def test_annotations_of_a_split_that_is_asked_for_are_told_of(tmp_path: Path) -> None:
    for split in ("train", "val"):
        put_images(tmp_path / f"images/{split}")
        put_texts(tmp_path / f"labels/{split}", YOLO_LINE)
    source = open_source(tmp_path / "images", split="val")
    assert isinstance(source, FolderSource)
    assert source.cautions == [remedy(tmp_path / "images/val", tmp_path / "labels/val")]
