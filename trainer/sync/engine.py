"""The threads that move buckets: pack, send, await and unpack, each bucket behind the one before it."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from queue import SimpleQueue
from threading import Event, Lock, Thread

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from augpipe.trainer.sync.errors import SyncError
from augpipe.trainer.sync.unit import Unit

JOIN_S = 5.0
"""How long `close` waits for a thread that may sit in a collective whose other ranks are gone."""


class Engine:
    """Takes buckets through both phases of an exchange, several at a time.

    Four threads, in this order: pack and send for the reduction; await it and reduce; pack and send for the gather;
    await it and unpack. Each takes the buckets one after another, in the same order on all ranks, so while one bucket
    is on the link the next is being encoded and the one before decoded. The phases have a process group each: a gather
    cannot get in the way of a reduction. Codecs, copies and collectives leave the GIL free.
    """

    def __init__(
        self,
        name: str,
        reduce_group: ProcessGroup,
        gather_group: ProcessGroup,
        *,
        device: torch.device,
        timeout_s: float,
        chained: bool,
        before_gather: Callable[[Unit], None] | None = None,
        after_gather: Callable[[Unit], None] | None = None,
        on_failure: Callable[[SyncError], None] | None = None,
    ) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._device = device
        self._failure: SyncError | None = None
        self._closed = False
        self._chained = chained
        self._on_failure = on_failure
        self._units: set[Unit] = set()
        self._lock = Lock()
        self._exposed_s = 0.0
        self._events: dict[Unit, torch.cuda.Event] = {}
        self._works: dict[Unit, dist.Work] = {}
        self._queues: list[SimpleQueue[Unit | None]] = [SimpleQueue() for _ in range(4)]

        def send_reduce(unit: Unit) -> None:
            unit.pack_reduce()
            self._works[unit] = _send(unit.mine, unit.theirs, unit.mine_split, unit.theirs_split, reduce_group)

        def await_reduce(unit: Unit) -> None:
            self._works.pop(unit).wait()
            unit.reduce()

        def send_gather(unit: Unit) -> None:
            if before_gather is not None:
                before_gather(unit)
            unit.pack_gather()
            self._works[unit] = _send(unit.theirs, unit.mine, unit.theirs_split, unit.mine_split, gather_group)

        def await_gather(unit: Unit) -> None:
            self._works.pop(unit).wait()
            unit.unpack_gather()
            if after_gather is not None:
                after_gather(unit)

        stations: list[tuple[Callable[[Unit], None], str, Callable[[Unit], Event] | None, int | None]] = [
            (send_reduce, "gradients of {} to be sent to their owners", None, 1),
            (await_reduce, "gradients of {} from the other ranks", lambda unit: unit.reduced, 2 if chained else None),
            (send_gather, "slices of {} to be sent back by their owners", None, 3),
            (await_gather, "slices of {} from their owners", lambda unit: unit.done, None),
        ]
        self._threads = [
            Thread(
                target=self._work,
                args=(self._queues[i], work, what, ends, None if after is None else self._queues[after]),
                name=f"augpipe {name} {i}",
                daemon=True,
            )
            for i, (work, what, ends, after) in enumerate(stations)
        ]
        for thread in self._threads:
            thread.start()

    def reduce(self, unit: Unit) -> None:
        """Start a bucket's reduction, if chained with its gather; `unit.reduced` comes first, `unit.done` after a
        gather.

        Until then the bucket's values are not to be touched.
        """
        unit.reduced.clear()
        if self._chained:
            unit.done.clear()
        self._enter(unit, 0)

    def gather(self, unit: Unit) -> None:
        """Start sending back the slice that this rank owns, where that does not follow by itself; ends with
        `unit.done`."""
        unit.done.clear()
        self._enter(unit, 2)

    def _enter(self, unit: Unit, station: int) -> None:
        if self._closed:
            raise RuntimeError(f"{self._name} is closed: build the strategy anew.")
        with self._lock:
            self._units.add(unit)
        if self._device.type == "cuda":
            self._events[unit] = torch.cuda.current_stream(self._device).record_event()
        if self._failure is not None:
            raise self._failure
        self._queues[station].put(unit)

    def wait(self, event: Event, unit: Unit) -> None:
        """Until `event`, one of the unit's; raises `SyncError` if the exchange failed anywhere."""
        if not event.is_set():
            start = time.perf_counter()
            event.wait()
            self._exposed_s += time.perf_counter() - start
        if self._failure is not None:
            raise self._failure
        if self._device.type == "cuda" and unit in self._events:
            torch.cuda.current_stream(self._device).wait_event(self._events[unit])

    def check(self) -> None:
        """Raise what made the exchange fail, if it did."""
        if self._failure is not None:
            raise self._failure

    def add_exposed(self, seconds: float) -> None:
        """Count a wait that took place elsewhere."""
        self._exposed_s += seconds

    def take_exposed_s(self) -> float:
        """Seconds spent in `wait` since this was last asked."""
        taken, self._exposed_s = self._exposed_s, 0.0
        return taken

    def _work(
        self,
        units: "SimpleQueue[Unit | None]",
        work: Callable[[Unit], None],
        what: str,
        ends: Callable[[Unit], Event] | None,
        after: "SimpleQueue[Unit | None] | None",
    ) -> None:
        """A thread's life: one unit after another, until None comes or something fails."""
        cuda = self._device.type == "cuda"
        stream = torch.cuda.Stream(self._device) if cuda else None  # type: ignore[no-untyped-call]
        with torch.no_grad(), nullcontext() if stream is None else torch.cuda.stream(stream):
            while (unit := units.get()) is not None:
                try:
                    if stream is not None:
                        stream.wait_event(self._events[unit])
                    work(unit)
                    if stream is not None:
                        self._events[unit] = stream.record_event()
                except Exception as error:  # it belongs to the thread that waits
                    self._fail(what.format(unit.label), error)
                    return
                if ends is not None:  # only now: whoever waits for it looks for the event recorded above
                    ends(unit).set()
                if after is not None:
                    after.put(unit)

    def _fail(self, what: str, error: Exception) -> None:
        with self._lock:
            is_first = self._failure is None
            if self._failure is None:
                self._failure = SyncError(
                    f"{self._name}: waited for the {what}, at most {self._timeout_s:g} s a bucket, and got: {error}. "
                    "A rank has died, hangs, or does something else; its own log says what."
                )
                self._failure.__cause__ = error
            units = list(self._units)
            failure = self._failure
        for unit in units:
            unit.reduced.set()
            unit.done.set()
        if self._on_failure is not None and is_first:  # other stations fail of the same cause
            self._on_failure(failure)

    def close(self) -> None:
        """End the threads; safe to call twice."""
        self._closed = True
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join(JOIN_S)


def _send(
    output: torch.Tensor, data: torch.Tensor, output_split: list[int], data_split: list[int], group: ProcessGroup
) -> dist.Work:
    work: dist.Work = dist.all_to_all_single(output, data, output_split, data_split, group=group, async_op=True)
    return work
