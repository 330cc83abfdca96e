"""For one seed and epoch each sample's plan and pixels are the same bits, however the epoch is cut."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augpipe import Augment, Loader, Recipe
from augpipe.planning.kernel_rows import dct_factors
from augpipe.sampling import epoch_order
from tests.augpipe.loader.loader_sources import (
    CONTINUOUS,
    MODERN,
    PAPER,
    RECIPES,
    SEVERAL_VIEWS,
    MemorySource,
    Sample,
    arrays,
    as_array,
    jpegs,
    samples,
    views_of,
)

NUM = 45
EPOCH, SEED = 3, 2**40 + 17

MakeLoader = Callable[..., Loader]


@pytest.fixture(scope="module")
def source() -> MemorySource:
    return MemorySource(jpegs(NUM))


@pytest.fixture
def make(source: MemorySource) -> MakeLoader:
    def loader(recipe: Recipe, **options: Any) -> Loader:
        settings = {"batch_size": 7, "num_threads": 1, "framework": "numpy", "seed": SEED} | options
        made = Loader(source, recipe, **settings)
        made.set_epoch(EPOCH)
        return made

    return loader


@pytest.fixture(scope="module")
def references(source: MemorySource) -> dict[str, list[tuple[int, Sample]]]:
    """The epoch of each recipe in its order, one image at a time."""
    found = {}
    for name, recipe in RECIPES.items():
        loader = Loader(source, recipe, batch_size=1, num_threads=1, prefetch=1, framework="numpy", seed=SEED)
        loader.set_epoch(EPOCH)
        found[name] = samples(loader)
    return found


def test_the_reference_could_differ(references: dict[str, list[tuple[int, Sample]]], make: MakeLoader) -> None:
    reference = references[PAPER.name]
    assert sorted(sample_id for sample_id, _ in reference) == list(range(NUM))
    assert len({bits for _, bits in reference}) == NUM
    for other in (make(PAPER, seed=SEED + 1), make(PAPER)):
        other.set_epoch(EPOCH if other.seed != SEED else EPOCH + 1)
        changed = samples(other)
        assert [sample_id for sample_id, _ in changed] != [sample_id for sample_id, _ in reference]
        assert not set(changed) & set(reference)


def test_some_of_the_images_are_decoded_at_a_smaller_scale(make: MakeLoader) -> None:
    factors = np.concatenate([dct_factors(batch.plan.views) for batch in make(PAPER)])
    assert len(set(factors.tolist())) >= 2


def test_the_cut_off_end_gives_some_ranks_an_empty_batch_of_the_right_shape(make: MakeLoader) -> None:
    for recipe, shapes in ((PAPER, [(3, 16, 16)]), (SEVERAL_VIEWS, [(3, 20, 20)] * 2 + [(3, 8, 8)])):
        for framework in ("numpy", "torch"):
            loader = make(recipe, batch_size=11, world_size=2, rank=1, framework=framework)
            *_, last = loader
            assert len(last) == 0 and len(last.plan) == 0 and len(last.sample_ids) == 0
            assert [tuple(images.shape) for images in views_of(last)] == [(0, *shape) for shape in shapes]
            assert tuple(last.labels.shape) == (0,)
            assert len(loader) == 3  # 22, 22 and the one that rank 0 has


@pytest.mark.parametrize("recipe", [CONTINUOUS, MODERN, SEVERAL_VIEWS], ids=lambda recipe: recipe.name)
@pytest.mark.parametrize(("dtype", "layout"), [("float32", "NCHW"), ("float16", "NHWC")])
def test_the_transform_gives_the_loaders_pixels(recipe: Recipe, dtype: Any, layout: Any) -> None:
    images = arrays(12)
    loader = Loader(
        MemorySource(images), recipe, batch_size=5, seed=SEED, framework="numpy", dtype=dtype, layout=layout
    )
    loader.set_epoch(EPOCH)
    transform = Augment(recipe, SEED, dtype=dtype, layout=layout)
    assert_transform_agrees(loader, transform, images)


def assert_transform_agrees(loader: Loader, transform: Augment, pictures: list[Any]) -> None:
    num = 0
    for batch in loader:
        chosen = [pictures[i] for i in batch.sample_ids]
        replayed = transform(chosen, plan=batch.plan)
        drawn = transform(chosen, sample_ids=batch.sample_ids, epoch=EPOCH)
        for made in (replayed, drawn):
            views = made if isinstance(made, tuple) else (made,)
            for expected, found in zip(views_of(batch), views, strict=True):
                np.testing.assert_array_equal(as_array(found), as_array(expected), strict=True)
        num += len(batch)
    assert num == len(pictures)


# Arithmetic of positions alone, without pixels

counts = st.integers(1, 200)
sides = st.integers(1, 40)
worlds = st.integers(1, 9)


def positions(num: int, first: int, batch_size: int, world_size: int, drop_last: bool) -> list[list[list[int]]]:
    """rank -> batch -> positions, as the loader asks for them from `first` on."""
    batches = epoch_order.num_batches(num - first, batch_size, world_size, drop_last)
    step = batch_size * world_size
    return [
        [
            epoch_order.rank_positions(first + i * step, num, batch_size, rank, world_size).tolist()
            for i in range(batches)
        ]
        for rank in range(world_size)
    ]


@given(num=counts, first=st.integers(0, 200), batch_size=sides, world_size=worlds)
def test_ranks_share_out_what_is_left_of_an_epoch(num: int, first: int, batch_size: int, world_size: int) -> None:
    first = min(first, num)
    ranks = positions(num, first, batch_size, world_size, drop_last=False)
    assert sorted(place for rank in ranks for batch in rank for place in batch) == list(range(first, num))
    for batches in zip(*ranks, strict=True):
        lengths = [len(batch) for batch in batches]
        assert max(lengths) <= batch_size and max(lengths) - min(lengths) <= 1
        assert sum(lengths) > 0


@given(num=counts, batch_size=sides, world_size=worlds)
def test_dropping_the_last_leaves_full_batches_only(num: int, batch_size: int, world_size: int) -> None:
    ranks = positions(num, 0, batch_size, world_size, drop_last=True)
    assert all(len(batch) == batch_size for rank in ranks for batch in rank)
    used = sorted(place for rank in ranks for batch in rank for place in batch)
    assert used == list(range(len(used)))
    assert num - len(used) < batch_size * world_size


@given(num=counts, cuts=st.lists(st.tuples(sides, worlds, st.integers(0, 5)), max_size=6), shuffle=st.booleans())
def test_any_chain_of_resumes_sees_each_sample_once(num: int, cuts: list[tuple[int, int, int]], shuffle: bool) -> None:
    consumed, seen = 0, []
    for batch_size, world_size, num_batches in [*cuts, (1, 1, num)]:
        ranks = positions(num, consumed, batch_size, world_size, drop_last=False)
        seen += [place for rank in ranks for batch in rank[:num_batches] for place in batch]
        consumed = min(num, consumed + batch_size * world_size * num_batches)
    ids = epoch_order.sample_ids(np.array(seen, np.int64), num, 7, 1, shuffle)
    assert sorted(ids.tolist()) == list(range(num))
