"""The loader with DALI on the CPU beside the native one: the same plans, order, labels and bits, however it is cut."""

import logging
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from augpipe import Loader, Recipe, recipes
from augpipe.dali.decoder import DaliDecoder
from augpipe.dali.nvjpeg import Nvjpeg
from augpipe.datasets.formats.folder import FolderSource
from augpipe.decoding import MAX_PIXELS, probe
from augpipe.ops import CenterCrop, Flip, LensDistortion, MultiResolutionCrop, Rotate
from augpipe.pipeline.dali_stage import DaliStage
from augpipe.planning.kernel_rows import dct_factors
from tests.augpipe.dali.loader_pairs import (
    GOOD,
    NEW,
    NUM,
    OLD,
    AsOnGpu,
    Decoders,
    make,
    mixed_bag,
    pair,
)
from tests.augpipe.loader.loader_sources import (
    CENTRE,
    RECIPES,
    arrays,
    ids_of,
    without_tables,
)
from tests.contracts.backends import assert_same

BAG = mixed_bag()
FILES = list(BAG.values())
LEFT_OVER = list(BAG).index("bytes left over")
WIDE = Recipe(ops=(CenterCrop(size=60, scale=62), Rotate(max_deg=45, p=0.5)))
LEVELS = Recipe(ops=(MultiResolutionCrop(size=16, scales=(20, 40)), Flip(), Rotate()))


def is_for_dali(content: Any) -> bool:
    """Whether DALI is given a file, as long as it is wanted at full size."""
    return isinstance(content, bytes) and probe(content, max_pixels=MAX_PIXELS).may_scale


# The same pixels


@pytest.mark.parametrize("name", ["deep_image", "evaluation", "whole"])
def test_all_images(photos_dir: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FolderSource(photos_dir)
    contents = [source.read(i) for i in range(len(source))]
    decoders = Decoders(monkeypatch, contents)
    recipe = {
        "deep_image": recipes.deep_image(64, (256, 384)),
        "evaluation": recipes.evaluation(64, 70),
        "whole": Recipe(ops=(CenterCrop(size=64, scale=400), LensDistortion(p=1.0))),
    }[name]
    options: dict[str, Any] = {"batch_size": 16, "dtype": "float16", "framework": "numpy", "num_threads": 2}
    native, dali = (Loader(source, recipe, backend=backend, **options) for backend in ("native", "dali"))  # type: ignore[arg-type]
    expected = list(native)
    assert len(decoders.look()[1]) == len(source) == 250
    assert assert_same(dali, expected) == 250
    by_dali, by_us = decoders.look()
    assert sorted(by_dali + by_us) == list(range(250)), "each is decoded once"
    at_full_size = sum((dct_factors(batch.plan.views) == 1).sum() for batch in expected)
    assert len(by_dali) == at_full_size and (at_full_size > 60 or name == "evaluation")


@pytest.mark.parametrize("name", RECIPES)
def test_a_mixed_bag_of_odd_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(FILES) > 100
    decoders = Decoders(monkeypatch, FILES)
    native, dali = pair(FILES, RECIPES[name], batch_size=16)
    num_for_dali = 0
    for _ in range(2):
        expected = list(native)
        decoders.look()
        assert assert_same(dali, expected) == len(FILES)
        factors = {i: int(f) for b in expected for i, f in zip(b.sample_ids, dct_factors(b.plan.views), strict=True)}
        wanted = {i for i, content in enumerate(FILES) if is_for_dali(content) and factors[i] == 1}
        by_dali, by_us = decoders.look()
        assert sorted(by_dali + by_us) == [i for i, content in enumerate(FILES) if isinstance(content, bytes)]
        assert set(by_dali) in (wanted, wanted - {LEFT_OVER})  # either decoder reads it alike
        num_for_dali += len(by_dali)
    assert num_for_dali > 10


def test_the_bag_holds_images_for_every_dct_factor() -> None:
    factors = set()
    for batch in make("native", FILES, CENTRE):
        for i, factor in zip(batch.sample_ids, dct_factors(batch.plan.views), strict=True):
            content = FILES[i]
            if isinstance(content, bytes) and probe(content, max_pixels=MAX_PIXELS).may_scale:
                factors.add(int(factor))
    assert factors == {1, 2, 4, 8}


# As on a GPU


@pytest.mark.parametrize("nvjpeg", [NEW, OLD, None], ids=["new", "old", "none"])
def test_an_old_nvjpeg_is_given_whole_images(
    nvjpeg: Nvjpeg | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    native, dali = pair(FILES, WIDE, batch_size=16)
    as_on_gpu = AsOnGpu(monkeypatch, nvjpeg)
    num_whole = num = 0
    for _ in range(2):
        assert assert_same(dali, list(native)) == len(FILES)
        for (left, top, _, _), whole in as_on_gpu.look():
            assert not whole or (left, top) == (0, 0)
            num, num_whole = num + 1, num_whole + whole
    assert num > 30 and (num_whole == num if nvjpeg is OLD else 0 < num_whole < num)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    if nvjpeg is NEW:
        assert told == []
    else:
        (line,) = told
        assert line.startswith(
            "nvJPEG 13.1 is loaded (/toolkit/libnvjpeg.so.13)" if nvjpeg else "DALI finds no nvJPEG, and decodes"
        )


def test_what_the_cache_may_take_is_asked_for_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    native, dali = make("native", recipe=LEVELS), make("dali", recipe=LEVELS, cache="host", cache_bytes=10_000_000)
    as_on_gpu = AsOnGpu(monkeypatch, NEW)
    assert assert_same(dali, native) == NUM
    given = as_on_gpu.look()
    assert len(given) > NUM / 2 and all(whole for _, whole in given)
    assert assert_same(dali, native) == NUM
    assert as_on_gpu.look() == []


def test_nvjpeg_is_complained_of_once_however_many_decoders_are_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    AsOnGpu(monkeypatch, OLD)
    loader = make("dali", [*GOOD[:6], without_tables(), *GOOD[:5]], LEVELS, on_error="skip", shuffle=False)
    for _ in range(2):
        list(loader)
    assert sum("nvJPEG" in record.getMessage() for record in caplog.records) == 1


def test_arrays_alone_need_no_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = Decoders(monkeypatch, [])
    native, dali = pair([*arrays(6), *[image[..., 0] for image in arrays(3)]])
    assert assert_same(dali, native) == 9
    assert decoders.look() == ([], [])


def test_batches_of_which_dali_gets_nothing_between_others(monkeypatch: pytest.MonkeyPatch) -> None:
    images = arrays(24)
    contents = [GOOD[i] if i // 4 % 2 else images[i] for i in range(24)]
    decoders = Decoders(monkeypatch, contents)
    native, dali = pair(contents, Recipe(ops=(CenterCrop(size=10),)), shuffle=False, prefetch=3)
    assert assert_same(dali, native) == 24
    assert decoders.look()[0] == [i for i in range(24) if i // 4 % 2]


def test_dali_is_given_each_image_once_and_only_what_is_read_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    submit = DaliDecoder.submit

    def submitted(decoder: DaliDecoder, contents: Any, regions: Any, whole: Any) -> None:
        asked.extend(regions)
        submit(decoder, contents, regions, whole)

    monkeypatch.setattr(DaliDecoder, "submit", submitted)
    recipe = Recipe(ops=(CenterCrop(size=10),))
    decoders = Decoders(monkeypatch, GOOD)
    for epoch in range(3):
        loader = make("dali", recipe=recipe)
        loader.set_epoch(epoch)
        assert len(ids_of(loader)) == NUM
        assert decoders.look() == (list(range(NUM)), [])
    sides = np.array(asked)[:, 2:] - np.array(asked)[:, :2]
    assert len(sides) == 3 * NUM and (sides >= 10).all() and (sides <= 12).all()


# A cache


CENTRE_AT_FULL_SIZE = Recipe(name="centre", ops=(CenterCrop(size=10),))
HEADERS = [probe(content, max_pixels=MAX_PIXELS) for content in GOOD]
NEEDED = sum(-(-header.height * header.width * 4 // 16) * 16 for header in HEADERS)


def cached(recipe: Recipe, contents: Any = GOOD, **options: Any) -> Loader:
    return make("dali", contents, recipe, cache="host", **options)


def test_a_mixed_bag_of_which_a_part_is_held() -> None:
    loader = cached(RECIPES["deep_image"], FILES, cache_bytes=200_000, batch_size=16)
    without = make("native", FILES, batch_size=16)
    for _ in range(3):
        assert assert_same(loader, without) == len(FILES)
    assert loader.cache_statistics is not None and loader.cache_statistics.hits > 0


@pytest.mark.parametrize(("missing", "num_missing"), [(0, 0), (1, 1), (NEEDED // 2, None), (NEEDED, NUM)])
def test_budgets(missing: int, num_missing: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = Decoders(monkeypatch, GOOD)
    loader = cached(CENTRE_AT_FULL_SIZE, cache_bytes=NEEDED - missing)
    without = make("native", recipe=CENTRE_AT_FULL_SIZE)
    for epoch in range(3):
        expected = list(without)
        decoders.look()
        assert assert_same(loader, expected) == NUM
        statistics = loader.cache_statistics
        assert statistics is not None
        if num_missing is None:
            assert 0 < statistics.num_did_not_fit < NUM
            num_missing = statistics.num_did_not_fit
        assert statistics.num_did_not_fit == num_missing and statistics.num_held == NUM - num_missing
        assert statistics.hits == epoch * (NUM - num_missing)
        by_dali, by_us = decoders.look()
        assert len(by_dali) == (num_missing if epoch else NUM) and by_us == []


def test_of_what_does_not_fit_dali_decodes_the_region_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[list[int]] = []
    submit = DaliDecoder.submit

    def submitted(decoder: DaliDecoder, contents: Any, regions: Any, whole: Any) -> None:
        widths[-1].extend((regions[:, 2] - regions[:, 0]).tolist())
        submit(decoder, contents, regions, whole)

    monkeypatch.setattr(DaliDecoder, "submit", submitted)
    loader = cached(CENTRE_AT_FULL_SIZE, cache_bytes=0)
    for _ in range(2):
        widths.append([])
        list(loader)
    assert len(widths[1]) == NUM and max(widths[1]) <= 12


@pytest.mark.parametrize(("device_id", "is_on_host", "fits"), [*product([None, 0], [True, False], [True, False])])
def test_what_a_host_cache_may_take_is_not_decoded_on_a_device(
    device_id: int | None, is_on_host: bool, fits: bool
) -> None:
    cache: Any = SimpleNamespace(is_on_host=is_on_host, has_no_room_for=lambda sample_id, factor: not fits)
    samples: Any = SimpleNamespace(unusable=())
    stage = DaliStage(cache, samples, cache, batch_size=1, device_id=device_id)
    opened = SimpleNamespace(content=b"\xff\xd8\xff\xd9", may_scale=True, sample_id=3)
    item: Any = SimpleNamespace(pixels=None, opened=opened, factor=1)
    assert stage._takes(item) == (device_id is None or not is_on_host or not fits)
