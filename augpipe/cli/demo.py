"""`augpipe demo`: the main job, end to end."""

import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augpipe.cli.common import console, say
from augpipe.cli.demo_train import parallel_table, train_step
from augpipe.validation.plural import count

if TYPE_CHECKING:
    from augpipe.loader import Loader, Numpy
    from augpipe.recipes.recipe import Recipe
    from augpipe.sources.protocol import Source

NUM_IMAGES = 1200
NUM_CLASSES = 5
BATCH_SIZE = 64
BENCH_SECONDS = 4.0


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for all that it makes.")] = Path("augpipe-demo"),
    num: Annotated[int, typer.Option(min=10, help="Sample photographs to draw.")] = NUM_IMAGES,
    parallel: Annotated[
        list[str] | None,
        typer.Option(help="Split layers among ranks: model=2; or another field of the config's parallel table."),
    ] = None,
) -> None:
    """See it all at work: draw sample images, preview what deep_image does to them, load two epochs, measure, train.

    Takes two to five minutes on two cores; run again, it keeps the images.
    """
    from augpipe import recipes
    from augpipe.cli import bench, preview, sample
    from augpipe.datasets.open import open_source
    from augpipe.native.compile_ahead import start_compiling
    from augpipe.planning.output_format import OutputFormat
    from augpipe.preview import by_op, over_epochs

    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file, and the demo needs a folder. Name another one.")
    table = parallel_table(parallel or [])
    photos, sheet, op_sheet = out / "photos", out / "preview.png", out / "by_op.png"
    recipe = recipes.deep_image()
    say(f"1. {count(num, 'sample photograph')} in class folders, drawn in {photos}")
    start_compiling(OutputFormat(dtype="float32", layout="NCHW", framework="numpy"), [recipe], decodes=True)
    sample.write(photos, num=num, classes=NUM_CLASSES, seed=0)
    source = open_source(photos)

    say(f"\n2. What the recipe {recipe.name} makes of a few photographs, with the values that it drew")
    preview.draw(sheet, partial(over_epochs, source, recipe))
    preview.draw(op_sheet, partial(by_op, source, recipe))
    say(f"   {sheet}: the same photograph in several epochs; {op_sheet}: one op at a time")

    say("\n3. The decoder and the kernels were compiled for this processor meanwhile: once, and kept for later starts")
    say(f"   {compile_for(source, recipe):.1f} s until the last one")

    say(f"\n4. Two epochs of the training loader: files to float32 batches ({BATCH_SIZE}, 3, 224, 224)")
    loader = _loader(source, recipe)
    for epoch, known in enumerate(("", "; it knows by now where in each file a crop's pixels begin")):
        seconds = load_epoch(loader, epoch)
        say(f"   epoch {epoch}: {count(len(source), 'photograph')}, {len(source) / seconds:,.0f} images/s{known}")

    say("\n5. What takes the time: decoding whole photographs (libjpeg-turbo), only what a crop looks at, the kernel")
    say("   that augments, and the whole loader, which does both")
    bench.show(bench.run(source, recipe, seconds=BENCH_SECONDS, batch_size=BATCH_SIZE), console())

    say()
    is_stated = num >= NUM_IMAGES
    made = train_step(photos, out, num=num, classes=NUM_CLASSES, states_accuracy=is_stated, parallel=table)

    say("\nLook at")
    made = {sheet: "what augmentation does", op_sheet: "each op by itself"} | made
    width = max(len(str(path)) for path in made)
    for path, what in made.items():
        say(f"   {path!s:{width}}   {what}")
    say("\nThen with photographs of your own, in a folder of class folders:")
    for command in next_commands(out / "training.toml"):
        say(f"   {command}")


def next_commands(config: Path) -> list[str]:
    """Three commands for a user's own folder; `config` is what the demo trained, if it did."""
    begun_as = sys.argv[0]  # .venv/bin/augpipe, where `make demo` began it
    program = begun_as if Path(begun_as).name == "augpipe" and not shutil.which("augpipe") else "augpipe"
    training = f"{config} --set data.source=FOLDER --set out=runs/first" if config.exists() else "--example > run.toml"
    return [f"{program} preview FOLDER --out sheet.png", f"{program} bench FOLDER", f"{program} train {training}"]


def load_epoch(loader: "Loader[Numpy]", epoch: int) -> float:
    """Run one epoch behind a progress bar; returns the seconds that it took."""
    from augpipe.reports.progress_bar import ProgressBar

    loader.set_epoch(epoch)
    with ProgressBar(f"epoch {epoch}", len(loader.source), unit="image") as bar:
        start = time.perf_counter()
        for batch in loader:
            bar.advance(len(batch))
        return time.perf_counter() - start


def compile_for(source: "Source", recipe: "Recipe") -> float:
    """Wait for what the loader will call, or load it from its cache, so that no rate counts it; returns the seconds."""
    from augpipe.decoding.jpeg import own_decoder
    from augpipe.reports.progress_bar import ProgressBar
    from augpipe.sources import Subset

    start = time.perf_counter()
    with ProgressBar("compiling"):
        own_decoder()
        for _ in _loader(Subset(source, range(min(len(source), BATCH_SIZE))), recipe):
            pass
    return time.perf_counter() - start


def _loader(source: "Source", recipe: "Recipe") -> "Loader[Numpy]":
    from augpipe.loader import Loader

    return Loader(source, recipe, batch_size=BATCH_SIZE, rank=0, world_size=1, framework="numpy")
