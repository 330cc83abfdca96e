"""What a checkpoint holds: gathered from the parts of a run, and given back to them, whatever the world size."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from augpipe import Loader
from augpipe.trainer.checkpoint import Checkpoint
from augpipe.trainer.loop.ema import Ema
from augpipe.trainer.loop.world import World
from augpipe.trainer.optim_schedule import Plateau
from augpipe.trainer.sync import Strategy, merge

_FULL = ("format", "kind", "groups", "state")
"""Of an optimizer's whole state, which is the same on every rank."""


@dataclass(kw_only=True)
class Counters:
    """How far the run is; the same on every rank."""

    step: int = 0
    """Updates done, skipped ones included."""
    num_skipped: int = 0
    """Updates left out: not finite, or fp16's scale too high."""
    seconds: float = 0.0
    """Of training."""


@dataclass(kw_only=True)
class RunState:
    """All that changes while a run goes on."""

    model: nn.Module
    strategy: Strategy
    loader: Loader
    plateau: Plateau
    scaler: GradScaler | None
    ema: Ema | None
    counters: Counters

    def common(self) -> dict[str, Any]:
        """What is the same on every rank; the strategy must have been flushed."""
        synced = self.strategy.state_dict()
        return {
            "model": self.model.state_dict(),
            "optimizer": {key: synced[key] for key in _FULL} if synced.get("kind") == "full" else None,
            "ema": None if self.ema is None else self.ema.state_dict(),
            "loader": self.loader.state_dict(),
            "plateau": self.plateau.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "counters": vars(self.counters),
        }

    def own(self, device: torch.device) -> dict[str, Any]:
        """What is this rank's: its shard of the optimizer, residuals, running statistics, random numbers."""
        synced = self.strategy.state_dict()
        if synced.get("kind") == "full":
            synced = {key: value for key, value in synced.items() if key not in _FULL}
        return {
            "sync": synced,
            "buffers": dict(self.model.named_buffers()),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        }

    def load(self, checkpoint: Checkpoint, world: World) -> None:
        """Go on from a checkpoint; hyperparameters stay those of the config.

        With the world size that wrote it, every bit is as it was. With another one the optimizer's state is put
        together and cut anew, residuals of gradients are dropped, running statistics averaged, and dropout draws anew.

        Raises:
            ValueError: the checkpoint is of another network, optimizer or source.
        """
        common = checkpoint.common()
        try:
            self.model.load_state_dict(common["model"])
        except RuntimeError as error:
            raise ValueError(
                f"{checkpoint.path} is of another network than the config's: {_first_lines(error)} "
                "Resume with the same [model], or choose another out."
            ) from error
        if checkpoint.world_size == world.size:
            self._load_own(common, checkpoint.of_rank(world.rank), world.device)
        else:
            self._load_merged(common, checkpoint.of_all_ranks())
        if self.ema is not None and common["ema"] is not None:
            self.ema.load_state_dict(common["ema"])
        self.loader.load_state_dict(common["loader"])
        self.plateau.load_state_dict(common["plateau"])
        if self.scaler is not None and common["scaler"]:
            self.scaler.load_state_dict(common["scaler"])
        for name, value in common["counters"].items():
            setattr(self.counters, name, value)

    def _load_own(self, common: dict[str, Any], own: dict[str, Any], device: torch.device) -> None:
        with _keeping_hyperparameters(self.strategy.optimizer):
            self.strategy.load_state_dict((common["optimizer"] or {}) | own["sync"])
        for name, buffer in self.model.named_buffers():
            buffer.copy_(own["buffers"][name])
        torch.set_rng_state(own["rng"])
        if device.type == "cuda" and own["cuda_rng"] is not None:
            torch.cuda.set_rng_state(own["cuda_rng"], device)

    def _load_merged(self, common: dict[str, Any], owns: list[dict[str, Any]]) -> None:
        full = common["optimizer"] or merge([own["sync"] for own in owns])
        with _keeping_hyperparameters(self.strategy.optimizer), warnings.catch_warnings():
            # the log line about the world size says it too
            warnings.filterwarnings("ignore", message="error feedback of gradients starts anew")
            self.strategy.load_state_dict(full)
        for name, buffer in self.model.named_buffers():
            values = [own["buffers"][name] for own in owns]
            if buffer.is_floating_point():
                buffer.copy_(torch.stack([value.double() for value in values]).mean(0))
            else:
                buffer.copy_(values[0])


@contextmanager
def _keeping_hyperparameters(optimizer: Optimizer) -> Iterator[None]:
    """Learning rate, weight decay and so on are the config's, also where a checkpoint brings others."""
    kept = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    yield
    for group, values in zip(optimizer.param_groups, kept, strict=True):
        group.update(values)


def _first_lines(error: RuntimeError) -> str:
    lines = [" ".join(line.split()) for line in str(error).splitlines()[1:4]]
    return " ".join(line if len(line) < 200 else f"{line[:200]} ..." for line in lines)
