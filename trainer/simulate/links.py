"""How the collectives of ranks travel: message by message through every NIC, or by one rank that stands for all."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from copy import copy
from typing import Protocol

from augpipe.trainer.simulate.cluster_card import Card
from augpipe.trainer.simulate.nics import Network

Adds = Callable[[], Awaitable[None]]


class Links(Protocol):
    """What carries collectives; each call ends when the rank has sent and received all of its messages."""

    def among(self, members: Sequence[int]) -> "Links":
        """The same wires for a group of ranks, in ascending order; a rank is called by its place in it."""

    async def all_to_all(self, rank: int, key: Hashable, sent: list[int]) -> None:
        """Send `sent[other]` bytes to each other rank; all ranks call it with the same key."""

    async def all_reduce(self, rank: int, key: Hashable, chunk_bytes: int, add: Adds) -> None:
        """Reduce and gather around a ring of the ranks, 2 (K-1) messages of a chunk each; `add` follows each of the
        first half of them."""


class _Inbox:
    """Messages of one collective that have arrived at one rank."""

    def __init__(self) -> None:
        self.num = 0
        self.changed = asyncio.Event()

    def add(self, _: object) -> None:
        self.num += 1
        self.changed.set()

    async def wait(self, num: int) -> None:
        while self.num < num:
            self.changed.clear()
            await self.changed.wait()


class EveryLink:
    """All ranks are there, and each message is one in the `Network`. What a device sends to others of its node goes one
    after the other."""

    def __init__(self, card: Card, ranks: int) -> None:
        self._nodes = card.nodes(ranks)
        self.network = Network(list(dict.fromkeys(self._nodes)))
        self._inboxes: dict[Hashable, _Inbox] = defaultdict(_Inbox)
        self._within = [asyncio.Lock() for _ in range(ranks)]
        self._groups: dict[tuple[int, ...], dict[Hashable, _Inbox]] = {}

    def among(self, members: Sequence[int]) -> "EveryLink":
        """What a group sends goes through the same NICs as everything else."""
        group = copy(self)
        group._nodes = [self._nodes[member] for member in members]
        group._within = [self._within[member] for member in members]
        group._inboxes = self._groups.setdefault(tuple(members), defaultdict(_Inbox))
        return group

    async def all_to_all(self, rank: int, key: Hashable, sent: list[int]) -> None:
        """In a round each rank sends once and receives once."""
        ranks = len(sent)
        order = [(rank + shift) % ranks for shift in range(1, ranks)]
        await asyncio.gather(
            self._within_node(rank, key, {other: sent[other] for other in order if self._is_near(rank, other)}),
            *(self._send(rank, other, key, sent[other]) for other in order if not self._is_near(rank, other)),
        )
        await self._inboxes[key, rank].wait(ranks - 1)

    def _is_near(self, rank: int, other: int) -> bool:
        return self._nodes[rank] is self._nodes[other]

    async def _within_node(self, rank: int, key: Hashable, sent: dict[int, int]) -> None:
        async with self._within[rank]:
            for other, num_bytes in sent.items():
                await self._send(rank, other, key, num_bytes)

    async def _send(self, rank: int, other: int, key: Hashable, num_bytes: int) -> None:
        arrived = self.network.send(self._nodes[rank], self._nodes[other], num_bytes, "message")
        arrived.add_done_callback(self._inboxes[key, other].add)
        await arrived

    async def all_reduce(self, rank: int, key: Hashable, chunk_bytes: int, add: Adds) -> None:
        """A chunk goes on to the next rank once it is here and added to; a rank does not wait for what it sends."""
        ranks = len(self._nodes)
        after, sending = (rank + 1) % ranks, []
        for turn in range(2 * (ranks - 1)):
            sending.append(asyncio.ensure_future(self._to_next(rank, after, (key, turn), chunk_bytes)))
            await self._inboxes[(key, turn), rank].wait(1)
            if turn < ranks - 1:
                await add()
        await asyncio.gather(*sending)

    async def _to_next(self, rank: int, after: int, key: Hashable, num_bytes: int) -> None:
        if self._is_near(rank, after):
            await self._within_node(rank, key, {after: num_bytes})
        else:
            await self._send(rank, after, key, num_bytes)


class OneForAll:
    """Rank 0 alone is there: all others do the same at the same time, so that its node's NIC tells the whole story.

    A collective takes the NIC for what all devices of a node send to other nodes together, and the device's own link
    for what it sends within. Of a ring, where most devices send to their neighbour and one to the next node, a turn
    takes as long as its slowest link, or a chunk's mean way around if that is longer.
    """

    def __init__(self, card: Card, ranks: int) -> None:
        self._card = card
        self._ranks = ranks
        self._devices = min(card.devices_per_node, ranks)
        self._near = self._devices
        self._nic, self._within = asyncio.Lock(), asyncio.Lock()

    def among(self, members: Sequence[int]) -> "OneForAll":
        """The group of rank 0, as which every other rank has one of its own."""
        group = copy(self)
        group._ranks = len(members)
        group._near = sum(member < self._devices for member in members)
        return group

    async def all_to_all(self, rank: int, key: Hashable, sent: list[int]) -> None:
        """`sent` is what rank 0 sends."""
        card, near = self._card, sent[1 : self._near]
        far = self._devices * sum(sent[self._near :])
        await asyncio.gather(
            _hold(self._nic, far / card.nic_bytes_per_s, card.nic_latency_s if far else 0.0),
            _hold(self._within, sum(near) / card.within_bytes_per_s + len(near) * card.within_latency_s, 0.0),
        )

    async def all_reduce(self, rank: int, key: Hashable, chunk_bytes: int, add: Adds) -> None:
        """One turn after the other."""
        card, devices = self._card, self._near
        rings = self._devices // devices  # each leaves the node by the same NIC
        far, near = rings * chunk_bytes / card.nic_bytes_per_s, chunk_bytes / card.within_bytes_per_s
        num_near = devices - 1 if devices < self._ranks else devices
        near_hop, far_hop = near + card.within_latency_s, far + card.nic_latency_s
        mean = (num_near * near_hop + (devices - num_near) * far_hop) / devices
        slowest = far if num_near < devices else near_hop
        if num_near:
            slowest = max(slowest, near_hop)
        for turn in range(2 * (self._ranks - 1)):
            await _hold(self._nic, slowest, max(mean - slowest, 0.0))
            if turn < self._ranks - 1:
                await add()


async def _hold(lock: asyncio.Lock, seconds: float, latency_s: float) -> None:
    """Take a link for some seconds, and wait the latency after that."""
    if seconds:
        async with lock:
            await asyncio.sleep(seconds)
    if latency_s:
        await asyncio.sleep(latency_s)
