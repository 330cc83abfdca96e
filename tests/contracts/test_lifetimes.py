"""Passes that are closed, dropped or left behind, on every backend: threads end, and the next pass is right."""

from itertools import islice
from typing import Any

import pytest

from tests.augpipe.loader.loader_sources import assert_no_worker_threads, ids_of, wait_until, worker_threads
from tests.contracts.backends import CENTRE, NUM, Backend, numbers, plain

OPTIONS: dict[str, Any] = {"recipe": CENTRE, "batch_size": 2}


@pytest.mark.parametrize("num_taken", [0, 1, 3])
@pytest.mark.parametrize("prefetch", [1, 4])
def test_a_pass_that_is_closed_early_ends_its_threads(backend: Backend, num_taken: int, prefetch: int) -> None:
    loader, whole = backend.loader(prefetch=prefetch, **OPTIONS), list(plain(**OPTIONS))
    for _ in range(3):
        running = iter(loader)
        backend.assert_as_plain(islice(running, num_taken), whole[:num_taken])
        running.close()  # type: ignore[attr-defined]
        assert_no_worker_threads()
        assert next(running, None) is None
    assert backend.assert_as_plain(loader, whole) == NUM


@pytest.mark.parametrize("cache", ["host", "device"])
def test_a_pass_that_is_closed_early_leaves_its_cache_sound(backend: Backend, cache: Any) -> None:
    loader, expected = backend.loader(cache=cache, prefetch=3, **OPTIONS), list(plain(**OPTIONS))
    for _ in islice(loader, 2):
        pass
    assert_no_worker_threads()
    assert backend.assert_as_plain(loader, expected) == NUM
    assert numbers(loader).hits + numbers(loader).misses == NUM + 4
    assert numbers(loader).num_held == NUM


def test_a_pass_that_is_dropped_ends_its_threads(backend: Backend) -> None:
    loader = backend.loader(prefetch=3, **OPTIONS)
    for batch in loader:
        assert len(batch) == 2
        break
    wait_until(lambda: not worker_threads())
    assert backend.assert_as_plain(loader, plain(**OPTIONS)) == NUM


def test_a_new_pass_ends_the_one_before_which_says_so(backend: Backend) -> None:
    loader = backend.loader(**OPTIONS)
    first = iter(loader)
    next(first)
    assert backend.assert_as_plain(loader, plain(**OPTIONS)) == NUM
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^this pass over the loader was ended by a new one.* a second Loader"):
            next(first)
    assert_no_worker_threads()


def test_a_look_amid_an_epoch_ends_no_epoch_without_an_error(backend: Backend) -> None:
    loader = backend.loader(**OPTIONS)
    for looks in (0, 1):
        running = iter(loader)
        list(islice(running, looks))
        next(iter(loader))
        with pytest.raises(RuntimeError, match="ended by a new one"):
            next(running)
    with pytest.raises(RuntimeError, match="ended by a new one"):
        list(zip(loader, loader, strict=True))
    assert_no_worker_threads()


def test_a_pass_that_has_ended_by_itself_stays_so(backend: Backend) -> None:
    loader = backend.loader(**OPTIONS)
    first = iter(loader)
    assert len(list(first)) == len(loader)
    second = iter(loader)
    next(second)
    assert next(first, None) is None
    second.close()  # type: ignore[attr-defined]
    list(loader)
    assert next(second, None) is None


def test_loading_a_state_ends_the_pass_that_runs_which_says_so(backend: Backend) -> None:
    loader, whole = backend.loader(**OPTIONS), ids_of(plain(**OPTIONS))
    running = iter(loader)
    next(running)
    state = loader.state_dict()
    next(running)
    loader.load_state_dict(state)
    assert_no_worker_threads()
    with pytest.raises(RuntimeError, match=r"^this pass over the loader was ended by load_state_dict"):
        next(running)
    assert ids_of(loader) == whole[2:]
