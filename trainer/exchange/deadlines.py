"""Deadlines of collectives that only a GPU waits for."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any

logger = logging.getLogger("augpipe.trainer")

JOIN_S = 5.0
"""How long closing waits for a thread that may sit in a collective whose other ranks are gone."""


def error_of(work: Any) -> Exception | None:
    """The error by which a collective has ended that torch calls completed; None where it went well.

    Some releases of torch (2.11 does) raise TypeError instead, with every backend. NCCL then reports a number: 0 for a
    success. Of other backends nothing more is known, and their watchdogs are what is left.
    """
    try:
        found: Exception | None = work.exception()
    except TypeError:
        try:
            result = work.get_future_result()
        except (AttributeError, RuntimeError):  # an older torch, or a backend that has none
            return None
        code = result.value() if result.done() else 0
        return RuntimeError(f"NCCL ended it, with {code}") if code else None
    return found


@dataclass(frozen=True, eq=False)
class _Watched:
    work: Any
    ends_at: float
    expire: Callable[[Exception], None]

    def error(self) -> Exception | None:
        """Why it must be given up, as things are now; None where it went well."""
        if not self.work.is_completed():
            return TimeoutError("it did not end")
        return error_of(self.work)


class Deadlines:
    """One thread that looks, when a collective's time is over, whether it went well, and says so where it did not.

    An error of the earliest one is found as soon as another one is watched. The host need not wait for any of them:
    while all go well the thread sleeps.
    """

    def __init__(self, name: str) -> None:
        self._watched: deque[_Watched] = deque()
        self._changed = Condition()
        self._is_closed = False
        self._thread = Thread(target=self._walk, name=f"augpipe {name} deadlines", daemon=True)
        self._thread.start()

    def watch(self, work: Any, timeout_s: float, expire: Callable[[Exception], None]) -> None:
        """Have `expire` called, by the thread, if `work` (torch's, of an asynchronous collective) fails, or is not done
        in time.

        Those of one group end in the order in which they are given here.
        """
        with self._changed:
            while self._watched and self._watched[0].error() is None:
                self._watched.popleft()
            self._watched.append(_Watched(work, time.monotonic() + timeout_s, expire))
            self._changed.notify()

    def _walk(self) -> None:
        while (failed := self._next_failed()) is not None:
            watched, error = failed
            try:
                watched.expire(error)
            except Exception:  # others' deadlines are kept all the same
                logger.exception("the end of an exchange could not be told")

    def _next_failed(self) -> tuple[_Watched, Exception] | None:
        """The next one that has failed or is not done in time, and why; None when closed."""
        with self._changed:
            first: _Watched | None
            left_s: float | None
            while not self._is_closed:
                first = min(self._watched, key=lambda watched: watched.ends_at, default=None)
                left_s = None if first is None else first.ends_at - time.monotonic()
                if self._watched and self._watched[0].work.is_completed():
                    first, left_s = self._watched[0], 0.0
                if first is None or left_s is None or left_s > 0:
                    self._changed.wait(left_s)
                    continue
                self._watched.remove(first)
                if (error := first.error()) is not None:
                    return first, error
        return None

    def close(self) -> None:
        """End the thread; what is watched is forgotten."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(JOIN_S)
