"""Figures by matplotlib: how one is begun, its colours and look, and names that its font may not have."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, PURPLE, GRAY = "#3b6ea5", "#c8641e", "#4b8b5a", "#b3382c", "#7a5ea8", "#9aa3ae"
_DPI = 120


def check_matplotlib(what: str) -> None:
    """Fail before the work, not after it.

    Args:
        what: needs matplotlib, in the plural or with its verb: "curves need".

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{what} matplotlib: pip install "augpipe[plots]"') from error


def begin(width: float, height: float, what: str = "curves need") -> "Figure":
    """An empty figure of so many inches.

    Raises:
        ImportError: as `check_matplotlib`.
    """
    check_matplotlib(what)
    from matplotlib.figure import Figure  # without pyplot: no global state, and no screen is asked for

    return Figure(figsize=(width, height), layout="constrained")


def frame(axis: "Axes", title: str) -> None:
    """The look that all plots of numbers share."""
    axis.set_title(title, fontsize=10, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    axis.grid(axis="y", color="#e4e7ec", linewidth=0.7)
    axis.set_axisbelow(True)


def save(figure: "Figure", path: Path) -> Path:
    """Write a PNG, which is replaced; returns `path`."""
    with _without_glyph_warnings():
        figure.savefig(path, dpi=_DPI)
    return path


def png(figure: "Figure", dpi: int) -> bytes:
    """A PNG, for a page."""
    file = io.BytesIO()
    with _without_glyph_warnings():
        figure.savefig(file, dpi=dpi, format="png")
    return file.getvalue()


def plain(text: str) -> str:
    """The text in one line, with a question mark for what cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def begin_of(text: str, most: int) -> str:
    """The beginning of a text that is longer than `most` letters."""
    text = plain(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def end_of(text: str, most: int) -> str:
    """The end of a longer text, which tells files apart better than its beginning."""
    text = plain(text)
    return text if len(text) <= most else f"…{text[1 - most :]}"


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Names may be in any script, and matplotlib's font has not all: it draws boxes, which needs no word."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield
