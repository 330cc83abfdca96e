"""What `open_source` takes a file or a folder for, and what it refuses with a remedy."""

import io
import os
import sys
import tarfile
from pathlib import Path

import pytest

from augpipe.datasets.files.image_files import SingleSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.metadata.labels import LabelColumn
from augpipe.datasets.open import open_source


def put_tar(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("1.jpg")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    return path


def test_images_and_folders_come_before_tar_files(tmp_path: Path) -> None:
    put_tar(tmp_path / "backup.tar")
    assert isinstance(open_source(tmp_path), TarSource)
    (tmp_path / ".cache").mkdir()
    (tmp_path / "classes.txt").write_text("cat\n")
    assert isinstance(open_source(tmp_path), TarSource)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").write_bytes(b"x")
    assert isinstance(open_source(tmp_path), FolderSource)
    put_tar(tmp_path / "flat" / "backup.tar")
    (tmp_path / "flat" / "1.jpg").write_bytes(b"x")
    assert isinstance(open_source(tmp_path / "flat"), FolderSource)


def test_tar_and_parquet_together_are_refused(tmp_path: Path) -> None:
    put_tar(tmp_path / "a.tar")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"holds tar files and Parquet files. Give a pattern"):
        open_source(tmp_path)
    assert isinstance(open_source(f"{tmp_path}/*.tar"), TarSource)


def test_kinds_that_are_not_read_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "lmdb").mkdir()
    (tmp_path / "lmdb" / "data.mdb").write_bytes(b"")
    with pytest.raises(ValueError, match=r"lmdb is an LMDB database, which is not read: .* WebDataset tar files"):
        open_source(tmp_path / "lmdb")


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord-00000-of-00010", "train-00000-of-01024"])
def test_tfrecord_files_are_known_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x01")
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    for path in (tmp_path / name, f"{tmp_path}/*{name[1:]}"):
        with pytest.raises(ImportError, match=r'google-crc32c: pip install "augpipe\[tfrecord\]"'):
            open_source(path)


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    assert len(open_source(put_tar(tmp_path / "a{0..9}[x].tar"))) == 1


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert isinstance(open_source(tmp_path / "pipe"), SingleSource)
    os.mkfifo(tmp_path / "pipe.bin")
    with pytest.raises(ValueError, match=r"pipe.bin' is neither a photograph nor a list"):
        open_source(tmp_path / "pipe.bin")


def numbered(texts: list[str | None], classes: list[str] | None = None) -> tuple[list[int], tuple[str, ...]]:
    column = LabelColumn()
    for text in texts:
        column.append(text)
    labels, found = column.numbered(classes, "sample {}".format)
    return labels.tolist(), found


def test_labels_as_texts() -> None:
    assert numbered([]) == ([], ())
    assert numbered([None, None]) == ([-1, -1], ())
    assert numbered(["2", "+0", "-1", None, "2"]) == ([2, 0, -1, -1, 2], ("0", "1", "2"))
    assert numbered(["-1"]) == ([-1], ())
    assert numbered(["b", None, "a", "b"]) == ([1, -1, 0, 1], ("a", "b"))
    assert numbered(["1", "0"], ["a", "b"]) == ([1, 0], ("a", "b"))
    assert numbered(["1", "0"], ["1", "0"]) == ([0, 1], ("1", "0"))
    assert numbered([None], ["a"]) == ([-1], ("a",))
    for num_digits in (19, 30, 5000):  # Python itself reads no number of 5000
        assert numbered(["9" * num_digits]) == ([0], ("9" * num_digits,)), "too long for a number: a name"
    refused: list[tuple[list[str | None], list[str] | None, str]] = [
        (["0", "a"], None, r"sample 1: label 'a' is a name, and other labels are integers"),
        (["0", "1", "2"], ["a", "b"], r"sample 2: label '2' is not a class number \(0..1, or -1 for none\)"),
        (["b", "a"], ["a"], r"sample 0: label 'b' is none of the 1 classes given"),
    ]
    for texts, classes, message in refused:
        with pytest.raises(ValueError, match=message):
            numbered(texts, classes)
