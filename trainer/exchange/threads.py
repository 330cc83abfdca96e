"""The threads that carry an exchange out: one issues its collectives, four encode and decode around it."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from augpipe.trainer.exchange.bucket import BucketExchange, take_controls
from augpipe.trainer.exchange.deadlines import JOIN_S
from augpipe.trainer.exchange.exchange_errors import SyncError, not_answered
from augpipe.trainer.exchange.host_copy import HostCopy
from augpipe.trainer.exchange.issuer import Issuer, current_stream, on_own_stream
from augpipe.trainer.exchange.mark import Mark
from augpipe.trainer.exchange.schedule import Phase

logger = logging.getLogger("augpipe.trainer")


class BucketHandler(Protocol):
    """What a strategy adds to a bucket's way; called by the threads that move it."""

    def before_reduce(self, bucket: BucketExchange) -> None:
        """Put this rank's gradients into the values, if they are not there yet."""

    def before_gather(self, bucket: BucketExchange) -> None:
        """Put what is to be sent back in the place of the means in the own slice, if it is something else."""

    def after_gather(self, bucket: BucketExchange) -> None:
        """Take what all slices of the bucket hold now."""

    def on_failure(self, error: SyncError) -> None:
        """Tell who waits elsewhere that no exchange ends any more; called once."""


@dataclass(eq=False)
class _Task:
    """A collective that has begun, and how far it has come: a mark of its own for each stage."""

    what: str
    """What is waited for, in a message."""
    bucket: Any
    """Its `BucketExchange`; None where it is of no bucket."""
    issue: Callable[[], Any]
    starts_after: tuple[Mark, ...]
    """What packing must come after: all that the thread that began it had queued and, of a gather, the reduction of its
    bucket."""
    packed: Mark = field(default_factory=Mark)
    issued: Mark = field(default_factory=Mark)
    ended: Mark = field(default_factory=Mark)
    result: Any = None
    """What `issue` returned: what to wait for, or what was asked for."""


class _Stage(NamedTuple):
    """What one thread does with each task."""

    before: Callable[[_Task], tuple[Mark, ...]]
    """What must have been queued, and what on a GPU the stage's stream waits for."""
    act: Callable[[_Task], None]
    after: Callable[[_Task], Mark]
    """What has been queued then."""
    aim: str
    """What for, in a message."""


class ExchangeThreads:
    """Carries out collectives in the order in which they begin, which is that of the schedule, the same on all ranks.

    Each of five threads walks the same list: one packs for reductions; one issues every collective in the list's order
    and waits for nothing but packing; one awaits reductions and adds up; one packs for gathers, each when its bucket is
    reduced; one awaits gathers and unpacks. While one bucket is on the link the next is being encoded and the one
    before decoded: codecs, copies and collectives leave the GIL free.

    The thread that issues is an `Issuer`'s: given one, several exchanges of a process and whatever else goes through it
    have one order. What fails is this exchange alone; the issuer goes on with the others'.

    On a CPU a thread waits for a collective, for at most `timeout_s`. On a GPU nothing here does: each thread queues
    its stage on a stream of its own, which waits for the marks of the stage before, and the issuer keeps the deadlines.
    Either way what does not end in time becomes a `SyncError` that names what was waited for, for whoever waits and
    whoever comes later. What a GPU has done after that is of no use, so results are read before `check`.
    """

    def __init__(
        self,
        name: str,
        group: ProcessGroup,
        handler: BucketHandler,
        *,
        device: torch.device,
        timeout_s: float,
        issuer: Issuer | None = None,
    ) -> None:
        self._name = name
        self._group = group
        self._handler = handler
        self._timeout_s = timeout_s
        self._device = device
        self._failure: SyncError | None = None
        self._closed = False
        self._lock = Lock()
        self._tasks: set[_Task] = set()
        self._exposed_s = 0.0
        self._to_pack: dict[Phase, SimpleQueue[_Task | None]] = {"reduce": SimpleQueue(), "gather": SimpleQueue()}
        self._to_await: dict[Phase, SimpleQueue[_Task | None]] = {"reduce": SimpleQueue(), "gather": SimpleQueue()}
        self._issuing = _Stage(lambda task: (task.packed,), self._issue, lambda task: task.issued, "")
        to_pack = {"before": lambda task: task.starts_after, "after": lambda task: task.packed}
        to_end = {"before": lambda task: (task.issued,), "after": lambda task: task.ended}
        stages = [
            (self._to_pack["reduce"], _Stage(act=self._pack_reduce, aim=" to be sent to their owners", **to_pack)),
            (self._to_await["reduce"], _Stage(act=self._await_reduce, aim=" from the other ranks", **to_end)),
            (self._to_pack["gather"], _Stage(act=self._pack_gather, aim=" to be sent back by their owners", **to_pack)),
            (self._to_await["gather"], _Stage(act=self._await_gather, aim=" from their owners", **to_end)),
        ]
        self._owns_issuer = issuer is None
        self._issuer = issuer or Issuer(f"{name} issuing", device)
        self._threads = [
            Thread(target=self._walk, args=stage, name=f"augpipe {name} {number}", daemon=True)
            for number, stage in enumerate(stages)
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, phase: Phase, bucket: BucketExchange) -> None:
        """Begin a bucket's reduction, which ends with `bucket.reduced`, or its gather, which ends with `bucket.done`.

        The bucket's values are not to be touched meanwhile, nor between a reduction and its gather where that sends
        the means back.
        """
        begun = self._begun()
        if phase == "reduce":
            what, output, data = f"gradients of {bucket.label}", "mine", "theirs"
            starts_after: tuple[Mark, ...] = (begun,)
        else:
            what, output, data = f"slices of {bucket.label}", "theirs", "mine"
            starts_after = (begun, bucket.reduced)

        def all_to_all() -> Any:
            return dist.all_to_all_single(
                getattr(bucket, output),
                getattr(bucket, data),
                getattr(bucket, f"{output}_split"),
                getattr(bucket, f"{data}_split"),
                group=self._group,
                async_op=True,
            )

        task = _Task(what, bucket, all_to_all, starts_after)
        self._enter(task)
        if phase == "reduce":
            bucket.reduced = task.ended
        else:
            bucket.done = task.ended
        self._to_pack[phase].put(task)
        self._issuer.put(partial(self._advance, self._issuing, task))
        self._to_await[phase].put(task)

    def call(self, what: str, collective: Callable[[ProcessGroup], Any]) -> Any:
        """What a collective returns that the issuing thread runs, and waits for, in its place in the list.

        `what` names it in messages. Nothing that has begun may need something that begins later. On a GPU the current
        stream waits for what the collective does, and memory that it uses is to be kept until then.
        """
        return self._end_call(self._begin_call(what, collective))

    def _begin_call(self, what: str, collective: Callable[[ProcessGroup], Any]) -> _Task:
        task = _Task(what, None, lambda: collective(self._group), (), packed=self._begun())
        self._enter(task)
        self._issuer.put(partial(self._advance, self._issuing, task))
        return task

    def _end_call(self, task: _Task) -> Any:
        self._wait_for(task.issued)
        self._forget(task)
        return task.result

    def _begun(self) -> Mark:
        """What the thread that calls has queued so far."""
        begun = Mark()
        begun.set(current_stream(self._device))
        return begun

    def _enter(self, task: _Task) -> None:
        if self._closed:
            raise RuntimeError(f"{self._name} is closed: build the strategy again.")
        with self._lock:
            self._tasks.add(task)
        self.check()

    def _forget(self, task: _Task) -> None:
        with self._lock:
            self._tasks.discard(task)

    def wait_reduced(self, bucket: BucketExchange) -> None:
        """Until the own slice holds the mean; on a GPU the current stream waits."""
        self._wait_for(bucket.reduced)

    def wait_gathered(self, bucket: BucketExchange) -> None:
        """Until all slices are here, or none is on its way; on a GPU the current stream waits."""
        self._wait_for(bucket.done)

    def _wait_for(self, mark: Mark) -> None:
        self._wait(mark)
        mark.hold_back(current_stream(self._device))

    def _wait(self, mark: Mark) -> None:
        if not mark.is_set() and self._failure is None:
            start = time.perf_counter()
            mark.wait()
            self._exposed_s += time.perf_counter() - start
        self.check()

    def check(self) -> None:
        """Raise what made the exchange fail, or something else that goes through its issuer, if anything did."""
        if self._failure is not None:
            raise self._failure
        self._issuer.check()

    def settle(self) -> None:
        """Wait until a GPU has done all that the current stream waits for, and raise what has failed."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        self.check()

    def read(self, numbers: Tensor) -> Tensor:
        """A copy on the CPU: where the host waits for a GPU, which counts as any wait does.

        Raises what has failed meanwhile: the copy is then of no use.
        """
        start = time.perf_counter()
        copied = numbers.cpu()
        self._exposed_s += time.perf_counter() - start
        self.check()
        return copied

    def read_controls(self, buckets: Sequence[BucketExchange], copied: HostCopy) -> None:
        """What the exchanges found, by a copy of `controls_of` them; raises what has failed meanwhile."""
        controls = copied.read()
        self.check()
        take_controls(buckets, controls)

    def take_exposed_s(self) -> float:
        """Seconds that were waited since this was last asked."""
        taken, self._exposed_s = self._exposed_s, 0.0
        return taken

    def finish(self, what: str, work: dist.Work) -> None:
        """Wait for a collective as `Issuer.finish` does; it may raise whatever the backend does."""
        self._issuer.finish(work, self._group, self._timeout_s, partial(self._fail, what))

    def _walk(self, tasks: "SimpleQueue[_Task | None]", stage: _Stage) -> None:
        """A thread's life: one task after another, until None comes or something fails."""
        with on_own_stream(self._device) as stream:
            while self._failure is None and (task := tasks.get()) is not None:
                self._advance(stage, task, stream)

    def _advance(self, stage: _Stage, task: _Task, stream: Any) -> None:
        """Take a task through one stage, unless something has failed."""
        for mark in stage.before(task):
            mark.wait()
        if self._failure is not None:
            return
        try:
            for mark in stage.before(task):
                mark.hold_back(stream)
            stage.act(task)
            stage.after(task).set(stream)
        except Exception as error:  # it belongs to the thread that waits
            self._fail(f"{task.what}{stage.aim}", error)
            return
        if stage.after(task) is task.ended:
            self._forget(task)

    def _pack_reduce(self, task: _Task) -> None:
        self._handler.before_reduce(task.bucket)
        task.bucket.pack_reduce()

    def _issue(self, task: _Task) -> None:
        task.result = task.issue()

    def _await_reduce(self, task: _Task) -> None:
        self.finish(f"{task.what} from the other ranks", task.result)
        task.bucket.reduce()

    def _pack_gather(self, task: _Task) -> None:
        self._handler.before_gather(task.bucket)
        task.bucket.pack_gather()

    def _await_gather(self, task: _Task) -> None:
        self.finish(f"{task.what} from their owners", task.result)
        task.bucket.unpack_gather()
        self._handler.after_gather(task.bucket)

    def _fail(self, what: str, error: Exception) -> None:
        with self._lock:
            if self._failure is not None:  # of the same cause
                return
            self._failure = not_answered(self._name, what, self._timeout_s, error)
            unfinished = list(self._tasks)
        for task in unfinished:
            for mark in (task.packed, task.issued, task.ended):
                mark.set()
        if self._device.type == "cuda":  # nobody may be waiting on the host
            logger.error("%s", self._failure)
        self._handler.on_failure(self._failure)

    def close(self) -> None:
        """End the threads; safe to call twice."""
        self._closed = True
        for queue in (*self._to_pack.values(), *self._to_await.values()):
            queue.put(None)
        for thread in self._threads:
            thread.join(JOIN_S)
        if self._owns_issuer:
            self._issuer.close()
