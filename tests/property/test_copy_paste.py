"""Pasted objects are the same pixels however an epoch is cut, and in epochs of a sampler."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe import Batch, Loader, Recipe, TargetOptions, ops, sampling
from tests.augpipe.loader.target_sources import CROPPED, ObjectSource, object_source, plain

NUM, FEW = 41, 8
MIXING = (ops.CopyPaste(p=0.6, object_p=0.7, blur_px=1.0), ops.CutMix(p=0.2), ops.MixUp(p=0.2, alpha=8.0))
RECIPE = Recipe(ops=CROPPED.ops, mixing=MIXING)
SAMPLED = st.booleans()


@cache
def source() -> ObjectSource:
    return object_source(NUM)


def loader_of(is_sampled: bool, **options: Any) -> Loader:
    sampler = sampling.Repeated(times=2) if is_sampled else None
    given = {"batch_size": 64, "seed": 4, "framework": "numpy", "num_threads": 1, "sampler": sampler, **options}
    return Loader(source(), RECIPE, targets=TargetOptions(masks=True), **given)


def images_of(batches: Iterable[Batch]) -> list[Any]:
    """Each image with its plan and its targets, in their order."""
    found = []
    for batch in batches:
        for nth, (image, target) in enumerate(zip(batch.images, batch.targets, strict=True)):
            found.append((image.tobytes(), batch.plan.rows[nth]["mixing"].tobytes(), str(plain(target))))
    return found


@cache
def reference(is_sampled: bool) -> list[Any]:
    return images_of(loader_of(is_sampled))


def test_the_reference_could_differ() -> None:
    for is_sampled in (False, True):
        expected = reference(is_sampled)
        others = images_of(loader_of(is_sampled, seed=5))
        assert len(expected) == len({image for image, *_ in expected}) == NUM * (1 + is_sampled)
        assert not {image for image, *_ in expected} & {image for image, *_ in others}


@settings(max_examples=FEW, deadline=None)
@given(is_sampled=SAMPLED, batch_size=st.integers(1, 100), num_threads=st.integers(1, 4), prefetch=st.integers(1, 3))
def test_batch_size_and_threads_change_nothing(
    is_sampled: bool, batch_size: int, num_threads: int, prefetch: int
) -> None:
    found = loader_of(is_sampled, batch_size=batch_size, num_threads=num_threads, prefetch=prefetch)
    assert images_of(found) == reference(is_sampled)


@settings(max_examples=FEW, deadline=None)
@given(is_sampled=SAMPLED, taken=st.integers(0, 4), batch_size=st.integers(1, 20))
def test_a_resumed_epoch_goes_on_with_the_same_images(is_sampled: bool, taken: int, batch_size: int) -> None:
    first = loader_of(is_sampled, batch_size=7)
    running = iter(first)
    found = images_of(next(running) for _ in range(taken))
    resumed = loader_of(is_sampled, batch_size=batch_size)
    resumed.load_state_dict(first.state_dict())
    assert found + images_of(resumed) == reference(is_sampled)


@settings(max_examples=FEW, deadline=None)
@given(is_sampled=SAMPLED, batch_size=st.integers(1, 20), world_size=st.integers(2, 4))
def test_ranks_make_the_images_of_the_epoch(is_sampled: bool, batch_size: int, world_size: int) -> None:
    found: list[Any] = []
    for rank in range(world_size):
        found += images_of(loader_of(is_sampled, batch_size=batch_size, rank=rank, world_size=world_size))
    assert sorted(found) == sorted(reference(is_sampled))
