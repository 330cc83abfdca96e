"""Preparing a data set in this process: the same bytes however it is run, refusals, rejects, the report."""

import errno
import fcntl
import json
import os
import re
import socket
import tarfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.prepare.chunk import ChunkTask, prepare_chunk
from augpipe.datasets.prepare.engine_protocol import Watcher
from augpipe.datasets.prepare.output_folder import locked
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.run_plan import identify
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.prepare.tally import EDGES, TallyBuilder
from augpipe.datasets.shards.half_made import WORK_FOLDER
from augpipe.datasets.shards.manifest import Manifest
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.verify import verify
from augpipe.datasets.stats.channels import ChannelSums
from augpipe.decoding import MAX_PIXELS, decode, probe
from tests.augpipe.decoding.image_files import encoded, scene
from tests.datasets.prepare.prepare_sources import SETTINGS, InlineEngine, tree, write_photos
from tests.datasets.prepare.prepare_sources import prepare_inline as run

NUM = 96
"""Three shards."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data") / "photos", NUM)


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an undisturbed run makes."""
    out = tmp_path_factory.mktemp("whole") / "out"
    run(photos, out)
    return out


def refused(photos: Path, out: Path, *args: Any, **options: Any) -> str:
    before = tree(out) if out.is_dir() else {}
    with pytest.raises(ValueError, match=".") as caught:
        run(photos, out, *args, **options)
    if out.is_dir():
        assert tree(out).items() >= before.items()
    return str(caught.value)


@pytest.mark.slow
def test_the_shards_hold_the_source(photos: Path, whole: Path) -> None:
    assert not verify(whole, deep=True)
    manifest = Manifest.load(whole)
    assert (manifest.num_samples, manifest.num_rejected) == (NUM, 0)
    assert [scale.name for scale in manifest.scales] == ["32", "48"] and len(manifest.scales[0].shards) == 3
    assert set(os.listdir(whole)) == {"32", "48", "manifest.json", "rejects.csv", "report.html"}
    source, made = FolderSource(photos), ShardSource(whole, "48")
    assert list(made.classes) == list(source.classes)
    for sample_id in range(NUM):
        assert made.label(sample_id) == source.label(sample_id)
        data = source.read(sample_id)
        header = probe(data, max_pixels=MAX_PIXELS)
        short = min(header.height, header.width)
        assert made.size(sample_id) == (round(header.height * 48 / short), round(header.width * 48 / short))
        small = Image.fromarray(decode(data, header)[..., :3]).resize(made.size(sample_id)[::-1], Image.Resampling.BOX)
        jpeg = made.read(sample_id)
        found = decode(jpeg, probe(jpeg, max_pixels=MAX_PIXELS))[..., :3].astype(np.int16)
        assert np.abs(found - np.asarray(small, np.int16)).mean() < 6
    stem = Path(source.name(5)).stem
    assert made.name(5).endswith(f"/000000005-{stem}.jpg")


def test_notes_tell_of_the_original(photos: Path, whole: Path) -> None:
    with tarfile.open(whole / "32/000000.tar") as tar:
        file = tar.extractfile("000000000-0000.json")
        assert file is not None
        note = json.load(file)
    assert note == {
        "height": 32,
        "name": "class 0/0000.jpeg",
        "original_format": "JPEG",
        "original_height": 60,
        "original_width": 80,
        "width": 43,
    }


def test_mean_and_deviation_are_those_of_the_pixels_at_the_largest_scale(tmp_path: Path) -> None:
    images = [scene(48, 48 + number, number) for number in range(5)]
    manifest = prepare(ArraySource(images), tmp_path / "out", SETTINGS, engine=InlineEngine())
    pixels = np.concatenate([image.reshape(-1, 3) for image in images]) / 255
    np.testing.assert_allclose(manifest.mean, pixels.mean(axis=0))  # type: ignore[arg-type]
    np.testing.assert_allclose(manifest.std, pixels.std(axis=0))  # type: ignore[arg-type]
    height, width = manifest.histograms["height"], manifest.histograms["width"]
    assert height.counts[height.edges.index(32)] == 5 == sum(height.counts) == sum(width.counts)


def test_what_became_of_images_is_counted(photos: Path, tmp_path: Path) -> None:
    """In 96 with short sides of 60 to 66 pixels one is gray and one turned; those below 64 are enlarged to it."""
    for scale in ("48", "64"):
        (tmp_path / scale).mkdir()
    settings = PrepareSettings(scales=("48", "64"), upscale=True)
    task = ChunkTask(number=0, start=0, stop=NUM, folder=str(tmp_path), prefix="", settings=settings, raises=True)
    notes = prepare_chunk(FolderSource(photos), task).tally.notes
    sides = [60 + number % 7 for number in range(NUM)]
    assert notes == {"kept": sides.count(64), "gray": 1, "turned": 1, "enlarged": sum(side < 64 for side in sides)}


def test_an_image_at_an_edge_of_a_histogram_counts_above_it() -> None:
    tally = TallyBuilder()
    tally.add(0, 64, 128, ChannelSums(), [])
    tally.add(0, 1, 1, ChannelSums(), [])
    counted = {
        name: {edge for edge, num in zip(EDGES[name], counts, strict=False) if num}
        for name, counts in tally.build().histograms.items()
    }
    assert counted == {"height": {64, 1}, "width": {128, 1}, "aspect": {2.0, 0.9}}


def test_the_order_of_chunks_does_not_show(photos: Path, whole: Path, tmp_path: Path) -> None:
    run(photos, tmp_path / "out", engine=InlineEngine(backwards=True))
    assert tree(tmp_path / "out") == tree(whole)


def test_where_the_source_lies_does_not_show(
    photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos.parent)
    run(Path("photos"), tmp_path / "out")
    assert tree(tmp_path / "out") == tree(whole)


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_stopped_run_is_resumed(photos: Path, whole: Path, tmp_path: Path, done: int) -> None:
    out = tmp_path / "out"
    if done < 3:
        with pytest.raises(KeyboardInterrupt):
            run(photos, out, engine=InlineEngine(stop_before=done))
        assert "unfinished data set. Pass --resume" in refused(photos, out)
        assert not (out / "manifest.json").exists()
    engine, told = InlineEngine(), []
    run(photos, out, resume=True, engine=engine, watcher=Watcher(planned=lambda plan, num: told.append(num)))
    assert engine.done == list(range(done if done < 3 else 0, 3))
    assert len(told) == 1 and (told[0] > 0) == (0 < done < 3)
    assert tree(out) == tree(whole)


@pytest.mark.slow
def test_nothing_half_written_is_taken_for_whole(photos: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(photos, out, engine=InlineEngine(stop_before=2))
    tar, entry = out / "32/000000.tar", out / WORK_FOLDER / "000001.json"
    tar.write_bytes(tar.read_bytes()[:-512])  # no kill does that; whatever did, it is seen
    entry.write_bytes(entry.read_bytes()[:-20])
    (out / "48/000002.idx").unlink(missing_ok=True)
    (out / "48/.000002.tar.0123456789abcdef0123456789abcdef.tmp").write_bytes(b"half")
    engine = InlineEngine()
    run(photos, out, resume=True, engine=engine)
    assert engine.done == [0, 1, 2]
    assert tree(out) == tree(whole)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["32", "48"])
@pytest.mark.parametrize("suffix", ["tar", "idx"])
def test_a_shard_without_its_files_is_made_again(
    photos: Path, whole: Path, tmp_path: Path, scale: str, suffix: str
) -> None:
    """The journal says that it is done, and one of its files is gone."""
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(photos, out, engine=InlineEngine(stop_before=2))
    (out / scale / f"000000.{suffix}").unlink()
    engine = InlineEngine()
    run(photos, out, resume=True, engine=engine)
    assert engine.done == [0, 2]
    assert tree(out) == tree(whole)


def test_a_finished_data_set_is_left_as_it_is(photos: Path, whole: Path) -> None:
    before = tree(whole)
    engine = InlineEngine()
    assert run(photos, whole, resume=True, engine=engine) == Manifest.load(whole)
    assert engine.done == [] and tree(whole) == before
    assert "holds a finished data set. Name another folder, or remove it" in refused(photos, whole)


def test_a_run_that_was_killed_after_the_manifest_is_cleaned_up(photos: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(photos, out, engine=InlineEngine(stop_before=1))
    (out / "manifest.json").write_bytes((whole / "manifest.json").read_bytes())
    run(photos, out, resume=True)
    assert not (out / WORK_FOLDER).exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_finished", [False, True])
def test_other_settings_are_refused_by_name(photos: Path, tmp_path: Path, is_finished: bool) -> None:
    out = tmp_path / "out"
    try:
        run(photos, out, engine=InlineEngine(stop_before=9 if is_finished else 1))
    except KeyboardInterrupt:
        assert not is_finished
    changed = SETTINGS.model_copy(update={"quality": 80, "scales": ("32",)})
    message = refused(photos, out, changed, resume=True)
    assert "scales: 32,48 there, 32 asked for; quality: 90 there, 80 asked for. Ask for the same" in message
    (photos / "class 0/extra.jpg").write_bytes(encoded(scene(50, 50), "JPEG"))
    try:
        assert f"photographs in the source: {NUM} there, {NUM + 1} asked for" in refused(photos, out, resume=True)
    finally:
        (photos / "class 0/extra.jpg").unlink()
    moved = photos / "class 0/0000.jpeg"
    moved.rename(photos / "class 0/00000.jpeg")
    try:
        assert "names, labels and objects in the source (their SHA-256)" in refused(photos, out, resume=True)
    finally:
        (photos / "class 0/00000.jpeg").rename(moved)


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_source_that_was_relabelled_is_another_one(tmp_path: Path, is_finished: bool) -> None:
    images, labels = np.zeros((64, 8, 8, 3), np.uint8), np.arange(64) % 2
    settings = PrepareSettings(scales=("8",))
    try:
        engine = InlineEngine(stop_before=9 if is_finished else 1)
        prepare(ArraySource(images, labels), tmp_path / "out", settings, engine=engine)
    except KeyboardInterrupt:
        assert not is_finished
    labels[[2, 3]] = 1, 0
    with pytest.raises(ValueError, match=r"names, labels and objects in the source \(their SHA-256\)"):
        prepare(ArraySource(images, labels), tmp_path / "out", settings, engine=InlineEngine(), resume=True)


class Listed:
    """A source of names, labels and classes; a label of None is a damaged one."""

    def __init__(self, names: list[str], labels: list[int | None], classes: list[str]) -> None:
        self.names, self.given, self.classes = names, labels, classes

    def __len__(self) -> int:
        return len(self.names)

    def read(self, sample_id: int) -> bytes:
        raise AssertionError("names and labels are all that a source is known by")

    def label(self, sample_id: int) -> int:
        label = self.given[sample_id]
        if label is None:
            raise ValueError("damaged")
        return label

    def name(self, sample_id: int) -> str:
        return self.names[sample_id]


def test_what_a_source_is_known_by() -> None:
    sources = [
        Listed(["a", "b"], [0, 1], ["cat", "dog"]),
        Listed(["a", "b"], [1, 0], ["cat", "dog"]),
        Listed(["a", "b"], [0, -1], ["cat", "dog"]),
        Listed(["a", "b"], [0, None], ["cat", "dog"]),
        Listed(["b", "a"], [0, 1], ["cat", "dog"]),
        Listed(["a", "b"], [0, 1], ["dog", "cat"]),
        Listed(["a", "b"], [0, 1], ["catd", "og"]),
        Listed(["a", "b"], [0, 1], ["cat", "dog", "eel"]),
        Listed(["a0:1:b", "c"], [0, 0], []),
        Listed(["a", "b0:1:c"], [0, 0], []),
        Listed(["a0:b", "c"], [0, 0], []),
        Listed(["a", "b0:c"], [0, 0], []),
    ]
    known_by = {identify(source, "").names_sha256 for source in sources}
    assert len(known_by) == len(sources)
    moved = Listed(["/there/a", "/there/b"], [0, 1], ["cat", "dog"])
    assert identify(moved, "/there/") == identify(sources[0], "")


def test_other_versions_are_refused(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(photos, out, engine=InlineEngine(stop_before=1))
    monkeypatch.setattr("augpipe.datasets.prepare.run_plan.__version__", "9.9")
    assert re.search(r"version of augpipe: \S+ there, 9\.9 asked for", refused(photos, out, resume=True))


def test_what_is_not_ours_is_left_alone(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").write_text("three years")
    assert "is not empty and holds no data set of ours ('thesis.tex')" in refused(photos, tmp_path / "full")
    assert "is not empty" in refused(photos, tmp_path / "full", resume=True)
    assert "is a file, and shards go to a folder" in refused(photos, tmp_path / "full/thesis.tex")
    assert "lies in the source" in refused(photos, photos / "out")
    assert "lies in the source" in refused(photos, photos)
    assert tree(tmp_path / "full") == {"thesis.tex": b"three years"}
    with pytest.raises(ValueError, match="on_error='ignore' is neither"):
        run(photos, tmp_path / "out", on_error="ignore")


def test_one_run_at_a_time(photos: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with locked(str(out)):
        message = refused(photos, out, resume=True)
    assert f"another augpipe prepare (process {os.getpid()} on " in message and "is at work in" in message
    run(photos, out)
    assert tree(out) == tree(whole)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_lock_that_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    """The run that held it finishes between this one's opening and locking it; perhaps a third one has begun."""
    lock = tmp_path / WORK_FOLDER / "lock"
    take = fcntl.flock

    def take_late(descriptor: int, operation: int) -> None:
        lock.unlink()
        if is_taken:
            lock.write_bytes(b"")
        take(descriptor, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", take_late)
        with pytest.raises(ValueError, match="another augpipe prepare is at work in "), locked(str(tmp_path)):
            raise AssertionError("two runs are at work")
    lock.write_text("process 1234567890 on some.other.machine")  # killed: it holds nothing
    with locked(str(tmp_path)):
        assert lock.read_text() == f"process {os.getpid()} on {socket.gethostname()}"


@pytest.mark.parametrize(("num_done", "what"), [(1, "an unfinished"), (9, "a finished")])
def test_a_run_that_came_and_went_meanwhile_is_noticed(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_done: int, what: str
) -> None:
    """Between this one's first look at the folder and its lock."""
    out = tmp_path / "out"

    def locked_late(folder: str) -> AbstractContextManager[None]:
        monkeypatch.undo()
        with suppress(KeyboardInterrupt):
            run(photos, out, engine=InlineEngine(stop_before=num_done))
        return locked(folder)

    monkeypatch.setattr("augpipe.datasets.prepare.prepare.locked", locked_late)
    with pytest.raises(ValueError, match=f"holds {what} data set"):
        run(photos, out)


def test_the_lock_outlives_all_else_of_the_work_folder(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    unlink = os.unlink

    def note_unlink(path: str) -> None:
        removed.append(os.path.basename(path))
        unlink(path)

    monkeypatch.setattr("augpipe.datasets.prepare.output_folder.os.unlink", note_unlink)
    run(photos, tmp_path / "out")
    assert removed == ["000000.json", "000001.json", "000002.json", "plan.json", "lock"]


def test_the_disk_fills_up(photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    written: list[int] = []

    def full(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) == 30:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("augpipe.datasets.files.atomic.os.fsync", full)
        with pytest.raises(OSError, match="No space left") as caught:
            run(photos, out)
    assert str(out) in caught.value.filename
    assert not [name for name in tree(out) if name.endswith(".tmp")]
    run(photos, out, resume=True)
    assert tree(out) == tree(whole)


@pytest.mark.slow
def test_shards_are_about_as_long_as_asked_for(tmp_path: Path) -> None:
    images = [scene(120, 160, number) for number in range(80)]
    settings = PrepareSettings(scales=("100",), shard_bytes=150_000)
    manifest = prepare(ArraySource(images), tmp_path / "out", settings, engine=InlineEngine())
    sizes = [shard.num_bytes for shard in manifest.scales[0].shards]
    assert len(sizes) > 3 and all(110_000 < size < 180_000 for size in sizes), sizes


def test_a_shard_holds_an_image_however_large_that_is(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (2, 400, 400, 3), np.uint8)
    settings = PrepareSettings(scales=("400",), quality=95, shard_bytes=100_000)
    manifest = prepare(ArraySource(noise), tmp_path / "out", settings, engine=InlineEngine())
    (scale,) = manifest.scales
    assert [(shard.name, shard.num_samples) for shard in scale.shards] == [("000000.tar", 1), ("000001.tar", 1)]
    assert min(shard.num_bytes for shard in scale.shards) > 150_000


def test_our_own_shards_are_kept_byte_by_byte(whole: Path, tmp_path: Path) -> None:
    source = ShardSource(whole, "48")
    prepare(source, tmp_path / "out", PrepareSettings(scales=("full",)), engine=InlineEngine())
    made = ShardSource(tmp_path / "out")
    assert [made.read(sample_id) for sample_id in range(NUM)] == [source.read(sample_id) for sample_id in range(NUM)]


@pytest.mark.parametrize("num_renames", range(0, 19, 3))  # plan, 3 x (4 files, journal), rejects, report, manifest
def test_killed_at_any_step(
    photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_renames: int
) -> None:
    """Everything that a run makes gets its name by a rename, so the states between renames are all that there are."""

    class KilledError(BaseException):
        pass

    out = tmp_path / "out"
    made: list[str] = []
    rename = os.replace

    def killed(source: str, target: str) -> None:
        if len(made) == num_renames:
            raise KilledError
        rename(source, target)
        made.append(target)

    with monkeypatch.context() as patch:
        patch.setattr("augpipe.datasets.files.atomic.os.replace", killed)
        patch.setattr("augpipe.datasets.files.atomic.AtomicFile.discard", lambda file: file._file.close())
        patch.setattr("augpipe.datasets.prepare.prepare.sweep", lambda folder, plan: None)
        with pytest.raises(KilledError):
            run(photos, out)
    assert any(name.endswith(".tmp") for name in tree(out))
    run(photos, out, resume=True)
    assert tree(out) == tree(whole)


def test_killed_before_the_folders_are_made(
    photos: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("augpipe.datasets.prepare.prepare.make_scale_folders", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(photos, tmp_path / "out")
    run(photos, tmp_path / "out", resume=True)
    assert tree(tmp_path / "out") == tree(whole)
