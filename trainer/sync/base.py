"""What butterfly and lazy are built from: plan, groups, residuals, units."""

import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from augpipe.trainer.codecs.protocol import Codec
from augpipe.trainer.sync.engine import Engine
from augpipe.trainer.sync.errors import SyncError
from augpipe.trainer.sync.groups import let_go
from augpipe.trainer.sync.meter import Meter
from augpipe.trainer.sync.plan import Plan
from augpipe.trainer.sync.residuals import Residuals
from augpipe.trainer.sync.unit import Unit
from augpipe.trainer.sync.wire import CodecWire


@dataclass(kw_only=True)
class Parts:
    """Everything that both strategies need, made by `choose.strategy`."""

    model: nn.Module
    optimizer: Optimizer
    names: dict[nn.Parameter, str]
    plan: Plan
    codec: Codec
    clip_norm: float | None
    error_feedback: bool
    reduce_group: ProcessGroup
    gather_group: ProcessGroup
    control_group: ProcessGroup
    device: torch.device
    timeout_s: float
    meter: Meter = field(default_factory=Meter)
    residuals: dict[str, Residuals] = field(default_factory=dict)
    """By phase and bucket, as "reduce 3"."""

    @property
    def rank(self) -> int:
        """Of this process in its group."""
        return dist.get_rank(self.control_group)

    @property
    def world_size(self) -> int:
        """Ranks of the group."""
        return self.plan.exchange.world_size

    def make_units(self, *, gradient_gather: bool) -> list[Unit]:
        """A unit a bucket; what is gathered are gradients, or (always with error feedback when encoded) updates."""
        units = []
        for index, bucket in enumerate(self.plan.exchange.buckets):
            wire = self.plan.wire(index, self.codec)
            encoded = isinstance(wire, CodecWire)
            gradients = "exempt" if self.plan.kinds[bucket.kind].exempt else "gradients"
            gathers = gradients if gradient_gather or gradients == "exempt" else "weights"

            def residuals(phase: str, wanted: bool, index: int = index) -> Residuals | None:
                return self.residuals.setdefault(f"{phase} {index}", Residuals()) if wanted else None

            units.append(
                Unit(
                    self.plan.bucket_values(index),
                    self.plan.exchange.slices(index),
                    self.rank,
                    wire,
                    label=self.plan.label(index),
                    payload_classes=(gradients, gathers),
                    num_flags=len(self.plan.bucket_parameters(index)),
                    with_norm=self.clip_norm is not None,
                    residuals=residuals("reduce", encoded and self.error_feedback),
                    gather_residuals=residuals("gather", encoded and (self.error_feedback or not gradient_gather)),
                    meter=self.meter,
                )
            )
        return units

    def _of_phase(self, phase: str) -> dict[str, Residuals]:
        return {key: residuals for key, residuals in self.residuals.items() if key.startswith(phase)}

    def scale_residuals(self, factor: float, phase: str = "") -> None:
        """Multiply a phase's residuals (or both's); while no bucket is under way in it."""
        if factor != 1.0:
            for residuals in self._of_phase(phase).values():
                residuals.scale(factor)

    def _fits(self, saved: dict[str, dict[int, Tensor]]) -> bool:
        """Whether residuals have the sizes of this plan's slices."""
        for key, by_owner in saved.items():
            cuts = self.plan.exchange.slices(int(key.split()[1]))
            if any(residual.numel() != cuts[owner + 1] - cuts[owner] for owner, residual in by_owner.items()):
                return False
        return True

    def residual_state(self, phase: str = "") -> dict[str, Any]:
        """This rank's residuals of a phase (or both), and which rank of how many that is."""
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "residuals": {key: residuals.state() for key, residuals in self._of_phase(phase).items()},
        }

    def load_residual_state(self, state: dict[str, Any], phase: str = "") -> None:
        """Take up residuals saved by the same rank of as many; others start from zero, with a warning."""
        ours = self._of_phase(phase)
        saved: dict[str, dict[int, Tensor]] = state.get("residuals", {})
        same = state.get("rank") == self.rank and state.get("world_size") == self.world_size
        if same and set(saved) == set(ours) and self._fits(saved):
            for key, residuals in ours.items():
                residuals.load(saved[key], self.device)
            return
        for residuals in ours.values():
            residuals.load({}, self.device)
        if ours or any(saved.values()):
            warnings.warn(
                "error feedback of gradients starts anew: the state has none, or that of other buckets, of another "
                "rank or of another world size.",
                stacklevel=3,
            )

    def gather_numbers(self, first: float, second: float, engine: Engine) -> tuple[list[float], list[float]]:
        """Every rank's two numbers, in the order of ranks: sums of them come out the same everywhere."""
        mine = torch.tensor([first, second], dtype=torch.float64, device=self.device)
        everyones = [torch.empty_like(mine) for _ in range(self.world_size)]
        start = time.perf_counter()
        try:
            dist.all_gather(everyones, mine, group=self.control_group)
        except RuntimeError as error:
            raise SyncError(
                f"waited for the other ranks' gradient norms, at most {self.timeout_s:g} s, and got: {error}. "
                "A rank has died or hangs; its own log says what."
            ) from error
        pairs = torch.stack(everyones).tolist()
        engine.add_exposed(time.perf_counter() - start)
        self.meter.add("control", (self.world_size - 1) * mine.nbytes)
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def close(self) -> None:
        """Let go of the groups."""
        for group in (self.reduce_group, self.gather_group, self.control_group):
            let_go(group)
