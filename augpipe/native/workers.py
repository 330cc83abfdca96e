"""A handful of threads that run tasks by priority and never outlive their owner, and what waits for a task."""

import atexit
import heapq
import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from augpipe.native.control_groups import cpu_quota

_open_pools: "weakref.WeakSet[WorkerPool]" = weakref.WeakSet()


class Latch:
    """What `threading.Event` is, for something that happens once, and for a thread that Ctrl-C may interrupt.

    An event is written in Python: a KeyboardInterrupt within its `wait` raises a RuntimeError of its own, or leaves its
    lock held for good. This lock is taken and given back by a block without content, which nothing comes between.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._held = [self._lock]

    def set(self) -> None:
        """Pass it; a second time nothing happens."""
        with suppress(IndexError):
            self._held.pop().release()  # of two threads that pass it at once, one has the lock

    def is_set(self) -> bool:
        """Whether it was passed."""
        return not self._held

    def wait(self) -> None:
        """Wait until it is passed."""
        with self._lock:
            pass


class WorkerPool:
    """Threads that take the task with the lowest priority first; tasks handle their own errors.

    A thread refers to the pool alone, so whoever owns the pool can be collected, and closes it then. The lock is
    entered by itself, in C: after Ctrl-C within a Condition's own entrance, in Python, it would be held for good.
    """

    def __init__(self, num_threads: int) -> None:
        self._tasks: list[tuple[tuple[int, int], int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._closed = False
        self._threads: list[threading.Thread] = []
        _open_pools.add(self)
        try:
            self.grow_to(num_threads)
        except BaseException:  # no more threads on this machine, or Ctrl-C: those that run must end
            self.close()
            raise

    def grow_to(self, num_threads: int) -> None:
        """Start threads until there are so many; once the pool is closed nothing is started."""
        with self._lock:
            while len(self._threads) < num_threads and not self._closed:
                name = f"augpipe-{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)

    @property
    def num_threads(self) -> int:
        """How many there are."""
        return len(self._threads)

    @property
    def is_closed(self) -> bool:
        """Whether tasks are dropped."""
        return self._closed

    def submit(self, priority: tuple[int, int], task: Callable[[], None]) -> None:
        """Queue a task; once the pool is closed it is dropped."""
        with self._lock:
            if not self._closed:
                heapq.heappush(self._tasks, (priority, next(self._order), task))
                self._wake.notify()

    def close(self) -> None:
        """Drop what is queued, let what is running finish, and end the threads."""
        with self._lock:
            self._closed = True
            self._wake.notify_all()
        if threading.current_thread() in self._threads:
            return  # the garbage collector found the owner from here, perhaps with the lock held: wait for nobody
        for thread in self._threads:
            thread.join()
        self._tasks.clear()
        _open_pools.discard(self)

    def abandon(self) -> None:
        """What `close` is in a forked process: the threads are not there, and the lock may be held by one of them."""
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._closed = True
        self._threads = []
        self._tasks = []

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._tasks and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                _, _, task = heapq.heappop(self._tasks)
            task()
            del task


def run_each(work: Callable[[int], None], num: int, num_threads: int) -> None:
    """Call work(0) .. work(num - 1), on threads of this call alone: none is left to a fork or the interpreter's end."""
    if min(num, num_threads) > 1:
        with ThreadPoolExecutor(min(num, num_threads)) as pool:
            list(pool.map(work, range(num)))
    else:
        for position in range(num):
            work(position)


def num_usable_cores(root: Path = Path("/")) -> int:
    """Cores that this process may keep busy: those that it may run on, and no more than its container's quota pays for.

    A quota of 1.5 cores counts as 2: one thread would leave a third of it unused.

    Args:
        root: where /proc and /sys are.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(root)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _abandon_all() -> None:
    for pool in list(_open_pools):
        pool.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


@atexit.register
def _close_all() -> None:
    # daemon threads freeze where they are when the interpreter ends, which may be inside a decoder
    for pool in list(_open_pools):
        pool.close()
