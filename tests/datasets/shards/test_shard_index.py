"""The index of a shard: what it says, how little it takes, and what becomes of one that lies."""

import gc
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from augpipe.datasets.files.mapped import map_file
from augpipe.datasets.shards.index import HEADER_BYTES, RECORD_DTYPE, ShardIndex, index_path
from tests.datasets.shards.shard_sets import (
    flip,
    forge_header,
    forge_index,
    forge_keys,
    jpeg,
    key,
    label,
    some_bytes,
    write_shard,
)

NUM = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_shard(tmp_path / "000000.tar", range(NUM), row_index=some_bytes)
    return tmp_path / "000000.idx"


def test_records_say_where_each_image_lies(path: Path) -> None:
    index = ShardIndex.open(path)
    tar = path.with_suffix(".tar").read_bytes()
    assert len(index) == NUM and index.shard_bytes == len(tar) and index.is_whole()
    for i in range(NUM):
        record = index[i]
        assert tar[record.offset : record.offset + record.length] == jpeg(i)
        assert (record.label, record.height, record.width) == (label(i), 32, 32 + i)
        assert index.key(i) == key(i)
        assert tuple(index.records[i].item()) == tuple(record)
        assert index.row_index(i) == some_bytes(i) and index.name(i) == f"{key(i)}.jpg"
    assert index.records.shape == (NUM,) and not index.records.flags.writeable


def test_it_takes_at_most_40_bytes_a_sample_beside_the_key(path: Path) -> None:
    assert RECORD_DTYPE.itemsize <= 40
    keys = sum(len(key(i)) for i in range(NUM))
    rows = sum(len(some_bytes(i)) for i in range(NUM))
    assert path.stat().st_size == HEADER_BYTES + NUM * RECORD_DTYPE.itemsize + keys + rows


def test_it_lies_beside_its_tar_file() -> None:
    assert index_path("OUT/256/000003.tar") == "OUT/256/000003.idx"


def test_any_changed_byte_of_the_header_is_found_when_it_is_opened(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(HEADER_BYTES):
        flip(path, at)
        with pytest.raises(ValueError, match=r"000000\.idx .*(damaged|not a shard|has version)"):
            ShardIndex.open(path)
        path.write_bytes(whole)


@pytest.mark.parametrize("num_bytes", [0, 7, 79, 80, 200, -1])
def test_a_truncated_index_is_refused(path: Path, num_bytes: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:num_bytes])
    with pytest.raises(ValueError, match=r"000000\.idx (has|ends within|is not a shard's index)"):
        ShardIndex.open(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(ValueError, match="bytes, and its header speaks of"):
        ShardIndex.open(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "has version 3, and this augpipe reads version 2. Make the data set again: augpipe prepare"),
        ({"version": 1}, "has version 1, and this augpipe reads version 2. Make the data set again: augpipe prepare"),
        ({"record_bytes": 0}, "claims records of 0 bytes"),
        ({"num_samples": 2**60}, "its header speaks of"),
        ({"num_samples": NUM + 1}, "its header speaks of"),
        ({"key_bytes": 2**63}, "its header speaks of"),
        ({"row_bytes": 2**63}, "its header speaks of"),
        ({"row_bytes": 0}, "its header speaks of"),
        ({"num_samples": 0}, "its header speaks of"),
    ],
)
def test_a_header_that_lies_is_refused(path: Path, changes: dict[str, int], message: str) -> None:
    forge_header(path, **changes)
    with pytest.raises(ValueError, match=message):
        ShardIndex.open(path)


@pytest.mark.parametrize("key_end", [0, 1, 10**6, 2**32 - 1])
def test_key_ends_that_lie_point_to_no_key(path: Path, key_end: int) -> None:
    forge_index(path, 2, key_end=key_end)
    index = ShardIndex.open(path)
    with pytest.raises(ValueError, match="the index is damaged: it points to no key"):
        index.key(2)
    assert index.key(0) == key(0)


def test_a_last_key_that_ends_behind_all_keys_is_none(path: Path) -> None:
    forge_index(path, NUM - 1, key_end=sum(len(key(i)) for i in range(NUM)) + 1)
    with pytest.raises(ValueError, match="the index is damaged: it points to no key"):
        ShardIndex.open(path).key(NUM - 1)


@pytest.mark.parametrize("row_end", [0, 10**6, 2**32 - 1])
def test_ends_of_row_indexes_that_lie_point_to_none(path: Path, row_end: int) -> None:
    forge_index(path, 2, row_end=row_end)
    index = ShardIndex.open(path)
    with pytest.raises(ValueError, match="the index is damaged: it points to no row index"):
        index.row_index(2)
    assert index.row_index(1) == some_bytes(1) and index.is_whole() and index.has_sound_row_indexes()


def test_a_format_that_lies_gives_no_name(path: Path) -> None:
    forge_index(path, 2, format=6)
    with pytest.raises(ValueError, match="the index is damaged: format 6 is none of the 6 that there are"):
        ShardIndex.open(path).name(2)


def test_the_head_alone_can_be_opened(path: Path) -> None:
    rows = b"".join(some_bytes(i) for i in range(NUM))
    whole = path.read_bytes()
    assert whole.endswith(rows)
    path.with_suffix(".head").write_bytes(whole[: -len(rows)])
    index, head = ShardIndex.open(path), ShardIndex.open(path.with_suffix(".head"), is_head=True)
    assert [head[i] for i in range(NUM)] == [index[i] for i in range(NUM)] and head.is_whole()
    for i in range(NUM):
        start, stop = head.row_index_at(i)
        assert whole[start:stop] == some_bytes(i)
    with pytest.raises(ValueError, match="its header speaks of"):
        ShardIndex.open(path.with_suffix(".head"))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a.b", "a b", "a\0b"])
def test_keys_that_are_none_are_refused(path: Path, name: str) -> None:
    forge_keys(path, [key(0), name, *map(key, range(2, NUM))])
    index = ShardIndex.open(path)
    with pytest.raises(ValueError, match="the index is damaged: .* is not a key"):
        index.key(1)
    assert index.key(2) == key(2)


def test_what_is_no_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.idx").write_bytes(b"\x89PNG\r\n\x1a\n" * 20)
    with pytest.raises(ValueError, match="is not a shard's index: it begins with b'.x89PNG"):
        ShardIndex.open(tmp_path / "x.idx")
    with pytest.raises(FileNotFoundError):
        ShardIndex.open(tmp_path / "missing.idx")


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.idx")
    with pytest.raises(ValueError, match="is not a regular file"):
        ShardIndex.open(tmp_path / "x.idx")


def maps_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


@pytest.mark.slow
def test_a_map_lives_as_long_as_its_last_view(path: Path) -> None:
    assert maps_of(path) == 0
    index = ShardIndex.open(path)
    records = index.records
    assert maps_of(path) == 1
    path.unlink()
    del index
    gc.collect()
    assert records["label"].tolist() == [label(i) for i in range(NUM)]
    assert maps_of(path) == 1
    del records
    gc.collect()
    assert maps_of(path) == 0


def test_maps_are_read_only_and_failures_have_a_reason(path: Path) -> None:
    with open(path, "rb") as file:
        view = map_file(file.fileno(), 16)
        assert view.readonly and bytes(view[:8]) == b"AUGPIDX\0"
        assert struct.unpack_from("<I", view, 8) == (2,)
        assert np.frombuffer(view, np.uint8).shape == (16,)
    with pytest.raises(OSError, match="Bad file descriptor"):
        map_file(-1, 16)
