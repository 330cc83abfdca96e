"""Any schedule, carried out on plain arrays: a butterfly is an all-reduce, and costs what the formula says."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.trainer.exchange import ALIGN, Bucket, Exchange, butterfly, cut, fill_buckets, lazy, pieces_within

SIZES = st.lists(st.integers(0, 700), min_size=1, max_size=9)
WORLD_SIZES = st.integers(1, 7)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[int], tuple[Bucket, ...]]:
    sizes = draw(SIZES)
    kinds = draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    capacity = {kind: draw(st.integers(1, 1500)) for kind in range(3)}
    return sizes, kinds, fill_buckets(sizes, kinds, capacity)


@given(layouts())
def test_every_element_is_in_one_bucket_and_buckets_do_not_overlap(
    layout: tuple[list[int], list[int], tuple[Bucket, ...]],
) -> None:
    sizes, kinds, buckets = layout
    seen = [np.zeros(size, int) for size in sizes]
    flat: dict[int, set[int]] = {}
    where: dict[int, set[int]] = {}
    for bucket in buckets:
        offset = 0
        for piece in bucket.pieces:
            assert piece.num > 0
            assert piece.offset == offset
            assert kinds[piece.parameter] == bucket.kind
            assert piece.start % ALIGN == 0
            seen[piece.parameter][piece.start : piece.stop] += 1
            where.setdefault(piece.parameter, set()).add(bucket.start + piece.offset - piece.start)
            offset += piece.num
        places = set(range(bucket.start, bucket.start + bucket.num))
        assert not places & flat.setdefault(bucket.kind, set())
        flat[bucket.kind] |= places
    assert all((count == 1).all() for count in seen)
    assert all(len(starts) == 1 for starts in where.values())  # a parameter lies in one row, across buckets too
    assert all(places == set(range(len(places))) for places in flat.values())


@given(layouts(), WORLD_SIZES)
def test_slices_cover_a_bucket_evenly(layout: tuple[list[int], list[int], tuple[Bucket, ...]], world_size: int) -> None:
    for bucket in layout[2]:
        cuts = cut(bucket, world_size)
        assert len(cuts) == world_size + 1
        assert cuts[0] == 0
        assert cuts[-1] == bucket.num
        for start, stop in pairwise(cuts):
            assert stop - start >= 0
            assert abs(stop - start - bucket.num / world_size) <= ALIGN + 1
            assert sum(piece.num for piece in pieces_within(bucket, start, stop)) == stop - start


def carried_out(exchange: Exchange, everyones: list[list[npt.NDArray[np.int64]]]) -> None:
    """Add up what owners get, then overwrite with what they send back; nothing but transfers moves data."""
    original = [[values.copy() for values in own] for own in everyones]
    for transfer in exchange.transfers():
        place = slice(transfer.start, transfer.stop)
        if transfer.phase == "reduce":
            everyones[transfer.dst][transfer.bucket][place] += original[transfer.src][transfer.bucket][place]
        else:
            everyones[transfer.dst][transfer.bucket][place] = everyones[transfer.src][transfer.bucket][place]


@settings(max_examples=50)
@given(layouts(), WORLD_SIZES, st.sampled_from([butterfly, lazy]), st.integers(0, 2**32 - 1))
def test_an_exchange_is_an_all_reduce(
    layout: tuple[list[int], list[int], tuple[Bucket, ...]],
    world_size: int,
    mode: object,
    seed: int,
) -> None:
    exchange = mode(layout[2], world_size)  # type: ignore[operator]
    rng = np.random.default_rng(seed)
    everyones = [[rng.integers(-99, 99, bucket.num) for bucket in layout[2]] for _ in range(world_size)]
    sums = [sum(own[i] for own in everyones) for i in range(len(layout[2]))]
    carried_out(exchange, everyones)
    for own in everyones:
        for values, expected in zip(own, sums, strict=True):
            np.testing.assert_array_equal(values, expected)


@given(layouts(), st.integers(2, 7))
def test_bytes_are_those_of_the_formula_and_do_not_grow_with_ranks(
    layout: tuple[list[int], list[int], tuple[Bucket, ...]], world_size: int
) -> None:
    exchange = butterfly(layout[2], world_size)
    total = sum(bucket.num for bucket in layout[2])
    sent = [exchange.bytes_sent(rank, lambda _kind, num: 4 * num) for rank in range(world_size)]
    assert sum(sent) == 2 * (world_size - 1) * 4 * total
    assert max(sent) <= 2 * 4 * total + 4 * (ALIGN + 1) * world_size * len(layout[2])
