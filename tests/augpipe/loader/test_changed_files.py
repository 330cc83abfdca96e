"""Files that change while a loader lives: refused by name as a pass begins, and where one is read again."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from augpipe import Loader, Place, TargetOptions
from augpipe.cache import file_stamps
from augpipe.cache.file_stamps import FileStamps
from augpipe.datasets.annotations.label_map_source import LabelMapSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.sources import Concat, Subset
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.loader_sources import CENTRE, MemorySource, ids_of, jpegs, samples

NUM = 6


def picture(seed: int) -> bytes:
    return encoded(scene(40, 50, seed), "PNG")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(NUM):
        (tmp_path / "photos" / f"{number}.png").write_bytes(picture(number))
    return tmp_path / "photos"


def make(source: Any, **options: Any) -> Loader:
    settings = {"batch_size": 2, "framework": "numpy", "num_threads": 2, "cache_bytes": 10**6} | options
    if settings.get("cache", "off") == "off":
        del settings["cache_bytes"]
    return Loader(source, CENTRE, **settings)


def write_in_place(path: Path) -> None:
    path.write_bytes(picture(99))


def put_another_there(path: Path) -> None:
    path.with_suffix(".new").write_bytes(picture(99))
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize("replace", [write_in_place, put_another_there])
@pytest.mark.parametrize("cache", ["host", "device"])
def test_a_replaced_file_is_not_served_from_a_cache(folder: Path, cache: str, replace: Any) -> None:
    loader = make(folder, cache=cache)
    assert len(ids_of(loader)) == len(ids_of(loader)) == NUM
    replace(folder / "3.png")
    message = r"3\.png: it has changed since it was read into the cache: it had .* bytes.* Make a new Loader"
    for places in (False, True):
        with pytest.raises(ValueError, match=message):
            next(loader.batches([Place(epoch=0, first=0)]) if places else iter(loader))
    assert samples(make(folder, cache=cache)) == samples(make(folder))


def test_parts_of_folders_are_looked_at_too(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "more")
    both = Concat([Subset(FolderSource(folder), [4, 2]), FolderSource(tmp_path / "more")])
    loader = make(both, cache="host")
    list(loader)
    write_in_place(folder / "3.png")  # not among them
    list(loader)
    write_in_place(folder / "2.png")
    with pytest.raises(ValueError, match=r"photos/2\.png: it has changed"):
        list(loader)


def with_label_maps(folder: Path, outer: Path) -> LabelMapSource:
    """The images with a label map each, which holds its number."""
    (outer / "masks").mkdir()
    for number in range(NUM):
        Image.new("L", (50, 40), number).save(outer / f"masks/{number}.png")
    return LabelMapSource(folder, outer / "masks")


@pytest.mark.parametrize("level", [7, 255])
def test_a_replaced_label_map_is_not_served_from_a_cache(folder: Path, tmp_path: Path, level: int) -> None:
    """Also where the new file has as many bytes."""
    source = Concat([Subset(with_label_maps(folder, tmp_path), range(NUM))])
    loader = make(source, cache="host", targets=TargetOptions())
    for _ in range(2):
        assert sorted(int(each) for batch in loader for each in batch.targets.max(axis=(1, 2))) == [*range(NUM)]
    mask = tmp_path / "masks/3.png"
    Image.new("L", (50, 40), level).save(mask)
    os.utime(mask, ns=(0, 10**9))  # older than its image, as `rsync -t` may leave it
    with pytest.raises(ValueError, match=r"3\.png: its label map has changed since it was read into the cache: it ha"):
        list(loader)


def test_a_label_map_that_nobody_reads_may_be_replaced(folder: Path, tmp_path: Path) -> None:
    loader = make(with_label_maps(folder, tmp_path), cache="host", targets="off")
    expected = samples(loader)
    Image.new("L", (50, 40), 7).save(tmp_path / "masks/3.png")
    loader.set_epoch(0)
    assert samples(loader) == expected
    write_in_place(folder / "3.png")
    with pytest.raises(ValueError, match=r"3\.png: it has changed since it was read into the cache"):
        list(loader)


def test_label_maps_are_looked_at_between_passes_where_images_have_no_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LabelMapSource, "stamp", lambda self, sample_id: None)
    stamps = FileStamps(with_label_maps(folder, tmp_path), label_maps=True)
    assert stamps.note(3) == ""
    stamps.check()
    Image.new("L", (51, 40), 7).save(tmp_path / "masks/3.png")
    with pytest.raises(ValueError, match=r"3\.png: its label map has changed since it was read into the cache"):
        stamps.check()


def test_an_image_that_is_replaced_is_noticed_where_its_label_map_is_newer(folder: Path, tmp_path: Path) -> None:
    source = with_label_maps(folder, tmp_path)
    for mask in (tmp_path / "masks").iterdir():
        os.utime(mask, ns=(0, 2 * 10**18))
    stamps, image = FileStamps(source, label_maps=True), Path(source.path(3))
    os.utime(image, ns=(0, 10**18))
    assert stamps.note(3) == stamps.note(3) == ""
    os.utime(image, ns=(0, 10**18 + 1))
    assert stamps.note(3).startswith("it has changed since it was read into the cache: it has ")
    (tmp_path / "masks/4.png").unlink()
    assert stamps.note(4) == ""
    os.utime(source.path(4), ns=(0, 1))
    assert stamps.note(4) != ""


def test_without_a_cache_the_new_file_is_read(folder: Path) -> None:
    loader = make(folder)
    list(loader)
    write_in_place(folder / "3.png")
    loader.set_epoch(0)
    assert samples(loader) == samples(make(folder))


def test_a_file_that_is_gone_is_served_as_it_was(folder: Path) -> None:
    loader = make(folder, cache="host")
    expected = samples(loader)
    (folder / "3.png").unlink()
    loader.set_epoch(0)
    assert samples(loader) == expected


def test_a_file_that_is_read_again_must_be_the_same(folder: Path) -> None:
    stamps = FileStamps(FolderSource(folder))
    assert stamps.note(3) == stamps.note(3) == ""
    write_in_place(folder / "3.png")
    assert stamps.note(3).startswith("it has changed since it was read into the cache: it had ")
    (folder / "4.png").unlink()
    assert stamps.note(4) == ""  # reading it says so


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_file_that_changes_amid_a_pass_and_has_no_room_is_named(folder: Path, on_error: Any) -> None:
    places = [Place(epoch=0, first=0)] * 4
    loader = make(folder, cache="host", cache_bytes=0, batch_size=NUM, prefetch=1, num_threads=1, on_error=on_error)
    running = loader.batches(places)
    next(running)
    put_another_there(folder / "3.png")  # at once: half a file has another reason
    if on_error == "skip":
        list(running)
        assert set(loader.skipped) == {3} and "it has changed since it was read" in loader.skipped[3]
    else:
        with pytest.raises(ValueError, match=r"3\.png: it has changed"):
            list(running)


def test_what_takes_long_goes_on_in_the_next_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_stamps, "CHECK_S", 0.0)
    monkeypatch.setattr(file_stamps, "LEAST_CHECKED", 2)
    stamps = FileStamps(FolderSource(folder))
    for sample_id in range(NUM):
        assert stamps.note(sample_id) == ""
    stamps.check()
    write_in_place(folder / "5.png")
    stamps.check()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"5\.png: it has changed"):
            stamps.check()


def test_a_source_that_watches_its_files_is_asked_as_each_pass_begins() -> None:
    class Watched(MemorySource):
        num_asked = 0
        reason = ""

        def check_unchanged(self) -> None:
            self.num_asked += 1
            if self.reason:
                raise ValueError(self.reason)

    source = Watched(jpegs(NUM))
    loader = make(source)
    for number in (1, 2):
        list(loader)
        assert source.num_asked == number
    list(loader.batches([Place(epoch=0, first=0)]))
    assert source.num_asked == 3
    source.reason = "shard 3 was written anew"
    with pytest.raises(ValueError, match="shard 3 was written anew"):
        list(loader)
    around = Concat([Subset(source, [1]), MemorySource(jpegs(2))])
    with pytest.raises(ValueError, match="shard 3 was written anew"):
        list(make(around))
    assert loader.epoch == 2
