"""Batches at places in any order: those of plain loaders to the last bit, drawn lazily, and refused where none is."""

import queue
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from augpipe import Batch, Loader, MixedLabels, Place, Recipe, SampleError, ops, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.pipeline import choose
from augpipe.pipeline.batches import BatchMaker
from augpipe.sampling import ClassBalanced, Weighted
from augpipe.sources.protocol import Source
from tests.augpipe.loader.loader_sources import (
    PAPER,
    SEVERAL_VIEWS,
    MemorySource,
    arrays,
    as_array,
    assert_no_worker_threads,
    jpegs,
    samples,
    truncated,
    views_of,
    wait_until,
    worker_threads,
)

NUM, SIZE, EPOCHS = 37, 4, (2, 5)  # one sample is left over in worlds of 1 and 3 ranks, five in one of 2
FILES = jpegs(NUM)
LABELS = [i % 3 for i in range(NUM)]
DAMAGED = [truncated(i) if i in (3, 4, 20) else data for i, data in enumerate(FILES)]
MIXED = Recipe(
    ops=(ops.RandomResizedCrop(size=(9, 14)), ops.Flip(), ops.Normalize()),
    mixing=(ops.MixUp(alpha=0.5, p=0.4), ops.CutMix(p=0.4)),
)
SCHEDULE = {0: recipes.deep_image(8, (8, 16)), 4: PAPER}

KINDS: dict[str, tuple[Any, Source, dict[str, Any]]] = {
    "plain": (PAPER, MemorySource(FILES, LABELS), {}),
    "views": (SEVERAL_VIEWS, MemorySource(FILES, LABELS), {}),
    "an array": (PAPER, ArraySource(np.stack(arrays(NUM)), labels=LABELS), {}),
    "in the source's order": (PAPER, MemorySource(FILES, LABELS), {"shuffle": False}),
    "mixed": (MIXED, MemorySource(FILES, LABELS), {}),
    "class-balanced": (PAPER, MemorySource(FILES, LABELS), {"sampler": ClassBalanced(num=41)}),
    "weighted and mixed": (MIXED, MemorySource(FILES, LABELS), {"sampler": Weighted(range(NUM))}),
    "sticky": (PAPER, MemorySource(FILES, LABELS), {"shuffle": "sticky"}),
    "sticky and mixed": (MIXED, MemorySource(FILES, LABELS), {"shuffle": "sticky"}),
    "skipping": (PAPER, MemorySource(DAMAGED, LABELS), {"on_error": "skip"}),
    "skipping and mixed": (MIXED, MemorySource(DAMAGED, LABELS), {"on_error": "skip"}),
    "cached": (PAPER, MemorySource(FILES, LABELS), {"cache": "host", "cache_bytes": 10**6}),
    "a schedule": (SCHEDULE, MemorySource(FILES, LABELS), {}),
    "whole batches": (PAPER, MemorySource(FILES, LABELS), {"drop_last": True}),
}

Bits = tuple[Any, ...]


def make(kind: str = "plain", **options: Any) -> Loader:
    recipe, source, more = KINDS[kind]
    settings = {"batch_size": SIZE, "num_threads": 2, "framework": "numpy", "seed": 7} | more | options
    return Loader(source, recipe, **settings)


def bits(batch: Batch) -> Bits:
    """All that a batch holds: equal only where every bit is."""
    labels = batch.labels if isinstance(batch.labels, MixedLabels) else (batch.labels,)
    images = [(tuple(view.shape), as_array(view).tobytes()) for view in views_of(batch)]
    plans = [rows.tobytes() for rows in batch.plan.views]
    return batch.sample_ids.tolist(), images, plans, [each.tolist() for each in labels]


@cache
def plain_batches(kind: str, world_size: int) -> dict[Place, Bits]:
    """The batches of two epochs of each rank's plain loader, by their places."""
    found = {}
    for rank in range(world_size):
        loader = make(kind, rank=rank, world_size=world_size)
        for epoch in EPOCHS:
            loader.set_epoch(epoch)
            for number, batch in enumerate(loader):
                first = number * SIZE * world_size
                found[Place(epoch=epoch, first=first, rank=rank, world_size=world_size)] = bits(batch)
    return found


def places_of(num: int = NUM, **options: Any) -> list[Place]:
    """Places of one epoch of a single rank, or of another rank."""
    step = SIZE * options.get("world_size", 1)
    return [Place(**({"epoch": 2, "first": first} | options)) for first in range(0, num, step)]


def drawn_by(places: Sequence[Place], noted: list[Place]) -> Iterator[Place]:
    for place in places:
        noted.append(place)
        yield place


# The same batches


@pytest.mark.slow
@given(
    kind=st.sampled_from(list(KINDS)),
    data=st.data(),
    prefetch=st.integers(1, 4),
    num_threads=st.integers(1, 3),
    own=st.sampled_from([(0, 1), (1, 2), (2, 3)]),
)
def test_batches_in_any_order_are_those_of_plain_loaders(
    kind: str, data: st.DataObject, prefetch: int, num_threads: int, own: tuple[int, int]
) -> None:
    expected = {place: found for world in (1, 2, 3) for place, found in plain_batches(kind, world).items()}
    places = data.draw(st.lists(st.sampled_from(list(expected)), min_size=1, max_size=12))
    loader = make(kind, prefetch=prefetch, num_threads=num_threads, rank=own[0], world_size=own[1])
    found = [bits(batch) for batch in loader.batches(places)]
    assert found == [expected[place] for place in places]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_batch_of_every_rank_by_one_loader(kind: str) -> None:
    loader = make(kind, cache="host", cache_bytes=10**6) if kind != "an array" else make(kind)
    for world_size in (1, 2, 3):
        expected = plain_batches(kind, world_size)
        places = list(expected)
        random.Random(world_size).shuffle(places)
        assert [bits(batch) for batch in loader.batches(places)] == [expected[place] for place in places]


@pytest.mark.slow
def test_the_batches_could_differ() -> None:
    for kind in set(KINDS) - {"in the source's order"}:
        found = [tuple(found[0]) for world in (1, 2, 3) for found in plain_batches(kind, world).values() if found[0]]
        assert len(set(found)) > 0.9 * len(found)
    by_rank = plain_batches("sticky", 3)
    for place, (sample_ids, *_) in by_rank.items():
        assert all(sample_id % 3 == place.rank for sample_id in sample_ids)
    assert any(found[0] == [] for found in by_rank.values())
    assert all(len(found[0]) == SIZE for found in plain_batches("whole batches", 3).values())


def test_places_of_a_rest_are_those_of_a_loader_that_was_resumed() -> None:
    for rank in range(2):
        resumed = make(rank=rank, world_size=2)
        resumed.load_state_dict(resumed.state_dict() | {"epoch": 2, "samples_consumed": 5})
        places = [Place(epoch=2, first=first, rank=rank, world_size=2) for first in range(5, NUM, 2 * SIZE)]
        assert samples(make().batches(reversed(places))) == samples(reversed(list(resumed)))


def test_a_rank_without_samples_gets_an_empty_batch_of_the_right_shape() -> None:
    place = Place(epoch=2, first=36, rank=2, world_size=3)
    for kind, labels in (("plain", 1), ("views", 1), ("mixed", 3), ("class-balanced", 1), ("sticky and mixed", 3)):
        first = place if kind != "class-balanced" else Place(epoch=2, first=36 + 4, rank=2, world_size=3)
        if kind == "class-balanced":
            assert first.first + first.rank >= 41
        (batch,) = make(kind).batches([first])
        (full,) = make(kind).batches([Place(epoch=2, first=0)])
        assert len(batch) == len(batch.plan) == len(batch.sample_ids) == 0
        shapes = [tuple(view.shape[1:]) for view in views_of(full)]
        assert [tuple(view.shape) for view in views_of(batch)] == [(0, *shape) for shape in shapes]
        assert len(bits(batch)[3]) == labels


def test_tensors_hold_what_arrays_do() -> None:
    places = [place for place in plain_batches("plain", 2) if place.first % 16 == 0]
    for batch, place in zip(make(framework="torch").batches(places), places, strict=True):
        assert isinstance(batch.images, torch.Tensor) and isinstance(batch.labels, torch.Tensor)
        assert bits(batch) == plain_batches("plain", 2)[place]


def test_numpy_integers_are_places() -> None:
    whole = Place(epoch=np.int64(2), first=np.int32(8), rank=np.int8(1), world_size=np.uint8(2))
    (batch,) = make().batches([whole])
    assert bits(batch) == plain_batches("plain", 2)[Place(epoch=2, first=8, rank=1, world_size=2)]


# Drawn lazily and made ahead


@pytest.mark.parametrize("prefetch", [1, 2, 5])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_exactly_prefetch_places_are_drawn_beyond_the_batch_that_is_given(prefetch: int, num_threads: int) -> None:
    places, noted = places_of(), list[Place]()
    running = make(prefetch=prefetch, num_threads=num_threads).batches(drawn_by(places, noted))
    assert noted == []
    for number, _ in enumerate(running, 1):
        assert len(noted) == min(number + prefetch, len(places))
        if number == 2:
            wait_until(lambda: len(worker_threads()) == num_threads)


def test_batches_are_made_ahead() -> None:
    source = MemorySource(FILES)
    loader = Loader(source, PAPER, batch_size=SIZE, framework="numpy", num_threads=2, prefetch=3)
    running = loader.batches(places_of())
    assert source.num_reads == 0 and worker_threads() == []
    next(running)
    wait_until(lambda: source.num_reads == 4 * SIZE)


def test_a_queue_feeds_a_pass() -> None:
    waiting: queue.Queue[Place | None] = queue.Queue()
    places = places_of()
    for place in places[:3]:
        waiting.put(place)
    running = make(prefetch=2).batches(iter(lambda: waiting.get(timeout=60), None))
    found = []
    for place in [*places[3:], None]:
        found.append(bits(next(running)))
        waiting.put(place)
    found += [bits(batch) for batch in running]
    assert found == [plain_batches("plain", 1)[place] for place in places]


# The pass, and the loader's own place


ENDINGS: dict[str, Callable[[Loader, Any], Any]] = {
    "its end": lambda loader, running: list(running),
    "close": lambda loader, running: running.close(),
    "a new pass": lambda loader, running: iter(loader),
    "other places": lambda loader, running: loader.batches([]),
    "a state": lambda loader, running: loader.load_state_dict(loader.state_dict()),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_pass_ends_with_its_threads(ending: str) -> None:
    loader = make()
    running = loader.batches(places_of())
    next(running)
    assert len(worker_threads()) == 2
    ENDINGS[ending](loader, running)
    assert worker_threads() == []
    if ending in ("its end", "close"):
        assert list(running) == []
    else:
        with pytest.raises(RuntimeError, match="this pass over the loader was ended by "):
            next(running)


def test_a_pass_that_is_dropped_ends() -> None:
    running = make().batches(places_of())
    next(running)
    del running
    assert_no_worker_threads()


def test_an_error_of_the_places_ends_the_pass() -> None:
    def broken() -> Iterator[Place]:
        yield from places_of()[:4]
        raise ConnectionError("the dispatcher is gone")

    running = make(prefetch=2).batches(broken())
    assert len(list(islice(running, 2))) == 2
    with pytest.raises(ConnectionError, match="the dispatcher is gone"):
        next(running)
    assert worker_threads() == []


def test_what_cannot_be_iterated_leaves_a_running_pass_alone() -> None:
    loader = make()
    running = iter(loader)
    next(running)
    nothing: Any = None
    with pytest.raises(TypeError, match="not iterable"):
        loader.batches(nothing)
    assert len(list(running)) == len(loader) - 1


def test_the_loader_stays_where_it_was() -> None:
    loader, expected = make(), make()
    loader.set_epoch(2)
    expected.set_epoch(2)
    next(running := iter(loader))
    state = loader.state_dict()
    list(loader.batches([Place(epoch=9, first=0), *places_of(epoch=7)]))
    assert loader.state_dict() == state and loader.epoch == 2
    with pytest.raises(RuntimeError, match=r"was ended by batches\(places\)"):
        next(running)
    assert samples(loader) == samples(expected)  # as after any pass that was broken off
    loader.load_state_dict(state)
    list(loader.batches(places_of(epoch=7)))
    assert [bits(batch) for batch in loader] == [plain_batches("plain", 1)[place] for place in places_of()[1:]]
    loader.set_epoch(5)
    running = loader.batches(places_of())
    next(running)
    loader.set_epoch(6)
    assert bits(next(running)) == plain_batches("plain", 1)[places_of()[1]]


def test_recipes_change_within_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[BatchMaker] = []

    class Noted(BatchMaker):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(choose, "BatchMaker", Noted)
    places = [Place(epoch=epoch, first=first) for first in range(0, NUM, SIZE) for epoch in (5, 2, 3)]
    loader = make("a schedule", prefetch=4)
    sides = [batch.images.shape[-1] for batch in loader.batches(places)]
    assert sides == [16, 8, 8] * 10 and len(made) == 2
    for epoch in EPOCHS:
        loader.set_epoch(epoch)
        expected = [plain_batches("a schedule", 1)[place] for place in places_of(epoch=epoch)]
        assert [bits(batch) for batch in loader] == expected


# Images that cannot be used


def test_what_is_skipped_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    loader = make("skipping", shuffle=False)
    list(loader.batches(places_of() + places_of(epoch=3)))
    assert set(loader.skipped) == {3, 4, 20}
    texts = [record.getMessage() for record in caplog.records]
    assert sum(text.startswith("skipped sample") for text in texts) == 3
    assert texts[-1] == "places: 3 photographs were skipped"
    caplog.clear()
    list(loader.batches(places_of()[5:6]))
    assert [record.getMessage() for record in caplog.records] == ["places: 1 photograph was skipped"]


def test_an_image_that_cannot_be_used_ends_the_pass() -> None:
    loader = make("skipping", on_error="raise", shuffle=False)
    running = loader.batches(places_of()[2:])
    assert len(list(islice(running, 3))) == 3
    with pytest.raises(SampleError, match=r'photo 20.jpg.*on_error="skip"'):
        next(running)
    assert worker_threads() == []


# What is refused

BAD_PLACES = [
    ({"epoch": -1}, r"epoch=-1 must lie in 0\.\.2\^32 - 1"),
    ({"epoch": 2**32}, "epoch=4294967296 must lie in"),
    ({"first": -4}, "first=-4 must be at least 0, where an epoch begins"),
    ({"first": 1.5}, "first=1.5 is a float, and must be a whole number"),
    ({"world_size": 0}, "world_size=0 must be at least 1"),
    ({"rank": -1}, r"rank=-1 must lie in 0\.\.world_size - 1, which is 0\.\.0. Number the ranks from 0"),
    ({"rank": 2, "world_size": 2}, r"rank=2 must lie in 0\.\.world_size - 1, which is 0\.\.1.*or raise world_size"),
]


@pytest.mark.parametrize(("numbers", "message"), BAD_PLACES)
def test_numbers_out_of_range(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Place(**({"epoch": 0, "first": 0} | numbers))


REFUSED = [
    (
        "plain",
        {"first": NUM},
        rf"first={NUM}.*begins behind the epoch, which has 37 samples: first must lie in 0\.\.36",
    ),
    ("class-balanced", {"first": 41}, "which has 41 samples.*Go on with first=0 of the next epoch"),
    ("whole batches", {"first": 36}, "cut short.*first must be at most 33, as .* 37 samples .* global batch 4. Leave"),
    ("whole batches", {"first": 32, "world_size": 2}, "cut short by the epoch's end, and drop_last=True.*at most 29"),
    ("sticky", {"first": 4, "world_size": 3}, 'shuffle="sticky": first must be a multiple of world_size=3. Cut an'),
]


@pytest.mark.parametrize(("kind", "numbers", "message"), REFUSED)
def test_a_place_without_a_batch_ends_the_pass(kind: str, numbers: dict[str, Any], message: str) -> None:
    loader = make(kind, prefetch=1)
    running = loader.batches([Place(epoch=0, first=0), Place(epoch=0, first=12), Place(epoch=0, **numbers)])
    next(running)
    with pytest.raises(ValueError, match=message):
        next(running)
    assert worker_threads() == []


def test_the_last_place_that_is_whole_is_given() -> None:
    (batch,) = make("whole batches").batches([Place(epoch=0, first=29, rank=1, world_size=2)])
    assert len(batch) == SIZE


def test_what_is_no_place_is_named() -> None:
    wrong: Any = (0, 4, 0, 1)
    with pytest.raises(ValueError, match=r"places holds \(0, 4, 0, 1\), which is not a place. Write augpipe.Place\("):
        list(make().batches([wrong]))
