"""Convergence against ranks at the same batch a rank, which Deep Image's Figure 4 shows: do more learn as much sooner?

A small network on CIFAR-10 over one to eight ranks (Gloo) of this machine, in data parallel: a butterfly in fp32, and
lazy updates in 8 bits with no error feedback, which is the default. Each rank takes 32 images a step, so the global
batch grows with the ranks, and the number of steps in an epoch falls. The learning rate is in proportion to the ranks
and rises over the first epoch (Goyal et al. 2017). All runs see the same images as often, and a seed fixes the first
weights and the order of the samples. One rank has nobody to exchange with, so that both kinds are the same there.

What would be the time on a machine with a core for each rank is told by the samples a rank has seen: ranks of these
runs outnumber the cores and share them with other work, and their wall time says nothing.

    AUGPIPE_DATA=FOLDER python -m benchmarks.papers.convergence --kept KEPT
    AUGPIPE_DATA=FOLDER python -m benchmarks.papers.convergence --kept TRIED --ranks 1 --lr 0.1   # of those tried
    AUGPIPE_DATA=FOLDER python -m benchmarks.papers.convergence --kept KEPT --report-only

Each finished run is kept at once; started again, only what is missing is run.
"""

import itertools
import statistics
from pathlib import Path
from typing import Any

from benchmarks.figures import COLOURS, Line, Panel, draw
from benchmarks.harness import FIGURES, Bench
from benchmarks.papers.training import Experiment, runs_of

NUM_RANKS, SEEDS = (1, 2, 4, 8), (0, 1)
FP32, LAZY = "butterfly fp32", "lazy 8 bits"
KINDS = {FP32: ("butterfly", "fp32"), LAZY: ("lazy", "dynamic-tree")}
"""The strategy and codec of each."""
NUM_IMAGES, EPOCHS, RANK_BATCH = 10_000, 10, 32
TARGETS = (50.0, 55.0, 60.0)
"""Test accuracies in %, to which samples a rank are counted."""


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


def table_of(runs: list[dict[str, Any]], of: Experiment) -> list[dict[str, Any]]:
    """A row for each kind and number of ranks: what was reached, beside one rank and beside fp32, seed by seed."""
    found = {(run["kind"], run["ranks"], run["seed"]): [100 - 100 * one for one in run["errors"]] for run in runs}
    seeds = sorted({seed for _, _, seed in found})
    rows = []
    for ranks, kind in sorted({(ranks, kind) for kind, ranks, _ in found}):
        last, one, plain = (
            [found[name, num, seed][-1] if (name, num, seed) in found else None for seed in seeds]
            for name, num in ((kind, ranks), (FP32, 1), (FP32, ranks))
        )
        mine = [run for run in runs if (run["kind"], run["ranks"]) == (kind, ranks)]
        curves = [found[kind, ranks, seed] for seed in seeds]
        steps = of.num_images // (RANK_BATCH * ranks) * of.epochs
        row: dict[str, Any] = {
            "kind": kind if ranks > 1 else "one rank",
            "ranks": ranks,
            "global batch": RANK_BATCH * ranks,
            "learning rate": of.lr * ranks,
            "steps": steps,
            "samples a rank": steps * RANK_BATCH,
            "test accuracy, %": by_seed(last),
            "test loss": round(statistics.mean(run["losses"][-1] for run in mine), 4),
            "accuracy after each epoch, mean, %": [round(statistics.mean(at), 2) for at in zip(*curves, strict=True)],
            "bytes that rank 0 sends a step": mine[0]["bytes a step"],
            "CPU seconds of all ranks, median": round(statistics.median(run["cpu_seconds"] for run in mine)),
        }
        if ranks > 1 and None not in one:
            row["less one rank, same seeds, points"] = by_seed([a - b for a, b in zip(last, one, strict=True)])
        if kind != FP32 and None not in plain:
            row["less fp32, same seeds, points"] = by_seed([a - b for a, b in zip(last, plain, strict=True)])
        for target in TARGETS:
            epochs = [epochs_to(target, curve) for curve in curves]
            firsts = [epochs_to(target, found.get((FP32, 1, seed), [])) for seed in seeds]
            if None not in epochs + firsts:
                mean = statistics.mean(epochs)
                row[f"to {target:g} %"] = {
                    "epochs": round(mean, 2),
                    "samples a rank": round(mean * of.num_images / ranks),
                    "one rank's samples over these": round(statistics.mean(firsts) / (mean / ranks), 2),
                }
        rows.append(row)
    return rows


def figure(rows: list[dict[str, Any]]) -> None:
    """Test accuracy by epochs, and by the samples that a rank has seen."""
    lines: tuple[list[Line], list[Line]] = ([], [])
    for row in rows:
        means = row["accuracy after each epoch, mean, %"]
        epochs = list(range(1, len(means) + 1))
        look = {"colour": COLOURS[NUM_RANKS.index(row["ranks"])], "style": "--" if row["kind"] == LAZY else "-"}
        label = "1 rank" if row["ranks"] == 1 else f"{row['ranks']} ranks, {row['kind']}"
        seen = [row["samples a rank"] / len(means) * epoch for epoch in epochs]
        for some, x in zip(lines, (epochs, seen), strict=True):
            some.append(Line(label=label, x=x, y=means, **look))
    about = {"title": "CIFAR-10, mean of two seeds: the same batch on each rank", "y": "test accuracy, %"}
    panels = [Panel(x="epochs", lines=lines[0], **about)]
    panels.append(Panel(x="images that a rank has seen", lines=lines[1], log_x=2, **about))
    draw(panels, FIGURES / "convergence-ranks.png", share_y=True)


def main() -> None:
    bench = Bench(__doc__, kept=Path, ranks=NUM_RANKS, seeds=SEEDS, lr=0.05, report_only=False)
    chosen, runs = bench.options, []
    bench.data("cifar10_jpg.tar.gz")

    def experiment(kind: str, ranks: int) -> Experiment:
        return Experiment(
            data="cifar10", network="small-cnn", width=16, strategy=KINDS[kind][0], ranks=ranks, rank_batch=RANK_BATCH,
            lr=chosen.lr * ranks, weight_decay=0.0005, epochs=bench.pick(EPOCHS, 2), flips=True, warm_up=1,
            num_images=bench.pick(NUM_IMAGES, 512),
        )  # fmt: skip

    with bench.kept() as kept:
        for seed, ranks in itertools.product(bench.pick(chosen.seeds, [0]), bench.pick(chosen.ranks, [1, 2])):
            for kind in list(KINDS)[: min(ranks, 2)]:
                jobs = {f"{kind.replace(' ', '-')}-{ranks}-{seed}": (KINDS[kind][1], seed)}
                found = runs_of(experiment(kind, ranks), jobs, kept, trains=not chosen.report_only)
                runs += [run | {"kind": kind, "ranks": ranks, "lr": chosen.lr * ranks} for run in found]
    of = experiment(FP32, 1)
    rows = table_of(runs, of)
    bench.keep(
        "convergence_ranks",
        {
            "what": f"CIFAR-10, {of.num_images:,} training images with random flips, {of.epochs} epochs, all 10,000 "
            f"test images after each; small-cnn of width {of.width}, {RANK_BATCH} images a rank and step, sgd lr "
            f"{of.lr:g} times the ranks, momentum {of.momentum:g}, weight decay {of.weight_decay:g}, rising over "
            f"{of.warm_up} epoch, then falling as a cosine; no error feedback",
            "rows": rows,
            "runs": runs,
            "CPU seconds, all runs": round(sum(run["cpu_seconds"] for run in runs)),
        },
    )
    if not bench.is_quick:
        figure(rows)


if __name__ == "__main__":
    main()
