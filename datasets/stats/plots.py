"""Statistics as PNG files, by matplotlib: class sizes, image sizes, and a sheet of duplicates."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from augpipe.datasets.stats.chunk import decode_sample
from augpipe.datasets.stats.duplicates import Group, class_name
from augpipe.datasets.stats.statistics import Distribution, Statistics
from augpipe.decoding import MAX_PIXELS
from augpipe.errors import SampleError
from augpipe.native.cpu_render import Scratch
from augpipe.sources.protocol import Source
from augpipe.validation.plural import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, RED = "#3b6ea5", "#b3382c"
MAX_BARS = 40
"""Classes that a bar and a name each are drawn for; more become one curve."""
MAX_GROUPS, MAX_MEMBERS = 8, 5
"""The most rows and columns of the sheet."""
_THUMBNAIL_PX = 240
_DPI = 120
_LOOK_FIRST = ("look_alike", "same_pixels", "same_bytes")


def check_matplotlib() -> None:
    """Fail before the work, not after it.

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "augpipe[plots]"') from error


def write_plots(statistics: Statistics, source: Source, folder: Path) -> list[Path]:
    """Write sizes.png, classes.png (with two classes or more) and duplicates.png (where there are any).

    Args:
        statistics: what to draw.
        source: theirs; the images of the sheet are read from it again.
        folder: is made where it is missing; files of these names are replaced.

    Returns:
        The files written.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the folder cannot be written to.
    """
    check_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Figure] = {}
    with _without_glyph_warnings():
        if statistics.sizes:
            drawn["sizes.png"] = draw_sizes(statistics)
        if len(statistics.class_sizes) > 1:
            drawn["classes.png"] = draw_classes(statistics)
        if statistics.duplicates is not None and statistics.duplicates.groups:
            drawn["duplicates.png"] = draw_duplicates(statistics, source)
        for name, figure in drawn.items():
            figure.savefig(folder / name, dpi=_DPI)
    return [folder / name for name in drawn]


def draw_sizes(statistics: Statistics) -> "Figure":
    """Histograms of the sides, the short side and the aspect ratio."""
    figure = _figure(10, 6)
    axes = figure.subplots(2, 2).ravel()
    titles = {"height": "height, px", "width": "width, px", "short_side": "short side, px", "aspect": "width / height"}
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        _draw_histogram(axis, statistics.sizes[key])
        axis.set_title(title, fontsize=10, loc="left")
    figure.suptitle(
        f"{_plain(statistics.source)}: sizes of {count(statistics.sums.num_usable, 'photograph')}", parse_math=False
    )
    return figure


def draw_classes(statistics: Statistics) -> "Figure":
    """A bar for every class, or a curve over all of them from the largest to the smallest."""
    sizes = statistics.class_sizes
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    few = len(sizes) <= MAX_BARS
    figure = _figure(8, max(2.0, 0.26 * len(sizes) + 1.2) if few else 4.5)
    axis = figure.subplots()
    if few:
        axis.barh(range(len(ordered)), [size for _, size in ordered], color=BLUE)
        axis.set_yticks(range(len(ordered)), [_short(name, 40) for name, _ in ordered], fontsize=8, parse_math=False)
        axis.invert_yaxis()
        axis.set_xlabel("photographs")
    else:
        axis.fill_between(range(1, len(ordered) + 1), [size for _, size in ordered], color=BLUE, step="mid")
        axis.set_xlim(1, len(ordered))
        axis.set_ylim(bottom=0)
        axis.set_xlabel("classes, from the largest to the smallest")
        axis.set_ylabel("photographs")
    balance = "" if statistics.balance is None else f", balance {statistics.balance:.3f}"
    figure.suptitle(f"{_plain(statistics.source)}: {count(len(sizes), 'class')}{balance}", parse_math=False)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def draw_duplicates(statistics: Statistics, source: Source) -> "Figure":
    """A few groups, a row each: those with contradicting labels first, and those first that an eye should judge."""
    assert statistics.duplicates is not None
    everything = statistics.duplicates.groups
    groups = sorted(everything, key=lambda group: (not group.contradicts, _LOOK_FIRST.index(group.kind)))[:MAX_GROUPS]
    columns = min(max(len(group.members) for group in groups), MAX_MEMBERS)
    figure = _figure(max(2.2 * columns, 6.6), 2.3 * len(groups) + 0.6)
    grid = figure.subplots(len(groups), columns, squeeze=False)
    scratch = Scratch()
    for row, group in zip(grid, groups, strict=True):
        for axis in row:
            axis.axis("off")
        for axis, member in zip(row, group.members, strict=False):
            axis.imshow(_thumbnail(source, member.sample_id, scratch))
            label = class_name(source.classes, member.label)
            caption = _short(statistics.short_name(member.name), 30) + (
                f"\n{_short(label, 30)}" if label is not None else "\n"
            )
            axis.set_title(caption, fontsize=7, color=RED if group.contradicts else "black", parse_math=False)
        row[0].text(
            -0.08,
            0.5,
            _group_title(group),
            transform=row[0].transAxes,
            fontsize=8,
            rotation=90,
            ha="right",
            va="center",
        )
    shown = "" if len(groups) == len(everything) else f"{len(groups)} of "
    figure.suptitle(f"{shown}{len(everything):,} groups of duplicates; red: labels contradict each other")
    return figure


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure  # without pyplot: no global state, and no screen is asked for

    return Figure(figsize=(width, height), layout="constrained")


def _draw_histogram(axis: "Axes", spread: Distribution) -> None:
    filled = np.flatnonzero(spread.counts)
    first, last = int(filled[0]), int(filled[-1])
    counts = spread.counts[first : last + 1]
    edges = spread.edges[first : last + 2]
    axis.bar(np.arange(len(counts)) + 0.5, counts, width=0.92, color=BLUE)
    axis.set_xticks(range(len(edges)), [_edge(edge) for edge in edges], fontsize=8, rotation=45)
    axis.set_ylabel("photographs", fontsize=8)
    axis.tick_params(axis="y", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _edge(edge: float) -> str:
    return "∞" if math.isinf(edge) else f"{edge:g}"


def _thumbnail(source: Source, sample_id: int, scratch: Scratch) -> Any:
    from PIL import Image

    try:
        _, pixels = decode_sample(source, sample_id, scratch, MAX_PIXELS)
    except SampleError:  # it could be read a minute ago: the sheet shows a gap, and the others
        return np.full((_THUMBNAIL_PX, _THUMBNAIL_PX, 3), 220, np.uint8)
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, :3]))
    image.thumbnail((_THUMBNAIL_PX, _THUMBNAIL_PX))
    return np.asarray(image)


def _group_title(group: Group) -> str:
    more = len(group.members) - MAX_MEMBERS
    return group.kind.replace("_", " ") + (f"\nand {more} more" if more > 0 else "")


def _short(text: str, most: int) -> str:
    """The end of a text, which tells files apart better than its beginning."""
    text = _plain(text)
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Names may be in any script, and matplotlib's font has not all: it draws boxes, which needs no word."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield
