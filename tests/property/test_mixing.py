"""Partners are a permutation without fixed points, and every batch holds them, however the epoch is cut."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augpipe import Recipe, ops
from augpipe.pipeline.blocks import Block, BlockSamples
from augpipe.pipeline.mixing_stage import with_partners
from augpipe.sampling import epoch_order

MIXED = Recipe(ops=(ops.CenterCrop(size=8),), mixing=(ops.MixUp(p=0.3), ops.CutMix(p=0.4)))


@given(num=st.integers(1, 1000))
def test_partners_are_a_permutation_without_fixed_points(num: int) -> None:
    positions = np.arange(num)
    partners = epoch_order.partners(positions, num)
    assert sorted(partners.tolist()) == positions.tolist()
    assert num == 1 or (partners != positions).all()
    whole = num - num % 64 - (64 if num % 64 == 1 and num > 1 else 0)
    assert (partners[:whole] == positions[:whole] ^ 32).all()
    some = positions[num // 3 :: 5]
    assert (epoch_order.partners(some, num) == partners[some]).all()


@given(
    num=st.integers(1, 300),
    batch_size=st.integers(1, 130),
    world_size=st.integers(1, 5),
    rank=st.integers(0, 4),
    is_sampled=st.booleans(),
)
def test_every_batch_holds_the_partners_that_it_needs(
    num: int, batch_size: int, world_size: int, rank: int, is_sampled: bool
) -> None:
    rank %= world_size
    num_batches = epoch_order.num_batches(num, batch_size, world_size, False)
    positions = epoch_order.rank_positions(0, num, num_batches * batch_size, rank, world_size)

    def ids_at(wanted: np.ndarray) -> np.ndarray:
        return 1000 + 3 * wanted

    samples, mixing = with_partners(
        MIXED,
        7,
        2,
        BlockSamples.of(ids_at(positions), positions, batch_size, num_batches),
        num_positions=num,
        batch_size=batch_size,
        world_size=world_size,
        ids_at=ids_at,
        is_sampled=is_sampled,
    )
    block = Block(2, samples.ids, samples.positions if is_sampled else None, mixing, with_guests=samples)
    assert samples.starts[-1] == len(block.sample_ids)
    seen: list[int] = []
    for request in block.requests(0, num_batches, batch_size):
        ids, drawn = request.sample_ids, mixing.drawn[request.cut]
        places, num_own = mixing.partner_places[request.cut], request.num_own
        assert num_own is not None and num_own <= len(ids) <= 2 * num_own
        assert is_sampled == (request.positions is not None)
        seen += ids[:num_own].tolist()
        is_mixed = drawn["kind"] > 0
        assert not is_mixed[num_own:].any()
        wanted = ids_at(epoch_order.partners((ids - 1000) // 3, num))
        assert (places[is_mixed] >= 0).all() and (ids[places[is_mixed]] == wanted[is_mixed]).all()
        guests = places[is_mixed][places[is_mixed] >= num_own]
        assert sorted(guests.tolist()) == list(range(num_own, len(ids)))  # each for one sample alone
        within = places[is_mixed & (places < num_own)]
        assert (places[within] == np.flatnonzero(is_mixed & (places < num_own))).all()  # else it may be changed already
    assert seen == ids_at(positions).tolist()


@given(world_size=st.sampled_from([1, 2, 4, 8, 16, 32]), batch_size=st.sampled_from([64, 128, 256]))
def test_the_usual_sizes_need_no_guests(world_size: int, batch_size: int) -> None:
    num = 2 * batch_size * world_size
    for rank in (0, world_size - 1):
        positions = epoch_order.rank_positions(0, num, 2 * batch_size, rank, world_size)
        options = {"num_positions": num, "batch_size": batch_size, "world_size": world_size}
        own = BlockSamples.of(positions, positions, batch_size, 2)
        samples, _ = with_partners(MIXED, 1, 0, own, **options, ids_at=lambda ids: ids, is_sampled=False)
        assert len(samples.ids) == len(positions)
