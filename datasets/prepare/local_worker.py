"""What one local worker process runs: tasks come through a socket, and what becomes of them goes back."""

import os
import pickle
import signal
import sys
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from augpipe.datasets.prepare.chunk import ChunkTask
from augpipe.datasets.prepare.journal import complete_chunk
from augpipe.sources.protocol import Source

_TOLD_EVERY_S = 0.1


class _DesertedError(Exception):
    """Nobody listens: the parent has ended, or died."""


class Ticker:
    """Tells how many images are done, a few times a second."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._num = 0
        self._told = time.monotonic()

    def __call__(self) -> None:
        self._num += 1
        if time.monotonic() - self._told > _TOLD_EVERY_S:
            self.tell()

    def tell(self) -> None:
        """Send what was not sent."""
        _send(self._connection, "progress", self._num)
        self._num, self._told = 0, time.monotonic()


def main() -> None:
    """Do tasks until the other end closes; arguments: descriptors of the socket and of the pickled source."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent ends its workers
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    try:
        source = _source(int(sys.argv[2]))
        while True:
            task = _receive(connection)
            ticker = Ticker(connection)
            complete_chunk(source, task, ticker)
            ticker.tell()
            _send(connection, "done", None)
    except _DesertedError:
        return
    except Exception as error:
        with suppress(_DesertedError):
            _send(connection, "failed", (_portable(error), traceback.format_exc()))


def _receive(connection: "Connection[Any, Any]") -> ChunkTask:
    try:
        task: ChunkTask = connection.recv()
    except (EOFError, OSError) as error:
        raise _DesertedError from error
    return task


def _send(connection: "Connection[Any, Any]", what: str, content: object) -> None:
    try:
        connection.send((what, content))
    except OSError as error:
        raise _DesertedError from error


def _source(descriptor: int) -> Source:
    size = os.fstat(descriptor).st_size
    with os.fdopen(os.dup(descriptor), "rb") as file:  # one offset is shared by all workers: read by position
        data = b"".join(os.pread(file.fileno(), min(1 << 30, size - at), at) for at in range(0, size, 1 << 30))
    source: Source = pickle.loads(data)
    return source


def _portable(error: Exception) -> Exception | None:
    """The error itself where it survives pickle, else None."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    if isinstance(error, OSError):
        copy.filename = error.filename
    return copy if type(copy) is type(error) else None


if __name__ == "__main__":
    main()
