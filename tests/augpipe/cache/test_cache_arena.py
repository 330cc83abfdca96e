"""The arena: budgets too small, exactly right and zero, gaps, segments, and memory that runs out."""

import logging
import random
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from augpipe.cache.arena import ALIGNMENT_BYTES, Arena, Place, Segment
from augpipe.cache.host_cache import host_segment
from tests.augpipe.loader.loader_sources import together


class Allocator:
    """Segments at made-up addresses, of which no memory is touched; `problem` is raised once `limit` are out."""

    def __init__(self, limit: int = 1_000_000, problem: BaseException | None = None) -> None:
        self.limit = limit
        self.problem = problem
        self.sizes: list[int] = []

    def __call__(self, num_bytes: int) -> Segment | None:
        if len(self.sizes) == self.limit:
            if self.problem is not None:
                raise self.problem
            return None
        self.sizes.append(num_bytes)
        return Segment(memory=len(self.sizes), address=len(self.sizes) << 40, num_bytes=num_bytes)


def spans(places: list[Place]) -> list[tuple[int, int]]:
    """(first address, address after the last byte), sorted."""
    return sorted((place.address, place.address + place.num_bytes) for place in places)


def assert_apart(places: list[Place]) -> None:
    found = spans(places)
    assert all(end <= start for (_, end), (start, _) in pairwise(found))
    for place in places:
        assert place.address % ALIGNMENT_BYTES == 0
        assert place.offset >= 0 and place.offset + place.num_bytes <= place.segment.num_bytes


def take_all(arena: Arena, sizes: list[int]) -> list[Place]:
    places = [arena.take(size) for size in sizes]
    assert all(places)
    return [place for place in places if place is not None]


def test_nothing_is_allocated_before_it_is_needed() -> None:
    allocate = Allocator()
    arena = Arena(1000, 160, allocate)
    assert allocate.sizes == [] and arena.allocated_bytes == 0 and arena.segments == ()
    assert arena.take(100) is not None
    assert allocate.sizes == [160] and arena.allocated_bytes == 160


def test_a_budget_of_the_aligned_sizes_holds_everything_and_not_a_byte_less_does() -> None:
    sizes = [1, 15, 16, 17, 100, 4096, 33]
    total = sum(-(-size // 16) * 16 for size in sizes)
    exact = Arena(total, total, Allocator())
    places = take_all(exact, sizes)
    assert_apart(places)
    assert exact.allocated_bytes == exact.budget_bytes == total and exact.take(1) is None
    assert exact.take(1) is None

    short = Arena(total - 1, total - 1, Allocator())
    assert [short.take(size) is not None for size in sizes] == [True] * 6 + [False]
    assert short.allocated_bytes == total - 16  # a budget's odd end holds nothing


@pytest.mark.parametrize(
    ("budget", "sizes", "are_taken", "segments"),
    [
        # what is too large leaves room for what is smaller
        (160, [96, 80, 64, 80, 1], [True, False, True, False, False], [160]),
        # the ends of full segments are used
        (320, [112, 112, 48, 48, 1], [True, True, True, True, False], [160, 160]),
        # a large piece gets a segment of its own, a later one the first one's end, and the last segment what is left
        (600, [10, 400, 140, 20, 32], [True, True, True, True, False], [160, 400, 32]),
    ],
)
def test_where_pieces_go(budget: int, sizes: list[int], are_taken: list[bool], segments: list[int]) -> None:
    allocate = Allocator()
    arena = Arena(budget, 160, allocate)
    places = [arena.take(size) for size in sizes]
    assert [place is not None for place in places] == are_taken
    assert allocate.sizes == segments and arena.allocated_bytes == sum(segments) <= arena.budget_bytes == budget
    assert_apart([place for place in places if place is not None])


def test_the_segments_never_take_more_than_the_budget() -> None:
    rng = np.random.default_rng(0)
    for budget in rng.integers(0, 5000, 40):
        allocate = Allocator()
        arena = Arena(int(budget), int(rng.integers(1, 1000)), allocate)
        places = [place for size in rng.integers(1, 700, 60) if (place := arena.take(int(size))) is not None]
        assert_apart(places)
        assert sum(allocate.sizes) == arena.allocated_bytes <= budget
        assert sum(place.num_bytes for place in places) <= arena.allocated_bytes


def test_what_is_given_back_is_taken_again_and_neighbours_grow_together() -> None:
    arena = Arena(480, 480, Allocator())
    first, second, third = take_all(arena, [160, 160, 160])
    assert arena.take(16) is None
    arena.give_back(first)
    assert arena.take(176) is None
    arena.give_back(third)
    assert arena.take(176) is None
    arena.give_back(second)
    assert spans(take_all(arena, [480])) == [(first.address, first.address + 480)]


def test_pieces_of_two_segments_do_not_grow_together() -> None:
    def adjacent(num_bytes: int) -> Segment:
        made.append(Segment(memory=None, address=160 * (len(made) + 1), num_bytes=num_bytes))
        return made[-1]

    made: list[Segment] = []
    arena = Arena(320, 160, adjacent)
    for place in take_all(arena, [160, 160]):
        arena.give_back(place)
    assert arena.take(176) is None


# Memory that runs out


class DeviceIsFull(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("problem", "kinds", "reason"),
    [
        (MemoryError(), (MemoryError,), "MemoryError"),
        (MemoryError("Unable to allocate"), (MemoryError,), "Unable to allocate"),
        (DeviceIsFull("CUDA out of memory. Tried\nmore lines"), (DeviceIsFull,), "CUDA out of memory. Tried"),
    ],
)
def test_out_of_memory_shrinks_the_arena_and_says_so_once(
    problem: BaseException, kinds: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    arena = Arena(1000, 160, Allocator(limit=2, problem=problem), kinds)
    assert [arena.take(100) is not None for _ in range(5)] == [True, True, False, False, False]
    assert arena.budget_bytes == arena.allocated_bytes == 320
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.records[0].name == "augpipe"
    assert caplog.records[0].getMessage() == (
        f"the cache holds 320 bytes and stops growing: another 160 of its 1000 bytes are not to be had ({reason}). "
        "What is in it stays in use, and other photographs are decoded each time. "
        "Lower cache_bytes to leave memory to others."
    )
    assert arena.take(48) is not None, "the ends of its segments are still to be had"


def test_other_errors_are_not_taken_for_a_lack_of_memory(caplog: pytest.LogCaptureFixture) -> None:
    allocate = Allocator(limit=0, problem=DeviceIsFull("an illegal memory access"))
    arena = Arena(1000, 160, allocate)
    with pytest.raises(DeviceIsFull, match="illegal"):
        arena.take(100)
    assert caplog.records == []
    allocate.limit = 1
    assert arena.take(100) is not None, "no lock is left held"


def test_memory_that_the_system_refuses(caplog: pytest.LogCaptureFixture) -> None:
    arena = Arena(2**62, 2**62, host_segment)
    assert arena.take(100) is None
    assert arena.budget_bytes == 0
    assert "the cache holds 0 bytes and stops growing" in caplog.text


# Threads


def run_together(num: int, work: Callable[[int], None]) -> None:
    """`work(number)` in `num` threads that start at once and may take turns at every step within the cache's code.

    Fails where one of them does.
    """

    def take_turns(frame: FrameType, event: str, argument: object) -> Any:
        if Path(frame.f_code.co_filename).parent.name != "cache":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and turns.random() < 0.1:
            time.sleep(0)
        return take_turns

    turns = random.Random(num)
    before = threading.gettrace()
    threading.settrace(take_turns)
    try:
        together(num, work)
    finally:
        threading.settrace(before)


@pytest.mark.slow
def test_threads_get_pieces_of_their_own() -> None:
    taken: list[list[Place]] = [[] for _ in range(8)]
    total = 8 * 40 * 48
    arena = Arena(total, 48 * 50, Allocator())

    def work(number: int) -> None:
        for step in range(40):
            place = arena.take(33 + number)
            assert place is not None
            if step % 5 == 0:
                arena.give_back(place)
                place = arena.take(33 + number)
                assert place is not None
            taken[number].append(place)

    run_together(8, work)
    places = [place for own in taken for place in own]
    assert_apart(places)
    assert len(places) == 320 and arena.allocated_bytes == total
    assert arena.take(1) is None
