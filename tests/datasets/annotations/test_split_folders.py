"""Splits that are folders with images and annotations, and folders of images whose annotations lie elsewhere."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from augpipe.cli.app import app
from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.dota import DotaSource
from augpipe.datasets.annotations.label_map_source import LabelMapSource
from augpipe.datasets.annotations.voc import VocSource
from augpipe.datasets.annotations.yolo import YoloSource
from augpipe.datasets.open import open_source
from tests.datasets.annotations.annotated_sets import SIZES, everything, put_coco, put_image, put_images, put_texts
from tests.datasets.annotations.test_voc import an_object, put_xml

NAMES = {"train": ("plane", "ship"), "valid": ("ship",)}


def dota_lines(split: str) -> str:
    return "".join(f"10 4 20 4 20 12 10 12 {name} 0\n" for name in NAMES[split])


def put_split(kind: str, folder: Path, split: str) -> None:
    if kind == "coco":  # as Roboflow writes it
        put_coco(folder, [{}] * len(NAMES[split])).rename(folder / "_annotations.coco.json")
    elif kind == "voc":
        for name in put_images(folder) and SIZES:
            put_xml(folder / f"{name}.xml", *(an_object(2, 2, 9, 9, name=found) for found in NAMES[split]))
    elif kind == "yolo":
        put_images(folder / "images")
        put_texts(folder / "labels", "1 0.5 0.5 0.2 0.2\n" * len(NAMES[split]))
    elif kind == "dota":
        put_images(folder / "images")
        put_texts(folder / "labelTxt", dota_lines(split))
    else:
        for name, size in SIZES.items():
            put_image(folder / f"images/{name}.jpg", size)
            put_image(folder / f"masks/{name}.png", size)


KINDS = {"coco": CocoSource, "voc": VocSource, "yolo": YoloSource, "dota": DotaSource, "masks": LabelMapSource}


@pytest.mark.parametrize("kind", KINDS)
def test_a_split_is_opened_as_its_folder_is(tmp_path: Path, kind: str) -> None:
    for split in NAMES:
        put_split(kind, tmp_path / split, split)
    with pytest.raises(ValueError, match=r"holds 2 splits.*Open one: split=\"train\""):
        open_source(tmp_path)
    for asked, folder in (("train", "train"), ("val", "valid")):
        source, alone = open_source(tmp_path, split=asked), open_source(tmp_path / folder)
        assert type(source) is type(alone) is KINDS[kind]
        assert source.name(0) == alone.name(0) and folder in source.name(0)
    ended = CliRunner().invoke(app, ["verify", str(tmp_path), "--split", "val", "--json"])
    assert json.loads(ended.output)["samples"] == len(SIZES)
    with pytest.raises(ValueError, match="holds no split 'test', but 'train', 'valid'"):
        open_source(tmp_path, split="test")


@pytest.mark.parametrize("inner", [True, False], ids=["train/labelTxt", "labelTxt/train"])
def test_splits_of_dota_agree_in_their_classes(tmp_path: Path, inner: bool) -> None:
    for split in NAMES:
        put_images(tmp_path / (f"{split}/images" if inner else f"images/{split}"))
        texts = tmp_path / (f"{split}/labelTxt" if inner else f"labelTxt/{split}")
        put_texts(texts, f"imagesource:GoogleEarth\ngsd:0.14\n{dota_lines(split)}")
    for split, labels in (("train", [0, 1]), ("val", [1])):
        source = open_source(tmp_path, split=split)
        assert isinstance(source, DotaSource) and source.object_classes == ("plane", "ship")
        found = everything(source).labels
        assert found is not None and found.tolist() == labels * len(SIZES)
    (tmp_path / ("train/labelTxt/b.txt" if inner else "labelTxt/train/b.txt")).write_bytes(b"\xff\n1 2\n")
    sound = open_source(tmp_path, split="val")
    assert isinstance(sound, DotaSource) and sound.object_classes == ("plane", "ship")
    ships = open_source(tmp_path, split="val", classes=["ship"])
    assert isinstance(ships, DotaSource) and ships.object_classes == ("ship",)


def test_splits_of_voc_agree_in_their_classes(tmp_path: Path) -> None:
    for split in NAMES:
        put_split("voc", tmp_path / split, split)
    put_xml(tmp_path / "train/a.xml", an_object(0, 2, 9, 9, name="anchor"))
    source = open_source(tmp_path / "valid")
    assert isinstance(source, VocSource) and source.object_classes == ("anchor", "plane", "ship")
    boxes = everything(source).boxes
    assert boxes is not None and boxes[0].tolist() == [2, 2, 9, 9]  # pixels count from 0, as in train
