"""An asyncio event loop under a virtual clock: nothing waits, time jumps to the next timer."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Deadlock(RuntimeError):
    """Every task waits for another one, and no timer is set: nothing would ever happen again."""


class VirtualClock(asyncio.BaseEventLoop):
    """Runs tasks and timers of one thread; `time()` is in virtual seconds and begins at 0.

    What is ready runs first, in the order in which it became ready. When nothing is, time jumps to the earliest timer;
    timers set for one time fire in the order in which they were set. So a program runs the same way each time, unless
    it goes through a set of tasks (that of `asyncio.wait`), which has no order. There are no threads and no sockets.
    """

    _ready: deque[asyncio.Handle]  # the base class's: what `call_soon` was given

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._num_timers = 0
        self.num_events = 0
        """Callbacks and steps of tasks that were run."""

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer; one for a time that has passed fires now."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._num_timers += 1  # asyncio's own heap compares times alone
        heappush(self._timers, (when, self._num_timers, timer))
        return timer

    def _run_once(self) -> None:
        """Run what is ready and what is due. The base class calls this until it is stopped."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not ready:
            if not timers:
                raise Deadlock(self._describe_waiting())
            self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                self.num_events += 1
                handle._run()

    def _describe_waiting(self) -> str:
        waiting = sorted(f"{task.get_name()} ({_place(task)})" for task in asyncio.all_tasks(self))
        return (
            f"at {self._now_s:.6g} virtual seconds nothing is ready and no timer is set, but {len(waiting)} tasks wait "
            f"for each other or for what nobody will do: {', '.join(waiting)}."
        )

    def _write_to_self(self) -> None:
        """Nothing has to be woken: Ctrl-C asks for it."""


def _place(task: asyncio.Task[Any]) -> str:
    """The innermost coroutine that a task waits in, and its line."""
    waits: Any = task.get_coro()
    while getattr(waits, "cr_await", None) is not None and hasattr(waits.cr_await, "cr_frame"):
        waits = waits.cr_await
    frame = getattr(waits, "cr_frame", None)
    return f"{waits.__qualname__}, line {frame.f_lineno}" if frame is not None else repr(waits)


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Run a coroutine under a virtual clock of its own: what it returned, and the virtual seconds that it took.

    Tasks that it left behind are cancelled, as `asyncio.run` does.

    Raises:
        Deadlock: when nothing can ever happen again; it names the tasks that wait, and where.
    """
    with asyncio.Runner(loop_factory=VirtualClock) as runner:
        result = runner.run(coroutine)
        return result, runner.get_loop().time()
