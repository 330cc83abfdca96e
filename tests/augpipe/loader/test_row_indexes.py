"""Row indexes from one epoch to the next: the same batches, and fewer codes read."""

import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe
from augpipe.cache.row_indexes import RowIndexes
from augpipe.decoding.jpeg import own_decoder
from augpipe.decoding.row_index import HEADER, POINT_BYTES, FileSum, pack, row_index_of
from augpipe.gpu_ops.jpeg.workspace import HAS_WIDE_VECTORS, NO_POINTS, Points, Workspace
from augpipe.ops import CenterCrop, RandomResizedCrop, Rotate
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.loader_sources import MemorySource
from tests.contracts.backends import assert_same

pytestmark = pytest.mark.skipif(not HAS_WIDE_VECTORS, reason="this CPU leaves JPEGs to libjpeg-turbo")

SIZES = [(120 + 7 * i, 150 + 9 * i) for i in range(6)]
FILES = [encoded(scene(*size, i), "JPEG", quality=90, subsampling=i % 3) for i, size in enumerate(SIZES)]
CROPS = Recipe(ops=(RandomResizedCrop(size=64, scale=(0.1, 0.4)), Rotate()))
LOW = Recipe(ops=(CenterCrop(size=24, scale=120),))


def make(contents: list[bytes] | MemorySource, recipe: Recipe, **options: Any) -> Loader:
    """A loader on two threads of the native backend; six images a batch."""
    source = contents if isinstance(contents, MemorySource) else MemorySource(contents)
    return Loader(source, recipe, batch_size=6, seed=5, num_threads=2, framework="numpy", backend="native", **options)


class Stored(MemorySource):
    """A source that has the indexes of its files."""

    def __init__(self, contents: list[Any], indexes: list[bytes]) -> None:
        super().__init__(contents)
        self._indexes = indexes

    def row_index(self, sample_id: int) -> bytes:
        return self._indexes[sample_id]


class Known:
    """A spy on our own decoder: of how many rows it was told the points, since the last look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rows: list[int] = []
        kept, render = Workspace.decode, Workspace.render

        def spy(workspace: Any, file: Any, height: int, width: int, region: Any, out: Any, *points: Any) -> bool:
            self._rows.append(points[0].num_rows if points else 0)
            return kept(workspace, file, height, width, region, out, *points)

        def spy_on_several(workspace: Any, files: Any, *args: Any, **options: Any) -> list[bool]:
            are_taken = render(workspace, files, *args, **options)
            self._rows += [file.known.num_rows for file, is_taken in zip(files, are_taken, strict=True) if is_taken]
            return are_taken

        monkeypatch.setattr(Workspace, "decode", spy)
        monkeypatch.setattr(Workspace, "render", spy_on_several)

    def look(self) -> list[int]:
        found = self._rows[:]
        self._rows.clear()
        return found


def test_batches_are_the_same_and_what_was_found_is_made_use_of(monkeypatch: pytest.MonkeyPatch) -> None:
    without, with_index = make(FILES, CROPS, row_index_bytes=0), make(FILES, CROPS)
    known = Known(monkeypatch)
    for epoch in range(4):
        expected = list(without)
        assert known.look() == [0] * len(FILES)
        assert assert_same(with_index, expected) == len(FILES)
        assert sum(rows > 0 for rows in known.look()) >= len(FILES) * (epoch > 0)


def test_indexes_grow_from_epoch_to_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    loader, known = make(FILES, CROPS), Known(monkeypatch)
    rows = []
    for _ in range(6):
        list(loader)
        rows.append(sum(known.look()))
    assert rows == sorted(rows) and rows[1] < rows[-1]


def test_little_room_is_shared_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    room = HEADER.size + 6 * POINT_BYTES
    expected = make(FILES, CROPS, row_index_bytes=0)
    small, too_small = (make(FILES, CROPS, row_index_bytes=num * len(FILES)) for num in (room, HEADER.size + 20))
    known = Known(monkeypatch)
    for epoch in range(3):
        batches = list(expected)
        known.look()
        assert assert_same(small, batches) == len(FILES)
        assert all(rows > 0 for rows in known.look()) == (epoch > 0)
        assert assert_same(too_small, batches) == len(FILES)
        assert known.look() == [0] * len(FILES)


def test_a_file_that_changes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = MemorySource(list(FILES))
    loader, known = make(source, LOW), Known(monkeypatch)
    list(loader)
    source.contents[2] = encoded(scene(*SIZES[2], 99), "JPEG", quality=80)
    unindexed = make(source, LOW, row_index_bytes=0)
    unindexed.set_epoch(1)
    expected = list(unindexed)
    known.look()
    assert assert_same(loader, expected) == len(FILES)
    assert known.look().count(0) == 1
    list(loader)
    assert 0 not in known.look()


def test_what_the_source_has_stored_is_taken_first(monkeypatch: pytest.MonkeyPatch) -> None:
    indexes = [row_index_of(file, *size) for file, size in zip(FILES, SIZES, strict=True)]
    indexes[1] = b""
    indexes[2] = indexes[3]
    expected = list(make(FILES, CROPS, row_index_bytes=0))
    known = Known(monkeypatch)
    loader = make(Stored(FILES, indexes), CROPS)
    assert assert_same(loader, expected) == len(FILES)
    assert sorted(rows > 0 for rows in known.look()) == [False] * 2 + [True] * 4
    list(loader)
    assert all(known.look())  # what was wrong or missing has been found


def test_a_stored_index_of_some_rows_grows_no_further_than_there_is_room() -> None:
    decoder = own_decoder()
    assert decoder is not None
    height, width = SIZES[5]
    codes, out = np.frombuffer(FILES[5], np.uint8), np.empty(height * width * 4, np.uint8)
    assert decoder.decode(codes, height, width, (0, 0, width, 9), out, max_points=1000)
    indexes = [b""] * 5 + [pack(decoder.points(), FileSum.of(FILES[5]))]
    assert len(indexes[5]) > HEADER.size
    loader = make(Stored(FILES, indexes), CROPS, row_index_bytes=0)
    for _ in range(3):
        assert sum(map(len, loader)) == len(FILES)


def test_negative_room_is_refused() -> None:
    with pytest.raises(ValueError, match="row_index_bytes=-1 must be at least 0"):
        make(FILES, CROPS, row_index_bytes=-1)


def test_no_memory_is_taken_before_something_is_found() -> None:
    indexes = RowIndexes(MemorySource(FILES), 2**40)
    assert indexes._rooms is None


@pytest.mark.skipif(sys.platform != "linux", reason="memory in use is read from /proc")
def test_an_index_takes_the_memory_that_it_fills() -> None:
    """Some KB, and not a page of 2 MB."""

    def in_use() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    indexes = RowIndexes(MemorySource([FILES[0]] * 100), 2**40)
    found = Points(2, 1, 2, np.arange(4, dtype=np.uint32), np.zeros((4, 3), np.int16))
    file, before = FileSum.of(FILES[0]), in_use()
    for sample in range(100):
        indexes.keep(sample, file, NO_POINTS, found)
    assert in_use() - before < 10 * 2**20  # 65 MB in whole pages of 2 MB


def test_what_was_found_stays_while_another_thread_keeps_more() -> None:
    """The same sample may be decoded twice at once, as itself and in another's place: points that change under a
    decoder's hands would give other pixels, and be kept."""
    indexes = RowIndexes(MemorySource(FILES), 2**40)
    _, file = indexes.find(0, FILES[0])
    few = Points(2, 1, 2, np.arange(4, dtype=np.uint32), np.zeros((4, 3), np.int16))
    more = Points(1, 1, 9, np.arange(100, 118, dtype=np.uint32), np.ones((18, 3), np.int16))
    indexes.keep(0, file, NO_POINTS, few)
    known, _ = indexes.find(0, FILES[0])
    indexes.keep(0, file, known, more)
    assert known.positions.tolist() == few.positions.tolist() and not known.predictors.any()
    again, _ = indexes.find(0, FILES[0])
    assert again.positions.tolist() == more.positions.tolist() and again.num_rows == 9
