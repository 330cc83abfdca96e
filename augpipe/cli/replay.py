"""`augpipe replay`: one image of a run or of a folder again, with all that was drawn for it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from augpipe.cli.common import JsonOption, RecipeOption, SplitOption, in_options, one_recipe, output_file, print_json
from augpipe.cli.preview import EXTENSIONS, as_json, draw, drawn_without
from augpipe.recipes.names import load_schedule

if TYPE_CHECKING:
    from augpipe.loader import Loader
    from augpipe.pipeline.item_line import ItemLine


def replay(
    place: Annotated[Path, typer.Argument(metavar="RUN|SOURCE", help="Folder of a run; or any SOURCE, with --recipe.")],
    line: Annotated[
        str, typer.Argument(metavar="LINE", help="'seed 0, epoch 3, sample 17'; of a run 'epoch 3, step 120, item 7'.")
    ],
    recipe: RecipeOption = None,
    split: SplitOption = None,
    out: Annotated[Path, typer.Option("--out", "-o", help=f"The sheet ({', '.join(EXTENSIONS)}).")] = Path("item.png"),
    steps: Annotated[bool, typer.Option("--steps", help="The image after each op.")] = False,
    without: Annotated[
        list[str] | None, typer.Option(help="Leave an op out, as rotate; all others draw as before.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make one image again, the same as in its batch, and draw it.

    LINE is the text of batch.line(3), repr(batch) or a sheet for an image, or
    any text that holds such words: seed, epoch, sample. Of a run, give its
    folder: source, recipe and seed are then those of its config.toml. A step
    of its metrics.csv and an item of that step's batch name an image, too:
    'epoch 3, step 120, item 7', of a run of several ranks with 'rank 1 of 4'.
    Epochs count from 0, as in metrics.csv.
    """
    from augpipe.pipeline.item_line import ItemLine, part_length

    named, path = ItemLine.read(line), output_file(out, EXTENSIONS)
    from augpipe.preview import by_step, over_epochs

    loader, epoch, sample, position = _found(place, recipe, split, named)
    named.check_part(loader.source)
    schedule = drawn_without(loader.schedule, without)
    shown: dict[str, Any] = {"rows": 1, "seed": loader.seed, "epoch": epoch, "samples": [sample]}
    shown |= {"epochs": loader._epochs, "position": position}
    views = len(schedule.at(epoch).all_views)
    made_by = by_step if steps else partial(over_epochs, cols=views)
    contents = draw(path, partial(made_by, loader.source, schedule, **shown))
    if json:
        print_json(as_json(path, contents) | {"seed": loader.seed, "epoch": epoch})
        return
    part = part_length(loader.source)
    of = "" if part is None else f" of {part}"
    print(f"{path}: seed {loader.seed}, epoch {epoch}, sample {sample}{of}, {loader.source.name(sample)}")


def _found(
    place: Path, recipe: list[str] | None, split: str | None, named: "ItemLine"
) -> "tuple[Loader[Any], int, int, int | None]":
    """What gives the image, its epoch, its sample's id, and its position where a sampler may draw it twice."""
    from augpipe.loader import Loader

    if not (place / "config.toml").is_file():
        if named.sample is None:
            raise ValueError(f"{place} is not a run's folder, and only a run counts steps. Name epoch and sample.")
        schedule = load_schedule(one_recipe(recipe))
        with in_options():
            loader: Loader[Any] = Loader(
                place, schedule, batch_size=1, split=split, seed=named.seed or 0, framework="numpy"
            )
        return loader, named.epoch or 0, named.sample, named.position
    if recipe:
        raise ValueError(f"{place} is a run, which has a recipe of its own. Leave --recipe out.")
    if split is not None:
        raise ValueError(f"{place} is a run, which has a source of its own. Leave --split out.")
    from augpipe.trainer.config.load import load_config
    from augpipe.trainer.loop.replayed import loader_on_cpu, sample_of_step

    config = load_config(place / "config.toml")
    if named.seed not in (None, config.seed):
        raise ValueError(f"the line is of seed {named.seed}, and {place} is of seed {config.seed}. Name another run.")
    loader = loader_on_cpu(config, named.rank or 0, named.of or 1, place)
    if named.sample is not None:
        if loader.shuffle == "sticky" and named.of is None and loader.schedule.at(named.epoch or 0).mixes_samples:
            raise ValueError(
                f"{place} mixes samples in a sticky order, and which with which depends on its ranks. Add them to the "
                "line, as rank 0 of 4, or rank 0 of 1."
            )
        return loader, named.epoch or 0, named.sample, named.position
    return loader, *sample_of_step(config, loader, named)
