"""A run that has been trained: its config and classes, its network with the weights that it was evaluated with."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from augpipe.datasets.files.patterns import is_pattern
from augpipe.datasets.formats.file_list import FileListSource
from augpipe.datasets.remote.urls import as_url
from augpipe.datasets.remote.urls import shown as without_secrets
from augpipe.recipes.names import RECIPE_NAMES
from augpipe.recipes.recipe import Recipe
from augpipe.sources.identity import identity_of
from augpipe.sources.protocol import Source, has_stored_names, require_classes
from augpipe.trainer.checkpoint import Checkpoint, agree_on_newest
from augpipe.trainer.checkpoint.manifest import read_manifest
from augpipe.trainer.config.load import load_config
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.data import (
    evaluation_recipe,
    hold_out,
    load_evaluation_recipe,
    model_options,
    open_part,
    open_sources,
    output_size,
    with_classes,
)
from augpipe.trainer.loop.run_data import KeptSource, RunData, found_by_name, is_same_place, kept_recipe, read_data
from augpipe.trainer.loop.run_folder import checkpoints_path
from augpipe.trainer.loop.run_network import place
from augpipe.trainer.loop.state import class_summary
from augpipe.trainer.loop.world import World
from augpipe.trainer.models import build
from augpipe.validation.plural import count

logger = logging.getLogger("augpipe.trainer")


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """A run's folder, looked at; the network is loaded when it is asked for."""

    path: Path
    config: RunConfig
    recipe: Recipe
    """What its images go through when it is evaluated."""
    checkpoint: Checkpoint
    """The newest one that is whole."""
    classes: dict[str, Any]
    """How many there are, and the hash of their names in order."""
    world: World
    data: RunData | None
    """The record of its data; None for a run of an older augpipe, which kept none."""
    averages: bool
    """Whether the checkpoint has an average of the weights: then that is evaluated, as in training."""

    @property
    def num_outputs(self) -> int:
        """Logits of the network: as many as its source has classes, or more where its config says so."""
        num: int = self.classes["num"]
        return self.config.model.num_classes or num

    def load_network(self) -> nn.Module:
        """The network in evaluation mode, on its device; torch's generator of random numbers stays as it is.

        Raises:
            ValueError: the checkpoint is of another network than the config's.
        """
        wanted = self.config.model
        with torch.random.fork_rng(devices=[]):
            model = build(wanted.name, num_classes=self.num_outputs, **model_options(wanted, self.recipe.channels))
        entry, prefix = ("ema", "module.") if self.averages else ("model", "")
        saved = self.checkpoint.common_tensors(entry)
        state = {name.removeprefix(prefix): saved[name] for name in saved if name.startswith(prefix)}
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(
                f"{self.checkpoint.path} is of another network than {self.path / 'config.toml'}: "
                f"{' '.join(str(error).split())[:300]}"
            ) from error
        averaged = self.checkpoint.averaged_buffers("ema_buffers" if self.averages else "buffers")
        for name, buffer in model.named_buffers():
            if name in averaged and buffer.is_floating_point():
                if averaged[name].shape != buffer.shape:
                    raise ValueError(
                        f"{self.checkpoint.path} is of another network than {self.path / 'config.toml'}: {name} has "
                        f"the shape {tuple(averaged[name].shape)} instead of {tuple(buffer.shape)}"
                    )
                buffer.copy_(averaged[name])
        return place(model.eval(), wanted, self.world.device)

    def held_out(self, elsewhere: Source | None = None, name: str = "") -> Source:
        """What the run itself was evaluated on, and of a source that has changed since, those images of it.

        Args:
            elsewhere: where they are now; None: where they were.
            name: how messages call it.

        Raises:
            ValueError: nothing was held out, the images cannot be told, or the source has other classes now.
        """
        if self.data is None and elsewhere is not None:
            raise ValueError(
                f"{self.path} does not name its held-out samples: an older augpipe made it. Leave --held-out out, and "
                "give a source that it was not trained on."
            )
        if self.data is None:
            held = open_sources(self.config.data, self.config.seed)[1]
        elif self.data.held_out is None:
            held = None
        else:
            kept = self.data.held_out
            if elsewhere is None:
                elsewhere, name = self._opened(kept)
            elif isinstance(elsewhere, FileListSource) and kept.split is not None:
                elsewhere = elsewhere.part(kept.split)
            held = self._held_out_of(elsewhere, name, self.data)
            if self.data.trained_on_text:
                self._say(f"{self.path}: {self.data.trained_on_text}")
        if held is None:
            raise ValueError(
                f"{self.path} held nothing out of its training (data.eval_source, data.eval_split, "
                "data.eval_fraction). Give a source to evaluate on."
            )
        self.check_classes(held, f"the source of {self.path}")
        return held

    def _opened(self, kept: KeptSource) -> tuple[Source, str]:
        """The source at its place, or at the one that the config's relative path leads to now; and where it is."""
        place = kept.place
        if as_url(place) is not None or is_pattern(place) or os.path.lexists(place):
            return self.opened(place, kept.split), without_secrets(place)
        data = self.config.data
        here = os.path.abspath(data.eval_source or data.source)
        if not os.path.lexists(here):
            raise ValueError(
                f"{place!r} does not exist, and {self.path} was evaluated on photographs there. If they lie elsewhere "
                "now, give that place: --source PLACE --held-out."
            )
        self._say(f"{place} is gone: {here} is taken for it")
        return self.opened(here, kept.split), here

    def opened(self, place: str, split: str | None = None) -> Source:
        """The source of a place, with all classes that the run was trained on, as far as they are known."""
        source = open_part(place, split, "data.eval_split")
        return source if self.data is None else with_classes(source, self.data.classes, place, split)

    def _held_out_of(self, source: Source, name: str, data: RunData) -> Source:
        """What was held out of a source, by the rule where that is as it was, else by names."""
        assert data.held_out is not None
        then = data.source if data.eval_fraction else data.held_out
        now = identity_of(source)
        if now == then.identity:
            return hold_out(source, data.eval_fraction, data.seed)[1] if data.eval_fraction else source
        differences = "; ".join(then.identity.differences(now))
        num = data.held_out.identity.num_samples
        names = data.names(self.path)
        if names is None or not has_stored_names(source):
            raise ValueError(
                f"{name} is not what {self.path} was trained on ({differences}), and which of its photographs were "
                "held out cannot be told: they have no names of their own. Put it back, or give a source that was not "
                "trained on: --source."
            )
        found = found_by_name(source, names)
        if found is None:
            raise ValueError(
                f"none of the {count(num, 'photograph')} that {self.path} held out is there any more in {name} "
                f"({differences}). Put them back, or give a source that was not trained on: --source."
            )
        self._say(
            f"{name} has changed since {self.path} was trained ({differences}): {len(found)} of its {num} held-out "
            "photographs are left, and are evaluated; the others there are not looked at"
        )
        return found

    def say_if_trained_on(self, source: Source, place: str | None) -> None:
        """Say what of a source that is evaluated as a whole the run was trained on, as far as that is known."""
        data = self.data
        if data is None:
            return
        is_there = place is not None and is_same_place(place, data.source.place)
        identity, held = identity_of(source), data.held_out
        is_alike = identity == data.source.identity
        may_be_held = held is not None and not data.eval_fraction and identity == held.identity
        if is_alike and may_be_held and not is_there:
            self._say(
                f"{place or 'the source'} has the names and labels of what {self.path} was trained on, and of what it "
                "was evaluated on: which of the two it is cannot be told"
            )
            return
        if is_there or is_alike:
            num = data.held_out.identity.num_samples if data.held_out is not None and data.eval_fraction else 0
            names = data.names(self.path) if num and not is_alike else None
            if names is not None:
                num = len(found_by_name(source, names) or ())
            num_trained = len(source) - num
            if data.source.split is not None and not is_alike:
                num_trained = min(data.source.identity.num_samples - num, len(source))
            which = f"{num_trained} of these {count(len(source), 'photograph')}"
            there = without_secrets(data.source.place)
            where = (
                f"{place} is what {self.path} was trained on"
                if is_there
                else f"{place or 'the source'} has the names and labels of {there}, which {self.path} was trained on"
            )
            when = "were trained on" if is_alike else "were trained on, or came later"
            has_parts = not (is_alike or data.eval_fraction or data.num_trained_on) and data.source.split is not None
            is_part = has_parts and held is not None and is_same_place(held.place, data.source.place)
            has_others = num > 0 or is_part
            hint = "; --held-out looks at the others alone" if has_others else ""
            self._say(f"{where}: {which} {when}{hint}")
            return
        if data.trained_on_text and held is not None and place is not None and is_same_place(place, held.place):
            self._say(f"{self.path}: {data.trained_on_text}")

    def _say(self, text: str) -> None:
        if self.world.is_first:
            logger.warning("%s", text)

    def check_classes(self, source: Source, name: str) -> None:
        """Raise ValueError unless a source has the classes that the run was trained on, in their order."""
        require_classes(source, f"{name}: evaluation")
        if class_summary(source.classes) == self.classes:
            return
        num, trained = len(source.classes), self.classes["num"]
        found = ", ".join(map(repr, source.classes[:5])) + (", ..." if num > 5 else "") if num else "none"
        differs = f"{num}" if num != trained else f"{num} by other names or in another order"
        raise ValueError(
            f"{self.path} was trained on {trained} classes, and {name} has {differs} ({found}). Give a source with the "
            "same class folders or names."
        )


def open_run(folder: str | Path, world: World, recipe: str | Path | None = None) -> TrainedRun:
    """Look at a run's folder; called by all ranks, which take the same checkpoint though the run may write another.

    Args:
        folder: the run's.
        world: the ranks that evaluate.
        recipe: a recipe's name (at the run's size) or a TOML file, instead of what evaluation in the run showed.

    Raises:
        ValueError: it is none, or has no whole checkpoint.
        OSError: a file cannot be read.
    """
    path = Path(folder)
    if not path.is_dir():
        what = "is a file" if path.exists() else f"does not exist (the current folder is {Path.cwd()})"
        raise ValueError(f"{path} {what}. Give the folder of a training run, which out names in its config.")
    if not (path / "config.toml").is_file():
        raise ValueError(
            f"{path} is not a training run: it has no config.toml. Give the folder that out names in its config."
        )
    config = load_config(path / "config.toml")
    found = agree_on_newest(checkpoints_path(path), world.control)
    if found is None:
        raise ValueError(
            f"{path} has no checkpoint yet, in {checkpoints_path(path)}. Train it to its end, or to its first "
            "checkpoint: augpipe train."
        )
    if "servers" in read_manifest(found):
        raise ValueError(
            f"{path} is a run with parameter servers, whose checkpoints evaluation does not read. Give a run of ranks."
        )
    checkpoint = Checkpoint(found)
    shown = (
        None if recipe is None or str(recipe) in RECIPE_NAMES else load_evaluation_recipe("recipe", str(recipe), None)
    )
    data = read_data(path)
    if data is None and world.is_first:
        logger.warning(
            "%s has no record of its training data, as an older augpipe made it: its source and recipe are taken "
            "as they are now, and if they have changed, photographs that it was trained on may be evaluated",
            path,
        )
    if shown is None:
        shown = _recipe_of(path, config, data, world)
        if recipe is not None:  # a name
            shown = load_evaluation_recipe("recipe", str(recipe), max(output_size(shown)))
    return TrainedRun(
        path=path,
        config=config,
        recipe=shown,
        checkpoint=checkpoint,
        classes=checkpoint.common(entries=("classes",))["classes"],
        world=world,
        data=data,
        averages=checkpoint.num_averaged() > 0,  # without an update it is the first weights
    )


def _recipe_of(path: Path, config: RunConfig, data: RunData | None, world: World) -> Recipe:
    """What the run's own evaluation shows: as the run kept it, whatever has become of the file since."""
    if data is None:
        return evaluation_recipe(config.data)
    kept = kept_recipe(path, data)
    places = {"recipe": data.recipe.place, "eval_recipe": data.eval_recipe.place or None}
    try:
        now = evaluation_recipe(config.data.model_copy(update=places))
    except ValueError:  # the file is gone, or is none any more: the run does not need it
        return kept
    if now != kept and world.is_first:
        logger.warning(
            "%s was changed since %s was trained, and is taken as it was then; --recipe FILE takes another one",
            data.eval_recipe.place or data.recipe.place,
            path,
        )
    return kept
