"""A page of HTML that needs nothing else: what the reports of a data set and of a training run look like."""

import base64
import io
from collections.abc import Iterable
from html import escape

import numpy as np
from PIL import Image

from augpipe.sources.protocol import Pixels

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667; --line: #d8dce3; --bar: #4a7fb5; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #9aa3b0; --line: #39414d; --bar: #6b9fd4; --paper: #171b21; }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } th { color: var(--soft); font-weight: normal; }
th:not(.n), td:not(.n) { word-break: break-word; }
"""


def html_page(title: str, style: str, parts: Iterable[str]) -> bytes:
    """The page.

    Args:
        title: a text, which is its heading too.
        style: CSS in addition to that of all pages.
        parts: HTML below the heading.
    """
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *parts,
        "</body></html>\n",
    ]
    return "\n".join(lines).encode("utf-8", "xmlcharrefreplace")


def html_table(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values, both texts."""
    lines = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{''.join(lines)}</table>"


def html_image(content: bytes, what: str, kind: str = "png") -> str:
    """An image within the page.

    Args:
        content: of the file.
        what: it shows, for who cannot see it.
        kind: "png" or "jpeg".
    """
    encoded = base64.b64encode(content).decode("ascii")
    return f'<img alt="{escape(what)}" src="data:image/{kind};base64,{encoded}">'


def html_thumbnail(pixels: Pixels, most_px: tuple[int, int], what: str, quality: int) -> str:
    """A small JPEG of an image within the page.

    Args:
        pixels: (H, W, 3 or more) uint8, of which the first three channels are shown.
        most_px: width and height that it fits in.
        what: as in `html_image`.
        quality: of the JPEG.
    """
    file = io.BytesIO()
    thumbnail(pixels, most_px).save(file, "JPEG", quality=quality)
    return html_image(file.getvalue(), what, "jpeg")


def thumbnail(pixels: Pixels, most_px: tuple[int, int]) -> Image.Image:
    """A smaller image, of the same pixels as `html_thumbnail`."""
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, :3]))
    image.thumbnail(most_px)
    return image
