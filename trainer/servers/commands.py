"""The one order of commands: each goes to all servers, numbered without gaps, and nobody waits for it to be done."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from augpipe.trainer.servers.messages import Command, Hand, Peer, PeerLost, Restore, Save

_PING_S = 0.2


class CommandOrder:
    """Sends commands, and hears which servers are lost and which fail.

    Args:
        servers: in order.
        on_lost: called with a server's index and the number of the command that it did not answer.
        on_failure: called with what to say of a command that a server refused.
    """

    def __init__(
        self,
        servers: Sequence[Peer],
        on_lost: Callable[[int, int], Coroutine[Any, Any, None]],
        on_failure: Callable[[str], None],
    ) -> None:
        self._servers = list(servers)
        self._on_lost = on_lost
        self._on_failure = on_failure
        self.number = 0
        """The last command's."""
        self._restored_at = [0] * len(servers)
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, command: Command) -> tuple[Awaitable[Any], ...]:
        """Give all servers the next command; returns their answers, which whoever gets them waits for."""
        self.number += 1
        return tuple(server.call("carry_out", self.number, command) for server in self._servers)

    def post(self, command: Command) -> None:
        """Give all servers the next command, whose answers nobody else waits for."""
        assert not isinstance(command, Hand | Save), "somebody wants the answer"
        self.start(self._watch(self.send(command), self.number))

    async def done(self, command: Command) -> bool:
        """Give all servers the next command; whether all have carried it out, once those that are lost are back."""
        replies, number = self.send(command), self.number
        found = await asyncio.gather(*replies, return_exceptions=True)
        for index, one in enumerate(found):
            if isinstance(one, PeerLost):
                await self._on_lost(index, number)
            elif isinstance(one, BaseException):
                raise one
        return not any(isinstance(one, PeerLost) for one in found)

    def restore(self, server: int, command: Restore, others: Command) -> None:
        """Give a server that was restarted its slice back, while the others carry out another command."""
        self.number += 1
        self._restored_at[server] = self.number
        commands = [command if index == server else others for index in range(len(self._servers))]
        replies = tuple(
            one.call("carry_out", self.number, its) for one, its in zip(self._servers, commands, strict=True)
        )
        self.start(self._watch(replies, self.number))

    def was_restored_since(self, server: int, number: int) -> bool:
        """Whether a server has had its slice back after the command with that number."""
        return number < self._restored_at[server]

    async def answers_within(self, server: int, seconds: float) -> bool:
        """Whether a server is there, or is restarted in so many seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            try:
                await self._servers[server].call("ping")
            except PeerLost:
                await asyncio.sleep(_PING_S)
            else:
                return True
        return False

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Let a coroutine run by itself."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)  # the loop alone would let it be collected
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, replies: tuple[Awaitable[Any], ...], number: int) -> None:
        for index, reply in enumerate(replies):
            try:
                await reply
            except PeerLost:
                await self._on_lost(index, number)
            except Exception as error:
                self._on_failure(f"server {index} failed: {type(error).__name__}: {error}")


class Changes:
    """What coroutines wait for that look again at whatever may have changed."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def next(self) -> None:
        """Until something has changed."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def tell(self) -> None:
        """Something has: all that wait look again, in the order in which they came."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
