"""Parameter servers in a virtual cluster, beside what two papers measured on theirs; a minute or two, 300 MB.

    python -m benchmarks.papers.servers            # all three:
    python -m benchmarks.papers.servers bsc        # Tables 1 and 2 of BSC (Campos et al., 2017): throughput, efficiency
    python -m benchmarks.papers.servers mullapudi  # Table 2 of Mullapudi (2017): a worker's own steps among 3, 7 and 11
    python -m benchmarks.papers.servers backup     # five workers, one throttled to a third: with and without a backup

The dispatcher, the loop of a worker and every message are those of a real run. Workers compute nothing: their parts
have the right sizes. The clusters below were written down before the first run, and nothing is fitted to what the
papers measured.
"""

from dataclasses import asdict
from itertools import pairwise, product
from typing import Any

import torch
from torch import nn

from augpipe.trainer.config.tables import OptimConfig
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation
from benchmarks.harness import Bench
from benchmarks.trainer.sized_cluster import LEASES, Costs, Setting, Sizes, measure, rates, times_of

# BSC: nodes of two dual K80 cards, four GPUs, that are one worker each
BATCH_SIZE = 128
"""4 x 32, section 6."""
ONE_NODE_IMAGES_PER_S = 124.18
"""Tables 1 and 2. A worker's computing takes 128 / 124.18 s, whatever else the node does."""
RESNET50 = 25_502_912, 54_120, 53_120, 53
"""Weights of two and more dimensions, other weights, and the running statistics and counts of batch normalisation."""
BSC_JITTER = 0.05
"""The paper does not say how steady its nodes are."""
BSC_LINKS = {"56 Gb/s": 56e9 * 64 / 66 / 8, "10 Gb/s": 10e9 / 8}
"""Bytes a second. Section 6 has "a 56Gb/s InfiniBand network": FDR, which codes 64 bits as 66. Their TensorFlow spoke
gRPC over TCP, of which one stream with its copies carries a fraction; 10 Gb/s, a round number, stands for that."""
BSC_LATENCY_S = 50e-6
"""What TCP over InfiniBand takes, roughly."""
BSC_TABLES = {  # workers, servers, whether they are on nodes of their own: images a second
    "Table 1": {(4, 3, True): 396.62, (4, 3, False): 374.73, (4, 1, False): 292.22},
    "Table 2": {(2, 1, False): 195.60, (4, 3, False): 383.09, (8, 7, False): 809.10},
}

# Mullapudi: MNIST, 64-64-10 tanh, machines of four virtual cores in one region of Google's cloud
MNIST_SIZES = (784, 64, 64, 10)
MNIST_STEPS = 550
"""An epoch of 55,000 images; the paper does not give the batch, 100 is assumed."""
MULLAPUDI = {"Downpour": (3.52, 3.53, 3.55), "delay compensated": (3.59, 3.61, 3.64)}
"""Table 2: average seconds of an epoch with 4, 8 and 12 nodes, one of them the server. All of the first is taken to be
computing, 6.4 ms a step, though their communication is in it."""
CLOUD_BYTES_PER_S, CLOUD_LATENCY_S, CLOUD_JITTER = 8e9 / 8, 150e-6, 0.05
"""2 Gb/s for each virtual core is what Google stated then; latency and jitter are assumed."""


def bsc_setting(costs: Costs, **about: Any) -> Setting:
    """One of their clusters."""
    return Setting(
        sizes=Sizes(*RESNET50), costs=costs, compute_s=BATCH_SIZE / ONE_NODE_IMAGES_PER_S, latency_s=BSC_LATENCY_S,
        jitter=BSC_JITTER, batch_size=BATCH_SIZE, **about,
    )  # fmt: skip


def resnet50_costs(bench: Bench) -> Costs:
    """A server's with RMSProp on all of ResNet-50's weights: those of a part of them, that much more."""
    num = bench.pick(6_400_000, 100_000)
    flat = FlatWeights(nn.Linear(2500, num // 2500, bias=False))
    return measure(flat, OptimConfig(name="rmsprop", lr=0.1)).times(sum(RESNET50[:2]) / num)


def run_bsc(bench: Bench) -> dict[str, object]:
    """All of 1, 2, 4 and 8 workers with 1, 3 and 7 servers, and their tables' rows beside theirs."""
    costs = resnet50_costs(bench)
    print(f"a server with all of ResNet-50 here, one core: {costs}")
    grid: list[dict[str, object]] = []
    numbers = bench.pick((1, 2, 4, 8), (4,)), bench.pick((1, 3, 7), (3,))
    for (link, rate), workers, servers, dedicated in product(BSC_LINKS.items(), *numbers, (True, False)):
        about = {"workers": workers, "servers": servers, "dedicated": dedicated}
        found = rates(bsc_setting(costs, bytes_per_s=rate, **about).run(), workers, BATCH_SIZE)
        speed_up, nodes = found["images_per_s"] / ONE_NODE_IMAGES_PER_S, workers + servers * dedicated
        key = workers, servers, dedicated
        theirs = {name: table[key] for name, table in BSC_TABLES.items() if key in table}
        row = {"link": link, **about, "nodes": nodes}
        grid.append(row | found | {"speed_up": speed_up, "efficiency": speed_up / nodes, "theirs": theirs})
        told = f"{found['images_per_s']:7.2f} images/s ({speed_up:.2f}, {speed_up / nodes:.2f})"
        print(f"{link}, {workers} workers, {servers} {'own   ' if dedicated else 'shared'}: {told} {theirs or ''}")
    return {"costs": asdict(costs), "grid": grid}


def run_mullapudi(bench: Bench) -> dict[str, object]:
    """Seconds of an epoch of a worker's own steps with 3, 7 and 11 workers beside one server."""
    layers = [nn.Linear(a, b) for a, b in pairwise(MNIST_SIZES)]
    table: dict[str, object] = {}
    for name, theirs in MULLAPUDI.items():
        flat = FlatWeights(nn.Sequential(*layers))
        compensation = Compensation(kind="adaptive", strength=2.0) if name != "Downpour" else None
        costs = measure(flat, OptimConfig(name="sgd", lr=0.1), compensation, rounds=bench.pick(200, 5))
        sizes, ours = Sizes(flat.num_wide, flat.values.numel() - flat.num_wide), []
        for workers in (3, 7, 11):
            setting = Setting(
                sizes=sizes, costs=costs, compute_s=theirs[0] / MNIST_STEPS, bytes_per_s=CLOUD_BYTES_PER_S,
                latency_s=CLOUD_LATENCY_S, jitter=CLOUD_JITTER, batch_size=100, workers=workers, servers=1,
                dedicated=True,
            )  # fmt: skip
            ours.append(MNIST_STEPS * workers * 100 / rates(setting.run(), workers, 100)["images_per_s"])
        table[name] = {"costs": asdict(costs), "epoch_s": ours, "theirs_s": theirs}
        for nodes, one, other in zip((4, 8, 12), ours, theirs, strict=True):
            more, their_more = (100 * (of / first - 1) for of, first in ((one, ours[0]), (other, theirs[0])))
            print(f"{name}, {nodes:2} nodes: {one:.3f} s, +{more:.2f} %; theirs {other:.2f} s, +{their_more:.2f} %")
    return table


def run_backup(bench: Bench) -> dict[str, object]:
    """Seconds for a number of samples: BSC's nodes with three shared servers, five workers, one three times as slow."""
    costs = resnet50_costs(bench)
    num_samples = BATCH_SIZE * 20 * LEASES // 2  # a whole number of steps of four and of five workers
    slow = {"factors": (1.0, 1.0, 1.0, 1.0, 3.0)}
    kinds: dict[str, dict[str, Any]] = {
        "5, sync": {"workers": 5, "mode": "sync", **slow},
        "4 + 1, sync": {"workers": 4, "backup": 1, "mode": "sync", **slow},
        "4 equal ones, sync": {"workers": 4, "mode": "sync"},
        "5, async": {"workers": 5, **slow},
    }
    table: dict[str, object] = {}
    shared = {"servers": 3, "dedicated": False, "num_samples": num_samples, "bytes_per_s": BSC_LINKS["56 Gb/s"]}
    for name, about in kinds.items():
        applied = bsc_setting(costs, **shared, **about).run()
        seconds, updates = times_of(applied)[-1], applied[-1].version
        of_slow = sum(one.worker == 4 for one in applied)
        table[name] = {"seconds": seconds, "updates": updates, "pushes": len(applied), "pushes_of_slow": of_slow}
        print(f"{name:20} {seconds:8.1f} s for {num_samples:,} images, {table[name]}")
    return table


RUNS = {"bsc": run_bsc, "mullapudi": run_mullapudi, "backup": run_backup}


def main() -> None:
    bench = Bench(__doc__, names=RUNS)
    torch.set_num_threads(1)
    for name in bench.names:
        bench.keep(f"servers_{name}", RUNS[name](bench))


if __name__ == "__main__":
    main()
