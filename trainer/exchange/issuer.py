"""The one thread of a process that issues collectives, whatever process groups they are of."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch
from torch.distributed import ProcessGroup

from augpipe.trainer.exchange.deadlines import JOIN_S, Deadlines
from augpipe.trainer.exchange.exchange_errors import SyncError, not_answered
from augpipe.trainer.exchange.mark import Mark


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


def current_stream(device: torch.device) -> Any:
    """The thread's current stream on a CUDA device; None on a CPU."""
    return torch.cuda.current_stream(device) if device.type == "cuda" else None


class Pending:
    """A collective that was handed to an `Issuer`."""

    def __init__(
        self, issuer: "Issuer", what: str, issue: Callable[[], Any], group: ProcessGroup, timeout_s: float
    ) -> None:
        self._issuer = issuer
        self._what = what
        self._issue = issue
        self._group = group
        self._timeout_s = timeout_s
        self._ready, self._issued = Mark(), Mark()
        self._ready.set(current_stream(issuer.device))
        self._work: Any = None
        self._error: Exception | None = None

    def run(self, stream: Any) -> None:
        """Issue it, on the issuing thread; an error belongs to whoever waits."""
        try:
            self._ready.hold_back(stream)
            self._work = self._issue()
        except Exception as error:  # it belongs to the thread that waits
            self._error = error
        self._issued.set()

    def wait(self) -> None:
        """Wait until it is done; on a CUDA device until it is issued, and the current stream waits for the rest.

        Raises:
            SyncError: it was not issued in time, could not be, or did not end in time. On a CUDA device the last is
                raised by whoever comes next: `Issuer.check`.
        """
        start = time.perf_counter()
        try:
            if not self._issued.wait(self._timeout_s):
                raise TimeoutError("what is to be issued before it did not end")
            if self._error is not None:
                raise self._error
            if self._work is not None:
                self._issuer.finish(self._work, self._group, self._timeout_s, self._fail)
        except Exception as error:
            raise self._named(error) from error
        finally:
            self._issuer.waited(time.perf_counter() - start)
        self._issuer.check()

    def _named(self, error: Exception) -> SyncError:
        return not_answered(self._issuer.name, self._what, self._timeout_s, error)

    def _fail(self, error: Exception) -> None:
        self._issuer.failure = self._named(error)


class Issuer:
    """Issues collectives of any process groups in the order in which they are put in, by one thread.

    NCCL demands that all ranks issue the collectives of one device in one order, also those of different groups. So
    whoever exchanges something on that device does so through one issuer, and all ranks put the same things in, in the
    same order. An entry may wait for its data to be ready, but for nothing that is put in later.

    On a CUDA device the host waits for no collective: streams do (`finish`), and a thread keeps the deadlines.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = name
        self.device = device
        self.failure: SyncError | None = None
        """What was submitted and did not end in time on a CUDA device, when nobody was waiting on the host."""
        self._exposed_s = 0.0
        self._closed = False
        self._deadlines = Deadlines(name) if device.type == "cuda" else None
        self._entries: SimpleQueue[Callable[[Any], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._walk, name=f"augpipe {name}", daemon=True)
        self._thread.start()

    def put(self, entry: Callable[[Any], None]) -> None:
        """Have `entry` called by the thread, in its place, with the thread's CUDA stream or None; it must not raise."""
        if self._closed:
            raise RuntimeError(f"{self.name} is closed: build the strategy again.")
        self._entries.put(entry)

    def submit(self, what: str, issue: Callable[[], Any], group: ProcessGroup, timeout_s: float) -> Pending:
        """Have a collective of a group issued once all that was put in before is.

        Args:
            what: names it in messages, after "waited for the".
            issue: begins the collective and returns its work, as with async_op=True; or carries it out, and returns
                None. On a CUDA device what it reads and writes belongs to the caller's current stream: the collective
                waits for what that has queued, and memory is to be kept until `wait`.
            group: is ended where the collective is not done in time and only a stream waits for it.
            timeout_s: the longest that the issuing, and then the collective, may take.

        Raises:
            SyncError: something that was submitted earlier did not end in time.
        """
        self.check()
        pending = Pending(self, what, issue, group, timeout_s)
        self.put(pending.run)
        return pending

    def finish(self, work: Any, group: ProcessGroup, timeout_s: float, fail: Callable[[Exception], None]) -> None:
        """Wait for a collective of a group: on a CPU the host does, and this raises whatever the backend does.

        On a CUDA device the current stream waits, and the host goes on. If the collective fails, or is not done in
        time, `fail` is told, and then the group is ended. What the device goes on with after that is of no use, so
        whoever reads a result asks afterwards whether something has failed.
        """
        if self._deadlines is None:
            work.wait(timedelta(seconds=timeout_s))
            return

        def expire(error: Exception) -> None:
            try:
                fail(error)
            finally:
                with suppress(RuntimeError):  # a backend that cannot be ended has a timeout of its own
                    group.abort()

        self._deadlines.watch(work, timeout_s, expire)
        work.wait()  # with a timeout the host would wait

    def check(self) -> None:
        """Raise what did not end in time, if something did not."""
        if self.failure is not None:
            raise self.failure

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
        if self._deadlines is not None:
            self._deadlines.close()
