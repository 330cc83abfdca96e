"""What a checkpoint holds: gathered from the parts of a run, and given back to them, whatever the world size."""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from augpipe import Loader
from augpipe.trainer.checkpoint import Checkpoint
from augpipe.trainer.loop.precision import FiniteCheckScaler
from augpipe.trainer.loop.world import World
from augpipe.trainer.optim.schedule import Plateau
from augpipe.trainer.strategies import Strategy, merge

_FULL = ("format", "kind", "groups", "state")
"""The kind of an optimizer's whole state, which is the same on every rank."""


@dataclass(kw_only=True)
class Counters:
    """How far the run is; the same on every rank."""

    step: int = 0
    """Updates done, skipped ones included."""
    num_skipped: int = 0
    """Updates left out: not finite, or fp16's scale too high."""
    seconds: float = 0.0
    """The seconds of training."""


@dataclass(kw_only=True)
class RunState:
    """All that changes while a run goes on."""

    model: nn.Module
    strategy: Strategy
    loader: Loader
    plateau: Plateau
    scaler: GradScaler | None
    ema: AveragedModel | None
    counters: Counters

    @property
    def epochs_done(self) -> float:
        """Passes over the images, with the share of the one that is under way."""
        position = self.loader.state_dict()
        return float(position["epoch"] + position["samples_consumed"] / position["num_samples"])

    def common(self) -> dict[str, Any]:
        """What is the same on every rank; the strategy must have been flushed."""
        synced = self.strategy.state_dict()
        return {
            "model": self.model.state_dict(),
            "optimizer": {key: synced[key] for key in _FULL} if synced.get("kind") == "full" else None,
            "ema": None if self.ema is None else self.ema.state_dict(),
            "loader": self.loader.state_dict(),
            "classes": _summary_of(self.loader.source.classes),
            "plateau": self.plateau.state_dict(),
            # a check's scale is 1: fp16, if a resumed run is the first to use it, must not begin there
            "scaler": None
            if self.scaler is None or isinstance(self.scaler, FiniteCheckScaler)
            else self.scaler.state_dict(),
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
            "ema_buffers": {} if self.ema is None else dict(self.ema.module.named_buffers()),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        }

    def load(self, checkpoint: Checkpoint, world: World, sync: dict[str, Any]) -> None:
        """Go on from a checkpoint; hyperparameters stay those of the config.

        With the world size that wrote it, every bit is as it was. With another one the optimizer's state is put
        together and cut anew, residuals of gradients are dropped, running statistics averaged, and dropout draws anew.
        With another [sync] table, which `sync` is now, shards are put together and cut anew, too.

        Raises:
            ValueError: the checkpoint is of another network, optimizer or source.
        """
        common = checkpoint.common()
        if common["loader"]["seed"] != self.loader.seed:
            raise ValueError(
                f"{checkpoint.path} is of a run with seed={common['loader']['seed']}, and the config has "
                f"seed={self.loader.seed}: other photographs would be held out, among them some that were trained on. "
                "Resume with the same seed, or choose another out."
            )
        before, now = common["classes"], _summary_of(self.loader.source.classes)
        if before != now:
            differs = (
                f"{now['num']}" if before["num"] != now["num"] else f"{now['num']} by other names or in another order"
            )
            raise ValueError(
                f"{checkpoint.path} is of a run on {before['num']} classes, and data.source has {differs}. "
                "Resume with the same source, or choose another out."
            )
        try:
            self.model.load_state_dict(common["model"])
        except RuntimeError as error:
            raise ValueError(
                f"{checkpoint.path} is of another network than the config's: {_first_lines(error)} "
                "Resume with the same [model], or choose another out."
            ) from error
        if self.ema is not None and common["ema"] is not None:
            self.ema.load_state_dict(common["ema"])
        if checkpoint.world_size == world.size:
            whole = common["optimizer"]
            if whole is None and checkpoint.sync not in (None, sync):  # other slices than the shards', or none
                whole = merge([own["sync"] for own in checkpoint.of_all_ranks()])
            self._load_own(whole, checkpoint.of_rank(world.rank), world.device)
        else:
            self._load_merged(common, checkpoint.of_all_ranks())
        self.loader.load_state_dict(common["loader"])
        self.plateau.load_state_dict(common["plateau"])
        if self.scaler is not None and common["scaler"]:
            self.scaler.load_state_dict(common["scaler"])
        for name, value in common["counters"].items():
            setattr(self.counters, name, value)

    def _load_own(self, whole: dict[str, Any] | None, own: dict[str, Any], device: torch.device) -> None:
        """`whole`: the optimizer's state where this rank's own part is no shard, or none that fits."""
        with _keeping_hyperparameters(self.strategy.optimizer):
            self.strategy.load_state_dict(own["sync"] | (whole or {}))
        for part, name, buffer in self._buffers():
            if name in own.get(part, {}):
                buffer.copy_(own[part][name])
        torch.set_rng_state(own["rng"])
        if device.type == "cuda" and own["cuda_rng"] is not None:
            torch.cuda.set_rng_state(own["cuda_rng"], device)

    def _buffers(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """(part of a rank's own, name, buffer): the network's, and those that the average had at its last update."""
        yield from (("buffers", name, buffer) for name, buffer in self.model.named_buffers())
        if self.ema is not None:
            yield from (("ema_buffers", name, buffer) for name, buffer in self.ema.module.named_buffers())

    def _load_merged(self, common: dict[str, Any], owns: list[dict[str, Any]]) -> None:
        full = common["optimizer"] or merge([own["sync"] for own in owns])
        with _keeping_hyperparameters(self.strategy.optimizer), warnings.catch_warnings():
            # the log line about the world size says it too
            warnings.filterwarnings("ignore", message="error feedback of gradients starts anew")
            self.strategy.load_state_dict(full)
        for part, name, buffer in self._buffers():
            values = [own[part][name] for own in owns if name in own.get(part, {})]
            if not values:  # nothing was averaged then, or a run did not write them yet
                continue
            if buffer.is_floating_point():
                buffer.copy_(torch.stack([value.double() for value in values]).mean(0))
            else:
                buffer.copy_(values[0])


def _summary_of(classes: Sequence[str]) -> dict[str, Any]:
    """How many there are, and a hash of their names in order: a source may have millions."""
    return {
        "num": len(classes),
        "sha256": hashlib.sha256("\0".join(classes).encode(errors="surrogateescape")).hexdigest(),
    }


@contextmanager
def _keeping_hyperparameters(optimizer: Optimizer) -> Iterator[None]:
    """Learning rate, weight decay and so on are the config's, also where a checkpoint brings others."""
    kept = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    yield
    for group, values in zip(optimizer.param_groups, kept, strict=True):
        group.update(values)
        if isinstance(optimizer, torch.optim.RMSprop) and group["momentum"] > 0:
            for weight in group["params"]:  # it makes these in its first step alone, which may have had none
                if weight in optimizer.state:
                    optimizer.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))


def _first_lines(error: RuntimeError) -> str:
    lines = [" ".join(line.split()) for line in str(error).splitlines()[1:4]]
    return " ".join(line if len(line) < 200 else f"{line[:200]} ..." for line in lines)
