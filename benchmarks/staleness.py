"""What stale gradients cost: test error against staleness, synchronous, asynchronous, mixed and delay-compensated.

Servers, dispatcher and workers are the real ones with real gradients, under a virtual clock in one process. W equal
workers, whose leases take one virtual second with a jitter of 10 %, make gradients W - 1 updates old on average; what
it was in fact is measured. Mixed: groups of four workers (of two, where there are four) average and push as one, so
four groups make gradients three updates old. MNIST: Mullapudi's network, 64-64-10 with tanh, dropout and L2, by SGD
without momentum and by Adagrad. CIFAR-10: a small-cnn of width 16 by RMSProp with momentum. All see as many samples, in
batches of the same size a worker. So a synchronous step of W workers has W times the batch, and there are W times fewer
of them; one worker is synchronous training with that batch split among all.

The learning rate is searched for each mode and staleness, with a seed of its own: by factors of two from a guess after
the best one of the nearest staleness until both neighbours are worse; with delay compensation together with lambda, by
factors of four. Then four seeds at the best ones.

    python benchmarks/staleness.py --kept FOLDER                         # trains what is missing, then reports
    python benchmarks/staleness.py --kept FOLDER --optimizers adagrad
    python benchmarks/staleness.py --kept FOLDER --report-only           # table and figure of what is there
    python benchmarks/staleness.py --kept FOLDER --task mnist_longer     # 30,000 images, at the staleness asked for
    python benchmarks/staleness.py --kept FOLDER --task cifar10          # small-cnn with RMSProp: an hour or two

Each finished run is kept at once; started again, only what is missing is run.
"""

import argparse
import json
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import half_width, save
from dettmers import DATA
from staleness_runs import GROUPS, JITTER, TASKS, Run, train
from torch import Tensor

IMAGES = Path(__file__).parents[1] / "docs" / "images"
ASKED = 8
"""At this number of workers, staleness 7, the question is answered, and the search of lambda begins."""
MODES = ("sync", "async", "mixed", "constant", "adaptive")
"""The last two are async with delay compensation of that kind."""
SEARCH_SEED = 100
SEEDS = (0, 1, 2, 3)
FIRST_STRENGTHS = {"constant": 256.0, "adaptive": 16.0}
"""Where the search of lambda begins; the paper has 0.04 and 2, for other networks."""


class Kept:
    """Finished runs, and those that are made because they are asked for."""

    def __init__(self, folder: Path, data: dict[str, Tensor] | None) -> None:
        self._folder = folder
        self._data = data
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, run: Run) -> dict[str, Any] | None:
        """Its result; None where it is not there and nothing is trained."""
        path = self._folder / run.file
        if not path.exists():
            if self._data is None:
                return None
            found = train(run, self._data)
            path.write_text(json.dumps(found))
            print(f"{path.stem}: {100 * found['error']:.2f} %, {found['seconds']:.1f} s of CPU", flush=True)
        result: dict[str, Any] = json.loads(path.read_text())
        return result


def climb(kept: Kept, start: Run) -> Run | None:
    """The run that is better than its neighbours: at half and twice its learning rate, and with delay compensation at a
    quarter and four times its lambda, and where one grows and the other shrinks."""
    steps = [(0, 0), (1, 0), (-1, 0)] + [(0, 1), (0, -1), (1, -1), (-1, 1)] * (start.strength > 0)
    errors: dict[tuple[int, int], float] = {}

    def there(place: tuple[int, int]) -> Run:
        return replace(start, lr=start.lr * 2.0 ** place[0], strength=start.strength * 4.0 ** place[1])

    at = (0, 0)
    while True:
        for step in steps:
            place = at[0] + step[0], at[1] + step[1]
            if place not in errors:
                found = kept(there(place))
                if found is None:
                    return None
                errors[place] = found["error"]
        best = min(errors, key=lambda place: (errors[place], place != at))
        if best == at:
            return there(at)
        at = best


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


def searched(kept: Kept, task: str, optimizer: str, mode: str, workers: int, best: Best) -> Run | None:
    """The best run of the search's seed."""
    lr = first_guess(TASKS[task].optimizers[optimizer].lr, mode, workers, best)
    strength = best[mode, ASKED].strength if (mode, ASKED) in best else FIRST_STRENGTHS.get(mode, 0.0)
    return climb(
        kept,
        Run(
            task=task,
            optimizer=optimizer,
            mode=mode,
            workers=workers,
            lr=lr,
            strength=strength,
            seed=SEARCH_SEED,
        ),
    )


def modes_of(workers: int) -> tuple[str, ...]:
    """One worker alone is never stale, and two or three make no groups."""
    if workers == 1:
        return ("async",)
    return tuple(mode for mode in MODES if mode != "mixed" or workers in GROUPS)


def go_through(kept: Kept, task: str, optimizer: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Search and train, the question's runs first; rows of those that are whole."""
    best: Best = {}
    rows = []
    for workers in numbers:
        for mode in modes_of(workers):
            found = searched(kept, task, optimizer, mode, workers, best)
            if found is None:
                continue
            best[mode, workers] = found
            results = [kept(replace(found, seed=seed)) for seed in SEEDS]
            whole = [one for one in results if one is not None]
            if len(whole) == len(SEEDS):
                rows.append(row_of(found, whole))
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
    stale = by["async", ASKED]
    found: dict[str, Any] = {}
    if ("sync", ASKED) in by and ("mixed", ASKED) in by:
        pairs = list(zip(by["mixed", ASKED], by["sync", ASKED], strict=True))
        more = [100 * (mixed / sync - 1) for mixed, sync in pairs]
        found["errors of mixed over sync's, %"] = f"{statistics.mean(more):.1f} +- {half_width(more):.1f}"
        right = [100 * ((100 - mixed) / (100 - sync) - 1) for mixed, sync in pairs]
        found["accuracy of mixed over sync's, %"] = f"{statistics.mean(right):.1f} +- {half_width(right):.1f}"
    for name, goal in (("sync, 8 workers", by.get(("sync", ASKED))), ("one worker", by["async", 1])):
        if goal is None:
            continue
        gaps = [s - g for s, g in zip(stale, goal, strict=True)]
        found[f"async over {name}, points"] = f"{statistics.mean(gaps):.2f} +- {half_width(gaps):.2f}"
        for kind in FIRST_STRENGTHS:
            if (kind, ASKED) in by:
                won = [s - c for s, c in zip(stale, by[kind, ASKED], strict=True)]
                found[f"{kind} under async, points"] = f"{statistics.mean(won):.2f} +- {half_width(won):.2f}"
                share = round(statistics.mean(won) / statistics.mean(gaps), 3)
                is_gap = statistics.mean(gaps) > half_width(gaps)
                found[f"{kind}: share of the gap to {name}"] = share if is_gap else "the gap may be none"
    return found


def draw(tables: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Test error against mean staleness, a panel an optimizer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = {
        "sync": "sync (as many workers)",
        "async": "async",
        "mixed": "mixed (groups of 4 and, of 4 workers, 2)",
        "constant": "async, delay compensation, constant λ",
        "adaptive": "async, delay compensation, adaptive λ",
    }
    figure, panels = pyplot.subplots(1, len(tables), figsize=(5.2 * len(tables), 4.0), squeeze=False)
    for panel, (optimizer, rows) in zip(panels[0], tables.items(), strict=True):
        for number, mode in enumerate(MODES):
            mine = [row for row in rows if row["mode"] == mode or row["workers"] == 1]
            mine = [row for row in mine if not row["seeds that diverged"]]  # their error is that of guessing
            mine.sort(key=lambda row: row["workers"])
            places = [row["workers"] - 1 + 0.12 * (number - 2) for row in mine]
            means = [row["mean, %"] for row in mine]
            bars = [row["95 % confidence, +- %"] for row in mine]
            panel.errorbar(places, means, bars, label=labels[mode], marker="osv^D"[number], capsize=2, linewidth=1.2)
        panel.set_title(optimizer)
        panel.set_xlabel("workers - 1 (mean staleness of async)")
        panel.set_ylabel("test error, %")
        panel.grid(alpha=0.3)
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drawn in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="mnist")
    parser.add_argument("--optimizers", nargs="+", help="these alone; default: all of the task's")
    parser.add_argument(
        "--workers", type=int, nargs="+", help="these numbers alone, for now; the table has what is there"
    )
    parser.add_argument("--kept", type=Path, required=True, help="folder for finished runs")
    parser.add_argument("--report-only", action="store_true", help="train nothing")
    parser.add_argument("--trial", action="store_true", help="one run of 8 asynchronous workers, and no report")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    task = TASKS[chosen.task]
    optimizers = chosen.optimizers or list(task.optimizers)
    data = None if chosen.report_only else DATA[task.data or chosen.task](Path(os.environ["AUGPIPE_DATA"]))
    kept = Kept(chosen.kept, data)
    if chosen.trial:
        for name in optimizers:
            kept(Run(task=chosen.task, optimizer=name, mode="async", workers=8, lr=task.optimizers[name].lr, seed=0))
        return
    numbers = chosen.workers or task.workers
    tables = {name: go_through(kept, chosen.task, name, numbers) for name in optimizers}
    tables = {name: rows for name, rows in tables.items() if rows}
    num_updates = -(-task.num_images // task.batch_size) * task.epochs
    save(
        f"staleness_{chosen.task}",
        {
            "what": f"{task.num_images:,} training images, {task.epochs} epoch(s), batches of {task.batch_size} a "
            f"worker ({num_updates} gradients), learning rate down to zero as a cosine; virtual cluster of equal "
            f"workers, jitter {JITTER:g}",
            "command": f"python benchmarks/staleness.py --task {chosen.task} --kept FOLDER",
            "tables": tables,
            "at staleness 7": {name: answers(rows) for name, rows in tables.items()},
        },
    )
    if len(task.workers) > 2:
        draw(tables, IMAGES / f"staleness-{chosen.task}.png")


if __name__ == "__main__":
    main()
