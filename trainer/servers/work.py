"""The loop of a worker: a lease, the weights, a push; the same over Ray and under a virtual clock."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from augpipe.trainer.servers.messages import Grant, Outcome, Part, Peer, PeerLost
from augpipe.trainer.servers.worker import Computed, Worker

Compute = Callable[[Worker, Grant], Awaitable[Computed]]
"""Computes a grant's lease; a virtual cluster lets time pass besides."""


async def compute(worker: Worker, grant: Grant) -> Computed:
    """Really, here and now."""
    return worker.compute(grant.lease, grant.upcoming, grant.lr)


async def work(
    number: int, digest: str, worker: Worker, dispatcher: Peer, servers: Sequence[Peer], compute: Compute = compute
) -> int:
    """Train on what the dispatcher hands out until nothing is left; returns the pushes that counted.

    Args:
        number: the worker's.
        digest: what all workers must agree on.
        worker: does the computing.
        dispatcher: hands out leases, and says what counts.
        servers: in order.
        compute: how a lease is computed.

    Raises:
        ValueError: the worker has no place in this run.
        RunFailed: the run has failed.
        PeerLost: the dispatcher is no more.
    """
    clock = asyncio.get_running_loop().time
    num_counted = 0
    await dispatcher.call("join", number, digest)
    asked = clock()
    while (grant := await dispatcher.call("next", number)) is not None:
        got = await _load(worker, grant, dispatcher)
        if got is None:
            continue
        begun = clock()
        done = await compute(worker, grant)
        computed = clock()
        if done.is_finite and not await _push(number, grant, done.parts, dispatcher, servers):
            worker.settle(counted=False)
            continue
        outcome = Outcome(
            loss_sum=done.loss_sum,
            num_correct=done.num_correct,
            num_samples=done.num_samples,
            is_finite=done.is_finite,
            wait_s=begun - asked,
            data_s=done.data_s,
            compute_s=computed - begun - done.data_s,
            push_s=clock() - computed,
            sent_bytes=_num_bytes(done.parts),
            got_bytes=got,
        )
        asked = clock()
        counts = await dispatcher.call("commit", number, grant.lease.name, outcome)
        if done.is_finite:
            worker.settle(counted=counts)
        num_counted += counts
    return num_counted


async def _load(worker: Worker, grant: Grant, dispatcher: Peer) -> int | None:
    """Take on the weights that come with a grant; returns their bytes, None where a server was lost."""
    if grant.afresh:
        worker.begin_afresh()
    if grant.weights is None:
        return 0
    parts: list[Part] | None = await _all_of(grant.weights, grant, dispatcher)
    if parts is None:
        return None
    worker.load(parts)
    return _num_bytes(parts)


async def _push(number: int, grant: Grant, parts: Sequence[Part], dispatcher: Peer, servers: Sequence[Peer]) -> bool:
    """Give each server its part; whether all have theirs."""
    name = grant.lease.name
    replies = [server.call("stage", number, name, part) for server, part in zip(servers, parts, strict=True)]
    return await _all_of(replies, grant, dispatcher) is not None


async def _all_of(replies: Sequence[Awaitable[Any]], grant: Grant, dispatcher: Peer) -> list[Any] | None:
    """What each server answers; None where one was lost, which the dispatcher is told."""
    found = await asyncio.gather(*replies, return_exceptions=True)
    lost = [index for index, one in enumerate(found) if isinstance(one, PeerLost)]
    for index in lost:
        await dispatcher.call("lost", index, grant.number)
    for one in found:
        if isinstance(one, BaseException) and not isinstance(one, PeerLost):
            raise one
    return None if lost else found


def _num_bytes(parts: Sequence[Part]) -> int:
    arrays = (array for part in parts for array in (part.wide, part.narrow, part.buffers, part.counts))
    return sum(array.nbytes for array in arrays if array is not None)
