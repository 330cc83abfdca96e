"""The curves of a run as one PNG: loss, accuracy, learning rate, speed."""

from pathlib import Path
from typing import TYPE_CHECKING

from augpipe.reports.figures import BLUE, ORANGE, begin, check_matplotlib, frame, save
from augpipe.trainer.report.metrics import read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = tuple[list[float], list[float]]


def write_curves(metrics: Path, path: Path) -> Path:
    """Draw metrics.csv.

    Args:
        metrics: the file.
        path: of the PNG, which is replaced.

    Returns:
        `path`.

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
        ValueError: the file holds no rows yet.
        OSError: a file cannot be read or written.
    """
    check_matplotlib("curves need")
    rows = read_rows(metrics)
    if not rows:
        raise ValueError(f"{metrics} holds no rows yet: the run has not come to report.log_every steps.")
    figure = begin(11, 6.4)
    loss, accuracy, rate, speed = figure.subplots(2, 2).ravel()
    _pair(loss, "loss", points(rows, "loss"), points(rows, "eval_loss"))
    _pair(accuracy, "top-1 accuracy, %", points(rows, "top1", 100.0), points(rows, "eval_top1", 100.0))
    accuracy.set_ylim(0, 100)
    _line(rate, "learning rate", points(rows, "lr"), BLUE)
    rate.set_ylim(bottom=0)
    _line(speed, "images a second, all ranks", points(rows, "images_per_s"), BLUE)
    speed.set_ylim(bottom=0)
    exposed = points(rows, "exposed_ms")
    if any(exposed[1]):
        other = speed.twinx()
        other.plot(*exposed, color=ORANGE, linewidth=1.2)
        other.set_ylabel("waiting for other ranks, ms a step", color=ORANGE, fontsize=8)
        other.set_ylim(bottom=0)
        other.spines[["top"]].set_visible(False)
        other.tick_params(labelsize=8)
    for axis in (rate, speed):
        axis.set_xlabel("step", fontsize=9)
    for axis in (loss, accuracy, rate, speed):
        axis.locator_params(axis="x", integer=True)
    return save(figure, path)


def points(rows: list[dict[str, str]], name: str, factor: float = 1.0) -> Points:
    """(steps, values) of the rows that have a value in this column."""
    found = [(float(row["step"]), float(row[name]) * factor) for row in rows if row.get(name)]
    return [step for step, _ in found], [value for _, value in found]


def _pair(axis: "Axes", title: str, training: Points, held_out: Points) -> None:
    marker = "." if len(training[0]) < 3 else ""
    axis.plot(*training, color=BLUE, linewidth=1.2, marker=marker, label="training, augmented")
    if held_out[0]:
        axis.plot(*held_out, color=ORANGE, linewidth=1.6, marker="o", markersize=3.5, label="evaluation")
    axis.legend(frameon=False, fontsize=8)
    frame(axis, title)


def _line(axis: "Axes", title: str, line: Points, color: str) -> None:
    axis.plot(*line, color=color, linewidth=1.2, marker="." if len(line[0]) < 3 else "")
    frame(axis, title)
