"""Shards: what is written is read back, and no single damaged byte goes unseen or gives another sample's bytes."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augpipe.datasets.shards.index import ShardIndex
from augpipe.datasets.shards.manifest import Manifest, Scale
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.ustar import check_key, sample_key
from augpipe.datasets.shards.verify import verify
from augpipe.datasets.shards.writer import ShardWriter
from augpipe.decoding.row_index import FileSum, pack, unpack
from augpipe.gpu_ops.jpeg.workspace import NO_POINTS
from tests.datasets.shards.shard_sets import NUM, NUM_SHARDS, PER_SHARD, build, flip, jpeg, row_index
from tests.examples import examples

JPEGS = [jpeg(i) for i in range(NUM)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shards") / "out")


@contextmanager
def copy_of(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as parent:
        yield Path(shutil.copytree(folder, Path(parent) / "out"))


BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF....WEBP", b"GIF89a", b"BM", b"II*\0")
samples = st.lists(
    st.tuples(
        st.sampled_from(BEGINNINGS),
        st.binary(max_size=3000),
        st.binary(max_size=50),
        st.integers(-1, 4),
        st.integers(1, 65_500),
        st.integers(1, 65_500),
        st.text(max_size=80),
    ),
    max_size=12,
)


@given(shards=st.lists(samples, min_size=1, max_size=4))
@examples(15)
def test_what_is_written_is_read_back(shards: list[list[tuple[bytes, bytes, bytes, int, int, int, str]]]) -> None:
    with tempfile.TemporaryDirectory() as text:
        out = Path(text)
        (out / "full").mkdir()
        everything, infos = [], []
        for number, content in enumerate(shards):
            with ShardWriter(out / f"full/{number:06}.tar") as writer:
                for beginning, tail, rows, label, height, width, name in content:
                    data = beginning + tail
                    meta = {"height": height, "width": width, "name": name}
                    writer.add(sample_key(len(everything), name), data, label, meta, rows)
                    everything.append((data, label, (height, width), rows))
                infos.append(writer.close())
        labels = np.array([label for _, label, _, _ in everything], np.int64)
        Manifest(
            num_samples=len(everything),
            scales=(Scale(name="full", shards=tuple(infos)),),
            classes=tuple("abcde"),
            class_counts=tuple(int((labels == i).sum()) for i in range(5)),
        ).save(out)
        source = ShardSource(out)
        found = [(source.read(i), source.label(i), source.size(i), source.row_index(i)) for i in range(len(source))]
        assert found == everything
        assert np.array_equal(source.labels(), labels)
        assert verify(out) == []


@given(position=st.integers(0, 10**12), name=st.text())
def test_every_name_gives_a_key(position: int, name: str) -> None:
    key = sample_key(position, name)
    check_key(key)
    assert int(key.partition("-")[0]) == position


@given(shard=st.integers(0, NUM_SHARDS - 1), place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
@examples(40)
def test_a_changed_byte_of_a_tar_names_its_sample(sound: Path, shard: int, place: float, mask: int) -> None:
    index = ShardIndex.open(sound / f"32/{shard:06}.idx")
    starts = [index[i].offset - 512 for i in range(PER_SHARD)]
    at = int(place * index.shard_bytes)
    hit = [shard * PER_SHARD + max(i for i in range(PER_SHARD) if starts[i] <= at)]
    with copy_of(sound) as out:
        flip(out / f"32/{shard:06}.tar", at, mask)
        faults = verify(out)
        assert [f.sample_id for f in faults if f.sample_id is not None] == (
            hit if at < index.shard_bytes - 1024 else []
        )
        assert any(f.sample_id is None and "SHA-256" in f.reason for f in faults)


@given(place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255), data=st.data())
@examples(40)
def test_a_changed_byte_of_an_index_gives_the_sample_or_an_error(
    sound: Path, place: float, mask: int, data: st.DataObject
) -> None:
    with copy_of(sound) as out:
        path = out / "32/000001.idx"
        flip(path, int(place * path.stat().st_size), mask)
        faults = verify(out)
        assert faults and {fault.path for fault in faults} <= {"32/000001.idx", "32/000001.tar"}
        try:
            source = ShardSource(out)
        except ValueError:
            return
        for i in range(NUM):
            assert source.name(i)
            try:
                found = source.read(i)
            except ValueError:
                assert PER_SHARD <= i < 2 * PER_SHARD
            else:
                assert found == JPEGS[i]
            try:
                points = unpack(source.row_index(i), FileSum.of(JPEGS[i]))
            except ValueError:
                assert PER_SHARD <= i < 2 * PER_SHARD
            else:
                assert points is NO_POINTS or pack(points, FileSum.of(JPEGS[i])) == row_index(i)
