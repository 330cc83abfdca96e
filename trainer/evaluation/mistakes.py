"""Images with what networks say of them, as figures of a page: the surest mistakes, and what a second run changed."""

from collections.abc import Iterator
from html import escape

import numpy as np

from augpipe.datasets.stats.chunk import decode_sample
from augpipe.decoding import MAX_PIXELS
from augpipe.native.cpu_render import Scratch
from augpipe.reports.page import html_thumbnail
from augpipe.trainer.evaluation.changes import Answer, Change
from augpipe.trainer.evaluation.ensemble import Comparison
from augpipe.trainer.evaluation.metrics import Ints, likeliest

NUM_SHOWN = 24
"""Images of a sheet, at most."""
_THUMBNAIL_PX = (320, 240)
STYLE = """
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(12.5rem, 1fr)); gap: 1.4rem 1.1rem; }
figure { margin: 0; } figure img { width: 100%; height: 9rem; object-fit: contain; background: var(--line); }
figcaption { font-size: .8rem; line-height: 1.3; overflow-wrap: anywhere; } figcaption small { color: var(--soft); }
.answers { margin-top: .3rem; }
.answers div { display: flex; justify-content: space-between; gap: .5rem; margin-top: 2px; padding: 0 .3rem;
  background: linear-gradient(to right, var(--tint) var(--share), transparent 0); --tint: rgba(130, 140, 155, .35); }
.answers .right { --tint: rgba(74, 127, 181, .55); font-weight: 600; }
.answers .wrong { --tint: rgba(200, 100, 30, .45); }
"""
"""For the page that holds such figures."""


def surest_mistakes(found: Comparison) -> Ints:
    """The places in `found.names` of images whose likeliest class is wrong, the likeliest of them first."""
    named = likeliest(found.log_probs, 1)[:, 0]
    wrong = np.flatnonzero(named != found.labels)
    order: Ints = wrong[np.argsort(-found.log_probs[wrong, named[wrong]], kind="stable")]
    return order


def mistake_figures(found: Comparison) -> Iterator[str]:
    """An image each, its class, and a bar for each of the five likeliest, as in Deep Image's Figures 6 to 8.

    The bar of the right class is blue; where it is not among the five it comes below them, with its rank.
    """
    for place in surest_mistakes(found)[:NUM_SHOWN].tolist():
        log_probs, label = found.log_probs[place], int(found.labels[place])
        best = likeliest(log_probs[None], 5)[0].tolist()
        bars = [
            _bar(found.classes[one], float(np.exp(log_probs[one])), "right" if one == label else "wrong" * (not row))
            for row, one in enumerate(best)
        ]
        if label not in best:
            rank = 1 + int((log_probs > log_probs[label]).sum())
            bars.append(_bar(f"{rank:,}. {found.classes[label]}", float(np.exp(log_probs[label])), "right"))
        yield _figure(found, place, bars)


def change_figures(found: Comparison, changes: tuple[Change, ...]) -> Iterator[str]:
    """An image each, its class, and a bar for what each of two runs says; the first of `changes` alone."""
    for one in changes[: NUM_SHOWN // 2]:
        label = int(found.labels[one.place])
        bars = [
            _answer_bar(found, which, answer, label) for which, answer in (("before", one.before), ("after", one.after))
        ]
        yield _figure(found, one.place, bars)


def _answer_bar(found: Comparison, which: str, answer: Answer, label: int) -> str:
    kind = "right" if answer.named == label else "wrong"
    return _bar(f"{which}: {found.classes[answer.named]}", answer.probability, kind)


def _bar(name: str, share: float, kind: str) -> str:
    percent = f"{share:.1%}" if share < 0.9995 else "100%"
    style = f"--share: {100 * share:.1f}%"
    return f'<div class="{kind}" style="{style}"><span>{escape(name)}</span><span>{percent}</span></div>'


def _figure(found: Comparison, place: int, bars: list[str]) -> str:
    name = found.names[place].replace("\\", "/").rsplit("/", 1)[-1]
    label = found.classes[int(found.labels[place])]
    _, pixels = decode_sample(found.source, int(found.sample_ids[place]), Scratch(), MAX_PIXELS)
    image = html_thumbnail(pixels, _THUMBNAIL_PX, f"{name}, {label}", quality=82)
    caption = f"<b>{escape(label)}</b> <small>{escape(name)}</small>"
    return f'<figure>{image}<figcaption>{caption}<div class="answers">{"".join(bars)}</div></figcaption></figure>'
