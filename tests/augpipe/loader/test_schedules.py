"""Loaders of schedules: each epoch is its recipe's, also resumed and from a cache; and flips that alternate."""

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Loader, Recipe, Schedule, plan, recipes
from augpipe.cache.row_indexes import RowIndexes
from augpipe.ops import CenterCrop, Flip, MultiResolutionCrop, Normalize
from augpipe.pipeline import batch_makers, decode_stage
from augpipe.sampling import Repeated, Weighted
from tests.augpipe.loader.loader_sources import MemorySource, arrays, ids_of, jpegs, samples

NUM = 17
FILES = jpegs(NUM)
RECIPES = [recipes.deep_image(size, (size, 2 * size)) for size in (8, 16, 24)]
SCHEDULE = {0: RECIPES[0], 2: RECIPES[1], 3: RECIPES[2]}
OF_EPOCH = [RECIPES[0], RECIPES[0], RECIPES[1], RECIPES[2], RECIPES[2]]


def make(recipe: Any = SCHEDULE, **options: Any) -> Loader:
    settings = {"batch_size": 4, "framework": "numpy", "num_threads": 2, "seed": 5} | options
    return Loader(settings.pop("source", None) or MemorySource(FILES), recipe, **settings)


def alone(epoch: int, **options: Any) -> Any:
    """An epoch by a loader of its recipe alone."""
    loader = make(OF_EPOCH[epoch], **options)
    loader.set_epoch(epoch)
    return samples(loader)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"cache": "host", "cache_bytes": 10**7}, {"cache": "host", "cache_bytes": 10**5}]
)
def test_each_epoch_is_its_recipe_s(options: dict[str, Any]) -> None:
    loader = make(Schedule.of(SCHEDULE), **options)
    assert len({len(loader)}) == 1
    for epoch in range(5):
        assert loader.epoch == epoch and loader.recipe == OF_EPOCH[epoch]
        assert samples(loader) == alone(epoch)
    for epoch in (3, 0, 2):  # and in any order
        loader.set_epoch(epoch)
        assert loader.recipe == OF_EPOCH[epoch]
        assert samples(loader) == alone(epoch)


def test_a_run_is_resumed_in_its_stage_by_other_ranks() -> None:
    loader = make()
    loader.set_epoch(2)
    start = samples(islice(loader, 2))
    state = json.loads(json.dumps(loader.state_dict()))
    rest = []
    for rank in range(2):
        other = make(batch_size=3, rank=rank, world_size=2)
        other.load_state_dict(state)
        assert other.recipe == RECIPES[1]
        rest += samples(other)
        assert other.recipe == RECIPES[2]
    assert sorted(start + rest) == sorted(alone(2))


def test_a_cache_that_is_full_of_one_size_serves_the_next() -> None:
    source = MemorySource(arrays(NUM))
    loader = make(source=source, cache="host", cache_bytes=10**7)
    for _ in range(5):
        list(loader)
    assert source.num_reads == NUM  # decoded once, for all sizes
    statistics = loader.cache_statistics
    assert statistics is not None and statistics.hits == 4 * NUM and statistics.num_held == NUM


def test_what_was_seen_in_one_stage_is_known_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    from augpipe.pipeline import planner

    sizes: list[int] = []
    whole_plan = planner.plan

    def noted(recipe: Recipe, sample_ids: Any, **options: Any) -> Any:
        sizes.append(len(sample_ids))
        return whole_plan(recipe, sample_ids, **options)

    monkeypatch.setattr(planner, "plan", noted)
    loader = make()
    list(loader)
    assert sorted(sizes) == [1, 4, 4, 4, 4]
    sizes.clear()
    list(loader)
    loader.set_epoch(3)
    list(loader)
    assert sizes == [NUM, NUM]


def test_row_indexes_go_on_from_one_recipe_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[RowIndexes] = []

    def counted(*given: Any) -> RowIndexes:
        made.append(RowIndexes(*given))
        return made[-1]

    for module in (batch_makers, decode_stage):
        monkeypatch.setattr(module, "RowIndexes", counted)
    loader = make()
    for _ in range(4):
        list(loader)
    assert len(made) == 1


@pytest.mark.parametrize("options", [{}, {"cache": "host", "cache_bytes": 10**7}])
def test_an_image_that_a_later_recipe_cannot_use_is_told_of_then(options: dict[str, Any]) -> None:
    images = arrays(8)
    images[3] = images[3][:20, :20].copy()
    crops = {0: Recipe(ops=(CenterCrop(size=16), Normalize())), 2: Recipe(ops=(CenterCrop(size=32), Normalize()))}
    loader = make(crops, source=MemorySource(images), on_error="skip", **options)
    for _ in range(2):
        assert sorted(ids_of(loader)) == list(range(8)) and not loader.skipped
    for _ in range(2):
        assert sorted(ids_of(loader)) == [0, 1, 2, 4, 4, 5, 6, 7]
    assert list(loader.skipped) == [3] and "smaller than the crop of 32x32" in loader.skipped[3]
    loader.set_epoch(0)
    assert sorted(ids_of(loader)) == list(range(8))


def test_formats_are_checked_for_every_stage() -> None:
    with pytest.raises(ValueError, match='dtype="uint8" cannot hold normalised values'):
        make(dtype="uint8")
    with pytest.raises(ValueError, match="the recipe of epoch 1 differs from the first one in Normalize"):
        make({0: RECIPES[0], 1: Recipe(ops=(CenterCrop(size=8),))})


# Flips that alternate

ALTERNATING = Recipe(ops=(MultiResolutionCrop(size=16, scales=(20,)), Flip(alternate=True), Normalize()))
PLAIN = Recipe(ops=(MultiResolutionCrop(size=16, scales=(20,)), Flip(), Normalize()))


def flips(recipe: Recipe, epoch: int, num: int = 2_000, seed: int = 3) -> Any:
    made = plan(recipe, np.arange(num), sizes=np.tile([40, 52], (num, 1)), epoch=epoch, seed=seed)
    return made.rows["drawn"]["flip"]["flipped"]


def test_each_image_is_flipped_every_other_epoch() -> None:
    first = flips(ALTERNATING, 0)
    assert 900 < first.sum() < 1_100
    for epoch in range(1, 6):
        assert (flips(ALTERNATING, epoch) == (first ^ bool(epoch % 2))).all()
    assert 900 < (flips(ALTERNATING, 0, seed=4) == first).sum() < 1_100
    assert (flips(PLAIN, 0) == first).all()  # epoch 0 is what it is without
    assert 900 < (flips(PLAIN, 2) == first).sum() < 1_100


def test_all_else_is_drawn_anew_each_epoch_as_without() -> None:
    for epoch in (0, 1, 2):
        ours, theirs = (
            plan(recipe, np.arange(50), sizes=np.tile([40, 52], (50, 1)), epoch=epoch).rows["drawn"]
            for recipe in (ALTERNATING, PLAIN)
        )
        assert (ours["multi_resolution_crop"] == theirs["multi_resolution_crop"]).all()


def test_batches_and_ranks_flip_alike() -> None:
    whole = samples(make(ALTERNATING, batch_size=1))
    ranks = [samples(make(ALTERNATING, rank=rank, world_size=3)) for rank in range(3)]
    assert sorted(sample for rank in ranks for sample in rank) == sorted(whole)
    images, transform = arrays(6), Augment(ALTERNATING, 5, framework="numpy")
    batch = next(iter(make(ALTERNATING, source=MemorySource(images), batch_size=6)))
    made = transform([images[i] for i in batch.sample_ids], sample_ids=batch.sample_ids)
    np.testing.assert_array_equal(made, batch.images)


def test_alternating_does_not_go_with_samplers_or_another_share() -> None:
    for sampler in (Weighted(np.ones(NUM)), Repeated(2)):
        for recipe in (ALTERNATING, {0: PLAIN, 4: ALTERNATING}):
            with pytest.raises(ValueError, match=r"Flip\(alternate=True\) changes a sample .* Write Flip\(\), or"):
                make(recipe, sampler=sampler)
    with pytest.raises(ValueError, match="alternate=True mirrors each image every other epoch, and p=0.3 asks"):
        Flip(alternate=True, p=0.3)


def test_toml_has_it() -> None:
    assert "alternate = true" in ALTERNATING.to_toml()
    assert ALTERNATING.ops[1].draws_text == "horizontal or not, in turn from epoch to epoch"
    assert recipes.resized(ALTERNATING, 8).ops[1] == Flip(alternate=True)
