"""Attempts, pauses and a time limit for what may fail and pass."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from augpipe.datasets.remote.remote_error import LastingError, PassingError, RemoteError
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import shown

Answer = TypeVar("Answer")
_chance = random.SystemRandom()
"""Not the global generator, whose numbers belong to the user's program."""


def with_retries(
    attempt: Callable[[float], Answer],
    url: str,
    settings: RemoteSettings,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """What `attempt` returns, as soon as it does.

    Args:
        attempt: called with the seconds that are left.
        url: what is read, for the message.
        settings: how often, for how long, and with which pauses.
        sleep: waits so many seconds.
        clock: in seconds.

    Raises:
        RemoteError: no attempt was successful; says why each failed.
        ValueError, OSError: what `attempt` raises as well as `PassingError` and `LastingError`.
    """
    begun = clock()
    reasons: list[str] = []
    while True:
        try:
            return attempt(max(settings.total_timeout_s - (clock() - begun), 0.001))
        except LastingError as problem:
            reasons.append(str(problem))
            pause = None
        except PassingError as problem:
            reasons.append(str(problem))
            pause = _pause(len(reasons), problem.pause_s, settings)
        left = settings.total_timeout_s - (clock() - begun)
        if pause is None or len(reasons) >= settings.max_attempts or pause >= left:
            raise RemoteError(_summary(reasons, clock() - begun, settings, pause), shown(url))
        sleep(pause)


def _pause(num_failed: int, asked_s: float | None, settings: RemoteSettings) -> float:
    longest = min(settings.first_pause_s * 2.0 ** min(num_failed - 1, 60), settings.max_pause_s)
    return max(longest * _chance.uniform(0.5, 1.0), asked_s or 0.0)


def _summary(reasons: list[str], spent_s: float, settings: RemoteSettings, pause: float | None) -> str:
    if len(reasons) == 1 and pause is None:
        return reasons[0]
    runs: list[tuple[str, int, int]] = []  # reason, first and last attempt: the same one ten times is said once
    for number, reason in enumerate(reasons, start=1):
        if runs and runs[-1][0] == reason:
            runs[-1] = (reason, runs[-1][1], number)
        else:
            runs.append((reason, number, number))
    told = "; ".join(f"{a if a == b else f'{a} to {b}'}: {reason}" for reason, a, b in runs)
    tries = "1 attempt" if len(reasons) == 1 else f"{len(reasons)} attempts"
    if pause is not None and len(reasons) < settings.max_attempts:
        tries += f" (the next would have come after the limit of {settings.total_timeout_s:g} s)"
    return f"no usable answer after {tries} in {spent_s:.1f} s ({told})"
