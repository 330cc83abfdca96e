"""Loaders with a cache: the same bits as without one, whatever fits; exact numbers; ranks that keep their samples."""

import json
import logging
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from augpipe import Batch, Loader, Recipe
from augpipe.cache import CacheStatistics, Segment
from augpipe.decoding import MAX_PIXELS, probe
from augpipe.planning.kernel_rows import dct_factors
from tests.unit.loader_sources import CENTRE, PAPER, RECIPES, MemorySource, arrays, ids_of, jpegs, samples, truncated
from tests.unit.picture_files import encoded, exif, scene

TEXT = b"this is no picture"
LARGE = scene(230, 310, 50)
MIXED: list[Any] = [
    *jpegs(12),
    *[encoded(scene(150 + 30 * i, 260, i), "JPEG") for i in range(6)],  # decoded at a half and less
    encoded(LARGE, "JPEG", exif=exif(6)),
    encoded(LARGE, "JPEG", exif=exif(3)),
    encoded(LARGE, "PNG"),
    encoded(LARGE[..., 0], "JPEG"),
    *arrays(2),
    LARGE,
    LARGE[..., 0],
    np.dstack([LARGE, LARGE[..., 1]]),
]
NUM = len(MIXED)
BATCH_SIZE = 4
PLENTY = 10_000_000


def make(recipe: Recipe = CENTRE, contents: list[Any] = MIXED, **options: Any) -> Loader:
    settings = {"batch_size": BATCH_SIZE, "framework": "numpy", "num_threads": 2, "seed": 12} | options
    return Loader(MemorySource(contents), recipe, **settings)


def cached(recipe: Recipe = CENTRE, contents: list[Any] = MIXED, **options: Any) -> Loader:
    return make(recipe, contents, **({"cache": "host", "cache_bytes": PLENTY} | options))


def numbers(loader: Loader) -> CacheStatistics:
    statistics = loader.cache_statistics
    assert statistics is not None
    return statistics


def num_reads(loader: Loader) -> int:
    """How often the source was read since the last call."""
    source: Any = loader.source
    found: int = source.num_reads
    source.num_reads = 0
    return found


def pictures_of(batches: Iterable[Batch]) -> list[tuple[int, int]]:
    """(sample id, DCT factor) of each sample, worked out from what the plan says."""
    found = []
    for batch in batches:
        for sample_id, factor in zip(batch.sample_ids.tolist(), dct_factors(batch.plan.views).tolist(), strict=True):
            content = MIXED[sample_id]
            may_scale = isinstance(content, bytes) and probe(content, max_pixels=MAX_PIXELS).may_scale
            found.append((sample_id, factor if may_scale else 1))
    return found


def picture_bytes(sample_id: int, factor: int) -> int:
    """What a picture takes in the cache."""
    content = MIXED[sample_id]
    if isinstance(content, bytes):
        header = probe(content, max_pixels=MAX_PIXELS)
        height, width = header.height, header.width
    else:
        height, width = content.shape[:2]
    return -(-(-(-height // factor) * -(-width // factor) * 4) // 16) * 16


CENTRE_PICTURES = pictures_of(make())
NEEDED = sum(picture_bytes(*picture) for picture in CENTRE_PICTURES)


def test_the_source_has_something_of_everything() -> None:
    assert {factor for _, factor in CENTRE_PICTURES} == {1, 2, 4, 8}
    loader = make(PAPER)
    assert len({picture for _ in range(3) for picture in pictures_of(loader)}) > NUM


# The same bits


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("cache_bytes", [0, NEEDED // 3, NEEDED, PLENTY])
@pytest.mark.parametrize("name", RECIPES)
def test_epochs_are_the_same_bits_as_without_a_cache(name: str, cache_bytes: int, num_threads: int) -> None:
    with_cache = cached(RECIPES[name], cache_bytes=cache_bytes, num_threads=num_threads)
    without = make(RECIPES[name])
    for _ in range(3):
        assert samples(with_cache) == samples(without)
    assert (numbers(with_cache).hits > 0) == (cache_bytes > 0)


@pytest.mark.parametrize("cache", ["host", "device"])
def test_the_same_plans_again_are_the_same_bits(cache: str) -> None:
    loader = cached(PAPER, cache=cache)
    first = samples(loader)
    num_reads(loader)
    loader.set_epoch(0)
    assert samples(loader) == first
    assert num_reads(loader) == 0
    assert (numbers(loader).hits, numbers(loader).misses) == (NUM, NUM)


def test_another_seed_keeps_the_cache() -> None:
    loader = cached()
    list(loader)
    num_reads(loader)
    loader.load_state_dict(loader.state_dict() | {"seed": 99})
    assert samples(loader) == samples(resumed(make(seed=99), loader.state_dict() | {"epoch": 1}))
    assert num_reads(loader) == 0
    assert numbers(loader).hits == NUM


def resumed(loader: Loader, state: dict[str, Any]) -> Loader:
    loader.load_state_dict(state)
    return loader


# Exact numbers


def test_from_the_second_epoch_on_nothing_is_read() -> None:
    loader = cached()
    for epoch in range(3):
        list(loader)
        assert num_reads(loader) == (NUM if epoch == 0 else 0)
        assert numbers(loader) == CacheStatistics(
            hits=epoch * NUM,
            misses=NUM,
            num_held=NUM,
            held_bytes=NEEDED,
            budget_bytes=PLENTY,
            allocated_bytes=PLENTY,
            num_did_not_fit=0,
            did_not_fit_bytes=0,
        )


def test_hits_are_the_pictures_that_came_before_at_the_same_scale() -> None:
    loader = cached(PAPER)
    seen: set[tuple[int, int]] = set()
    hits = 0
    for epoch in range(1, 6):
        found = pictures_of(loader)
        num_there = len(seen & set(found))
        hits += num_there
        seen |= set(found)
        statistics = numbers(loader)
        assert (statistics.hits, statistics.misses) == (hits, epoch * NUM - hits)
        assert num_reads(loader) == NUM - num_there
        assert statistics.num_held == len(seen)
        assert statistics.held_bytes == sum(picture_bytes(*picture) for picture in seen)
    assert len(seen) > NUM and 0 < hits < 4 * NUM


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_budget_of_exactly_what_there_is_and_one_byte_less(num_threads: int) -> None:
    for cache_bytes, num_missing in ((NEEDED, 0), (NEEDED - 1, 1)):
        loader = cached(cache_bytes=cache_bytes, num_threads=num_threads)
        list(loader)
        num_reads(loader)
        for epoch in range(1, 3):
            list(loader)
            statistics = numbers(loader)
            assert num_reads(loader) == num_missing
            assert statistics.num_held == NUM - num_missing and statistics.num_did_not_fit == num_missing
            assert statistics.hits == epoch * (NUM - num_missing)
            assert statistics.misses == NUM + epoch * num_missing
            assert statistics.held_bytes + statistics.did_not_fit_bytes == NEEDED


def test_a_budget_that_is_too_small_keeps_what_came_first() -> None:
    loader = cached(cache_bytes=NEEDED // 3, num_threads=1, prefetch=1)
    left, held = NEEDED // 3 // 16 * 16, set()
    for picture in pictures_of(loader):
        if picture_bytes(*picture) <= left:
            left -= picture_bytes(*picture)
            held.add(picture)
    assert 0 < len(held) < NUM
    num_reads(loader)
    list(loader)
    assert num_reads(loader) == NUM - len(held)
    statistics = numbers(loader)
    assert (statistics.num_held, statistics.num_did_not_fit) == (len(held), NUM - len(held))
    assert statistics.held_bytes == sum(picture_bytes(*picture) for picture in held)
    assert statistics.hits == len(held)


def test_no_budget_keeps_nothing() -> None:
    loader = cached(cache_bytes=0)
    for _ in range(2):
        list(loader)
        assert num_reads(loader) == NUM
    statistics = numbers(loader)
    assert (statistics.hits, statistics.misses, statistics.num_held) == (0, 2 * NUM, 0)
    assert statistics.allocated_bytes == 0 and statistics.num_did_not_fit == NUM


def test_what_nobody_took_is_not_counted() -> None:
    loader = cached(prefetch=4)
    list(islice(loader, 2))
    running = iter(loader)
    next(running)
    statistics = numbers(loader)
    assert statistics.hits + statistics.misses == 3 * BATCH_SIZE
    assert statistics.misses >= 2 * BATCH_SIZE


def test_memory_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(num_bytes: int) -> Segment:
        raise MemoryError

    monkeypatch.setattr("augpipe.cache.host.host_segment", refuse)
    loader = cached()
    assert samples(loader) == samples(make())
    assert numbers(loader).num_held == numbers(loader).budget_bytes == 0
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1 and told[0].startswith("the cache holds 0 bytes and stops growing")


# Bad files


@pytest.mark.parametrize("num_threads", [1, 3])
def test_bad_files_are_replaced_from_the_cache(num_threads: int) -> None:
    bad = {0: TEXT, 5: truncated(), 9: b"", 13: truncated(1)}
    contents = [bad.get(i, content) for i, content in enumerate(MIXED)]
    loader = cached(contents=contents, on_error="skip", num_threads=num_threads)
    without = make(contents=contents, on_error="skip")
    for epoch in range(3):
        if epoch:
            num_reads(loader)
        assert samples(loader) == samples(without)
        assert loader.skipped == without.skipped
        statistics = numbers(loader)
        assert statistics.hits + statistics.misses == (epoch + 1) * NUM
        assert statistics.num_held == NUM - len(bad)
        if epoch:
            assert num_reads(loader) == len(bad), "they alone are looked at again"
            assert statistics.misses <= NUM
    assert set(loader.skipped) == set(bad)


def test_a_damaged_file_takes_no_room() -> None:
    contents = [truncated() if i == 5 else content for i, content in enumerate(MIXED)]
    held = sum(picture_bytes(*picture) for picture in CENTRE_PICTURES if picture[0] != 5)
    loader = cached(contents=contents, on_error="skip", cache_bytes=held, num_threads=1, shuffle=False)
    for _ in range(3):
        list(loader)
    statistics = numbers(loader)
    assert statistics.num_held == NUM - 1 and statistics.held_bytes == held


# Ranks


@pytest.mark.parametrize("world_size", [2, 3])
def test_sticky_ranks_read_their_samples_once(world_size: int) -> None:
    loaders = [cached(shuffle="sticky", rank=rank, world_size=world_size) for rank in range(world_size)]
    orders = []
    for epoch in range(4):
        found = [ids_of(loader) for loader in loaders]
        orders.append(found)
        assert sorted(sample_id for ids in found for sample_id in ids) == list(range(NUM))
        for rank, loader in enumerate(loaders):
            assert sorted(found[rank]) == list(range(rank, NUM, world_size))
            assert num_reads(loader) == (len(found[rank]) if epoch == 0 else 0)
            assert numbers(loader).hits == epoch * len(found[rank])
            assert len(loader) == -(-NUM // (BATCH_SIZE * world_size))
    assert len({tuple(epoch[0]) for epoch in orders}) == 4


def test_ranks_that_shuffle_freely_read_each_others_samples() -> None:
    loader = cached(rank=0, world_size=2)
    list(loader)
    num_reads(loader)
    list(loader)
    assert 0 < num_reads(loader) < -(-NUM // 2)


def test_sticky_epochs_hold_the_plain_epochs_samples() -> None:
    plain = dict(samples(make(PAPER)))
    ranks = [samples(cached(PAPER, shuffle="sticky", rank=rank, world_size=2)) for rank in range(2)]
    assert dict(ranks[0]) | dict(ranks[1]) == plain


@pytest.mark.parametrize("batch_size", [BATCH_SIZE, 3])
def test_a_sticky_epoch_is_resumed_by_as_many_ranks(batch_size: int) -> None:
    for rank in range(2):
        whole = samples(make(PAPER, shuffle="sticky", rank=rank, world_size=2))
        loader = cached(PAPER, shuffle="sticky", rank=rank, world_size=2)
        start = samples(islice(loader, 2))
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["samples_consumed"] == 4 * BATCH_SIZE
        other = cached(PAPER, shuffle="sticky", rank=rank, world_size=2, batch_size=batch_size)
        other.load_state_dict(state)
        assert start + samples(other) == whole


@pytest.mark.parametrize("world_size", [1, 3])
def test_another_number_of_ranks_may_not_resume_within_a_sticky_epoch(world_size: int) -> None:
    before = make(shuffle="sticky", world_size=2)
    running = iter(before)
    next(running)
    loader = make(shuffle="sticky", world_size=world_size)
    untouched = loader.state_dict()
    message = rf"within an epoch by world_size=2 and this loader has world_size={world_size}: .* Resume with the same"
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict(before.state_dict())
    assert loader.state_dict() == untouched
    list(running)
    loader.load_state_dict(before.state_dict())
    assert loader.epoch == 1
    assert ids_of(loader) == epoch_ids(1, shuffle="sticky", world_size=world_size)


def epoch_ids(epoch: int, **options: Any) -> list[int]:
    loader = make(**options)
    loader.set_epoch(epoch)
    return ids_of(loader)


@pytest.mark.parametrize(("taken", "resumed_by"), [("sticky", True), (True, "sticky"), (False, "sticky")])
def test_a_state_of_another_order_is_refused(taken: Any, resumed_by: Any) -> None:
    loader = make(shuffle=taken)
    next(iter(loader))
    with pytest.raises(ValueError, match=r"shuffle=.*samples would be lost and repeated|the state lacks world_size"):
        make(shuffle=resumed_by).load_state_dict(loader.state_dict())


# Arguments


def test_without_a_cache_there_are_no_statistics() -> None:
    loader = make()
    list(loader)
    assert loader.cache_statistics is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": "gpu"}, "cache='gpu' is not known. Choose one of 'off', 'device', 'host'."),
        ({"cache_bytes": -1}, "cache_bytes=-1 must be at least 0"),
        ({"cache_bytes": 1.5e9}, "cache_bytes=1500000000.0 is a float, and must be a whole number"),
        ({"cache": "off"}, 'cache_bytes=10000000 sizes a cache that is off. Choose cache="device" or cache="host"'),
        ({"shuffle": "stick"}, "shuffle='stick' is not known. Choose one of True, False, 'sticky'."),
    ],
)
def test_arguments_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cached(**options)


def test_the_budget_is_part_of_what_is_available_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("augpipe.cache.host.available_host_bytes", lambda: 2_000_000)
    loader = cached(cache_bytes=None)
    list(loader)
    assert numbers(loader).budget_bytes == 1_000_000
