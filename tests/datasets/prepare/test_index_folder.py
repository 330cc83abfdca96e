"""The index of a folder: the same bytes however it was made, used as far as it holds, and never more than a help."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from augpipe import Batch, Loader, Recipe
from augpipe.datasets.files.lock import lock_file
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.folder_index import INDEX_NAME
from augpipe.datasets.prepare import index_folder as module
from augpipe.datasets.prepare.index_folder import PARTIAL_NAME, index_folder
from augpipe.decoding.row_index import row_index_of
from augpipe.gpu_ops.jpeg.workspace import HAS_WIDE_VECTORS
from augpipe.ops import RandomResizedCrop
from tests.augpipe.decoding.image_files import encoded, exif, scene
from tests.contracts.backends import assert_same

pytestmark = pytest.mark.skipif(not HAS_WIDE_VECTORS, reason="this CPU leaves JPEGs to libjpeg-turbo")

SIZES = [(90 + 8 * i, 110 + 9 * i) for i in range(6)]
JPEGS = [encoded(scene(*size, i), "JPEG", quality=85, subsampling=i % 3) for i, size in enumerate(SIZES)]
OTHERS = {
    "progressive.jpg": encoded(scene(80, 90), "JPEG", progressive=True),
    "turned.jpg": encoded(scene(80, 90), "JPEG", exif=exif(6)),
    "picture.png": encoded(scene(80, 90), "PNG"),
}
LONG_AGO_NS = 10**18


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of three JPEGs each, and in the second one three files that get no row index."""
    for i, data in enumerate(JPEGS):
        write(tmp_path / "ab"[i // 3] / f"{i}.jpg", data)
    for name, data in OTHERS.items():
        write(tmp_path / "b" / name, data)
    return tmp_path


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))


def batches(source: Any) -> list[Batch]:
    recipe = Recipe(ops=(RandomResizedCrop(size=48),))
    return list(Loader(source, recipe, batch_size=4, num_threads=2, framework="numpy", backend="native"))


def index_of(folder: Path) -> bytes:
    return (folder / INDEX_NAME).read_bytes()


def test_every_plain_jpeg_has_a_size_and_a_row_index(folder: Path) -> None:
    done = index_folder(folder)
    assert (done.num_images, done.num_indexed, done.num_kept) == (9, 6, 0)
    assert done.num_bytes == len(index_of(folder)) and sorted(os.listdir(folder)) == [INDEX_NAME, "a", "b"]
    source = FolderSource(folder)
    assert source.knows_sizes and len(source) == 9
    names = [source.name(i).rpartition("/")[2] for i in range(9)]
    for i, name in enumerate(names):
        expected = b"" if name in OTHERS else row_index_of(JPEGS[int(name[0])], *SIZES[int(name[0])])
        assert bytes(source.row_index(i)) == expected
        assert source.size(i) == ((0, 0) if name in OTHERS else SIZES[int(name[0])])


def test_batches_are_the_same_with_it_and_after_pickling(folder: Path) -> None:
    expected = batches(folder)
    index_folder(folder)
    assert assert_same(batches(folder), expected) == 9
    copied = pickle.loads(pickle.dumps(FolderSource(folder)))
    assert bytes(copied.row_index(1)) == bytes(FolderSource(folder).row_index(1)) != b""
    assert assert_same(batches(copied), expected) == 9


def test_any_number_of_threads_writes_the_same_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("augpipe.datasets.stats.collect.CHUNK", 2)
    made = []
    for num_threads in (1, 2, 5):
        index_folder(folder, num_threads=num_threads)
        made.append(index_of(folder))
        os.unlink(folder / INDEX_NAME)
    assert made[0] == made[1] == made[2]


@pytest.mark.slow
@given(cut=st.floats(0, 1), flipped=st.none() | st.floats(0, 0.999))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_a_run_that_was_stopped_anywhere_is_gone_on_with(folder: Path, cut: float, flipped: float | None) -> None:
    index_folder(folder)
    whole = index_of(folder)
    part = bytearray(whole[: int(cut * len(whole))])
    if flipped is not None and part:
        part[int(flipped * len(part))] ^= 1
    (folder / PARTIAL_NAME).write_bytes(part)
    os.unlink(folder / INDEX_NAME)
    index_folder(folder)
    assert index_of(folder) == whole
    assert not (folder / PARTIAL_NAME).exists()


def test_what_was_done_before_is_not_done_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    entry_of = module._entry_of
    monkeypatch.setattr(module, "_entry_of", lambda name, file: read.append(name.decode()) or entry_of(name, file))
    index_folder(folder)
    whole = index_of(folder)
    assert len(read) == 9
    (folder / PARTIAL_NAME).write_bytes(whole[: len(whole) // 2])
    os.unlink(folder / INDEX_NAME)
    read.clear()
    done = index_folder(folder)
    assert 0 < len(read) == 9 - done.num_kept < 9
    read.clear()
    write(folder / "a" / "0.jpg", JPEGS[5])
    os.utime(folder / "a" / "0.jpg")
    os.utime(folder / INDEX_NAME, ns=(2 * LONG_AGO_NS, LONG_AGO_NS + 1))
    index_folder(folder)
    assert read == ["a/0.jpg"]
    assert bytes(FolderSource(folder).row_index(0)) == row_index_of(JPEGS[5], *SIZES[5])


def test_images_that_come_and_go_keep_the_others(folder: Path) -> None:
    index_folder(folder)
    os.unlink(folder / "a" / "1.jpg")
    write(folder / "a" / "0b.jpg", JPEGS[1])
    expected = batches(folder)
    source = FolderSource(folder)
    names = [source.name(i).rpartition("/")[2] for i in range(len(source))]
    known = {name for i, name in enumerate(names) if len(source.row_index(i))}
    assert known == {"0.jpg", "2.jpg", "3.jpg", "4.jpg", "5.jpg"}
    assert source.size(names.index("0b.jpg")) == (0, 0)
    os.unlink(folder / INDEX_NAME)
    assert assert_same(batches(folder), expected) == 9


def test_an_image_of_another_size_than_the_index_says(folder: Path) -> None:
    index_folder(folder)
    write(folder / "a" / "0.jpg", JPEGS[5])
    expected = batches(folder)
    os.unlink(folder / INDEX_NAME)
    assert assert_same(batches(folder), expected) == 9


@pytest.mark.slow
@given(at=st.floats(0, 0.9999), bit=st.integers(0, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@pytest.mark.filterwarnings("ignore:.*is not used")
def test_a_damaged_index_changes_no_batch(folder: Path, at: float, bit: int) -> None:
    if not (folder / "sound").exists():
        index_folder(folder)
        (folder / "sound").write_bytes(index_of(folder))
        (folder / "expected").write_bytes(pickle.dumps([batch.images for batch in batches(folder)]))
    changed = bytearray((folder / "sound").read_bytes())
    changed[int(at * len(changed))] ^= 1 << bit
    (folder / INDEX_NAME).write_bytes(changed)
    for batch, images in zip(batches(folder), pickle.loads((folder / "expected").read_bytes()), strict=True):
        np.testing.assert_array_equal(batch.images, images)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda data: data[:-1], "it is cut short, or damaged", id="cut short"),
        pytest.param(lambda data: b"", "it is cut short", id="empty"),
        pytest.param(lambda data: data[:-90] + b"\1" + data[-89:], "it is damaged", id="its table"),
    ],
)
def test_one_that_cannot_be_used_is_said_once_with_the_remedy(folder: Path, change: Any, reason: str) -> None:
    index_folder(folder)
    (folder / INDEX_NAME).write_bytes(change(index_of(folder)))
    with pytest.warns(UserWarning, match=rf"is not used: {reason}. `augpipe index .*` makes it again") as warned:
        source = FolderSource(folder)
    assert len(warned) == 1 and not source.knows_sizes and source.row_index(0) == b""


def test_a_second_run_is_refused_while_one_is_at_work(folder: Path) -> None:
    with (
        lock_file(str(folder / f"{INDEX_NAME}.lock"), str),
        pytest.raises(ValueError, match="another run is indexing .*process"),
    ):
        index_folder(folder)
    assert not (folder / INDEX_NAME).exists()


def test_what_cannot_be_read_has_no_index_and_ends_nothing(folder: Path) -> None:
    write(folder / "a" / "9.jpg", JPEGS[0][:200])
    os.symlink("nowhere", folder / "a" / "8.jpg")
    done = index_folder(folder)
    assert (done.num_images, done.num_indexed) == (11, 6)


def test_progress_counts_to_the_end(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    index_folder(folder, num_threads=1, progress=lambda done, total: told.append((done, total)))
    assert told == [(i, 9) for i in range(10)]
