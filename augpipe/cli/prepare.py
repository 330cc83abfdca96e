"""`augpipe prepare`: photographs become shards that train fast from any disk."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augpipe.cli.common import SourceArgument, console, count, say
from augpipe.cli.errors import Failure

if TYPE_CHECKING:
    from rich.progress import Progress

    from augpipe.datasets.prepare.engines.engine import Engine
    from augpipe.datasets.prepare.plan import Plan
    from augpipe.datasets.prepare.run import Watcher
    from augpipe.datasets.prepare.settings import PrepareSettings
    from augpipe.datasets.shards.manifest import Manifest
    from augpipe.source import Source

RESUME = " What is done stays: run the same command with --resume to finish it."
FULL_DISK = frozenset([errno.ENOSPC, errno.EDQUOT])


class EngineName(StrEnum):
    """Where the work is done."""

    LOCAL = "local"
    RAY = "ray"


class OnError(StrEnum):
    """What becomes of a photograph that cannot be used."""

    SKIP = "skip"
    RAISE = "raise"


class Originals(StrEnum):
    """Which files are kept byte by byte."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Subsampling(StrEnum):
    """Of the chroma."""

    QUARTER = "4:2:0"
    HALF = "4:2:2"
    NONE = "4:4:4"


def prepare(
    source: SourceArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder to write to: a new or an empty one.", show_default=False)
    ],
    scales: Annotated[
        str,
        typer.Option(metavar="PX,...", help="Short sides to resize to, each a set of shards: 256,512; or full."),
    ] = "512",
    quality: Annotated[int, typer.Option(min=1, max=100, help="Of the JPEGs.")] = 90,
    subsampling: Annotated[Subsampling, typer.Option(help="Of their chroma.")] = Subsampling.QUARTER,
    shard_bytes: Annotated[str, typer.Option(metavar="SIZE", help="About how long a shard may get.")] = "256MB",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes, or tasks at once on Ray.", show_default="one a core")
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="local: processes on this machine; ray: tasks on a Ray cluster.")
    ] = EngineName.LOCAL,
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of the Ray cluster.", show_default="a cluster of this machine alone"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Finish what an earlier run began in OUT.")] = False,
    on_error: Annotated[
        OnError, typer.Option(help="skip: list what cannot be used in rejects.csv; raise: end at the first.")
    ] = OnError.SKIP,
    originals: Annotated[
        Originals,
        typer.Option(
            help="Keep JPEGs byte by byte that need no change: always, never, or only where tiles would gain nothing."
        ),
    ] = Originals.AUTO,
    upscale: Annotated[bool, typer.Option("--upscale", help="Enlarge what is smaller than a scale.")] = False,
    linear_light: Annotated[
        bool, typer.Option("--linear-light", help="Resize in linear light: slower, truer for small bright details.")
    ] = False,
) -> None:
    """Write photographs as shards: WebDataset tar files of JPEGs from which a crop decodes alone.

    The same source and settings give the same bytes, whatever the workers. A
    run that was stopped, even by kill -9, is finished with --resume.
    """
    from augpipe.datasets.prepare.settings import PrepareSettings, parse_bytes, parse_scales

    settings = PrepareSettings(
        scales=parse_scales(scales),
        quality=quality,
        subsampling=subsampling.value,
        shard_bytes=parse_bytes(shard_bytes),
        upscale=upscale,
        linear_light=linear_light,
        originals=originals.value,
    )
    if ray_address is not None and engine is not EngineName.RAY:
        raise ValueError("--ray-address goes with --engine ray. Pass that too, or leave it out.")
    runner = make_engine(engine, workers, ray_address)
    if engine is EngineName.RAY:
        source = source.absolute()  # workers stand in another folder
    opened = open_input(source)
    with explaining(out):
        manifest = run(opened, source, out, settings, engine=runner, resume=resume, on_error=on_error.value)
    for line in summary(out, manifest):
        say(line)


def open_input(source: Path) -> "Source":
    """What SOURCE stands for."""
    from augpipe.datasets.open import open_source

    return open_source(source)


def make_engine(name: EngineName, workers: int | None, ray_address: str | None) -> "Engine":
    """The engine that was asked for.

    Raises:
        ImportError: Ray, and it is not installed.
    """
    from augpipe.workers import num_usable_cores

    if name is EngineName.RAY:
        from augpipe.datasets.prepare.engines.ray import RayEngine

        return RayEngine(ray_address, num_workers=workers)
    from augpipe.datasets.prepare.engines.local import LocalEngine

    return LocalEngine(workers or num_usable_cores())


def run(
    opened: "Source",
    source: Path,
    out: Path,
    settings: "PrepareSettings",
    *,
    engine: "Engine",
    resume: bool,
    on_error: str,
) -> "Manifest":
    """Prepare behind a progress bar, which goes to stderr and only where that is a terminal."""
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
            opened,
            out,
            settings,
            source_path=str(source),
            engine=engine,
            resume=resume,
            on_error=on_error,
            watcher=watcher(bar, out),
        )


def watcher(bar: "Progress", out: Path) -> "Watcher":
    """Shows a run on the bar; what a user should read becomes a line of its own."""
    from augpipe.datasets.prepare.run import Watcher

    task = bar.add_task("listing photographs", total=None, rate="")

    def notice(text: str) -> None:
        bar.stop()
        print(f"augpipe: {text}", file=sys.stderr, flush=True)
        bar.start()

    def planned(plan: "Plan", num_done: int) -> None:
        if num_done:
            notice(f"{out}: {num_done:,} of {count(plan.source.num_samples, 'photograph')} are done already")
        warn_of_room(plan, num_done, out)
        bar.reset(task, description="preparing", total=plan.source.num_samples, completed=num_done, rate="")

    def progress(num: int) -> None:
        bar.update(task, advance=num)
        speed = bar.tasks[task].speed
        if speed:
            bar.update(task, rate=f"{speed:,.0f} a second")

    return Watcher(planned=planned, progress=progress, notice=notice)


def warn_of_room(plan: "Plan", num_done: int, out: Path) -> None:
    """Say so before the work where the disk will be too small."""
    import shutil

    needed = plan.estimated_bytes * (plan.source.num_samples - num_done) // plan.source.num_samples
    free = shutil.disk_usage(out).free
    if needed > free:
        print(
            f"augpipe: about {needed / 1e9:,.1f} GB will be written, and {free / 1e9:,.1f} GB are free at {out}",
            file=sys.stderr,
        )


@contextmanager
def explaining(out: Path) -> Iterator[None]:
    """How to go on, after what ended a run before its time."""
    from augpipe.datasets.prepare.engines.engine import WorkerDiedError
    from augpipe.errors import SampleError

    try:
        yield
    except KeyboardInterrupt:
        print(f"augpipe: stopped.{hint(out)}", file=sys.stderr)
        raise
    except SampleError as problem:
        remedy = "Mend it, or pass --on-error skip to go on without such photographs."
        raise Failure(f"{str(problem).rstrip('.')}. {remedy}{hint(out)}") from problem
    except WorkerDiedError as problem:
        raise Failure(f"{problem}.{hint(out)}") from problem
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename is not None else ""
        remedy = " Free some room there." if problem.errno in FULL_DISK else ""
        raise Failure(f"{where}{problem.strerror or problem}.{remedy}{hint(out)}") from problem


def hint(out: Path) -> str:
    """How to go on, where something was begun."""
    from augpipe.datasets.prepare.output_folder import read_plan

    return RESUME if read_plan(str(out)) is not None else ""


def summary(out: Path, manifest: "Manifest") -> list[str]:
    """What there is now, and where to look."""
    num_classes = len(manifest.classes)
    classes = f" of {num_classes:,} {'class' if num_classes == 1 else 'classes'}" if num_classes else ""
    lines = [f"{out}: {count(manifest.num_samples, 'photograph')}{classes}"]
    lines += [
        f"  {scale.name}: {count(len(scale.shards), 'shard')}, {scale.num_bytes / 1e6:,.1f} MB"
        for scale in manifest.scales
    ]
    if manifest.num_rejected:
        lines.append(f"  {count(manifest.num_rejected, 'photograph')} rejected: see {out / 'rejects.csv'}")
    lines.append(f"  report: {out / 'report.html'}")
    return lines
