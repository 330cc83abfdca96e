"""However an epoch of a sampler is cut, over ranks, batches and resumed runs, it holds the same samples."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augpipe.sampling import ClassBalanced, Mixture, Repeated, Sampler, Weighted, epoch_order
from augpipe.sampling.alias_table import AliasTable
from augpipe.sources import Concat
from tests.augpipe.sampling.test_samplers import Numbers

SEED, EPOCH = 11, 2**32 - 1


@st.composite
def samplers(draw: st.DrawFn) -> tuple[Any, Sampler]:
    """A source of one to four parts, and a sampler that suits it."""
    lengths = draw(st.lists(st.integers(1, 60), min_size=1, max_size=4))
    source = Concat([Numbers(length, draw(st.just(1))) for length in lengths])
    num = draw(st.integers(len(lengths) * 30, 300))
    shares = st.lists(st.integers(1, 20), min_size=len(lengths), max_size=len(lengths))
    weights = draw(st.lists(st.floats(0.0, 10.0), min_size=len(source), max_size=len(source)))
    kinds: list[Sampler] = [
        Weighted([weights[0] + 1.0, *weights[1:]], num=num),
        ClassBalanced(num=num),
        Repeated(draw(st.integers(1, 4))),
        Repeated(draw(shares)),
        Mixture(draw(shares), num=num * 20),
    ]
    return source, draw(st.sampled_from(kinds))


cuts = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 6), st.integers(0, 4)), max_size=4)


@given(given_=samplers(), cuts=cuts)
def test_any_chain_of_resumes_sees_the_epoch_of_one_rank(given_: Any, cuts: list[tuple[int, int, int]]) -> None:
    source, sampler = given_
    bound = sampler.bind(source)
    num = bound.num_positions
    whole = bound.sample_ids(np.arange(num), SEED, EPOCH)
    assert whole.min() >= 0 and whole.max() < len(source)
    seen, consumed = np.full(num, -1), 0
    for batch_size, world_size, num_batches in [*cuts, (50, 2, num)]:
        for _ in range(num_batches):
            if consumed >= num:
                break
            for rank in range(world_size):
                places = epoch_order.rank_positions(consumed, num, batch_size, rank, world_size)
                seen[places] = sampler.bind(source).sample_ids(places, SEED, EPOCH)
            consumed = min(num, consumed + batch_size * world_size)
    assert seen.tolist() == whole.tolist()


@given(weights=st.lists(st.floats(0.0, 1e300), min_size=1, max_size=80).filter(any))
def test_a_table_holds_what_it_is_given(weights: list[float]) -> None:
    given_ = np.array(weights)
    table = AliasTable(given_)
    held = np.zeros(len(weights))
    kept = table._kept / 2**32
    np.add.at(held, np.arange(len(weights)), kept)
    np.add.at(held, table._alias, 1.0 - kept)
    np.testing.assert_allclose(held / len(weights), given_ / given_.sum(), atol=2.0**-31, rtol=0)
    assert not table.may_come(np.flatnonzero(given_ == 0)).any()
