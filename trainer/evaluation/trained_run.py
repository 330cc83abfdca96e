"""A run that has been trained: its config and classes, its network with the weights that it was evaluated with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from augpipe.recipe import Recipe
from augpipe.source import Source, require_classes
from augpipe.trainer.checkpoint import Checkpoint
from augpipe.trainer.checkpoint.checkpoints_folder import newest_whole
from augpipe.trainer.checkpoint.manifest import read_manifest
from augpipe.trainer.config.load import load_config
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.data import evaluation_recipe, open_sources
from augpipe.trainer.loop.network import place
from augpipe.trainer.loop.run_folder import checkpoints_path
from augpipe.trainer.loop.state import class_summary
from augpipe.trainer.loop.world import World
from augpipe.trainer.models import build


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

    @property
    def num_outputs(self) -> int:
        """Logits of the network: as many as its source has classes, or more where its config says so."""
        num: int = self.classes["num"]
        return self.config.model.num_classes or num

    @property
    def averages(self) -> bool:
        """Whether an average of the weights was kept: then that is evaluated, as in training."""
        return self.config.ema.decay is not None

    def load_network(self) -> nn.Module:
        """The network in evaluation mode, on its device; torch's generator of random numbers stays as it is.

        Raises:
            ValueError: the checkpoint is of another network than the config's.
        """
        wanted = self.config.model
        with torch.random.fork_rng(devices=[]):
            model = build(wanted.name, num_classes=self.num_outputs, **wanted.options)
        common = self.checkpoint.common(entries=("model", "ema"))
        has_average = common["ema"] is not None
        state: dict[str, Any] = common["model"]
        if has_average:
            names = [name for name in common["ema"] if name.startswith("module.")]
            state = {name.removeprefix("module."): common["ema"][name] for name in names}
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(
                f"{self.checkpoint.path} is of another network than {self.path / 'config.toml'}: "
                f"{' '.join(str(error).split())[:300]}"
            ) from error
        self._average_buffers(model, "ema_buffers" if has_average else "buffers")
        return place(model.eval(), wanted, self.world.device)

    def _average_buffers(self, model: nn.Module, entry: str) -> None:
        """The mean of all ranks' running statistics, as an evaluation takes."""
        owns = [own[entry] for own in self.checkpoint.of_all_ranks(entries=(entry,))]
        for name, buffer in model.named_buffers():
            values = [own[name] for own in owns if name in own]
            if values and buffer.is_floating_point():
                buffer.copy_(torch.stack([value.double() for value in values]).mean(0))

    def held_out(self) -> Source:
        """What the run itself was evaluated on.

        Raises:
            ValueError: nothing was held out, or the source has other classes now.
        """
        _, held = open_sources(self.config.data, self.config.seed)
        if held is None:
            raise ValueError(
                f"{self.path} held nothing out of its training (data.eval_source, data.eval_fraction). Give a source "
                "to evaluate on."
            )
        self.check_classes(held, f"the source of {self.path}")
        return held

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


def open_run(folder: str | Path, world: World) -> TrainedRun:
    """Look at a run's folder.

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
            f"{path} is no training run: it has no config.toml. Give the folder that out names in its config."
        )
    config = load_config(path / "config.toml")
    found = newest_whole(checkpoints_path(path))
    if found is None:
        raise ValueError(
            f"{path} has no checkpoint yet, in {checkpoints_path(path)}. Train it to its end, or to its first "
            "checkpoint: augpipe train."
        )
    if "servers" in read_manifest(found):
        raise ValueError(
            f"{path} is a run with parameter servers, whose checkpoints evaluation does not read. Give a run of ranks."
        )
    checkpoint = Checkpoint(found, world.control)
    return TrainedRun(
        path=path,
        config=config,
        recipe=evaluation_recipe(config.data),
        checkpoint=checkpoint,
        classes=checkpoint.common(entries=("classes",))["classes"],
        world=world,
    )
