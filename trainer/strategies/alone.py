"""Every strategy with one rank: no communication, the same methods; what `Ddp` does once gradients are averaged."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from augpipe.trainer.exchange.message import count_non_finite
from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.strategies.collected import Collected
from augpipe.trainer.strategies.protocol import StepReport
from augpipe.trainer.strategies.state import full_state, load_full_state
from augpipe.trainer.strategies.update import AgreedScaler, Decision, Found, is_scaled, scale_lr


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
        self._scaler = AgreedScaler(next(iter(names)).device)
        self._norm_like = torch.zeros(())

    def no_sync(self) -> AbstractContextManager[None]:
        """There is nothing to leave out."""
        return nullcontext()

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Decide, unscale, clip, update, drop the gradients: they are whole on this rank, so as in any trainer."""
        collected = self.collect(is_scaled(scaler))
        found = collected.take(collected.numbers.cpu())
        return self.update(self._scaler.decide(scaler, found, self._clip_norm))

    def collect(self, scaled: bool) -> Collected:
        """Look at the gradients: they are finite where their norm is, and counted only where it is not."""
        gradients = [_numbers(parameter.grad) for parameter in self._names if parameter.grad is not None]
        self._norm_like = nn.utils.get_total_norm(gradients)
        norm = self._norm_like.double().view(1)

        def take(copied: Tensor) -> Found:
            found, *told = copied.view(torch.float64).tolist()
            self._heard(told)
            non_finite = 0 if math.isfinite(found) else int(sum(count_non_finite(one) for one in gradients))
            # the root of a square is the number itself, to the last bit
            square_sum = 0.0 if self._clip_norm is None else found * found
            return Found(square_sum=square_sum, num_bad=non_finite, non_finite=non_finite)

        def totals() -> Tensor:
            square = torch.zeros_like(norm) if self._clip_norm is None else norm.square()
            return torch.stack([(~norm.isfinite()).long(), square.view(torch.int64)], 1)

        return Collected(numbers=self._told(norm).view(torch.uint8), take=take, totals=totals)

    def _told(self, norm: Tensor) -> Tensor:
        """(1 + n,) float64 on the device: the gradients' norm, and what others tell of their step."""
        return norm

    def _heard(self, told: list[float]) -> None:
        """Look at the latter; alone there is nothing."""

    def update(self, decision: Decision) -> StepReport:
        """Unscale, clip, update, drop the gradients."""
        if not decision.found_inf:
            gradients = [parameter.grad for parameter in self._names if parameter.grad is not None]
            if decision.inverse_scale != 1.0 and gradients:
                torch._foreach_mul_(gradients, decision.inverse_scale)
            if decision.norm is not None and self._clip_norm is not None:
                # in the norm's own dtype, as torch.nn.utils.clip_grad_norm_ does it
                norm = torch.full_like(self._norm_like, decision.norm)
                nn.utils.clip_grads_with_norm_(self._names, self._clip_norm, norm)
            self.optimizer.step()
        for parameter in self._names:
            parameter.grad = None
        return StepReport(
            grad_norm=decision.norm,
            found_inf=decision.found_inf,
            non_finite=decision.non_finite,
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


def _numbers(gradient: Tensor) -> Tensor:
    """What torch has a norm of."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient
