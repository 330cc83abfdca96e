"""The loader's threads: priorities, and that none outlives its use, however a pass over the loader ends."""

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from augpipe import Loader
from augpipe.native.workers import WorkerPool, num_usable_cores
from tests.augpipe.loader.loader_sources import (
    PAPER,
    TIMEOUT_S,
    MemorySource,
    arrays,
    assert_no_worker_threads,
    run_python,
    samples,
    together,
    wait_until,
    worker_threads,
)

IMAGES = arrays(24)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    assert_no_worker_threads()
    yield
    assert_no_worker_threads()


def make(**options: Any) -> Loader:
    settings = {"batch_size": 2, "framework": "numpy", "num_threads": 2} | options
    return Loader(MemorySource(IMAGES), PAPER, **settings)


class Stop(Exception):
    pass


# The pool by itself


def test_a_pool_grows_and_never_shrinks_nor_grows_once_closed() -> None:
    pool = WorkerPool(1)
    for num, expected in ((1, 1), (3, 3), (2, 3)):
        pool.grow_to(num)
        assert pool.num_threads == expected == len(worker_threads())
    barrier = threading.Barrier(4, timeout=TIMEOUT_S)
    for _ in range(3):
        pool.submit((0, 0), lambda: barrier.wait() and None)
    barrier.wait()  # all three take tasks
    pool.close()
    pool.grow_to(9)
    assert worker_threads() == []


def test_the_lowest_priority_goes_first_and_equals_in_their_order() -> None:
    pool = WorkerPool(1)
    may_go, done, seen = threading.Event(), threading.Event(), []
    pool.submit((0, 0), lambda: may_go.wait(TIMEOUT_S) and None)
    for number, priority in enumerate([(2, 0), (1, 0), (1, -1), (0, 5), (1, 0)]):
        pool.submit(priority, lambda number=number: seen.append(number))  # type: ignore[misc]
    pool.submit((9, 9), done.set)
    may_go.set()
    assert done.wait(TIMEOUT_S)
    pool.close()
    assert seen == [3, 2, 1, 4, 0]


def test_closing_waits_for_what_runs_and_drops_what_is_queued() -> None:
    pool = WorkerPool(1)
    started, may_go, seen = threading.Event(), threading.Event(), []

    def run() -> None:
        started.set()
        may_go.wait(TIMEOUT_S)
        seen.append("ran")

    pool.submit((0, 0), run)
    pool.submit((1, 0), lambda: seen.append("queued"))
    assert started.wait(TIMEOUT_S)
    closer = threading.Thread(target=pool.close)
    closer.start()
    wait_until(lambda: pool._closed)
    pool.submit((2, 0), lambda: seen.append("late"))
    may_go.set()
    closer.join(TIMEOUT_S)
    assert seen == ["ran"]
    assert worker_threads() == []
    pool.close()  # twice is once


@pytest.mark.parametrize("is_locked", [False, True])
def test_a_pool_closed_from_one_of_its_own_threads_ends(is_locked: bool) -> None:
    """As when the garbage collector, which may run anywhere, finds its owner there."""
    pool = WorkerPool(3)

    def close() -> None:
        if is_locked:
            with pool._wake:
                pool.close()
        else:
            pool.close()

    pool.submit((0, 0), close)
    try:
        wait_until(lambda: not worker_threads())
    finally:
        for thread in worker_threads():  # so that this failure does not become that of others
            thread.name = "stuck"


def test_a_thread_that_cannot_be_started_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    start, num_started = threading.Thread.start, 0

    def start_two(thread: threading.Thread) -> None:
        nonlocal num_started
        if num_started == 2:
            raise RuntimeError("can't start new thread")
        num_started += 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        list(make(num_threads=4))
    monkeypatch.undo()
    try:
        assert worker_threads() == []
    finally:
        for thread in worker_threads():
            thread.name = "left behind"


def test_a_finished_task_is_not_held() -> None:
    pool = WorkerPool(1)
    done = threading.Event()

    class Thing:
        def run(self) -> None:
            done.set()

    thing = Thing()
    seen = weakref.ref(thing)
    pool.submit((0, 0), thing.run)
    del thing
    assert done.wait(TIMEOUT_S)
    wait_until(lambda: seen() is None)
    pool.close()


def test_usable_cores_are_those_of_this_process() -> None:
    assert 1 <= num_usable_cores() <= (os.cpu_count() or 1)
    if hasattr(os, "sched_setaffinity"):
        code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        ended = run_python(code + "from augpipe.native.workers import num_usable_cores; print(num_usable_cores())")
        assert ended.stdout.strip() == "1", ended.stderr


# However a pass ends


def running(loader: Loader) -> Any:
    iterator = iter(loader)
    next(iterator)
    assert len(worker_threads()) == 2
    return iterator


def test_a_pass_uses_as_many_threads_as_asked_for_and_ends_them() -> None:
    for num_threads in (1, 2, 5):
        found = {len(worker_threads()) for _ in make(num_threads=num_threads)}
        assert found == {num_threads}
        assert worker_threads() == []


def test_nothing_starts_before_the_first_batch_is_asked_for() -> None:
    loader = make()
    iterator = iter(loader)
    assert worker_threads() == []
    assert loader.source.num_reads == 0  # type: ignore[union-attr]
    del iterator


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop, SystemExit])
def test_an_exception_in_the_loops_body_ends_the_threads_at_once(error: type[BaseException]) -> None:
    def loop() -> None:
        for _ in make():
            assert len(worker_threads()) == 2
            raise error

    with pytest.raises(error) as caught:
        loop()
    assert worker_threads() == []  # though the traceback still holds the loop's frame
    assert caught.tb is not None


def test_a_dropped_iterator_ends_its_threads_at_once() -> None:
    loader = make()
    iterator = running(loader)
    del iterator
    assert worker_threads() == []
    assert loader.epoch == 0


@pytest.mark.slow
def test_a_collected_loader_ends_its_threads() -> None:
    loader = make()
    holder: dict[str, Any] = {"loader": loader, "iterator": running(loader)}
    holder["itself"] = holder  # only the collector ends this
    seen = weakref.ref(loader)
    del loader, holder
    gc.collect()
    assert seen() is None
    assert worker_threads() == []


def test_a_loader_holds_neither_source_nor_batches_once_it_is_gone() -> None:
    loader = make()
    source = weakref.ref(loader.source)
    batches = [weakref.ref(batch) for batch in loader]
    assert all(batch() is None for batch in batches)
    del loader
    assert source() is None


def test_loaders_iterated_in_several_threads_at_once() -> None:
    expected = [samples(make(seed=seed)) for seed in range(4)]
    found: dict[int, Any] = {}
    together(4, lambda seed: found.update({seed: samples(make(seed=seed, prefetch=3))}))
    assert [found[seed] for seed in range(4)] == expected


def test_a_read_in_progress_is_waited_for_and_no_further_one_begun() -> None:
    class Slow(MemorySource):
        entered = threading.Event()
        may_go = threading.Event()

        def read(self, sample_id: int) -> Any:
            if sample_id >= 4:
                self.entered.set()
                assert self.may_go.wait(TIMEOUT_S)
            return super().read(sample_id)

    source = Slow(IMAGES)
    loader = Loader(source, PAPER, batch_size=1, framework="numpy", num_threads=1, prefetch=4, shuffle=False)
    iterator = iter(loader)
    next(iterator)
    assert source.entered.wait(TIMEOUT_S)
    threading.Timer(0.05, source.may_go.set).start()
    iterator.close()
    assert worker_threads() == []
    assert source.num_reads <= 6


def test_the_interpreter_ends_once_running_tasks_have() -> None:
    """A thread that is stopped where it is may be within a decoder."""
    code = (
        "import os, threading, time\n"
        "from augpipe.native.workers import WorkerPool\n"
        "pool, begun = WorkerPool(1), threading.Event()\n"
        "def task():\n    begun.set()\n    time.sleep(0.3)\n    os.write(1, b'ended')\n"
        "pool.submit((0, 0), task)\n"
        "begun.wait()\n"
    )
    ended = run_python(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended", "")
