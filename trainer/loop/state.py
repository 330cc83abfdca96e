"""What a checkpoint holds: gathered from the parts of a run, and given back to them, whatever the world size."""

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from augpipe import Loader
from augpipe.trainer.checkpoint import BoxAt, Checkpoint
from augpipe.trainer.loop import split_state
from augpipe.trainer.loop.precision import FiniteCheckScaler
from augpipe.trainer.loop.world import World
from augpipe.trainer.optim.schedule import Plateau
from augpipe.trainer.parallel import Split
from augpipe.trainer.strategies import Strategy, merge


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
    split: Split | None = None
    """How the layers of `model` are split, if any are."""

    @property
    def box_at(self) -> BoxAt | None:
        """Which tensors of `common` this rank has a part of; None where layers are not split."""
        return None if self.split is None else split_state.box_at(split_state.boxes_of(self.split))

    @property
    def evaluated_model(self) -> nn.Module:
        """The average of the weights where one is kept and has had its first update, else the weights themselves."""
        return self.ema.module if self.ema is not None and int(self.ema.n_averaged) else self.model

    @property
    def writes_common(self) -> bool:
        """Whether this rank writes what ranks have in common, or parts of it: one of the ranks with the same parts."""
        return self.split is not None and self.split.mesh.data_rank == 0

    @property
    def epochs_done(self) -> float:
        """Passes over the images, with the share of the one that is under way."""
        position = self.loader.state_dict()
        return float(position["epoch"] + position["samples_consumed"] / position["num_samples"])

    def common(self) -> dict[str, Any]:
        """What is the same on every rank, except for parts of split layers; the strategy must have been flushed."""
        return {
            "model": self.model.state_dict(),
            "parallel": split_state.describe(self.split),
            "optimizer": split_state.common_state(self.strategy.state_dict()),
            "ema": None if self.ema is None else self.ema.state_dict(),
            "loader": self.loader.state_dict(),
            "classes": class_summary(self.loader.source.classes),
            "plateau": self.plateau.state_dict(),
            # a check's scale is 1: fp16, if a resumed run is the first to use it, must not begin there
            "scaler": None
            if self.scaler is None or isinstance(self.scaler, FiniteCheckScaler)
            else self.scaler.state_dict(),
            "counters": vars(self.counters),
        }

    def own(self, device: torch.device) -> dict[str, Any]:
        """What is this rank's: its shard of the optimizer, residuals, running statistics, random numbers."""
        return {
            "sync": split_state.own_state(self.strategy.state_dict()),
            "buffers": dict(self.model.named_buffers()),
            "ema_buffers": {} if self.ema is None else dict(self.ema.module.named_buffers()),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        }

    def load(self, checkpoint: Checkpoint, world: World, sync: dict[str, Any]) -> None:
        """Go on from a checkpoint; hyperparameters stay those of the config.

        With the world size that wrote it, every bit is as it was. With another one the optimizer's state is put
        together and cut again; residuals of gradients are dropped, running statistics averaged, dropout draws again.
        With another [sync] table, which `sync` is now, shards are put together and cut again, too; and so is all that
        stands by parameter where layers were split otherwise, or not at all. No rank has more than its parts of split
        layers.

        Raises:
            ValueError: the checkpoint is of another network, optimizer or source.
        """
        self._check_split_shapes(checkpoint)
        common = checkpoint.common(self.box_at)
        if common["loader"]["seed"] != self.loader.seed:
            raise ValueError(
                f"{checkpoint.path} is of a run with seed={common['loader']['seed']}, and the config has "
                f"seed={self.loader.seed}: other photographs would be held out, among them some that were trained on. "
                "Resume with the same seed, or choose another out."
            )
        before, now = common["classes"], class_summary(self.loader.source.classes)
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
        if self.split is not None or common.get("parallel") is not None:
            self._load_split(checkpoint, common, world, sync)
        elif checkpoint.world_size == world.size:
            whole = common["optimizer"]
            if whole is None and checkpoint.sync not in (None, sync):  # other slices than the shards', or none
                whole = merge([own["sync"] for own in checkpoint.of_all_ranks()])
            self._load_own(whole, checkpoint.of_rank(world.rank), world.device)
        else:
            self._load_merged(common, checkpoint.of_all_ranks())
        if self.ema is not None and common["ema"] is None:  # it begins with the run's weights, not with new ones
            self.ema.module.load_state_dict(self.model.state_dict())
        self.loader.load_state_dict(common["loader"])
        self.plateau.load_state_dict(common["plateau"])
        if self.scaler is not None and common["scaler"]:
            self.scaler.load_state_dict(common["scaler"])
        for name, value in common["counters"].items():
            setattr(self.counters, name, value)

    def _check_split_shapes(self, checkpoint: Checkpoint) -> None:
        """Compare whole shapes, which the parts do not show."""
        if self.split is None:
            return
        shapes = checkpoint.common_shapes()
        for name, box in split_state.boxes_of(self.split).items():
            theirs = shapes.get(f"/model/{name}", box.shape)
            if theirs != box.shape:
                raise ValueError(
                    f"{checkpoint.path} is of another network than the config's: size mismatch for {name}: "
                    f"{list(theirs)} in the checkpoint, {list(box.shape)} here. "
                    "Resume with the same [model], or choose another out."
                )

    def _load_split(self, checkpoint: Checkpoint, common: dict[str, Any], world: World, sync: dict[str, Any]) -> None:
        """Where layers are split, were split, or both."""
        saved = common.get("parallel")
        own = checkpoint.of_rank(world.rank) if checkpoint.world_size == world.size else None
        is_cut_alike = own is not None and split_state.is_cut_alike(saved, self.split)
        boxes = split_state.boxes_of(self.split)
        if own is not None and is_cut_alike and checkpoint.sync in (None, sync):
            self._load_strategy(split_state.rejoined(own["sync"], common["optimizer"], boxes))
            self._load_buffers(own, world.device)
        else:
            gathering = split_state.Gathering(common, boxes)
            owns = []
            for rank in range(checkpoint.world_size):  # one after the other: together they have the whole state
                theirs = checkpoint.of_rank(rank)
                gathering.add(theirs["sync"])
                owns.append({part: theirs.get(part, {}) for part in ("buffers", "ema_buffers")})
            kept = own["sync"] if own is not None and is_cut_alike else None
            self._load_strategy(split_state.fitted(gathering.full(), self.strategy.state_dict(), kept))
            if own is not None:
                self._load_buffers(own, world.device)
            else:
                self._average_buffers(owns)
        if self.split is not None and saved is not None:
            self.split.num_forwards = saved["num_forwards"]

    def _load_strategy(self, state: Mapping[str, Any]) -> None:
        with _keeping_hyperparameters(self.strategy.optimizer), warnings.catch_warnings():
            # the log line about the world size says it too
            warnings.filterwarnings("ignore", message="error feedback of gradients starts again")
            self.strategy.load_state_dict(dict(state))

    def _load_own(self, whole: dict[str, Any] | None, own: dict[str, Any], device: torch.device) -> None:
        """`whole`: the optimizer's state where this rank's own part is not a shard, or none that fits."""
        with _keeping_hyperparameters(self.strategy.optimizer):
            self.strategy.load_state_dict(own["sync"] | (whole or {}))
        self._load_buffers(own, device)

    def _load_buffers(self, own: dict[str, Any], device: torch.device) -> None:
        """Running statistics and random numbers as this rank had them."""
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
        self._load_strategy(common["optimizer"] or merge([own["sync"] for own in owns]))
        self._average_buffers(owns)

    def _average_buffers(self, owns: list[dict[str, Any]]) -> None:
        for part, name, buffer in self._buffers():
            values = [own[part][name] for own in owns if name in own.get(part, {})]
            if not values:  # nothing was averaged then, or a run did not write them yet
                continue
            if buffer.is_floating_point():
                buffer.copy_(torch.stack([value.double() for value in values]).mean(0))
            else:
                buffer.copy_(values[0])


def class_summary(classes: Sequence[str]) -> dict[str, Any]:
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
        if {"alpha", "centered"} <= group.keys() and group["momentum"] > 0:  # RMSprop, by itself or joined with another
            for weight in group["params"]:  # it makes these in its first step alone, which may have had none
                if weight in optimizer.state:
                    optimizer.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))


def _first_lines(error: RuntimeError) -> str:
    lines = [" ".join(line.split()) for line in str(error).splitlines()[1:4]]
    return " ".join(line if len(line) < 200 else f"{line[:200]} ..." for line in lines)
