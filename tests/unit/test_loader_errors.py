"""Photographs that cannot be used: `on_error="raise"` names them, `"skip"` replaces them, and nothing hangs."""

import logging
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe, SampleError, View, recipes
from augpipe.datasets.folder import FolderSource
from augpipe.ops import CenterCrop, Flip
from tests.unit.loader_sources import (
    CENTRE,
    PAPER,
    SEVERAL_VIEWS,
    TIMEOUT_S,
    MemorySource,
    assert_no_worker_threads,
    ids_of,
    jpegs,
    samples,
    truncated,
)
from tests.unit.picture_files import bad_files, encoded, odd_files, scene, write_files

NUM = 24
TEXT = b"this is no picture"
GOOD = jpegs(NUM)
# at the start, neighbours of both kinds, and the last one, whose replacement is the first that can be used
BAD: dict[int, Any] = {0: TEXT, 5: TEXT, 6: truncated(), 7: truncated(), 8: b"", 15: truncated(), 23: truncated()}
REPLACEMENTS = {0: 1, 5: 9, 6: 9, 7: 9, 8: 9, 15: 16, 23: 1}


def contents(bad: dict[int, Any]) -> list[Any]:
    return [bad.get(i, good) for i, good in enumerate(GOOD)]


def make(bad: dict[int, Any], recipe: Recipe = PAPER, **options: Any) -> Loader:
    settings = {"batch_size": 4, "framework": "numpy", "num_threads": 2, "on_error": "skip", "seed": 9} | options
    return Loader(MemorySource(contents(bad)), recipe, **settings)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# on_error="raise"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (TEXT, "photo 5.jpg: not a picture: it begins with b'this is no pictu'"),
        (b"", "photo 5.jpg: the file is empty (0 bytes)"),
        (truncated(), "photo 5.jpg: truncated JPEG: "),
        (FileNotFoundError(2, "No such file or directory", "/x"), "photo 5.jpg: No such file or directory"),
        (PermissionError(13, "Permission denied", "/x"), "photo 5.jpg: Permission denied"),
        (OSError("the disk is gone"), "photo 5.jpg: the disk is gone"),
        (ValueError("no such record"), "photo 5.jpg: no such record"),
        (TimeoutError(), "photo 5.jpg: TimeoutError"),
        (np.zeros((3, 4, 5, 6), np.uint8), "photo 5.jpg: the array has shape (3, 4, 5, 6), and must be (H, W)"),
        (np.zeros((3, 40, 50), np.uint8), "must be (H, W), (H, W, 1), (H, W, 3) or (H, W, 4). Move its channels last"),
        (np.zeros((40, 50, 3)), "photo 5.jpg: the array is float64, and must be uint8 with values in 0..255"),
        (np.zeros((0, 50, 3), np.uint8), "photo 5.jpg: the array has shape (0, 50, 3), which holds no pixels"),
    ],
)
def test_raising_names_the_photograph_and_the_reason(bad: Any, message: str) -> None:
    loader = make({5: bad}, on_error="raise", shuffle=False)
    running = iter(loader)
    assert ids_of([next(running)]) == [0, 1, 2, 3]
    with pytest.raises(SampleError) as caught:
        next(running)
    assert message in str(caught.value)
    assert caught.value.name == "photo 5.jpg"
    assert caught.value.__cause__ is not None or isinstance(bad, bytes)
    assert next(running, None) is None
    assert_no_worker_threads()


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize(
    ("bad", "first"),
    [
        ({5: TEXT, 6: b""}, 5),
        ({6: TEXT, 4: truncated(), 7: b""}, 6),  # headers are looked at before anything is decoded
        ({7: truncated(), 6: truncated(1)}, 6),
        ({4: TEXT, 1: truncated(), 9: TEXT}, 1),  # a batch is finished before the next one counts
    ],
)
def test_of_several_bad_ones_always_the_same_is_named(bad: dict[int, Any], first: int, num_threads: int) -> None:
    for _ in range(5):
        with pytest.raises(SampleError, match=f"^photo {first}.jpg: "):
            list(make(bad, on_error="raise", shuffle=False, num_threads=num_threads, prefetch=3))


def test_the_first_bad_one_is_named_even_where_a_later_one_fails_earlier() -> None:
    later_failed = threading.Event()

    class Uneven(MemorySource):
        def read(self, sample_id: int) -> Any:
            if sample_id == 4:
                assert later_failed.wait(TIMEOUT_S)
            if sample_id == 7:
                later_failed.set()
            return super().read(sample_id)

    source = Uneven(contents({4: TEXT, 7: TEXT}))
    loader = Loader(source, PAPER, batch_size=4, framework="numpy", num_threads=2, prefetch=1, shuffle=False)
    with pytest.raises(SampleError, match="^photo 4.jpg: "):
        list(loader)


def test_a_loader_goes_on_working_after_an_error() -> None:
    loader = make({5: TEXT}, on_error="raise", shuffle=False)
    for _ in range(2):
        running = iter(loader)
        next(running)
        with pytest.raises(SampleError):
            next(running)
        assert loader.state_dict()["samples_consumed"] == 4
    loader.source.contents[5] = GOOD[5]  # type: ignore[union-attr]
    assert ids_of(loader) == list(range(NUM))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("error", [KeyError("shard_7"), RuntimeError("closed"), AssertionError(), MemoryError()])
def test_a_bug_in_a_source_surfaces_as_it_is(on_error: Any, error: Exception) -> None:
    loader = make({5: error}, on_error=on_error, shuffle=False)
    with pytest.raises(type(error)) as caught:
        list(loader)
    assert caught.value is error
    assert any(frame.name == "read" and "loader_sources" in frame.filename for frame in traceback.extract_tb(caught.tb))
    assert_no_worker_threads()


@pytest.mark.parametrize("method", ["name", "label"])
def test_a_bug_in_a_sources_names_or_labels_surfaces_too(method: str) -> None:
    class Broken(MemorySource):
        pass

    def fail(self: Any, sample_id: int) -> Any:
        raise KeyError(f"no {method} of {sample_id}")

    setattr(Broken, method, fail)
    loader = Loader(Broken(contents({5: TEXT})), PAPER, batch_size=4, shuffle=False, framework="numpy")
    with pytest.raises(KeyError, match=f"no {method} of {5 if method == 'name' else 0}"):
        list(loader)
    assert_no_worker_threads()


@pytest.mark.parametrize("content", [None, "path/to/photo.jpg", 7])
def test_a_source_that_gives_neither_bytes_nor_an_array_is_told_so(content: Any) -> None:
    with pytest.raises(TypeError, match=type(content).__name__):
        list(make({5: content}, on_error="raise"))
    assert_no_worker_threads()


def test_exits_within_a_source_are_passed_on() -> None:
    with pytest.raises(SystemExit):
        list(make({5: SystemExit(3)}))
    assert_no_worker_threads()


# on_error="skip"


@pytest.mark.parametrize("recipe", [PAPER, CENTRE], ids=lambda recipe: recipe.name)
def test_skipping_puts_the_next_usable_photograph_in_the_place(recipe: Recipe) -> None:
    whole = dict(samples(make({}, recipe, shuffle=False)))
    loader = make(BAD, recipe, shuffle=False)
    found = samples(loader)
    expected = [REPLACEMENTS.get(i, i) for i in range(NUM)]
    assert [sample_id for sample_id, _ in found] == expected
    assert found == [(i, whole[i]) for i in expected]
    again = list(make(BAD, shuffle=False))
    assert [label for batch in again for label in batch.labels] == [10 * i for i in expected]
    assert [i for batch in again for i in batch.plan.sample_ids] == expected


@pytest.mark.parametrize("recipe", [PAPER, SEVERAL_VIEWS], ids=lambda recipe: recipe.name)
def test_replacements_do_not_depend_on_how_the_epoch_is_cut(recipe: Recipe) -> None:
    reference = samples(make(BAD, recipe, batch_size=1, num_threads=1))
    assert len(reference) == NUM
    assert not {sample_id for sample_id, _ in reference} & set(BAD)
    for batch_size, num_threads in ((7, 1), (7, 2), (32, 3)):
        assert samples(make(BAD, recipe, batch_size=batch_size, num_threads=num_threads)) == reference
    for world_size in (2, 3):
        ranks = [samples(make(BAD, recipe, world_size=world_size, rank=rank)) for rank in range(world_size)]
        assert sorted(sample for rank in ranks for sample in rank) == sorted(reference)


def test_a_resume_replaces_alike() -> None:
    loader = make(BAD)
    running = iter(loader)
    start = samples([next(running), next(running)])
    other = make(BAD, batch_size=5)
    other.load_state_dict(loader.state_dict())
    assert start + samples(other) == samples(make(BAD))


@pytest.mark.parametrize("batch_size", [1, 3, 24])
def test_skips_are_told_once_and_counted_each_epoch(caplog: pytest.LogCaptureFixture, batch_size: int) -> None:
    loader = make(BAD, batch_size=batch_size, shuffle=False)
    list(loader)
    told = warnings_of(caplog)
    assert [line.split(",")[0] for line in told[:-1]] == [f"skipped sample {i}" for i in BAD]
    assert told[0].startswith("skipped sample 0, photo 0.jpg: not a picture")
    assert told[2].startswith("skipped sample 6, photo 6.jpg: truncated JPEG")
    assert told[-1] == "epoch 0: 7 photographs were skipped"
    assert list(loader.skipped) == list(BAD)
    assert loader.skipped[8] == "photo 8.jpg: the file is empty (0 bytes)"
    caplog.clear()
    list(loader)
    assert warnings_of(caplog) == ["epoch 1: 7 photographs were skipped"]


def test_nothing_is_said_where_nothing_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    loader = make({})
    list(loader)
    assert warnings_of(caplog) == []
    assert loader.skipped == {}


def test_a_photograph_that_recovers_is_used_again() -> None:
    loader = make({5: OSError("busy")}, shuffle=False)
    assert 5 not in ids_of(loader)
    loader.source.contents[5] = GOOD[5]  # type: ignore[union-attr]
    loader.set_epoch(0)
    assert ids_of(loader) == list(range(NUM))


@pytest.mark.parametrize("num", [1, 2, 40])
@pytest.mark.parametrize("kind", ["header", "pixels", "both", "unreadable"])
def test_a_source_without_any_usable_photograph_is_an_error(kind: str, num: int) -> None:
    one = {"header": TEXT, "pixels": truncated(), "unreadable": OSError("busy"), "both": TEXT}[kind]
    source = MemorySource([truncated() if kind == "both" and i % 2 else one for i in range(num)])
    loader = Loader(source, PAPER, batch_size=4, framework="numpy", on_error="skip", shuffle=False, num_threads=2)
    with pytest.raises(SampleError) as caught:
        list(loader)
    assert caught.value.name == "photo 0.jpg"
    reason = {"pixels": "truncated JPEG", "unreadable": "busy"}.get(kind, "not a picture")
    assert "cannot be used" in caught.value.reason
    assert reason in caught.value.reason
    assert source.num_reads < 5000
    assert_no_worker_threads()


@pytest.mark.parametrize("usable", [0, 17, 39])
def test_one_usable_photograph_is_enough(usable: int) -> None:
    source = MemorySource([GOOD[0] if i == usable else (truncated(), TEXT)[i % 2] for i in range(40)])
    loader = Loader(source, CENTRE, batch_size=4, framework="numpy", on_error="skip", num_threads=2)
    assert ids_of(loader) == [usable] * 40
    assert sorted(loader.skipped) == [i for i in range(40) if i != usable]


def test_photographs_that_the_recipe_cannot_use_are_skipped_as_well() -> None:
    recipe = Recipe(ops=(CenterCrop(size=30), Flip()))
    bad = {3: scene(29, 60), 4: encoded(scene(60, 20), "JPEG")}
    loader = make(bad, recipe, shuffle=False)
    assert ids_of(loader) == [5 if i in bad else i for i in range(NUM)]
    assert loader.skipped[3].startswith("photo 3.jpg: the photograph is 29x60 pixels, smaller than the crop of 30x30.")
    with pytest.raises(SampleError, match="Give center_crop a scale to resize it first, or lower size."):
        list(make(bad, recipe, on_error="raise"))


def test_one_view_that_cannot_use_a_photograph_is_enough_to_refuse_it() -> None:
    recipe = Recipe(views=(View(ops=(CenterCrop(size=10),)), View(ops=(CenterCrop(size=30),))))
    loader = make({3: scene(29, 60)}, recipe, shuffle=False)
    assert ids_of(loader)[3] == 4


def test_photographs_over_the_limit_are_refused_before_they_are_decoded() -> None:
    large = encoded(scene(100, 120), "PNG")
    loader = make({2: large, 3: bad_files()["bomb.png"][0]}, CENTRE, shuffle=False, max_pixels=11_999)
    assert ids_of(loader)[:5] == [0, 1, 4, 4, 4]
    assert "claims 120x100 = 12000 pixels, more than max_pixels=11999" in loader.skipped[2]
    assert "claims 60000x60000" in loader.skipped[3]
    assert 2 in ids_of(make({2: large}, CENTRE, max_pixels=12_000))


def test_replacements_of_one_size_in_batches_of_whole_photographs() -> None:
    pictures = [encoded(scene(60, 50, i), "JPEG") for i in range(6)]
    pictures[2], pictures[4] = truncated(), TEXT  # also 60x50
    loader = Loader(MemorySource(pictures), recipes.none(), batch_size=6, framework="numpy", on_error="skip")
    (batch,) = loader
    assert sorted(batch.sample_ids) == [0, 1, 3, 3, 5, 5]


def test_a_replacement_of_another_size_does_not_fit_a_batch_of_whole_photographs() -> None:
    pictures = [encoded(scene(60, 50, 0), "JPEG"), truncated(), encoded(scene(30, 40), "JPEG")]
    loader = Loader(
        MemorySource(pictures), recipes.none(), batch_size=2, framework="numpy", on_error="skip", shuffle=False
    )
    with pytest.raises(ValueError, match="photo 2.jpg.*30x40.*Add a crop to the recipe"):
        list(loader)


def test_a_replacement_may_be_of_another_size_in_batches_of_one() -> None:
    pictures = [truncated(), TEXT, encoded(scene(30, 40), "JPEG")]
    loader = Loader(
        MemorySource(pictures), recipes.none(), batch_size=1, framework="numpy", on_error="skip", shuffle=False
    )
    assert [batch.images.shape for batch in loader] == [(1, 3, 30, 40)] * 3


# Files


def test_a_folder_of_bad_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = {name: data for name, (data, _) in bad_files().items()}
    odd = {name: data for name, (data, _) in odd_files().items()}
    write_files(tmp_path, bad | odd)
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    source = FolderSource(tmp_path)
    is_bad = [Path(source.name(i)).name in {*bad, "gone.jpg"} for i in range(len(source))]
    assert sum(is_bad) == len(bad) + 1
    loader = Loader(source, PAPER, batch_size=5, framework="numpy", on_error="skip")
    for _ in range(2):
        seen = [Path(source.name(i)).name for i in ids_of(loader)]
        assert len(seen) == len(source)
        assert set(seen) == set(odd)
    assert sorted(loader.skipped) == np.flatnonzero(is_bad).tolist()
    assert len(warnings_of(caplog)) == sum(is_bad) + 2
    for name, (_, reason) in bad_files().items():
        with pytest.raises(SampleError, match=f"{name}: {reason}"):
            list(Loader(tmp_path / name, PAPER, batch_size=1, framework="numpy"))


def test_a_folder_in_the_place_of_a_file_and_a_file_deleted_after_listing(tmp_path: Path) -> None:
    paths = write_files(tmp_path, {f"{i}.jpg": GOOD[i] for i in range(6)})
    source = FolderSource(tmp_path)
    paths[1].unlink()
    paths[3].unlink()
    paths[3].mkdir()
    loader = Loader(source, PAPER, batch_size=4, framework="numpy", on_error="skip", shuffle=False)
    assert ids_of(loader) == [0, 2, 2, 4, 4, 5]
    assert loader.skipped == {1: f"{paths[1]}: No such file or directory", 3: f"{paths[3]}: Is a directory"}
    with pytest.raises(SampleError, match=r"1.jpg: No such file or directory$"):
        list(Loader(source, PAPER, batch_size=4, framework="numpy", shuffle=False))


def test_real_photographs_with_damage_among_them(photos_dir: Path) -> None:
    files = [path.read_bytes() for path in sorted(photos_dir.iterdir())[:30]]
    for i in (3, 4, 17):
        files[i] = files[i][: len(files[i]) * 3 // 4]
    files[9] = files[9][:200]
    recipe = recipes.deep_image(32, (40,))
    make_loader = {"framework": "numpy", "on_error": "skip", "seed": 2}
    reference = samples(Loader(MemorySource(files), recipe, batch_size=1, num_threads=1, **make_loader))  # type: ignore[arg-type]
    loader = Loader(MemorySource(files), recipe, batch_size=8, num_threads=2, **make_loader)  # type: ignore[arg-type]
    assert samples(loader) == reference
    assert sorted(loader.skipped) == [3, 4, 9, 17]
