"""report.html of a run: one page that needs nothing else, with the curves, the last numbers and the config."""

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path

from augpipe.datasets.files.atomic import write_atomically
from augpipe.trainer.report.metrics import read_rows

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667; --line: #d8dce3; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #9aa3b0; --line: #39414d; --paper: #171b21; }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
img { width: 100%; background: #fff; border: 1px solid var(--line); }
table { border-collapse: collapse; } td, th { padding: .15rem 1.2rem .15rem 0; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } th { color: var(--soft); font-weight: normal; }
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
    title = escape(f"Training run {run.resolve().name}")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        _facts(rows),
        f'<p><img alt="Curves of loss, accuracy, learning rate and speed" src="data:image/png;base64,{image}"></p>',
        *_evaluations(rows),
    ]
    if config.is_file():
        parts += ["<h2>Config</h2>", f"<pre>{escape(config.read_text(encoding='utf-8'))}</pre>"]
    parts.append("</body></html>\n")
    path = run / "report.html"
    write_atomically(str(path), "\n".join(parts).encode("utf-8", "xmlcharrefreplace"))
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
    return (
        "<table>"
        + "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts)
        + "</table>"
    )


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
