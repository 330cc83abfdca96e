"""Worker processes for the sample dataset: plain subprocesses, which work from scripts, notebooks and tests alike.

`multiprocessing` would import the caller's main module again in each worker, and fail in a script without a main
guard; threads gave 1.4 times the speed of one on two cores, where processes gave 1.9.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from threading import Thread
from typing import IO


def draw_in_processes(
    root: str, settings: Mapping[str, int], indices: Sequence[int], num_workers: int
) -> Generator[int, None, None]:
    """Have `num_workers` processes write the pictures, worker k each `num_workers`-th; gives indices as they are done.

    Raises:
        RuntimeError: a worker failed; the others are stopped.
    """
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        workers = []
        for first in range(num_workers):
            worker = _start({"root": root, "settings": dict(settings), "indices": indices[first::num_workers]}, errors)
            stack.callback(_stop, worker)
            workers.append(worker)
        yield from _finished(workers)
        for worker in workers:
            if worker.poll():
                errors.seek(0)
                message = errors.read().decode("utf-8", "replace").strip() or f"exit status {worker.returncode}"
                raise RuntimeError(f"a process that draws the sample dataset failed:\n{message}")


def _start(job: Mapping[str, object], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "augpipe.datasets.sample.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        # whatever lets this process import augpipe
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
    )
    assert worker.stdin is not None
    with suppress(BrokenPipeError), worker.stdin:  # if it died at once, its status and message are looked at later
        worker.stdin.write(json.dumps(job).encode())
    return worker


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()


def _finished(workers: Sequence[subprocess.Popen[bytes]]) -> Iterator[int]:
    """The indices that workers write, as they come, until all have closed their output or one has failed."""
    news: SimpleQueue[int | subprocess.Popen[bytes]] = SimpleQueue()
    for worker in workers:
        Thread(target=_follow, args=(worker, news), daemon=True).start()
    num_running = len(workers)
    while num_running:
        item = news.get()
        if isinstance(item, int):
            yield item
        elif item.wait() != 0:
            return
        else:
            num_running -= 1


def _follow(worker: subprocess.Popen[bytes], news: SimpleQueue[int | subprocess.Popen[bytes]]) -> None:
    assert worker.stdout is not None
    with worker.stdout:
        for line in worker.stdout:
            news.put(int(line))
    news.put(worker)
