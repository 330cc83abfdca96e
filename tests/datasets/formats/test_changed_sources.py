"""Files that change under an open source are refused by name; what a source is known by; and paths that stay."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, recipes
from augpipe.datasets.files.descriptors import FileSet
from augpipe.datasets.formats.cifar import CifarSource
from augpipe.datasets.formats.file_list import FileListSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.idx import IdxSource
from augpipe.datasets.formats.parquet.parquet_source import ParquetSource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.formats.tfrecord.tfrecord_source import TFRecordSource
from augpipe.datasets.open import open_source
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.errors import SourceChangedError
from augpipe.sources.identity import identity_of, stored_names
from augpipe.sources.protocol import Source, check_unchanged, content_digest_of, has_stored_names
from tests.augpipe.decoding.image_files import encoded, scene
from tests.datasets.formats import test_source_cifar, test_source_idx, test_source_parquet
from tests.datasets.formats.tar_files import put as put_tar
from tests.datasets.formats.test_source_tfrecord import example, of_bytes, of_ints
from tests.datasets.formats.test_source_tfrecord import put as put_records
from tests.datasets.shards import shard_sets


def tar(folder: Path) -> Path:
    members = [(f"{n}.{kind}", data) for n in range(3) for kind, data in (("jpg", b"photo%d" % n), ("cls", b"%d" % n))]
    return put_tar(folder / "a.tar", members)


def records(folder: Path) -> Path:
    pytest.importorskip("google_crc32c")
    folder.mkdir(parents=True, exist_ok=True)
    return put_records(
        folder / "a.tfrecord",
        [example(**{"image/encoded": of_bytes(b"photo%d" % n), "image/class/label": of_ints(n)}) for n in range(3)],
    )


def parquet(folder: Path) -> Path:
    return test_source_parquet.standard(folder / "a.parquet")


def idx(folder: Path) -> Path:
    return test_source_idx.put(folder, test_source_idx.PIXELS, test_source_idx.LABELS)


def cifar(folder: Path) -> Path:
    return test_source_cifar.cifar10(folder) / "test_batch.bin"


def shards(folder: Path) -> Path:
    return shard_sets.build(folder)


KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Source], Callable[[Path], Path]]] = {
    "tar": (tar, TarSource, lambda path: path),
    "tfrecord": (records, TFRecordSource, lambda path: path),
    "parquet": (parquet, ParquetSource, lambda path: path),
    "idx": (idx, IdxSource, lambda path: path),
    "idx labels": (idx, IdxSource, lambda path: path.parent / "train-labels-idx1-ubyte"),
    "cifar": (cifar, CifarSource, lambda path: path),
    "shards": (shards, ShardSource, lambda path: path / "32/000001.tar"),
    "shards' index": (shards, ShardSource, lambda path: path / "32/000001.idx"),
}


def rewrite(path: Path) -> None:
    """The same length, other bytes, a later time."""
    state = os.stat(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))


def touched_later(path: Path) -> None:
    os.utime(path, ns=(0, os.stat(path).st_mtime_ns + 1))


def replaced(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data + bytes(512))


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "written again": (rewrite, r"bytes as before, and was rewritten"),
    "touched": (touched_later, r"bytes as before, and was rewritten"),
    "replaced": (replaced, r"it had [\d,]+ bytes and has [\d,]+"),
    "removed": (Path.unlink, r"it is not there any more"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changes_is_refused_by_name(tmp_path: Path, kind: str, change: str) -> None:
    make, opened, watched = KINDS[kind]
    path = make(tmp_path / "data")
    source, file = opened(path), watched(path)
    check_unchanged(source)
    copy = pickle.loads(pickle.dumps(source))
    alter, said = CHANGES[change]
    alter(file)
    for one in (source, copy):
        with pytest.raises(
            SourceChangedError, match=rf"{file} has changed since it was opened: .*{said}\. Open the data set again"
        ):
            check_unchanged(one)
    if change == "touched":
        check_unchanged(opened(path))


@pytest.mark.parametrize("kind", ["tar", "parquet", "idx", "cifar", "tfrecord"])
def test_a_read_out_of_place_says_so_too(tmp_path: Path, kind: str) -> None:
    make, opened, watched = KINDS[kind]
    path = make(tmp_path / "data")
    source = opened(path)
    os.truncate(watched(path), os.stat(watched(path)).st_size // 2)
    with pytest.raises(SourceChangedError, match=rf"{path} has changed since it was opened: it had"):
        source.read(len(source) - 1)


def test_a_changed_file_is_no_bad_photograph(tmp_path: Path) -> None:
    """One is not skipped, where all of a file's are lost."""
    members = [(f"{n}.jpg", encoded(scene(16, 16, n), "JPEG")) for n in range(8)]
    path = put_tar(tmp_path / "a.tar", members)
    loader = Loader(
        path, recipes.evaluation(size=8, scale=8), batch_size=2, framework="numpy", on_error="skip", num_threads=1
    )
    assert len(list(loader)) == 4
    path.write_bytes(path.read_bytes()[:2_000])
    with pytest.raises(SourceChangedError, match=r"a.tar has changed since it was opened"):
        list(loader)


def test_of_many_files_each_is_looked_at(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.bin" for number in range(200)]
    for path in paths:
        path.write_bytes(path.name.encode())
    files = FileSet(list(map(str, paths)))
    assert [files.num_bytes(number) for number in range(200)] == [len(path.name) for path in paths]
    files.check_unchanged()
    for path in (paths[150], paths[70]):
        touched_later(path)
        for _ in range(2):
            with pytest.raises(SourceChangedError, match=str(path)):
                files.check_unchanged()
            make, arguments = files.__reduce__()
            files = make(*arguments)  # as by pickle, in a process that is started now
    paths[199].unlink()
    with pytest.raises(SourceChangedError, match=r"199.bin has changed .* it is not there any more"):
        files.check_unchanged()


# --- identity


@pytest.mark.parametrize("kind", ["tar", "tfrecord", "parquet", "idx", "cifar", "shards"])
def test_a_copy_is_the_same_data_and_another_file_is_not(tmp_path: Path, kind: str) -> None:
    make, opened, _ = KINDS[kind]
    path = make(tmp_path / "one")
    before = identity_of(opened(path))
    assert before.content and content_digest_of(opened(path)) == before.content
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    copy = tmp_path / "two" / path.relative_to(tmp_path / "one")
    for file in copy.parent.rglob("*"):
        os.utime(file, (1, 1))
    assert identity_of(opened(copy)) == before
    assert identity_of(pickle.loads(pickle.dumps(opened(copy)))) == before


def test_other_lengths_are_other_content(tmp_path: Path) -> None:
    one = put_tar(tmp_path / "1/a.tar", [("1.jpg", b"12"), ("2.jpg", b"123")])
    other = put_tar(tmp_path / "2/a.tar", [("1.jpg", b"123"), ("2.jpg", b"12")])
    assert identity_of(TarSource(one)).differences(identity_of(TarSource(other))) == [
        "the same names and labels, but files of other content"
    ]
    table = test_source_parquet.standard(tmp_path / "1/a.parquet")
    columns = {"image": test_source_parquet.images([b"other"] * 10), "label": [n % 3 for n in range(10)]}
    changed = test_source_parquet.put(tmp_path / "2/a.parquet", columns, test_source_parquet.FEATURES)
    assert content_digest_of(ParquetSource(table)) != content_digest_of(ParquetSource(changed))
    whole, flipped = shard_sets.build(tmp_path / "whole"), shard_sets.build(tmp_path / "flipped")
    manifest = flipped / "manifest.json"
    (shard, *_) = ShardSource(flipped).manifest.scale(32).shards
    assert shard.sha256 in manifest.read_text()
    source = ShardSource(flipped)
    source.manifest = source.manifest.model_validate_json(manifest.read_text().replace(shard.sha256, "0" * 64).encode())
    assert content_digest_of(source) != content_digest_of(ShardSource(whole))


def test_members_of_tar_files_have_names_that_last(tmp_path: Path) -> None:
    put_tar(tmp_path / "a.tar", [("x/1.jpg", b"1"), ("x/2.jpg", b"2")])
    before = TarSource(tmp_path)
    assert has_stored_names(before) and list(stored_names(before)) == ["a.tar/x/1.jpg", "a.tar/x/2.jpg"]
    put_tar(tmp_path / "0.tar", [("x/1.jpg", b"0")])
    assert list(stored_names(TarSource(tmp_path)))[1:] == ["a.tar/x/1.jpg", "a.tar/x/2.jpg"]
    for make, opened, _ in (KINDS[kind] for kind in ("parquet", "idx", "cifar", "shards")):
        folder = tmp_path / make.__name__
        assert not has_stored_names(opened(make(folder))), "a row's number is not a name"


# --- relative paths


def relative_sources(folder: Path) -> dict[str, Callable[[], Any]]:
    (folder / "photos/cat").mkdir(parents=True)
    (folder / "photos/cat/1.jpg").write_bytes(b"photo")
    (folder / "list.csv").write_text("photos/cat/1.jpg,cat\n")
    tar(folder), parquet(folder), idx(folder), cifar(folder / "c"), shards(folder / "s")
    return {
        "folder": lambda: FolderSource("photos"),
        "list": lambda: FileListSource("list.csv"),
        "single": lambda: open_source("photos/cat/1.jpg"),
        "tar": lambda: TarSource("a.tar"),
        "parquet": lambda: ParquetSource("a.parquet", cache_bytes=0),
        "idx": lambda: IdxSource("train-images-idx3-ubyte"),
        "cifar": lambda: CifarSource("c/test_batch.bin"),
        "shards": lambda: ShardSource("s"),
    }


KEPT = ["folder", "list", "single", "tar", "parquet", "idx", "cifar", "shards"]


@pytest.mark.parametrize("kind", KEPT)
def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    source = relative_sources(tmp_path / "here")[kind]()
    before, name, identity = source.read(0), source.name(0), identity_of(source)
    assert not os.path.isabs(name), "messages have it as the user wrote it"
    stored = pickle.dumps(source)
    monkeypatch.chdir(tmp_path)
    for one in (source, pickle.loads(stored)):
        check_unchanged(one)
        assert np.array_equal(one.read(len(one) - 1), one.read(len(one) - 1))
        assert np.array_equal(one.read(0), before) and one.name(0) == name
        assert identity_of(one) == identity
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert np.array_equal(source.read(0), before)


def test_all_kinds_are_tried(tmp_path: Path) -> None:
    assert list(relative_sources(tmp_path)) == KEPT
