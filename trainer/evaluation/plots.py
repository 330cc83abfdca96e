"""What is drawn of an evaluation, as PNGs: what is taken for what, how sure it may be, and how much it bears."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from augpipe.reports.figures import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, begin, begin_of, frame, png
from augpipe.trainer.evaluation.metrics import Bin, Ints, wilson
from augpipe.trainer.evaluation.robustness import Curve, Robustness

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

MOST_CLASSES = 100
"""Classes whose names can be read next to a matrix; of more, those with the most mistakes are drawn."""
_MOST_NUMBERS = 24
"""Classes up to which each cell holds its number."""
_NAME_LETTERS = 24
_NEEDS = "the page needs"
_DPI = 110
_LINES = (BLUE, ORANGE, GREEN, PURPLE, RED, "#5b6470")
"""The colours of runs, in turn."""
_PALE = "#eceef2"


def confusion_png(confusion: Ints, classes: Sequence[str]) -> bytes:
    """Draw a confusion matrix: the right ones blue, the mistakes orange, as dark as their share of the row.

    Args:
        confusion: (C, C) how many images of a class (row) were named which (column).
        classes: (C,) names. Of more than `MOST_CLASSES`, those with the most mistakes are drawn, in their order.

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
    """
    shown = most_mistaken(confusion)
    rows = np.maximum(confusion.sum(1), 1)[shown, None]
    counts = confusion[np.ix_(shown, shown)]
    names = [begin_of(classes[number], _NAME_LETTERS) for number in shown.tolist()]
    num = len(shown)
    side = 1.6 + max(0.16 * num, 2.6 if num < 8 else 3.6, 0.36 * num if num <= _MOST_NUMBERS else 0.0)
    letters_in = 0.062 * max(map(len, names))
    figure = begin(side + letters_in, side + letters_in, _NEEDS)
    axis = figure.subplots()
    axis.imshow(_colours(counts / rows), interpolation="nearest")
    size = 8.5 if num <= 40 else 7.0
    axis.set_xticks(range(num), names, rotation=90, fontsize=size, parse_math=False)
    axis.set_yticks(range(num), names, fontsize=size, parse_math=False)
    axis.tick_params(length=0)
    axis.set_xlabel("named", fontsize=9)
    axis.set_ylabel("class", fontsize=9)
    edges = np.arange(1, num) - 0.5
    axis.hlines(edges, -0.5, num - 0.5, colors=_PALE, linewidth=0.5)
    axis.vlines(edges, -0.5, num - 0.5, colors=_PALE, linewidth=0.5)
    for spine in axis.spines.values():
        spine.set_color("#d0d5dd")
    if num <= _MOST_NUMBERS:
        _write_numbers(axis, counts, counts / rows)
    return png(figure, _DPI)


def most_mistaken(confusion: Ints) -> Ints:
    """Which classes are drawn, in rising order: all, or the `MOST_CLASSES` that most mistakes are of or for."""
    mistakes = confusion.sum(0) + confusion.sum(1) - 2 * np.diag(confusion)
    found: Ints = np.sort(np.argsort(-mistakes, kind="stable")[:MOST_CLASSES])
    return found


def reliability_png(bins: Sequence[Bin], ece: float) -> bytes:
    """Draw how often the likeliest class is right against its probability, and how many images have which.

    Args:
        bins: of the probability.
        ece: expected calibration error.

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
    """
    figure = begin(5.4, 6.0, _NEEDS)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    width = 100 * (bins[0].high - bins[0].low)
    held = [one for one in bins if one.num]
    upper.plot([0, 100], [0, 100], color=GRAY, linewidth=1.0, linestyle="--", label="as sure as right")
    upper.bar(
        [100 * one.low for one in held],
        [100 * one.accuracy for one in held],
        width,
        align="edge",
        color=BLUE,
        alpha=0.35,
        edgecolor="white",
    )
    shares = [wilson(round(one.accuracy * one.num), one.num) for one in held]
    upper.errorbar(
        [100 * one.confidence for one in held],
        [100 * share.value for share in shares],
        yerr=_distances(shares),
        fmt="o",
        color=BLUE,
        markersize=4,
        linewidth=1.2,
        label="right, with 95 % interval",
    )
    upper.set_xlim(0, 100)
    upper.set_ylim(0, 100)
    upper.legend(frameon=False, fontsize=8, loc="upper left")
    upper.set_ylabel("right, %", fontsize=9)
    frame(upper, f"calibration error (ECE) {ece:.3f}")
    lower.bar([100 * one.low for one in bins], [one.num for one in bins], width, align="edge", color=ORANGE, alpha=0.8)
    lower.set_xlabel("probability of the likeliest class, %", fontsize=9)
    lower.set_ylabel("photographs", fontsize=9)
    frame(lower, "")
    return png(figure, _DPI)


def curves_png(robustness: Robustness) -> bytes:
    """Draw top-1 against strength, a panel for each op, a line with its 95 % interval for each run.

    Args:
        robustness: by `robustness_of`.

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
    """
    panels: dict[str, list[Curve]] = {}
    for curve in robustness.curves:
        panels.setdefault(curve.op, []).append(curve)
    columns = min(len(panels), 4)
    rows = math.ceil(len(panels) / columns)
    figure = begin(2.35 * columns + 0.5, 2.0 * rows + 0.7, _NEEDS)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    lines = []
    for axis, (op, curves) in zip(axes, panels.items(), strict=False):
        lines = [_curve(axis, curve, _LINES[place % len(_LINES)]) for place, curve in enumerate(curves)]
        frame(axis, op.replace("_", " "))
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    most = max(point.top1.high for curve in robustness.curves for point in curve.points)
    axes[0].set_ylim(0, 10 * math.ceil(10 * most))
    axes[0].set_xlim(min(robustness.strengths), max(robustness.strengths) or 1.0)
    names = [begin_of(curve.run, 48) for curve in next(iter(panels.values()))]
    figure.supylabel("top-1, %", fontsize=9)
    figure.supxlabel(
        f"strength; 1: what the recipe ({begin_of(robustness.recipe, _NAME_LETTERS)}) draws",
        fontsize=9,
        parse_math=False,
    )
    figure.legend(lines, names, loc="outside upper left", ncols=min(len(names), 3), frameon=False, fontsize=8.5)
    return png(figure, _DPI)


def _curve(axis: "Axes", curve: Curve, colour: str) -> "Line2D":
    strengths = [point.strength for point in curve.points]
    (line,) = axis.plot(
        strengths,
        [100 * point.top1.value for point in curve.points],
        color=colour,
        linewidth=1.5,
        marker=".",
        markersize=5,
    )
    low, high = ([100 * getattr(point.top1, end) for point in curve.points] for end in ("low", "high"))
    axis.fill_between(strengths, low, high, color=colour, alpha=0.16, linewidth=0)
    axis.axvline(1.0, color=_PALE, linewidth=1.0, zorder=0)
    return line


def _distances(shares: Sequence[Any]) -> list[list[float]]:
    """What an error bar takes: percent from a share down to its interval's end, and up."""
    return [
        [100 * max(share.value - share.low, 0.0) for share in shares],
        [100 * max(share.high - share.value, 0.0) for share in shares],
    ]


def _write_numbers(axis: "Axes", counts: Ints, shares: Any) -> None:
    for row, column in zip(*np.nonzero(counts), strict=True):
        dark = math.sqrt(shares[row, column]) > 0.7
        axis.text(
            int(column),
            int(row),
            f"{counts[row, column]:,}",
            ha="center",
            va="center",
            fontsize=7.5,
            color="white" if dark else "#1c2430",
        )


def _colours(shares: Any) -> Any:
    """(R, C, 3) of (R, C): white to blue on the diagonal, white to orange next to it; small shares are seen, too."""
    strength = np.sqrt(shares)[:, :, None]
    on_diagonal = np.eye(len(shares), dtype=bool)[:, :, None]
    full = np.where(on_diagonal, _rgb(BLUE), _rgb(ORANGE))
    return 1.0 + strength * (full - 1.0)


def _rgb(colour: str) -> Any:
    return np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
