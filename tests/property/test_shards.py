"""Shards: what is written is read back, and no single damaged byte goes unseen or gives another sample's bytes."""

import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.datasets.shards.index import ShardIndex
from augpipe.datasets.shards.manifest import Manifest, Scale
from augpipe.datasets.shards.source import ShardSource
from augpipe.datasets.shards.ustar import check_key, sample_key
from augpipe.datasets.shards.verify import verify
from augpipe.datasets.shards.writer import ShardWriter
from tests.datasets.shards.shard_sets import NUM, NUM_SHARDS, PER_SHARD, build, flip, jpeg

JPEGS = [jpeg(i) for i in range(NUM)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shards") / "out")


@contextmanager
def copy_of(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as parent:
        yield Path(shutil.copytree(folder, Path(parent) / "out"))


samples = st.lists(
    st.tuples(
        st.binary(max_size=3000),
        st.integers(-1, 4),
        st.integers(1, 65_500),
        st.integers(1, 65_500),
        st.text(max_size=80),
    ),
    max_size=12,
)


@given(shards=st.lists(samples, min_size=1, max_size=4))
@settings(max_examples=15)
def test_what_is_written_is_read_back(shards: list[list[tuple[bytes, int, int, int, str]]]) -> None:
    with tempfile.TemporaryDirectory() as text:
        out = Path(text)
        (out / "full").mkdir()
        everything, infos = [], []
        for number, content in enumerate(shards):
            with ShardWriter(out / f"full/{number:06}.tar") as writer:
                for tail, label, height, width, name in content:
                    data = b"\xff\xd8\xff" + tail
                    meta = {"height": height, "width": width, "name": name}
                    writer.add(sample_key(len(everything), name), data, label, meta)
                    everything.append((data, label, (height, width)))
                infos.append(writer.close())
        labels = np.array([label for _, label, _ in everything], np.int64)
        Manifest(
            num_samples=len(everything),
            scales=(Scale(name="full", shards=tuple(infos)),),
            classes=tuple("abcde"),
            class_counts=tuple(int((labels == i).sum()) for i in range(5)),
        ).save(out)
        source = ShardSource(out)
        assert [(source.read(i), source.label(i), source.size(i)) for i in range(len(source))] == everything
        assert np.array_equal(source.labels(), labels)
        assert verify(out) == []


@given(position=st.integers(0, 10**12), name=st.text())
def test_every_name_gives_a_key(position: int, name: str) -> None:
    key = sample_key(position, name)
    check_key(key)
    assert int(key.partition("-")[0]) == position


@given(shard=st.integers(0, NUM_SHARDS - 1), place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
@settings(max_examples=40)
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
@settings(max_examples=40)
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


@given(num_bytes=st.integers(0, 10_000), name=st.sampled_from(["32/000000.tar", "32/000000.idx", "manifest.json"]))
@settings(max_examples=25)
def test_a_file_cut_anywhere_ends_in_a_clear_error(sound: Path, num_bytes: int, name: str) -> None:
    with copy_of(sound) as out:
        whole = (out / name).read_bytes()
        cut = whole[: min(num_bytes, len(whole) - 2)]
        (out / name).write_bytes(cut)
        with pytest.raises(ValueError, match=name.rpartition("/")[2]):
            ShardSource(out)
        if name != "manifest.json":
            assert verify(out)


def test_the_bytes_of_an_image_are_its_own_copy(sound: Path) -> None:
    source = ShardSource(sound)
    data = source.read(0)
    del source
    assert data == JPEGS[0] and io.BytesIO(data).read(3) == b"\xff\xd8\xff"
