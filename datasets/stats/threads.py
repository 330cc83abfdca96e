"""Chunks of samples on several threads: results in order, a bounded number in flight, and a quick end."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
CHUNK = 32
"""Photographs a task: few enough that all threads end at about the same time."""


class _Ended(Exception):
    """Whoever wanted the results wants them no longer."""


def map_chunks(
    function: Callable[[Sequence[int], Callable[[], None]], T],
    sample_ids: Sequence[int],
    num_threads: int,
    progress: Callable[[int], None],
) -> Iterator[T]:
    """Results of `function(chunk, tick)` in the chunks' order; it calls `tick` after each sample.

    At most two chunks a thread are under way. Where the caller stops early, by Ctrl-C too, every thread ends after the
    sample that it works on. `progress` is told how many samples are done, from one thread at a time.
    """
    ended = threading.Event()
    lock = threading.Lock()
    done = 0

    def tick() -> None:
        nonlocal done
        if ended.is_set():
            raise _Ended
        with lock:
            done += 1
            progress(done)

    chunks = (sample_ids[start : start + CHUNK] for start in range(0, len(sample_ids), CHUNK))
    executor = ThreadPoolExecutor(num_threads, thread_name_prefix="augpipe-stats")
    under_way: deque[Future[T]] = deque()
    try:
        for chunk in islice(chunks, 2 * num_threads):
            under_way.append(executor.submit(function, chunk, tick))
        while under_way:
            yield under_way.popleft().result()
            for chunk in islice(chunks, 1):
                under_way.append(executor.submit(function, chunk, tick))
    finally:
        ended.set()
        executor.shutdown(cancel_futures=True)
