"""The loader with DALI on the CPU beside the native one: the same plans, order, labels and bits, however it is cut."""

import itertools
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from augpipe import Loader, Recipe, View, recipes
from augpipe.datasets.folder import FolderSource
from augpipe.decoding import MAX_PIXELS, probe
from augpipe.ops import CenterCrop, Flip, LensDistortion, MultiResolutionCrop, RandomResizedCrop, Rotate
from augpipe.planning.kernel_rows import dct_factors
from tests.dali.loader_pairs import GOOD, NUM, Decoders, assert_same_batches, make, mixed_bag, pair
from tests.unit.loader_sources import (
    CENTRE,
    CONTINUOUS,
    PAPER,
    RECIPES,
    SEVERAL_VIEWS,
    MemorySource,
    arrays,
    ids_of,
    samples,
)

BAG = mixed_bag()
FILES = list(BAG.values())
LEFT_OVER = list(BAG).index("bytes left over")
LEVELS = Recipe(ops=(MultiResolutionCrop(size=16, scales=(20, 40)), Flip(), Rotate()))


def is_for_dali(content: Any) -> bool:
    """Whether DALI is given a file, as long as it is wanted at full size."""
    return isinstance(content, bytes) and probe(content, max_pixels=MAX_PIXELS).may_scale


# The same pixels


@pytest.mark.parametrize("name", ["deep_image", "evaluation", "whole"])
def test_all_photographs(photos_dir: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FolderSource(photos_dir)
    contents = [source.read(i) for i in range(len(source))]
    decoders = Decoders(monkeypatch, contents)
    recipe = {
        "deep_image": recipes.deep_image(64, (256, 384)),
        "evaluation": recipes.evaluation(64, 70),
        "whole": Recipe(ops=(CenterCrop(size=64, scale=400), LensDistortion(p=1.0))),
    }[name]
    options: dict[str, Any] = {"batch_size": 16, "dtype": "float16", "framework": "numpy", "num_threads": 2}
    native, dali = (Loader(source, recipe, backend=backend, **options) for backend in ("native", "dali"))  # type: ignore[arg-type]
    expected = list(native)
    assert len(decoders.look()[1]) == len(source) == 250
    assert assert_same_batches(dali, expected) == 250
    by_dali, by_us = decoders.look()
    assert sorted(by_dali + by_us) == list(range(250)), "each is decoded once"
    at_full_size = sum((dct_factors(batch.plan.views) == 1).sum() for batch in expected)
    assert len(by_dali) == at_full_size and (at_full_size > 60 or name == "evaluation")


@pytest.mark.parametrize("name", RECIPES)
def test_a_mixed_bag_of_odd_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(FILES) > 100
    decoders = Decoders(monkeypatch, FILES)
    native, dali = pair(FILES, RECIPES[name], batch_size=16)
    num_for_dali = 0
    for _ in range(2):
        expected = list(native)
        decoders.look()
        assert assert_same_batches(dali, expected) == len(FILES)
        factors = {i: int(f) for b in expected for i, f in zip(b.sample_ids, dct_factors(b.plan.views), strict=True)}
        wanted = {i for i, content in enumerate(FILES) if is_for_dali(content) and factors[i] == 1}
        by_dali, by_us = decoders.look()
        assert sorted(by_dali + by_us) == [i for i, content in enumerate(FILES) if isinstance(content, bytes)]
        assert set(by_dali) in (wanted, wanted - {LEFT_OVER})  # either decoder reads it alike
        num_for_dali += len(by_dali)
    assert num_for_dali > 10


def test_the_bag_holds_photographs_for_every_dct_factor() -> None:
    factors = set()
    for batch in make("native", FILES, CENTRE):
        for i, factor in zip(batch.sample_ids, dct_factors(batch.plan.views), strict=True):
            content = FILES[i]
            if isinstance(content, bytes) and probe(content, max_pixels=MAX_PIXELS).may_scale:
                factors.add(int(factor))
    assert factors == {1, 2, 4, 8}


@pytest.mark.parametrize("border", ["context", "reflect", "edge", "constant"])
def test_every_border(border: Any) -> None:
    recipe = Recipe(border=border, fill=(10, 200, 90), ops=(CenterCrop(size=30, scale=36), Rotate(max_deg=80, p=1.0)))
    assert assert_same_batches(*reversed(pair(recipe=recipe))) == NUM


FORMATS = itertools.product(
    ("float32", "float16", "bfloat16", "uint8"), ("NCHW", "NHWC", "channels_last"), ("torch", "numpy")
)


@pytest.mark.parametrize(
    ("dtype", "layout", "framework"),
    [(d, n, f) for d, n, f in FORMATS if f == "torch" or (d != "bfloat16" and n != "channels_last")],
)
def test_every_format(dtype: Any, layout: Any, framework: Any) -> None:
    native, dali = pair(GOOD[:6], LEVELS, dtype=dtype, layout=layout, framework=framework)
    expected = list(native)
    found = list(dali)
    assert assert_same_batches(found, expected) == 6
    if framework == "torch":
        assert [b.images.stride() for b in found] == [b.images.stride() for b in expected]


def test_views_of_whole_photographs_and_of_parts() -> None:
    recipe = Recipe(views=(View(), View(ops=(CenterCrop(size=9),), count=2), View(ops=(RandomResizedCrop(size=5),))))
    assert assert_same_batches(*reversed(pair(recipe=recipe, batch_size=1))) == NUM


def test_arrays_alone_need_no_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = Decoders(monkeypatch, [])
    native, dali = pair([*arrays(6), *[picture[..., 0] for picture in arrays(3)]])
    assert assert_same_batches(dali, native) == 9
    assert decoders.look() == ([], [])


def test_batches_of_which_dali_gets_nothing_between_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = arrays(24)
    contents = [GOOD[i] if i // 4 % 2 else pictures[i] for i in range(24)]
    decoders = Decoders(monkeypatch, contents)
    native, dali = pair(contents, Recipe(ops=(CenterCrop(size=10),)), shuffle=False, prefetch=3)
    assert assert_same_batches(dali, native) == 24
    assert decoders.look()[0] == [i for i in range(24) if i // 4 % 2]


@pytest.mark.parametrize("prefetch", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_prefetching_and_batch_sizes(batch_size: int, prefetch: int) -> None:
    native, dali = pair(batch_size=batch_size, prefetch=prefetch, num_threads=1 + prefetch % 2)
    for _ in range(2):
        assert assert_same_batches(dali, native) == NUM


def test_dali_is_given_each_photograph_once_and_only_what_is_read_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from augpipe.dali.decoder import DaliDecoder

    asked: list[Any] = []
    submit = DaliDecoder.submit

    def submitted(decoder: DaliDecoder, contents: Any, regions: Any) -> None:
        asked.extend(regions)
        submit(decoder, contents, regions)

    monkeypatch.setattr(DaliDecoder, "submit", submitted)
    recipe = Recipe(ops=(CenterCrop(size=10),))
    decoders = Decoders(monkeypatch, GOOD)
    for epoch in range(3):
        loader = make("dali", recipe=recipe)
        loader.set_epoch(epoch)
        assert len(ids_of(loader)) == NUM
        assert decoders.look() == (list(range(NUM)), [])
    sides = np.array(asked)[:, 2:] - np.array(asked)[:, :2]
    assert len(sides) == 3 * NUM and (sides >= 10).all() and (sides <= 12).all()


# Ranks, and resuming


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks(world_size: int, drop_last: bool) -> None:
    seen: list[int] = []
    for rank in range(world_size):
        native, dali = pair(FILES, rank=rank, world_size=world_size, batch_size=7, drop_last=drop_last)
        assert len(dali) == len(native)
        assert_same_batches(dali, native)
        dali.set_epoch(0)
        seen += ids_of(dali)
    if drop_last:
        assert len(set(seen)) == len(seen) == len(FILES) // (7 * world_size) * 7 * world_size
    else:
        assert sorted(seen) == list(range(len(FILES)))


def test_a_rank_without_samples_gets_empty_batches() -> None:
    native, dali = pair(GOOD[:5], rank=2, world_size=3, batch_size=2, shuffle=False)
    found = [len(batch) for batch in dali]
    assert found == [len(batch) for batch in native] == [1]
    native, dali = pair(GOOD[:4], rank=2, world_size=3, batch_size=1, shuffle=False)
    found = [len(batch) for batch in dali]
    assert found == [len(batch) for batch in native] == [1, 0]


@pytest.mark.parametrize("shuffle", [True, False, "sticky"])
def test_every_order(shuffle: Any) -> None:
    for rank in range(2):
        native, dali = pair(shuffle=shuffle, rank=rank, world_size=2)
        for _ in range(2):
            assert_same_batches(dali, native)


@pytest.mark.parametrize(("before", "after"), [("dali", "dali"), ("native", "dali"), ("dali", "native")])
@pytest.mark.parametrize("num_batches", [1, 3, 5])
def test_a_state_goes_on_with_either_backend(before: str, after: str, num_batches: int) -> None:
    whole = samples(make("native", recipe=CONTINUOUS))
    loader = make(before, recipe=CONTINUOUS)
    running = iter(loader)
    start = samples(islice(running, num_batches))
    other = make(after, recipe=CONTINUOUS, batch_size=3, seed=1)
    other.load_state_dict(loader.state_dict())
    assert start + samples(other) == whole
    assert start + samples(running) == whole
    assert samples(other) == samples(loader)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)])
def test_a_state_goes_on_with_another_world_size_and_backend(before: int, after: int) -> None:
    whole = dict(samples(make("native", FILES)))
    assert len(whole) == len(FILES)
    loaders = [make("native", FILES, world_size=before, rank=rank) for rank in range(before)]
    running = [iter(loader) for loader in loaders]
    seen = [sample for run in running for sample in samples(islice(run, 3))]
    assert len(seen) == 3 * 4 * before
    for rank in range(after):
        loader = make("dali", FILES, world_size=after, rank=rank)
        loader.load_state_dict(loaders[0].state_dict())
        seen += samples(loader)
    assert len(seen) == len(FILES) and dict(seen) == whole


def test_two_loaders_of_one_source_at_once() -> None:
    source = MemorySource(FILES)
    options: dict[str, Any] = {"batch_size": 5, "framework": "numpy", "num_threads": 1}
    expected = [
        samples(Loader(source, recipe, backend="native", seed=seed, **options))
        for recipe, seed in ((PAPER, 1), (SEVERAL_VIEWS, 2))
    ]
    loaders = [
        Loader(source, recipe, backend="dali", seed=seed, **options)
        for recipe, seed in ((PAPER, 1), (SEVERAL_VIEWS, 2))
    ]
    found: list[list[Any]] = [[], []]
    for batches in zip(*loaders, strict=True):
        for seen, batch in zip(found, batches, strict=True):
            seen += samples([batch])
    assert found == expected


def test_another_seed_of_a_state_keeps_working() -> None:
    native, dali = pair()
    list(dali)
    list(native)
    for loader in (native, dali):
        loader.load_state_dict(loader.state_dict() | {"seed": 77})
    assert assert_same_batches(dali, native) == NUM
