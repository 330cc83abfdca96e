"""CIFAR's binary files as a source."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.formats.cifar import CifarSource
from augpipe.datasets.open import open_source
from tests.datasets.formats.source_checks import assert_keeps_the_protocol

NAMES_10 = "airplane automobile bird cat deer dog frog horse ship truck".split()
NAMES_100 = [f"fine_{i}" for i in range(100)]
COARSE = [f"coarse_{i}" for i in range(20)]


def picture(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def record(labels: list[int], seed: int) -> bytes:
    """The official layout: the labels, then 1024 bytes of red, of green and of blue, row by row."""
    return bytes(labels) + picture(seed).transpose(2, 0, 1).tobytes()


def cifar10(folder: Path, per_file: int = 2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "batches.meta.txt").write_text("\n".join(NAMES_10) + "\n\n")  # as distributed, with an empty line
    (folder / "readme.html").write_text("<html>")
    for number, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
        seeds = range(per_file * number, per_file * (number + 1))
        (folder / name).write_bytes(b"".join(record([seed % 10], seed) for seed in seeds))
    return folder


def cifar100(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fine_label_names.txt").write_text("\n".join(NAMES_100) + "\n")
    (folder / "coarse_label_names.txt").write_text("\n".join(COARSE) + "\n")
    (folder / "train.bin").write_bytes(b"".join(record([seed % 20, 99 - seed], seed) for seed in range(4)))
    (folder / "test.bin").write_bytes(record([1, 2], 77))
    return folder


def test_ten_classes(tmp_path: Path) -> None:
    folder = cifar10(tmp_path / "cifar-10-batches-bin")
    by_split = CifarSource(folder, "train")
    by_pattern = open_source(f"{folder}/data_batch_{{1..5}}.bin")
    for source in (by_split, by_pattern):
        assert isinstance(source, CifarSource) and source.classes == tuple(NAMES_10)
        assert_keeps_the_protocol(source, [picture(i) for i in range(10)], range(10))
        assert source.name(3) == f"{folder}/data_batch_2.bin, image 1"
    test = open_source(folder / "test_batch.bin")
    np.testing.assert_array_equal(test.read(1), picture(11))
    assert test.label(1) == 1


def test_a_hundred_classes(tmp_path: Path) -> None:
    folder = cifar100(tmp_path)
    source = open_source(folder / "train.bin")
    assert source.classes == tuple(NAMES_100)
    assert [source.label(i) for i in range(4)] == [99, 98, 97, 96]
    np.testing.assert_array_equal(source.read(2), picture(2))
    coarse = CifarSource(folder, "train", labels="coarse")
    assert coarse.classes == tuple(COARSE)
    assert_keeps_the_protocol(coarse, [picture(i) for i in range(4)], range(4))
    assert len(pickle.dumps(coarse)) < 1000
    with pytest.raises(ValueError, match=r"labels='coarse' is not in cifar10. Valid: fine"):
        CifarSource(cifar10(tmp_path / "ten"), "test", labels="coarse")


def test_where_both_sets_lie_together_the_length_tells(tmp_path: Path) -> None:
    cifar10(tmp_path)
    cifar100(tmp_path)
    source = CifarSource(tmp_path / "train.bin")
    assert source.kind == "cifar100" and source.classes == tuple(NAMES_100)
    np.testing.assert_array_equal(source.read(3), picture(3))
    assert CifarSource(tmp_path / "test_batch.bin").classes == tuple(NAMES_10)


def test_file_that_was_cut_short_meanwhile(tmp_path: Path) -> None:
    source = CifarSource(cifar10(tmp_path), "test")
    source.read(0)  # the file stays open
    os.truncate(tmp_path / "test_batch.bin", 3100)
    np.testing.assert_array_equal(source.read(0), picture(10))
    with pytest.raises(ValueError, match="has changed since it was opened: it had 6,146 bytes and has 3,100"):
        source.read(1)


def test_without_names_the_length_tells(tmp_path: Path) -> None:
    (tmp_path / "ten.bin").write_bytes(record([9], 0) * 2)
    (tmp_path / "hundred.bin").write_bytes(record([19, 99], 0) * 2)
    ten, hundred = open_source(tmp_path / "ten.bin"), open_source(tmp_path / "hundred.bin")
    assert (len(ten.classes), ten.label(0)) == (10, 9)
    assert (len(hundred.classes), hundred.label(0)) == (100, 99)
    (tmp_path / "both.bin").write_bytes(bytes(3073 * 3074))
    with pytest.raises(ValueError, match=r"both.bin' could be cifar10 or cifar100, by length. Pass kind="):
        open_source(tmp_path / "both.bin")
    assert len(CifarSource(tmp_path / "both.bin", kind="cifar100")) == 3073


def test_folder_needs_a_split(tmp_path: Path) -> None:
    folder = cifar10(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"holds 2 splits: 'train', 'test'. Give split=.train., or the files of one.*data_batch_\{1..5\}",
    ):
        open_source(folder)
    with pytest.raises(ValueError, match=r"split='valid' is not in cifar10. Valid: train, test"):
        CifarSource(folder, "valid")
    with pytest.raises(ValueError, match=r"split='train' chooses from a folder, and files are given"):
        CifarSource(folder / "test_batch.bin", "train")
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match=r"lacks 'data_batch_3.bin' of the split 'train'. Copy all files there"):
        CifarSource(folder, "train")


class Evil:
    """What would make a file of whoever unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self.path, "unpickled")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for protocol in (2, 3, 4, 5):
        for name in ("data_batch_1", "test_batch", "data_batch_1.bin"):
            content = {b"data": Evil(tmp_path / "evil"), b"labels": [1]}
            (folder / name).write_bytes(pickle.dumps(content, protocol=protocol))
            with pytest.raises(ValueError, match=rf"{name} is a pickle.*Download the binary version: cifar-10-binary"):
                open_source(folder / name)
    for opened in (open_source, lambda path: CifarSource(path, "train")):
        with pytest.raises(ValueError, match=r"data_batch_1 is a pickle.*augpipe reads none. Download the binary"):
            opened(folder)
    assert not (tmp_path / "evil").exists()


def test_damaged_files(tmp_path: Path) -> None:
    folder = cifar10(tmp_path)
    path = folder / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"has 6145 bytes, which is not a whole number of records of 3073"):
        open_source(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"test_batch.bin has 0 bytes"):
        open_source(path)
    path.write_bytes(record([1], 0) + record([10], 0))
    with pytest.raises(ValueError, match=r"test_batch.bin, image 1: label 10 is none of the 10 classes of cifar10"):
        open_source(path)
    (folder / "batches.meta.txt").write_text("cat\ndog\n")
    with pytest.raises(ValueError, match=r"batches.meta.txt holds 2 class names, and there are 10 classes"):
        open_source(folder / "data_batch_1.bin")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "weights.bin").write_bytes(b"weights")
    with pytest.raises(ValueError, match=r"weights.bin' of 7 bytes: neither records of 3073 bytes .* nor of 3074"):
        open_source(tmp_path / "other" / "weights.bin")
    with pytest.raises(ValueError, match=r"other holds no CIFAR in its binary version"):
        CifarSource(tmp_path / "other", "train")
