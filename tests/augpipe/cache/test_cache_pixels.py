"""The cache of pixels: what is found where, in two steps, with exact numbers, from several threads."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from augpipe.cache import Arena, CacheStatistics, PixelCache, Segment
from augpipe.cache.host_cache import host_cache, host_segment
from tests.augpipe.cache.test_cache_arena import run_together

FACTORS = (1, 2, 4, 8)
EMPTY = CacheStatistics(
    hits=0,
    misses=0,
    num_held=0,
    held_bytes=0,
    budget_bytes=0,
    allocated_bytes=0,
    num_did_not_fit=0,
    did_not_fit_bytes=0,
)


def picture(sample_id: int, factor: int, height: int, width: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Pixels that tell sample and factor."""
    shape = -(-height // factor), -(-width // factor), 4
    return np.random.default_rng([sample_id, factor]).integers(0, 256, shape, np.uint8)


def put(cache: PixelCache, sample_id: int, factor: int = 1, height: int = 20, width: int = 30) -> bool:
    """Write an image as a backend does; whether there was room."""
    slot = cache.reserve(sample_id, factor, height, width, factor > 1)
    if slot is None:
        return False
    slot.pixels.array[...] = picture(sample_id, factor, height, width)
    assert slot.place.num_bytes == -(-slot.pixels.array.size // 16) * 16
    assert slot.place.address == slot.pixels.address
    cache.commit(slot)
    return True


def holds(cache: PixelCache, sample_id: int, factor: int = 1, height: int = 20, width: int = 30) -> bool:
    """Whether the image is found; fails where it is not the one that was put there."""
    held = cache.find(sample_id, factor)
    if held is None:
        return False
    expected = picture(sample_id, factor, height, width)
    np.testing.assert_array_equal(held.array, expected, strict=True)
    assert (held.height, held.width, held.channels) == expected.shape and held.is_on_host
    assert (held.first_x, held.first_y) == (0, 0) and held.address == held.array.ctypes.data
    return True


def test_what_was_committed_is_found_with_its_size() -> None:
    cache = host_cache(10, 100_000)
    assert cache.size_of(3) is None and cache.find(3, 1) is None
    assert put(cache, 3, 2, 41, 55)
    assert holds(cache, 3, 2, 41, 55)
    assert cache.size_of(3) == (41, 55, True)
    assert put(cache, 4, 1, 7, 9)
    assert holds(cache, 4, 1, 7, 9)
    assert cache.size_of(4) == (7, 9, False)
    assert [cache.size_of(i) for i in (0, 2, 5, 9)] == [None] * 4
    assert all(cache.find(i, factor) is None for i in (0, 2, 5, 9) for factor in FACTORS)


def test_one_sample_is_held_at_every_factor_by_itself() -> None:
    cache = host_cache(2, 100_000)
    for position, factor in enumerate(FACTORS):
        assert [holds(cache, 1, other, 45, 37) for other in FACTORS] == [i < position for i in range(4)]
        slot = cache.reserve(1, factor, 45, 37, True)
        assert slot is not None and slot.pixels.array.shape == (-(-45 // factor), -(-37 // factor), 4)
        cache.cancel(slot)
        assert put(cache, 1, factor, 45, 37)
    assert all(holds(cache, 1, factor, 45, 37) for factor in FACTORS)
    assert cache.size_of(1) == (45, 37, True)
    assert cache.size_of(0) is None
    assert cache.statistics().num_held == 4


def test_nobody_finds_what_is_not_committed_and_nobody_reserves_it_twice() -> None:
    cache = host_cache(2, 100_000)
    slot = cache.reserve(0, 1, 20, 30, False)
    assert slot is not None
    assert cache.find(0, 1) is None and cache.size_of(0) is None
    assert cache.reserve(0, 1, 20, 30, False) is None
    assert cache.addresses_of(np.array([0]), np.array([1])).tolist() == [0]
    assert cache.statistics() == dataclasses.replace(EMPTY, budget_bytes=100_000, allocated_bytes=100_000)
    slot.pixels.array[...] = picture(0, 1, 20, 30)
    cache.commit(slot)
    assert holds(cache, 0)
    assert cache.reserve(0, 1, 20, 30, False) is None
    assert cache.statistics().num_did_not_fit == 0, "what is there did not fail to fit"


def test_a_cancelled_slot_leaves_no_trace() -> None:
    cache = host_cache(2, 2400)
    slot = cache.reserve(0, 1, 20, 30, False)
    assert slot is not None
    assert not put(cache, 1)
    assert cache.statistics().num_did_not_fit == 1
    cache.cancel(slot)
    assert cache.find(0, 1) is None and cache.size_of(0) is None
    assert put(cache, 1), "its room went to another"
    assert holds(cache, 1)
    assert cache.statistics() == dataclasses.replace(
        EMPTY, num_held=1, held_bytes=2400, budget_bytes=2400, allocated_bytes=2400
    )


# Whole batches


def test_a_batch_is_looked_up_as_its_samples_are() -> None:
    cache = host_cache(50, 10_000_000)
    rng = np.random.default_rng(1)
    for _ in range(60):
        sample_id, factor = int(rng.integers(50)), FACTORS[rng.integers(4)]
        put(cache, sample_id, factor, 20 + sample_id, 100 - sample_id)
    ids, factors = rng.integers(0, 50, 300), rng.choice(FACTORS, 300)
    addresses, sizes = cache.addresses_of(ids, factors), cache.sizes_of(ids)
    assert addresses.dtype == sizes.heights.dtype == sizes.widths.dtype == np.int64
    assert 0 < np.count_nonzero(addresses) < 300
    for i, (sample_id, factor) in enumerate(zip(ids.tolist(), factors.tolist(), strict=True)):
        held = cache.find(sample_id, factor)
        assert addresses[i] == (0 if held is None else held.address)
        found = int(sizes.heights[i]), int(sizes.widths[i]), bool(sizes.may_scale[i])
        assert found == (cache.size_of(sample_id) or (0, 0, False))


def test_an_empty_batch_is_looked_up() -> None:
    cache, none = host_cache(5, 1000), np.empty(0, np.int64)
    assert cache.addresses_of(none, none).shape == (0,)
    assert cache.sizes_of(none).heights.shape == (0,)


# Budgets


def test_images_at_two_factors_that_do_not_fit_are_two() -> None:
    cache = host_cache(2, 16)
    for _ in range(2):
        assert not put(cache, 0, 1) and not put(cache, 0, 2)
    statistics = cache.statistics()
    assert (statistics.num_did_not_fit, statistics.did_not_fit_bytes) == (2, 2400 + 608)


# Where it is kept


def test_a_cache_elsewhere_has_addresses_and_no_pixels() -> None:
    def allocate(num_bytes: int) -> Segment:
        made.append(Segment(memory=object(), address=2**47 + 10_000 * len(made), num_bytes=num_bytes))
        return made[-1]

    made: list[Segment] = []
    cache = PixelCache(4, Arena(20_000, 4800, allocate), is_on_host=False)
    slots = [cache.reserve(i, 1, 20, 30, True) for i in range(4)]
    for slot in slots:
        assert slot is not None
        assert not slot.pixels.is_on_host
        cache.commit(slot)
    expected = [2**47, 2**47 + 2400, 2**47 + 10_000, 2**47 + 12_400]
    assert cache.addresses_of(np.arange(4), np.ones(4, np.int64)).tolist() == expected
    for i in range(4):
        held = cache.find(i, 1)
        assert held is not None and not held.is_on_host
        assert (held.address, held.owner) == (expected[i], made[i // 2].memory)
    found = cache.find_all(np.array([3, 1, 0]), np.array([1, 2, 1]))
    assert {i: (pixels.address, pixels.owner) for i, pixels in found.items()} == {
        0: (expected[3], made[1].memory),
        2: (expected[0], made[0].memory),
    }


def test_what_is_not_held_takes_a_few_bytes_a_sample() -> None:
    num = 100_000
    tracemalloc.start()
    try:
        cache = PixelCache(num, Arena(10**9, 1000, host_segment), is_on_host=True)
        empty_bytes = tracemalloc.get_traced_memory()[0]
        assert put(cache, 7, 1, 4, 4) and put(cache, 7, 8, 4, 4)
        used_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 10 * num <= empty_bytes < 10 * num + 20_000
    assert 26 * num <= used_bytes < 26 * num + 20_000


# Counting


MIB, GIB = 2**20, 2**30
SHOWN = [
    ({"budget_bytes": 2 * GIB}, "empty, room for 2.00 GiB"),
    ({"budget_bytes": 2 * GIB, "misses": 8}, "empty, room for 2.00 GiB; 0 of 8 samples (0.0 %) were there"),
    (
        {"num_did_not_fit": 1, "did_not_fit_bytes": 2400},
        "0 pictures in 0 B of 0 B, 1 picture more (2.34 KiB) did not fit",
    ),
    (
        {"num_held": 1000, "held_bytes": 700 * MIB, "budget_bytes": 2 * GIB, "hits": 3000, "misses": 1000},
        "1,000 pictures in 700 MiB of 2.00 GiB, all that came; 3,000 of 4,000 samples (75.0 %) were there",
    ),
    (
        {
            "num_held": 1,
            "held_bytes": 1023,
            "budget_bytes": 12345 * MIB,
            "num_did_not_fit": 20000,
            "did_not_fit_bytes": 3 * 2**40,
            "hits": 1,
        },
        "1 picture in 1023 B of 12.1 GiB, 20,000 pictures more (3.00 TiB) did not fit; "
        "1 of 1 sample (100.0 %) were there",
    ),
    (
        {"num_held": 2, "num_label_maps": 1, "held_bytes": 1023, "budget_bytes": 1023},
        "2 pictures and 1 label map in 1023 B of 1023 B, all that came",
    ),
    (
        {"num_held": 2, "held_bytes": 9, "num_label_maps_did_not_fit": 2, "did_not_fit_bytes": 8},
        "2 pictures in 9 B of 0 B, 2 label maps more (8 B) did not fit",
    ),
    ({"num_label_maps": 2}, "2 label maps in 0 B of 0 B, all that came"),
]


@pytest.mark.parametrize(("numbers", "text"), SHOWN)
def test_statistics_read_well(numbers: dict[str, int], text: str) -> None:
    assert str(dataclasses.replace(EMPTY, **numbers)) == text


# Threads


@pytest.mark.slow
def test_threads_that_fill_and_read_see_whole_images_and_exact_numbers() -> None:
    num, num_threads = 24, 4
    shapes = [(8 + i % 5, 9 + i % 7) for i in range(num)]
    needed = sum(-(-h * w * 4 // 16) * 16 for h, w in shapes)
    budget = needed * 2 // 3
    cache = host_cache(num, budget)
    found, missed = [0] * num_threads, [0] * num_threads

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(3):
            for sample_id in rng.permutation(num).tolist():
                if holds(cache, sample_id, 1, *shapes[sample_id]):
                    found[number] += 1
                    assert cache.size_of(sample_id) == (*shapes[sample_id], False)
                    cache.count(hits=1, misses=0)
                else:
                    missed[number] += 1
                    cache.count(hits=0, misses=1)
                    if rng.random() < 0.2:
                        slot = cache.reserve(sample_id, 1, *shapes[sample_id], False)
                        if slot is not None:
                            cache.cancel(slot)
                    put(cache, sample_id, 1, *shapes[sample_id])

    run_together(num_threads, work)
    for sample_id in range(num):
        put(cache, sample_id, 1, *shapes[sample_id])
    held = [i for i in range(num) if holds(cache, i, 1, *shapes[i])]
    statistics = cache.statistics()
    assert (statistics.hits, statistics.misses) == (sum(found), sum(missed))
    assert statistics.hits + statistics.misses == num_threads * 3 * num and statistics.hits > 0
    assert 0 < statistics.num_held == len(held) < num
    assert statistics.held_bytes == sum(-(-shapes[i][0] * shapes[i][1] * 4 // 16) * 16 for i in held) <= budget
    assert statistics.num_did_not_fit == num - len(held)
    assert statistics.held_bytes + statistics.did_not_fit_bytes == needed
