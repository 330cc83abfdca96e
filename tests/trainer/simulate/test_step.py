"""Steps on a virtual cluster, beside times worked out by hand, and one rank that stands for all beside all of them."""

from typing import Any

import pytest
import torch
from torch import nn

from augpipe.trainer.exchange.schedule import Collective
from augpipe.trainer.simulate.cluster_card import Card, WireRates
from augpipe.trainer.simulate.layers import Layer
from augpipe.trainer.simulate.links import OneForAll
from augpipe.trainer.simulate.step import play_steps
from augpipe.trainer.simulate.workload import Settings, Workload

QUICK = 1e18
"""A rate at which nothing takes time."""


def card(**fields: object) -> Card:
    wire = WireRates(encode=QUICK, decode=QUICK, add=QUICK)
    given: dict[str, object] = {
        "title": "for tests",
        "devices_per_node": 1,
        "nic_bytes_per_s": 1e6,
        "nic_latency_s": 0.0,
        "within_bytes_per_s": 1e6,
        "within_latency_s": 0.0,
        "flop_per_s": 1e9,
        "cores": 2,
        "collectives_at_once": 2,
        "copy_bytes_per_s": QUICK,
        "optimizer_bytes_per_s": QUICK,
        "wires": {"fp32": wire, "dynamic-tree": wire},
    }
    return Card.model_validate(given | fields)


def workload(
    cluster: Card, ranks: int, layer_s: float = 0.0, num: int = 4, size: int = 16384, **settings: object
) -> Workload:
    """`num` layers of `size` weights, each of which is `layer_s` forward and twice that backward."""
    weights = {nn.Parameter(torch.empty(size // 64, 64, device="meta")): str(i) for i in range(num)}
    layers = tuple(
        Layer(name=str(i), parameters=(i,), forward_s=layer_s, backward_s=2 * layer_s, output_bytes=0)
        for i in range(num)
    )
    options: dict[str, Any] = {"strategy": "butterfly", "bucket_bytes": 4 * size, **settings}
    return Workload(weights, layers, Settings(**options), cluster, ranks)


def payload_s(ranks: int, rate: float, num: int = 4, size: int = 16384) -> float:
    """Seconds that a link is busy with one step's weights in float32, without control data."""
    return 2 * 4 * num * size * (ranks - 1) / ranks / rate


@pytest.mark.parametrize("strategy", ["ddp", "butterfly", "lazy"])
def test_an_exchange_alone_takes_its_bytes_over_the_bandwidth(strategy: str) -> None:
    played = play_steps(workload(card(), 4, strategy=strategy))
    assert played.step_s == pytest.approx(payload_s(4, 1e6), rel=0.02)
    assert sum(played.exposed_s) == pytest.approx(played.ends_s[-1], rel=1e-6) or strategy == "lazy"


def test_computing_hides_all_but_the_last_exchange() -> None:
    quiet = play_steps(workload(card(nic_bytes_per_s=QUICK), 4, layer_s=1.0))
    assert quiet.step_s == pytest.approx(4 * 3.0)
    played = play_steps(workload(card(), 4, layer_s=1.0))
    # the first layer's gradient is complete last: its reduction, and all gathers that the schedule puts after it
    of_last = payload_s(4, 1e6) / 2 * (1 + 3) / 4
    assert played.step_s == pytest.approx(4 * 3.0 + of_last, rel=0.002)
    assert played.exposed_s[-1] == pytest.approx(of_last, rel=0.02)


def test_lazy_hides_its_gathers_behind_the_next_forward_pass() -> None:
    butterfly, lazy = (play_steps(workload(card(), 4, layer_s=1.0, strategy=name)) for name in ("butterfly", "lazy"))
    reduction = payload_s(4, 1e6) / 8
    assert lazy.step_s == pytest.approx(4 * 3.0 + 2 * reduction, rel=0.002)  # and the first layer's gather
    assert lazy.step_s < butterfly.step_s
    assert lazy.flushed_s > lazy.ends_s[-1]


def test_bytes_are_those_of_the_schedule() -> None:
    work = workload(card(), 4, codec="dynamic-tree")

    def num_bytes(kind: int, num: int) -> int:
        return num + 4 * -(-num // 256) + 64  # codes, scales, and a line of control data

    expected = work.exchange.bytes_sent(0, num_bytes)
    assert play_steps(work, 3).bytes_sent == pytest.approx(3 * expected, rel=0.01)


def test_a_codec_takes_its_time_where_nothing_else_does() -> None:
    wire = {"encode": 1e6, "decode": QUICK, "add": QUICK}
    slow = card(nic_bytes_per_s=QUICK, cores=1, wires={"fp32": wire})
    played = play_steps(workload(slow, 4))
    # others' slices are encoded for the reduction and the own for the gather, by one core
    assert played.step_s == pytest.approx(4 * 4 * 16384 / 1e6, rel=1e-3)
    shared = play_steps(workload(slow.model_copy(update={"machine_cores": 2}), 4))
    assert shared.step_s == pytest.approx(2 * played.step_s, rel=1e-3)


def test_devices_of_a_node_share_its_nic() -> None:
    apart, shared = (
        play_steps(workload(card(devices_per_node=num, within_bytes_per_s=QUICK), 4)).step_s for num in (1, 2)
    )
    # of three messages of a device two leave the node, and so do two of its neighbour's
    assert shared == pytest.approx(apart * 4 / 3, rel=0.02)


@pytest.mark.slow
def test_clipping_under_lazy_is_one_more_collective() -> None:
    late = card(nic_latency_s=0.5)
    without, clipped = (play_steps(workload(late, 2, strategy="lazy", clips=clips)).step_s for clips in (False, True))
    assert clipped == pytest.approx(without + 0.5, rel=1e-3)


def test_batches_that_are_added_up_exchange_once() -> None:
    one, two = (play_steps(workload(card(), 4, layer_s=1.0, passes=passes)) for passes in (1, 2))
    assert two.step_s == pytest.approx(one.step_s + 12.0, rel=1e-6)
    assert two.bytes_sent == one.bytes_sent


@pytest.mark.parametrize("strategy", ["ddp", "butterfly", "lazy"])
@pytest.mark.parametrize(("devices", "ranks"), [(1, 4), (2, 4), (4, 8), (4, 4)])
@pytest.mark.parametrize("layer_s", [0.0, 0.03])
def test_one_rank_stands_for_all(strategy: str, devices: int, ranks: int, layer_s: float) -> None:
    cluster = card(devices_per_node=devices, within_bytes_per_s=3e6, nic_latency_s=1e-4, within_latency_s=1e-5)
    work = workload(cluster, ranks, layer_s, strategy=strategy)
    full, one = play_steps(work, in_full=True), play_steps(work, in_full=False)
    assert one.step_s == pytest.approx(full.step_s, rel=0.03)
    assert one.bytes_sent == full.bytes_sent


def test_of_a_group_those_on_rank_0_s_node_are_near() -> None:
    links = OneForAll(card(devices_per_node=4), 8)
    assert [links.among(group)._near for group in ([0, 4], [0, 3], range(8))] == [1, 2, 4]


def test_what_a_rank_did_is_noted_in_order() -> None:
    work = workload(card(), 2, layer_s=0.1)
    played = play_steps(work, 2)
    issued = [span.what for span in played.spans if span.lane == "link"]
    assert sorted(issued) == sorted(2 * [str(one) for one in work.collectives])
    assert issued[0] == str(Collective(phase="reduce", bucket=0))
    assert [span.what for span in played.spans if span.lane == "compute"][:2] == ["0 forward", "1 forward"]
