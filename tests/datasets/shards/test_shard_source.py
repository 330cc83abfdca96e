"""Shards as a source: every sample from any thread and process, and never another one's bytes."""

import multiprocessing
import os
import pickle
import re
import resource
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from augpipe import Loader, SampleError, recipes
from augpipe.datasets.files.descriptors import FileSet, most_descriptors
from augpipe.datasets.open import open_source
from augpipe.datasets.shards.manifest import Manifest
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.writer import ShardWriter
from augpipe.errors import SourceChangedError
from tests.augpipe.loader.loader_sources import together
from tests.datasets.formats.source_checks import assert_keeps_the_protocol
from tests.datasets.shards.shard_sets import (
    CLASSES,
    NUM,
    NUM_SHARDS,
    PER_SHARD,
    build,
    flip,
    forge_index,
    forge_keys,
    jpeg,
    key,
    label,
    manifest_of,
    note,
    row_index,
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return build(tmp_path / "out")


def read_all(source: ShardSource) -> list[bytes]:
    return [source.read(i) for i in range(len(source))]


JPEGS = [jpeg(i) for i in range(NUM)]


def test_it_is_a_source(out: Path) -> None:
    source = ShardSource(out)
    assert_keeps_the_protocol(source, JPEGS, [label(i) for i in range(NUM)])
    assert set(source.labels().tolist()) == {-1, 0, 1} and source.classes == CLASSES
    assert [source.size(i) for i in range(NUM)] == [(32, 32 + i) for i in range(NUM)]
    for sample_id in (-1, NUM, 2**40):
        with pytest.raises(IndexError, match=rf"sample_id={sample_id} is out of range: .* ids 0\.\.11"):
            source.size(sample_id)
    assert source.name(5) == f"{out}/32/000001.tar/{key(5)}.jpg"
    assert repr(source) == f"ShardSource('{out}', '32': 12 photographs in 3 shards, 2 classes)"


def test_scales_hold_the_same_samples(tmp_path: Path) -> None:
    out = build(tmp_path / "out", sides=(24, 40))
    assert ShardSource(out).scale == "40"
    for scale in (24, "24", 40):
        source = ShardSource(out, scale)
        assert read_all(source) == [jpeg(i, int(scale)) for i in range(NUM)]
        assert source.size(3) == (int(scale), int(scale) + 3)
    with pytest.raises(ValueError, match="scale=25 is not there. The scales: 24, 40."):
        ShardSource(out, 25)


def test_a_path_opens_it(tmp_path: Path) -> None:
    out = build(tmp_path / "out", sides=(24, 40))
    for path, scale in ((out, "40"), (str(out), "40"), (out / "24", "24"), (f"{out}/24/", "24")):
        source = open_source(path)
        assert isinstance(source, ShardSource) and source.scale == scale


def test_pickled_it_opens_the_shards_anew(out: Path) -> None:
    text = pickle.dumps(ShardSource(out, 32))
    assert len(text) < 500  # no content travels
    assert read_all(pickle.loads(text)) == JPEGS


def test_many_threads_read_with_fewer_open_files_than_shards(out: Path) -> None:
    source = ShardSource(out)
    source._files = FileSet(source._paths, most=1)
    order = np.random.default_rng(0).integers(0, NUM, 3000).tolist()
    found: dict[int, list[bytes]] = {}
    together(8, lambda i: found.update({i: [source.read(k) for k in order[i::8]]}))
    assert found == {i: [JPEGS[k] for k in order[i::8]] for i in range(8)}


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_are_bounded_and_given_back(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = num_descriptors()
    source = ShardSource(out)
    assert num_descriptors() == before  # opening takes none
    read_all(source)
    assert num_descriptors() == before + NUM_SHARDS
    del source
    assert num_descriptors() == before
    monkeypatch.setattr(resource, "getrlimit", lambda which: (8, 8))
    source = ShardSource(out)
    assert read_all(source) == JPEGS
    assert num_descriptors() == before + 2


def test_the_file_that_was_not_read_for_longest_is_closed_first(out: Path) -> None:
    paths = [str(path) for path in sorted(out.rglob("*.tar"))]
    files = FileSet(paths, most=2)
    for number in (0, 1, 0, 2):
        files.read(number, 1, 0)
    held = {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
    assert [os.path.realpath(path) in held for path in paths] == [True, False, True]


def test_indices_are_opened_some_by_each_thread_and_none_is_left_out(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for num in (1, 2, 3):
        monkeypatch.setattr("augpipe.datasets.shards.open_files._SHARDS_A_TASK", num)
        assert read_all(ShardSource(out)) == JPEGS


def test_all_labels_take_the_memory_that_they_are_returned_in(tmp_path: Path) -> None:
    num = 3000
    (tmp_path / "32").mkdir()
    with ShardWriter(tmp_path / "32/000000.tar") as writer:
        for i in range(num):
            writer.add(key(i), jpeg(0), i % 2, note(0))
        manifest_of({"32": [writer.close()]}, class_counts=(num // 2, num // 2)).save(tmp_path)
    source = ShardSource(tmp_path)
    source.labels()
    tracemalloc.start()
    labels = source.labels()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert labels.nbytes == 8 * num and peak < 1.5 * labels.nbytes


@pytest.mark.parametrize("order", [(0, 2), (2, 0)])
def test_of_two_damaged_indices_the_first_is_named(
    out: Path, order: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever was damaged, or found by its thread, first."""
    monkeypatch.setattr("augpipe.datasets.shards.open_files._SHARDS_A_TASK", 1)
    for number in order:
        (out / f"32/{number:06}.idx").write_bytes(b"AUGPIDX")
    with pytest.raises(ValueError, match=r"000000\.idx"):
        ShardSource(out)


@pytest.mark.parametrize(
    ("limit", "most"), [(1024, 256), (7, 1), (3, 1), (1 << 20, 4096), (resource.RLIM_INFINITY, 4096)]
)
def test_a_source_takes_a_quarter_of_the_descriptors(monkeypatch: pytest.MonkeyPatch, limit: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, resource.RLIM_INFINITY))
    assert most_descriptors() == most


def _read_in_child(source: ShardSource, results: "multiprocessing.Queue[list[bytes]]") -> None:
    results.put(read_all(source))


def test_a_forked_process_reads_the_same(out: Path) -> None:
    source = ShardSource(out)
    source.read(0)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=_read_in_child, args=(source, results)) for _ in range(2)]
    for child in children:
        child.start()
    found = [results.get(timeout=30) for _ in children]
    assert read_all(source) == JPEGS  # at the same time, with the same descriptors
    for child in children:
        child.join(timeout=30)
        assert child.exitcode == 0
    assert found == [JPEGS, JPEGS]


def test_row_indexes_are_views_of_the_index(tmp_path: Path) -> None:
    out = build(tmp_path / "out")
    source = pickle.loads(pickle.dumps(ShardSource(out)))
    for i in range(NUM):
        found = source.row_index(i)
        assert found == row_index(i) and len(found) > 20 and isinstance(found, memoryview) and found.readonly
    with pytest.raises(IndexError):
        source.row_index(NUM)


# --- damage


def test_damaged_records_never_give_another_samples_bytes(out: Path) -> None:
    path = out / "32/000001.idx"
    whole = path.read_bytes()
    record = ShardSource(out)._indices[1][0]
    others = [ShardSource(out)._indices[1][i] for i in range(PER_SHARD)]
    lies = [
        {"offset": 0},
        {"offset": 511},
        {"offset": 512 + 1},
        {"offset": record.offset - 512},
        {"offset": others[1].offset},
        {"offset": others[1].offset, "length": others[1].length},
        {"offset": record.offset + 512, "length": record.length - 512},
        {"offset": 2**63},
        {"offset": 2**64 - 1},
        {"offset": 2**64 - 1, "length": 1},
        {"length": 0},
        {"length": record.length - 1},
        {"length": record.length + 1},
        {"length": 2**32 - 1},
        {"label": 2},
        {"label": -2},
        {"label": 2**31 - 1},
        {"key_end": others[1].key_end},
        {"key_end": 0},
        {"key_end": 2**32 - 1},
        {"format": 1},
        {"format": 2**32 - 1},
    ]
    for lie in lies:
        forge_index(path, 0, **lie)
        source = ShardSource(out)
        with pytest.raises(ValueError, match=r"^the index (is damaged|and the shard differ)"):
            source.read(PER_SHARD)
        assert isinstance(source.name(PER_SHARD), str)
        assert source.read(PER_SHARD + 3) == JPEGS[PER_SHARD + 3]
        del source
        path.write_bytes(whole)


def test_keys_that_are_exchanged_are_found(out: Path) -> None:
    forge_keys(out / "32/000000.idx", [key(1), key(0), key(2), key(3)])
    source = ShardSource(out)
    with pytest.raises(ValueError, match=f"the index and the shard differ: the index places {key(1)}.jpg of "):
        source.read(0)
    assert source.read(2) == JPEGS[2]


def test_keys_that_are_paths_are_refused(out: Path) -> None:
    forge_keys(out / "32/000000.idx", ["../../../etc/passwd", key(1), key(2), key(3)])
    source = ShardSource(out)
    with pytest.raises(ValueError, match="the index is damaged"):
        source.read(0)
    assert source.name(0) == f"{out}/32/000000.tar/sample 0"


def test_one_damaged_sample_is_skipped_or_named(out: Path) -> None:
    forge_index(out / "32/000000.idx", 1, offset=2**40)
    recipe = recipes.evaluation(size=16, scale=24)
    with pytest.raises(SampleError, match=f"000000.tar/{key(1)}.jpg: the index is damaged: it places "):
        list(Loader(str(out), recipe, batch_size=4, shuffle=False))
    loader = Loader(str(out), recipe, batch_size=4, shuffle=False, on_error="skip")
    assert len(list(loader)) == 3 and list(loader.skipped) == [1]


def test_a_shard_that_is_cut_short_is_refused_at_once(out: Path) -> None:
    path = out / "32/000002.tar"
    size = path.stat().st_size
    os.truncate(path, 3000)
    with pytest.raises(ValueError, match=rf"000002\.tar has 3000 bytes, and the manifest says {size}: it was cut"):
        ShardSource(out)


def test_a_shard_that_is_cut_short_while_it_is_read_has_changed(out: Path) -> None:
    source = ShardSource(out)
    assert source.read(0) == JPEGS[0]  # it stays open
    os.truncate(out / "32/000000.tar", 700)
    for sample_id in (0, 1):
        with pytest.raises(SourceChangedError, match=r"000000.tar has changed since it was opened: .* and has 700\."):
            source.read(sample_id)
    assert source.read(PER_SHARD) == JPEGS[PER_SHARD]


def test_a_missing_shard_is_named(out: Path) -> None:
    (out / "32/000001.tar").unlink()
    with pytest.raises(FileNotFoundError, match="000001.tar"):
        ShardSource(out)


def test_a_missing_index_is_answered_with_what_to_do(out: Path) -> None:
    (out / "32/000001.idx").unlink()
    with pytest.raises(
        ValueError, match=r"000001.tar has no index: 000001.idx is not next to it. Copy it there"
    ) as caught:
        open_source(out)
    (pattern,) = re.findall(r"augpipe prepare '(.*)' NEW --keep", str(caught.value))
    assert len(open_source(pattern)) == len(JPEGS)
    (out / "32/000001.tar").unlink()
    with pytest.raises(FileNotFoundError, match="000001.tar"):
        ShardSource(out)


def test_a_missing_index_is_answered_where_the_set_is_named_by_a_relative_path(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (out / "32/000001.idx").unlink()
    monkeypatch.chdir(out.parent)
    with pytest.raises(ValueError, match=f"{out.name}/32/000001.tar has no index: 000001.idx is not next to it"):
        ShardSource(out.name)


@pytest.mark.parametrize("part", ["manifest.json", "32/000000.idx"])
def test_a_part_of_a_set_is_answered_with_its_folder(out: Path, part: str) -> None:
    with pytest.raises(ValueError, match=f"is a part of a data set of augpipe prepare. Give its folder: '{out}'"):
        open_source(out / part)


def test_the_index_of_another_shard_is_refused(out: Path) -> None:
    shutil.copy(out / "32/000000.idx", out / "32/000001.idx")
    with pytest.raises(ValueError, match="000001.idx belongs to another shard than the manifest's 000001.tar"):
        ShardSource(out)


def test_absurd_counts_in_the_manifest_cost_nothing(out: Path) -> None:
    manifest = Manifest.load(out)
    scale = manifest.scales[0]
    huge = scale.shards[0].model_copy(update={"num_samples": 2**50, "num_bytes": 2**52})
    scales = (scale.model_copy(update={"shards": (huge, *scale.shards[1:])}),)
    manifest.model_copy(update={"scales": scales, "num_samples": 2**50 + NUM - PER_SHARD}).save(out)
    with pytest.raises(ValueError, match="000000.idx belongs to another shard than the manifest's"):
        ShardSource(out)


def test_bytes_changed_inside_an_image_reach_the_decoder_only(out: Path) -> None:
    flip(out / "32/000000.tar", ShardSource(out)._indices[0][1].offset + 40)
    changed = ShardSource(out).read(1)
    assert len(changed) == len(JPEGS[1]) and sum(a != b for a, b in zip(changed, JPEGS[1], strict=True)) == 1
