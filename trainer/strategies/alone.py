"""Every strategy with one rank: no communication, the same methods; what `Ddp` does once gradients are averaged."""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.strategies.protocol import StepReport
from augpipe.trainer.strategies.state import full_state, load_full_state
from augpipe.trainer.strategies.update import scale_lr


class Alone:
    """A `Strategy` for one rank, or for no process group at all; nothing is encoded, for nothing is sent."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, names: Mapping[nn.Parameter, str], *, clip_norm: float | None
    ) -> None:
        self.module = model
        self.optimizer = optimizer
        self.meter = Meter()
        self._names = names
        self._clip_norm = clip_norm

    def no_sync(self) -> AbstractContextManager[None]:
        """There is nothing to leave out."""
        return nullcontext()

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Unscale, clip, update, drop the gradients: they are whole on this rank, so as in any trainer."""
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        norm = None
        if self._clip_norm is not None:
            norm = float(nn.utils.clip_grad_norm_(self._names, self._clip_norm))
        with _counted(self.optimizer) as ran:
            if scaler is None:
                self.optimizer.step()
            else:
                scaler.step(self.optimizer)
                scaler.update()
        found_inf = scaler is not None and scaler.is_enabled() and not ran
        suspect = found_inf or (norm is not None and not math.isfinite(norm))
        gradients = [parameter.grad for parameter in self._names if suspect and parameter.grad is not None]
        non_finite = sum(gradient.numel() - int(torch.isfinite(gradient).sum()) for gradient in gradients)
        for parameter in self._names:
            parameter.grad = None
        return StepReport(
            grad_norm=norm,
            found_inf=found_inf,
            non_finite=non_finite,
            exposed_s=0.0,
            bytes_sent=self.meter.since_last(),
        )

    def flush(self) -> None:
        """Weights are whole whenever `step` is not running."""

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


@contextmanager
def _counted(optimizer: Optimizer) -> Iterator[list[bool]]:
    """A list with one entry for each time the optimizer stepped; the scaler does not say whether it let it."""
    ran: list[bool] = []
    handle = optimizer.register_step_post_hook(lambda *_: ran.append(True))
    try:
        yield ran
    finally:
        handle.remove()
