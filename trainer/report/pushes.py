"""What pushes.csv of a run with parameter servers tells: how old gradients were, and what each worker did."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from augpipe.reports.figures import BLUE, ORANGE, begin, check_matplotlib, frame, save
from augpipe.reports.tables import Table
from augpipe.trainer.report.metrics import read_rows

_PHASES = {"compute": BLUE, "data": "#7aa6d6", "push": ORANGE, "wait": "#d9d9d9"}


@dataclass(frozen=True, kw_only=True)
class WorkerTotals:
    """What one worker did in the run."""

    num_pushes: int
    num_samples: int
    mean_staleness: float
    seconds: dict[str, float]
    """By phase: compute, data, push, wait."""
    sent_mb: float
    got_mb: float

    @property
    def efficiency(self) -> float:
        """The share of its time that it computed."""
        total = sum(self.seconds.values())
        return self.seconds["compute"] / total if total else 0.0


def totals(rows: Iterable[dict[str, str]]) -> dict[int, WorkerTotals]:
    """By worker, in order."""
    by_worker: dict[int, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        by_worker[int(row["worker"])].append(row)
    return {
        worker: WorkerTotals(
            num_pushes=len(its),
            num_samples=sum(int(row["samples"]) for row in its),
            mean_staleness=sum(int(row["staleness"]) for row in its) / len(its),
            seconds={phase: sum(float(row[f"{phase}_ms"]) for row in its) / 1e3 for phase in _PHASES},
            sent_mb=sum(float(row["sent_mb"]) for row in its),
            got_mb=sum(float(row["got_mb"]) for row in its),
        )
        for worker, its in sorted(by_worker.items())
    }


def staleness_counts(rows: Iterable[dict[str, str]]) -> dict[int, int]:
    """By staleness, how many pushes were applied with it."""
    return dict(sorted(Counter(int(row["staleness"]) for row in rows).items()))


def training_s(rows: Iterable[dict[str, str]]) -> float:
    """Seconds of the run, all of its starts together: the column begins at 0 with each."""
    total = last = 0.0
    for row in rows:
        seconds = float(row["seconds"])
        if seconds < last:
            total += last
        last = seconds
    return total + last


def write_pushes(pushes: Path, path: Path) -> Path:
    """Draw pushes.csv: the staleness of pushes, and by worker their rate and where the time went.

    Args:
        pushes: the file.
        path: of the PNG, which is replaced.

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
        ValueError: the file holds no rows yet.
        OSError: a file cannot be read or written.
    """
    check_matplotlib("curves need")
    from matplotlib.ticker import MaxNLocator

    rows = read_rows(pushes)
    if not rows:
        raise ValueError(f"{pushes} holds no rows yet: no push has been counted.")
    figure = begin(11, 3.4)
    staleness, rate, time = figure.subplots(1, 3)
    counts = staleness_counts(rows)
    staleness.bar(list(counts), [100 * count / len(rows) for count in counts.values()], color=BLUE, width=0.8)
    staleness.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    staleness.set_xlabel("updates that the weights were behind", fontsize=9)
    frame(staleness, "staleness, % of pushes")
    found = totals(rows)
    names = [str(worker) for worker in found]
    span = training_s(rows)
    rates = [one.num_samples / span if span else 0.0 for one in found.values()]
    rate.bar(names, rates, color=BLUE)
    rate.set_xlabel("worker", fontsize=9)
    frame(rate, "images a second")
    bottom = [0.0] * len(found)
    for phase, color in _PHASES.items():
        shares = [100 * one.seconds[phase] / max(sum(one.seconds.values()), 1e-9) for one in found.values()]
        time.bar(names, shares, bottom=bottom, color=color, label=phase)
        bottom = [low + share for low, share in zip(bottom, shares, strict=True)]
    time.set_xlabel("worker", fontsize=9)
    time.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    frame(time, "where a worker's time goes, %")
    return save(figure, path)


def html_rows(rows: Iterable[dict[str, str]]) -> Iterable[str]:
    """A table of the workers, in HTML."""
    yield "<h2>Workers</h2>"
    heads = ("worker", "pushes", "images", "mean staleness", "computing", "waiting", "MB pushed", "MB fetched")
    yield Table(columns=heads, rows=[_cells(worker, one) for worker, one in totals(rows).items()]).html()


def _cells(worker: int, one: WorkerTotals) -> tuple[str, ...]:
    waiting = one.seconds["wait"] / max(sum(one.seconds.values()), 1e-9)
    return (
        f"{worker}",
        f"{one.num_pushes:,}",
        f"{one.num_samples:,}",
        f"{one.mean_staleness:.2f}",
        f"{one.efficiency:.0%}",
        f"{waiting:.0%}",
        f"{one.sent_mb:,.1f}",
        f"{one.got_mb:,.1f}",
    )
