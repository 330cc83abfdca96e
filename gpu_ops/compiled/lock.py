"""One process compiles a kernel, and the others wait for it."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

POLL_S = 0.02


class Lock:
    """Held by one process at a time; it ends with the process, however that ends.

    Where the system has no `flock` (Windows) or its folder no locks, nothing is locked: two processes then compile the
    same kernel, and either result is good.

    Args:
        path: a file that is made for it, and left.
        say: called once, where it takes long until another process gives it back.
        patience_s: what counts as long.
    """

    def __init__(self, path: Path, say: Callable[[], None], patience_s: float) -> None:
        self._file: BinaryIO | None = None
        try:
            import fcntl

            self._file = path.open("wb")
        except (ImportError, OSError):
            return
        started: float | None = time.monotonic()
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(POLL_S)
            except OSError:
                return
            if started is not None and time.monotonic() > started + patience_s:
                say()
                started = None

    def release(self) -> None:
        """Let others go on."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
