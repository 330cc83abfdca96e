"""What workers have: weights, leases and since when; who has had one for too long, and who hangs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from augpipe.trainer.servers.commands import Changes
from augpipe.trainer.servers.messages import LeaseName, Outcome


@dataclass
class WorkerWeights:
    """The weights that a worker has."""

    num_leases: int | None = None
    """Begun with them; None: it has no weights, or none that are worth anything."""
    version: int = 0
    """Updates that they have seen."""
    is_afresh: bool = True
    """Whether the worker is to forget what its codec has left out."""

    def forget(self) -> None:
        """They are worth nothing any more: the worker begins afresh."""
        self.num_leases, self.is_afresh = None, True


@dataclass
class Granted:
    """A lease that is out."""

    worker: int
    version: int
    """Updates that its weights have seen."""
    timer: asyncio.TimerHandle
    outcome: Outcome | None = None
    """Once it is pushed."""


class Grants:
    """A worker that has one lease for `timeout_s` is late; if nothing is heard of it for as long again, it hangs.

    Args:
        timeout_s: seconds.
        on_late: called with the worker.
        changes: hears that one hangs.
    """

    def __init__(self, timeout_s: float, on_late: Callable[[int], None], changes: Changes) -> None:
        self._timeout_s = timeout_s
        self._on_late = on_late
        self._changes = changes
        self._out: dict[LeaseName, Granted] = {}
        self._silent: dict[int, asyncio.TimerHandle] = {}
        """Workers that were late, and have not been heard of since."""
        self._hanging: list[int] = []

    def add(self, name: LeaseName, worker: int, version: int) -> None:
        """A worker begins a lease, with weights of a version."""
        timer = asyncio.get_running_loop().call_later(self._timeout_s, self._is_late, worker)
        self._out[name] = Granted(worker, version, timer)

    def holder(self, name: LeaseName) -> int | None:
        """The worker that has a lease; None where it is not out any more."""
        return self._out[name].worker if name in self._out else None

    def pushed(self, name: LeaseName, outcome: Outcome) -> None:
        """Its worker has done all that it has to, though the push may wait for the rest of its step."""
        self._out[name].timer.cancel()
        self._out[name].outcome = outcome

    def pop(self, name: LeaseName) -> Granted:
        """A lease that has come to its end."""
        granted = self._out.pop(name)
        granted.timer.cancel()
        return granted

    def heard(self, worker: int) -> None:
        """A worker has called, or it is known to have ended: it does not hang."""
        if worker in self._silent:
            self._silent.pop(worker).cancel()

    async def hanging(self) -> int:
        """The next worker that hangs, once there is one."""
        while not self._hanging:
            await self._changes.next()
        return self._hanging.pop(0)

    def _is_late(self, worker: int) -> None:
        self._silent[worker] = asyncio.get_running_loop().call_later(self._timeout_s, self._hangs, worker)
        self._on_late(worker)

    def _hangs(self, worker: int) -> None:
        del self._silent[worker]
        self._hanging.append(worker)
        self._changes.tell()
