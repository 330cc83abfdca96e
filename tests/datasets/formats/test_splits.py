"""Folders of splits are no classes, one of them can be asked for, and classes agree between them."""

import logging
from pathlib import Path

import numpy as np
import pytest

from augpipe import Loader, recipes
from augpipe.datasets.formats.cifar import CifarSource
from augpipe.datasets.formats.file_list import FileListSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.open import open_source
from tests.datasets.formats.test_source_open import put_tar
from tests.datasets.formats.test_sources import put


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["train/cat/1.jpg", "test/cat/1.jpg", "unlabeled/1.jpg"], "3 splits, 'test', 'train', 'unlabeled'"),
        (["images_train/1.jpg", "images_val/1.jpg"], "2 splits, 'images_train', 'images_val'"),
        (["train/cat.1.jpg", "test1/1.jpg"], "2 splits, 'test1', 'train'"),
        (["train2017/1.jpg", "val2017/1.jpg"], "2 splits, 'train2017', 'val2017'"),
        (["TrainImages/1.jpg", "TestImages/1.jpg"], "2 splits, 'TestImages', 'TrainImages'"),
        (["trainA/1.jpg", "testA/1.jpg", "trainB/1.jpg", "testB/1.jpg"], "4 splits, 'testA', 'testB', 'trainA' and 1"),
        (["train/cat/1.jpg", "val/cat/1.jpg", "notes/readme.txt"], "2 splits, 'train', 'val'"),
        (["bus/1.jpg", "train/1.jpg", "val/1.jpg"], "2 splits, 'train', 'val'"),
        (["train/cat/1.jpg", "train/dog/1.jpg"], "one split, 'train'"),
    ],
)
def test_names_of_splits_among_folders_are_refused(tmp_path: Path, files: list[str], said: str) -> None:
    put(tmp_path, *files)
    for make in (FolderSource, open_source, lambda path: Loader(path, recipes.none(), batch_size=1)):
        with pytest.raises(ValueError, match=rf'holds {said}.* not classes.*split="\w+".*, or one of their folders'):
            make(tmp_path)


@pytest.mark.parametrize(
    "classes",
    [
        ["airplane", "bus", "train"],
        ["bullet_train", "test_tube"],
        ["train_station", "training_ground", "valley"],
        ["test", "unlikely"],
    ],
)
def test_classes_may_have_such_names(tmp_path: Path, classes: list[str]) -> None:
    assert list(FolderSource(put(tmp_path, *(f"{name}/1.jpg" for name in classes))).classes) == classes


def test_a_split_is_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "Train/cat/1.jpg", "Train/dog/2.jpg", "validation/dog/3.jpg", "test1/4.jpg", "test1/5.jpg")
    source = open_source(tmp_path, split="train")
    assert list(source.classes) == ["cat", "dog"] and source.read(1) == b"Train/dog/2.jpg"
    assert len(open_source(tmp_path, split="test")) == len(open_source(tmp_path, split="test1")) == 2
    val = Loader(tmp_path, recipes.none(), batch_size=1, split="val", classes=source.classes)
    assert val.source.classes == source.classes and val.source.label(0) == 1
    for split, message in (
        ("extra", r"holds no split 'extra', but 'Train', 'test1', 'validation'"),
        ("cat", "holds no split 'cat'"),
        ("", "holds no split ''"),
    ):
        with pytest.raises(ValueError, match=message):
            open_source(tmp_path, split=split)
    put(tmp_path, "val2/dog/1.jpg")
    with pytest.raises(ValueError, match=r"holds several that split='val' may mean: 'val2', 'validation'"):
        open_source(tmp_path, split="val")
    assert len(open_source(tmp_path, split="val2")) == 1


def test_a_split_of_files(tmp_path: Path) -> None:
    for name in ("train-000000.tar", "train-000001.tar", "val-000000.tar"):
        put_tar(tmp_path / name)
    with pytest.raises(ValueError, match=r'holds 2 splits: train, val\. Give one of them by split="train"'):
        open_source(tmp_path)
    assert len(open_source(tmp_path, split="train")) == 2
    assert len(TarSource(tmp_path, split="validation")) == 1
    with pytest.raises(ValueError, match=r"holds no split 'test', but 'train', 'val'"):
        open_source(tmp_path, split="test")
    with pytest.raises(ValueError, match=r"split='train' chooses from a folder, and files are given"):
        open_source(tmp_path / "val-000000.tar", split="train")


def test_a_split_of_cifar_and_idx(tmp_path: Path) -> None:
    cifar = tmp_path / "cifar"
    cifar.mkdir()
    (cifar / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (cifar / name).write_bytes(bytes(3073))
    assert isinstance(open_source(cifar, split="train"), CifarSource)
    assert (len(open_source(cifar, split="train")), len(open_source(cifar, split="test"))) == (5, 1)
    with pytest.raises(ValueError, match=r'holds 2 splits: .*split="train"'):
        open_source(cifar)
    idx = tmp_path / "mnist"
    idx.mkdir()
    for name, num in (("train", 3), ("t10k", 2)):
        (idx / f"{name}-images-idx3-ubyte").write_bytes(
            bytes([0, 0, 8, 3, 0, 0, 0, num, 0, 0, 0, 1, 0, 0, 0, 1]) + bytes(num)
        )
    assert (len(open_source(idx, split="train")), len(open_source(idx, split="test"))) == (3, 2)


def test_classes_are_taken_by_the_loader(tmp_path: Path) -> None:
    put(tmp_path, "photos/cow/2.jpg")
    (tmp_path / "list.csv").write_text("photos/cow/2.jpg,cow\n")
    for path in (tmp_path / "photos", tmp_path / "list.csv"):
        loader = Loader(path, recipes.none(), batch_size=1, classes=["ant", "bee", "cow"])
        assert list(loader.source.classes) == ["ant", "bee", "cow"] and loader.source.label(0) == 2
    source = FileListSource(tmp_path / "list.csv")
    for given, message in (
        (source, r"classes=.* is for a path, and a FileListSource is given, which is open already. Pass it there"),
        (tmp_path / "photos/cow/2.jpg", r"a SingleSource takes no classes=\.\.\.\. Leave it out"),
        (np.zeros((1, 2, 2, 3), np.uint8)[0:0], "images is empty"),
    ):
        with pytest.raises(ValueError, match=message):
            Loader(given, recipes.none(), batch_size=1, classes=["ant"])
    with pytest.raises(ValueError, match="split='train' is for a path"):
        open_source(FolderSource(tmp_path / "photos"), split="train")
    with pytest.raises(ValueError, match=r"list.csv holds no split 'train', nor any other"):
        open_source(tmp_path / "list.csv", split="train")
    with pytest.raises(ValueError, match="classes='cow' is one text"):
        open_source(tmp_path / "photos", classes="cow")


def test_classes_that_differ_from_the_training_sets_are_told(
    tmp_path: Path, source_log: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "train/ant/1.jpg", "train/bee/1.jpg", "train/cat/1.jpg", "val/ant/1.jpg", "val/cat/1.jpg")
    put(tmp_path, "test/ant/1.jpg", "test/bee/1.jpg", "test/cat/1.jpg")
    for split in ("train", "test"):
        open_source(tmp_path / split)
    assert all(record.levelno == logging.INFO for record in source_log.records)
    train = tmp_path / "train"
    open_source(tmp_path / "val")
    record = source_log.records[-1]
    assert record.levelno == logging.WARNING
    assert (
        f"its labels are not those of '{train}' next to it, which has 3 classes: there 'bee' too; "
        "pass classes=[...] of the training set" in record.getMessage()
    )
    open_source(tmp_path / "val", classes=["ant", "bee", "cat"])
    assert source_log.records[-1].levelno == logging.INFO
    assert "classes given that have no photograph: 'bee'" in source_log.records[-1].getMessage()


def test_numbered_class_folders_sort_as_text(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    put(tmp_path, *(f"a/{name}/1.jpg" for name in ("0", "1", "2", "10")))
    put(tmp_path, *(f"b/{name}/1.jpg" for name in ("00", "01", "02", "10")))
    assert open_source(tmp_path / "a").classes == ("0", "1", "10", "2")
    record = source_log.records[-1]
    assert record.levelno == logging.WARNING
    assert "numbered class folders are sorted as text, as in torchvision: label 2 is '10'" in record.getMessage()
    open_source(tmp_path / "b")
    assert "sorted as text" not in source_log.records[-1].getMessage()


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_folder_without_splits_says_how_one_is_drawn(tmp_path: Path, split: str) -> None:
    put(tmp_path, "cats/a.jpg", "dogs/b.jpg")
    told = rf'holds no split {split!r}, nor any other. split="{split}", holdout=0.1 draws one.*folders train/ and val/'
    with pytest.raises(ValueError, match=told):
        open_source(tmp_path, split=split)
