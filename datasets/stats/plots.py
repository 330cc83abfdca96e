"""Statistics as PNG files, by matplotlib: class sizes, image sizes, and a sheet of duplicates."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from augpipe.datasets.stats.chunk import decode_sample
from augpipe.datasets.stats.duplicates import Group, class_name
from augpipe.datasets.stats.statistics import Distribution, Statistics
from augpipe.decoding import MAX_PIXELS
from augpipe.errors import SampleError
from augpipe.native.cpu_render import Scratch
from augpipe.reports.figures import BLUE, RED, begin, check_matplotlib, end_of, plain, save
from augpipe.reports.page import thumbnail
from augpipe.sources.protocol import Source
from augpipe.validation.plural import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_BARS = 40
"""Classes that a bar and a name each are drawn for; more become one curve."""
MAX_GROUPS, MAX_MEMBERS = 8, 5
"""The most rows and columns of the sheet."""
_THUMBNAIL_PX = 240
_NEED = "plots need"
_LOOK_FIRST = ("look_alike", "same_pixels", "same_bytes")


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
    check_matplotlib(_NEED)
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Figure] = {}
    if statistics.sizes:
        drawn["sizes.png"] = draw_sizes(statistics)
    if len(statistics.class_sizes) > 1:
        drawn["classes.png"] = draw_classes(statistics)
    if statistics.duplicates is not None and statistics.duplicates.groups:
        drawn["duplicates.png"] = draw_duplicates(statistics, source)
    return [save(figure, folder / name) for name, figure in drawn.items()]


def draw_sizes(statistics: Statistics) -> "Figure":
    """Histograms of the sides, the short side and the aspect ratio."""
    figure = begin(10, 6, _NEED)
    axes = figure.subplots(2, 2).ravel()
    titles = {"height": "height, px", "width": "width, px", "short_side": "short side, px", "aspect": "width / height"}
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        _draw_histogram(axis, statistics.sizes[key])
        axis.set_title(title, fontsize=10, loc="left")
    figure.suptitle(
        f"{plain(statistics.source)}: sizes of {count(statistics.sums.num_usable, 'photograph')}", parse_math=False
    )
    return figure


def draw_classes(statistics: Statistics) -> "Figure":
    """A bar for every class, or a curve over all of them from the largest to the smallest."""
    sizes = statistics.class_sizes
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    few = len(sizes) <= MAX_BARS
    figure = begin(8, max(2.0, 0.26 * len(sizes) + 1.2) if few else 4.5, _NEED)
    axis = figure.subplots()
    if few:
        axis.barh(range(len(ordered)), [size for _, size in ordered], color=BLUE)
        axis.set_yticks(range(len(ordered)), [end_of(name, 40) for name, _ in ordered], fontsize=8, parse_math=False)
        axis.invert_yaxis()
        axis.set_xlabel("photographs")
    else:
        axis.fill_between(range(1, len(ordered) + 1), [size for _, size in ordered], color=BLUE, step="mid")
        axis.set_xlim(1, len(ordered))
        axis.set_ylim(bottom=0)
        axis.set_xlabel("classes, from the largest to the smallest")
        axis.set_ylabel("photographs")
    balance = "" if statistics.balance is None else f", balance {statistics.balance:.3f}"
    figure.suptitle(f"{plain(statistics.source)}: {count(len(sizes), 'class')}{balance}", parse_math=False)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def draw_duplicates(statistics: Statistics, source: Source) -> "Figure":
    """A few groups, a row each: those with contradicting labels first, and those first that an eye should judge."""
    assert statistics.duplicates is not None
    everything = statistics.duplicates.groups
    groups = sorted(everything, key=lambda group: (not group.contradicts, _LOOK_FIRST.index(group.kind)))[:MAX_GROUPS]
    columns = min(max(len(group.members) for group in groups), MAX_MEMBERS)
    figure = begin(max(2.2 * columns, 6.6), 2.3 * len(groups) + 0.6, _NEED)
    grid = figure.subplots(len(groups), columns, squeeze=False)
    scratch = Scratch()
    for row, group in zip(grid, groups, strict=True):
        for axis in row:
            axis.axis("off")
        for axis, member in zip(row, group.members, strict=False):
            axis.imshow(_thumbnail(source, member.sample_id, scratch))
            label = class_name(source.classes, member.label)
            caption = end_of(statistics.short_name(member.name), 30) + (
                f"\n{end_of(label, 30)}" if label is not None else "\n"
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
    try:
        _, pixels = decode_sample(source, sample_id, scratch, MAX_PIXELS)
    except SampleError:  # it could be read a minute ago: the sheet shows a gap, and the others
        return np.full((_THUMBNAIL_PX, _THUMBNAIL_PX, 3), 220, np.uint8)
    return np.asarray(thumbnail(pixels, (_THUMBNAIL_PX, _THUMBNAIL_PX)))


def _group_title(group: Group) -> str:
    more = len(group.members) - MAX_MEMBERS
    return group.kind.replace("_", " ") + (f"\nand {more} more" if more > 0 else "")
