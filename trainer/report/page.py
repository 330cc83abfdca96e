"""report.html of a run: one page that needs nothing else, with the curves, the last numbers and the config."""

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path

from augpipe.datasets.files.atomic import write_atomically
from augpipe.datasets.files.page import html_page, html_table
from augpipe.trainer.report.metrics import read_rows

_STYLE = """
img { width: 100%; background: #fff; border: 1px solid var(--line); }
pre { border: 1px solid var(--line); padding: .8rem 1rem; overflow-x: auto; font-size: .82rem; line-height: 1.35;
      columns: 2 24rem; }
"""


def write_page(run: Path, curves: Path) -> Path:
    """Write RUN/report.html.

    Args:
        run: folder of the run.
        curves: the PNG to put on it.

    Raises:
        OSError: something cannot be read or written.
    """
    rows = read_rows(run / "metrics.csv")
    config = run / "config.toml"
    image = base64.b64encode(curves.read_bytes()).decode("ascii")
    parts = [
        _facts(rows),
        f'<p><img alt="Curves of loss, accuracy, learning rate and speed" src="data:image/png;base64,{image}"></p>',
        *_evaluations(rows),
    ]
    if config.is_file():
        parts += ["<h2>Config</h2>", f"<pre>{escape(config.read_text(encoding='utf-8'))}</pre>"]
    path = run / "report.html"
    write_atomically(str(path), html_page(f"Training run {run.resolve().name}", _STYLE, parts))
    return path


def _facts(rows: list[dict[str, str]]) -> str:
    last = rows[-1]
    trained = [row for row in rows if row["loss"]]
    held_out = [row for row in rows if row["eval_top1"]]
    facts = [("steps", f"{int(last['step']):,}"), ("epochs begun", f"{int(last['epoch']) + 1:,}")]
    facts.append(("time in training", _duration(float(last["seconds"]))))
    if trained:
        rates = sorted(float(row["images_per_s"]) for row in trained)
        facts.append(("images a second, all ranks, median", f"{rates[len(rates) // 2]:,.0f}"))
        facts.append(("sent by a rank, MB a step", f"{float(trained[-1]['sent_mb']):.3g}"))
    if held_out:
        best = max(held_out, key=lambda row: float(row["eval_top1"]))
        final = held_out[-1]
        facts.append(
            ("held out, at the end", f"top-1 {float(final['eval_top1']):.1%}, loss {float(final['eval_loss']):.3f}")
        )
        facts.append(("held out, best", f"top-1 {float(best['eval_top1']):.1%} after step {int(best['step']):,}"))
    if int(last["skipped"] or 0):
        facts.append(("steps left out", last["skipped"]))
    return html_table(facts)


def _evaluations(rows: list[dict[str, str]]) -> Iterable[str]:
    found = [row for row in rows if row["eval_top1"]][-12:]
    if not found:
        return
    yield "<h2>Held-out pictures, the last evaluations</h2>"
    yield '<table><tr><th class="n">epoch</th><th class="n">step</th><th class="n">loss</th>'
    yield '<th class="n">top-1</th><th class="n">top-5</th></tr>'
    for row in found:
        cells = (
            f"{int(row['epoch']) + 1}",
            f"{int(row['step']):,}",
            f"{float(row['eval_loss']):.3f}",
            f"{float(row['eval_top1']):.1%}",
            f"{float(row['eval_top5']):.1%}",
        )
        yield "<tr>" + "".join(f'<td class="n">{cell}</td>' for cell in cells) + "</tr>"
    yield "</table>"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
