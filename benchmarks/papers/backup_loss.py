"""Backup workers, and more workers, by what they are for: virtual seconds until the test loss is below a given value.

    AUGPIPE_DATA=FOLDER python -m benchmarks.papers.backup_loss    # a few minutes; mnist.npz lies in FOLDER
    AUGPIPE_DATA=FOLDER python -m benchmarks.papers.backup_loss loss_by_workers

One of five workers takes three times as long; or one, two, four and eight equal workers push as soon as they are ready,
as the nodes of the BSC's Figure 3 do. Real gradients on MNIST under a virtual clock (virtual_training.py), SGD without
momentum, batches of 32 a worker. Each kind has its own learning rate, constant, the one of factors of two that reaches
the lower loss first with a seed of its own; then four seeds. The loss is that of all 10,000 test images, looked at
after every 160 training images or more.
"""

import statistics
from dataclasses import replace
from typing import Any

import torch

from augpipe.trainer.config.tables import OptimConfig
from benchmarks.harness import Bench, half_width
from benchmarks.papers.training import DATA
from benchmarks.papers.virtual_training import Cluster, Data, train

LOSSES = 0.5, 0.35
RATES = 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0
SEARCH_SEED, SEEDS = 100, (0, 1, 2, 3)
ONE = Cluster(
    data="mnist",
    optim=OptimConfig(name="sgd", lr=1.0, momentum=0.0, weight_decay=1e-4),
    workers=1,
    num_images=25_600,  # a whole number of steps of four and of five workers
    schedule="constant",
    observed=5,
    seed=0,
)
SYNC, SLOW = replace(ONE, mode="sync", observed=1), (1.0, 1.0, 1.0, 1.0, 3.0)
KINDS = {
    "backup_loss": {
        "5, sync": replace(SYNC, workers=5, factors=SLOW),
        "4 + 1 backup, sync": replace(SYNC, workers=4, backup=1, factors=SLOW),
        "4 equal ones, sync": replace(SYNC, workers=4),
        "5, async": replace(ONE, workers=5, factors=SLOW),
    },
    "loss_by_workers": {f"{num}, async": replace(ONE, workers=num) for num in (1, 2, 4, 8)},
}


def reached(
    kind: Cluster, lr: float, seed: int, goals: tuple[float, ...], data: Data
) -> list[tuple[float, int] | None]:
    """(virtual seconds, updates) at which the loss is below each goal for the first time."""
    losses = train(replace(kind, optim=kind.optim.model_copy(update={"lr": lr}), seed=seed), data).losses
    return [next(((at, updates) for at, updates, loss in losses if loss < goal), None) for goal in goals]


def main() -> None:
    bench = Bench(__doc__, names=KINDS)
    torch.set_num_threads(1)
    data = DATA["mnist"](bench.data("mnist.npz"))
    rates, seeds, goals = bench.pick((RATES, SEEDS, LOSSES), ((0.5,), (0, 1), (2.0,)))
    for name in bench.names:
        table: dict[str, Any] = {}
        for title, usual in KINDS[name].items():
            kind = replace(usual, num_images=bench.pick(usual.num_images, 1280))
            search = {lr: reached(kind, lr, SEARCH_SEED, goals[-1:], data)[0] for lr in rates}
            found = {lr: None if at is None else at[0] for lr, at in search.items()}
            print(f"{title}: seconds to {goals[-1]} by learning rate: {found}", flush=True)
            best = min((lr for lr in rates if found[lr] is not None), key=lambda lr: found[lr])
            runs = [reached(kind, best, seed, goals, data) for seed in seeds]
            row: dict[str, Any] = {"lr": best, "search": found}
            for goal, times in zip(goals, zip(*runs, strict=True), strict=True):
                assert None not in times, "a run is too short"
                seconds, updates = ([one[place] for one in times] for place in (0, 1))
                row[f"to {goal}"] = {
                    "seconds": seconds,
                    "updates": updates,
                    "mean_s": statistics.mean(seconds),
                    "confidence_95_s": half_width(seconds),
                }
                print(
                    f"  to {goal}: {statistics.mean(seconds):.1f} +- {half_width(seconds):.1f} s, lr {best:g}",
                    flush=True,
                )
            table[title] = row
        bench.keep(name, {"table": table})


if __name__ == "__main__":
    main()
