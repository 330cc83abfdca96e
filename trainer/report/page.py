"""report.html of a run: one page that needs nothing else, with the curves, the last numbers and the config."""

from collections.abc import Iterable
from html import escape
from itertools import pairwise
from pathlib import Path

from augpipe.datasets.files.atomic import write_atomically
from augpipe.reports.page import html_image, html_page, html_table
from augpipe.reports.tables import Table
from augpipe.trainer.report.metrics import read_rows
from augpipe.trainer.report.pushes import html_rows

_STYLE = """
img { width: 100%; background: #fff; border: 1px solid var(--line); }
pre { border: 1px solid var(--line); padding: .8rem 1rem; overflow-x: auto; font-size: .82rem; line-height: 1.35;
      columns: 2 24rem; }
"""

MUCH = 0.1
"""Share of waiting from which on the page says how to find the reason."""


def write_page(run: Path, curves: Path, pushes: Path | None = None) -> Path:
    """Write RUN/report.html.

    Args:
        run: folder of the run.
        curves: the PNG to put on it.
        pushes: that of a run with parameter servers.

    Raises:
        OSError: something cannot be read or written.
    """
    rows = read_rows(run / "metrics.csv")
    config = run / "config.toml"
    parts = [
        _facts(rows, counts_waiting=pushes is None),
        _image(curves, "Curves of loss, accuracy, learning rate and speed"),
        *_evaluations(rows),
    ]
    if pushes is not None:
        what = "Staleness of pushes, and by worker their rate and where the time goes"
        parts += [*html_rows(read_rows(run / "pushes.csv")), _image(pushes, what)]
    if config.is_file():
        parts += ["<h2>Config</h2>", f"<pre>{escape(config.read_text(encoding='utf-8'))}</pre>"]
    path = run / "report.html"
    write_atomically(str(path), html_page(f"Training run {run.resolve().name}", _STYLE, parts))
    return path


def _image(path: Path, what: str) -> str:
    return f"<p>{html_image(path.read_bytes(), what)}</p>"


def _facts(rows: list[dict[str, str]], *, counts_waiting: bool) -> str:
    last = rows[-1]
    trained = [row for row in rows if row["loss"]]
    held_out = [row for row in rows if row["eval_top1"]]
    facts = [("steps", f"{int(last['step']):,}"), ("epochs begun", f"{int(last['epoch']) + 1:,}")]
    facts.append(("time in training", _duration(float(last["seconds"]))))
    if trained:
        rates = sorted(float(row["images_per_s"]) for row in trained)
        facts.append(("images a second, all ranks, median", f"{rates[len(rates) // 2]:,.0f}"))
        if counts_waiting and all(row["data_ms"] for row in trained):
            facts.append(("waiting for batches, of the time in training", _waiting(trained)))
        facts.append(("sent by a rank, MB a step", f"{float(trained[-1]['sent_mb']):.3g}"))
    if held_out:
        best = max(held_out, key=lambda row: float(row["eval_top1"]))
        final = held_out[-1]
        facts.append(
            ("evaluation, at the end", f"top-1 {float(final['eval_top1']):.1%}, loss {float(final['eval_loss']):.3f}")
        )
        facts.append(("evaluation, best", f"top-1 {float(best['eval_top1']):.1%} after step {int(best['step']):,}"))
    if int(last["skipped"] or 0):
        facts.append(("steps left out", last["skipped"]))
    return html_table(facts)


def _waiting(trained: list[dict[str, str]]) -> str:
    """How much of the training rank 0 has waited for batches, and who says why where that is much."""
    steps = [0, *(int(row["step"]) for row in trained)]
    waited_s = sum(float(row["data_ms"]) / 1e3 * (b - a) for row, (a, b) in zip(trained, pairwise(steps), strict=True))
    share = waited_s / max(float(trained[-1]["seconds"]), 1e-9)
    return f"{share:.0%}" + (": augpipe explain SOURCE tells which part of loading is slow" if share > MUCH else "")


def _evaluations(rows: list[dict[str, str]]) -> Iterable[str]:
    found = [row for row in rows if row["eval_top1"]][-12:]
    if not found:
        return
    yield "<h2>Held-out pictures, the last evaluations</h2>"
    cells = [
        (
            f"{int(row['epoch']) + 1}",
            f"{int(row['step']):,}",
            f"{float(row['eval_loss']):.3f}",
            f"{float(row['eval_top1']):.1%}",
            f"{float(row['eval_top5']):.1%}",
        )
        for row in found
    ]
    yield Table(columns=("epoch", "step", "loss", "top-1", "top-5"), rows=cells).html()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
