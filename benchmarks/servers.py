"""Parameter servers in a virtual cluster, beside what two papers measured on theirs.

    python benchmarks/servers.py            # all three; a minute or two, 300 MB
    python benchmarks/servers.py bsc        # Tables 1 and 2 of BSC (Campos et al., 2017): throughput and efficiency
    python benchmarks/servers.py mullapudi  # Table 2 of Mullapudi (2017): a worker's own steps among 3, 7 and 11
    python benchmarks/servers.py backup     # five workers, one throttled to a third: with and without a backup worker

The dispatcher, the loop of a worker and every message are those of a real run. Workers compute nothing: their parts
have the right sizes. The clusters below were written down before the first run, and nothing is fitted to what the
papers measured.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import torch
from common import save
from sized_cluster import LEASES, Costs, Setting, Sizes, measure, throughput, times_of
from torch import nn

from augpipe.trainer.config.tables import OptimConfig
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation

# BSC: nodes of two dual K80 cards, four GPUs, that are one worker each
BATCH_SIZE = 128
"""4 x 32, section 6."""
ONE_NODE_IMAGES_PER_S = 124.18
"""Tables 1 and 2. A worker's computing takes 128 / 124.18 s, whatever else the node does."""
RESNET50 = 25_502_912, 54_120, 53_120, 53
"""Weights of two and more dimensions, other weights, and the running statistics and counts of batch normalisation."""
BSC_JITTER = 0.05
"""The paper does not say how steady its nodes are."""
BSC_LINKS = {
    "56 Gb/s": 56e9 * 64 / 66 / 8,
    "10 Gb/s": 10e9 / 8,
}
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
MNIST_EPOCH_S = {"Downpour": 3.52, "delay compensated": 3.59}
"""Table 2 with 4 nodes. All of it is taken to be computing, 6.4 ms a step, though their communication is in it."""
MULLAPUDI = {"Downpour": (3.52, 3.53, 3.55), "delay compensated": (3.59, 3.61, 3.64)}
"""Average seconds of an epoch with 4, 8 and 12 nodes, one of them the server."""
CLOUD_BYTES_PER_S, CLOUD_LATENCY_S, CLOUD_JITTER = 8e9 / 8, 150e-6, 0.05
"""2 Gb/s for each virtual core is what Google stated then; latency and jitter are assumed."""


def bsc_setting(costs: Costs, **about: Any) -> Setting:
    """One of their clusters."""
    settings: dict[str, Any] = {
        "sizes": Sizes(*RESNET50),
        "costs": costs,
        "compute_s": BATCH_SIZE / ONE_NODE_IMAGES_PER_S,
        "latency_s": BSC_LATENCY_S,
        "jitter": BSC_JITTER,
        "batch_size": BATCH_SIZE,
    }
    return Setting(**settings | about)


def resnet50_costs() -> Costs:
    """A server's with RMSProp on all of ResNet-50's weights: those of a quarter of them, four times."""
    quarter = 6_400_000
    flat = FlatWeights(nn.Linear(2500, quarter // 2500, bias=False))
    optim = OptimConfig(name="rmsprop", lr=0.1)
    return measure(flat, optim).times(sum(RESNET50[:2]) / quarter)


def run_bsc() -> dict[str, object]:
    """All of 1, 2, 4 and 8 workers with 1, 3 and 7 servers, and their tables' rows beside theirs."""
    costs = resnet50_costs()
    print(f"a server with all of ResNet-50 here, one core: {costs}")
    grid: list[dict[str, object]] = []
    for link, rate in BSC_LINKS.items():
        print(f"\n{link}: images a second (speed-up, efficiency) {{mean staleness}}")
        for workers in (1, 2, 4, 8):
            for servers in (1, 3, 7):
                for dedicated in (True, False):
                    setting = bsc_setting(
                        costs, bytes_per_s=rate, workers=workers, servers=servers, dedicated=dedicated
                    )
                    found = throughput(setting)
                    speed_up = found["images_per_s"] / ONE_NODE_IMAGES_PER_S
                    nodes = workers + servers if dedicated else workers
                    key = workers, servers, dedicated
                    theirs = {name: table[key] for name, table in BSC_TABLES.items() if key in table}
                    row = {"link": link, "workers": workers, "servers": servers, "dedicated": dedicated, "nodes": nodes}
                    grid.append(row | found | {"speed_up": speed_up, "efficiency": speed_up / nodes, "theirs": theirs})
                    print(
                        f"{workers} workers, {servers} {'own   ' if dedicated else 'shared'}: "
                        f"{found['images_per_s']:7.2f} ({speed_up:.2f}, {speed_up / nodes:.2f}) "
                        f"{{{found['mean_staleness']:.2f}}} {theirs or ''}"
                    )
    return {"costs": asdict(costs), "grid": grid}


def run_mullapudi() -> dict[str, object]:
    """Seconds of an epoch of a worker's own steps with 3, 7 and 11 workers beside one server."""
    layers = [nn.Linear(a, b) for a, b in pairwise(MNIST_SIZES)]
    table: dict[str, object] = {}
    for name, epoch_s in MNIST_EPOCH_S.items():
        flat = FlatWeights(nn.Sequential(*layers))
        compensation = Compensation(kind="adaptive", strength=2.0) if name != "Downpour" else None
        costs = measure(flat, OptimConfig(name="sgd", lr=0.1), compensation, rounds=200)
        sizes = Sizes(flat.num_wide, flat.values.numel() - flat.num_wide)
        ours = []
        for workers in (3, 7, 11):
            setting = Setting(
                sizes=sizes, costs=costs, compute_s=epoch_s / MNIST_STEPS, bytes_per_s=CLOUD_BYTES_PER_S,
                latency_s=CLOUD_LATENCY_S, jitter=CLOUD_JITTER, batch_size=100, workers=workers, servers=1,
                dedicated=True,
            )  # fmt: skip
            ours.append(MNIST_STEPS * workers * 100 / throughput(setting)["images_per_s"])
        theirs = MULLAPUDI[name]
        table[name] = {"costs": asdict(costs), "epoch_s": ours, "theirs_s": theirs}
        print(f"\n{name}: a server takes {costs}")
        for nodes, one, other in zip((4, 8, 12), ours, theirs, strict=True):
            print(
                f"{nodes:3} nodes: {one:.3f} s, +{100 * (one / ours[0] - 1):.2f} %; theirs {other:.2f} s, "
                f"+{100 * (other / theirs[0] - 1):.2f} %"
            )
    return table


def run_backup() -> dict[str, object]:
    """Seconds for a number of samples: BSC's nodes with three shared servers, five workers, one three times as slow."""
    costs = resnet50_costs()
    num_samples = BATCH_SIZE * 20 * LEASES // 2  # a whole number of steps of four and of five workers
    kinds: dict[str, dict[str, Any]] = {
        "5, sync": {"workers": 5, "mode": "sync"},
        "4 + 1, sync": {"workers": 4, "backup": 1, "mode": "sync"},
        "4 equal ones, sync": {"workers": 4, "mode": "sync", "factors": ()},
        "5, async": {"workers": 5},
    }
    table: dict[str, object] = {}
    print("\none of five workers takes three times as long")
    for name, about in kinds.items():
        settings: dict[str, Any] = {"factors": (1.0, 1.0, 1.0, 1.0, 3.0), "bytes_per_s": BSC_LINKS["56 Gb/s"]} | about
        setting = bsc_setting(costs, servers=3, dedicated=False, num_samples=num_samples, **settings)
        applied, _, _ = setting.run()
        seconds, updates = times_of(applied)[-1], applied[-1].version
        of_slow = sum(one.worker == 4 for one in applied)
        table[name] = {
            "seconds": seconds,
            "updates": updates,
            "pushes": len(applied),
            "pushes_of_slow": of_slow,
        }
        print(
            f"{name:20} {seconds:8.1f} s for {num_samples:,} images, {updates} updates of {seconds / updates:.3f} s; "
            f"{of_slow} of {len(applied)} pushes are the slow one's"
        )
    return table


RUNS: dict[str, Callable[[], dict[str, object]]] = {"bsc": run_bsc, "mullapudi": run_mullapudi, "backup": run_backup}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*RUNS, []], help="all, where nothing is named")
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.what or RUNS:
        found = RUNS[name]()
        if not options.no_save:
            save(f"servers_{name}", found)


if __name__ == "__main__":
    main()
