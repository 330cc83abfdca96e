"""Servers, the dispatcher and workers as actors of a Ray cluster, and what is done where one of them dies."""

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine, Generator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from augpipe.trainer.checkpoint.checkpoints_folder import finished
from augpipe.trainer.config.tables import RunConfig, ServersConfig
from augpipe.trainer.loop.run_folder import checkpoints_path
from augpipe.trainer.servers.dispatcher import Dispatcher, RunFailed
from augpipe.trainer.servers.from_config import GroupPlace, Specs, join_group, make_worker
from augpipe.trainer.servers.group import Processes
from augpipe.trainer.servers.messages import Grant, Lease, Peer, PeerLost
from augpipe.trainer.servers.placement import Placement, warn_of_few_cores
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.specs import WorkerSpec
from augpipe.trainer.servers.work import work
from augpipe.trainer.servers.worker import Computed, Worker
from augpipe.validation.ray_address import check_reachable, join, require_ray

logger = logging.getLogger("augpipe.trainer")

T = TypeVar("T")
_REMEDY = "leave servers.address out for a cluster of this machine alone"


@dataclass(frozen=True)
class RayPeer:
    """An actor; may be sent to others."""

    actor: Any

    def call(self, method: str, /, *args: Any) -> "RayReply":
        """As `Peer` has it."""
        return RayReply(getattr(self.actor, method).remote(*args))


@dataclass(frozen=True)
class RayReply:
    """What an actor answers; may be sent to others, who get it from where it lies."""

    reference: Any

    def __await__(self) -> Generator[Any, None, Any]:
        return self._value().__await__()

    async def _value(self) -> Any:
        from ray.exceptions import ObjectLostError, RayActorError, RayTaskError

        try:
            return await self.reference
        except RayTaskError as error:  # what the method raised
            raise error.cause from None
        except (RayActorError, ObjectLostError) as error:
            lines = str(error).strip().splitlines()
            # of an actor that could not be made the last line says why, of one that died the first
            reason = lines[-1] if getattr(error, "actor_init_failed", False) else lines[0]
            raise PeerLost(reason.strip().rstrip(".")) from None


class WorkerActor:
    """A worker in a process of its own, or one process of a group."""

    def __init__(self, config: RunConfig, spec: WorkerSpec) -> None:
        self._config = config
        self._spec = spec

    def meeting_point(self) -> tuple[str, int]:
        """(Address of this machine, a port that is free on it)."""
        import ray

        host: str = ray.util.get_node_ip_address()
        with socket.socket() as opened:
            opened.bind(("", 0))
            return host, opened.getsockname()[1]

    def run(self, number: int, dispatcher: Peer, servers: tuple[Peer, ...], meet: GroupPlace | None) -> int:
        """Work until nothing is left; returns the pushes that counted.

        Raises:
            PeerLost: another process of the group is no more.
        """
        with ExitStack() as held:
            if meet is None:
                digest, worker = make_worker(self._config, self._spec, held)
                return asyncio.run(work(number, digest, worker, dispatcher, servers))
            try:
                group = join_group(meet, self._config.faults.timeout_s)
                digest, worker = make_worker(self._config, self._spec, held, group)
                if meet.rank > 0:
                    return _follow(worker, group)
                done = asyncio.run(work(number, digest, worker, dispatcher, servers, partial(_lead, group)))
                group.tell(None)
                return done
            except RunFailed:
                raise
            except RuntimeError as error:  # as torch says it
                raise PeerLost(f"its group broke: {str(error).splitlines()[0]}") from None


async def _lead(group: Processes, worker: Worker, grant: Grant) -> Computed:
    """Compute a lease with the others of a group, which get the weights first."""
    upcoming = None if grant.upcoming is None else grant.upcoming.as_json()
    group.tell([grant.lease.as_json(), upcoming, grant.lr])
    group.hand(worker.state())
    return worker.compute(grant.lease, grant.upcoming, grant.lr)


def _follow(worker: Worker, group: Processes) -> int:
    """Compute shares of what the group's first process begins, until it ends."""
    while (told := group.tell(None)) is not None:
        state = worker.state()
        group.hand(state)
        worker.set_buffers(*state[1:])
        lease, upcoming, lr = told
        worker.compute_shares(Lease.from_json(lease), None if upcoming is None else Lease.from_json(upcoming), lr)
    return 0


def require_there(wanted: ServersConfig) -> Any:
    """The module `ray`.

    Raises:
        ImportError: it is not installed.
        ValueError: nobody listens at the address.
    """
    ray = require_ray("parameter servers need", 'pip install "augpipe[torch,ray]"')
    if not ray.is_initialized():
        check_reachable(wanted.address, _REMEDY)
    return ray


class RayCluster:
    """All actors of a run; leaving the context ends them.

    Args:
        config: of the run.
        specs: what the actors go by.

    Raises:
        ImportError: Ray is not installed.
        ValueError: there is no cluster at the address, or it has too few nodes.
    """

    def __init__(self, config: RunConfig, specs: Specs) -> None:
        self._config = config
        self._specs = specs
        self._held = ExitStack()
        self._workers: dict[int, list[Any]] = {}
        """By worker, its actor, or those of its group."""
        self._num_restarts: dict[int, int] = {}
        self._given_up: set[int] = set()
        """Workers that have died too often."""
        self.dispatcher: RayPeer
        self.servers: tuple[RayPeer, ...]

    def __enter__(self) -> "RayCluster":
        self._ray = require_there(self._config.servers)
        self._init()
        try:
            self._begin_servers()
        except BaseException:  # a cluster of this run's own goes, too
            self._held.close()
            raise
        return self

    def _begin_servers(self) -> None:
        ray = self._ray
        wanted = self._config.servers
        num_cpus = wanted.threads if wanted.address is not None else 0
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        self._placement = Placement(wanted, nodes, ray.get_runtime_context().get_node_id())
        warn_of_few_cores(wanted, int(ray.cluster_resources().get("CPU", 0)))
        remote = ray.remote(num_cpus=num_cpus, max_restarts=-1, max_task_retries=0)(Server)
        # an actor carries out one call after the other, and what it returns is copied to Ray's memory before the next
        specs = (replace(spec, hands_views=True) for spec in self._specs.servers)
        self.servers = tuple(
            RayPeer(self._on_node(remote, self._placement.of_server(spec.index)).remote(spec)) for spec in specs
        )
        self.dispatcher = RayPeer(ray.remote(num_cpus=0)(Dispatcher).remote(self._specs.dispatcher, self.servers))
        self._worker_class = ray.remote(num_cpus=num_cpus, max_restarts=0)(WorkerActor)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ray.is_initialized():
            for actor in chain(*self._workers.values(), (peer.actor for peer in (self.dispatcher, *self.servers))):
                self._ray.kill(actor)
        self._held.close()

    async def supervise(self, driving: Coroutine[Any, Any, T]) -> T:
        """Let the workers work while `driving` runs to its end, and restart those that die.

        Raises:
            RunFailed: all workers have died more often than servers.restarts allows, or the dispatcher has.
        """
        loop = asyncio.get_running_loop()
        driver = loop.create_task(driving)
        running = {self._begin(number): number for number in range(self._num_workers())}
        watching = loop.create_task(self._kill_hanging())
        try:
            while not driver.done():
                tasks: set[asyncio.Task[Any]] = {driver, *running}
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task.done()]:
                    number = running.pop(task)
                    error = task.exception()
                    if isinstance(error, PeerLost):
                        again = await self._after_loss(number, str(error))
                        running |= {again: number} if again is not None else {}
                    elif error is not None:
                        raise error
                if len(self._given_up) == self._num_workers():
                    raise RunFailed("all workers are gone, each after servers.restarts new beginnings")
            return await driver
        except PeerLost as error:
            checkpoints = finished(checkpoints_path(Path(self._config.out)))
            raise RunFailed(
                f"the dispatcher is gone: {error}. The same command goes on from the last checkpoint, {checkpoints[0]}."
            ) from error
        finally:
            for left in (driver, watching, *running):
                left.cancel()

    def _num_workers(self) -> int:
        return self._config.servers.workers + self._config.servers.backup

    def _begin(self, number: int) -> "asyncio.Task[int]":
        wanted = self._config.servers
        size = wanted.group if wanted.mode == "mixed" else 1
        on_node = self._on_node(self._worker_class, self._placement.of_worker(number))  # a group is on one
        actors = [on_node.remote(self._config, self._specs.worker) for _ in range(size)]
        self._workers[number] = actors
        return asyncio.get_running_loop().create_task(self._run_worker(number, [RayPeer(actor) for actor in actors]))

    async def _run_worker(self, number: int, peers: list[RayPeer]) -> int:
        places: list[GroupPlace | None] = [None]
        if len(peers) > 1:
            host, port = await peers[0].call("meeting_point")
            places = [GroupPlace(host=host, port=port, rank=rank, size=len(peers)) for rank in range(len(peers))]
        runs = [
            peer.call("run", number, self.dispatcher, self.servers, place)
            for peer, place in zip(peers, places, strict=True)
        ]
        done: list[int] = await asyncio.gather(*runs)
        return sum(done)

    async def _kill_hanging(self) -> None:
        """Workers that hang die, and are restarted as those that die by themselves."""
        while True:
            number: int = await self.dispatcher.call("hanging")
            logger.warning("worker %d hangs: it is killed", number)
            for actor in self._workers[number]:
                self._ray.kill(actor)

    async def _after_loss(self, number: int, reason: str) -> "asyncio.Task[int] | None":
        for actor in self._workers[number]:  # of a group, the others go, too
            self._ray.kill(actor)
        await self.dispatcher.call("left", number, reason)
        done = self._num_restarts[number] = self._num_restarts.get(number, 0) + 1
        if done > self._config.servers.restarts:
            logger.warning("worker %d is not restarted: it has died %d times", number, done)
            self._given_up.add(number)
            return None
        return self._begin(number)

    def _on_node(self, actor_class: Any, node: str) -> Any:
        """The class, whose actors begin on a node; where nodes are shared, Ray may take another one for them."""
        is_shared = self._config.servers.placement == "shared"
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=is_shared)
        return actor_class.options(scheduling_strategy=strategy)

    def _init(self) -> None:
        ray, address = self._ray, self._config.servers.address
        if ray.is_initialized():
            return
        # what workers log is shown here; that one died the dispatcher says, and Ray need not
        os.environ.setdefault("RAY_LOG_TO_DRIVER_EVENT_LEVEL", "FATAL")
        logging.getLogger("ray").setLevel(logging.ERROR)
        settings: dict[str, Any] = {}
        if address is None:
            settings = {"include_dashboard": False}
            # Ray starts workers with a niceness of 15: next to anything else they would hardly run
            os.environ.setdefault("RAY_worker_niceness", "0")
        context = join(ray, address, _REMEDY, logging_level=logging.ERROR, **settings)
        self._held.callback(ray.shutdown)
        url = getattr(context, "dashboard_url", "")
        if url:
            logger.info("Ray's dashboard: http://%s", url)
