"""Processes on the nodes of a virtual cluster: begun, computing, killed."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from augpipe.trainer.servers.messages import PeerLost
from augpipe.trainer.simulate.nics import Network, Node, log_normal

T = TypeVar("T")

_process: ContextVar["Process"] = ContextVar("process")


class Process:
    """What runs on a node and dies as one: its tasks, what it sends, and what others expect of it."""

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node
        self.lost_at_s: float | None = None
        """When others notice that it was killed; None while it lives."""
        self.tasks: WeakKeyDictionary[asyncio.Task[Any], None] = WeakKeyDictionary()  # in the order of their beginning
        self.sending: WeakKeyDictionary[asyncio.Future[None], None] = WeakKeyDictionary()
        self.expected: WeakKeyDictionary[asyncio.Future[Any], None] = WeakKeyDictionary()
        self.context = copy_context()
        self.context.run(_process.set, self)

    def expect(self) -> asyncio.Future[Any]:
        """A future for others to wait for; it gets PeerLost if this process is killed, or was."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self.lost_at_s is None:
            self.expected[future] = None
        else:
            loop.call_at(self.lost_at_s, self._fail, future)
        return future

    def send(
        self,
        network: Network,
        receiver: Node,
        num_bytes: int,
        kind: str,
        then: Callable[[], None],
        answer: asyncio.Future[Any] | None = None,
    ) -> None:
        """Send bytes, and call `then` when they have arrived: never, if this process is killed before.

        Whoever was given the `answer` that the bytes ask for then gets PeerLost, as if they awaited this process.
        """
        arrived = network.send(self.node, receiver, num_bytes, kind)
        self.sending[arrived] = None

        def end(arrived: asyncio.Future[None]) -> None:
            if not arrived.cancelled():
                then()
            elif answer is not None and self.lost_at_s is not None:
                asyncio.get_running_loop().call_at(self.lost_at_s, self._fail, answer)

        arrived.add_done_callback(end)

    def kill(self, detection_s: float) -> None:
        """Cancel its tasks and what it sends; who expects something of it learns it `detection_s` later."""
        loop = asyncio.get_running_loop()
        self.lost_at_s = loop.time() + detection_s
        for task in list(self.tasks):
            task.cancel()
        for arrived in list(self.sending):
            arrived.cancel()
        for future in list(self.expected):
            loop.call_at(self.lost_at_s, self._fail, future)

    def _fail(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(PeerLost(f"{self.name} on {self.node.name} is lost"))
            future.exception()  # nobody has to look at it


class HasProcess(Protocol):
    """Who has a process of its own, as a peer has."""

    process: Process


class Cluster:
    """Nodes, the network between them and the processes on them; made within `run_virtual`.

    Args:
        nodes: their names differ.
        seed: with a node's name it begins the node's streams of jitter, so another node more changes none of them.
        detection_s: how long after a kill the others notice it.
    """

    def __init__(self, nodes: Sequence[Node], *, seed: int = 0, detection_s: float = 1.0) -> None:
        self.network = Network(nodes, seed)
        self.detection_s = detection_s
        self._processes: dict[Process, None] = {}
        self._jitter = {node: Random(f"{seed} compute {node.name}") for node in nodes}
        self._cores = {node: asyncio.Semaphore(node.num_cores) for node in nodes if node.num_cores is not None}
        asyncio.get_running_loop().set_task_factory(_new_task)

    def process(self, node: Node, name: str) -> Process:
        """Begin a process that has no task yet."""
        process = Process(name, node)
        self._processes[process] = None
        return process

    def start(self, node: Node, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a coroutine as a process of its own; tasks that it begins belong to it, too."""
        process = self.process(node, name)
        task = asyncio.get_running_loop().create_task(coroutine, name=name, context=process.context)
        task.add_done_callback(lambda _: self._processes.pop(process, None))
        return task

    async def compute(self, seconds: float) -> None:
        """Take the time that a computation of `seconds` needs on this task's node: a core, if they are counted, and
        the node's jitter."""
        node = current_process().node
        cores = self._cores.get(node)
        if cores is None:
            await asyncio.sleep(seconds * log_normal(self._jitter[node], node.compute_jitter))
        else:
            async with cores:
                await asyncio.sleep(seconds * log_normal(self._jitter[node], node.compute_jitter))

    def kill(self, target: Node | asyncio.Task[Any] | HasProcess) -> None:
        """Kill all processes of a node, the process that a task belongs to, or that of a peer.

        Its tasks are cancelled, and what it sends and has not arrived is lost. Who awaits a result of it gets PeerLost
        `detection_s` later, and so does, at once after that, who calls it. Killing the dead changes nothing.
        """
        if isinstance(target, Node):
            killed = [process for process in self._processes if process.node is target]
        elif isinstance(target, asyncio.Task):
            killed = [process for process in self._processes if target in process.tasks]
        else:
            killed = [target.process] if target.process in self._processes else []
        for process in killed:
            del self._processes[process]
            process.kill(self.detection_s)


def current_process() -> Process:
    """The process that the running task belongs to."""
    process = _process.get(None)
    if process is None:
        raise RuntimeError(
            "the running task belongs to no process of the cluster, so nobody knows its node. "
            "Begin it by cluster.start(node, coroutine, name)."
        )
    return process


def _new_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T],
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[T]:
    """Make a task and note it in its process: that of its context, else of the task that begins it."""
    task = asyncio.Task(coroutine, loop=loop, context=context, **options)
    process = _process.get(None) if context is None else context.get(_process)
    if process is not None:
        process.tasks[task] = None
        if process.lost_at_s is not None:
            task.cancel()
    return task
