"""Signs of life between ranks, and the word of a rank's end: who died, and of what, reaches all others."""

import math
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch._C._distributed_c10d import Store

_MOST_INTERVAL_S = 1.0
_GRACE_S = 5.0
"""What the main thread gets to end by itself after the word of a death, before the process is ended under it."""
_OBITUARY = "augpipe/obituary"


class PeerError(RuntimeError):
    """Another rank's end has ended this one; the message names that rank and its reason."""


class Heartbeat:
    """A thread that says every second that this rank lives, and listens whether the next rank does.

    Ranks watch each other in a ring; the first that finds a death, or dies of an error, writes it to the store,
    where all others read it. A rank that hangs while its process lives is left to the exchange's timeout.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout_s: float) -> None:
        self._store = store
        self._rank, self._size = rank, size
        self._timeout_s = timeout_s
        self._interval_s = min(_MOST_INTERVAL_S, timeout_s / 4)
        self._stop = threading.Event()
        self._known = threading.Event()
        self._obituary = ""
        self._in_doubt = False
        self._looked_at = math.inf
        self._thread = threading.Thread(target=self._run, name="augpipe-heartbeat", daemon=True)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin; alone there is nobody to tell."""
        if self._size > 1:
            self._thread.start()

    def stop(self) -> None:
        """Say that this rank ends as it should, and stop."""
        if self._size == 1 or self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(timeout=self._timeout_s)
        try:
            with self._lock:
                self._store.set(_alive(self._rank), "done")
        except dist.DistError:
            pass  # the store's host has ended first, as it should

    def report(self, why: str) -> None:
        """Tell the others why this rank ends, unless somebody's death is known already."""
        if self._size == 1:
            return
        try:
            with self._lock:
                self._store.compare_set(_OBITUARY, "", f"{self._rank}\n{why}")
        except (dist.DistError, RuntimeError):
            pass  # the store has gone with its host: nobody can be told

    def await_obituary(self) -> str | None:
        """After an exchange failed: who has died, other than this rank; None where nobody turns out to be dead."""
        if self._size == 1:
            return None
        self._in_doubt = True
        self._known.wait(timeout=3 * self._interval_s + self._interval_s * 2 + 1.0)
        return self._obituary or None

    def _run(self) -> None:
        last: dict[int, tuple[str, float]] = {}
        beat = 0
        while not self._stop.wait(self._interval_s):
            beat += 1
            try:
                with self._lock:
                    self._store.set(_alive(self._rank), str(beat))
                    self._look(last)
            except (dist.DistError, RuntimeError) as error:
                self._obituary = f"the store that the ranks meet at is gone, and with it rank 0 or torchrun ({error})"
            if self._obituary:
                self._known.set()
                if not self._stop.wait(_GRACE_S if not self._in_doubt else 2 * _GRACE_S):
                    print(f"augpipe: rank {self._rank} ends: {self._obituary}", file=sys.stderr, flush=True)
                    os._exit(1)  # the main thread sits in an exchange that nobody will answer
                return

    def _look(self, last: dict[int, tuple[str, float]]) -> None:
        watched = range(self._size) if self._in_doubt else [(self._rank + 1) % self._size]
        limit_s = 3 * self._interval_s if self._in_doubt else self._timeout_s
        now = time.monotonic()
        # while this process itself stood still (stopped and continued, starved), it could not have heard the others
        deaf_s = max(0.0, now - self._looked_at - 2 * self._interval_s)
        self._looked_at = now
        for peer, (sign, since) in last.items():
            last[peer] = (sign, since + deaf_s)
        for peer in watched:
            if peer == self._rank:
                continue
            key = _alive(peer)
            sign = self._store.get(key).decode() if self._store.check([key]) else ""
            if peer not in last or last[peer][0] != sign:
                last[peer] = (sign, now)
            elif sign != "done" and now - last[peer][1] > limit_s:
                silence_s = now - last[peer][1]
                self._store.compare_set(
                    _OBITUARY,
                    "",
                    f"{peer}\nit has given no sign of life for {silence_s:.0f} s: killed, or its machine is gone",
                )
        if self._store.check([_OBITUARY]):
            peer_text, _, why = self._store.get(_OBITUARY).decode().partition("\n")
            if int(peer_text) != self._rank:
                self._obituary = f"rank {peer_text} has died: {why}"


@contextmanager
def watched_by_peers(store: Store, rank: int, size: int, timeout_s: float) -> Iterator[None]:
    """Give signs of life while the body runs, and pass on why it ended if it did not end as it should.

    Raises:
        PeerError: the body failed in an exchange because another rank has died; names it and its reason.
    """
    heartbeat = Heartbeat(store, rank, size, timeout_s)
    heartbeat.start()
    try:
        yield
    except Exception as error:
        cause = heartbeat.await_obituary() if is_exchange_failure(error) else None
        if cause is not None:
            raise PeerError(f"{describe_process(rank)} ends: {cause}") from error
        heartbeat.report(f"{describe_process(rank)} failed\n{traceback.format_exc()}")
        raise
    except BaseException as error:
        heartbeat.report(f"{describe_process(rank)} was ended by {type(error).__name__}")
        raise
    finally:
        heartbeat.stop()


def describe_process(rank: int) -> str:
    """How messages name a rank."""
    return f"rank {rank} (process {os.getpid()} on {socket.gethostname()})"


def is_exchange_failure(error: BaseException) -> bool:
    """Whether an exception came from an exchange with other ranks, so that the cause may be theirs."""
    signs = ("gloo", "nccl", "connection closed by peer", "connection reset", "timed out waiting", "broken pipe")
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, dist.DistError):
            return True
        if isinstance(seen, RuntimeError) and any(sign in str(seen).lower() for sign in signs):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _alive(rank: int) -> str:
    return f"augpipe/alive/{rank}"
