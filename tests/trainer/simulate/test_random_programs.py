"""Random programs on a virtual cluster run the same way twice, and time never goes back."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from augpipe.trainer.servers.messages import Peer, PeerLost
from augpipe.trainer.simulate.clock import run_virtual
from augpipe.trainer.simulate.cluster import Cluster
from augpipe.trainer.simulate.nics import Node
from augpipe.trainer.simulate.peers import MESSAGE_BYTES, VirtualPeer

NODES = 3
Trace = list[tuple[float, str, str]]

places = st.integers(0, NODES - 1)
sizes = st.integers(0, 5000)
ops = st.one_of(
    st.tuples(st.just("compute"), st.integers(0, 4)),
    st.tuples(st.just("give"), places, sizes),
    st.tuples(st.just("tell"), places, sizes),
    st.tuples(st.just("forward"), places, places, sizes),
    st.tuples(st.just("all"), sizes),
    st.tuples(st.just("kill"), places),
    st.tuples(st.just("revive"), places),
)
programs = st.lists(st.tuples(places, st.lists(ops, max_size=6)), min_size=1, max_size=5)


class Server:
    """Notes what it was told, in `trace`."""

    def __init__(self, name: str, trace: Trace) -> None:
        self.name = name
        self.trace = trace

    def note(self, what: str) -> None:
        self.trace.append((asyncio.get_running_loop().time(), self.name, what))

    def give(self, num_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        self.note(f"give {num_bytes}")
        return np.zeros(num_bytes, np.uint8)

    def tell(self, what: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        self.note(f"tell {len(what)}")

    async def forward(self, peer: Peer, num_bytes: int) -> tuple[Any, ...]:
        self.note("forward")
        await asyncio.sleep(0.5)
        return (peer.call("give", num_bytes),)


async def carry_out(op: tuple[Any, ...], cluster: Cluster, peers: list[VirtualPeer], trace: Trace) -> None:
    match op:
        case "compute", seconds:
            await cluster.compute(seconds)
        case "give", place, num_bytes:
            assert len(await peers[place].call("give", num_bytes)) == num_bytes
        case "tell", place, num_bytes:
            await peers[place].call("tell", np.zeros(num_bytes, np.uint8))
        case "forward", place, other, num_bytes:
            assert len(await (await peers[place].call("forward", peers[other], num_bytes))[0]) == num_bytes
        case "all", num_bytes:
            await asyncio.gather(*(peer.call("give", num_bytes) for peer in peers))
        case "kill", place:
            cluster.kill(peers[place])
        case "revive", place:
            peers[place].revive(Server(f"server {place}", trace))


async def run(program: list[tuple[int, list[Any]]], seed: int) -> tuple[Trace, dict[Any, int], dict[str, int]]:
    trace: Trace = []
    nodes = [
        Node(
            name=f"node {i}",
            up_bytes_per_s=1000 * (i + 1),
            down_bytes_per_s=2000,
            latency_s=0.1 * i,
            num_cores=2 if i else None,
            compute_jitter=0.3,
            link_jitter=0.2,
        )
        for i in range(NODES)
    ]
    cluster = Cluster(nodes, seed=seed, detection_s=0.7)
    peers = [
        VirtualPeer(
            cluster,
            node,
            Server(f"server {i}", trace),
            f"server {i}",
            lambda method, _: 0.3 if method == "give" else 0.0,
        )
        for i, node in enumerate(nodes)
    ]

    async def work(name: str, ops: list[Any]) -> None:
        for op in ops:
            try:
                await carry_out(op, cluster, peers, trace)
                outcome = "done"
            except PeerLost as lost:
                outcome = str(lost)
            trace.append((asyncio.get_running_loop().time(), name, f"{op}: {outcome}"))

    workers = [
        cluster.start(nodes[place], work(f"worker {i}", ops), f"worker {i}") for i, (place, ops) in enumerate(program)
    ]
    await asyncio.gather(*workers)
    return trace, cluster.network.bytes_between, cluster.network.bytes_of


CALLER_IS_KILLED = [
    (1, [("compute", 0), ("all", 410)]),
    (0, [("all", 0), ("tell", 2, 1543), ("kill", 2)]),
    (2, [("forward", 0, 0, 0), ("compute", 0), ("compute", 3), ("forward", 2, 0, 0)]),
]
"""Server 2 hands on the answer to a call of its own, and is killed while that call travels."""


@pytest.mark.slow
@settings(max_examples=150)
@given(programs, st.integers(0, 3))
@example(CALLER_IS_KILLED, 3)
def test_a_program_runs_the_same_way_twice_and_time_does_not_go_back(program: list[Any], seed: int) -> None:
    once = run_virtual(run(program, seed))
    assert once == run_virtual(run(program, seed))
    times = [at_s for at_s, _, _ in once[0][0]]
    assert times == sorted(times)
    assert sum(len(ops) for _, ops in program) == sum(who.startswith("worker") for _, who, _ in once[0][0])


@pytest.mark.slow
@settings(max_examples=100)
@given(programs)
def test_without_kills_bytes_are_those_of_the_formula(program: list[Any]) -> None:
    alive = [(place, [op for op in ops if op[0] not in ("kill", "revive")]) for place, ops in program]
    _, between, of_kind = run_virtual(run(alive, 0))[0]
    done = [op for _, ops in alive for op in ops]
    given = [op[-1] for op in done if op[0] in ("give", "forward")] + [op[-1] for op in done if op[0] == "all"] * NODES
    told = [op[-1] for op in done if op[0] == "tell"]
    forwarded = sum(op[0] == "forward" for op in done)
    assert of_kind["give"] == MESSAGE_BYTES * len(given)
    assert of_kind["give answer"] == MESSAGE_BYTES * len(given) + sum(given)
    assert of_kind["tell"] == MESSAGE_BYTES * len(told) + sum(told)
    assert of_kind["forward"] == of_kind["forward answer"] == MESSAGE_BYTES * forwarded
    assert sum(between.values()) == sum(of_kind.values())
