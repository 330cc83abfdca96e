"""A point that is passed once and that Ctrl-C may come upon anywhere."""

import threading
from contextlib import suppress


class Latch:
    """What `threading.Event` is, for something that happens once.

    An event is written in Python: a KeyboardInterrupt within its `wait` raises a RuntimeError of its own, or leaves its
    lock held for good. A lock is taken and given back in C, where no signal is looked at.
    """

    def __init__(self) -> None:
        self._closed = threading.Lock()
        self._closed.acquire()

    def set(self) -> None:
        """Pass it; a second time nothing happens."""
        with suppress(RuntimeError):
            self._closed.release()

    def is_set(self) -> bool:
        """Whether it was passed."""
        return not self._closed.locked()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is passed; returns False where that took longer than `timeout_s`."""
        is_passed = self._closed.acquire(timeout=-1 if timeout_s is None else timeout_s)
        if is_passed:
            self._closed.release()
        return is_passed
