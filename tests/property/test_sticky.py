"""Sticky shuffling: ranks share out each epoch, each keeps its samples, and no order comes twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augpipe.sampling import epoch_order

counts = st.integers(1, 400)
sides = st.integers(1, 40)
worlds = st.integers(1, 9)
seeds = st.integers(0, 2**64 - 1)
epochs = st.integers(0, 2**32 - 1)


def batches(
    num: int,
    seed: int,
    epoch: int,
    rank: int,
    world_size: int,
    *,
    batch_size: int,
    first: int = 0,
    drop_last: bool = False,
) -> list[list[int]]:
    """A rank's samples, batch by batch, from global position `first` on, as the loader asks for them."""
    step = batch_size * world_size
    found = []
    for number in range(epoch_order.num_batches(num - first, batch_size, world_size, drop_last)):
        positions = epoch_order.rank_positions(first + number * step, num, batch_size, rank, world_size)
        found.append(epoch_order.sticky_sample_ids(positions, num, seed, epoch, rank, world_size).tolist())
    return found


def flat(lists: list[list[int]]) -> list[int]:
    return [sample_id for one in lists for sample_id in one]


@given(num=counts, seed=seeds, epoch=epochs, world_size=worlds, batch_size=sides)
def test_ranks_share_out_the_epoch(num: int, seed: int, epoch: int, world_size: int, batch_size: int) -> None:
    ranks = [batches(num, seed, epoch, rank, world_size, batch_size=batch_size) for rank in range(world_size)]
    assert sorted(sample_id for rank in ranks for sample_id in flat(rank)) == list(range(num))
    for together in zip(*ranks, strict=True):
        lengths = [len(batch) for batch in together]
        assert max(lengths) <= batch_size and max(lengths) - min(lengths) <= 1
        assert sum(lengths) > 0
    for rank, found in enumerate(ranks):
        plain = [
            epoch_order.rank_positions(i * batch_size * world_size, num, batch_size, rank, world_size)
            for i in range(len(found))
        ]
        assert [len(batch) for batch in found] == [len(positions) for positions in plain]


@given(num=counts, seed=seeds, epoch=epochs, other=epochs, world_size=worlds, batch_size=sides, other_size=sides)
def test_a_rank_keeps_its_samples(
    num: int, seed: int, epoch: int, other: int, world_size: int, batch_size: int, other_size: int
) -> None:
    for rank in range(world_size):
        first = flat(batches(num, seed, epoch, rank, world_size, batch_size=batch_size))
        second = flat(batches(num, seed, other, rank, world_size, batch_size=other_size))
        assert sorted(first) == sorted(second) == list(range(rank, num, world_size))


@given(seed=seeds, epoch=epochs, world_size=worlds, per_rank=st.integers(25, 60))
def test_epochs_seeds_and_ranks_have_orders_of_their_own(seed: int, epoch: int, world_size: int, per_rank: int) -> None:
    """There are at least 25! orders: no two of a handful are the same but by a fault."""
    num = per_rank * world_size
    orders = [
        tuple(sample_id // world_size for sample_id in flat(batches(num, s, e, rank, world_size, batch_size=8)))
        for rank in range(world_size)
        for s, e in ((seed, epoch), (seed, epoch ^ 1), (seed ^ 1, epoch))
    ]
    assert all(sorted(found) == list(range(per_rank)) for found in orders)
    assert len(set(orders)) == len(orders)


@given(
    num=counts,
    seed=seeds,
    epoch=epochs,
    world_size=worlds,
    cuts=st.lists(st.tuples(sides, st.integers(0, 5)), max_size=6),
)
def test_any_chain_of_resumes_by_as_many_ranks_sees_each_sample_once(
    num: int, seed: int, epoch: int, world_size: int, cuts: list[tuple[int, int]]
) -> None:
    consumed = 0
    seen: list[list[int]] = [[] for _ in range(world_size)]
    for batch_size, num_batches in [*cuts, (1, num)]:
        for rank in range(world_size):
            rest = batches(num, seed, epoch, rank, world_size, batch_size=batch_size, first=consumed)
            seen[rank] += flat(rest[:num_batches])
        consumed = min(num, consumed + batch_size * world_size * num_batches)
    for rank in range(world_size):
        assert seen[rank] == flat(batches(num, seed, epoch, rank, world_size, batch_size=num))


@given(num=counts, seed=seeds, epoch=epochs, world_size=worlds, batch_size=sides)
def test_dropping_the_last_leaves_full_batches_of_a_ranks_own(
    num: int, seed: int, epoch: int, world_size: int, batch_size: int
) -> None:
    for rank in range(world_size):
        found = batches(num, seed, epoch, rank, world_size, batch_size=batch_size, drop_last=True)
        assert len(found) == num // (batch_size * world_size)
        assert all(len(batch) == batch_size for batch in found)
        assert len(set(flat(found))) == len(flat(found))
        assert all(sample_id % world_size == rank for sample_id in flat(found))


@given(num=st.integers(1, 2**32), seed=seeds, epoch=epochs, world_size=st.integers(1, 2**16), data=st.data())
def test_any_position_stands_for_itself(num: int, seed: int, epoch: int, world_size: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, min(world_size, num) - 1), label="rank")
    owned = len(range(rank, num, world_size))
    places = np.array(data.draw(st.lists(st.integers(0, owned - 1), min_size=1, max_size=20), label="places"))
    positions = places * world_size + rank
    ids = epoch_order.sticky_sample_ids(positions, num, seed, epoch, rank, world_size)
    assert np.all(ids % world_size == rank) and ids.min() >= 0 and ids.max() < num
    alone = [
        epoch_order.sticky_sample_ids(positions[[i]], num, seed, epoch, rank, world_size)[0] for i in range(len(ids))
    ]
    assert ids.tolist() == alone
    assert len(set(ids.tolist())) == len(set(places.tolist()))
