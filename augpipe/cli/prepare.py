"""`augpipe prepare`: images become shards that train fast from any disk."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from augpipe.cli.common import JsonOption, OnError, decimal_bytes, opened, print_json, scales_json
from augpipe.cli.exit_codes import Failure
from augpipe.validation.plural import count

if TYPE_CHECKING:
    from augpipe.datasets.prepare.engine_protocol import Engine, Watcher
    from augpipe.datasets.prepare.run_plan import RunPlan
    from augpipe.datasets.prepare.settings import PrepareSettings
    from augpipe.datasets.shards.manifest import Manifest
    from augpipe.reports.progress_bar import ProgressBar
    from augpipe.sources.protocol import Source

SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A folder of photographs or of class folders, a list (.csv, .tsv), tar, Parquet, MNIST, CIFAR, shards; "
        "with --card, the folder that the official archives were unpacked in.",
        show_default=False,
    ),
]
RESUME = " What is done stays: run the same command with --resume to finish it."
FULL_DISK = frozenset([errno.ENOSPC, errno.EDQUOT])
EngineName = Literal["local", "ray"]


def prepare(
    source: SourceArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder to write to: a new or an empty one.", show_default=False)
    ],
    card: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="SOURCE is an official dataset: flowers102, imagenet, ..., or a card of your own (.toml).",
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Split of the card; may be repeated. Each is written to OUT/NAME. Without "
            "a card, one of SOURCE's splits.",
            show_default="all that are there",
        ),
    ] = None,
    scales: Annotated[
        str | None,
        typer.Option(
            metavar="PX,...",
            help="Short sides to resize to, each a set of shards: 256,512; or full.",
            show_default="512",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Pack the files as they are, byte by byte, and resize and encode nothing."),
    ] = False,
    quality: Annotated[
        int | None, typer.Option(min=1, max=100, help="Quality of the JPEGs.", show_default="90")
    ] = None,
    subsampling: Annotated[
        Literal["4:2:0", "4:2:2", "4:4:4"] | None,
        typer.Option(help="Chroma subsampling of the JPEGs.", show_default="4:2:0"),
    ] = None,
    shard_bytes: Annotated[str, typer.Option(metavar="SIZE", help="About how large a shard may get.")] = "256MB",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes, or tasks at once on Ray.", show_default="one a core")
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="local: processes on this machine; ray: tasks on a Ray cluster.")
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of the Ray cluster.", show_default="a new one on this machine"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Finish what an earlier run began in OUT.")] = False,
    on_error: Annotated[
        OnError,
        typer.Option(
            help="For a photograph that cannot be used: raise ends the command, and --resume goes on; skip lists it in "
            "rejects.csv."
        ),
    ] = "raise",
    originals: Annotated[
        Literal["auto", "always", "never"] | None,
        typer.Option(
            help="Keep JPEGs that need no change byte by byte: always, never, or unless a new one is much smaller.",
            show_default="auto",
        ),
    ] = None,
    upscale: Annotated[bool, typer.Option("--upscale", help="Enlarge images that are smaller than a scale.")] = False,
    linear_light: Annotated[
        bool, typer.Option("--linear-light", help="Resize in linear light: slower, truer for small bright details.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write images as shards: WebDataset tar files of JPEGs, or of the original files, with an index.

    The same source and settings give the same bytes, with any number of workers. A
    run that was stopped, even by kill -9, is finished with --resume.
    """
    from augpipe.datasets.prepare.settings import PrepareSettings, parse_scales, refuse_with_keep
    from augpipe.datasets.remote.urls import as_url
    from augpipe.validation.arguments import parse_bytes

    changes = {
        "scales": None if scales is None else parse_scales(scales),
        "quality": quality,
        "subsampling": subsampling,
        "upscale": upscale or None,
        "linear_light": linear_light or None,
        "originals": originals,
    }
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    if keep:
        refuse_with_keep([f"--{name.replace('_', '-')}" for name in given])
    settings = PrepareSettings(keep=keep, shard_bytes=parse_bytes(shard_bytes), **given)
    if ray_address is not None and engine != "ray":
        raise ValueError("--ray-address goes with --engine ray. Pass that too, or leave it out.")
    runner = make_engine(engine, workers, ray_address)
    if engine == "ray" and as_url(source) is None:
        source = source.absolute()  # workers stand in another folder
    done = []
    for job in open_jobs(source, out, card, split or [], resume=resume):
        with explaining(job.out):
            manifest = run(
                job.source,
                job.out,
                settings,
                source_path=str(source),
                source_name=job.name,
                split=job.split,
                engine=runner,
                resume=resume,
                on_error=on_error,
            )
        done.append(as_json(job.out, manifest))
        for line in () if json else summary(job.out, manifest):
            print(line)
    if json:
        print_json({"data_sets": done})


@dataclass(frozen=True, kw_only=True)
class Job:
    """One data set to be made."""

    source: "Source"
    out: Path
    name: str | None = None
    """The name of the source, for the report; None for that of its folder."""
    split: str = ""


def open_jobs(source: Path, out: Path, card: str | None, splits: list[str], *, resume: bool) -> list[Job]:
    """What SOURCE stands for: one job, or one for each split of a card; all are looked at before the first is done.

    Raises:
        ValueError: OUT cannot take one of them.
    """
    if card is None:
        if len(splits) > 1:
            raise ValueError("several --split go with --card NAME. Without a card, give each its command and OUT.")
        return [Job(source=opened(source, *splits), out=out)]
    from augpipe.datasets.cards.card import load_card
    from augpipe.datasets.prepare.card_splits import check_parent, open_splits
    from augpipe.datasets.prepare.output_folder import check_output

    loaded = load_card(card)
    check_parent(loaded, str(out))
    sources = open_splits(loaded, str(source), splits, lambda text: print(f"augpipe: {text}", file=sys.stderr))
    for split in sources:
        check_output(str(out / split), resume=resume)
    return [
        Job(source=found, out=out / split, name=f"{loaded.name} {split}", split=split)
        for split, found in sources.items()
    ]


def make_engine(name: EngineName, workers: int | None, ray_address: str | None) -> "Engine":
    """The engine that was asked for.

    Raises:
        ImportError: Ray, and it is not installed.
    """
    from augpipe.native.workers import num_usable_cores

    if name == "ray":
        from augpipe.datasets.prepare.ray_engine import RayEngine

        return RayEngine(ray_address, num_workers=workers)
    from augpipe.datasets.prepare.local_engine import LocalEngine

    return LocalEngine(workers or num_usable_cores())


@contextmanager
def explaining(out: Path) -> Iterator[None]:
    """How to go on, after what ended a run before its time."""
    from augpipe.datasets.prepare.engine_protocol import WorkerDiedError
    from augpipe.errors import SampleError

    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped.{hint(out)}") from None
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


def as_json(out: Path, manifest: "Manifest") -> dict[str, Any]:
    """What there is now."""
    return {
        "out": str(out),
        "samples": manifest.num_samples,
        "classes": len(manifest.classes),
        "rejected": manifest.num_rejected,
        "scales": scales_json(manifest),
    }


def summary(out: Path, manifest: "Manifest") -> list[str]:
    """What there is now, and where to look."""
    num_classes = len(manifest.classes)
    classes = f" of {count(num_classes, 'class')}" if num_classes else ""
    if manifest.label_width:
        classes = f", labels of {count(manifest.label_width, 'number')} each"
    lines = [f"{out}: {count(manifest.num_samples, 'photograph')}{classes}"]
    lines += [
        f"  {scale.name}: {count(len(scale.shards), 'shard')}, {decimal_bytes(scale.num_bytes)}"
        for scale in manifest.scales
    ]
    if manifest.settings.get("keep"):
        lines.append("  the files as they were, byte by byte")
    if manifest.num_rejected:
        lines.append(f"  {count(manifest.num_rejected, 'photograph')} rejected: see {out / 'rejects.csv'}")
    lines.append(f"  report: {out / 'report.html'}")
    return lines


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
    """`augpipe.datasets.prepare.prepare.prepare` behind a bar, which goes to stderr.

    Args:
        split: shown next to the bar.
        others: as there.
    """
    from augpipe.datasets.prepare.prepare import prepare
    from augpipe.reports.progress_bar import ProgressBar

    with ProgressBar("listing photographs", unit="image") as bar:
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


def watcher(bar: "ProgressBar", out: Path, split: str) -> "Watcher":
    """Shows a run on the bar; what a user should read becomes a line of its own."""
    from augpipe.datasets.prepare.engine_protocol import Watcher

    what = f"preparing {split}" if split else "preparing"

    def planned(plan: "RunPlan", num_done: int) -> None:
        if num_done:
            bar.note(f"{out}: {num_done:,} of {count(plan.source.num_samples, 'photograph')} are done already")
        if (warning := room_warning(plan, num_done, out)) is not None:
            bar.note(warning)
        bar.begin(what, plan.source.num_samples, num_done)

    return Watcher(planned=planned, progress=bar.advance, notice=bar.note)


def room_warning(plan: "RunPlan", num_done: int, out: Path) -> str | None:
    """What to say before the work where the disk will be too small; None where it will do."""
    import shutil

    needed = plan.estimated_bytes * (plan.source.num_samples - num_done) // plan.source.num_samples
    free = shutil.disk_usage(out).free
    if needed <= free:
        return None
    return f"about {decimal_bytes(needed)} will be written, and {decimal_bytes(free)} are free at {out}"
