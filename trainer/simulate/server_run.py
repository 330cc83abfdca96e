"""A whole run in a virtual cluster: its servers, dispatcher, workers and driver, with given times and kills."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from augpipe.trainer.servers.dispatcher import Dispatcher
from augpipe.trainer.servers.drive import weights_of
from augpipe.trainer.servers.messages import Applied, Fence, Grant, Lease, Part
from augpipe.trainer.servers.specs import DispatcherSpec
from augpipe.trainer.servers.work import work
from augpipe.trainer.servers.worker import Computed
from augpipe.trainer.simulate.clock import run_virtual
from augpipe.trainer.simulate.cluster import Cluster
from augpipe.trainer.simulate.nics import Node
from augpipe.trainer.simulate.peers import VirtualPeer


class Computes(Protocol):
    """What a run asks of a worker: a `Worker`, or a stand-in whose parts have the right sizes."""

    def load(self, parts: Sequence[Part]) -> None: ...
    def begin_afresh(self) -> None: ...
    def compute(self, lease: Lease, upcoming: Lease | None, lr: float) -> Computed: ...
    def settle(self, *, counted: bool) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One worker or server is killed; killing who is dead already changes nothing."""

    what: Literal["worker", "server"]
    number: int
    at_s: float
    anew_after_s: float | None
    """Seconds until it is restarted, of a worker from when its death is noticed; None: never."""


@dataclass(frozen=True, kw_only=True)
class VirtualRun:
    """All that a run in a virtual cluster is made of; the same one gives the same run."""

    dispatcher: DispatcherSpec
    make_server: Callable[[int], Any]
    """By its index, a `Server` with the first weights, or a stand-in; called again for one that is restarted."""
    make_worker: Callable[[int], Computes]
    """By its number; called again for one that is restarted."""
    folder: Path
    """For checkpoints, from which a server that was killed goes on."""
    server_nodes: tuple[Node, ...]
    """One for each server; several servers and workers may be on one."""
    worker_nodes: tuple[Node, ...]
    driver_node: Node
    """Where the dispatcher and the driver are."""
    lease_s: Callable[[int, Lease], float]
    """Seconds that a worker computes on a lease, before its node's jitter."""
    command_s: Callable[[str, tuple[Any, ...]], float] | None = None
    """Seconds that a server takes for a call, from its method and arguments; None: none."""
    kills: tuple[Kill, ...] = ()
    evaluate: Callable[[Fence, Sequence[Part]], None] | None = None
    """Gets the weights of the fences at an epoch's end, and of the last one; that takes no virtual time."""
    detection_s: float = 1.0
    """From a death to its being noticed."""
    seed: int = 0
    """Begins the nodes' streams of jitter."""


@dataclass(kw_only=True)
class Played:
    """What became of a run."""

    weights: Sequence[Part] = ()
    """The last ones, a part from each server."""
    applied: list[Applied] = field(default_factory=list)
    """In order."""
    notes: list[str] = field(default_factory=list)
    num_counted: Counter[int] = field(default_factory=Counter)
    """Pushes by worker, of those of its lives that came to their end."""
    seconds: float = 0.0
    bytes_between: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By names of the nodes that sent and received."""
    bytes_of: Counter[str] = field(default_factory=Counter)
    """By what was called: its arguments under its name, and its result under "name answer"."""


def play(run: VirtualRun) -> Played:
    """Play a run to its end.

    Raises:
        RunFailed: as under Ray.
        Deadlock: nothing can ever happen again; it names who waits.
    """
    played = Played()
    try:
        _, played.seconds = run_virtual(_Player(run, played).play())
    except BaseExceptionGroup as group:  # all that wait hear of a failure
        raise group.exceptions[0] from None
    return played


class _Player:
    def __init__(self, run: VirtualRun, played: Played) -> None:
        self._run = run
        self._played = played
        self._alive: dict[int, asyncio.Task[int]] = {}
        self._anew_after_s: dict[int, float | None] = {}

    async def play(self) -> None:
        run = self._run
        nodes = dict.fromkeys((*run.server_nodes, *run.worker_nodes, run.driver_node))
        self._cluster = Cluster(tuple(nodes), seed=run.seed, detection_s=run.detection_s)
        self._servers = [
            VirtualPeer(self._cluster, node, run.make_server(index), f"server {index}", run.command_s)
            for index, node in enumerate(run.server_nodes)
        ]
        dispatcher = Dispatcher(run.dispatcher, self._servers)
        self._dispatcher = VirtualPeer(self._cluster, run.driver_node, dispatcher, "dispatcher")
        try:
            await self._cluster.start(run.driver_node, self._supervise(), "driver")
        finally:
            dispatcher.close()
        self._played.bytes_between = self._cluster.network.bytes_between
        self._played.bytes_of = self._cluster.network.bytes_of

    async def _supervise(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, node in enumerate(self._run.worker_nodes):
                group.create_task(self._live(number, node), name=f"lives of worker {number}")
            kills = [group.create_task(self._strike(kill), name=repr(kill)) for kill in self._run.kills]
            await self._drive()
            for task in kills:
                task.cancel()

    async def _drive(self) -> None:
        """Go from fence to fence, as the driver of a real run does."""
        is_last = False
        while not is_last:
            fence: Fence = await self._dispatcher.call("fence")
            is_last = fence.is_last
            folder = str(self._run.folder / f"step-{fence.version}")
            if is_last or (self._run.evaluate is not None and fence.ends_epoch):
                self._played.weights = await weights_of(fence, self._dispatcher)
                if self._run.evaluate is not None:
                    self._run.evaluate(fence, self._played.weights)
            await self._dispatcher.call("save", folder)
            applied, notes = await self._dispatcher.call("drain")
            self._played.applied += applied
            self._played.notes += notes
            await self._dispatcher.call("go_on", folder, 1.0)

    async def _live(self, number: int, node: Node) -> None:
        """All lives of a worker, one after the other."""
        digest = self._run.dispatcher.digest
        while True:
            worker: Any = self._run.make_worker(number)
            working = work(number, digest, worker, self._dispatcher, self._servers, self._compute)
            task = self._alive[number] = self._cluster.start(node, working, f"worker {number}")
            task.add_done_callback(lambda task: task.cancelled() or task.exception())  # others may have failed before
            await asyncio.wait([task])
            if not task.cancelled():
                self._played.num_counted[number] += task.result()
                return
            await asyncio.sleep(self._run.detection_s)
            await self._dispatcher.call("left", number, "it was killed")
            after_s = self._anew_after_s[number]
            if after_s is None:
                return
            await asyncio.sleep(after_s)

    async def _compute(self, worker: Any, grant: Grant) -> Computed:
        number = next(number for number, task in self._alive.items() if task is asyncio.current_task())
        await self._cluster.compute(self._run.lease_s(number, grant.lease))
        done: Computed = worker.compute(grant.lease, grant.upcoming, grant.lr)
        return replace(done, data_s=0.0)  # real seconds

    async def _strike(self, kill: Kill) -> None:
        await asyncio.sleep(kill.at_s)
        if kill.what == "worker":
            self._anew_after_s[kill.number] = kill.anew_after_s
            self._cluster.kill(self._alive[kill.number])
        else:
            peer = self._servers[kill.number]
            self._cluster.kill(peer)
            if kill.anew_after_s is not None:
                await asyncio.sleep(kill.anew_after_s)
                peer.revive(self._run.make_server(kill.number))
