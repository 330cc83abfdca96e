"""`augpipe sample`: the sample dataset."""

from pathlib import Path
from typing import Annotated

import typer

from augpipe.cli.common import SeedOption, progress_bar
from augpipe.cli.exit_codes import Failure
from augpipe.validation.plural import count


def sample(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder to write to: a new or an empty one.", show_default=False)
    ],
    num: Annotated[int, typer.Option(min=1, help="Photographs.")] = 1000,
    classes: Annotated[int, typer.Option(min=2, max=10, help="Classes.")] = 10,
    seed: SeedOption = 0,
    targets: Annotated[
        bool, typer.Option("--targets", help="Write annotations.json, too: masks, boxes, key points, as COCO has them.")
    ] = False,
) -> None:
    """Draw the sample dataset: JPEGs of textured scenes with small objects in them, of several sizes, in class folders.

    A run that was stopped is completed by the next one with the same settings.
    """
    write(out, num=num, classes=classes, seed=seed, targets=targets)
    print(f"{out}: {count(num, 'photograph')} of {classes} classes")


def write(out: Path, *, num: int, classes: int, seed: int, targets: bool = False) -> None:
    """Draw it behind a progress bar, which goes to stderr and only where that is a terminal."""
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    from augpipe.datasets.synthetic.generate import generate

    with progress_bar(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("drawing photographs", total=num)
        try:
            generate(
                out,
                num=num,
                classes=classes,
                seed=seed,
                targets=targets,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        except RuntimeError as error:
            raise Failure(str(error)) from error
