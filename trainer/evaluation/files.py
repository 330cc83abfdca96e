"""A comparison written down: one JSON file with all of it, and CSV tables."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from augpipe.datasets.files.atomic import write_atomically
from augpipe.reports.tables import Table
from augpipe.trainer.evaluation.changes import Changes
from augpipe.trainer.evaluation.ensemble import Comparison, RunResult
from augpipe.trainer.evaluation.metrics import Metrics, Share, likeliest
from augpipe.trainer.evaluation.robustness import Robustness

SUMMARY, CLASSES, CONFUSION, PREDICTIONS, CHANGES, ROBUSTNESS, JSON = (
    "summary.csv",
    "classes.csv",
    "confusion.csv",
    "predictions.csv",
    "changes.csv",
    "robustness.csv",
    "evaluation.json",
)
_SUMMARY_COLUMNS = (
    "run",
    "weight",
    "step",
    "weights",
    "images",
    "top1",
    "top1_low",
    "top1_high",
    "top5",
    "top5_low",
    "top5_high",
    "loss",
    "ece",
)
_NAMES_SHOWN = 5
"""Changed images of a kind that are named on a screen."""


def summary_table(found: Comparison) -> Table:
    """For a screen: a row for each result, shares in percent with their intervals."""
    rows = []
    for one in found.results:
        metrics = one.metrics
        shares = [percent(share) for share in (metrics.top1, metrics.top5)]
        numbers = (f"{metrics.loss:.3f}", f"{metrics.ece:.3f}")
        rows.append((one.name, one.weights, f"{metrics.num_samples:,}", *shares, *numbers))
    columns = ("run", "weights", "photographs", "top-1", "top-5", "loss", "ECE")
    return Table(columns=columns, rows=rows, num_left=2)


def percent(share: Share) -> str:
    """A share with its interval; a dash for one of nothing."""
    return f"{share.value:.1%} ({100 * share.low:.1f} to {100 * share.high:.1f})" if share.num else "–"


def change_table(changes: Changes) -> Table:
    """McNemar's table: how many images are right in which run."""
    columns = ("photographs", f"right in {changes.after}", f"wrong in {changes.after}")
    first = (f"right in {changes.before}", f"{changes.both_right:,}", f"{len(changes.lost):,}")
    second = (f"wrong in {changes.before}", f"{len(changes.gained):,}", f"{changes.both_wrong:,}")
    return Table(columns=columns, rows=(first, second), num_left=1)


def change_lines(found: Comparison, changes: Changes) -> list[str]:
    """The surest mistakes of those that changed, by name, and a sentence on all."""
    lines = []
    for changed in (changes.lost, changes.gained):
        for one in changed[:_NAMES_SHOWN]:
            before, after = found.classes[one.before.named], found.classes[one.after.named]
            lines.append(f"{one.kind}: {found.names[one.place]}: {before}, then {after}")
        if len(changed) > _NAMES_SHOWN:
            lines.append(f"{changed[0].kind}: and {len(changed) - _NAMES_SHOWN:,} more")
    return [*lines, change_summary(changes)]


def change_summary(changes: Changes) -> str:
    """What changed and whether chance explains it, in a sentence."""
    verdict = "more than chance explains" if changes.p_value < 0.05 else "chance may explain it"
    return (
        f"Top-1 changes by {100 * changes.difference:+.1f} points; McNemar's exact test: p = {changes.p_value:.2g} "
        f"({verdict})."
    )


def robustness_table(robustness: Robustness) -> Table:
    """Top-1 in percent by strength."""
    rows = []
    for curve in robustness.curves:
        shares = {point.strength: f"{100 * point.top1.value:.1f}" for point in curve.points}
        rows.append((curve.op, curve.run, *(shares.get(strength, "–") for strength in robustness.strengths)))
    columns = ("op", "run", *(f"x {strength:g}" for strength in robustness.strengths))
    return Table(columns=columns, rows=rows, num_left=2)


def write_files(
    found: Comparison, folder: Path, changes: Changes | None = None, robustness: Robustness | None = None
) -> list[Path]:
    """Write all files, each whole or not at all; those of an earlier evaluation are replaced.

    classes.csv, confusion.csv and predictions.csv are of the last result: all together, or the only run. changes.csv
    and robustness.csv are written where those are given.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    metrics = found.last.metrics
    texts = {
        JSON: json.dumps(to_json(found, changes, robustness), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        SUMMARY: _csv(_SUMMARY_COLUMNS, map(_summary_row, found.results)),
        CLASSES: _csv(("class", "images", "top1", "low", "high", "named", "precision"), _class_rows(found, metrics)),
        CONFUSION: _csv(
            ("class", *found.classes),
            ([name, *row] for name, row in zip(found.classes, metrics.confusion.tolist(), strict=True)),
        ),
        PREDICTIONS: _csv(
            ("image", "class", "named", "probability", "probability_of_class", "rank"), _prediction_rows(found)
        ),
    }
    if changes is not None:
        texts[CHANGES] = _csv(
            ("image", "class", "change", "before", "before_probability", "after", "after_probability"),
            _change_rows(found, changes),
        )
    if robustness is not None:
        texts[ROBUSTNESS] = _csv(
            ("op", "run", "strength", "images", "top1", "low", "high"),
            (
                (curve.op, curve.run, point.strength, point.top1.num, point.top1.value, point.top1.low, point.top1.high)
                for curve in robustness.curves
                for point in curve.points
            ),
        )
    paths = []
    for name, text in texts.items():
        write_atomically(str(folder / name), text.encode(errors="surrogateescape"))
        paths.append(folder / name)
    return paths


def to_json(found: Comparison, changes: Changes | None = None, robustness: Robustness | None = None) -> dict[str, Any]:
    """All of it but single images, as JSON takes it; of those, the names of the ones that changed."""
    made: dict[str, Any] = {
        "version": 1,
        "views": asdict(found.views) | {"num_views": found.views.num_views},
        "classes": list(found.classes),
        "results": [_result(one) for one in found.results],
        "left_out": [{"sample_id": sample_id, "reason": text} for sample_id, text in found.left_out.items()],
    }
    if changes is not None:
        made["changes"] = _changes(found, changes)
    if robustness is not None:
        made["robustness"] = _robustness(robustness)
    return made


def _changes(found: Comparison, changes: Changes) -> dict[str, Any]:
    return {
        "before": changes.before,
        "after": changes.after,
        "both_right": changes.both_right,
        "both_wrong": changes.both_wrong,
        "right_to_wrong": [found.names[one.place] for one in changes.lost],
        "wrong_to_right": [found.names[one.place] for one in changes.gained],
        "top1_difference": changes.difference,
        "mcnemar_p": changes.p_value,
    }


def _robustness(robustness: Robustness) -> dict[str, Any]:
    curves = [
        {
            "op": curve.op,
            "run": curve.run,
            "draws": curve.draws,
            "points": [{"strength": point.strength, "top1": _share(point.top1)} for point in curve.points],
        }
        for curve in robustness.curves
    ]
    return {"recipe": robustness.recipe, "strengths": list(robustness.strengths), "curves": curves}


def _result(one: RunResult) -> dict[str, Any]:
    metrics = one.metrics
    return {
        "run": one.name,
        "weight": one.weight,
        "step": one.step,
        "weights": one.weights,
        "images": metrics.num_samples,
        "loss": _number(metrics.loss),
        "top1": _share(metrics.top1),
        "top5": _share(metrics.top5),
        "ece": metrics.ece,
        "calibration": [{name: _number(value) for name, value in asdict(one).items()} for one in metrics.bins],
        "per_class": [{"top1": _share(row.recall), "precision": _share(row.precision)} for row in metrics.classes],
        "confusion": metrics.confusion.tolist(),
    }


def _share(share: Share) -> dict[str, Any]:
    value = _number(share.value)
    return {"value": value, "low": share.low, "high": share.high, "right": share.num_right, "of": share.num}


def _number(value: float) -> float | None:
    """JSON has neither nan nor infinity."""
    return value if math.isfinite(value) else None


def _summary_row(one: RunResult) -> Sequence[Any]:
    top1, top5 = one.metrics.top1, one.metrics.top5
    shares = [number for share in (top1, top5) for number in (share.value, share.low, share.high)]
    about = (one.name, one.weight, "" if one.step is None else one.step, one.weights, one.metrics.num_samples)
    return (*about, *shares, one.metrics.loss, one.metrics.ece)


def _class_rows(found: Comparison, metrics: Metrics) -> Iterable[Sequence[Any]]:
    for name, row in zip(found.classes, metrics.classes, strict=True):
        recall, precision = row.recall, row.precision
        yield name, recall.num, recall.value, recall.low, recall.high, precision.num, precision.value


def _prediction_rows(found: Comparison) -> Iterable[Sequence[Any]]:
    named = likeliest(found.log_probs, 1)[:, 0]
    own = np.take_along_axis(found.log_probs, found.labels[:, None], 1)
    ranks = 1 + (found.log_probs > own).sum(1)
    for number, name in enumerate(found.names):
        label, best = int(found.labels[number]), int(named[number])
        probabilities = [float(np.exp(found.log_probs[number, one])) for one in (best, label)]
        yield name, found.classes[label], found.classes[best], *probabilities, int(ranks[number])


def _change_rows(found: Comparison, changes: Changes) -> Iterable[Sequence[Any]]:
    for one in (*changes.lost, *changes.gained):
        about = (found.names[one.place], found.classes[int(found.labels[one.place])], one.kind)
        answers = ((found.classes[answer.named], answer.probability) for answer in (one.before, one.after))
        yield (*about, *(cell for answer in answers for cell in answer))


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return Table(columns=columns, rows=list(rows)).csv()
