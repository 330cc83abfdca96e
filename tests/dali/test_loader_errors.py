"""Photographs that cannot be used, with DALI: the same replacements, messages and log lines as with our own decoder."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from augpipe import Loader, Recipe, SampleError, recipes
from augpipe.dali.decoder import DaliDecodeError, DaliDecoder
from augpipe.datasets.folder import FolderSource
from augpipe.ops import CenterCrop, MultiResolutionCrop
from tests.dali.loader_pairs import GOOD, NUM, TEXT, Decoders, assert_same_batches, make, pair, without_tables
from tests.unit.loader_sources import (
    PAPER,
    SEVERAL_VIEWS,
    assert_no_worker_threads,
    ids_of,
    jpegs,
    samples,
    truncated,
)
from tests.unit.picture_files import bad_files, encoded, jpeg_kinds, odd_files, scene, write_files

BAD: dict[int, Any] = {0: TEXT, 5: without_tables(), 6: truncated(), 7: truncated(1), 8: b"", 15: without_tables(1)}
BAD[23] = truncated(2)  # the last one, whose replacement is the first that can be used
FULL_SIZE = Recipe(name="full size", ops=(MultiResolutionCrop(size=16, scales=(40,)),))


def contents(bad: dict[int, Any]) -> list[Any]:
    return [bad.get(i, good) for i, good in enumerate(GOOD)]


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """(level, line) of warnings since the last look."""
    found = [(r.levelname, r.getMessage()) for r in caplog.records if r.levelno >= logging.WARNING]
    caplog.clear()
    return found


# on_error="skip"


@pytest.mark.parametrize("recipe", [PAPER, SEVERAL_VIEWS, FULL_SIZE], ids=lambda recipe: recipe.name)
@pytest.mark.parametrize(("batch_size", "num_threads", "prefetch"), [(1, 1, 1), (4, 2, 2), (7, 3, 4)])
def test_replacements_and_log_lines(
    recipe: Recipe, batch_size: int, num_threads: int, prefetch: int, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"batch_size": batch_size, "num_threads": num_threads, "prefetch": prefetch, "on_error": "skip"}
    native, dali = pair(contents(BAD), recipe, **options)
    for epoch in range(2):
        expected = list(native)
        lines = told(caplog)
        assert assert_same_batches(dali, expected) == NUM
        assert told(caplog) == lines
        assert lines[-1] == ("WARNING", f"epoch {epoch}: {len(BAD)} photographs were skipped")
        assert list(dali.skipped.items()) == list(native.skipped.items())
    assert sorted(dali.skipped) == sorted(BAD)


@pytest.mark.parametrize("world_size", [2, 3])
def test_replacements_of_ranks(world_size: int) -> None:
    for rank in range(world_size):
        native, dali = pair(contents(BAD), on_error="skip", rank=rank, world_size=world_size)
        for _ in range(2):
            assert_same_batches(dali, native)
        assert dali.skipped == native.skipped


@pytest.mark.parametrize(("before", "after"), [("native", "dali"), ("dali", "native"), ("dali", "dali")])
def test_a_resume_replaces_alike(before: str, after: str) -> None:
    whole = samples(make("native", contents(BAD), on_error="skip"))
    loader = make(before, contents(BAD), on_error="skip")
    running = iter(loader)
    start = samples([next(running), next(running)])
    other = make(after, contents(BAD), on_error="skip", batch_size=5)
    other.load_state_dict(loader.state_dict())
    assert start + samples(other) == whole


@pytest.mark.parametrize(
    "bad", [without_tables(), truncated(), TEXT, b""], ids=["tables", "truncated", "text", "empty"]
)
@pytest.mark.parametrize("num_bad", [4, 9])
def test_whole_batches_of_bad_ones(bad: bytes, num_bad: int) -> None:
    native, dali = pair(contents(dict.fromkeys(range(4, 4 + num_bad), bad)), on_error="skip", shuffle=False)
    for _ in range(2):
        assert assert_same_batches(dali, native) == NUM
        assert dali.skipped == native.skipped
    assert len(dali.skipped) == num_bad


@pytest.mark.parametrize("usable", [0, 17])
def test_one_usable_photograph_is_enough(usable: int) -> None:
    files = [GOOD[0] if i == usable else (without_tables(), truncated(), TEXT)[i % 3] for i in range(NUM)]
    native, dali = pair(files, on_error="skip")
    assert assert_same_batches(dali, native) == NUM
    assert len(dali.skipped) == NUM - 1


@pytest.mark.parametrize("num", [1, 3])
@pytest.mark.parametrize("bad", [without_tables(), truncated(), TEXT], ids=["tables", "truncated", "text"])
def test_a_source_without_any_usable_photograph(bad: bytes, num: int) -> None:
    said = []
    for loader in pair([bad] * num, on_error="skip"):
        with pytest.raises(SampleError) as caught:
            list(loader)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert said[0].startswith("photo 0.jpg: it cannot be used, ")
    assert_no_worker_threads()


def test_a_replacement_of_another_size_in_batches_of_whole_photographs() -> None:
    same = [encoded(scene(60, 50, i), "JPEG") for i in range(6)]
    same[2], same[4] = without_tables(), truncated()
    native, dali = pair(same, recipes.none(), batch_size=6, on_error="skip")
    assert assert_same_batches(dali, native) == 6
    for bad in (without_tables(), truncated()):
        said = []
        files = [same[0], bad, encoded(scene(30, 40), "JPEG")]
        for loader in pair(files, recipes.none(), batch_size=2, on_error="skip", shuffle=False):
            with pytest.raises(ValueError, match="photo 2.jpg.*30x40.*Add a crop to the recipe") as caught:
                list(loader)
            said.append(str(caught.value))
        assert said[0] == said[1]
        native, dali = pair(files, recipes.none(), batch_size=1, on_error="skip", shuffle=False)
        assert assert_same_batches(dali, native) == 3


def test_a_folder_of_bad_and_odd_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {name: data for name, (data, _) in (bad_files() | odd_files()).items()}
    write_files(tmp_path, files | {f"good {i}.jpg": data for i, data in enumerate(jpegs(12))})
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    found = []
    for backend in ("native", "dali"):
        loader = Loader(
            FolderSource(tmp_path),
            PAPER,
            batch_size=5,
            framework="numpy",
            on_error="skip",
            num_threads=2,
            backend=backend,  # type: ignore[arg-type]
        )
        found.append((samples(loader), samples(loader), loader.skipped, told(caplog)))
    assert found[0] == found[1]
    assert len(found[0][2]) == len(bad_files()) + 1


# on_error="raise"


@pytest.mark.parametrize("recipe", [PAPER, FULL_SIZE], ids=lambda recipe: recipe.name)
@pytest.mark.parametrize(
    "bad",
    [
        {5: without_tables()},
        {5: truncated()},
        {5: TEXT},
        {6: without_tables(), 4: truncated(), 7: b""},
        {7: without_tables(), 6: truncated(1)},
        {4: TEXT, 1: without_tables(), 9: TEXT},
        {23: truncated()},
    ],
)
def test_raising_says_the_same_at_the_same_batch(bad: dict[int, Any], recipe: Recipe) -> None:
    said = []
    for loader in pair(contents(bad), recipe, shuffle=False, prefetch=3):
        seen: list[int] = []
        with pytest.raises(SampleError) as caught:
            seen.extend(sample_id for batch in loader for sample_id in batch.sample_ids)
        said.append((str(caught.value), seen, loader.state_dict()))
        assert_no_worker_threads()
    assert said[0] == said[1]


def test_a_loader_goes_on_working_after_an_error() -> None:
    native, dali = pair(contents({5: without_tables(), 17: truncated()}), FULL_SIZE, shuffle=False)
    for bad in (5, 17):
        for loader in (native, dali):
            for _ in range(2):
                with pytest.raises(SampleError, match=f"^photo {bad}.jpg: "):
                    list(loader)
            loader.source.contents[bad] = GOOD[bad]  # type: ignore[union-attr]
            loader.set_epoch(0)
    assert assert_same_batches(dali, native) == NUM


# What becomes of DALI


def test_dali_is_not_given_a_bad_one_twice_nor_sound_ones_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {6: without_tables(), 13: without_tables(1)}
    files = contents(bad)
    decoders = Decoders(monkeypatch, files)
    dali = make("dali", files, FULL_SIZE, on_error="skip", shuffle=False, prefetch=1)
    native = make("native", files, FULL_SIZE, on_error="skip", shuffle=False)
    expected = [list(native), list(native), list(native)]
    decoders.look()
    assert assert_same_batches(dali, expected[0]) == NUM
    by_dali, by_us = decoders.look()
    assert set(bad) < set(by_dali) and set(range(4, 8)) | set(range(12, 16)) <= set(by_us)
    assert set(range(20, 24)) <= set(by_dali) - set(by_us), "DALI is used again once a batch has failed"
    for batches in expected[1:]:
        assert assert_same_batches(dali, batches) == NUM
        by_dali, by_us = decoders.look()
        assert by_dali == [i for i in range(NUM) if i not in bad]
        assert set(by_us) == {*bad, 7, 14}, "those to be refused again, and what takes their place"


def test_a_sound_neighbour_of_bad_ones_is_decoded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever DALI is given or not, in whichever epoch: no pixel changes."""
    bad = {i: without_tables(i) for i in range(0, NUM, 5)}
    native, dali = pair(contents(bad), FULL_SIZE, on_error="skip", batch_size=6, prefetch=4)
    for _ in range(5):
        assert assert_same_batches(dali, native) == NUM


def test_a_new_seed_forgets_who_was_bad_and_finds_them_again() -> None:
    native, dali = pair(contents(BAD), FULL_SIZE, on_error="skip")
    for seed in (9, 10, 9):
        for loader in (native, dali):
            loader.load_state_dict(loader.state_dict() | {"seed": seed, "epoch": 0, "samples_consumed": 0})
        assert assert_same_batches(dali, native) == NUM


@pytest.mark.parametrize("call", ["submit", "collect"])
@pytest.mark.parametrize("number", [0, 2])
def test_dali_failing_for_reasons_of_its_own_changes_nothing(
    call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, num_calls = getattr(DaliDecoder, call), 0

    def fails_once(decoder: DaliDecoder, *args: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == number + 1:
            decoder.close()
            raise DaliDecodeError("an odd day")
        return original(decoder, *args)

    native, dali = pair(recipe=FULL_SIZE, prefetch=3)
    expected = [list(native), list(native)]
    monkeypatch.setattr(DaliDecoder, call, fails_once)
    for batches in expected:
        assert assert_same_batches(dali, batches) == NUM
    assert num_calls > number + 3, "DALI is used again"


def test_an_error_that_is_none_of_dali_s_surfaces_and_the_next_pass_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    collect, num_calls = DaliDecoder.collect, 0

    def fails_once(decoder: DaliDecoder, stream: int | None = None) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 2:
            raise MemoryError("no memory")
        return collect(decoder, stream)

    native, dali = pair(recipe=FULL_SIZE, prefetch=4, on_error="skip")
    monkeypatch.setattr(DaliDecoder, "collect", fails_once)
    with pytest.raises(MemoryError, match="no memory"):
        list(dali)
    assert_no_worker_threads()
    assert assert_same_batches(dali, native) == NUM


def test_a_decoder_that_cannot_be_built_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise DaliDecodeError("the memory is full")

    monkeypatch.setattr("augpipe.dali.decoder._build", refuse)
    for on_error in ("raise", "skip"):
        with pytest.raises(DaliDecodeError, match="the memory is full"):
            list(make("dali", on_error=on_error))
        assert_no_worker_threads()


# Damage that only shows where one looks


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


@pytest.mark.parametrize("kind", cut_files())
def test_a_file_that_was_cut_short_is_refused_wherever_the_crop_lies(kind: str) -> None:
    """Of a region before the cut DALI would give a picture, as it does not read on."""
    bad = cut_files()[kind]
    files = [*GOOD[:3], bad, *GOOD[4:8]]
    recipe = Recipe(ops=(MultiResolutionCrop(size=6, scales=(50,)),))  # many a crop lies in the upper half
    native, dali = pair(files, recipe, on_error="skip")
    for epoch in range(8):
        expected = list(native)
        assert 3 not in ids_of(expected)
        assert assert_same_batches(dali, expected) == 8, epoch
    assert dali.skipped == native.skipped
    said = []
    for loader in pair([bad], recipe, batch_size=1):
        with pytest.raises(SampleError) as caught:
            list(loader)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_known_difference_damage_within_the_pixels_is_seen_by_our_decoder_alone() -> None:
    """The one way in which the backends differ: libjpeg warns, and goes on with wrong pixels; DALI does not tell."""
    data = bytearray(encoded(scene(60, 50), "JPEG", quality=95, restart_marker_rows=1))
    restart = data.index(b"\xff\xd1")
    del data[restart - 20 : restart]
    files = [bytes(data), GOOD[1]]
    recipe = Recipe(ops=(CenterCrop(size=40),))
    with pytest.raises(SampleError, match="^photo 0.jpg: damaged JPEG: Corrupt JPEG data: "):
        list(make("native", files, recipe))
    native, dali = pair(files, recipe, on_error="skip", shuffle=False)
    assert ids_of(native) == [1, 1]
    assert native.skipped[0].startswith("photo 0.jpg: damaged JPEG: Corrupt JPEG data")
    (batch,) = make("dali", files, recipe, shuffle=False, on_error="raise")
    assert ids_of([batch]) == ids_of(dali) == [0, 1]
    assert dali.skipped == {}
    (sound,) = make("native", [GOOD[1]], recipe)
    np.testing.assert_array_equal(batch.images[1], sound.images[0])
