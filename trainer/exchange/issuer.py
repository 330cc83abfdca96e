"""The one thread of a process that issues collectives, whatever process groups they are of."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import torch

from augpipe.trainer.exchange.errors import not_answered

JOIN_S = 5.0
"""How long `close` waits for a thread that may sit in a collective whose other ranks are gone."""


@contextmanager
def on_own_stream(device: torch.device) -> Iterator[Any]:
    """What a thread of ours lives in: no gradients and, on a CUDA device, a stream of its own, which it gets."""
    with torch.no_grad():
        if device.type != "cuda":
            yield None
            return
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            yield stream


class Pending:
    """A collective that was handed to an `Issuer`."""

    def __init__(self, issuer: "Issuer", what: str, issue: Callable[[], Any], timeout_s: float) -> None:
        self._issuer = issuer
        self._what = what
        self._issue = issue
        self._timeout_s = timeout_s
        self._issued = Event()
        self._work: Any = None
        self._error: Exception | None = None
        device = issuer.device
        self._ready = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None

    def run(self, stream: Any) -> None:
        """Issue it, on the issuing thread; an error belongs to whoever waits."""
        try:
            if stream is not None:
                stream.wait_event(self._ready)
            self._work = self._issue()
        except Exception as error:  # it belongs to the thread that waits
            self._error = error
        self._issued.set()

    def wait(self) -> None:
        """Wait until it is done; on a CUDA device, the current stream waits, too.

        Raises:
            SyncError: it was not issued in time, could not be, or did not end in time.
        """
        start = time.perf_counter()
        try:
            if not self._issued.wait(self._timeout_s):
                raise TimeoutError("what is to be issued before it did not end")
            if self._error is not None:
                raise self._error
            if self._work is not None:
                # under NCCL this also makes the current stream wait
                self._work.wait(timedelta(seconds=self._timeout_s))
        except Exception as error:
            raise not_answered(self._issuer.name, self._what, self._timeout_s, error) from error
        finally:
            self._issuer.waited(time.perf_counter() - start)


class Issuer:
    """Issues collectives of any process groups in the order in which they are put in, by one thread.

    NCCL demands that all ranks issue the collectives of one device in one order, also those of different groups. So
    whoever exchanges something on that device does so through one issuer, and all ranks put the same things in, in the
    same order. An entry may wait for its data to be ready, but for nothing that is put in later.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = name
        self.device = device
        self._exposed_s = 0.0
        self._closed = False
        self._entries: SimpleQueue[Callable[[Any], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._walk, name=f"augpipe {name}", daemon=True)
        self._thread.start()

    def put(self, entry: Callable[[Any], None]) -> None:
        """Have `entry` called by the thread, in its place, with the thread's CUDA stream or None; it must not raise."""
        if self._closed:
            raise RuntimeError(f"{self.name} is closed: build the strategy anew.")
        self._entries.put(entry)

    def submit(self, what: str, issue: Callable[[], Any], timeout_s: float) -> Pending:
        """Have a collective issued once all that was put in before is.

        Args:
            what: names it in messages, after "waited for the".
            issue: begins the collective and returns its work, as with async_op=True; or carries it out, and returns
                None. On a CUDA device what it reads and writes belongs to the caller's current stream: the collective
                waits for what that has queued, and memory is to be kept until `wait`.
            timeout_s: how long `wait` waits at most, first for the issuing and then for the collective.
        """
        pending = Pending(self, what, issue, timeout_s)
        self.put(pending.run)
        return pending

    def waited(self, seconds: float) -> None:
        """Count what a thread waited for a collective."""
        self._exposed_s += seconds

    def take_exposed_s(self) -> float:
        """Seconds that were waited for what was submitted, since this was last asked."""
        taken, self._exposed_s = self._exposed_s, 0.0
        return taken

    def _walk(self) -> None:
        with on_own_stream(self.device) as stream:
            while (entry := self._entries.get()) is not None:
                entry(stream)

    def close(self) -> None:
        """End the thread after what was put in; safe to call twice."""
        self._closed = True
        self._entries.put(None)
        self._thread.join(JOIN_S)
