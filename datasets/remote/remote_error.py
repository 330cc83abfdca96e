"""What ends a read from remote storage that was tried often enough."""

import errno
from typing import Any


class RemoteError(ConnectionError):
    """Remote storage did not answer, refused, or answered wrongly; `strerror` has the reason of every attempt.

    It says nothing of the image that was wanted, so nothing takes it for a bad one: a loader raises it with
    `on_error="skip"` too, and `augpipe prepare` ends, to be resumed.
    """

    def __init__(self, reason: str, url: str) -> None:
        super().__init__(errno.ETIMEDOUT, reason, url)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.strerror, self.filename)


class PassingError(Exception):
    """One attempt failed, and the next may not; the message is the reason.

    Args:
        reason: for the list of attempts.
        pause_s: how long the server asks to wait.
    """

    def __init__(self, reason: str, pause_s: float | None = None) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


class LastingError(Exception):
    """An attempt failed, and the next would too; the message is the reason and the remedy."""


def reason_of(problem: BaseException) -> str:
    """What an attempt's exception of a library is told by: its class and the first line of its text."""
    first = (str(problem).splitlines() or [""])[0]
    return f"{type(problem).__name__}: {first:.200}" if first else type(problem).__name__
