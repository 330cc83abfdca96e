"""Worker processes for the sample dataset: plain subprocesses, which work from scripts, notebooks and tests alike.

`multiprocessing` would import the caller's main module again in each worker, and fail in a script without a main
guard; threads gave 1.4 times the speed of one on two cores, where processes gave 1.9.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO


def draw_in_processes(
    root: str, settings: Mapping[str, int], indices: Sequence[int], num_workers: int
) -> Generator[int, None, None]:
    """Have `num_workers` processes write the images, worker k each `num_workers`-th; gives indices as they are done.

    Raises:
        RuntimeError: a worker failed; the others are stopped.
    """
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        read_end, write_end = os.pipe()  # one for all: a line of a few bytes is written whole
        lines = stack.enter_context(open(read_end, "rb"))
        workers = []
        with open(write_end, "wb") as output:
            for first in range(num_workers):
                job = {"root": root, "settings": dict(settings), "indices": indices[first::num_workers]}
                workers.append(_start(job, output, errors))
                stack.callback(_stop, workers[-1])
        for line in lines:
            yield int(line)
            if any(worker.poll() for worker in workers):
                break
        else:
            for worker in workers:
                worker.wait()
        for worker in workers:
            if worker.poll():
                errors.seek(0)
                message = errors.read().decode("utf-8", "replace").strip() or f"exit status {worker.returncode}"
                raise RuntimeError(f"a process that draws the sample dataset failed:\n{message}")


def _start(job: Mapping[str, object], output: IO[bytes], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "augpipe.datasets.synthetic.generate"],
        stdin=subprocess.PIPE,
        stdout=output,
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
