"""Figures of the documentation: panels of lines with intervals, drawn alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

COLOURS = ("#3b6ea5", "#c8641e", "#4c8c4a", "#8f5fa8", "#888888", "#b8a02e")
MARKERS = "osv^D*"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A label, and points with half the widths of their intervals."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    half: Sequence[float] = ()
    colour: str = ""
    """Empty: the next one of `COLOURS`."""
    style: str = "-"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lines on common axes."""

    title: str
    x: str
    y: str
    lines: Sequence[Line] = field(default=())
    log_x: int = 0
    """The base of a logarithmic axis; 0: it is linear."""
    log_y: int = 0


def draw(panels: Sequence[Panel], path: Path, *, columns: int = 0, share_y: bool = False) -> None:
    """Draw panels in rows of `columns` (all in one row where 0) into a file."""
    from matplotlib.figure import Figure

    columns = columns or len(panels)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(min(5.4, 12 / columns + 1) * columns, 3.6 * rows), dpi=110, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
    told: list[str] = []
    for axis, panel in zip(axes.flat, panels, strict=False):
        for number, line in enumerate(panel.lines):
            look = {"color": line.colour or COLOURS[number % 6], "linestyle": line.style, "linewidth": 1.4}
            axis.errorbar(
                line.x,
                line.y,
                line.half or None,
                label=line.label,
                marker=MARKERS[number % 6],
                ms=3.5,
                capsize=2,
                **look,
            )
        for base, scale in ((panel.log_x, axis.set_xscale), (panel.log_y, axis.set_yscale)):
            if base:
                scale("log", base=base)
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel(panel.x, fontsize=9)
        axis.set_ylabel(panel.y, fontsize=9)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        if (labels := [line.label for line in panel.lines]) != told:  # once for panels of the same lines
            axis.legend(fontsize=8, frameon=False)
        told = labels
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    print(f"drawn in {path}")
