"""`augpipe sample`: the sample dataset."""

from pathlib import Path
from typing import Annotated

import typer

from augpipe.cli.common import SeedOption
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
    """Draw it behind a progress bar, which goes to stderr."""
    from augpipe.datasets.synthetic.generate import generate
    from augpipe.reports.progress_bar import ProgressBar

    with ProgressBar("drawing photographs", unit="image") as bar:
        try:
            generate(out, num=num, classes=classes, seed=seed, targets=targets, progress=bar.update)
        except RuntimeError as error:
            raise Failure(str(error)) from error
