"""The loaders of a run: augmented batches to train on, plain ones to evaluate on."""

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from augpipe import Loader, Recipe, Schedule, recipes, sources
from augpipe.datasets.open import open_source
from augpipe.native.workers import num_usable_cores
from augpipe.ops import CenterCrop, MultiResolutionCrop, Normalize, RandomResizedCrop
from augpipe.recipes.names import RECIPE_NAMES, load_recipe
from augpipe.sources import Subset
from augpipe.sources.protocol import Ints, Source, labels_of, require_classes
from augpipe.trainer.config.tables import DataConfig, ModelConfig, RunConfig
from augpipe.trainer.loop.sampler import training_sampler
from augpipe.trainer.loop.world import World
from augpipe.validation.plural import count
from augpipe.validation.suggest import nearest, nearest_file

_OWN_LOOP = "Give class numbers; other labels are for a loop of your own over augpipe.Loader, whose batches hold them"
_SPLIT = re.compile(r"""\bsplit=["']([\w.-]+)["']( \(of Loader and open_source\))?""")
"""How errors of `open_source` say which part to ask for."""
_DRAWN = re.compile(r'split="\w+", holdout=0\.1 draws one: .* the others\.')
"""How they say that one may be drawn."""
logger = logging.getLogger("augpipe.trainer")


def open_sources(config: DataConfig, seed: int) -> tuple[Source, Source | None]:
    """What to train and what to evaluate on.

    Raises:
        ValueError: a source cannot be found, has fewer than two classes or images without one, or the two differ in
            their classes.
    """
    source = open_part(config.source, config.split, "data.split")
    require_classes(source, f"data.source={config.source!r}: training", _OWN_LOOP)
    if len(source.classes) < 2:
        found = f"one class alone, {source.classes[0]!r}" if source.classes else "no classes"
        raise ValueError(
            f"data.source={config.source!r} has {found}, and training needs photographs of two or more. "
            "Sort them into class folders, or give a list of path,label lines."
        )
    _refuse_unlabelled(source, f"data.source={config.source!r}", "training")
    if config.eval_fraction > 0:
        return hold_out(source, config.eval_fraction, seed)
    if not config.evaluates:
        return source, None
    name = "data.eval_split" if config.eval_source is None else "data.eval_source"
    field = f"{name}={config.eval_source or config.eval_split!r}"
    place = config.eval_source or config.source
    held = open_part(place, config.eval_split, "data.eval_split")
    require_classes(held, f"{field}: evaluation", _OWN_LOOP)
    held = with_classes(held, source.classes, place, config.eval_split)
    if list(held.classes) != list(source.classes):
        other = sorted(set(held.classes) ^ set(source.classes))[:5]
        what = f"these are in one of them alone: {', '.join(other)}" if other else "their order differs"
        raise ValueError(f"{field} has other classes than data.source={config.source!r}; {what}.")
    _refuse_unlabelled(held, field, "evaluation")
    return source, held


def with_classes(source: Source, classes: Sequence[str], place: str, split: str | None) -> Source:
    """The source of a place, opened with all of some classes if it lacks some of them, where its labels are names."""
    known = set(source.classes)
    if not known < set(classes):
        return source
    try:
        found = open_source(place, split=split, classes=classes)
    except ValueError:
        return source
    if _class_names(found) != _class_names(source):
        return source  # labels are numbers there, and would stand for other classes
    lacking = [name for name in classes if name not in known]
    if os.environ.get("RANK", "0") == "0":
        named = ", ".join(lacking[:5]) + (", ..." if len(lacking) > 5 else "")
        logger.warning("%s has no photograph of %s (%s)", place, count(len(lacking), "class"), named)
    return found


def _class_names(source: Source) -> list[str]:
    """Each image's; empty for those without a label."""
    names = [*source.classes, ""]
    return [names[label] for label in labels_of(source, np.arange(len(source))).tolist()]


def open_part(place: str, split: str | None, field: str) -> Source:
    """A source, or a part of it that a field of the config names.

    Raises:
        ValueError: as of `open_source`, in the words of the config.
    """
    try:
        return open_source(place, split=split)
    except ValueError as error:
        told = _DRAWN.sub("data.eval_fraction=0.1 holds a tenth of the images out.", str(error))
        told = _SPLIT.sub(rf'{field}="\1"', told)
        if told == str(error):
            raise
        raise ValueError(told) from error


def _refuse_unlabelled(source: Source, field: str, what: str) -> None:
    missing = np.flatnonzero(labels_of(source, np.arange(len(source))) < 0)
    if len(missing):
        raise ValueError(
            f"{field} has {len(missing)} of {count(len(source), 'photograph')} without a label, such as "
            f"{source.name(int(missing[0]))}: {what} needs a class of each. Give each a label, or leave them out "
            "of the source."
        )


def training_recipe(config: DataConfig) -> Recipe:
    """The recipe that the config names, or the last one of its schedule."""
    return training_schedule(config).recipes[-1]


def training_schedule(config: DataConfig) -> Schedule:
    """The recipe that the config names for all epochs, or the schedule that it names.

    Raises:
        ValueError: there is none such, or one makes several images of each image.
    """
    if config.recipe == "deep_image":
        return Schedule.of(recipes.deep_image(config.size, config.scales))
    if config.recipe == "evaluation":
        return Schedule.of(recipes.evaluation(config.size, config.eval_scale))
    names = [name for name in RECIPE_NAMES if name != "none"]
    if config.recipe in names:
        return Schedule.of(load_recipe(config.recipe, config.size))
    if not config.recipe.endswith(".toml"):
        near = nearest(config.recipe, names)
        raise ValueError(
            f"data.recipe={config.recipe!r} is not a recipe for training: {', '.join(names)}, or a TOML file (augpipe "
            f"recipe deep_image > my.toml writes one).{f' Did you mean {near}?' if near else ''}"
        )
    return _load("data.recipe", config.recipe)


def evaluation_recipe(config: DataConfig) -> Recipe:
    """The recipe for held-out images: data.eval_recipe, or the centre, as large and normalised as those of training.

    Raises:
        ValueError: one of the two recipes cannot be used.
    """
    if config.eval_recipe is not None:
        named = config.eval_recipe in RECIPE_NAMES
        size = max(output_size(training_recipe(config))) if named else None
        return load_evaluation_recipe("data.eval_recipe", config.eval_recipe, size)
    training = training_recipe(config)
    scale = config.eval_scale
    crops = training.all_views[0].crops
    if scale is None and len(crops) == 1 and isinstance(crops[0], CenterCrop | MultiResolutionCrop | RandomResizedCrop):
        scale = recipes.usual_scale(max(output_size(training)))
    return recipes.evaluation_of(training, scale)


def load_evaluation_recipe(field: str, text: str, size: int | None) -> Recipe:
    """A recipe for evaluation by its name, or from a TOML file.

    Args:
        field: what messages call it.
        text: the name, or the file's path.
        size: of a recipe by name, in pixels: what the run is trained at.

    Raises:
        ValueError: there is none such, or it cannot be used.
    """
    recipe = _load(field, text, size).recipes[-1]
    if recipe.mixes_samples:
        raise ValueError(
            f"{field}={text!r} mixes samples, and evaluation counts one class an image. Leave its mixing out."
        )
    return recipe


def model_options(config: ModelConfig, channels: int) -> dict[str, Any]:
    """The options of a run's network, with the channels of its images where these are not three."""
    name = "in_chans" if config.name.startswith("timm:") else "in_channels"
    return config.options if channels == 3 else {name: channels} | config.options


def output_size(recipe: Recipe) -> tuple[int, int]:
    """(height, width) of a run's images, in pixels."""
    size = recipe.all_views[0].out_size
    assert size is not None, "a run's recipes have a crop"
    return size


def warn_of_differences(config: DataConfig) -> None:
    """Say what of the config is not used, and where evaluation sees other values than training."""
    training, evaluation = training_recipe(config), evaluation_recipe(config)
    if config.recipe.endswith(".toml") and config.size not in (
        DataConfig.model_fields["size"].default,
        *output_size(training),
    ):
        height, width = output_size(training)
        logger.warning("data.size=%d is not used: %s makes %dx%d pictures", config.size, config.recipe, height, width)
    if _normalisation(training) != _normalisation(evaluation):
        logger.warning(
            "data.eval_recipe=%r normalises otherwise than data.recipe=%r: evaluation sees values on another scale "
            "than training",
            config.eval_recipe,
            config.recipe,
        )


def _other(field: str, text: str) -> Recipe:
    try:
        return load_recipe(text)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error


def _load(field: str, path: str, size: int | None = None) -> Schedule:
    try:
        if path in RECIPE_NAMES:
            schedule = Schedule.of(load_recipe(path, None if path == "none" else size))
        else:
            schedule = Schedule.load(path) if path.endswith(".toml") else Schedule.of(_other(field, path))
    except FileNotFoundError as error:
        raise ValueError(
            f"{field}={path!r} does not exist.{nearest_file(Path(path))} A relative path is seen from the current "
            f"folder, which is {os.getcwd()}."
        ) from error
    if any(len(recipe.all_views) > 1 or recipe.all_views[0].out_size is None for recipe in schedule.recipes):
        raise ValueError(
            f"{field}={path!r} must make one picture of a fixed size of each photograph: give it one view with a crop."
        )
    return schedule


def _normalisation(recipe: Recipe) -> list[Normalize]:
    return [op for op in recipe.all_views[0].ops if isinstance(op, Normalize)]


def training_loader(config: RunConfig, source: Source, world: World) -> Loader:
    """This rank's share of the training batches."""
    data = config.data
    per_batch = data.batch_size * world.size
    if data.drop_last and data.sampler == "off" and len(source) < per_batch:
        raise ValueError(
            f"data.drop_last=true leaves no batch: there are {len(source)} of the {per_batch} photographs that a batch "
            "of all ranks takes. Set data.drop_last = false, or lower data.batch_size."
        )
    return Loader(
        source, training_schedule(data), cache=data.cache, **order_of(config, source), **_common(config, world)
    )


def evaluation_loader(
    config: RunConfig, source: Source, world: World, *, recipe: Recipe | None = None, batch_size: int | None = None
) -> Loader:
    """This rank's share of the evaluation's batches, in the source's order: the centre of each image by default."""
    data = config.data
    return Loader(
        source,
        recipe or evaluation_recipe(data),
        batch_size=batch_size or data.eval_batch_size or data.batch_size,
        shuffle=False,
        on_error=data.on_error,
        **_common(config, world),
    )


def order_of(config: RunConfig, source: Source) -> dict[str, Any]:
    """What decides which sample comes when, and what takes the place of a bad one."""
    data = config.data
    return {
        "batch_size": data.batch_size,
        "seed": config.seed,
        "shuffle": {"plain": True, "off": False, "sticky": "sticky"}[data.shuffle],
        "sampler": training_sampler(data, source),
        "drop_last": data.drop_last,
        "on_error": data.on_error,
    }


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


def hold_out(source: Source, fraction: float, seed: int) -> tuple[Subset, Subset]:
    """(the rest, the held-out share), both in the source's order; the same for the same seed and number of samples.

    Raises:
        ValueError: one of the two would be empty.
    """
    total = len(source)
    num = round(total * fraction)
    if not 0 < num < total:
        raise ValueError(
            f"data.eval_fraction={fraction:g} of {count(total, 'photograph')} is {num}: both training and "
            "evaluation need some."
        )
    rest, held = sources.hold_out(source, fraction, seed)
    _warn_of_untrained(source, fraction, trained=rest.ids, held=held.ids)
    return rest, held


def _warn_of_untrained(source: Source, fraction: float, *, trained: Ints, held: Ints) -> None:
    """Name the classes of which all samples are held out; the first rank says it for all."""
    labels = np.setdiff1d(labels_of(source, held), labels_of(source, trained))
    labels = labels[(labels >= 0) & (labels < len(source.classes))]
    if not len(labels) or os.environ.get("RANK", "0") != "0":
        return
    named = ", ".join(str(source.classes[label]) for label in labels[:5]) + (", ..." if len(labels) > 5 else "")
    logger.warning(
        "data.eval_fraction=%g holds out all photographs of %s (%s), which are never trained. Add photographs of them, "
        "lower the fraction, or give data.eval_source",
        fraction,
        count(len(labels), "class"),
        named,
    )
