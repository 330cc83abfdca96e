"""The engine for one machine: worker processes, plain ones, which work from scripts, notebooks and tests alike."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO, Any, NoReturn

from augpipe.datasets.prepare.chunk import ChunkTask
from augpipe.datasets.prepare.engine_protocol import Attempts, Watcher
from augpipe.sources.protocol import Source

_SHOWN_BYTES = 2_000


class LocalEngine:
    """Up to `num_workers` processes; a worker that dies is replaced, and its chunk begun again.

    Args:
        num_workers: processes; each holds a copy of the source object and one image.
    """

    def __init__(self, num_workers: int) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers={num_workers}, and there must be one at least.")
        self._num_workers = num_workers

    def run(self, source: Source, tasks: Iterable[ChunkTask], watcher: Watcher) -> None:
        """See `Engine.run`.

        Raises:
            ValueError: the source cannot be handed to another process.
        """
        with ExitStack() as stack:
            pickled = stack.enter_context(tempfile.TemporaryFile())
            _pickle(source, pickled)
            pool = stack.enter_context(_Pool(pickled))
            todo = iter(tasks)
            attempts = Attempts(watcher)
            while True:
                while pool.num_busy < self._num_workers and (task := next(todo, None)) is not None:
                    pool.begin(task)
                if not pool.num_busy:
                    return
                for worker in pool.ready():
                    if (how := worker.hear(watcher)) is None:
                        continue
                    task, num_done = worker.task, worker.num_done
                    pool.remove(worker)
                    assert task is not None
                    watcher.progress(-num_done)
                    attempts.died(task, how, num_done)
                    pool.begin(task)


class _Worker:
    """One process and the socket to it."""

    def __init__(self, pickled: IO[bytes]) -> None:
        self.task: ChunkTask | None = None
        self.num_done = 0
        self.connection, theirs = Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  end() closes it
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "augpipe.datasets.prepare.local_worker"),
                    *(str(theirs.fileno()), str(pickled.fileno())),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(theirs.fileno(), pickled.fileno()),
                # whatever lets this process import augpipe
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            )
        finally:
            theirs.close()  # so that the socket ends when the worker does

    def begin(self, task: ChunkTask) -> None:
        self.task, self.num_done = task, 0
        with suppress(ConnectionError):  # it is dead: `hear` will find out how
            self.connection.send(task)

    def hear(self, watcher: Watcher) -> str | None:
        """Take one message; returns how the worker died, if it did.

        Raises:
            SampleError, OSError, ...: what ended its chunk.
        """
        try:
            what, content = self.connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return self._cause()
        if what == "progress":
            self.num_done += content
            watcher.progress(content)
        elif what == "done":
            self.task = None
        else:
            _raise(*content)
        return None

    def end(self) -> None:
        """Kill it, if it is alive: it works on nothing, or on what is wanted no longer."""
        self.connection.close()
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def _cause(self) -> str:
        code = self._process.wait()
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            return f"by signal {name}"
        self._errors.seek(0)
        said = self._errors.read()[-_SHOWN_BYTES:].decode("utf-8", "replace").strip()
        return f"with exit status {code}" + (f", saying {said.splitlines()[-1]!r}" if said else "")


class _Pool:
    """The processes; at the end of `with`, none is left."""

    def __init__(self, pickled: IO[bytes]) -> None:
        self._pickled = pickled
        self._workers: dict[Connection[Any, Any], _Worker] = {}

    @property
    def num_busy(self) -> int:
        return sum(worker.task is not None for worker in self._workers.values())

    def begin(self, task: ChunkTask) -> None:
        """Give a task to an idle worker, or to a new one."""
        worker = next((worker for worker in self._workers.values() if worker.task is None), None)
        if worker is None:
            worker = _Worker(self._pickled)
            self._workers[worker.connection] = worker
        worker.begin(task)

    def ready(self) -> list[_Worker]:
        """Wait until busy workers have said something, or died."""
        busy = [connection for connection, worker in self._workers.items() if worker.task is not None]
        return [self._workers[connection] for connection in wait(busy)]  # type: ignore[index]

    def remove(self, worker: _Worker) -> None:
        del self._workers[worker.connection]
        worker.end()

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.end()


def _pickle(source: Source, file: IO[bytes]) -> None:
    try:
        pickle.dump(source, file, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the source {type(source).__name__} cannot be handed to worker processes: {error}. Make it picklable, "
            "with its class in a module."
        ) from error
    file.flush()


def _raise(error: Exception | None, trace: str) -> NoReturn:
    if error is None:
        raise RuntimeError(f"a worker failed:\n{trace}")
    error.add_note(trace)
    raise error
