"""The progress bar of `augpipe prepare`: photographs, rate, and the time that is left."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from augpipe.cli.common import console, count

if TYPE_CHECKING:
    from rich.progress import Progress

    from augpipe.datasets.prepare.engines.engine import Engine
    from augpipe.datasets.prepare.plan import Plan
    from augpipe.datasets.prepare.run import Watcher
    from augpipe.datasets.prepare.settings import PrepareSettings
    from augpipe.datasets.shards.manifest import Manifest
    from augpipe.source import Source


def run(
    source: "Source",
    out: Path,
    settings: "PrepareSettings",
    *,
    source_path: str,
    source_name: str | None,
    split: str,
    engine: "Engine",
    resume: bool,
    on_error: str,
) -> "Manifest":
    """`augpipe.datasets.prepare.run.prepare` behind a bar, which goes to stderr and only where that is a terminal.

    Args:
        split: shown beside the bar.
        others: as there.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from augpipe.datasets.prepare.run import prepare

    screen = console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        return prepare(
            source,
            out,
            settings,
            source_path=source_path,
            source_name=source_name,
            engine=engine,
            resume=resume,
            on_error=on_error,
            watcher=watcher(bar, out, split),
        )


def watcher(bar: "Progress", out: Path, split: str) -> "Watcher":
    """Shows a run on the bar; what a user should read becomes a line of its own."""
    from augpipe.datasets.prepare.run import Watcher

    task = bar.add_task("listing photographs", total=None, rate="")
    what = f"preparing {split}" if split else "preparing"

    def notice(text: str) -> None:
        bar.stop()
        print(f"augpipe: {text}", file=sys.stderr, flush=True)
        bar.start()

    def planned(plan: "Plan", num_done: int) -> None:
        if num_done:
            notice(f"{out}: {num_done:,} of {count(plan.source.num_samples, 'photograph')} are done already")
        if (warning := room_warning(plan, num_done, out)) is not None:
            notice(warning)
        bar.reset(task, description=what, total=plan.source.num_samples, completed=num_done, rate="")

    def progress(num: int) -> None:
        bar.update(task, advance=num)
        speed = bar.tasks[task].speed
        if speed:
            bar.update(task, rate=f"{speed:,.0f} a second")

    return Watcher(planned=planned, progress=progress, notice=notice)


def room_warning(plan: "Plan", num_done: int, out: Path) -> str | None:
    """What to say before the work where the disk will be too small; None where it will do."""
    import shutil

    needed = plan.estimated_bytes * (plan.source.num_samples - num_done) // plan.source.num_samples
    free = shutil.disk_usage(out).free
    if needed <= free:
        return None
    return f"about {decimal_bytes(needed)} will be written, and {decimal_bytes(free)} are free at {out}"


def decimal_bytes(num: int) -> str:
    """`1.24 GB`: three digits and a decimal unit."""
    value, unit = float(num), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
