"""`augpipe explain`: which part of loading is slow, and what to do about it."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from augpipe.cli.common import (
    JsonOption,
    OnErrorOption,
    RecipeOption,
    ScaleOption,
    SeedOption,
    SizeOption,
    SourceArgument,
    SplitOption,
    in_options,
    one_recipe,
    print_json,
    say,
    telling_of_skip,
)
from augpipe.recipes.names import load_recipe

if TYPE_CHECKING:
    from augpipe.loader import Loader, Numpy

LEAST_STEPS = 5
"""Steps of the model that are counted at least; the first ones find batches made ahead."""


def explain(
    source: SourceArgument,
    recipe: RecipeOption = None,
    split: SplitOption = None,
    json: JsonOption = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Batch size of the loader.")] = 64,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of the loader.", show_default="one a core")
    ] = None,
    step_ms: Annotated[
        float,
        typer.Option(min=0.0, metavar="MS", help="How long your model takes for a batch, on a device of its own."),
    ] = 0.0,
    seconds: Annotated[float, typer.Option(min=0.5, help="About how long to try things.")] = 12.0,
    seed: SeedOption = 0,
    size: SizeOption = None,
    scale: ScaleOption = None,
    on_error: OnErrorOption = "raise",
) -> None:
    """Say which part of loading is slow, what the rate would be without it, and what makes it faster.

    Each advice was tried for a moment. In your own program, call
    `print(loader.explain())` after some steps.
    """
    from augpipe.loader import Loader
    from augpipe.reports.progress_bar import ProgressBar

    with in_options():
        loader = Loader(
            source,
            load_recipe(one_recipe(recipe), size, scale),
            batch_size=batch_size,
            split=split,
            seed=seed,
            rank=0,
            world_size=1,
            num_threads=threads,
            framework="numpy",
            on_error=on_error,
        )
    # drawing takes time from what is measured
    with telling_of_skip(loader.source, on_error), ProgressBar("trying", unit="part", refresh_per_second=2) as bar:
        if step_ms:
            _use(loader, step_ms / 1e3, seconds / 3.0)
        found = loader.explain(seconds=seconds, progress=bar.update)
    if json:
        print_json(found.to_json())
    else:
        say(str(found))


def _use(loader: "Loader[Numpy]", step_s: float, seconds: float) -> None:
    """A few steps of a model that takes so long for a batch."""
    start, num = time.perf_counter(), 0
    while time.perf_counter() < start + seconds or num < LEAST_STEPS:
        for _ in loader:
            time.sleep(step_s)
            num += 1
            if time.perf_counter() > start + seconds and num >= LEAST_STEPS:
                return
