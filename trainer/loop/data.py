"""The loaders of a run: augmented batches to train on, plain ones to evaluate on."""

from typing import Any

from augpipe import Loader, Recipe, recipes
from augpipe.datasets.open import open_source
from augpipe.source import Source
from augpipe.trainer.config.data import DataConfig
from augpipe.trainer.config.run import RunConfig
from augpipe.trainer.loop.split import hold_out
from augpipe.trainer.loop.world import World
from augpipe.workers import num_usable_cores


def open_sources(config: DataConfig, seed: int) -> tuple[Source, Source | None]:
    """What to train and what to evaluate on.

    Raises:
        ValueError: there is no such source, it has no classes, or the two differ in theirs.
    """
    source = open_source(config.source)
    if not source.classes:
        raise ValueError(
            f"data.source={config.source!r} has no classes, and training needs a label for each photograph. "
            "Sort them into class folders, or give a list of path,label lines."
        )
    if config.eval_fraction > 0:
        return hold_out(source, config.eval_fraction, seed)
    if config.eval_source is None:
        return source, None
    held = open_source(config.eval_source)
    if list(held.classes) != list(source.classes):
        other = sorted(set(held.classes) ^ set(source.classes))[:5]
        what = f"these are in one of them alone: {', '.join(other)}" if other else "their order differs"
        raise ValueError(
            f"data.eval_source={config.eval_source!r} has other classes than data.source={config.source!r}; {what}."
        )
    return source, held


def training_recipe(config: DataConfig) -> Recipe:
    """The recipe that the config names.

    Raises:
        ValueError: there is none such, or it makes several pictures of each photograph.
    """
    if config.recipe == "deep_image":
        recipe = recipes.deep_image(config.size, config.scales)
    elif config.recipe == "evaluation":
        recipe = recipes.evaluation(config.size, config.short_side)
    elif config.recipe.endswith(".toml"):
        recipe = Recipe.load(config.recipe)
    else:
        raise ValueError(
            f"data.recipe={config.recipe!r} is no recipe for training: deep_image, evaluation, or a TOML file "
            "(augpipe recipe deep_image > my.toml writes one)."
        )
    if len(recipe.all_views) > 1 or recipe.all_views[0].out_size is None:
        raise ValueError(
            f"data.recipe={config.recipe!r} must make one picture of a fixed size of each photograph: "
            "give it one view with a crop."
        )
    return recipe


def training_loader(config: RunConfig, source: Source, world: World) -> Loader:
    """This rank's share of the training batches."""
    data = config.data
    return Loader(
        source,
        training_recipe(data),
        batch_size=data.batch_size,
        seed=config.seed,
        shuffle={"plain": True, "off": False, "sticky": "sticky"}[data.shuffle],  # type: ignore[arg-type]  # by value
        drop_last=data.drop_last,
        cache=data.cache,
        on_error=data.on_error,
        **_common(config, world),
    )


def evaluation_loader(config: RunConfig, source: Source, world: World) -> Loader:
    """This rank's share of the evaluation's batches: the centre of each photograph, in the source's order."""
    data = config.data
    size = training_recipe(data).all_views[0].out_size
    assert size is not None
    height, width = size
    if height != width:
        raise ValueError(
            f"data.recipe={data.recipe!r} makes {height}x{width} pictures; evaluation knows squares alone."
        )
    short_side = data.eval_scale if data.eval_scale is not None else -(-height * 8 // 7)
    return Loader(
        source,
        recipes.evaluation(height, short_side),
        batch_size=data.eval_batch_size or data.batch_size,
        shuffle=False,
        on_error=data.on_error,
        **_common(config, world),
    )


def _common(config: RunConfig, world: World) -> dict[str, Any]:
    share = max(1, num_usable_cores() // world.local_size)
    return {
        "rank": world.rank,
        "world_size": world.size,
        "num_threads": config.data.num_threads or share,
        "prefetch": config.data.prefetch,
        "backend": config.data.backend,
        "device": world.device,
        "layout": "channels_last" if config.model.channels_last else "NCHW",
        "framework": "torch",
        "dtype": "float32",
    }
