"""SIGTERM and Ctrl-C as a wish that the loop fulfils at the end of a step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether, and by which signal, this process was asked to end."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def is_made(self) -> bool:
        """Whether there was one."""
        return self.signal is not None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # Ctrl-C again: now
        self.signal = number


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Note SIGTERM and SIGINT instead of dying of them; outside the main thread, where none arrive, note nothing."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request._receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
