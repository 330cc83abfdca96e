"""`augpipe preview`: a contact sheet of what a recipe does."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augpipe.cli.common import (
    JsonOption,
    OnErrorOption,
    RecipeOption,
    ScaleOption,
    SeedOption,
    SizeOption,
    SkipBadOption,
    SourceArgument,
    SplitOption,
    one_recipe,
    opened,
    output_file,
    print_json,
    say,
    telling_of_skip,
    warn_of_skipped,
    with_skip_bad,
)
from augpipe.recipes.names import load_recipe, load_schedule
from augpipe.validation.models import changed
from augpipe.validation.plural import count

if TYPE_CHECKING:
    from augpipe.preview import Contents
    from augpipe.recipes.recipe import Recipe
    from augpipe.recipes.schedule import Schedule
    from augpipe.sources.protocol import Source

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp")
SHEET = Path("sheet.png")


def preview(
    source: SourceArgument,
    recipe: RecipeOption = None,
    split: SplitOption = None,
    out: Annotated[Path, typer.Option("--out", "-o", help=f"The sheet ({', '.join(EXTENSIONS)}).")] = SHEET,
    rows: Annotated[int, typer.Option(min=1, max=64, help="Photographs: the first of the epoch's order.")] = 4,
    cols: Annotated[int, typer.Option(min=1, max=14, help="Images of each photograph, an epoch each.")] = 5,
    seed: SeedOption = 0,
    epoch: Annotated[int, typer.Option(min=0, help="Epoch of the first column; the next follow.")] = 0,
    by_op: Annotated[bool, typer.Option("--by-op", help="One op a column, then all together, in one epoch.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="The image after each op, in one epoch.")] = False,
    sample: Annotated[
        list[int] | None, typer.Option(min=0, help="Show this sample id; may be given several times.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Leave an op out, as rotate; all others draw as before.")
    ] = None,
    size: SizeOption = None,
    scale: ScaleOption = None,
    on_error: OnErrorOption = "raise",
    skip_bad: SkipBadOption = False,
    json: JsonOption = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="A live page instead of a sheet, for a browser on this machine.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the live page.", show_default="0: a free one")] = 0,
) -> None:
    """Draw a contact sheet: each image, and what the recipe makes of it.

    The pixels are those that the training loader gives for that seed and
    epoch, before normalisation; the text below each says what was drawn for
    it. The first column is --epoch, and the next columns are the epochs after
    it. With several views, all views of an epoch are side by side. With a
    schedule, each column has its epoch's recipe. With mixing, images are shown
    mixed, with the share and the name of the other photograph. Boxes,
    outlines, key points and label maps are drawn over the images.

    To see an image of a run again, with the same draws, give its sample id
    with --sample, and the run's --seed and --epoch. --steps shows the image
    after each op, and --without what it would be without one.

    --serve prints the address of a page with sliders for the recipe, which
    shows its images at once. Ctrl-C ends it.
    """
    if serve:
        told = {"--out": out != SHEET, "--rows": rows != 4, "--cols": cols != 5, "--on-error": on_error != "raise"}
        told |= {"--by-op": by_op, "--steps": steps, "--without": bool(without), "--skip-bad": skip_bad}
        told |= {"--json": json}
        for name in (name for name, is_given in told.items() if is_given):
            raise ValueError(f"{name} is for a sheet, and --serve shows a page. Leave one of them out.")
        _serve(
            source, opened(source, split), load_recipe(one_recipe(recipe), size, scale), sample or [], seed, epoch, port
        )
        return
    if port:
        raise ValueError(f"--port {port} is for --serve. Add --serve, or leave it out.")
    if by_op and steps:
        raise ValueError("--by-op and --steps are two sheets. Ask for one of them.")
    chosen = load_schedule(one_recipe(recipe), size, scale)
    path = output_file(out, EXTENSIONS)
    from augpipe.preview import by_op as contents_by_op
    from augpipe.preview import by_step, over_epochs

    chosen = drawn_without(chosen, without)
    images = opened(source, split)
    on_error = with_skip_bad(on_error, skip_bad)
    shown: dict[str, Any] = {"rows": rows, "seed": seed, "epoch": epoch, "on_error": on_error, "samples": sample}
    of_parts = by_step if steps else contents_by_op if by_op else partial(over_epochs, cols=cols)
    with telling_of_skip(images, on_error):
        contents = draw(path, partial(of_parts, images, chosen, **shown))
    warn_of_skipped(contents.skipped)
    if json:
        print_json(as_json(path, contents))
        return
    num_shown = len({row.sample_id for row in contents.rows})
    print(f"{path}: {count(num_shown, 'photograph')}, recipe {chosen.name}")


def as_json(path: Path, contents: "Contents") -> dict[str, Any]:
    """The sheet's file, and of each image on it what was drawn, an entry an op."""
    rows = []
    for row in contents.rows:
        headings = row.headings[-len(row.cells) :]
        cells = [
            {"heading": heading, "drawn": cell.captions} for heading, cell in zip(headings, row.cells, strict=True)
        ]
        rows.append({"sample": row.sample_id, "name": row.name, "class": row.class_name, "images": cells})
    return {"out": str(path), "recipe": contents.title, "rows": rows, "skipped": contents.skipped}


def draw(path: Path, make: "Callable[..., Contents]") -> "Contents":
    """Write a sheet behind a progress bar; `make` takes its `progress`, and returns what the sheet shows."""
    from augpipe.preview import draw_sheet
    from augpipe.reports.progress_bar import ProgressBar

    with ProgressBar("making images", unit="image") as bar:
        contents = make(progress=bar.update)
        bar.begin("drawing the sheet")
        sheet = draw_sheet(contents, bar.update)
        bar.begin(f"writing {path}")
        sheet.save(path)
    return contents


def drawn_without(schedule: "Schedule", names: list[str] | None) -> "Schedule":
    """The schedule as if ops of these names never happened; all others draw as before."""
    if not names:
        return schedule
    from augpipe.recipes.parts import without_ops

    stages = [changed(stage, recipe=without_ops(stage.recipe, names)) for stage in schedule.stages]
    return changed(schedule, stages=stages)


def _serve(
    path: Path, source: "Source", recipe: "Recipe", samples: list[int], seed: int, epoch: int, port: int
) -> None:
    from augpipe.preview.live import Answers, serve

    answers = Answers(source, recipe, title=str(path), samples=samples, seed=seed, epoch=epoch)
    serve(answers, port, lambda address: say(f"{address}\nOpen it in a browser on this machine. Ctrl-C ends it."))
    say("ended")
