"""A handful of threads that run tasks by priority and never outlive their owner."""

import atexit
import heapq
import itertools
import os
import threading
import weakref
from collections.abc import Callable

_open_pools: "weakref.WeakSet[WorkerPool]" = weakref.WeakSet()


class WorkerPool:
    """Threads that take the task with the lowest priority first; tasks handle their own errors.

    A thread refers to the pool alone, so whoever owns the pool can be collected, and closes it then.
    """

    def __init__(self, num_threads: int) -> None:
        self._tasks: list[tuple[tuple[int, int], int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._wake = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"augpipe-{number}", daemon=True) for number in range(num_threads)
        ]
        _open_pools.add(self)
        for thread in self._threads:
            thread.start()

    def submit(self, priority: tuple[int, int], task: Callable[[], None]) -> None:
        """Queue a task; once the pool is closed it is dropped."""
        with self._wake:
            if not self._closed:
                heapq.heappush(self._tasks, (priority, next(self._order), task))
                self._wake.notify()

    def close(self) -> None:
        """Drop what is queued, let what is running finish, and end the threads."""
        with self._wake:
            self._closed = True
            self._tasks.clear()
            self._wake.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        _open_pools.discard(self)

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._tasks and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                _, _, task = heapq.heappop(self._tasks)
            task()
            del task


def num_usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@atexit.register
def _close_all() -> None:
    # daemon threads freeze where they are when the interpreter ends, which may be inside a decoder
    for pool in list(_open_pools):
        pool.close()
