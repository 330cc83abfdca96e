"""`augpipe demo`: the main job, end to end."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augpipe.checks.plural import count
from augpipe.cli.common import console, progress_bar
from augpipe.cli.demo_train import parallel_table, train_step

if TYPE_CHECKING:
    from augpipe.recipe import Recipe
    from augpipe.source import Source

NUM_IMAGES = 1500
NUM_CLASSES = 5
BATCH_SIZE = 64
BENCH_SECONDS = 12.0


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for all that it makes.")] = Path("augpipe-demo"),
    num: Annotated[int, typer.Option(min=10, help="Sample photographs to draw.")] = NUM_IMAGES,
    parallel: Annotated[
        list[str] | None,
        typer.Option(help="Split layers among ranks: model=2; other fields of the [parallel] table too."),
    ] = None,
) -> None:
    """See it all at work: draw sample images, preview what deep_image does to them, load an epoch, measure, train.

    Takes about three minutes on two cores; run again, it keeps the images.
    """
    from augpipe import recipes
    from augpipe.cli import bench, sample
    from augpipe.datasets.open import open_source
    from augpipe.preview import by_op, draw_sheet, over_epochs

    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file, and the demo needs a folder. Name another one.")
    table = parallel_table(parallel or [])
    photos, sheet, op_sheet = out / "photos", out / "preview.png", out / "by_op.png"
    recipe = recipes.deep_image()
    print(f"1. {count(num, 'sample photograph')}, drawn in {photos}")
    sample.write(photos, num=num, classes=NUM_CLASSES, seed=0)
    source = open_source(photos)

    print(f"2. What the recipe {recipe.name} makes of them: {sheet}, and one op at a time: {op_sheet}")
    draw_sheet(over_epochs(source, recipe)).save(sheet)
    draw_sheet(by_op(source, recipe)).save(op_sheet)

    print("3. One epoch of the training loader")
    _warm_up(recipe)
    seconds = load_epoch(source, recipe)
    print(f"   {count(len(source), 'photograph')} in {seconds:.1f} s, {len(source) / seconds:,.0f} images/s")

    print("4. How fast, and what takes the time")
    bench.show(bench.run(source, recipe, seconds=BENCH_SECONDS, batch_size=BATCH_SIZE), console())

    print()
    is_stated = num >= NUM_IMAGES
    drawn = train_step(photos, out, num=num, classes=NUM_CLASSES, states_accuracy=is_stated, parallel=table)

    print()
    *first, last = map(str, (sheet, op_sheet, *drawn))
    print(f"Look at {', '.join(first)} and {last}. The photographs are in {photos}.")
    print("Your own next: augpipe preview FOLDER --out sheet.png, and augpipe train --example > run.toml")


def load_epoch(source: "Source", recipe: "Recipe") -> float:
    """Run one epoch behind a progress bar; returns the seconds that it took."""
    from rich.progress import MofNCompleteColumn

    from augpipe.loader import Loader

    loader = Loader(source, recipe, batch_size=BATCH_SIZE, rank=0, world_size=1, framework="numpy")
    with progress_bar(MofNCompleteColumn(), "{task.fields[rate]}") as bar:
        task = bar.add_task("   epoch 0", total=len(source), rate="")
        done = 0
        start = time.perf_counter()
        for batch in loader:
            done += len(batch)
            rate = done / (time.perf_counter() - start)
            bar.update(task, completed=done, rate=f"{rate:,.0f} images/s")
        return time.perf_counter() - start


def _warm_up(recipe: "Recipe") -> None:
    """Compile the kernel that the loader will call, or load it from its cache: neither belongs to the epoch's time."""
    import numpy as np

    from augpipe.augment import Augment

    Augment(recipe)(np.zeros((256, 256, 3), np.uint8))
