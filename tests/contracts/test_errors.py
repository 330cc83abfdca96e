"""Images that cannot be used, on every backend: `on_error` raises or replaces, the same one is named, nothing hangs."""

import pickle
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Recipe, SampleError, View, recipes
from augpipe.datasets.formats.folder import FolderSource
from augpipe.ops import CenterCrop, Flip, MultiResolutionCrop
from tests.augpipe.decoding.image_files import bad_files, encoded, jpeg_kinds, odd_files, scene, write_files
from tests.augpipe.loader.loader_sources import (
    TEXT,
    TIMEOUT_S,
    MemorySource,
    assert_no_worker_threads,
    ids_of,
    samples,
    truncated,
    views_of,
    without_tables,
)
from tests.contracts.backends import CENTRE, JPEGS, VIEWS, Backend, plain, warnings_of

NUM = len(JPEGS)


# at the start, neighbours of every kind, and the last one, whose replacement is the first that can be used
BAD: dict[int, Any] = {0: TEXT, 4: without_tables(), 5: truncated(), 6: truncated(1), 7: b"", 11: without_tables(1)}
BAD[15] = truncated(2)
REPLACEMENTS = {0: 1, 4: 8, 5: 8, 6: 8, 7: 8, 11: 12, 15: 1}
SKIP: dict[str, Any] = {"on_error": "skip"}
IN_ORDER: dict[str, Any] = {"shuffle": False}


def contents(bad: dict[int, Any]) -> list[Any]:
    return [bad.get(i, good) for i, good in enumerate(JPEGS)]


# on_error="raise"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (TEXT, "photo 5.jpg: not a picture: it begins with b'this is no pictu'"),
        (b"", "photo 5.jpg: the file is empty (0 bytes)"),
        (truncated(), "photo 5.jpg: truncated JPEG: "),
        (without_tables(), "photo 5.jpg: "),
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
def test_raising_names_the_image_and_the_reason(backend: Backend, bad: Any, message: str) -> None:
    said = []
    for made in (backend.loader, plain):
        running = iter(made(contents({5: bad}), CENTRE, **IN_ORDER))
        assert ids_of([next(running)]) == [0, 1, 2, 3]
        with pytest.raises(SampleError) as caught:
            next(running)
        said.append(str(caught.value))
        assert caught.value.name == "photo 5.jpg"
        assert caught.value.__cause__ is not None or isinstance(bad, bytes)
        assert next(running, None) is None
        assert_no_worker_threads()
    assert said[0] == said[1] and message in said[0]


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize(
    ("bad", "first"),
    [
        ({5: TEXT, 6: b""}, 5),
        ({6: without_tables(), 4: truncated(), 7: b""}, 7),  # headers are looked at before anything is decoded
        ({7: without_tables(), 6: truncated(1)}, 6),
        ({4: TEXT, 1: truncated(), 9: TEXT}, 1),  # a batch is finished before the next one counts
        ({15: truncated()}, 15),
    ],
)
def test_of_several_bad_ones_always_the_same_is_named(
    backend: Backend, bad: dict[int, Any], first: int, num_threads: int
) -> None:
    said = []
    for made in (backend.loader, backend.loader, plain):
        loader, seen = made(contents(bad), CENTRE, **IN_ORDER, num_threads=num_threads, prefetch=3), []
        with pytest.raises(SampleError, match=f"^photo {first}.jpg: ") as caught:
            seen.extend(sample_id for batch in loader for sample_id in batch.sample_ids.tolist())
        said.append((str(caught.value), seen, loader.state_dict()))
    assert said[0] == said[1] == said[2]


def test_the_first_bad_one_is_named_even_where_a_later_one_fails_earlier(backend: Backend) -> None:
    later_failed = threading.Event()

    class Uneven(MemorySource):
        def read(self, sample_id: int) -> Any:
            if sample_id == 4:
                assert later_failed.wait(TIMEOUT_S)
            if sample_id == 7:
                later_failed.set()
            return super().read(sample_id)

    loader = backend.of(Uneven(contents({4: TEXT, 7: TEXT})), CENTRE, prefetch=1, **IN_ORDER)
    with pytest.raises(SampleError, match="^photo 4.jpg: "):
        list(loader)


def test_a_loader_goes_on_working_after_an_error(backend: Backend) -> None:
    loader = backend.loader(contents({5: without_tables(), 13: truncated()}), CENTRE, **IN_ORDER)
    for bad in (5, 13):
        for _ in range(2):
            with pytest.raises(SampleError, match=f"^photo {bad}.jpg: "):
                list(loader)
            assert loader.state_dict()["samples_consumed"] == bad // 4 * 4
        loader.source.contents[bad] = JPEGS[bad]  # type: ignore[attr-defined]
        loader.set_epoch(0)
    assert backend.assert_as_plain(loader, plain(JPEGS, CENTRE, **IN_ORDER)) == NUM


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("error", [KeyError("shard_7"), RuntimeError("closed"), AssertionError(), MemoryError()])
def test_a_bug_in_a_source_surfaces_as_it_is(backend: Backend, on_error: Any, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        list(backend.loader(contents({5: error}), CENTRE, on_error=on_error))
    assert caught.value is error
    assert any(frame.name == "read" and "loader_sources" in frame.filename for frame in traceback.extract_tb(caught.tb))
    assert_no_worker_threads()


@pytest.mark.parametrize("method", ["name", "label"])
def test_a_bug_in_a_sources_names_or_labels_surfaces_too(backend: Backend, method: str) -> None:
    def fail(self: Any, sample_id: int) -> Any:
        raise KeyError(f"no {method} of {sample_id}")

    broken = type("Broken", (MemorySource,), {method: fail})
    with pytest.raises(KeyError, match=f"no {method} of {5 if method == 'name' else 0}"):
        list(backend.of(broken(contents({5: TEXT})), CENTRE, **IN_ORDER))
    assert_no_worker_threads()


@pytest.mark.parametrize("content", [None, "path/to/photo.jpg", 7])
def test_a_source_that_gives_neither_bytes_nor_an_array_is_told_so(backend: Backend, content: Any) -> None:
    with pytest.raises(TypeError, match=type(content).__name__):
        list(backend.loader(contents({5: content}), CENTRE))
    assert_no_worker_threads()


def test_exits_within_a_source_are_passed_on(backend: Backend) -> None:
    with pytest.raises(SystemExit):
        list(backend.loader(contents({5: SystemExit(3)}), CENTRE, **SKIP))
    assert_no_worker_threads()


def test_the_remedy_is_named_where_nothing_is_skipped(backend: Backend) -> None:
    with pytest.raises(SampleError) as caught:
        list(backend.loader(contents({5: TEXT}), CENTRE))
    again = pickle.loads(pickle.dumps(caught.value))
    for error in (caught.value, again):
        assert (error.name, error.reason[:13]) == ("photo 5.jpg", "not a picture")
        assert str(error) == f"{error.name}: {error.reason}. {error.remedy}" and 'on_error="skip"' in error.remedy
    with pytest.raises(SampleError) as caught:
        list(backend.loader([TEXT] * NUM, CENTRE, **SKIP))
    assert caught.value.remedy == ""


# on_error="skip"


def test_skipping_puts_the_next_usable_image_in_the_place(backend: Backend) -> None:
    whole = dict(samples(backend.loader(JPEGS, **IN_ORDER)))
    found = list(backend.loader(contents(BAD), **SKIP, **IN_ORDER))
    expected = [REPLACEMENTS.get(i, i) for i in range(NUM)]
    assert samples(found) == [(i, whole[i]) for i in expected]
    assert [label for batch in found for label in batch.labels.tolist()] == [10 * i for i in expected]
    assert [i for batch in found for i in batch.plan.sample_ids] == expected


@pytest.mark.thinned(2)
@pytest.mark.parametrize("recipe", [CENTRE, VIEWS], ids=lambda recipe: recipe.name)
@pytest.mark.parametrize(("batch_size", "num_threads", "prefetch"), [(1, 1, 1), (4, 2, 2), (7, 3, 4)])
def test_replacements_and_log_lines(
    backend: Backend,
    recipe: Recipe,
    batch_size: int,
    num_threads: int,
    prefetch: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"recipe": recipe, "batch_size": batch_size, **SKIP}
    loader = backend.loader(contents(BAD), num_threads=num_threads, prefetch=prefetch, **options)
    reference = plain(contents(BAD), **options)
    for epoch in range(2):
        expected = list(reference)
        lines = warnings_of(caplog)
        assert backend.assert_as_plain(loader, expected) == NUM
        assert warnings_of(caplog) == lines
        assert lines[-1] == f"epoch {epoch}: {len(BAD)} photographs were skipped"
        assert list(loader.skipped.items()) == list(reference.skipped.items())
    assert sorted(loader.skipped) == sorted(BAD)


def test_replacements_do_not_depend_on_how_the_epoch_is_cut(backend: Backend) -> None:
    reference = samples(backend.loader(contents(BAD), CENTRE, batch_size=1, **SKIP))
    assert len(reference) == NUM and not {sample_id for sample_id, _ in reference} & set(BAD)
    for batch_size, num_threads in ((7, 1), (7, 2), (32, 3)):
        loader = backend.loader(contents(BAD), CENTRE, batch_size=batch_size, num_threads=num_threads, **SKIP)
        assert samples(loader) == reference
    for world_size in (2, 3):
        ranks = range(world_size)
        loaders = [backend.loader(contents(BAD), CENTRE, world_size=world_size, rank=rank, **SKIP) for rank in ranks]
        assert sorted(sample for loader in loaders for sample in samples(loader)) == sorted(reference)


def test_a_resume_replaces_alike(backend: Backend) -> None:
    whole = ids_of(plain(contents(BAD), CENTRE, **SKIP))
    for before, after in ((backend.loader, plain), (plain, backend.loader), (backend.loader, backend.loader)):
        loader, other = before(contents(BAD), CENTRE, **SKIP), after(contents(BAD), CENTRE, batch_size=5, **SKIP)
        running = iter(loader)
        start = ids_of([next(running), next(running)])
        other.load_state_dict(loader.state_dict())
        assert start + ids_of(other) == whole


@pytest.mark.parametrize("batch_size", [1, 3, 24])
def test_skips_are_told_once_and_counted_each_epoch(
    backend: Backend, caplog: pytest.LogCaptureFixture, batch_size: int
) -> None:
    loader = backend.loader(contents(BAD), CENTRE, batch_size=batch_size, **SKIP, **IN_ORDER)
    list(loader)
    told = warnings_of(caplog)
    assert sorted(line.split(",")[0] for line in told[:-1]) == sorted(f"skipped sample {i}" for i in BAD)
    assert told[0].startswith("skipped sample 0, photo 0.jpg: not a picture")
    assert any(line.startswith("skipped sample 5, photo 5.jpg: truncated JPEG") for line in told)
    assert told[-1] == "epoch 0: 7 photographs were skipped"
    assert sorted(loader.skipped) == sorted(BAD)
    assert loader.skipped[7] == "photo 7.jpg: the file is empty (0 bytes)"
    list(loader)
    assert warnings_of(caplog) == ["epoch 1: 7 photographs were skipped"]


def test_nothing_is_said_where_nothing_is_skipped(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    loader = backend.loader(JPEGS, CENTRE, **SKIP)
    list(loader)
    assert warnings_of(caplog) == [] and loader.skipped == {}


def test_an_image_that_recovers_is_used_again(backend: Backend) -> None:
    loader = backend.loader(contents({5: OSError("busy")}), CENTRE, **SKIP, **IN_ORDER)
    assert 5 not in ids_of(loader)
    loader.source.contents[5] = JPEGS[5]  # type: ignore[attr-defined]
    loader.set_epoch(0)
    assert ids_of(loader) == list(range(NUM))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("bad", [without_tables(), truncated(), TEXT], ids=["tables", "truncated", "text"])
@pytest.mark.parametrize("num_bad", [4, 9])
def test_whole_batches_of_bad_ones(backend: Backend, bad: bytes, num_bad: int) -> None:
    files = contents(dict.fromkeys(range(4, 4 + num_bad), bad))
    loader, expected = (made(files, CENTRE, **SKIP, **IN_ORDER) for made in (backend.loader, plain))
    for _ in range(2):
        assert backend.assert_as_plain(loader, expected) == NUM
        assert loader.skipped == expected.skipped
    assert len(loader.skipped) == num_bad


@pytest.mark.parametrize("usable", [0, 11, NUM - 1])
def test_one_usable_image_is_enough(backend: Backend, usable: int) -> None:
    files = [JPEGS[0] if i == usable else (without_tables(), truncated(), TEXT)[i % 3] for i in range(NUM)]
    loader = backend.loader(files, CENTRE, **SKIP)
    assert ids_of(loader) == [usable] * NUM
    assert sorted(loader.skipped) == [i for i in range(NUM) if i != usable]


@pytest.mark.parametrize("num", [1, 2, 20])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([TEXT], "not a picture"),
        ([truncated()], "truncated JPEG"),
        ([without_tables()], ""),
        ([TEXT, truncated()], "not a picture"),
        ([OSError("busy")], "busy"),
    ],
    ids=["header", "pixels", "tables", "both", "unreadable"],
)
def test_a_source_without_any_usable_image_is_an_error(backend: Backend, bad: list[Any], reason: str, num: int) -> None:
    said = []
    for made in (backend.loader, plain):
        loader = made([bad[i % len(bad)] for i in range(num)], CENTRE, **SKIP, **IN_ORDER)
        with pytest.raises(SampleError) as caught:
            list(loader)
        said.append(str(caught.value))
        assert loader.source.num_reads < 2000  # type: ignore[attr-defined]
        assert_no_worker_threads()
    assert said[0] == said[1]
    assert said[0].startswith("photo 0.jpg: it cannot be used, ") and reason in said[0]


def test_images_that_the_recipe_cannot_use_are_skipped_as_well(backend: Backend) -> None:
    recipe = Recipe(ops=(CenterCrop(size=12), Flip()))
    bad = {3: scene(11, 30), 4: encoded(scene(30, 9), "JPEG")}
    loader = backend.loader(contents(bad), recipe, **SKIP, **IN_ORDER)
    assert ids_of(loader) == [5 if i in bad else i for i in range(NUM)]
    assert loader.skipped[3].startswith("photo 3.jpg: the photograph is 11x30 pixels, smaller than the crop of 12x12.")
    with pytest.raises(SampleError, match="Give center_crop a scale to resize it first, or lower size."):
        list(backend.loader(contents(bad), recipe))
    views = Recipe(views=(View(ops=(CenterCrop(size=5),)), View(ops=(CenterCrop(size=12),))))
    assert ids_of(backend.loader(contents({3: bad[3]}), views, **SKIP, **IN_ORDER))[3] == 4, "one view is enough"


def test_images_over_the_limit_are_refused_before_they_are_decoded(backend: Backend) -> None:
    large, options = encoded(scene(100, 120), "PNG"), {**SKIP, **IN_ORDER}
    files = contents({2: large, 3: bad_files()["bomb.png"][0]})
    loader = backend.loader(files, CENTRE, max_pixels=11_999, **options)
    assert ids_of(loader)[:5] == [0, 1, 4, 4, 4]
    assert "claims 120x100 = 12000 pixels, more than max_pixels=11999" in loader.skipped[2]
    assert "claims 60000x60000" in loader.skipped[3]
    assert 2 in ids_of(backend.loader(contents({2: large}), CENTRE, max_pixels=12_000, **options))


def test_replacements_in_batches_of_whole_images(backend: Backend) -> None:
    same = [encoded(scene(9, 8, i), "JPEG") for i in range(6)]
    same[2], same[4] = encoded(scene(9, 8, 2), "JPEG")[:-90], TEXT
    (batch,) = backend.loader(same, recipes.none(), batch_size=6, **SKIP)
    assert sorted(batch.sample_ids) == [0, 1, 3, 3, 5, 5]
    for bad in (TEXT, same[2], without_tables(0, 9, 8)):
        files, options = [same[0], bad, encoded(scene(6, 7), "JPEG")], {**SKIP, **IN_ORDER}
        with pytest.raises(ValueError, match="photo 2.jpg.*6x7.*Add a crop to the recipe"):
            list(backend.loader(files, recipes.none(), batch_size=3, **options))
        shapes = [views_of(one)[0].shape for one in backend.loader(files, recipes.none(), batch_size=1, **options)]
        assert shapes == [(1, 3, 9, 8), (1, 3, 6, 7), (1, 3, 6, 7)]


# Files


def test_a_folder_of_bad_and_odd_files(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
    bad = {name: data for name, (data, _) in bad_files().items()}
    odd = {name: data for name, (data, _) in odd_files().items()}
    write_files(tmp_path, bad | odd | {f"good {i}.jpg": data for i, data in enumerate(JPEGS)})
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    source = FolderSource(tmp_path)
    is_bad = [Path(source.name(i)).name in {*bad, "gone.jpg"} for i in range(len(source))]
    loader = backend.of(source, CENTRE, batch_size=5, **SKIP)
    warnings_of(caplog)  # of the recipe, which has no Normalize
    for _ in range(2):
        seen = [Path(source.name(i)).name for i in ids_of(loader)]
        assert len(seen) == len(source)
        assert not set(seen) & set(bad) and set(odd) <= set(seen)
    assert sorted(loader.skipped) == np.flatnonzero(is_bad).tolist() and sum(is_bad) == len(bad) + 1
    # a line for each epoch, and one of 16 bits a channel
    assert len(warnings_of(caplog)) == sum(is_bad) + 3
    for name, (_, reason) in bad_files().items():
        with pytest.raises(SampleError, match=f"{name}: {reason}"):
            list(backend.of(tmp_path / name, CENTRE, batch_size=1))


def test_a_folder_in_the_place_of_a_file_and_a_file_deleted_after_listing(backend: Backend, tmp_path: Path) -> None:
    paths = write_files(tmp_path, {f"{i}.jpg": JPEGS[i] for i in range(6)})
    source = FolderSource(tmp_path)
    paths[1].unlink()
    paths[3].unlink()
    paths[3].mkdir()
    loader = backend.of(source, CENTRE, **SKIP, **IN_ORDER)
    assert ids_of(loader) == [0, 2, 2, 4, 4, 5]
    assert loader.skipped == {1: f"{paths[1]}: No such file or directory", 3: f"{paths[3]}: Is a directory"}
    with pytest.raises(SampleError, match=r"1.jpg: No such file or directory\. on_error=\"skip\" puts"):
        list(backend.of(source, CENTRE, **IN_ORDER))


def cut_files() -> dict[str, bytes]:
    """Files that end halfway through their pixels, or go on there with zeros as an interrupted download does."""
    kinds = {"420": {}, "444": {"subsampling": "4:4:4"}, "restart": {"restart_marker_rows": 1}}
    files = {}
    for name, options in kinds.items():
        data = encoded(scene(60, 50), "JPEG", quality=95, **options)  # type: ignore[arg-type]
        files[name] = data[: len(data) * 2 // 3]
        files[f"{name} but the end mark"] = data[:-2]
        files[f"{name} and zeros"] = data[: len(data) * 2 // 3] + bytes(len(data) // 3)
    data = jpeg_kinds(60, 50)["gray"]
    return files | {"gray": data[: len(data) * 2 // 3]}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", cut_files())
def test_a_file_that_was_cut_short_is_refused_wherever_the_crop_lies(backend: Backend, kind: str) -> None:
    """A decoder of regions would find nothing wrong with one before the cut, as it does not read on."""
    files = [*JPEGS[:3], cut_files()[kind], *JPEGS[4:8]]
    recipe = Recipe(ops=(MultiResolutionCrop(size=4, scales=(50,)),))  # many a crop lies in the upper half
    loader, expected = backend.loader(files, recipe, **SKIP), plain(files, recipe, **SKIP)
    for _ in range(6):
        found = list(loader)
        assert 3 not in ids_of(found)
        assert backend.assert_as_plain(found, expected) == 8
    assert loader.skipped == expected.skipped
    said = []
    for made in (backend.loader, plain):
        with pytest.raises(SampleError) as caught:
            list(made([cut_files()[kind]], recipe, batch_size=1))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_real_images_with_damage_among_them(backend: Backend, photos_dir: Path) -> None:
    files = [path.read_bytes() for path in sorted(photos_dir.iterdir())[:30]]
    for i in (3, 4, 17):
        files[i] = files[i][: len(files[i]) * 3 // 4]
    files[9] = files[9][:200]
    middle = Recipe(ops=(CenterCrop(size=(4, 3)), Flip()))
    loader, expected = (made(files, middle, batch_size=8, seed=2, **SKIP) for made in (backend.loader, plain))
    assert backend.assert_as_plain(loader, expected) == 30
    assert sorted(loader.skipped) == [3, 4, 9, 17]
