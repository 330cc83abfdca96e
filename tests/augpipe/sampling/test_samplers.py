"""Epochs of samplers: shares, repeats, ranks, resuming, replacement, memory, and what is refused."""

import json
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from augpipe import Loader, SampleError, plan
from augpipe.gpu_ops.random.philox import draws
from augpipe.sampling import ClassBalanced, Mixture, Repeated, Sampler, Weighted
from augpipe.sampling.alias_table import AliasTable
from augpipe.sampling.samplers import WEIGHTED_STREAM
from augpipe.sources import Concat, Subset
from augpipe.sources.protocol import Source
from tests.augpipe.loader.loader_sources import CENTRE, PAPER, MemorySource, arrays, ids_of, samples, truncated

NUM = 23
IMAGES = arrays(NUM)
LABELS = [0] * 12 + [1] * 7 + [2] * 3 + [-1]
WEIGHTS = [float(i % 4) for i in range(NUM)]


class Numbers:
    """A source of numbers alone, labelled by what is left over after division by `num_classes`."""

    def __init__(self, num: int, num_classes: int = 3) -> None:
        self._num = num
        self.classes = [f"class {label}" for label in range(num_classes)]

    def __len__(self) -> int:
        return self._num

    def read(self, sample_id: int) -> Any:
        raise AssertionError("nobody reads it")

    def label(self, sample_id: int) -> int:
        return sample_id % len(self.classes)

    def labels_of(self, sample_ids: Any) -> Any:
        return sample_ids % len(self.classes)

    def name(self, sample_id: int) -> str:
        return f"number {sample_id}"


def one_source() -> Source:
    return MemorySource(IMAGES, labels=LABELS)


def two_sources() -> Source:
    return Concat([MemorySource(IMAGES[:16], labels=LABELS[:16]), MemorySource(IMAGES[16:], labels=LABELS[16:])])


SAMPLERS: dict[str, tuple[Source, Sampler]] = {
    "weighted": (one_source(), Weighted(WEIGHTS)),
    "weighted, longer": (one_source(), Weighted(WEIGHTS, num=61)),
    "balanced": (one_source(), ClassBalanced(num=40)),
    "repeated": (one_source(), Repeated(2)),
    "repeated parts": (two_sources(), Repeated((1, 4))),
    "mixture": (two_sources(), Mixture((0.5, 0.5), num=37)),
}


def make(name: str, **options: Any) -> Loader:
    source, sampler = SAMPLERS[name]
    settings = {"batch_size": 4, "framework": "numpy", "num_threads": 1, "seed": 5} | options
    return Loader(source, settings.pop("recipe", CENTRE), sampler=settings.pop("sampler", sampler), **settings)


def epoch_of(sampler: Sampler, source: Source, epoch: int = 0, seed: int = 1) -> Any:
    """All sample ids of an epoch."""
    bound = sampler.bind(source)
    return bound.sample_ids(np.arange(bound.num_positions), seed, epoch)


# Shares


@pytest.mark.slow
def test_weighted_shares_are_those_of_the_weights() -> None:
    rng = np.random.default_rng(7)
    for number, weights in enumerate(
        (rng.random(50), rng.random(1_000) ** 8, np.arange(7) % 3, np.r_[1e6, np.ones(99)])
    ):
        ids = epoch_of(Weighted(weights, num=1_000_000), Numbers(len(weights)), seed=number)
        counts = np.bincount(ids, minlength=len(weights))
        assert counts[weights == 0].sum() == 0
        expected = 1_000_000 * weights / weights.sum()
        often = expected >= 5
        rest = expected[~often].sum() > 0
        found = np.r_[counts[often], counts[~often].sum()] if rest else counts[often]
        wanted = np.r_[expected[often], expected[~often].sum()] if rest else expected[often]
        assert chisquare(found, wanted).pvalue > 0.01


@pytest.mark.parametrize("num", [1, 2, 3, 64, 1_000])
def test_the_table_holds_the_weights(num: int) -> None:
    rng = np.random.default_rng(num)
    for weights in (rng.random(num), rng.random(num) ** 30, np.ones(num), np.arange(1.0, num + 1), np.eye(1, num)[0]):
        table = AliasTable(weights)
        kept = table._kept.astype(object)
        held = [0] * num
        for column in range(num):
            held[column] += kept[column]
            held[table._alias[column]] += 2**32 - kept[column]
        shares = np.array([each / (num * 2**32) for each in held])
        np.testing.assert_allclose(shares, weights / weights.sum(), atol=2.0**-32, rtol=0)
        assert table.may_come(np.arange(num)).tolist() == [each > 0 for each in held]


def test_a_draw_follows_its_description() -> None:
    weights = np.array([0.5, 3.0, 0.0, 1.25, 0.25])
    bound, table = Weighted(weights).bind(Numbers(5)), AliasTable(weights)
    words = draws(9, 4, range(5), WEIGHTED_STREAM, 3).astype(object)
    expected = []
    for high, low, coin in words.tolist():
        column = (high * 2**32 + low) * 5 // 2**64
        expected.append(column if coin < table._kept[column] else int(table._alias[column]))
    assert bound.sample_ids(np.arange(5), 9, 4).tolist() == expected


@pytest.mark.parametrize("num", [40, 41, 23, 3])
def test_classes_are_balanced_to_a_sample(num: int) -> None:
    seen: Counter[int] = Counter()
    for epoch in range(12):
        ids = epoch_of(ClassBalanced(num=num), one_source(), epoch)
        by_class = Counter(LABELS[i] for i in ids.tolist())
        assert set(by_class) == {0, 1, 2} and max(by_class.values()) - min(by_class.values()) <= 1
        seen.update(ids.tolist())
        for label in (0, 1, 2):  # a class's samples come in turn, over the ends of epochs too
            times = [seen[i] for i in range(NUM) if LABELS[i] == label]
            assert max(times) - min(times) <= 1


def test_a_mixture_holds_its_shares_and_each_source_s_samples_in_turn() -> None:
    sources = Concat([Numbers(100), Numbers(7), Numbers(1_000)])
    seen = np.zeros(1_107, np.int64)
    orders = set()
    for epoch in range(30):
        ids = epoch_of(Mixture((1, 2, 5), num=160), sources, epoch)
        assert np.bincount(np.searchsorted([100, 107], ids, side="right")).tolist() == [20, 40, 100]
        seen += np.bincount(ids, minlength=1_107)
        for part in (seen[:100], seen[100:107], seen[107:]):
            assert part.max() - part.min() <= 1
        orders.add(tuple(ids))
    assert len(orders) == 30
    parts = np.searchsorted([100, 107], epoch_of(Mixture((1, 2, 5), num=160), sources), side="right")
    assert all(len(set(parts[rank::8])) > 1 for rank in range(8))  # no rank has one source alone


def test_repeats_come_as_often_as_asked_for() -> None:
    assert np.bincount(epoch_of(Repeated(3), Numbers(50))).tolist() == [3] * 50
    sources = Concat([Numbers(5), Numbers(3), Numbers(2)])
    assert np.bincount(epoch_of(Repeated((1, 0, 4)), sources), minlength=10).tolist() == [1] * 5 + [0] * 3 + [4] * 2


# Part of a run's reproducibility: these change with a new major version, and with nothing less.
GOLDEN: list[tuple[Sampler, list[int]]] = [
    (Weighted(np.arange(10.0)), [8, 7, 3, 3, 9, 3, 7, 3, 9]),
    (ClassBalanced(num=9), [7, 2, 4, 7, 5, 9, 6, 0, 3]),
    (Repeated(2), [0, 3, 8, 9, 6, 8, 3, 4, 6]),
    (Mixture((1, 2, 3)), [8, 9, 8, 9, 0, 6, 5, 1, 7]),
]


@pytest.mark.parametrize(("sampler", "expected"), GOLDEN)
def test_golden_epochs(sampler: Sampler, expected: list[int]) -> None:
    assert epoch_of(sampler, Concat([Numbers(5), Numbers(3), Numbers(2)]), epoch=3)[:9].tolist() == expected


# Repeats differ, and so do epochs of samplers and others


@pytest.mark.parametrize("name", SAMPLERS)
def test_each_repeat_is_augmented_anew(name: str) -> None:
    found = samples(make(name, recipe=PAPER))
    times = Counter(sample_id for sample_id, _ in found)
    assert max(times.values()) >= 2
    assert len({bits for _, bits in found}) == len(found)


def test_plans_are_drawn_by_position_in_streams_of_their_own() -> None:
    batch = next(iter(make("repeated", recipe=PAPER, batch_size=46)))
    ids, sizes = batch.sample_ids, np.tile([40, 52], (46, 1))
    by_position = plan(PAPER, ids, sizes=sizes, seed=5, positions=np.arange(46))
    assert by_position.rows.tobytes() == batch.plan.rows.tobytes()
    as_if_without_sampler = plan(PAPER, np.arange(46), sizes=sizes, seed=5)
    for key in ("multi_resolution_crop", "color_cast", "vignette"):  # those of many outcomes
        ours, theirs = batch.plan.rows["drawn"][key], as_if_without_sampler.rows["drawn"][key]
        assert np.mean([one.tobytes() != other.tobytes() for one, other in zip(ours, theirs, strict=True)]) > 0.9


def test_positions_are_one_a_sample() -> None:
    with pytest.raises(ValueError, match="positions holds 3 entries for 2 sample_ids. Give one each"):
        plan(PAPER, [1, 2], sizes=[(40, 52)] * 2, positions=[0, 1, 2])


# The same everywhere


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_out_the_epoch_of_one(name: str, world_size: int) -> None:
    whole = samples(make(name, recipe=PAPER, batch_size=1))
    ranks = [samples(make(name, recipe=PAPER, batch_size=5, rank=r, world_size=world_size)) for r in range(world_size)]
    assert sorted(sample for rank in ranks for sample in rank) == sorted(whole)
    assert len({len(make(name, rank=r, world_size=world_size)) for r in range(world_size)}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_an_epoch_is_resumed_by_another_number_of_ranks(name: str) -> None:
    whole = samples(make(name, recipe=PAPER, batch_size=1))
    loader = make(name, recipe=PAPER, batch_size=3)
    for num_batches in (1, 4, len(loader)):
        start = samples(islice(loader, num_batches))
        state = json.loads(json.dumps(loader.state_dict()))
        if num_batches == len(loader):
            assert sorted(start) == sorted(whole)
            continue
        rest = []
        for rank in range(2):
            other = make(name, recipe=PAPER, batch_size=5, rank=rank, world_size=2)
            other.load_state_dict(state)
            rest += samples(other)
        assert sorted(start + rest) == sorted(whole)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("drop_last", [False, True])
def test_len_is_the_number_of_batches_of_every_epoch(name: str, drop_last: bool) -> None:
    loader = make(name, drop_last=drop_last)
    orders = [ids_of(loader) for _ in range(2)]
    assert orders[0] != orders[1]
    for order in orders:
        assert len(loader) == (len(order) // 4 if drop_last else -(-len(order) // 4))
    loader.set_epoch(0)
    assert ids_of(loader) == orders[0]


def test_a_cache_changes_nothing_though_a_sample_is_in_a_batch_twice() -> None:
    plain, cached = (
        make("repeated parts", recipe=PAPER, batch_size=20, num_threads=2, **options)
        for options in ({}, {"cache": "host", "cache_bytes": 10_000_000})
    )
    for _ in range(3):
        assert samples(plain) == samples(cached)
    statistics = cached.cache_statistics
    assert statistics is not None and statistics.num_held == NUM


# Replacement


def unusable(images: Sequence[Any], *which: int) -> list[Any]:
    return [truncated() if i in which else image for i, image in enumerate(images)]


def test_a_sample_is_replaced_from_its_own_part_and_class() -> None:
    contents = (unusable(IMAGES[:6], 5), unusable(IMAGES[6:12], 0), unusable(IMAGES[12:14], 1))
    parts = Concat([MemorySource(each) for each in contents])
    options: dict[str, Any] = {"batch_size": 5, "framework": "numpy", "on_error": "skip"}
    expected = [0, 0, 1, 2, 3, 4, 7, 7, 8, 9, 10, 11, 12, 12]
    assert sorted(ids_of(Loader(parts, CENTRE, **options))) == expected
    assert sorted(ids_of(Loader(parts, CENTRE, sampler=Mixture((3, 3, 1)), **options))) == expected
    labelled = MemorySource(unusable(IMAGES[:6], 2), labels=[0, 1, 0, 1, 0, 1])
    assert sorted(ids_of(Loader(labelled, CENTRE, sampler=ClassBalanced(), **options))) == [0, 1, 3, 4, 4, 5]
    chosen = Subset(parts, [1, 5, 7, 11, 3])  # 5 gives way to 3, the next one that is of the first part, too
    assert sorted(chosen.ids[ids_of(Loader(chosen, CENTRE, **options))]) == [1, 3, 3, 7, 11]


def test_a_sample_that_no_other_may_stand_for_is_an_error() -> None:
    parts = Concat([MemorySource(unusable(IMAGES[:1], 0)), MemorySource(IMAGES[:40])])
    with pytest.raises(SampleError, match="it cannot be used, and it is the only photograph"):
        ids_of(Loader(parts, CENTRE, batch_size=5, framework="numpy", on_error="skip"))


@pytest.mark.slow
def test_a_sample_of_weight_0_replaces_none() -> None:
    images = unusable(IMAGES[:5], 1, 4)
    loader = Loader(
        MemorySource(images), CENTRE, sampler=Weighted([1, 1, 0, 1, 1], num=200), batch_size=9, framework="numpy",
        on_error="skip",
    )  # fmt: skip
    counts = np.bincount(ids_of(loader), minlength=5)
    assert counts[[1, 2, 4]].tolist() == [0, 0, 0] and set(loader.skipped) == {1, 4}
    drawn = np.bincount(epoch_of(Weighted([1, 1, 0, 1, 1], num=200), Numbers(5), seed=0), minlength=5)
    assert counts.tolist() == [drawn[0] + drawn[4], 0, 0, drawn[3] + drawn[1], 0]


def test_a_replacement_keeps_the_draws_of_its_position() -> None:
    source = MemorySource(unusable(IMAGES[:3], 1))
    (batch,) = Loader(source, PAPER, sampler=Repeated(2), batch_size=6, framework="numpy", on_error="skip")
    for position, sample_id in enumerate(batch.sample_ids.tolist()):
        alone = plan(PAPER, [sample_id], sizes=[(40, 52)], positions=[position])
        assert alone.rows[0].tobytes() == batch.plan.rows[position].tobytes()


def test_nothing_left_of_a_class_ends_the_run() -> None:
    source = MemorySource(unusable(IMAGES[:4], 1, 3), labels=[0, 1, 0, 1])
    loader = Loader(source, CENTRE, sampler=ClassBalanced(), batch_size=4, framework="numpy", on_error="skip")
    with pytest.raises(Exception, match=r"it cannot be used, nor can the one after it\. The first reason"):
        list(loader)


# Memory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "most"),
    [(Weighted(np.ones(10**6)), 8), (ClassBalanced(), 4), (Repeated(3), 0), (Mixture((1.0, 2.0)), 0)],
    ids=["weighted", "balanced", "repeated", "mixture"],
)
def test_what_a_sampler_holds(sampler: Sampler, most: int) -> None:
    source = Concat([Numbers(600_000), Numbers(400_000)])
    sampler.bind(source)  # what is imported and compiled on the way does not count
    tracemalloc.start()
    bound = sampler.bind(source)
    held, _ = tracemalloc.get_traced_memory()
    bound.sample_ids(np.arange(10**6 - 1024, 10**6), 0, 3)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < most * 10**6 + 20_000 and after < most * 10**6 + 200_000


def test_a_subset_takes_4_bytes_a_sample() -> None:
    ids, source = np.arange(10**6), Numbers(10**6)
    tracemalloc.start()
    subset = Subset(source, ids)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(subset) == 10**6 and held < 4_020_000


# What is refused

ANYTHING: Any = ((1.5, 1), ["a"] * 6)
PARTS = Concat([Numbers(4), Numbers(2)])
WRONG: list[tuple[Source, Any, str]] = [
    (PARTS, Weighted([1, 2]), r"weights has shape \(2,\), and the source holds 6 photographs. Give one weight each"),
    (PARTS, Weighted([1, 2, -3, 0, 0, 0]), r"weights\[2\]=-3: weights are finite and at least 0. Replace it"),
    (PARTS, Weighted([1, np.nan, 1, 1, 1, 1]), r"weights\[1\]=nan: weights are finite and at least 0"),
    (PARTS, Weighted([1, np.inf, 1, 1, 1, 1]), r"weights\[1\]=inf"),
    (PARTS, Weighted([1e308] * 6), "the sum of weights is too large for a float. Divide them by 1e"),
    (PARTS, Weighted([0] * 6), "weights are all 0, so there is nothing to draw. Make at least one larger"),
    (PARTS, Weighted(ANYTHING[1]), "weights has shape .* and must be a list of numbers"),
    (PARTS, Weighted([1] * 6, num=0), "num=0 must be at least 1"),
    (PARTS, Mixture((1, 2, 3)), "shares holds 3 numbers, and there are 2 sources. Give one each"),
    (
        Numbers(6),
        Mixture((1, 2)),
        r"shares are those of several sources, and this is one, Numbers\. Give.*Concat\(\[first",
    ),
    (PARTS, Mixture((1, -1)), r"shares\[1\]=-1: shares are finite and at least 0"),
    (PARTS, Mixture((0, 0)), "shares are all 0"),
    (Concat([Numbers(3), Numbers(0)]), Mixture((1, 1)), r"shares\[1\]=1 is the share of an empty source. Set it to 0"),
    (PARTS, Mixture((1, 1e-9)), r"shares\[1\]=1e-09 of 1 is less than one sample of num=6. Raise num"),
    (PARTS, Mixture((1, 1), num=2**33), r"num=8589934592 leaves 1\.\.2\^32"),
    (PARTS, Repeated(0), "times=0 must be whole numbers from 0 on, one of them above 0"),
    (PARTS, Repeated((1, -1)), "must be whole numbers from 0 on"),
    (PARTS, Repeated(ANYTHING[0]), "must be whole numbers from 0 on"),
    (PARTS, Repeated((1, 1, 1)), "times holds 3 numbers, and there are 2 sources"),
    (PARTS, ClassBalanced(num=2), "num=2 leaves some of the 3 classes without a sample. Raise num"),
    (MemorySource(IMAGES, labels=[-1] * NUM), ClassBalanced(), "ClassBalanced needs labels, and the source has none"),
    (PARTS, Weighted, r"sampler is the class Weighted. Write Weighted\(...\) for one of it"),
    (
        PARTS,
        object(),
        "sampler is a object, and augpipe.sampling has them: Weighted, ClassBalanced, Repeated and Mixture",
    ),
]


@pytest.mark.parametrize(("source", "sampler", "message"), WRONG)
def test_a_sampler_that_cannot_be(source: Source, sampler: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Loader(source, CENTRE, batch_size=2, sampler=sampler, framework="numpy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": "sticky"}, 'shuffle="sticky" has ranks keep samples of their own, and a sampler draws from all'),
        ({"shuffle": False}, "shuffle=False is an order, and the sampler draws one itself. Leave shuffle out"),
        (
            {"drop_last": True, "batch_size": 38},
            "drop_last=True leaves no batch: the sampler draws 37 photographs and a",
        ),
    ],
)
def test_what_does_not_go_with_a_sampler(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("mixture", **options)


def test_a_state_is_of_its_sampler() -> None:
    state = make("weighted").state_dict()
    plain = Loader(one_source(), CENTRE, batch_size=4, seed=5, framework="numpy")
    others = [make("balanced"), make("weighted", sampler=Weighted(np.roll(WEIGHTS, 1))), plain]
    for other in others:
        with pytest.raises(
            ValueError, match="the state was taken with another sampler .* Resume with the same sampler"
        ):
            other.load_state_dict(state)
        with pytest.raises(ValueError, match="the state was taken with another sampler"):
            make("weighted").load_state_dict(other.state_dict())
    make("weighted", sampler=Weighted(np.array(WEIGHTS) * 2)).load_state_dict(state)
