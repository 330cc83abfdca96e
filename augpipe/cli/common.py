"""What several commands share: recipes by name or file, places to write to, and how to print."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from augpipe.recipes.names import RECIPE_NAMES
from augpipe.validation.deprecation import warn_deprecated

if TYPE_CHECKING:
    from rich.console import Console

    from augpipe.datasets.shards.manifest import Manifest
    from augpipe.sources.protocol import Source

DEFAULT_RECIPE = "deep_image"

SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A folder of photographs, of class folders, or written by [cyan]augpipe prepare[/]; a photograph; a list "
        "(.csv, .tsv, .txt) of path,label lines; WebDataset tar files or Parquet: a file, a folder, or a pattern such "
        "as 'shard-{000000..000146}.tar'; MNIST (IDX), CIFAR (binary) or TFRecord files; images with "
        "annotations: their folder, a .json of COCO, a .yaml of YOLO; a URL "
        "(https://, s3://, gs://) of shards, tar or Parquet files.",
        show_default=False,
    ),
]
RECIPE_HELP = f"{', '.join(RECIPE_NAMES)}, or a TOML file ([cyan]augpipe recipe deep_image > my.toml[/] writes one)."
RecipeOption = Annotated[
    list[str] | None,  # of which `one_recipe` takes one: typer would keep the last silently
    typer.Option("--recipe", "-r", metavar="NAME|FILE", help=RECIPE_HELP, show_default=DEFAULT_RECIPE),
]
SizeOption = Annotated[
    int | None,
    typer.Option(
        "--size",
        min=1,
        metavar="PX",
        help="Output height and width; for recipes by name other than none.",
        show_default="224",
    ),
]
ScaleOption = Annotated[
    list[int] | None,
    typer.Option(
        "--scale",
        min=1,
        metavar="PX",
        help="Short side that the photograph is resized to before the crop; several for deep_image: "
        "--scale 256 --scale 512.",
        show_default="256 and 512; evaluation: 8/7 of the size",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same pixels.")]
OnError = Literal["raise", "skip"]
OnErrorOption = Annotated[
    OnError,
    typer.Option(
        "--on-error",
        help="For a photograph that cannot be used: raise ends the command; skip puts the next usable one in its "
        "place.",
    ),
]
SkipBadOption = Annotated[bool, typer.Option("--skip-bad", hidden=True)]
"""The old name of --on-error skip, which works until 0.2."""
SplitOption = Annotated[
    str | None,
    typer.Option("--split", metavar="NAME", help="Where SOURCE holds several splits, the one to open: train, val, ..."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]


def opened(source: Path, split: str | None = None, label: Any = None) -> "Source":
    """The source of SOURCE, or of a split of it.

    Raises:
        ValueError: as of `open_source`, in the words of the command line.
    """
    from augpipe.datasets.open import open_source

    with in_options():
        return open_source(source, split=split, label=label)


@contextmanager
def in_options() -> Iterator[None]:
    """Errors that name `split="train"` name --split train."""
    try:
        yield
    except ValueError as error:
        told = re.sub(
            r"\bsplit=([\"'])([\w.-]+)\1(?!, holdout)( \(of Loader and open_source\))?", r"--split \2", str(error)
        )
        if told == str(error):
            raise
        raise ValueError(told) from error


def one_recipe(given: list[str] | None) -> str:
    """The recipe that --recipe names, or the default.

    Raises:
        ValueError: it is given several times.
    """
    if given is not None and len(given) > 1:
        raise ValueError(
            f"--recipe is given {len(given)} times ({', '.join(given)}), and one run takes one. "
            "Run the command once for each."
        )
    return given[0] if given else DEFAULT_RECIPE


def with_skip_bad(on_error: Any, skip_bad: bool) -> Any:
    """What --on-error says, or "skip" and a warning where its old name is passed."""
    if not skip_bad:
        return on_error
    warn_deprecated("--skip-bad", "--on-error skip", "0.2")
    return "skip"


def output_file(path: Path, extensions: tuple[str, ...], option: str = "--out") -> Path:
    """`path` of an option, once it is known that a file can be written there.

    Raises:
        ValueError: it cannot, or its name does not end with one of `extensions`; says what to do.
    """
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder. Give the name of a file in it, as {path / 'sheet.png'}.")
    if path.suffix.lower() not in extensions:
        raise ValueError(f"{option} {path}: its name must end with {' or '.join(extensions)}.")
    folder = path.parent
    if not folder.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {folder}. Make it first, or write elsewhere.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{option} {path} cannot be written: permission denied. Write elsewhere.")
    return path


def say(text: str = "") -> None:
    """A line on stdout, at once: a log holds it before what stderr is told next."""
    print(text, flush=True)


def console(*, stderr: bool = False) -> "Console":
    """Where tables and progress go; without colours where that is not a terminal."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False)
    # a table in a file or a pipe is as wide as it needs
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=200)


def decimal_bytes(num: int) -> str:
    """`1.24 GB`: three digits and a decimal unit."""
    value, unit = float(num), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"


@contextmanager
def telling_of_skip(source: "Source", on_error: OnError) -> Iterator[None]:
    """Where one image of several cannot be used, say how to go on without it."""
    from augpipe.cli.exit_codes import Failure
    from augpipe.errors import SampleError

    try:
        yield
    except SampleError as problem:
        hint = " Pass --on-error skip to go on without such photographs."
        hint = "" if on_error == "skip" or len(source) == 1 else hint
        raise Failure(f"{problem.name}: {problem.reason.rstrip('.')}.{hint}") from problem


def warn_of_skipped(skipped: Mapping[int, str], most: int = 5) -> None:
    """Say on stderr which images were left out."""
    for problem in list(skipped.values())[:most]:
        print(f"augpipe: skipped {problem}", file=sys.stderr)
    if len(skipped) > most:
        print(f"augpipe: and {len(skipped) - most} more", file=sys.stderr)


def scales_json(manifest: "Manifest") -> list[dict[str, Any]]:
    """The sets of shards of a prepared data set."""
    return [{"name": scale.name, "shards": len(scale.shards), "bytes": scale.num_bytes} for scale in manifest.scales]


def print_json(data: Any) -> None:
    """JSON on stdout, as it is: no colours, no wrapping."""
    import json

    print(json.dumps(data, indent=2, ensure_ascii=False))
