"""Transfers between nodes, beside times worked out by hand."""

import asyncio
from collections.abc import Sequence

import pytest

from augpipe.trainer.simulate.clock import run_virtual
from augpipe.trainer.simulate.nics import Network, Node


def arrivals(nodes: Sequence[Node], transfers: Sequence[tuple[int, int, int]], seed: int = 0) -> list[float]:
    """When each of (sender, receiver, bytes) arrives if all are asked for at 0."""

    async def program() -> list[float]:
        network = Network(nodes, seed)

        async def send(sender: int, receiver: int, num_bytes: int) -> float:
            await network.send(nodes[sender], nodes[receiver], num_bytes, "slices")
            return asyncio.get_running_loop().time()

        return await asyncio.gather(*(send(*transfer) for transfer in transfers))

    return run_virtual(program())[0]


def nodes(num: int, latency_s: float = 0.0, link_jitter: float = 0.0) -> list[Node]:
    return [
        Node(
            name=f"node {i}",
            up_bytes_per_s=100,
            down_bytes_per_s=100,
            latency_s=latency_s,
            link_jitter=link_jitter,
        )
        for i in range(num)
    ]


def test_one_transfer_takes_its_bytes_and_its_latency() -> None:
    assert arrivals(nodes(2, latency_s=0.5), [(0, 1, 300)]) == [3.5]


def test_the_slower_end_decides() -> None:
    fast = Node(name="fast", up_bytes_per_s=1000, down_bytes_per_s=1000, latency_s=0.25)
    slow = Node(name="slow", up_bytes_per_s=10, down_bytes_per_s=100, latency_s=2)
    assert arrivals([fast, slow], [(0, 1, 100)]) == [1 + 2]
    assert arrivals([fast, slow], [(1, 0, 100)]) == [10 + 2]


def test_two_senders_to_one_receiver_take_twice_the_time() -> None:
    assert arrivals(nodes(3), [(0, 2, 100), (1, 2, 100)]) == [1, 2]


def test_one_sender_to_two_receivers_takes_twice_the_time() -> None:
    assert arrivals(nodes(3), [(0, 1, 100), (0, 2, 100)]) == [1, 2]


def test_pairs_and_both_directions_go_side_by_side() -> None:
    assert arrivals(nodes(4), [(0, 1, 100), (2, 3, 100), (1, 0, 100)]) == [1, 1, 1]


def test_latency_does_not_keep_the_nic() -> None:
    assert arrivals(nodes(2, latency_s=10), [(0, 1, 100), (0, 1, 100)]) == [11, 12]


def test_who_waits_for_a_busy_receiver_does_not_hold_up_another_one() -> None:
    #       0 -> 2 keeps 2's way in until 4; 1 -> 2 waits for it, and 1 -> 3, asked for later, goes first
    assert arrivals(nodes(4), [(0, 2, 400), (1, 2, 100), (1, 3, 100)]) == [4, 5, 1]


def test_the_first_asked_for_goes_first() -> None:
    assert arrivals(nodes(4), [(0, 3, 100), (1, 3, 200), (2, 3, 100), (0, 3, 100)]) == [1, 3, 4, 5]


def test_all_to_all_of_a_rotated_schedule_takes_its_rounds() -> None:
    ranks = 8
    schedule = [(rank, (rank + turn) % ranks, 100) for turn in range(1, ranks) for rank in range(ranks)]
    assert max(arrivals(nodes(ranks), schedule)) == ranks - 1


def test_within_a_node_bytes_need_no_nic() -> None:
    node = Node(name="a", up_bytes_per_s=1, within_bytes_per_s=100, within_latency_s=1)
    assert arrivals([node], [(0, 0, 100), (0, 0, 300), (0, 0, 100)]) == [2, 4, 4]  # in the order of asking


def test_the_order_of_a_pair_is_kept_with_jitter() -> None:
    times = arrivals(nodes(2, latency_s=50, link_jitter=1.0), [(0, 1, 10)] * 100)
    assert times == sorted(times)
    assert len(set(times)) > 2


@pytest.mark.slow
def test_jitter_is_given_by_the_seed_and_has_mean_one() -> None:
    transfers = [(0, 1, 100)] * 4000
    once = arrivals(nodes(2, link_jitter=0.3), transfers, seed=1)
    assert once == arrivals(nodes(2, link_jitter=0.3), transfers, seed=1)
    assert once != arrivals(nodes(2, link_jitter=0.3), transfers, seed=2)
    assert once[-1] == pytest.approx(4000, rel=0.03)  # the mean of 4000 has a deviation of 0.3 / √4000 = 0.5 %


def test_another_node_leaves_the_jitter_of_the_others() -> None:
    transfers = [(0, 1, 100)] * 10
    assert arrivals(nodes(2, link_jitter=0.3), transfers) == arrivals(nodes(3, link_jitter=0.3), transfers)


def test_a_cancelled_transfer_that_waits_is_never_sent() -> None:
    async def program() -> tuple[float, int]:
        a, b = nodes(2)
        network = Network([a, b])
        network.send(a, b, 100, "slices")
        waiting = network.send(a, b, 1000, "slices")
        last = network.send(a, b, 100, "slices")
        waiting.cancel()
        await last
        return asyncio.get_running_loop().time(), network.bytes_between["node 0", "node 1"]

    assert run_virtual(program())[0] == (2, 200)


def test_bytes_are_counted_by_pair_and_by_kind() -> None:
    async def program() -> Network:
        a, b = nodes(2)
        network = Network([a, b])
        network.send(a, b, 10, "weights")
        network.send(a, b, 20, "gradients")
        network.send(b, b, 40, "weights")
        await network.send(b, a, 80, "weights")
        await asyncio.sleep(10)
        return network

    network = run_virtual(program())[0]
    assert network.bytes_between == {("node 0", "node 1"): 30, ("node 1", "node 0"): 80, ("node 1", "node 1"): 40}
    assert network.bytes_of == {"weights": 130, "gradients": 20}


def test_two_nodes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="nodes: 2 are named 'a', and counts go by names. Give each its own name."):
        Network([Node(name="a"), Node(name="a")])
