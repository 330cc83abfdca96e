"""A cache beside DALI: what DALI decodes is kept and not decoded again, and no bit changes."""

from typing import Any

import pytest

pytest.importorskip("nvidia.dali")

from augpipe import Loader, Recipe
from augpipe.cache import CacheStatistics
from augpipe.decoding import MAX_PIXELS, probe
from augpipe.ops import CenterCrop, RandomResizedCrop
from augpipe.planning.kernel_rows import dct_factors
from tests.dali.loader_pairs import GOOD, NUM, TEXT, Decoders, assert_same_batches, make, mixed_bag, without_tables
from tests.unit.loader_sources import PAPER, RECIPES, truncated

FILES = list(mixed_bag().values())
CROP = Recipe(name="crop", ops=(RandomResizedCrop(size=30),))
CENTRE = Recipe(name="centre", ops=(CenterCrop(size=10),))
"""Wants all photographs at full size."""


def num_bytes(content: bytes) -> int:
    header = probe(content, max_pixels=MAX_PIXELS)
    return -(-header.height * header.width * 4 // 16) * 16


NEEDED = sum(map(num_bytes, GOOD))


def cached(contents: Any = GOOD, recipe: Recipe = CENTRE, **options: Any) -> Loader:
    return make("dali", contents, recipe, **{"cache": "host", "cache_bytes": 50_000_000, **options})


def numbers(loader: Loader) -> CacheStatistics:
    statistics = loader.cache_statistics
    assert statistics is not None
    return statistics


@pytest.mark.parametrize("cache_bytes", [0, 200_000, 50_000_000])
@pytest.mark.parametrize("name", RECIPES)
def test_epochs_are_the_same_bits_as_natives_without_a_cache(name: str, cache_bytes: int) -> None:
    with_cache = cached(FILES, RECIPES[name], cache_bytes=cache_bytes, batch_size=16)
    without = make("native", FILES, RECIPES[name], batch_size=16)
    for _ in range(2):
        assert assert_same_batches(with_cache, without) == len(FILES)
    assert (numbers(with_cache).hits > 0) == (cache_bytes > 0)


@pytest.mark.parametrize("cache", ["host", "device"])
def test_from_the_second_epoch_on_nothing_is_decoded(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = Decoders(monkeypatch, GOOD)
    loader = cached(cache=cache)
    for epoch in range(3):
        assert sum(len(batch) for batch in loader) == NUM
        assert decoders.look() == (([], []) if epoch else (list(range(NUM)), []))
        assert numbers(loader) == CacheStatistics(
            hits=epoch * NUM,
            misses=NUM,
            num_held=NUM,
            held_bytes=NEEDED,
            budget_bytes=50_000_000,
            allocated_bytes=50_000_000,
            num_did_not_fit=0,
            did_not_fit_bytes=0,
        )


@pytest.mark.parametrize(("missing", "num_missing"), [(0, 0), (1, 1), (NEEDED // 2, None), (NEEDED, NUM)])
def test_budgets(missing: int, num_missing: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = Decoders(monkeypatch, GOOD)
    loader = cached(cache_bytes=NEEDED - missing)
    without = make("native", GOOD, CENTRE)
    for epoch in range(3):
        expected = list(without)
        decoders.look()
        assert assert_same_batches(loader, expected) == NUM
        statistics = numbers(loader)
        if num_missing is None:
            assert 0 < statistics.num_did_not_fit < NUM
            num_missing = statistics.num_did_not_fit
        assert statistics.num_did_not_fit == num_missing and statistics.num_held == NUM - num_missing
        assert statistics.hits == epoch * (NUM - num_missing)
        by_dali, by_us = decoders.look()
        assert len(by_dali) == (num_missing if epoch else NUM) and by_us == []


def test_of_what_does_not_fit_dali_decodes_the_region_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from augpipe.dali.decoder import DaliDecoder

    widths: list[list[int]] = []
    submit = DaliDecoder.submit

    def submitted(decoder: DaliDecoder, contents: Any, regions: Any) -> None:
        widths[-1].extend((regions[:, 2] - regions[:, 0]).tolist())
        submit(decoder, contents, regions)

    monkeypatch.setattr(DaliDecoder, "submit", submitted)
    loader = cached(cache_bytes=0)
    for _ in range(2):
        widths.append([])
        list(loader)
    assert len(widths[1]) == NUM and max(widths[1]) <= 12


def test_samples_known_at_one_scale_and_wanted_at_another() -> None:
    """The cache knows their size, so they are not read; what it lacks is read and decoded after all."""
    loader, without = cached(FILES, PAPER), make("native", FILES, PAPER)
    seen: set[tuple[int, int]] = set()
    for epoch in range(4):
        expected = list(without)
        assert assert_same_batches(loader, expected) == len(FILES)
        for batch in expected:
            for i, factor in zip(batch.sample_ids.tolist(), dct_factors(batch.plan.views).tolist(), strict=True):
                may_scale = isinstance(FILES[i], bytes) and probe(FILES[i], max_pixels=MAX_PIXELS).may_scale
                seen.add((i, factor if may_scale else 1))
        assert numbers(loader).num_held == len(seen)
        assert numbers(loader).hits + numbers(loader).misses == (epoch + 1) * len(FILES)
    assert len(seen) > len(FILES) + 5


@pytest.mark.parametrize("batch_size", [1, 5])
def test_bad_files_are_replaced_from_the_cache(batch_size: int) -> None:
    bad = {0: TEXT, 5: without_tables(), 6: truncated(), 9: b"", 23: without_tables(1)}
    files = [bad.get(i, content) for i, content in enumerate(GOOD)]
    loader = cached(files, on_error="skip", batch_size=batch_size)
    without = make("native", files, CENTRE, on_error="skip", batch_size=batch_size)
    for epoch in range(3):
        assert assert_same_batches(loader, without) == NUM
        assert loader.skipped == without.skipped
        statistics = numbers(loader)
        assert statistics.hits + statistics.misses == (epoch + 1) * NUM
        assert statistics.num_held == NUM - len(bad)
    assert set(loader.skipped) == set(bad)


def test_sticky_ranks_decode_their_samples_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = Decoders(monkeypatch, GOOD)
    loaders = [cached(recipe=CROP, shuffle="sticky", rank=rank, world_size=2) for rank in range(2)]
    natives = [make("native", GOOD, CROP, shuffle="sticky", rank=rank, world_size=2) for rank in range(2)]
    for epoch in range(3):
        for rank, loader in enumerate(loaders):
            expected = list(natives[rank])
            decoders.look()
            assert assert_same_batches(loader, expected) == NUM // 2
            by_dali, by_us = decoders.look()
            if epoch == 0:
                assert sorted(by_dali + by_us) == list(range(rank, NUM, 2))
            assert numbers(loader).num_held >= NUM // 2
    assert all(numbers(loader).hits > 0 for loader in loaders)
