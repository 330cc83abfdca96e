"""Whatever the recipe, the sampler and the mixing: a sample is the same bits however an epoch is cut and resumed."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from augpipe import Batch, Loader, Recipe, View, ops
from augpipe.mixed_labels import MixedLabels
from augpipe.sampling import ClassBalanced, Mixture, Repeated, Weighted
from augpipe.sources import Concat, Subset
from tests.augpipe.loader.loader_sources import (
    MemorySource,
    Sample,
    arrays,
    as_array,
    jpegs,
    truncated,
    views_of,
)
from tests.examples import examples
from tests.parity import strategies

NUM = 11
EPOCH, SEED = 2, 2**50 + 3

FILES = MemorySource([*jpegs(NUM - 4), truncated(), *arrays(3, 31, 47)], [i % 3 for i in range(NUM)])
FILES.classes = ("a", "b", "c")
SOURCE = Concat([Subset(FILES, [3, 0, 5, 9]), FILES])
SAMPLERS = (
    None,
    Weighted(np.arange(1, len(SOURCE) + 1)),
    ClassBalanced(num=17),
    Repeated(5),  # more than 64 positions, which find their partners in another way than fewer
    Mixture((0.3, 0.7), num=14),
)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Recipes of one or two views of any ops, of which some mix."""
    normalised = draw(st.booleans())
    views = [
        View(ops=draw(strategies.cropped_views(normalised)), count=draw(st.integers(1, 2)))
        for _ in range(draw(st.integers(1, 2)))
    ]
    mixing = draw(
        st.sampled_from([(), (), (ops.MixUp(p=0.6),), (ops.CutMix(),), (ops.MixUp(p=0.3), ops.CutMix(p=0.4))])
    )
    chains = [view.ops for view in views]
    return Recipe(views=views, mixing=mixing, **draw(strategies.borders_of(*chains)))


def bits(batches: Iterable[Batch]) -> list[list[tuple[int, Sample]]]:
    """batch -> (sample id, bits of pixels, plan and labels) of each of its samples."""
    found = []
    for batch in batches:
        labels = batch.labels if isinstance(batch.labels, MixedLabels) else (batch.labels,)
        parts = [*map(as_array, views_of(batch)), *batch.plan.views, *map(as_array, labels)]
        ids = batch.sample_ids.tolist()
        assert {len(part) for part in parts} == {len(ids)}
        found.append([(ids[nth], tuple(part[nth].tobytes() for part in parts)) for nth in range(len(ids))])
    return found


def in_order(ranks: list[list[list[Any]]]) -> list[Any]:
    """What the ranks' batches hold, by position: each takes every position of a global batch that is its turn."""
    found = []
    for batches in zip(*ranks, strict=True):
        for nth in range(max(map(len, batches))):
            found += [batch[nth] for batch in batches if nth < len(batch)]
    return found


def loader(recipe: Recipe, sampler: Any, dtype: str, **options: Any) -> Loader:
    fixed: dict[str, Any] = {"seed": SEED, "framework": "numpy", "on_error": "skip", "dtype": dtype}
    made = Loader(SOURCE, recipe, sampler=sampler, **fixed, **options)
    made.set_epoch(EPOCH)
    return made


@examples(12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    recipe=recipes(),
    sampler=st.sampled_from(SAMPLERS),
    cuts=st.tuples(*[st.tuples(st.integers(1, 9), st.integers(1, 3))] * 2),
    num_batches=st.integers(0, 3),
    options=st.fixed_dictionaries(
        {
            "cache": st.sampled_from(["off", "host"]),
            "num_threads": st.integers(1, 3),
            "prefetch": st.integers(1, 3),
        }
    ),
    dtype=st.sampled_from(["float32", "uint8", "float16"]),
)
def test_every_recipe_is_the_same_everywhere(
    recipe: Recipe,
    sampler: Any,
    cuts: tuple[tuple[int, int], tuple[int, int]],
    num_batches: int,
    options: dict[str, Any],
    dtype: str,
) -> None:
    dtype = "float32" if recipe.normalises and dtype == "uint8" else dtype
    expected = bits(loader(recipe, sampler, dtype, batch_size=1, num_threads=1, prefetch=1))
    found, state = [], None
    for batch_size, world_size in cuts:
        ranks = []
        for rank in range(world_size):
            one = loader(recipe, sampler, dtype, batch_size=batch_size, rank=rank, world_size=world_size, **options)
            if state is not None:
                one.load_state_dict(state)
                ranks.append(bits(one))
            else:
                ranks.append(bits(islice(one, min(num_batches, len(one) - 1))))
        found += in_order(ranks)
        state = one.state_dict()
    assert found == [sample for (sample,) in expected]
    event(f"mixing: {[mix.op for mix in recipe.mixing]}")
    event(f"sampler: {type(sampler).__name__}")


@pytest.mark.deep  # of the strategy, which new ops join by themselves
def test_all_ops_are_drawn() -> None:
    """The strategy above leaves no kind of op out, at any depth; it is asked until it has drawn them all."""
    others = {ops.Op, ops.Custom, ops.KeepObjects, ops.MixUp, ops.CutMix, ops.CopyPaste, ops.Mosaic}
    kinds = {getattr(ops, name) for name in ops.__all__} - others
    left = {kind.model_fields["op"].default for kind in kinds}

    class AllAreDrawn(Exception):
        pass

    @settings(max_examples=800, database=None, derandomize=True, phases=[Phase.generate])
    @given(strategies.cropped_views())
    def note(chain: tuple[ops.Op, ...]) -> None:
        for op in chain:
            left.difference_update([op.op, *(inner.op for inner in op.flat)])
        if not left:
            raise AllAreDrawn

    with pytest.raises(AllAreDrawn):
        note()
