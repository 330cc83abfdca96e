"""A point on a collective's way that others wait for, on the host and on a GPU's streams."""

from threading import Event
from typing import Any


class Mark:
    """Passed once: then the host has queued all that leads up to here, and on a GPU an event says when that is over.

    A mark belongs to one stage of one task and is never used again, so whoever holds it waits for that stage alone.
    """

    def __init__(self) -> None:
        self._is_queued = Event()
        self._event: Any = None

    def set(self, stream: Any = None) -> None:
        """Pass it, after all that a CUDA stream has been given; None on a CPU, or where nothing leads up to it."""
        if stream is not None:
            self._event = stream.record_event()
        self._is_queued.set()  # only now: whoever waits for it looks for the event

    def is_set(self) -> bool:
        """Whether it has been passed on the host."""
        return self._is_queued.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait on the host until it is passed; returns False where that took longer than `timeout_s`."""
        return self._is_queued.wait(timeout_s)

    def hold_back(self, stream: Any) -> None:
        """Let a CUDA stream's further work, if there is one, wait for what leads up to here; the host does not wait."""
        if stream is not None and self._event is not None:
            stream.wait_event(self._event)
