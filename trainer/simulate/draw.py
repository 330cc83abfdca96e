"""Pictures of what was simulated: how a run scales, and what one rank does in one step."""

from collections.abc import Sequence
from pathlib import Path

from augpipe.reports.figures import BLUE, GRAY, GREEN, ORANGE, PURPLE, begin, check_matplotlib, frame, save
from augpipe.trainer.simulate.prediction import Prediction
from augpipe.trainer.simulate.step import LANES, Played

_COLORS = {
    "forward": "#8fb3d9",
    "backward": BLUE,
    "optimizer": PURPLE,
    "copied": GRAY,
    "reduce": ORANGE,
    "gather": GREEN,
    "agree": PURPLE,
    "activations": "#c9a227",
    "deltas": "#b5566b",
}
"""By a word of what a span is called."""


def write_scaling(found: Sequence[Prediction], title: str, path: Path) -> Path:
    """Draw speed-up, and the parts of a step, against ranks.

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
        OSError: the file cannot be written.
    """
    figure = begin(9.5, 3.8)
    speed, parts = figure.subplots(1, 2)
    ranks = [one.ranks for one in found]
    speed.plot(ranks, ranks, color=GRAY, linewidth=1.0, linestyle="--", label="as many times as ranks")
    speed.plot(
        ranks, [one.ranks * one.efficiency for one in found], color=BLUE, linewidth=1.6, marker="o", markersize=3.5
    )
    for axis in (speed, parts):
        axis.set_xscale("log", base=2)
        axis.set_xticks(ranks, [str(number) for number in ranks])
        axis.minorticks_off()
        axis.set_xlabel("ranks", fontsize=9)
    speed.set_yscale("log", base=2)
    speed.set_yticks(ranks, [str(number) for number in ranks])
    speed.minorticks_off()
    speed.legend(frameon=False, fontsize=8)
    frame(speed, f"images a second, over those of one rank: {title}")
    for color, label, seconds in (
        (BLUE, "a step", [one.step_s for one in found]),
        (ORANGE, "waiting for others", [one.exposed_s for one in found]),
    ):
        milliseconds = [1e3 * one for one in seconds]
        parts.plot(ranks, milliseconds, color=color, linewidth=1.6, marker="o", markersize=3.5, label=label)
    parts.set_ylim(bottom=0)
    parts.legend(frameon=False, fontsize=8)
    frame(parts, "ms")
    return save(figure, path)


def write_timeline(played: Played, title: str, path: Path) -> Path:
    """Draw what rank 0 did in the last step, a line for each of its threads and one for the link.

    Raises:
        ImportError: matplotlib is not installed; says how to get it.
        OSError: the file cannot be written.
    """
    check_matplotlib("curves need")
    from matplotlib.patches import Patch

    figure = begin(11, 3.2)
    axis = figure.subplots()
    start, stop = played.ends_s[-2:]
    used = {}
    for span in played.spans:
        first, last = max(span.start_s, start), min(span.stop_s, stop)
        kind = next(word for word in _COLORS if word in span.what)
        if first < last:
            used[kind] = _COLORS[kind]
            bar = [(1e3 * (first - start), 1e3 * (last - first))]
            place = LANES.index(span.lane)
            axis.broken_barh(bar, (place - 0.38, 0.76), color=_COLORS[kind], linewidth=0)
    axis.set_yticks(range(len(LANES)), LANES)
    axis.invert_yaxis()
    axis.set_xlim(0, 1e3 * (stop - start))
    axis.set_xlabel("ms from the end of the step before", fontsize=9)
    patches = [Patch(color=color, label=kind) for kind, color in used.items()]
    axis.legend(handles=patches, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    frame(axis, f"one step of rank 0: {title}")
    return save(figure, path)
