"""`augpipe report`: the curves of a training run, as an image and a page."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", show_default=False)],
) -> None:
    """Draw a training run: RUN/curves.png, and RUN/report.html, one page that needs nothing else.

    For a run with parameter servers also RUN/pushes.png: how old gradients were, and what each worker did.
    """
    from augpipe.reports.progress_bar import ProgressBar
    from augpipe.trainer.report.curves import write_curves
    from augpipe.trainer.report.page import write_page
    from augpipe.trainer.report.pushes import write_pushes

    metrics = run / "metrics.csv"
    if not run.is_dir():
        what = "is a file" if run.exists() else "does not exist"
        raise ValueError(f"{run} {what} (the current folder is {Path.cwd()}). Give the folder of a training run.")
    if not metrics.is_file():
        raise ValueError(
            f"{run} is not a training run: it has no metrics.csv. Give the folder that out names in its config."
        )
    pushes = run / "pushes.csv"
    with ProgressBar("drawing", 2 + pushes.is_file(), unit="file") as bar:
        curves = write_curves(metrics, run / "curves.png")
        bar.advance()
        drawn = write_pushes(pushes, run / "pushes.png") if pushes.is_file() else None
        bar.advance(pushes.is_file())
        page = write_page(run, curves, drawn)
        bar.advance()
    print("\n".join(str(path) for path in (curves, drawn, page) if path is not None))
