"""Batches' memory: never written to while anybody refers to it, used again once nobody does, and flat over epochs."""

import gc
import sys
import tracemalloc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Augment, Loader
from augpipe.native.buffers import BufferPool
from tests.augpipe.loader.loader_sources import (
    PAPER,
    SEVERAL_VIEWS,
    MemorySource,
    arrays,
    as_array,
    jpegs,
    run_python,
    truncated,
    views_of,
)

IMAGES = arrays(24)


def make(recipe: Any = PAPER, **options: Any) -> Loader:
    settings = {"batch_size": 2, "framework": "numpy", "num_threads": 2, "prefetch": 2} | options
    return Loader(MemorySource(IMAGES), recipe, **settings)


# The pool by itself


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda array: array,
    "in a list": lambda array: [array],
    "a slice": lambda array: array[3:4],
    "a view of a view": lambda array: array.reshape(2, 5).T[1:],
    "another dtype": lambda array: array.view(np.uint8),
    "a memoryview": lambda array: memoryview(array),
    "a tensor": lambda array: torch.from_numpy(array),
    "a slice of a tensor": lambda array: torch.from_numpy(array).view(2, 5)[1, 2:],
    "a detached tensor": lambda array: torch.from_numpy(array).view(torch.int32).detach(),
    "a tensor's storage": lambda array: torch.from_numpy(array).untyped_storage(),
    "an array of a tensor": lambda array: torch.from_numpy(array).numpy(),
    "a tensor that autograd saved": lambda array: torch.ones(10, requires_grad=True) * torch.from_numpy(array),
    "dlpack": lambda array: torch.from_dlpack(array),
    "a closure": lambda array: lambda: array,
    "the base of a view": lambda array: array[1:].base,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_whatever_still_refers_to_the_memory_keeps_it(holder: str) -> None:
    pool = BufferPool(keep=4)
    taken = pool.take(10, np.float32)
    seen = weakref.ref(taken)
    held = HOLDERS[holder](taken)
    del taken
    assert pool.take(10, np.float32) is not seen()
    del held
    gc.collect()
    assert pool.take(10, np.float32) is seen()


def test_another_length_or_dtype_is_another_array() -> None:
    pool = BufferPool(keep=5)
    seen = weakref.ref(pool.take(10, np.float32))
    for num, dtype in ((9, np.float32), (11, np.float32), (10, np.uint8), (0, np.float32)):
        taken = pool.take(num, dtype)
        assert taken.shape == (num,) and taken.dtype == dtype
        assert taken is not seen()
        del taken
    assert pool.take(10, "float32") is seen()


def test_no_more_than_so_many_are_remembered() -> None:
    pool = BufferPool(keep=3)
    sizes = [weakref.ref(pool.take(num, np.uint8)) for num in range(1, 8)]
    assert [seen() is not None for seen in sizes] == [False] * 4 + [True] * 3
    held = [pool.take(5, np.uint8) for _ in range(6)]
    assert len({id(array) for array in held}) == 6  # one asked for more is given more, and not remembered


def test_threads_never_get_the_same_array() -> None:
    pool = BufferPool(keep=8)

    def use(number: int) -> bool:
        intact = True
        for _ in range(300):
            array = pool.take(64, np.int64)
            array[:] = number
            intact &= bool((array == number).all())
            kept = array[:1]
            del array
            intact &= bool(kept[0] == number)
        return intact

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(use, range(4)))
    finally:
        sys.setswitchinterval(interval)


FEWER_REFERENCES = """
import sys
counted = sys.getrefcount
sys.getrefcount = lambda thing: counted(thing) - 2  # one is this call's own
import numpy as np
from augpipe.native.buffers import BufferPool
pool = BufferPool(keep=4)
taken = pool.take(10, np.float32)
address = id(taken)
assert pool.take(10, np.float32) is not taken, "handed out while it was held"
view = taken[3:]
del taken
assert id(pool.take(10, np.float32)) != address, "handed out while a view was held"
del view
assert id(pool.take(10, np.float32)) == address, "not used again"
"""


def test_a_python_that_counts_a_borrowed_reference_less_changes_nothing() -> None:
    # Python 3.14 leaves out references that the interpreter borrows from a local variable
    ended = run_python(FEWER_REFERENCES)
    assert ended.returncode == 0, ended.stderr


# Batches


@pytest.mark.parametrize(
    "keep",
    [
        lambda images: images,
        lambda images: images[1:],
        lambda images: images[0, 1, 3:5],
        lambda images: images.reshape(-1)[-7:],
        lambda images: images.T,
    ],
    ids=["whole", "sample", "rows", "flat", "transposed"],
)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.filterwarnings("ignore:The use of `x.T`:UserWarning")
def test_what_is_kept_of_earlier_batches_stays_as_it_was(framework: Any, keep: Callable[[Any], Any]) -> None:
    kept, copies = [], []
    for _ in range(3):
        loader = make(framework=framework)
        for number, batch in enumerate(loader):
            if number % 3 == 0:  # the others are dropped, so their memory goes round
                kept.append(keep(batch.images))
                copies.append(as_array(kept[-1]).copy())
    assert len(kept) == 12
    for part, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(as_array(part), copy)


def test_a_user_may_write_into_a_batch() -> None:
    loader = make(framework="torch")
    expected = [batch.images.clone() for batch in make(framework="torch")]
    for batch, images in zip(loader, expected, strict=True):
        assert torch.equal(batch.images, images)
        batch.images.fill_(7.0)
        batch.labels.fill_(7)
        batch.sample_ids[:] = 7


@pytest.mark.parametrize(("recipe", "num_views"), [(PAPER, 1), (SEVERAL_VIEWS, 3)])
def test_dropped_batches_memory_is_used_again(recipe: Any, num_views: int) -> None:
    loader = make(recipe)
    seen: dict[int, weakref.ref[Any]] = {}
    num_new = 0
    for _ in range(3):
        for batch in loader:
            for images in views_of(batch):
                memory = images.base
                if id(memory) not in seen or seen[id(memory)]() is not memory:  # the address may be that of a dead one
                    num_new += 1
                    seen[id(memory)] = weakref.ref(memory)
    # Prefetched, at work, and at the consumer; each of two threads may still hold the batch that it has just finished.
    assert num_new <= (2 + 2 + 2) * num_views


# Memory over many epochs


def grown_bytes(once: Callable[[], None], num: int) -> int:
    """How much more Python and numpy hold after `num` more runs; the first ones fill what is kept."""
    for _ in range(3):
        once()
    gc.collect()
    tracemalloc.start()
    try:
        once()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(num):
            once()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def drain(loader: Loader) -> Callable[[], None]:
    def once() -> None:
        for _ in loader:
            pass

    return once


SMALLEST_LEAK = 20 * 2 * 3 * 16 * 16 * 4
"""One batch of two float32 images kept in each of twenty epochs."""


def over_epochs(framework: Any) -> Callable[[], None]:
    return drain(Loader(MemorySource(jpegs(9)), PAPER, batch_size=2, framework=framework, num_threads=2))


def over_skipped_images_and_broken_passes() -> Callable[[], None]:
    images = jpegs(9)
    images[3], images[7] = truncated(), b""
    loader = Loader(MemorySource(images), PAPER, batch_size=2, framework="numpy", num_threads=2, on_error="skip")
    return lambda: (list(islice(loader, 2)), drain(loader)())[1]


USES: dict[str, Callable[[], Callable[[], None]]] = {
    "arrays": lambda: over_epochs("numpy"),
    "tensors": lambda: over_epochs("torch"),
    "skipped images and broken passes": over_skipped_images_and_broken_passes,
    "loaders": lambda: lambda: drain(make())(),
    "a transform": lambda: lambda: Augment(PAPER, num_threads=2)(IMAGES),
}


@pytest.mark.parametrize("use", USES)
def test_memory_is_flat_over_many_epochs(use: str) -> None:
    assert grown_bytes(USES[use](), 20) < SMALLEST_LEAK


def test_this_measure_sees_a_leak() -> None:
    kept: list[Any] = []

    def once() -> None:
        loader = make()
        for batch in loader:
            kept.append(batch.images)
            break

    assert grown_bytes(once, 20) >= SMALLEST_LEAK
