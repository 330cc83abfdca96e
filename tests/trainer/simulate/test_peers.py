"""Peers in a virtual cluster: whose bytes travel where and when, in which order, and what a kill does."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from augpipe.trainer.servers.messages import Peer, PeerLost
from augpipe.trainer.simulate.clock import Deadlock, run_virtual
from augpipe.trainer.simulate.cluster import Cluster
from augpipe.trainer.simulate.nics import Node
from augpipe.trainer.simulate.peers import MESSAGE_BYTES, VirtualPeer, num_bytes_of

RATE = 1024.0
"""Bytes a second of every NIC here: MESSAGE_BYTES takes a quarter of a second."""
MESSAGE_S = MESSAGE_BYTES / RATE


def now_s() -> float:
    return asyncio.get_running_loop().time()


@dataclass(frozen=True)
class Grant:
    lease: int
    weights: tuple[Awaitable[Any], ...]


class Store:
    """Hands out what it is asked for, and notes what it was told, and when."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.event = asyncio.Event()

    def give(self, num_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.zeros(num_bytes, np.uint8)

    def tell(self, what: Any) -> int:
        self.told.append(what)
        return len(self.told)

    async def wait(self) -> float:
        await self.event.wait()
        return now_s()

    def go(self) -> None:
        self.event.set()

    async def forward(self, server: Peer, num_bytes: int) -> Grant:
        return Grant(7, (server.call("give", num_bytes),))

    def refuse(self) -> None:
        raise ValueError("refused")

    def kill(self, cluster: Cluster, peer: VirtualPeer) -> str:
        cluster.kill(peer)
        return "killed"


class Setting:
    """Nodes a, b and c; `run` runs a coroutine as a process of one of them and gives what it returns."""

    def __init__(self, *, detection_s: float = 2.0, **options: Any) -> None:
        self.nodes = {
            name: Node(name=name, up_bytes_per_s=RATE, down_bytes_per_s=RATE, **options) for name in ("a", "b", "c")
        }
        self.cluster = Cluster(list(self.nodes.values()), detection_s=detection_s)

    def peer(
        self, node: str, seconds_of: Callable[[str, tuple[Any, ...]], float] | None = None, name: str = "store"
    ) -> VirtualPeer:
        return VirtualPeer(self.cluster, self.nodes[node], Store(), name, seconds_of)

    def start(self, node: str, coroutine: Coroutine[Any, Any, Any], name: str = "worker") -> asyncio.Task[Any]:
        return self.cluster.start(self.nodes[node], coroutine, name)


def in_cluster(program: Callable[[Setting], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    """Run `program(setting)` as a process of node a."""

    async def main() -> Any:
        setting = Setting(**options)
        return await setting.start("a", program(setting), "main")

    return run_virtual(main())[0]


def test_a_virtual_peer_is_a_peer() -> None:
    async def program(s: Setting) -> None:
        peer: Peer = s.peer("b")
        assert await peer.call("tell", 1) == 1

    in_cluster(program)


def test_bytes_of_what_a_message_holds() -> None:
    array, tensor = np.zeros((3, 5), np.float32), torch.zeros(7, dtype=torch.float16)
    message = {"grant": Grant(3, ()), "parts": [array, (tensor, b"four")], "name": "no bytes", "none": None}
    assert num_bytes_of(message) == 60 + 14 + 4
    assert num_bytes_of(Grant(1, (array, tensor))) == 74  # type of the field is not looked at


def test_a_call_and_its_answer_take_their_bytes() -> None:
    async def program(s: Setting) -> tuple[float, dict[str, int]]:
        await s.peer("b").call("give", 2048)
        return now_s(), s.cluster.network.bytes_of

    seconds, num_bytes = in_cluster(program)
    assert seconds == MESSAGE_S + MESSAGE_S + 2
    assert num_bytes == {"give": MESSAGE_BYTES, "give answer": MESSAGE_BYTES + 2048}


def test_arguments_travel_and_are_handed_over_as_they_are() -> None:
    async def program(s: Setting) -> float:
        peer, sent = s.peer("b"), np.ones(1024, np.uint8)
        call = peer.call("tell", sent)
        await asyncio.sleep(1)
        await call
        assert peer._target is not None
        assert s.cluster.network.bytes_between == {("a", "b"): 1024 + MESSAGE_BYTES, ("b", "a"): MESSAGE_BYTES}
        return now_s()

    assert in_cluster(program) == 1 + 2 * MESSAGE_S


def test_an_answer_that_nobody_awaits_does_not_travel() -> None:
    async def program(s: Setting) -> None:
        s.peer("b").call("give", 2048)
        await asyncio.sleep(10)
        assert s.cluster.network.bytes_between == {("a", "b"): MESSAGE_BYTES}

    in_cluster(program)


def test_an_answer_handed_on_travels_from_who_has_it_to_who_awaits_it() -> None:
    async def program(s: Setting) -> dict[tuple[str, str], int]:
        dispatcher, server = s.peer("b", name="dispatcher"), s.peer("c", name="server")
        grant = await dispatcher.call("forward", server, 2048)
        assert s.cluster.network.bytes_between["c", "a"] == 0
        assert len(await grant.weights[0]) == 2048
        return s.cluster.network.bytes_between

    assert in_cluster(program) == {
        ("a", "b"): MESSAGE_BYTES,
        ("b", "c"): MESSAGE_BYTES,
        ("b", "a"): MESSAGE_BYTES,
        ("c", "a"): MESSAGE_BYTES + 2048,
    }


def test_one_server_and_two_workers_contend_for_its_nic() -> None:
    async def program(s: Setting) -> list[float]:
        server = s.peer("c")

        async def pull() -> float:
            await server.call("give", 1024)
            return now_s()

        return await asyncio.gather(s.start("a", pull()), s.start("b", pull()))

    # calls arrive at 1/4 and 1/2; the first answer keeps the way out until 3/2, the second one goes after it
    assert in_cluster(program) == [1.5, 2.75]


def test_calls_begin_in_the_order_in_which_they_were_made() -> None:
    async def program(s: Setting) -> list[int]:
        peer, store = s.peer("b"), Store()
        peer.revive(store)
        sizes = [4000, 0, 10, 3000, 1]
        await asyncio.gather(*(peer.call("tell", np.zeros(size, np.uint8)) for size in sizes))
        return [len(told) for told in store.told]

    assert in_cluster(program, link_jitter=1.0, latency_s=9) == [4000, 0, 10, 3000, 1]


def test_an_object_takes_one_call_at_a_time() -> None:
    async def program(s: Setting) -> list[float]:
        peer = s.peer("a", lambda method, args: float(args[0]))  # on this node: no time on the way

        async def tell(seconds: float) -> float:
            await peer.call("tell", seconds)
            return now_s()

        return await asyncio.gather(tell(3), tell(1), tell(2))

    assert in_cluster(program) == [3, 4, 6]


def test_a_method_that_waits_blocks_no_other() -> None:
    async def program(s: Setting) -> float:
        peer = s.peer("a", lambda method, args: 1.0)
        waiting = peer.call("wait")
        await asyncio.sleep(5)
        await peer.call("go")
        value: float = await waiting
        return value

    assert in_cluster(program) == 6


def test_what_a_method_raises_is_raised_where_it_is_awaited() -> None:
    async def program(s: Setting) -> None:
        peer = s.peer("b")
        refused, missing = peer.call("refuse"), peer.call("no_such_method")
        with pytest.raises(ValueError, match="refused"):
            await refused
        with pytest.raises(AttributeError, match="no_such_method"):
            await missing
        assert await peer.call("tell", 1) == 1

    in_cluster(program)


def test_who_awaits_the_killed_learns_it_after_the_detection_and_who_calls_later_at_once() -> None:
    async def program(s: Setting) -> list[float]:
        peer, times = s.peer("b"), []
        waiting = peer.call("wait")
        await asyncio.sleep(5)
        s.cluster.kill(peer)
        for call in (waiting, peer.call("tell", 1), peer.call("tell", 1)):
            with pytest.raises(PeerLost, match="store on b is lost"):
                await call
            times.append(now_s())
        await asyncio.sleep(5)
        with pytest.raises(PeerLost):
            await peer.call("tell", 1)
        return [*times, now_s()]

    assert in_cluster(program) == [7, 7, 7, 12]


def test_an_answer_not_fetched_and_one_on_its_way_are_lost_with_their_peer() -> None:
    async def program(s: Setting) -> float:
        peer = s.peer("b")
        kept, sent = peer.call("give", 1024), peer.call("give", 10240)
        fetching = asyncio.ensure_future(sent)
        await asyncio.sleep(5)
        s.cluster.kill(peer)
        for call in (kept, fetching):
            with pytest.raises(PeerLost):
                await call
        return now_s()

    assert in_cluster(program) == 7


def test_a_killed_worker_ends_with_all_its_tasks_and_sends_nothing_more() -> None:
    async def program(s: Setting) -> None:
        peer, store, ended = s.peer("a"), Store(), []
        peer.revive(store)

        async def beside() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                ended.append(now_s())
                peer.call("tell", "after its death")

        async def work() -> None:
            asyncio.create_task(beside(), name="beside").add_done_callback(lambda task: None)
            await peer.call("tell", "alive")
            await peer.call("tell", np.zeros(10240, np.uint8))

        worker = s.start("b", work())
        await asyncio.sleep(3)
        s.cluster.kill(worker)
        with pytest.raises(asyncio.CancelledError):
            await worker
        await asyncio.sleep(100)
        assert ended == [3]
        assert store.told == ["alive"]  # the second one was on its way

    in_cluster(program)


def test_a_killed_node_takes_all_that_runs_on_it_and_nothing_else() -> None:
    async def program(s: Setting) -> None:
        there, elsewhere = s.peer("b", name="there"), s.peer("c", name="elsewhere")
        worker = s.start("b", asyncio.sleep(100))
        s.cluster.kill(s.nodes["b"])
        with pytest.raises(PeerLost):
            await there.call("tell", 1)
        assert worker.cancelled()
        assert await elsewhere.call("tell", 1) == 1

    in_cluster(program)


def test_the_revived_knows_nothing_of_what_was_before() -> None:
    async def program(s: Setting) -> tuple[list[Any], float]:
        peer, store = s.peer("b"), Store()
        before, on_its_way = peer.call("wait"), peer.call("tell", "before")
        await asyncio.sleep(0.3)
        s.cluster.kill(peer)
        peer.revive(store, s.nodes["c"])
        assert await peer.call("tell", "after") == 1
        assert ("a", "c") in s.cluster.network.bytes_between
        for call in (before, on_its_way):
            with pytest.raises(PeerLost):
                await call
        return store.told, now_s()

    assert in_cluster(program) == (["after"], 2.3)


def test_a_peer_that_is_busy_may_be_killed_and_begun_anew() -> None:
    async def program(s: Setting) -> list[Any]:
        peer, store = s.peer("a", lambda method, args: 1.0), Store()
        lost = [peer.call("tell", i) for i in range(3)]
        await asyncio.sleep(1.5)
        peer.revive(store)
        assert await peer.call("tell", "new") == 1
        results = await asyncio.gather(*lost, return_exceptions=True)
        assert all(isinstance(result, PeerLost) for result in results)
        return store.told

    assert in_cluster(program) == ["new"]


def test_a_peer_may_be_killed_from_within() -> None:
    async def program(s: Setting) -> None:
        peer, store = s.peer("a"), Store()
        peer.revive(store)
        calls = peer.call("kill", s.cluster, peer), peer.call("tell", "dead")
        assert all(isinstance(r, PeerLost) for r in await asyncio.gather(*calls, return_exceptions=True))
        assert store.told == []

    in_cluster(program)


def test_cancelling_one_who_awaits_leaves_the_answer_to_the_others() -> None:
    async def program(s: Setting) -> float:
        peer = s.peer("b")
        answer = peer.call("wait")

        async def wait() -> Any:
            return await answer

        first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(1)
        first.cancel()
        await peer.call("go")
        value: float = await second
        return value

    assert in_cluster(program) == 1 + MESSAGE_S


def test_computing_takes_cores_where_they_are_counted() -> None:
    async def program(s: Setting) -> float:
        await asyncio.gather(*(s.cluster.compute(3) for _ in range(4)))
        return now_s()

    assert in_cluster(program) == 3
    assert in_cluster(program, num_cores=2) == 6


def test_computing_has_the_nodes_jitter_of_mean_one() -> None:
    async def program(s: Setting) -> list[float]:
        times = []
        for _ in range(2000):
            begun_s = now_s()
            await s.cluster.compute(2)
            times.append(now_s() - begun_s)
        return times

    times = in_cluster(program, compute_jitter=0.5)
    assert times == in_cluster(program, compute_jitter=0.5)
    assert np.mean(times) == pytest.approx(2, rel=0.05)  # the mean has a deviation of 1.2 %
    assert np.std(np.log(times)) == pytest.approx(0.5, rel=0.1)


def test_a_task_of_no_process_is_told_how_to_begin_one() -> None:
    async def main() -> None:
        peer = Setting().peer("b")
        with pytest.raises(RuntimeError, match="belongs to no process .* Begin it by cluster.start"):
            peer.call("tell", 1)

    run_virtual(main())


def test_a_deadlock_names_the_method_that_waits() -> None:
    async def program(s: Setting) -> None:
        await s.peer("b", name="dispatcher").call("wait")

    with pytest.raises(Deadlock, match=r"dispatcher\.wait \(Event\.wait, line") as caught:
        in_cluster(program)
    assert "main (" in str(caught.value)


@pytest.mark.slow
def test_ray_is_not_imported() -> None:
    code = "import sys, augpipe.trainer.simulate.peers; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
