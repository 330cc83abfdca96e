"""For one seed and epoch each sample's targets are the same bits, however the epoch is cut and objects are listed."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe import Loader, Recipe, TargetOptions, ops
from tests.augpipe.loader.target_sources import (
    TARGET_RECIPES,
    ObjectSource,
    object_source,
    targets_by_id,
)

NUM = 23
OPTIONS = TargetOptions(polygons=True, masks=True, min_area=4.0, min_visibility=0.1)
FEW = 6

RECIPES = TARGET_RECIPES | {
    f"{name}, pasted": TARGET_RECIPES[name].model_copy(update={"mixing": (ops.CutMix(p=0.8),)})
    for name in ("cropped", "views", "bent")
}
RECIPES |= {
    f"{name}, objects pasted": TARGET_RECIPES[name].model_copy(
        update={"mixing": (ops.CopyPaste(p=0.8, object_p=0.7, blur_px=0.5),)}
    )
    for name in ("cropped", "views", "bent")
}
RECIPES["mosaic"] = Recipe(
    mosaic=ops.Mosaic(size=30, p=0.8),
    ops=(ops.Rotate(), ops.Zoom(), ops.CenterCrop(size=30), ops.Flip()),
)
RECIPES["mosaic of nine"] = Recipe(
    mosaic=ops.Mosaic(size=30, num_images=9, p=0.8),
    ops=(ops.Rotate(), ops.Zoom(), ops.CenterCrop(size=30), ops.Flip(), ops.HueSaturationValue()),
)
RECIPES["mosaic, mixed"] = RECIPES["mosaic"].model_copy(update={"mixing": (ops.CutMix(p=0.4), ops.CopyPaste(p=0.5))})
NAMES = st.sampled_from(sorted(RECIPES))


@cache
def source() -> ObjectSource:
    return object_source(NUM, maps=True)


def loader_of(name: str, objects: Any = None, **options: Any) -> Loader:
    defaults = {"batch_size": 5, "seed": 9, "framework": "numpy", "num_threads": 2, "targets": OPTIONS}
    return Loader(objects or source(), RECIPES[name], **{**defaults, **options})


@cache
def reference(name: str) -> dict[int, Any]:
    """The targets of an epoch, one image at a time."""
    return targets_by_id(loader_of(name, batch_size=1, num_threads=1, prefetch=1))


def test_the_reference_could_differ() -> None:
    for name in RECIPES:
        found = reference(name)
        assert sorted(found) == list(range(NUM))
        assert any(dropped for _, views in found.values() for dropped in views)
        other = targets_by_id(loader_of(name, seed=10))
        assert sum(other[sample_id] != found[sample_id] for sample_id in found) > NUM // 2


@settings(max_examples=FEW, deadline=None)
@given(name=NAMES, batch_size=st.integers(1, NUM + 1), num_threads=st.integers(1, 4), prefetch=st.integers(1, 3))
def test_batch_size_threads_and_prefetching_change_nothing(
    name: str, batch_size: int, num_threads: int, prefetch: int
) -> None:
    loader = loader_of(name, batch_size=batch_size, num_threads=num_threads, prefetch=prefetch)
    assert targets_by_id(loader) == reference(name)


@settings(max_examples=FEW, deadline=None)
@given(name=NAMES, batch_size=st.integers(1, 9), world_size=st.integers(1, 4))
def test_ranks_have_the_targets_of_their_samples(name: str, batch_size: int, world_size: int) -> None:
    found: dict[int, Any] = {}
    for rank in range(world_size):
        part = targets_by_id(loader_of(name, batch_size=batch_size, rank=rank, world_size=world_size))
        assert not part.keys() & found.keys()
        found |= part
    assert found == reference(name)


@settings(max_examples=FEW, deadline=None)
@given(name=NAMES, taken=st.integers(0, 3), batch_size=st.integers(1, 9))
def test_a_resumed_epoch_goes_on_with_the_same_targets(name: str, taken: int, batch_size: int) -> None:
    first = loader_of(name)
    running = iter(first)
    found = targets_by_id(next(running) for _ in range(taken))
    state = first.state_dict()
    resumed = loader_of(name, batch_size=batch_size)
    resumed.load_state_dict(state)
    rest = targets_by_id(resumed)
    assert not rest.keys() & found.keys() and found | rest == reference(name)


@settings(max_examples=FEW, deadline=None)
@given(name=NAMES, seed=st.integers(0, 2**31))
def test_objects_shuffled_in_the_source_give_the_same_ones_shuffled(name: str, seed: int) -> None:
    rng, whole = np.random.default_rng(seed), source()
    orders = [rng.permutation(len(one.labels)).tolist() for one in whole.objects]
    shuffled = ObjectSource(
        whole.contents, [one.shuffled(order) for one, order in zip(whole.objects, orders, strict=True)], whole.maps
    )
    before = {int(i): b for batch in loader_of(name) for i, b in by_image(batch)}
    after = {int(i): b for batch in loader_of(name, shuffled) for i, b in by_image(batch)}
    assert before == after and any(any(view) for view in before.values())


def by_image(batch: Any) -> list[tuple[Any, list[dict[int, Any]]]]:
    """For each image, a dict a view: id of an object -> all that is said of it, but its place in the list."""
    views = batch.targets if isinstance(batch.targets, tuple) else (batch.targets,)
    found = []
    for position, sample_id in enumerate(batch.sample_ids):
        of_views = []
        for view in views:
            target, objects = view[position], {}
            names = [name for name in target if name not in ("object_ids", "image_id", "mask")]
            for number, one in enumerate(target["id"].tolist()):
                objects[one] = {name: _bits(target[name][number]) for name in names}
            of_views.append(objects)
        found.append((sample_id, of_views))
    return found


def _bits(value: Any) -> Any:
    if isinstance(value, list):
        return [_bits(one) for one in value]
    return value.tobytes() if isinstance(value, np.ndarray | np.generic) else value


@pytest.mark.parametrize("name", RECIPES)
def test_a_second_pass_and_skipped_passes_change_nothing(name: str) -> None:
    loader = loader_of(name)
    next(iter(loader))
    loader.set_epoch(0)
    assert targets_by_id(loader) == reference(name)
    assert targets_by_id(loader) != reference(name)  # the next epoch
    loader.set_epoch(0)
    assert targets_by_id(loader) == reference(name)
