"""evaluation.html: one page that needs nothing else, with tables, plots and the surest mistakes of an evaluation."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np

from augpipe.datasets.files.atomic import write_atomically
from augpipe.reports.page import html_image, html_page
from augpipe.reports.tables import Table
from augpipe.trainer.evaluation.changes import Change, Changes
from augpipe.trainer.evaluation.ensemble import Comparison
from augpipe.trainer.evaluation.files import (
    change_summary,
    change_table,
    percent,
    robustness_table,
    summary_table,
)
from augpipe.trainer.evaluation.metrics import Ints, Share
from augpipe.trainer.evaluation.mistakes import NUM_SHOWN, STYLE, change_figures, mistake_figures, surest_mistakes
from augpipe.trainer.evaluation.plots import MOST_CLASSES, confusion_png, curves_png, reliability_png
from augpipe.trainer.evaluation.robustness import Robustness
from augpipe.validation.plural import count

PAGE = "evaluation.html"
_NUM_CONFUSED = 15
"""Rows of the table of what is taken for what."""
_MOST_ROWS = 40
"""Rows from which on a table scrolls in a box of its own."""
_STYLE = (
    STYLE
    + """
.note { color: var(--soft); max-width: 46rem; }
.plot { overflow-x: auto; } .plot img { background: #fff; border: 1px solid var(--line); }
.long { max-height: 32rem; overflow-y: auto; border: 1px solid var(--line); padding: .4rem .8rem; width: fit-content;
  margin: 1rem 0; }
.pair { display: flex; flex-wrap: wrap; gap: 1rem 3rem; align-items: flex-start; } .pair > .plot { max-width: 100%; }
h3 { font-size: 1rem; margin-bottom: .5rem; }
"""
)


def write_page(
    found: Comparison, folder: Path, changes: Changes | None = None, robustness: Robustness | None = None
) -> Path:
    """Write FOLDER/evaluation.html; details are of all together, or of the only run.

    Args:
        found: by `evaluate_runs`; the images of mistakes are read from its source again.
        folder: is made where it is missing.
        changes: by `changes_of`, to be shown.
        robustness: by `robustness_of`, to be shown.

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
        SampleError: an image cannot be read any more.
        OSError: the page cannot be written.
    """
    metrics, last = found.last.metrics, found.last.name
    note = f"{count(metrics.num_samples, 'photograph')} of {count(len(found.classes), 'class')}, {found.views}."
    left_out = f" {count(len(found.left_out), 'photograph')} left out." if found.left_out else ""
    parts = [
        f'<p class="note">{note}{left_out} Intervals hold 95 % (Wilson).</p>',
        summary_table(found).html(),
        *(_changes(found, changes) if changes is not None else ()),
        *(_robustness(robustness) if robustness is not None else ()),
        *_mistakes(found),
        *_confusion(found, metrics.confusion),
        "<h2>Calibration</h2>",
        '<p class="note">How often the likeliest class is right, by the probability that it has. Below the line a '
        "network is surer than it may be.</p>",
        f'<div class="plot">{html_image(reliability_png(metrics.bins, metrics.ece), "Accuracy by probability")}</div>',
        *_classes(found),
    ]
    if len(found.results) > 1:
        parts.insert(2, f'<p class="note">Mistakes, confusion, calibration and classes below are of {last}.</p>')
    folder.mkdir(parents=True, exist_ok=True)
    title = f"Evaluation of {', '.join(one.name for one in found.results if one.step is not None)}"
    write_atomically(str(folder / PAGE), html_page(title, _STYLE, parts))
    return folder / PAGE


def _changes(found: Comparison, changes: Changes) -> Iterator[str]:
    yield "<h2>What changed</h2>"
    yield change_table(changes).html()
    yield f'<p class="note">{change_summary(changes)}</p>'
    for kind, changed in (("Right to wrong", changes.lost), ("Wrong to right", changes.gained)):
        yield from _change_sheet(found, kind, changed)


def _change_sheet(found: Comparison, kind: str, changed: Sequence[Change]) -> Iterator[str]:
    figures = list(change_figures(found, tuple(changed)))
    if figures:
        which = "" if len(figures) == len(changed) else f", the {len(figures)} surest mistakes"
        yield f"<h3>{kind}: {count(len(changed), 'photograph')}{which}</h3>"
        yield f'<div class="sheet">{"".join(figures)}</div>'


def _robustness(robustness: Robustness) -> Iterator[str]:
    yield f"<h2>Robustness: top-1 by the strength of each op of {escape(robustness.recipe)}</h2>"
    yield (
        '<p class="note">Each op by itself, on the same draws at every strength: 1 is what the recipe says, at 0 the '
        "op is left out. Bands are 95 % intervals; a curve ends where the op goes no further.</p>"
    )
    yield f'<div class="plot">{html_image(curves_png(robustness), "Top-1 by strength")}</div>'
    yield f'<div class="long">{robustness_table(robustness).html()}</div>'
    drawn = {curve.op: curve.draws for curve in robustness.curves}
    yield Table(columns=("op", "draws at strength 1"), rows=list(drawn.items()), num_left=2).html()


def _mistakes(found: Comparison) -> Iterator[str]:
    wrong = len(surest_mistakes(found))
    if not wrong:
        return
    which = "" if wrong <= NUM_SHOWN else f", the first {NUM_SHOWN} of {wrong:,}"
    yield f"<h2>The surest mistakes{which}</h2>"
    yield '<p class="note">Below each its class, and the five likeliest ones; blue is the right one.</p>'
    yield f'<div class="sheet">{"".join(mistake_figures(found))}</div>'


def _confusion(found: Comparison, confusion: Ints) -> Iterator[str]:
    yield "<h2>Confusion</h2>"
    which = f" The {MOST_CLASSES} classes with the most mistakes." if len(found.classes) > MOST_CLASSES else ""
    yield (
        f'<p class="note">A row holds the images of a class, as dark as the share of them that was named so: blue the '
        f"right ones, orange the mistakes.{which} The numbers are in confusion.csv.</p>"
    )
    yield '<div class="pair">'
    yield f'<div class="plot">{html_image(confusion_png(confusion, found.classes), "Confusion matrix")}</div>'
    yield f"<div><h3>Most often confused</h3>{_confused(found, confusion)}</div></div>"


def _confused(found: Comparison, confusion: Ints) -> str:
    mistakes = confusion - np.diag(np.diag(confusion))
    order = np.argsort(-mistakes, axis=None, kind="stable")[:_NUM_CONFUSED]
    rows = []
    for row, column in zip(*np.unravel_index(order, mistakes.shape), strict=True):
        num = int(mistakes[row, column])
        if num:
            share = num / int(confusion[row].sum())
            rows.append((found.classes[row], found.classes[column], f"{num:,}", f"{share:.0%}"))
    return Table(columns=("class", "named", "photographs", "of the class"), rows=rows, num_left=2).html()


def _classes(found: Comparison) -> Iterator[str]:
    """The worst first; classes without images last."""
    columns = ("class", "photographs", "top-1 with 95 % interval", "named so", "rightly")
    both = zip(found.classes, found.last.metrics.classes, strict=True)
    ordered = sorted(both, key=lambda one: one[1].recall.value if one[1].recall.num else 2.0)
    rows = [
        (name, f"{row.recall.num:,}", percent(row.recall), f"{row.precision.num:,}", _share(row.precision))
        for name, row in ordered
    ]
    yield "<h2>Classes, the worst first</h2>"
    table = Table(columns=columns, rows=rows, num_left=1).html()
    yield f'<div class="long">{table}</div>' if len(rows) > _MOST_ROWS else table


def _share(share: Share) -> str:
    return f"{share.value:.1%}" if share.num else "–"
