"""Batches planned together: nothing shows of it but the time, and no more is held than what is being made."""

import gc
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augpipe import Loader, Recipe, SampleError, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.ops import CenterCrop
from augpipe.pipeline import epochs, planner
from augpipe.pipeline.blocks import Block
from augpipe.planning.kernel_rows import dct_factors
from augpipe.sampling import epoch_order
from augpipe.sources.protocol import Source
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.loader_sources import (
    CENTRE,
    CONTINUOUS,
    PAPER,
    RECIPES,
    SEVERAL_VIEWS,
    MemorySource,
    arrays,
    ids_of,
    jpegs,
    samples,
    truncated,
)

NUM, BLOCK = 45, 16
STACK = np.stack(arrays(NUM))


class Sized(MemorySource):
    """JPEGs whose sizes are known, but for those in `unknown`."""

    knows_sizes = True

    def __init__(self, contents: Sequence[Any], unknown: Sequence[int] = ()) -> None:
        super().__init__(contents)
        self.unknown = unknown

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        plain = Loader(
            MemorySource(self.contents), PAPER, batch_size=1, shuffle=False, framework="numpy", on_error="skip"
        )
        rows = [batch.plan.rows[0] for batch in plain]
        return [(0, 0) if i in self.unknown else (int(row["height"]), int(row["width"])) for i, row in enumerate(rows)]

    def size(self, sample_id: int) -> tuple[int, int]:
        return self.sizes[sample_id]


FILES = jpegs(NUM)
SOURCES: dict[str, tuple[Source, Source]] = {
    "an array": (ArraySource(STACK), MemorySource(list(STACK))),
    "sizes known": (Sized(FILES), MemorySource(FILES)),
    "some sizes known": (Sized(FILES, unknown=(3, 4, 30)), MemorySource(FILES)),
    "no sizes known": (MemorySource(FILES), MemorySource(FILES)),
}
"""Each with what nothing is known of before it is read."""


def make(source: Source, recipe: Recipe = PAPER, **options: Any) -> Loader:
    settings = {"batch_size": 4, "num_threads": 2, "framework": "numpy", "seed": 11} | options
    return Loader(source, recipe, **settings)


@pytest.fixture(scope="module")
def references() -> dict[tuple[str, str], Any]:
    """The second epoch of each source and recipe in its order, read first and planned one by one."""
    found = {}
    for kind, (_, plain) in SOURCES.items():
        for name, recipe in RECIPES.items():
            loader = make(plain, recipe, batch_size=1, num_threads=1)
            loader.set_epoch(2)
            found[kind, name] = samples(loader)
    return found


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each call of `plan` had."""
    sizes: list[int] = []
    plan = planner.plan
    for known, _ in SOURCES.values():
        getattr(known, "sizes", None)  # a pass of a loader, where nobody has asked for them yet

    def noted(recipe: Recipe, sample_ids: Any, **options: Any) -> Any:
        sizes.append(len(sample_ids))
        return plan(recipe, sample_ids, **options)

    monkeypatch.setattr(planner, "plan", noted)
    monkeypatch.setattr(epochs, "BLOCK_SIZE", BLOCK)
    return sizes


@pytest.mark.slow
@given(
    kind=st.sampled_from(sorted(SOURCES)),
    recipe=st.sampled_from(list(RECIPES.values())),
    block_size=st.integers(1, 60),
    batch_size=st.integers(1, 50),
    num_threads=st.integers(1, 3),
    consumed=st.integers(0, NUM - 1),
)
def test_any_cut_into_blocks_and_batches_gives_the_same(
    references: dict[tuple[str, str], Any],
    kind: str,
    recipe: Recipe,
    block_size: int,
    batch_size: int,
    num_threads: int,
    consumed: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epochs, "BLOCK_SIZE", block_size)
        loader = make(SOURCES[kind][0], recipe, batch_size=batch_size, num_threads=num_threads)
        loader.load_state_dict(loader.state_dict() | {"epoch": 2, "samples_consumed": consumed})
        assert samples(loader) == references[kind, recipe.name][consumed:]


@pytest.mark.slow
@given(
    num=st.integers(1, 200),
    batch_size=st.integers(1, 40),
    world_size=st.integers(1, 5),
    block_size=st.integers(1, 70),
    consumed=st.integers(0, 200),
    drop_last=st.booleans(),
    shuffle=st.sampled_from([True, False]),
)
def test_blocks_are_cut_as_batches_are(
    num: int, batch_size: int, world_size: int, block_size: int, consumed: int, drop_last: bool, shuffle: bool
) -> None:
    drop_last &= num >= batch_size * world_size
    first = min(consumed, num)
    source = ArraySource(np.zeros((num, 1, 1, 1), np.uint8))
    num_batches = epoch_order.num_batches(num - first, batch_size, world_size, drop_last)
    for rank in range(world_size):
        options: dict[str, Any] = {"rank": rank, "world_size": world_size, "drop_last": drop_last, "shuffle": shuffle}
        loader = make(source, CENTRE, batch_size=batch_size, **options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(epochs, "BLOCK_SIZE", block_size)
            requests = list(loader._epochs.requests(loader.recipe, loader.seed, 6, first))
        assert [request.number for request in requests] == list(range(num_batches))
        for request in requests:
            start = first + request.number * batch_size * world_size
            places = epoch_order.rank_positions(start, num, batch_size, rank, world_size)
            expected = epoch_order.sample_ids(places, num, 11, 6, shuffle)
            assert request.sample_ids.tolist() == expected.tolist() and request.epoch == 6
            assert len(request.block.sample_ids) < block_size + batch_size


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["an array", "sizes known"])
def test_what_is_known_is_planned_a_block_at_a_time(planned: list[int], kind: str) -> None:
    loader = make(SOURCES[kind][0])
    for _ in range(2):
        planned.clear()
        assert sorted(ids_of(loader)) == list(range(NUM))
        assert sorted(planned) == [13, 16, 16]  # no block goes on into the next epoch


def test_a_larger_batch_is_a_block(planned: list[int]) -> None:
    ids_of(make(SOURCES["an array"][0], batch_size=20))
    assert sorted(planned) == [5, 20, 20]


def test_what_is_not_known_is_planned_with_its_batch(planned: list[int]) -> None:
    ids_of(make(SOURCES["no sizes known"][0]))
    assert sorted(planned) == [1] + [4] * 11
    planned.clear()
    ids_of(make(SOURCES["some sizes known"][0], shuffle=False))  # 3 in the first batch, 4 in the second, 30 in the 8th
    assert sorted(planned) == [4, 4, 4, 13, 16, 16]


def test_a_cache_that_fills_has_more_planned_at_once(planned: list[int]) -> None:
    source, plain = SOURCES["no sizes known"]
    cached, uncached = make(source, cache="host"), make(plain)
    for expected in ([1] + [4] * 11, [13, 16, 16], [13, 16, 16]):
        planned.clear()
        found = samples(cached)
        assert sorted(planned) == expected
        assert found == samples(uncached)


def test_a_cache_that_holds_a_part_changes_nothing(planned: list[int]) -> None:
    source, plain = SOURCES["no sizes known"]
    partial, uncached = make(source, cache="host", cache_bytes=2**17), make(plain)
    for _ in range(3):
        assert samples(partial) == samples(uncached)
    statistics = partial.cache_statistics
    assert statistics is not None and 0 < statistics.num_held < NUM


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("recipe", [PAPER, SEVERAL_VIEWS], ids=lambda recipe: recipe.name)
def test_another_image_in_a_block_leaves_the_others_alone(planned: list[int], recipe: Recipe, batch_size: int) -> None:
    damaged = list(FILES)
    damaged[5] = damaged[17] = truncated()
    options = {"batch_size": batch_size, "on_error": "skip"}
    source = Sized(damaged)
    source.sizes[5], source.sizes[17], source.sizes[20] = (60, 50), (1, 1), (9, 400)
    late, first = make(source, recipe, **options), make(MemorySource(damaged), recipe, **options)
    assert samples(late) == samples(first)
    assert set(late.skipped) == {5, 17} and planned.count(1) >= 3


def test_a_plan_is_its_batchs_own() -> None:
    expected = samples(make(SOURCES["an array"][0], prefetch=1))
    found = []
    for batch in make(SOURCES["an array"][0], prefetch=1):
        found += samples([batch])
        assert batch.plan.rows.base is None or batch.plan.rows.base.nbytes == batch.plan.rows.nbytes
        for rows in batch.plan.views:
            rows.view(np.uint8)[:] = 255  # others of its block are not made yet
    assert found == expected


@pytest.mark.slow
def test_no_more_blocks_live_than_batches_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Block] = weakref.WeakSet()
    numbers = []

    class Watched(Block):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            alive.add(self)

    monkeypatch.setattr(epochs, "Block", Watched)
    monkeypatch.setattr(epochs, "BLOCK_SIZE", 4)
    loader = make(ArraySource(np.zeros((400, 20, 20), np.uint8)), CENTRE, batch_size=2, prefetch=3)
    kept = []
    for batch in loader:
        kept.append(batch)
        numbers.append(len(alive))
    # of four batches ahead, of those that two threads have just left, and the one that is being cut
    assert len(kept) == 200 and max(numbers) <= 7
    gc.collect()
    assert len(alive) == 0


# Images in one array


STACKS = {
    "rgb": STACK,
    "gray": STACK[..., 1],
    "one channel": STACK[..., :1],
    "rgba": np.concatenate([STACK, STACK[..., :1]], axis=3),
    "channels first in memory": np.ascontiguousarray(STACK.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1),
    "backwards": STACK[::-1, :, ::-1],
}


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        (CONTINUOUS, {"dtype": "uint8", "layout": "NHWC"}),
        (SEVERAL_VIEWS, {"dtype": "float16"}),
        (recipes.none(), {"dtype": "uint8", "batch_size": 20}),
        (PAPER, {"max_pixels": 100}),
    ],
    ids=["levels", "views", "whole", "max_pixels"],
)
def test_an_array_gives_what_its_images_give(kind: str, recipe: Recipe, options: dict[str, Any]) -> None:
    stack = STACKS[kind]
    assert samples(make(ArraySource(stack), recipe, **options)) == samples(
        make(ArraySource(list(stack)), recipe, **options)
    )


def test_pixels_are_not_planned_for_a_dct_scale() -> None:
    large = np.stack([scene(160, 200, seed) for seed in range(8)])
    assert max(dct_factors(batch.plan.views).max() for batch in make(ArraySource(large))) > 1  # were they JPEGs
    assert samples(make(ArraySource(large))) == samples(make(MemorySource(list(large))))


def test_an_array_that_cannot_be_written_to_and_one_in_a_file(tmp_path: Any) -> None:
    np.save(tmp_path / "images.npy", STACK)
    frozen = STACK.copy()
    frozen.flags.writeable = False
    expected = samples(make(ArraySource(list(STACK))))
    for stack in (frozen, np.load(tmp_path / "images.npy", mmap_mode="r")):
        assert samples(make(ArraySource(stack))) == expected


def test_many_images_are_rendered_by_one_call_and_large_ones_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from augpipe.pipeline import stack_output

    num_rendered: list[int] = []
    render = stack_output.render

    def noted(table: Any, *rest: Any) -> None:
        num_rendered.append(len(table))
        render(table, *rest)

    monkeypatch.setattr(stack_output, "render", noted)
    expected = samples(make(ArraySource(STACK), batch_size=NUM))
    assert num_rendered == [NUM]
    num_rendered.clear()
    monkeypatch.setattr(stack_output, "AT_A_TIME_BYTES", 3 * 4 * STACK[0, ..., 0].size)
    assert samples(make(ArraySource(STACK), batch_size=NUM)) == expected
    assert num_rendered == [3] * (NUM // 3)
    num_rendered.clear()
    monkeypatch.setattr("augpipe.pipeline.stages.MIN_PIECE_PX", 16 * 16 * 8)
    assert samples(make(ArraySource(STACK), batch_size=NUM)) == expected
    assert sorted(num_rendered) == [1] * 3 + [2] * 3 + [3] * 12  # six pieces of 7 or 8 images


def test_a_recipe_that_takes_no_image_of_an_array_says_why() -> None:
    recipe = Recipe(ops=(CenterCrop(size=64),))
    problems = []
    for source in (ArraySource(STACK), ArraySource(list(STACK))):
        for on_error in ("raise", "skip"):
            with pytest.raises(SampleError) as caught:
                ids_of(make(source, recipe, on_error=on_error))
            problems.append(str(caught.value))
    assert "smaller than the crop of 64x64" in problems[0] and problems[:2] == problems[2:]


class Brighter(ArraySource):
    """A subclass that changes what is read, and the labels."""

    def read(self, sample_id: int) -> Any:
        return super().read(sample_id) // 2 + 100

    def label(self, sample_id: int) -> int:
        return 3 * sample_id


def test_what_a_subclass_reads_is_what_it_gives() -> None:
    plain = MemorySource([image // 2 + 100 for image in STACK], labels=[3 * i for i in range(NUM)])
    assert samples(make(Brighter(STACK))) == samples(make(plain))
    for batch in make(Brighter(STACK)):
        assert batch.labels.tolist() == [3 * i for i in batch.sample_ids]
