"""Convergence against ranks at the same batch a rank, which Deep Image's Figure 4 shows: do more learn as much sooner?

A small network on CIFAR-10 over one to eight ranks (Gloo) of this machine, in data parallel: a butterfly in fp32, and
lazy updates in 8 bits with no error feedback, which is the default. Each rank takes 32 images a step, so the global
batch grows with the ranks, and the number of steps in an epoch falls. The learning rate is in proportion to the ranks
and rises over the first epoch (Goyal et al. 2017). All runs see the same images as often, and a seed fixes the first
weights and the order of the samples. One rank has nobody to exchange with, so that both kinds are the same there.

What would be the time on a machine with a core for each rank is told by the samples a rank has seen: ranks of these
runs outnumber the cores and share them with other work, and their wall time says nothing.

    AUGPIPE_DATA=FOLDER python benchmarks/convergence.py --kept KEPT
    AUGPIPE_DATA=FOLDER python benchmarks/convergence.py --kept KEPT --ranks 1 --try-lr 0.05 0.1   # how it was chosen
    AUGPIPE_DATA=FOLDER python benchmarks/convergence.py --kept KEPT --report-only

Each finished run is kept at once; started again, only what is missing is run.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import save
from dettmers import cifar10
from torch import Tensor, nn

from augpipe.trainer import model as build
from augpipe.trainer import strategy

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "convergence-ranks.png"
NUM_RANKS = (1, 2, 4, 8)
SEEDS, TRIED_SEED = (0, 1), 100
KINDS = {"butterfly fp32": ("butterfly", "fp32"), "lazy 8 bits": ("lazy", "dynamic-tree")}
"""The strategy and codec of each."""
NUM_IMAGES, EPOCHS, RANK_BATCH, WIDTH = 10_000, 10, 32, 16
LR, MOMENTUM, WEIGHT_DECAY, WARM_UP_EPOCHS = 0.05, 0.9, 0.0005, 1
"""The learning rate is that of one rank."""
TARGETS = (50.0, 55.0, 60.0)
"""Test accuracies in %, to which samples a rank are counted."""
EVALUATION_BATCH = 500
COLOURS = {1: "#444444", 2: "#3b6ea5", 4: "#c8641e", 8: "#4c8c4a"}


def load() -> dict[str, Tensor]:
    """CIFAR-10 in memory that ranks share: the first training images of a fixed mixed order, and all test images."""
    data = cifar10(Path(os.environ["AUGPIPE_DATA"]))
    some = torch.randperm(len(data["train_labels"]), generator=torch.Generator().manual_seed(0))[:NUM_IMAGES]
    data |= {name: data[name][some] for name in ("train_images", "train_labels")}
    return {name: values.clone().share_memory_() for name, values in data.items()}


@torch.no_grad()
def evaluate(network: nn.Module, data: dict[str, Tensor]) -> tuple[float, float]:
    """Accuracy and mean loss on the test images, of which each rank looks at its part; running statistics averaged."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    for buffer in network.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= ranks
    network.eval()
    images, labels = (data[f"test_{part}"][rank::ranks] for part in ("images", "labels"))
    total = torch.zeros(2, dtype=torch.float64)
    for batch, wanted in zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
        logits = network(batch)
        total[0] += (logits.argmax(1) == wanted).sum()
        total[1] += nn.functional.cross_entropy(logits, wanted, reduction="sum")
    dist.all_reduce(total)
    network.train()
    right, loss = (total / len(data["test_labels"])).tolist()
    return right, loss


def lr_factor(step: int, steps: int) -> float:
    """Rising over the first epochs, then a cosine to zero; `steps` are those of an epoch."""
    warm_up, num = WARM_UP_EPOCHS * steps, EPOCHS * steps
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1.0 + math.cos(math.pi * (step - warm_up) / (num - warm_up)))


def train(kind: str, seed: int, lr: float, data: dict[str, Tensor]) -> dict[str, Any]:
    """One run; accuracy and loss on the test images after each epoch."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    name, codec = KINDS[kind]
    start, cpu = time.perf_counter(), time.process_time()
    torch.manual_seed(seed)
    network = build("small-cnn", num_classes=10, width=WIDTH)
    optimizer = partial(torch.optim.SGD, lr=lr * ranks, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    sync = strategy(name, network, optimizer, codec=codec)
    steps = NUM_IMAGES // (RANK_BATCH * ranks)
    accuracies, losses = [], []
    for epoch in range(EPOCHS):
        drawn = torch.Generator().manual_seed(seed * 1000 + epoch)
        order = torch.randperm(NUM_IMAGES, generator=drawn)
        is_flipped = torch.rand(NUM_IMAGES, generator=drawn) < 0.5
        for step in range(steps):
            first = (step * ranks + rank) * RANK_BATCH
            batch = order[first : first + RANK_BATCH]
            images = data["train_images"][batch]
            images = torch.where(is_flipped[batch, None, None, None], images.flip(3), images)
            sync.set_lr(lr_factor(epoch * steps + step, steps))
            nn.functional.cross_entropy(sync.module(images), data["train_labels"][batch]).backward()
            sync.step()
        sync.flush()
        accuracy, loss = evaluate(network, data)
        accuracies.append(accuracy)
        losses.append(round(loss, 5))
    num_bytes = sum(sync.meter.total.values())
    sync.close()
    cpu_seconds = torch.tensor(time.process_time() - cpu)
    dist.all_reduce(cpu_seconds)
    return {
        "kind": kind,
        "ranks": ranks,
        "seed": seed,
        "lr": lr * ranks,
        "accuracies": accuracies,
        "losses": losses,
        "bytes a step": round(num_bytes / (steps * EPOCHS)),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(cpu_seconds.item(), 1),
    }


def file_of(kept: Path, kind: str, ranks: int, seed: int) -> Path:
    """Where a run is kept."""
    return kept / f"{kind.replace(' ', '-')}-{ranks}-{seed}.json"


def work(rank: int, port: int, ranks: int, jobs: list[tuple[str, int, float, Path]], data: dict[str, Tensor]) -> None:
    """One rank: the given runs (kind, seed, learning rate of one rank, file), one after the other."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, ranks, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    for kind, seed, lr, path in jobs:
        run = train(kind, seed, lr, data)
        if rank == 0:
            path.write_text(json.dumps(run))
            took = f"{run['cpu_seconds']:.0f} s of CPU, {run['seconds']:.0f} s"
            reached = f"{100 * run['accuracies'][-1]:.2f} %, loss {run['losses'][-1]:.4f}"
            print(f"{kind}, {ranks} ranks, seed {seed}, lr {lr * ranks:g}: {reached}, {took}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


def launch(ranks: int, jobs: list[tuple[str, int, float, Path]], data: dict[str, Tensor]) -> None:
    """Start the ranks, and wait for them."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.multiprocessing.spawn(work, (server.port, ranks, jobs, data), nprocs=ranks)


def by_seed(values: list[float]) -> dict[str, Any]:
    """Each seed's and the mean; two seeds are too few for an interval."""
    return {"each seed": [round(value, 2) for value in values], "mean": round(statistics.mean(values), 2)}


def epochs_to(target: float, accuracies: list[float]) -> float | None:
    """Epochs after which a test accuracy is reached first, on straight lines between the ends of epochs; None: never.

    Before the first epoch it is that of guessing among ten classes.
    """
    before = 10.0
    for epoch, accuracy in enumerate(accuracies):
        if accuracy >= target:
            return epoch + (target - before) / (accuracy - before)
        before = accuracy
    return None


def table_of(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each kind and number of ranks: what was reached, beside one rank and beside fp32, seed by seed."""
    found = {(run["kind"], run["ranks"], run["seed"]): [100 * one for one in run["accuracies"]] for run in runs}
    fp32, _ = KINDS
    seeds = sorted({seed for _, _, seed in found})
    rows = []
    for ranks, kind in sorted({(ranks, kind) for kind, ranks, _ in found}):
        last, one, plain = (
            [found[name, num, seed][-1] for seed in seeds] for name, num in ((kind, ranks), (fp32, 1), (fp32, ranks))
        )
        mine = [run for run in runs if (run["kind"], run["ranks"]) == (kind, ranks)]
        curves = [found[kind, ranks, seed] for seed in seeds]
        row: dict[str, Any] = {
            "kind": kind if ranks > 1 else "one rank",
            "ranks": ranks,
            "global batch": RANK_BATCH * ranks,
            "learning rate": mine[0]["lr"],
            "steps": NUM_IMAGES // (RANK_BATCH * ranks) * EPOCHS,
            "samples a rank": NUM_IMAGES // (RANK_BATCH * ranks) * RANK_BATCH * EPOCHS,
            "test accuracy, %": by_seed(last),
            "test loss": round(statistics.mean(run["losses"][-1] for run in mine), 4),
            "accuracy after each epoch, mean, %": [round(statistics.mean(at), 2) for at in zip(*curves, strict=True)],
            "bytes that rank 0 sends a step": mine[0]["bytes a step"],
            "CPU seconds of all ranks, median": round(statistics.median(run["cpu_seconds"] for run in mine)),
        }
        if ranks > 1:
            row["less one rank, same seeds, points"] = by_seed([a - b for a, b in zip(last, one, strict=True)])
        if kind != fp32:
            row["less fp32, same seeds, points"] = by_seed([a - b for a, b in zip(last, plain, strict=True)])
        for target in TARGETS:
            epochs = [epochs_to(target, curve) for curve in curves]
            if None not in epochs:
                mean = statistics.mean(epochs)
                first = statistics.mean(epochs_to(target, found[fp32, 1, seed]) for seed in seeds)
                row[f"to {target:g} %"] = {
                    "epochs": round(mean, 2),
                    "samples a rank": round(mean * NUM_IMAGES / ranks),
                    "one rank's samples over these": round(first / (mean / ranks), 2),
                }
        rows.append(row)
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Test accuracy by epochs, and by the samples that a rank has seen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.4, 4.0), layout="constrained")
    by_epochs, by_samples = figure.subplots(1, 2, sharey=True)
    for row in rows:
        means = row["accuracy after each epoch, mean, %"]
        epochs = range(1, len(means) + 1)
        is_fp32 = "8 bits" not in row["kind"]
        label = "1 rank" if row["ranks"] == 1 else f"{row['ranks']} ranks, {row['kind']}"
        look = {
            "color": COLOURS[row["ranks"]],
            "linestyle": "-" if is_fp32 else "--",
            "marker": "o" if is_fp32 else "s",
            "markersize": 3,
            "linewidth": 1.3,
        }
        by_epochs.plot(epochs, means, label=label, **look)
        by_samples.plot([row["samples a rank"] / len(means) * epoch for epoch in epochs], means, **look)
    figure.suptitle("CIFAR-10, mean of two seeds: the same batch on each rank", fontsize=10)
    by_samples.set_xscale("log", base=2)
    ticks = (1250, 2500, 5000, 10_000, 20_000, 50_000, 100_000)
    by_samples.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    by_samples.minorticks_off()
    by_epochs.set_xlabel("epochs", fontsize=9)
    by_samples.set_xlabel("images that a rank has seen", fontsize=9)
    by_epochs.set_ylabel("test accuracy, %", fontsize=9)
    by_epochs.legend(fontsize=8, frameon=False, loc="lower right")
    for panel in (by_epochs, by_samples):
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drawn in {path}")


def report(kept: Path) -> None:
    """Keep the table of what is there, and draw it."""
    paths = [
        file_of(kept, kind, ranks, seed)
        for seed, ranks in itertools.product(SEEDS, NUM_RANKS)
        for kind in list(KINDS)[: min(ranks, 2)]
    ]
    runs = [json.loads(path.read_text()) for path in paths if path.exists()]
    tried = [json.loads(path.read_text()) for path in sorted(kept.glob("tried-*.json"))]
    rows = table_of(runs)
    save(
        "convergence_ranks",
        {
            "what": f"CIFAR-10, {NUM_IMAGES:,} training images with random flips, {EPOCHS} epochs, all 10,000 test "
            f"images after each; small-cnn of width {WIDTH}, {RANK_BATCH} images a rank and step, sgd lr {LR:g} times "
            f"the ranks, momentum {MOMENTUM:g}, weight decay {WEIGHT_DECAY:g}, rising over {WARM_UP_EPOCHS} epoch, "
            "then falling as a cosine; no error feedback",
            "command": "AUGPIPE_DATA=FOLDER nice -n 10 python benchmarks/convergence.py --kept KEPT",
            f"learning rates tried with seed {TRIED_SEED}": [
                {"ranks": run["ranks"], "learning rate": run["lr"], "test accuracy, %": round(100 * accuracy, 2)}
                for run in sorted(tried, key=lambda run: (run["ranks"], run["lr"]))
                for accuracy in run["accuracies"][-1:]
            ],
            "rows": rows,
            "runs": runs,
            "CPU seconds, all runs": round(sum(run["cpu_seconds"] for run in runs + tried)),
        },
    )
    draw(rows, FIGURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True, help="folder for finished runs")
    parser.add_argument("--ranks", type=int, nargs="+", default=list(NUM_RANKS), help="these alone, for now")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--try-lr", type=float, nargs="+", help="only print what fp32 reaches at these times the ranks")
    parser.add_argument("--report-only", action="store_true", help="table and figure of what is there")
    chosen = parser.parse_args()
    if chosen.report_only:
        report(chosen.kept)
        return
    data = load()
    chosen.kept.mkdir(parents=True, exist_ok=True)
    if chosen.try_lr:
        for ranks in chosen.ranks:
            files = {lr: chosen.kept / f"tried-{ranks}-{lr:g}.json" for lr in chosen.try_lr}
            launch(ranks, [("butterfly fp32", TRIED_SEED, lr, path) for lr, path in files.items()], data)
        return
    for seed, ranks in itertools.product(chosen.seeds, chosen.ranks):
        jobs = [(kind, seed, LR, file_of(chosen.kept, kind, ranks, seed)) for kind in list(KINDS)[: min(ranks, 2)]]
        missing = [job for job in jobs if not job[-1].exists()]
        if missing:
            launch(ranks, missing, data)
    report(chosen.kept)


if __name__ == "__main__":
    main()
