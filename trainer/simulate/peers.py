"""Peers in a virtual cluster: objects on nodes, called by messages whose bytes travel."""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from inspect import iscoroutine
from typing import Any

from augpipe.trainer.servers.messages import PeerLost
from augpipe.trainer.simulate.cluster import Cluster, Process, current_process
from augpipe.trainer.simulate.nics import Node

MESSAGE_BYTES = 256
"""What every call and every answer counts in addition to its arrays: names, numbers, headers."""


def num_bytes_of(message: object) -> int:
    """Bytes of the arrays and byte strings within a message; dataclasses, tuples, lists and dicts are walked."""
    num_bytes = getattr(message, "nbytes", None)  # NumPy's and torch's arrays, and memory views
    if isinstance(num_bytes, int):
        return num_bytes
    if isinstance(message, bytes | bytearray):
        return len(message)
    if isinstance(message, Mapping):
        return sum(num_bytes_of(value) for value in message.values())
    if isinstance(message, tuple | list):
        return sum(num_bytes_of(value) for value in message)
    if dataclasses.is_dataclass(message):
        return sum(num_bytes_of(getattr(message, field.name)) for field in dataclasses.fields(message))
    return 0


class Answer(Awaitable[Any]):
    """The result of a call. It stays with the process that was called until it is awaited: then its bytes travel from
    there to the node of the awaiting task, each time that it is awaited. It may be handed on within messages."""

    def __init__(self, cluster: Cluster, process: Process, method: str) -> None:
        self._cluster = cluster
        self._process = process
        self._method = method
        self._result = process.expect()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._fetch().__await__()

    async def _fetch(self) -> Any:
        result = await asyncio.shield(self._result)  # others may await it, too, when this task is cancelled
        arrived = self._process.expect()
        if self._process.lost_at_s is None:
            num_bytes = MESSAGE_BYTES + num_bytes_of(result)
            kind = f"{self._method} answer"
            receiver = current_process().node
            self._process.send(self._cluster.network, receiver, num_bytes, kind, lambda: _settle(arrived, None))
        await arrived
        return result


@dataclasses.dataclass(slots=True)
class _Call:
    method: str
    args: tuple[Any, ...]
    result: asyncio.Future[Any]


class VirtualPeer:
    """An object on a node that is called by messages: a `Peer` (see `augpipe.trainer.servers.messages`).

    A message counts MESSAGE_BYTES and the bytes of the arrays in it, and travels from the calling task's node to this
    one. Calls of one node begin here in the order in which they were made. The object takes one at a time: first
    the seconds that the call costs pass, then its method is carried out, in no time. An async method that waits blocks
    no others. Messages are handed over as they are, not copied: a sender must not change what it has sent.

    Args:
        target: the object whose methods are called.
        seconds_of: what a call costs, from the method's name and its arguments; nothing, by default.
    """

    def __init__(
        self,
        cluster: Cluster,
        node: Node,
        target: object,
        name: str,
        seconds_of: Callable[[str, tuple[Any, ...]], float] | None = None,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._seconds_of = seconds_of
        self._begin(node, target)

    def _begin(self, node: Node, target: object) -> None:
        self.process = self._cluster.process(node, self.name)
        self._target = target
        self._calls: deque[_Call] = deque()
        self._is_serving = False

    def revive(self, target: object, node: Node | None = None) -> None:
        """Start again with another object, on the same node or another one; who awaits the old one gets PeerLost."""
        self._cluster.kill(self)
        self._begin(node or self.process.node, target)

    def call(self, method: str, /, *args: Any) -> Answer:
        """Send a call, and hand back at once what its result can be awaited by.

        Raises:
            PeerLost: when awaited: this peer was killed before its answer had arrived, or the caller, which has handed
                the answer on, before the call had.
            CancelledError: the calling process was killed: the dead send nothing.
        """
        caller, process = current_process(), self.process
        if caller.lost_at_s is not None:
            raise asyncio.CancelledError(f"{caller.name} was killed")
        answer = Answer(self._cluster, process, method)
        if process.lost_at_s is None:
            call = _Call(method, args, answer._result)
            num_bytes = MESSAGE_BYTES + num_bytes_of(args)
            network = self._cluster.network
            caller.send(network, process.node, num_bytes, method, lambda: self._take(process, call), answer._result)
        return answer

    def _take(self, process: Process, call: _Call) -> None:
        """A call has arrived: it is served after those that wait, unless who was called is no more."""
        if process is not self.process or process.lost_at_s is not None:
            return
        self._calls.append(call)
        if not self._is_serving:
            self._is_serving = True
            self._spawn(process, self._serve(process, self._target, self._calls), self.name)

    async def _serve(self, process: Process, target: object, calls: deque[_Call]) -> None:
        while calls and process.lost_at_s is None:
            call = calls.popleft()
            seconds = 0.0 if self._seconds_of is None else self._seconds_of(call.method, call.args)
            if seconds:
                await self._cluster.compute(seconds)
            try:
                result = getattr(target, call.method)(*call.args)
            except Exception as error:
                result = error
            if iscoroutine(result):
                self._spawn(process, _finish(result, call.result), f"{self.name}.{call.method}")
            else:
                _settle(call.result, result)
        self._is_serving = False

    @staticmethod
    def _spawn(process: Process, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        asyncio.get_running_loop().create_task(coroutine, name=name, context=process.context)


async def _finish(method: Coroutine[Any, Any, Any], result: asyncio.Future[Any]) -> None:
    """Await an async method, for those who await its result."""
    try:
        value = await method
    except Exception as error:
        value = error
    _settle(result, value)


def _settle(future: asyncio.Future[Any], value: object) -> None:
    """Give a future its value, or the error that whoever awaits it sees; none if it was given one, or cancelled."""
    if future.done():
        return
    if isinstance(value, Exception):
        future.set_exception(value)
        if isinstance(value, PeerLost):
            future.exception()  # nobody has to look at it
    else:
        future.set_result(value)
