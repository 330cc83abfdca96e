"""`augpipe index`: sizes and row indexes of a folder's JPEGs, so that regions of them decode faster from the start."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from augpipe.cli.common import JsonOption, decimal_bytes, print_json
from augpipe.validation.plural import count


def index(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder of images or of class folders.", show_default=False)
    ],
    json: JsonOption = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that read.", show_default="one a core")] = None,
) -> None:
    """Store in FOLDER where the rows of its JPEGs begin, so that loaders decode regions of them faster.

    One file, .augpipe-index, is written; images stay as they are. A run that was stopped is resumed, and images
    that have not changed since are not read again.
    """
    from augpipe.datasets.prepare.index_folder import index_folder
    from augpipe.reports.progress_bar import ProgressBar

    with ProgressBar("reading", unit="image") as bar:
        done = index_folder(folder, num_threads=workers, progress=bar.update)
    if json:
        print_json(asdict(done))
        return
    kept = f", {done.num_kept:,} of them as before" if done.num_kept else ""
    print(f"{done.path}: {decimal_bytes(done.num_bytes)} for {count(done.num_images, 'image')}{kept}")
    others = done.num_images - done.num_indexed
    if others:
        print(
            f"{others:,} of them without a row index are decoded as before: only JPEGs that are neither progressive "
            "nor turned by EXIF have one"
        )
