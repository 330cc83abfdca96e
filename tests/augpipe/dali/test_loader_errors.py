"""What becomes of DALI where images cannot be used, or where it fails for reasons of its own."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from augpipe import Recipe, SampleError, recipes
from augpipe.dali import decoder as decoder_module
from augpipe.dali.decoder import DaliBuildError, DaliDecodeError, DaliDecoder
from augpipe.ops import CenterCrop, MultiResolutionCrop
from tests.augpipe.dali.loader_pairs import (
    GOOD,
    NEW,
    NUM,
    AsOnGpu,
    Decoders,
    make,
    pair,
)
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.loader_sources import (
    assert_no_worker_threads,
    ids_of,
    without_tables,
)
from tests.contracts.backends import assert_same

FULL_SIZE = Recipe(name="full size", ops=(MultiResolutionCrop(size=16, scales=(40,)),))


def contents(bad: dict[int, Any]) -> list[Any]:
    return [bad.get(i, good) for i, good in enumerate(GOOD)]


def test_dali_is_not_given_a_bad_one_twice_nor_sound_ones_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {6: without_tables(), 13: without_tables(1)}
    files = contents(bad)
    decoders = Decoders(monkeypatch, files)
    dali = make("dali", files, FULL_SIZE, on_error="skip", shuffle=False, prefetch=1)
    native = make("native", files, FULL_SIZE, on_error="skip", shuffle=False)
    expected = [list(native), list(native), list(native)]
    decoders.look()
    assert assert_same(dali, expected[0]) == NUM
    by_dali, by_us = decoders.look()
    assert set(bad) < set(by_dali) and set(range(4, 8)) | set(range(12, 16)) <= set(by_us)
    assert set(range(20, 24)) <= set(by_dali) - set(by_us), "DALI is used again once a batch has failed"
    for batches in expected[1:]:
        assert assert_same(dali, batches) == NUM
        by_dali, by_us = decoders.look()
        assert by_dali == [i for i in range(NUM) if i not in bad]
        assert set(by_us) == {*bad, 7, 14}, "those to be refused again, and what takes their place"


def test_a_sound_neighbour_of_bad_ones_is_decoded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever DALI is given or not, in whichever epoch: no pixel changes."""
    bad = {i: without_tables(i) for i in range(0, NUM, 5)}
    native, dali = pair(contents(bad), FULL_SIZE, on_error="skip", batch_size=6, prefetch=4)
    for _ in range(5):
        assert assert_same(dali, native) == NUM


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
        assert assert_same(dali, batches) == NUM
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
    assert assert_same(dali, native) == NUM


@pytest.mark.parametrize("which", [False, True])
def test_a_decoder_that_cannot_be_built_is_an_error(which: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of regions, which every loader has, or that of whole images, which one on a GPU has beside it."""
    build = decoder_module._build

    def refuse(*args: Any) -> Any:
        if args[-1] is which:
            raise DaliBuildError("the memory is full")
        return build(*args)

    AsOnGpu(monkeypatch, NEW)
    monkeypatch.setattr(decoder_module, "_build", refuse)
    for on_error in ("raise", "skip"):
        with pytest.raises(DaliBuildError, match="the memory is full"):
            list(make("dali", recipe=recipes.none(), batch_size=1, on_error=on_error))
        assert_no_worker_threads()


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
