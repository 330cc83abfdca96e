"""A cache, on every backend: the same pixels as without one whatever fits, exact numbers, and reads that it saves."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch

from augpipe import Loader, Recipe, SampleError
from augpipe.cache import CacheStatistics, Segment
from augpipe.ops import MultiResolutionCrop
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.loader_sources import TEXT, ids_of, truncated
from tests.contracts.backends import (
    CENTRE,
    FILES,
    JPEGS,
    LEVELS,
    NUM,
    PLENTY,
    VIEWS,
    Backend,
    held_bytes,
    num_reads,
    numbers,
    plain,
    scaled_images_of,
    warnings_of,
)

SCALED = scaled_images_of(plain(recipe=CENTRE))
NEEDED = held_bytes(SCALED)
CACHES = ["host", "device"]
each_cache = pytest.mark.parametrize("cache", CACHES)


# The same pixels


@pytest.mark.thinned(2)
@each_cache
@pytest.mark.parametrize("cache_bytes", [NEEDED // 3, PLENTY])
@pytest.mark.parametrize("recipe", [LEVELS, CENTRE, VIEWS], ids=lambda recipe: recipe.name)
def test_epochs_are_those_without_a_cache(backend: Backend, recipe: Recipe, cache_bytes: int, cache: Any) -> None:
    loader = backend.loader(recipe=recipe, cache=cache, cache_bytes=cache_bytes)
    expected = plain(recipe=recipe)
    assert loader.cache_statistics is None
    for _ in range(2):
        assert backend.assert_as_plain(loader, expected) == NUM
    assert numbers(loader).hits > 0


@each_cache
def test_an_epoch_that_is_set_again_reads_nothing(backend: Backend, cache: Any) -> None:
    loader = backend.loader(recipe=LEVELS, cache=cache)
    list(loader)
    num_reads(loader)
    loader.set_epoch(0)
    list(loader)
    assert num_reads(loader) == 0
    assert (numbers(loader).hits, numbers(loader).misses) == (NUM, NUM)


def test_without_a_cache_there_are_no_statistics_and_all_is_read(backend: Backend) -> None:
    loader = backend.loader(recipe=CENTRE)
    for _ in range(2):
        list(loader)
        assert num_reads(loader) == NUM
    assert loader.cache_statistics is None


# Exact numbers


@each_cache
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_budget_of_exactly_what_there_is_and_one_byte_less(
    backend: Backend, missing: int, num_threads: int, cache: Any
) -> None:
    budget = NEEDED - missing
    loader = backend.loader(recipe=CENTRE, cache=cache, cache_bytes=budget, num_threads=num_threads)
    for epoch in range(3):
        list(loader)
        assert num_reads(loader) == (missing if epoch else NUM)
        found = numbers(loader)
        assert found == CacheStatistics(
            hits=epoch * (NUM - missing),
            misses=NUM + epoch * missing,
            num_held=NUM - missing,
            held_bytes=NEEDED - found.did_not_fit_bytes,
            budget_bytes=budget,
            allocated_bytes=budget // 16 * 16,
            num_did_not_fit=missing,
            did_not_fit_bytes=found.did_not_fit_bytes if missing else 0,
        )


@each_cache
def test_hits_are_the_images_that_came_before_at_the_same_scale(backend: Backend, cache: Any) -> None:
    """The cache knows a sample's size at one scale, so it is not read to be planned; at another it is, after all."""
    loader, expected = (made(recipe=LEVELS, **options) for made, options in with_and_without(backend, cache))
    seen: set[tuple[int, int]] = set()
    hits = 0
    for epoch in range(1, 6):
        batches = list(expected)
        backend.assert_as_plain(loader, batches)
        found = scaled_images_of(batches)
        num_there = len(seen & set(found))
        hits += num_there
        seen |= set(found)
        statistics = numbers(loader)
        assert (statistics.hits, statistics.misses) == (hits, epoch * NUM - hits)
        assert num_reads(loader) == NUM - num_there
        assert (statistics.num_held, statistics.held_bytes) == (len(seen), held_bytes(seen))
    assert len(seen) > NUM and 0 < hits < 4 * NUM


def with_and_without(backend: Backend, cache: Any) -> list[tuple[Callable[..., Loader], dict[str, Any]]]:
    return [(backend.loader, {"cache": cache}), (plain, {})]


@each_cache
def test_a_budget_that_is_too_small_keeps_what_came_first(backend: Backend, cache: Any) -> None:
    scaled = scaled_images_of(plain(JPEGS, CENTRE, batch_size=1), JPEGS)
    room, num, held = held_bytes(scaled, JPEGS) // 3, len(JPEGS), set()
    for one in scaled:
        if held_bytes([*held, one], JPEGS) <= room:
            held.add(one)
    assert 0 < len(held) < num / 2
    options: dict[str, Any] = {"cache": cache, "cache_bytes": room, "num_threads": 1, "prefetch": 1}
    loader = backend.loader(JPEGS, CENTRE, batch_size=1, **options)
    for epoch in range(2):
        list(loader)
        assert num_reads(loader) == (num - len(held) if epoch else num)
    statistics = numbers(loader)
    assert (statistics.num_held, statistics.num_did_not_fit) == (len(held), num - len(held))
    assert statistics.held_bytes == held_bytes(held, JPEGS)
    assert (statistics.hits, statistics.misses) == (len(held), 2 * num - len(held))


@each_cache
def test_no_budget_keeps_nothing(backend: Backend, cache: Any) -> None:
    loader, expected = backend.loader(recipe=CENTRE, cache=cache, cache_bytes=0), plain(recipe=CENTRE)
    for _ in range(2):
        assert backend.assert_as_plain(loader, expected) == NUM
        assert num_reads(loader) == NUM
    statistics = numbers(loader)
    assert (statistics.hits, statistics.misses, statistics.num_held) == (0, 2 * NUM, 0)
    assert statistics.allocated_bytes == 0 and statistics.num_did_not_fit == NUM


def test_what_nobody_took_is_not_counted(backend: Backend) -> None:
    loader = backend.loader(recipe=CENTRE, cache="host", prefetch=2)
    list(islice(loader, 2))
    running = iter(loader)
    next(running)
    statistics = numbers(loader)
    assert statistics.hits + statistics.misses == 3 * 4
    assert statistics.misses >= 2 * 4


@each_cache
def test_memory_that_is_refused(
    backend: Backend, cache: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    empty = torch.empty

    def refuse(num_bytes: int) -> Segment:
        raise MemoryError

    def refuse_on_device(*args: Any, **options: Any) -> Any:
        if args == (PLENTY,):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 MB")
        return empty(*args, **options)

    on_device = backend.is_device and cache == "device"
    monkeypatch.setattr("augpipe.cache.host_cache.host_segment", refuse)
    monkeypatch.setattr(torch, "empty", refuse_on_device)
    loader = backend.loader(recipe=CENTRE, cache=cache)
    assert backend.assert_as_plain(loader, plain(recipe=CENTRE)) == NUM
    assert numbers(loader).num_held == numbers(loader).budget_bytes == 0
    (line,) = warnings_of(caplog)
    assert line.startswith("the cache holds 0 bytes and stops growing")
    assert ("CUDA out of memory" in line) == on_device


# Bad files


@each_cache
@pytest.mark.parametrize(("batch_size", "num_threads"), [(1, 1), (5, 3)])
def test_bad_files_are_replaced_from_the_cache(backend: Backend, batch_size: int, num_threads: int, cache: Any) -> None:
    bad = {0: TEXT, 4: truncated(), 7: b"", 9: truncated(1)}
    contents = [bad.get(i, content) for i, content in enumerate(FILES)]
    options: dict[str, Any] = {"recipe": CENTRE, "on_error": "skip", "batch_size": batch_size}
    loader = backend.loader(contents, cache=cache, num_threads=num_threads, **options)
    expected = plain(contents, **options)
    for epoch in range(3):
        num_reads(loader)
        assert backend.assert_as_plain(loader, expected) == NUM
        assert loader.skipped == expected.skipped
        statistics = numbers(loader)
        assert statistics.hits + statistics.misses == (epoch + 1) * NUM
        assert statistics.num_held == NUM - len(bad)
        if epoch:
            assert num_reads(loader) == len(bad), "they alone are looked at again"
    assert set(loader.skipped) == set(bad)


def test_a_damaged_file_takes_no_room(backend: Backend) -> None:
    contents = [truncated() if i == 5 else content for i, content in enumerate(FILES)]
    room = held_bytes(one for one in SCALED if one[0] != 5)
    options: dict[str, Any] = {"on_error": "skip", "num_threads": 1, "shuffle": False}
    loader = backend.loader(contents, CENTRE, cache="host", cache_bytes=room, **options)
    for _ in range(3):
        list(loader)
    assert (numbers(loader).num_held, numbers(loader).held_bytes) == (NUM - 1, room)


def test_a_source_that_changes_is_noticed_where_it_is_read_again(backend: Backend) -> None:
    """What was cached at one DCT scale is wanted at another, and is of another size meanwhile."""
    recipe = Recipe(ops=(MultiResolutionCrop(size=4, scales=(9, 40)),))
    contents = [encoded(scene(80 + i, 90, i), "JPEG") for i in range(8)]
    loader = backend.loader(contents, recipe, cache="host", num_threads=1)
    list(loader)
    loader.source.contents = [encoded(scene(70, 71), "JPEG")] * 8  # type: ignore[attr-defined]
    message = r"it was 90x8\d pixels when it was cached, and is 71x70 now. Sources must not change while a loader lives"
    with pytest.raises(SampleError, match=message):
        list(loader)


# Ranks


@each_cache
@pytest.mark.parametrize("world_size", [2, 3])
def test_sticky_ranks_read_their_samples_once(backend: Backend, world_size: int, cache: Any) -> None:
    options = [{"shuffle": "sticky", "rank": rank, "world_size": world_size} for rank in range(world_size)]
    loaders = [backend.loader(recipe=CENTRE, cache=cache, **one) for one in options]
    expected = [plain(recipe=CENTRE, **one) for one in options]
    orders = []
    for epoch in range(3):
        found = [list(loader) for loader in loaders]
        orders.append([ids_of(batches) for batches in found])
        for rank, loader in enumerate(loaders):
            backend.assert_as_plain(found[rank], expected[rank])
            assert sorted(orders[-1][rank]) == list(range(rank, NUM, world_size))
            assert num_reads(loader) == (0 if epoch else len(orders[-1][rank]))
            assert numbers(loader).hits == epoch * len(orders[-1][rank])
            assert len(loader) == -(-NUM // (4 * world_size))
    assert len({tuple(epoch[0]) for epoch in orders}) == 3


def test_ranks_that_shuffle_freely_read_each_others_samples(backend: Backend) -> None:
    loader = backend.loader(recipe=CENTRE, cache="host", rank=0, world_size=2)
    list(loader)
    num_reads(loader)
    list(loader)
    assert 0 < num_reads(loader) < NUM // 2
