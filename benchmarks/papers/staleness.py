"""What stale gradients cost: test error against staleness, synchronous, asynchronous, mixed and delay-compensated.

Real gradients under a virtual clock (virtual_training.py). W equal workers make gradients W - 1 updates old on
average; what it was in fact is measured. Mixed: groups of four workers (of two, where there are four) average and push
as one, so four groups make gradients three updates old. MNIST: Mullapudi's network with L2, by SGD without momentum and
by Adagrad. CIFAR-10: a small-cnn of width 16 by RMSProp with momentum. All see as many samples, in batches of the same
size a worker. So a synchronous step of W workers has W times the batch, and there are W times fewer of them; one worker
is synchronous training with that batch split among all.

The learning rate is searched for each mode and staleness, with a seed of its own: by factors of two from a guess after
the best one of the nearest staleness until both neighbours are worse; with delay compensation together with lambda, by
factors of four. Then four seeds at the best ones.

    python -m benchmarks.papers.staleness --kept FOLDER                     # trains what is missing, then reports
    python -m benchmarks.papers.staleness --kept FOLDER --report-only       # table and figure of what is there
    python -m benchmarks.papers.staleness --kept FOLDER --task mnist_longer # 30,000 images, staleness 0 and 7
    python -m benchmarks.papers.staleness --kept FOLDER --task cifar10      # small-cnn with RMSProp: an hour or two

Each finished run is kept at once; started again, only what is missing is run.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from augpipe.trainer.config.tables import OptimConfig
from augpipe.trainer.servers.specs import Compensation
from benchmarks.figures import Line, Panel, draw
from benchmarks.harness import FIGURES, Bench, Kept, half_width
from benchmarks.papers.training import DATA
from benchmarks.papers.virtual_training import JITTER, Cluster, Data, test_error, train

GROUPS = {4: 2, 8: 4, 12: 4, 16: 4}
"""For mixed, by workers, how many of them make a group."""
ASKED = 8
"""At this number of workers, staleness 7, the question is answered, and the search of lambda begins."""
MODES = {
    "sync": "sync (as many workers)",
    "async": "async",
    "mixed": "mixed (groups of 4 and, of 4 workers, 2)",
    "constant": "async, delay compensation, constant λ",
    "adaptive": "async, delay compensation, adaptive λ",
}
SEARCH_SEED, SEEDS = 100, (0, 1, 2, 3)
FIRST_STRENGTHS = {"constant": 256.0, "adaptive": 16.0}
"""Where the search of lambda begins; the paper has 0.04 and 2, for other networks."""
BATCH_SIZE = 32


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained, and for how long."""

    data: str = "mnist"
    num_images: int = 8_000
    epochs: int = 1
    optimizers: dict[str, OptimConfig]
    """With the learning rate at which the search of one worker begins."""
    workers: tuple[int, ...] = (1, 8, 4, 16, 2, 12)
    """Those of the question come first; staleness 0, 7, 3, 15, 1 and 11."""


def _mnist(sgd: float, adagrad: float) -> dict[str, OptimConfig]:
    return {
        "sgd": OptimConfig(name="sgd", lr=sgd, momentum=0.0, weight_decay=1e-4),
        "adagrad": OptimConfig(name="adagrad", lr=adagrad, weight_decay=1e-4),
    }


RMSPROP = OptimConfig(name="rmsprop", lr=0.001, momentum=0.9, weight_decay=1e-4)
TASKS = {
    "mnist": Task(optimizers=_mnist(0.25, 0.03)),
    "mnist_longer": Task(num_images=30_000, optimizers=_mnist(0.5, 0.06), workers=(1, 8)),
    "cifar10": Task(data="cifar10", epochs=3, optimizers={"rmsprop": RMSPROP}),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training."""

    task: str
    optimizer: str
    mode: str
    workers: int
    lr: float
    strength: float = 0.0
    """The delay compensation's lambda."""
    seed: int


Runs = Callable[[Run], dict[str, Any] | None]
"""A run's result, made where it is missing; None where nothing is trained."""


def result_of(run: Run, data: Data, num_images: int) -> dict[str, Any]:
    """One run: its test error, and the staleness that it had. One that diverges has the error of guessing."""
    task, start = TASKS[run.task], time.process_time()
    cluster = Cluster(
        data=task.data,
        optim=task.optimizers[run.optimizer].model_copy(update={"lr": run.lr}),
        mode=run.mode if run.mode in ("sync", "mixed") else "async",
        workers=run.workers,
        group_size=GROUPS[run.workers] if run.mode == "mixed" else 1,
        batch_size=BATCH_SIZE,
        num_images=num_images,
        epochs=task.epochs,
        compensation=Compensation(kind=run.mode, strength=run.strength) if run.strength else None,
        seed=run.seed,
    )
    try:
        trained = train(cluster, data)
        ages = [one.staleness for one in trained.applied]
        found = {
            "error": test_error(trained.model, data),
            "staleness": statistics.mean(ages),
            "staleness_max": max(ages),
        }
        found["updates"] = trained.applied[-1].version
    except RuntimeError as error:  # the dispatcher's: a loss was not finite
        if "not finite" not in str(error):
            raise
        found = {"error": 0.9, "staleness": math.nan}
    return asdict(run) | found | {"seconds": round(time.process_time() - start, 2)}


def look_up(run: Run, *, kept: Kept, data: Data | None, num_images: int) -> dict[str, Any] | None:
    """A `Runs`."""
    numbers = f"{run.workers}-{run.lr:.6g}-{run.strength:.6g}-{run.seed}"
    name = f"{run.task}-{run.optimizer}-{run.mode}-{numbers}"
    if not kept.has(name):
        if data is None:
            return None
        kept.put(name, found := result_of(run, data, num_images))
        print(f"{name}: {100 * found['error']:.2f} %, {found['seconds']:.1f} s of CPU", flush=True)
    return kept.get(name)


def climb(runs: Runs, start: Run, most: int) -> Run | None:
    """The run that is better than its neighbours: at half and twice its learning rate, and with delay compensation at a
    quarter and four times its lambda, and where one grows and the other shrinks."""
    steps = [(0, 0), (1, 0), (-1, 0)] + [(0, 1), (0, -1), (1, -1), (-1, 1)] * (start.strength > 0)
    errors: dict[tuple[int, int], float] = {}
    at = (0, 0)
    for _ in range(most):
        for step in steps:
            place = at[0] + step[0], at[1] + step[1]
            if place not in errors:
                there = replace(start, lr=start.lr * 2.0 ** place[0], strength=start.strength * 4.0 ** place[1])
                if (found := runs(there)) is None:
                    return None
                errors[place] = found["error"]
        best = min(errors, key=lambda place: (errors[place], place != at))
        if best == at:
            break
        at = best
    return replace(start, lr=start.lr * 2.0 ** at[0], strength=start.strength * 4.0 ** at[1])


Best = dict[tuple[str, int], Run]
"""By mode and workers, what the search found."""


def first_guess(first_lr: float, mode: str, workers: int, best: Best) -> float:
    """The learning rate at which a search begins: that of the nearest one, by the root of the ratio of the workers."""
    rates = {num: run.lr for (of, num), run in best.items() if of == "async" and (mode != "sync" or num == 1)}
    own = {num: run.lr for (of, num), run in best.items() if of == mode}
    rates = own if own and mode == "mixed" else rates | own  # groups are fewer than workers, and go by themselves
    if not rates:
        return first_lr
    nearest = min(rates, key=lambda num: abs(math.log(num / workers)))
    doublings = round(math.log2(workers / nearest) / 2)
    return rates[nearest] * 2.0 ** (doublings if mode == "sync" else -doublings)


def go_through(runs: Runs, task: str, optimizer: str, numbers: Sequence[int], most: int) -> list[dict[str, Any]]:
    """Search and train, the question's runs first; rows of those that are whole."""
    best: Best = {}
    rows = []
    for workers in numbers:
        # one worker alone is never stale, and two or three make no groups
        for mode in [one for one in MODES if one != "mixed" or workers in GROUPS] if workers > 1 else ["async"]:
            lr = first_guess(TASKS[task].optimizers[optimizer].lr, mode, workers, best)
            strength = best[mode, ASKED].strength if (mode, ASKED) in best else FIRST_STRENGTHS.get(mode, 0.0)
            about = {"task": task, "optimizer": optimizer, "mode": mode, "workers": workers}
            found = climb(runs, Run(**about, lr=lr, strength=strength, seed=SEARCH_SEED), most)
            if found is None:
                continue
            best[mode, workers] = found
            results = [one for one in (runs(replace(found, seed=seed)) for seed in SEEDS) if one is not None]
            if len(results) == len(SEEDS):
                rows.append(row_of(found, results))
    return rows


def row_of(run: Run, results: list[dict[str, Any]]) -> dict[str, Any]:
    """One mode at one staleness."""
    errors = [100 * one["error"] for one in results]
    ages = [one["staleness"] for one in results if "updates" in one]
    return {
        "mode": run.mode,
        "workers": run.workers,
        "lr": run.lr,
        "lambda": run.strength,
        "staleness, mean": round(statistics.mean(ages), 3) if ages else None,
        "seeds that diverged": len(results) - len(ages),
        "staleness, most": max(one.get("staleness_max", 0) for one in results),
        "updates": max(one.get("updates", 0) for one in results),
        "test error, %": [round(error, 2) for error in errors],
        "mean, %": round(statistics.mean(errors), 3),
        "95 % confidence, +- %": round(half_width(errors), 3),
    }


def answers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How much of what async loses at staleness 7 delay compensation wins back, seed by seed; and what mixed loses."""
    by = {(row["mode"], row["workers"]): row["test error, %"] for row in rows}
    if ("async", ASKED) not in by or ("async", 1) not in by:
        return {}

    def told(values: list[float], digits: int) -> str:
        return f"{statistics.mean(values):.{digits}f} +- {half_width(values):.{digits}f}"

    stale, sync, mixed = by["async", ASKED], by.get(("sync", ASKED)), by.get(("mixed", ASKED))
    found: dict[str, Any] = {}
    if sync and mixed:
        pairs = list(zip(mixed, sync, strict=True))
        found["errors of mixed over sync's, %"] = told([100 * (m / s - 1) for m, s in pairs], 1)
        right = [100 * ((100 - m) / (100 - s) - 1) for m, s in pairs]
        found["accuracy of mixed over sync's, %"] = told(right, 1)
    for name, goal in (("sync, 8 workers", sync), ("one worker", by["async", 1])):
        if goal is None:
            continue
        gaps = [s - g for s, g in zip(stale, goal, strict=True)]
        found[f"async over {name}, points"] = told(gaps, 2)
        for kind in FIRST_STRENGTHS:
            if (kind, ASKED) in by:
                won = [s - c for s, c in zip(stale, by[kind, ASKED], strict=True)]
                found[f"{kind} under async, points"] = told(won, 2)
                share = round(statistics.mean(won) / statistics.mean(gaps), 3)
                is_gap = statistics.mean(gaps) > half_width(gaps)
                found[f"{kind}: share of the gap to {name}"] = share if is_gap else "the gap may be none"
    return found


def figure(tables: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Test error against mean staleness, a panel an optimizer; what diverged is left out."""
    panels = []
    for optimizer, rows in tables.items():
        lines = []
        for number, (mode, label) in enumerate(MODES.items()):
            mine = [row for row in rows if mode == row["mode"] or row["workers"] == 1]
            mine = sorted((row for row in mine if not row["seeds that diverged"]), key=lambda row: row["workers"])
            x = [row["workers"] - 1 + 0.12 * (number - 2) for row in mine]
            y, half = ([row[key] for row in mine] for key in ("mean, %", "95 % confidence, +- %"))
            lines.append(Line(label=label, x=x, y=y, half=half))
        panels.append(Panel(title=optimizer, x="workers - 1 (mean staleness of async)", y="test error, %", lines=lines))
    draw(panels, path)


def main() -> None:
    bench = Bench(__doc__, task="mnist", optimizers=("",), workers=(0,), kept=Path, report_only=False)
    torch.set_num_threads(1)
    chosen, task = bench.options, TASKS[bench.options.task]
    optimizers = [one for one in chosen.optimizers if one] or list(task.optimizers)[: bench.pick(None, 1)]
    numbers = [one for one in chosen.workers if one] or bench.pick(task.workers, (1, 8))
    file = {"mnist": "mnist.npz", "cifar10": "cifar10_jpg.tar.gz"}[task.data]
    data = None if chosen.report_only else DATA[task.data](bench.data(file))
    num_images = bench.pick(task.num_images, 512)
    with bench.kept() as kept:
        runs = partial(look_up, kept=kept, data=data, num_images=num_images)
        most = bench.pick(1000, 1)
        tables = {name: go_through(runs, chosen.task, name, numbers, most) for name in optimizers}
    tables = {name: rows for name, rows in tables.items() if rows}
    num_updates = -(-num_images // BATCH_SIZE) * task.epochs
    bench.keep(
        f"staleness_{chosen.task}",
        {
            "what": f"{num_images:,} training images, {task.epochs} epoch(s), batches of {BATCH_SIZE} a "
            f"worker ({num_updates} gradients), learning rate down to zero as a cosine; virtual cluster of equal "
            f"workers, jitter {JITTER:g}",
            "tables": tables,
            "at staleness 7": {name: answers(rows) for name, rows in tables.items()},
        },
    )
    if len(task.workers) > 2 and not bench.is_quick:
        figure(tables, FIGURES / f"staleness-{chosen.task}.png")


if __name__ == "__main__":
    main()
