"""Every strategy with one rank: no communication, the same methods."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.amp.grad_scaler import GradScaler

from augpipe.trainer.sync.meter import Meter
from augpipe.trainer.sync.protocol import MakeOptimizer, StepReport
from augpipe.trainer.sync.state import full_state, load_full_state, names_of, trainable
from augpipe.trainer.sync.update import apply_replicated, parameters_of, scale_lr


class Alone:
    """A `Strategy` for one rank, or for no process group at all; nothing is encoded, for nothing is sent."""

    def __init__(self, model: nn.Module, optimizer: MakeOptimizer, *, clip_norm: float | None) -> None:
        self.module = model
        self.optimizer = optimizer(trainable(model))
        self.meter = Meter()
        self._names = names_of(model, self.optimizer)
        self._clip_norm = clip_norm

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """There is nothing to leave out."""
        yield

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Unscale, clip, update, drop the gradients."""
        norm, found_inf, non_finite = apply_replicated(
            self.optimizer, parameters_of(self.optimizer), clip_norm=self._clip_norm, scaler=scaler
        )
        return StepReport(
            grad_norm=norm,
            found_inf=found_inf,
            non_finite=non_finite,
            exposed_s=0.0,
            bytes_sent=self.meter.since_last(),
        )

    def flush(self) -> None:
        """Nothing is ever pending."""

    def set_lr(self, factor: float) -> None:
        """Set every group's learning rate to `factor` times its first one."""
        scale_lr(self.optimizer, factor)

    def state_dict(self) -> dict[str, Any]:
        """The full optimizer state."""
        return full_state(self.optimizer, self._names)

    full_optimizer_state = state_dict

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a full state, whichever strategy it is from."""
        load_full_state(self.optimizer, self._names, state)

    def close(self) -> None:
        """Nothing is held."""
