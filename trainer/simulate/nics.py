"""Nodes and their NICs: when bytes that one node sends arrive at another, and how many there were."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import merge
from math import exp, inf
from operator import attrgetter
from random import Random


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """One machine: its NIC, its memory and how unsteady it is. A node equals itself alone."""

    name: str
    """Unique within the cluster; with the cluster's seed it begins the node's streams of jitter."""
    up_bytes_per_s: float = inf
    """What its NIC sends, in bytes a second."""
    down_bytes_per_s: float = inf
    """What its NIC receives, in bytes a second."""
    latency_s: float = 0.0
    """From the last byte's sending to its arrival; between two nodes the longer one of both counts."""
    within_bytes_per_s: float = inf
    """What a message within the node takes; such ones do not wait for each other, and not for the NIC."""
    within_latency_s: float = 0.0
    """The same from one process of the node to another."""
    num_cores: int | None = None
    """Computations that run at a time, the others wait for a core; None: any number."""
    compute_jitter: float = 0.0
    """Computing takes its time × a log-normal factor of mean 1; this is the standard deviation of its logarithm."""
    link_jitter: float = 0.0
    """The same for sending and latency of what leaves this node."""


@dataclass(slots=True, eq=False)
class _Way:
    """One direction of a node's NIC: the transfer that it carries, and those that wait for it, by number."""

    is_busy: bool = False
    waiting: "dict[int, _Transfer]" = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Transfer:
    number: int
    sender: Node
    receiver: Node
    out: _Way
    into: _Way
    num_bytes: int
    kind: str
    arrived: asyncio.Future[None]


class Network:
    """Nodes between which bytes travel, under the clock of the running loop.

    A NIC sends one transfer at a time and receives one at a time. A transfer begins when its sender's way out and its
    receiver's way in are both free; of those that wait, the one that was asked for first begins first. It takes both
    for bytes / min(up, down) seconds, and arrives its latency after that. What goes from one node to another arrives
    in the order in which it was asked for. Processes of a node share its NIC.
    """

    def __init__(self, nodes: Sequence[Node], seed: int = 0) -> None:
        names = Counter(node.name for node in nodes)
        for name, num in names.items():
            if num > 1:
                raise ValueError(f"nodes: {num} are named {name!r}, and counts go by names. Give each its own name.")
        self._jitter = {node: Random(f"{seed} link {node.name}") for node in nodes}
        self._out = {node: _Way() for node in nodes}
        self._into = {node: _Way() for node in nodes}
        self._changed: dict[_Way, None] = {}
        self._last_arrival_s: dict[tuple[Node, Node], float] = {}
        self._num_transfers = 0
        self.bytes_between: Counter[tuple[str, str]] = Counter()
        """Bytes that were begun to be sent, by names of sender and receiver; a node's own memory is (name, name)."""
        self.bytes_of: Counter[str] = Counter()
        """The same by kind."""

    def send(self, sender: Node, receiver: Node, num_bytes: int, kind: str) -> asyncio.Future[None]:
        """Send bytes; the future is done when all of them have arrived.

        If it is cancelled they do not arrive; the NICs stay taken if they had begun.
        """
        self._num_transfers += 1
        out, into = self._out[sender], self._into[receiver]
        arrived = asyncio.get_running_loop().create_future()
        transfer = _Transfer(self._num_transfers, sender, receiver, out, into, num_bytes, kind, arrived)
        if sender is receiver:
            self._arrive_in_order(transfer, num_bytes / sender.within_bytes_per_s + sender.within_latency_s)
        else:
            out.waiting[transfer.number] = into.waiting[transfer.number] = transfer
            self._look_at(out, into)
        return arrived

    def _look_at(self, *ways: _Way) -> None:
        """Have what may begin on these ways begun, after all else that ends or is asked for at this time."""
        waited_for = {way: None for way in ways if way.waiting}
        if waited_for and not self._changed:
            asyncio.get_running_loop().call_soon(self._begin_waiting)
        self._changed.update(waited_for)

    def _begin_waiting(self) -> None:
        free = {way: None for way in self._changed if not way.is_busy}
        self._changed = {}
        chosen = []
        for transfer in merge(*(way.waiting.values() for way in free), key=attrgetter("number")):
            out, into = transfer.out, transfer.into
            if transfer.arrived.cancelled():
                chosen.append(transfer)
            elif not out.is_busy and not into.is_busy:
                out.is_busy = into.is_busy = True
                free.pop(out, None)
                free.pop(into, None)
                chosen.append(transfer)
            if not free:
                break
        for transfer in chosen:
            transfer.out.waiting.pop(transfer.number, None)
            transfer.into.waiting.pop(transfer.number, None)
            if not transfer.arrived.cancelled():
                self._begin(transfer)

    def _begin(self, transfer: _Transfer) -> None:
        """Let the bytes of a transfer flow that has taken both ways."""
        sender, receiver = transfer.sender, transfer.receiver
        jitter = log_normal(self._jitter[sender], sender.link_jitter)
        seconds = jitter * transfer.num_bytes / min(sender.up_bytes_per_s, receiver.down_bytes_per_s)
        asyncio.get_running_loop().call_later(seconds, self._free, transfer)
        self._arrive_in_order(transfer, seconds + jitter * max(sender.latency_s, receiver.latency_s))

    def _free(self, transfer: _Transfer) -> None:
        transfer.out.is_busy = transfer.into.is_busy = False
        self._look_at(transfer.out, transfer.into)

    def _arrive_in_order(self, transfer: _Transfer, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        pair = transfer.sender, transfer.receiver
        self.bytes_between[pair[0].name, pair[1].name] += transfer.num_bytes
        self.bytes_of[transfer.kind] += transfer.num_bytes
        arrival_s = max(loop.time() + seconds, self._last_arrival_s.get(pair, 0.0))
        self._last_arrival_s[pair] = arrival_s
        loop.call_at(arrival_s, _arrive, transfer.arrived)


def log_normal(random: Random, deviation: float) -> float:
    """A factor of mean 1 whose logarithm has this standard deviation; 1, and nothing drawn, for 0."""
    return exp(deviation * random.gauss(0.0, 1.0) - deviation**2 / 2) if deviation else 1.0


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
