"""Shards, tar files, Parquet files and folders at URLs: as local ones, and what a bad server makes of them."""

import logging
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp")

import fsspec

from augpipe import Loader
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.parquet.parquet_source import ParquetSource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.open import open_source, open_url
from augpipe.datasets.prepare.local_engine import LocalEngine
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.remote.remote_error import RemoteError
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.verify import verify
from augpipe.datasets.stats.collect import collect_statistics
from augpipe.errors import SampleError
from augpipe.recipes import evaluation
from augpipe.sources.protocol import Source
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.target_sources import object_source
from tests.datasets.formats.source_checks import assert_labels
from tests.datasets.formats.tar_files import put
from tests.datasets.prepare.prepare_sources import InlineEngine
from tests.datasets.remote import misbehaving_server as faults
from tests.datasets.remote.misbehaving_server import Server, quick, serving
from tests.datasets.shards import shard_sets

NAMES = ["n0/1", "n1/2", "n0/3", "n1/4"]


def picture(number: int) -> bytes:
    return encoded(scene(40, 50, number), "JPEG", quality=80)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "served"
    shard_sets.build(folder / "set", sides=(32, 48))
    for part in range(2):
        members = []
        for number in range(part * 2, part * 2 + 2):
            members += [(f"{NAMES[number]}.jpg", picture(number)), (f"{NAMES[number]}.cls", b"%d" % (number % 2))]
        put(folder / f"web/{part:02}.tar", members)
    return folder


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    with serving(root) as made:
        yield made


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("AUGPIPE_REMOTE_CACHE", str(folder))
    return folder


def assert_same(one: Source, other: Source) -> None:
    assert len(one) == len(other) > 0 and tuple(one.classes) == tuple(other.classes)
    assert all(one.read(i) == other.read(i) and one.label(i) == other.label(i) for i in range(len(one)))


# --- as local ones


@pytest.mark.parametrize("where", ["set", "set/32", "set/manifest.json", "set/"])
def test_shards(server: Server, root: Path, where: str) -> None:
    source = open_source(server.url(where))
    assert isinstance(source, ShardSource) and source.scale == ("32" if where == "set/32" else "48")
    local = ShardSource(root / "set", source.scale)
    assert_same(source, local)
    assert source.name(0) == local.name(0).replace(str(root) + "/", server.url())
    assert [source.size(i) for i in range(12)] == [local.size(i) for i in range(12)]
    assert_same(pickle.loads(pickle.dumps(source)), local)


def test_shards_with_labels_of_several_numbers(server: Server, root: Path) -> None:
    labels = np.arange(24, dtype=np.float32).reshape(8, 3) / 7
    images = ArraySource([scene(40, 50, number) for number in range(8)], labels)
    prepare(images, root / "soft", PrepareSettings(scales=("32",)), engine=LocalEngine(1))
    assert_labels(open_source(server.url("soft")), labels, np.float32, ())


def test_shards_with_targets(server: Server, root: Path) -> None:
    source = object_source(7, maps=True)
    prepare(source, root / "objects", PrepareSettings(scales=("20",)), engine=InlineEngine())
    found, local = open_source(server.url("objects")), ShardSource(root / "objects")
    assert isinstance(found, ShardSource) and found.has_label_maps
    assert not [request for request in server.requests if request[0].endswith(".targets")], "nobody has asked yet"
    for ids in (np.array([3]), np.arange(7), np.empty(0, np.int64)):
        one, other = found.targets_of(ids), local.targets_of(ids)
        assert one is not None and other is not None and one.counts.tolist() == other.counts.tolist()
        np.testing.assert_array_equal(one.boxes, other.boxes)
    for sample_id in range(7):
        np.testing.assert_array_equal(found.label_map(sample_id), local.label_map(sample_id))
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.targets_of(np.arange(7)).boxes, local.targets_of(np.arange(7)).boxes)


def test_a_sample_is_one_request_and_a_second_run_asks_for_the_manifest_alone(server: Server, tmp_path: Path) -> None:
    settings = quick(tmp_path / "other", block_bytes=1 << 20)
    source = ShardSource(server.url("set"), 32, remote=settings)
    assert server.num_requests("set/32/000000.tar") == 0, "the manifest says what a shard's request would"
    source.read(1)
    assert server.num_requests("set/32/000000.tar") == 1
    server.requests.clear()
    assert ShardSource(server.url("set"), 32, remote=settings).read(2) == shard_sets.jpeg(2)
    assert server.requests == [("/set/manifest.json", None)]


def test_row_indexes_are_asked_for_when_they_are_needed_and_by_the_block(server: Server, root: Path) -> None:
    source, local = open_source(server.url("set")), ShardSource(root / "set")
    assert isinstance(source, ShardSource)
    heads = [request for request in server.requests if request[0].endswith(".idx")]
    assert len(heads) == shard_sets.NUM_SHARDS
    expected = [bytes(local.row_index(i)) for i in range(len(local))]
    assert all(expected) and [source.row_index(i) for i in range(len(source))] == expected
    asked = [request for request in server.requests if request[0].endswith(".idx")][len(heads) :]
    assert len(asked) == shard_sets.NUM_SHARDS, "one block holds all of so small a shard's"
    assert [pickle.loads(pickle.dumps(source)).row_index(i) for i in (0, 7)] == [expected[0], expected[7]]


@pytest.mark.parametrize("pattern", ["web/{00..01}.tar", "web/{00,01}.tar"])
def test_tar_files(server: Server, root: Path, pattern: str) -> None:
    source = open_source(server.url(pattern))
    local = TarSource(root / "web")
    assert_same(source, local)
    assert source.name(3) == f"{server.url('web/01.tar')}/{NAMES[3]}.jpg"
    before = len(server.requests)
    assert_same(pickle.loads(pickle.dumps(source)), local)
    assert len(server.requests) == before, "a copy asks for nothing again"


def test_parquet_files(server: Server, root: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for part in range(2):
        images = [picture(part * 2 + i) for i in range(2)]
        table = arrow.table({"image": images, "label": [part, 0]})
        parquet.write_table(table, root / f"{part}.parquet", row_group_size=1)
    source = open_source(server.url("{0..1}.parquet"))
    assert_same(source, ParquetSource([root / "0.parquet", root / "1.parquet"]))
    assert_same(pickle.loads(pickle.dumps(source)), source)
    server.forever["0.parquet"] = faults.status(403)
    with pytest.raises(RemoteError, match="refuses it"):
        ParquetSource(server.url("0.parquet"), remote=quick(root.parent / "new"))


@pytest.fixture
def memory(root: Path) -> Iterator[str]:
    """The same files, and images in class folders, in fsspec's file system in memory."""
    files = fsspec.filesystem("memory")
    for path in root.rglob("*"):
        if path.is_file():
            files.pipe_file(f"/bucket/{path.relative_to(root)}", path.read_bytes())
    for number, name in enumerate(NAMES):
        files.pipe_file(f"/bucket/photos/{name}.jpg", picture(number))
    files.pipe_file("/bucket/photos/.hidden/x.jpg", b"")
    files.pipe_file("/bucket/photos/readme.txt", b"")
    yield "memory://bucket"
    files.rm("/bucket", recursive=True)


def test_any_file_system_of_fsspec(memory: str, root: Path) -> None:
    assert_same(open_source(f"{memory}/set"), ShardSource(root / "set"))
    for where in ("web", "web/*.tar", "web/{00..01}.tar"):
        assert_same(open_source(f"{memory}/{where}"), TarSource(root / "web"))
    photos = open_source(f"{memory}/photos")
    assert photos.classes == ("n0", "n1") and [photos.label(i) for i in range(4)] == [0, 0, 1, 1]
    assert [photos.name(i) for i in range(4)] == [f"{memory}/photos/{name}.jpg" for name in sorted(NAMES)]
    assert [photos.read(i) for i in range(4)] == [picture(i) for i in (0, 2, 1, 3)]
    assert pickle.loads(pickle.dumps(photos)).read(3) == picture(3)
    flat = open_source(f"{memory}/photos/n1")
    assert (len(flat), flat.classes, flat.label(0)) == (2, (), -1)


def batches(source: Any, **options: Any) -> list[np.ndarray[Any, Any]]:
    loader = Loader(
        source, evaluation(size=24, scale=32), batch_size=4, framework="numpy", dtype="float32", seed=3, **options
    )
    return [np.array(batch.images) for _ in range(2) for batch in loader]


def test_a_loader_gives_the_same_batches(server: Server, root: Path) -> None:
    for name, local in (("set/32", root / "set/32"), ("web/{00..01}.tar", root / "web")):
        for one, other in zip(batches(server.url(name)), batches(local), strict=True):
            assert np.array_equal(one, other)


def test_prepare_and_stats(server: Server, root: Path, tmp_path: Path) -> None:
    settings = PrepareSettings(scales=("full",))
    remote, local = open_source(server.url("web/{00..01}.tar")), TarSource(root / "web")
    typed = str(Path(server.url("web/{00..01}.tar")))  # as a command hands it over
    prepare(remote, tmp_path / "a", settings, source_path=typed, engine=LocalEngine(1))
    prepare(local, tmp_path / "b", settings, source_path=str(root / "web"), engine=LocalEngine(1))
    assert (tmp_path / "a/full/000000.tar").read_bytes() == (tmp_path / "b/full/000000.tar").read_bytes()
    assert collect_statistics(remote).to_json() == collect_statistics(local).to_json()


# --- other bytes than it should


def test_a_shard_of_other_bytes_is_asked_for_twice_and_then_an_error_of_the_sample(server: Server) -> None:
    server.faults["set/48/000000.tar"].append(faults.corrupts)
    source = open_source(server.url("set"))
    assert source.read(0) == shard_sets.jpeg(0, 48)
    server.forever["set/48/000001.tar"] = faults.corrupts
    with pytest.raises(ValueError, match="not those that were written"):
        source.read(4)
    del server.forever["set/48/000001.tar"]
    assert source.read(4) == shard_sets.jpeg(4, 48), "what was wrong is not kept"


def test_a_damaged_cache_heals(server: Server, cache: Path) -> None:
    source = open_source(server.url("set"))
    source.read(0)
    for path in cache.glob("??/*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.unlink()  # an index may be mapped
        path.write_bytes(data)
    assert source.read(0) == shard_sets.jpeg(0, 48)
    assert_same(open_source(server.url("set")), source)


def test_an_index_that_is_used_again_is_not_the_next_to_go(server: Server, cache: Path) -> None:
    open_source(server.url("set"))
    kept = list(cache.glob("??/*.file"))
    for path in kept:
        os.utime(path, (0, 0))
    open_source(server.url("set"))
    assert len(kept) == shard_sets.NUM_SHARDS and all(path.stat().st_mtime > 0 for path in kept)


def test_an_index_of_other_bytes(server: Server) -> None:
    server.faults["set/48/000000.idx"].append(faults.corrupts)
    assert len(open_source(server.url("set"))) == shard_sets.NUM
    server.forever["set/32/000000.idx"] = faults.corrupts
    with pytest.raises(ValueError, match=r"000000.idx is not the index that the manifest knows"):
        open_source(server.url("set/32"))


@pytest.mark.parametrize("offset", [700, 1 << 20, 1 << 40])
def test_an_index_that_lies_about_where_a_sample_ends(server: Server, root: Path, offset: int) -> None:
    """The next sample begins within it, behind the shard's end, or too far away: nothing is asked for."""
    index, manifest = root / "set/48/000000.idx", root / "set/manifest.json"
    before = shard_sets.sums_of(index.read_bytes())
    shard_sets.forge_index(index, 1, offset=offset)
    after = shard_sets.sums_of(index.read_bytes())
    text = manifest.read_text()
    for name in ("index_sha256", "head_sha256"):
        text = text.replace(before[name], after[name])
    manifest.write_text(text)
    source = open_source(server.url("set"))
    with pytest.raises(ValueError, match="the index is damaged: it gives a sample the bytes 0 to"):
        source.read(0)
    assert server.num_requests("set/48/000000.tar") == 0


def test_a_manifest_of_other_bytes(server: Server, root: Path) -> None:
    (root / "set/manifest.json").write_bytes((root / "set/manifest.json").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"http://.*/set/manifest.json cannot be used"):
        open_source(server.url("set"))
    server.forever["set/manifest.json"] = faults.endless
    with pytest.raises(RemoteError, match="has more than the 268435456 bytes"):
        open_url(server.url("set"), quick(root.parent / "new"))


def test_a_shard_of_another_length(server: Server, root: Path) -> None:
    path = root / "set/48/000000.tar"
    path.write_bytes(path.read_bytes() + bytes(512))
    with pytest.raises(RemoteError, match="it has changed"):
        open_source(server.url("set")).read(0)


@pytest.mark.parametrize("content", [b"", b"<html>no such page</html>" * 100, b"PAR1" + bytes(600)])
def test_a_tar_or_parquet_file_of_other_bytes(server: Server, root: Path, content: bytes) -> None:
    for name in ("bad.tar", "bad.parquet"):
        (root / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{server.url(name)}: "):
            open_source(server.url(name))


def test_tar_members_that_lead_out_are_refused_and_nothing_is_written_outside(
    server: Server, root: Path, cache: Path
) -> None:
    put(root / "evil.tar", [("../../out.jpg", picture(0))])

    def others() -> set[Path]:
        return {path for path in root.parent.rglob("*") if cache not in (path, *path.parents)}

    before = others()
    with pytest.raises(ValueError, match="named to lie outside"):
        open_source(server.url("evil.tar"))
    assert others() == before


def test_indices_are_kept_whatever_the_limit(server: Server, root: Path) -> None:
    """A cache that is smaller than the indices of all shards, and one that is full of blocks since."""
    for cache_bytes in (0, 4096 + 100):
        settings = quick(root.parent / f"limit{cache_bytes}", cache_bytes=cache_bytes)
        source = ShardSource(server.url("set"), 48, remote=settings)
        assert len(source.manifest.scale(48).shards) > 1, "or one index could not make room for another"
        batches(source, on_error="raise")
        asked = len(server.requests)
        ShardSource(server.url("set"), 48, remote=settings)
        assert not [path for path, _ in server.requests[asked:] if path.endswith(".idx")], "they are still there"


# --- a server that fails is no bad image


def test_skip_passes_over_bad_bytes_and_not_over_a_server_that_fails(
    server: Server, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = quick(root.parent / "new")
    source = ShardSource(server.url("set"), 48, remote=settings)
    server.forever["set/48/000000.tar"] = faults.corrupts
    with caplog.at_level(logging.WARNING, "augpipe"):
        assert len(batches(source, on_error="skip")) == 6
    assert "not those that were written" in caplog.text
    with pytest.raises(SampleError, match="not those that were written"):
        batches(source, on_error="raise")
    server.forever["set/48/000000.tar"] = faults.status(503)
    for on_error in ("skip", "raise"):
        with pytest.raises(RemoteError, match="HTTP 503"):
            batches(source, on_error=on_error)


def test_prepare_ends_where_the_server_fails_and_rejects_nothing(server: Server, root: Path, tmp_path: Path) -> None:
    source = ShardSource(server.url("set"), 48, remote=quick(root.parent / "new"))
    server.forever["set/48/000002.tar"] = faults.drops_within
    settings = PrepareSettings(scales=("full",))
    with pytest.raises(RemoteError):
        prepare(source, tmp_path / "out", settings, engine=LocalEngine(1))
    del server.forever["set/48/000002.tar"]
    assert prepare(source, tmp_path / "out", settings, engine=LocalEngine(1), resume=True).num_rejected == 0


# --- what is asked wrongly


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", "holds no manifest.json of ours"),
        ("web/*.tar", "HTTP has no folders"),
        ("list.csv", "is nothing that is read from a URL"),
        ("web/{01..00}.tar", "counts down"),
    ],
)
def test_what_cannot_be_read_says_what_can(server: Server, name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        open_source(server.url(name))
    with pytest.raises(FileNotFoundError, match="no such file"):
        open_source(server.url("web/02.tar"))


def test_verify_says_that_it_takes_folders(server: Server) -> None:
    with pytest.raises(ValueError, match="is a URL, and verify takes a folder"):
        verify(server.url("set"))
