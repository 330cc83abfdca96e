"""The butterfly: every rank averages one slice of each bucket and sends the average to all others, during backward."""

import math
from typing import Any

from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from augpipe.trainer.exchange.bucket import controls_of
from augpipe.trainer.strategies.bucket_strategy import BucketStrategy
from augpipe.trainer.strategies.collected import Collected
from augpipe.trainer.strategies.protocol import StepReport
from augpipe.trainer.strategies.state import full_state, load_full_state
from augpipe.trainer.strategies.update import Decision, Found, clip_factor, is_scaled


class Butterfly(BucketStrategy):
    """A `Strategy`: gradients travel, the whole optimizer runs on every rank (Deep Image, section 3.1)."""

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Await the averages, unscale, clip, update."""
        collected = self.collect(is_scaled(scaler))
        found = collected.take(self._threads.read(collected.numbers))
        return self.update(self._scaler.decide(scaler, found, self._clip_norm))

    def collect(self, scaled: bool) -> Collected:
        """Await the averages."""
        self._finish_backward()
        for bucket in self._buckets:
            self._threads.wait_gathered(bucket)
        last = self._buckets[-1]
        return Collected(numbers=controls_of(self._buckets), take=self._found_in, totals=lambda: last.owners_totals)

    def _found_in(self, copied: Tensor) -> Found:
        self._take_controls(copied)
        last = self._buckets[-1]  # with which each owner has sent its totals
        # one order of adding on every rank: the norm, and so the weights, are the same to the last bit
        return self._found(math.fsum(last.square_sums), last.gathered_non_finite)

    def update(self, decision: Decision) -> StepReport:
        """Unscale, clip, update."""
        self._exchange.scale_residuals(decision.residual_factor, "reduce", "gather")
        if not decision.found_inf:
            for factor in (decision.inverse_scale, clip_factor(decision.norm, self._clip_norm)):
                for flat in self._plan.flats:
                    if factor != 1.0:
                        flat.mul_(factor)
            self._hand_over_gradients()
            self.optimizer.step()
        self._drop_gradients()
        return self._report(decision)

    def _hand_over_gradients(self) -> None:
        """Views of the flat buffers where the dtype allows it."""
        for parameter, view, used in zip(self._plan.parameters, self._plan.views, self._used(), strict=True):
            parameter.grad = view.to(parameter.dtype) if used else None

    def flush(self) -> None:
        """Weights are whole whenever `step` is not running; raises `SyncError` where an exchange has failed."""
        self._threads.check()

    def full_optimizer_state(self) -> dict[str, Any]:
        """The optimizer state, which every rank has."""
        return full_state(self.optimizer, self._plan.by_parameter)

    def state_dict(self) -> dict[str, Any]:
        """The full optimizer state, and this rank's residuals."""
        return self.full_optimizer_state() | self._exchange.residual_state("reduce", "gather")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a full state; residuals only of this very rank."""
        load_full_state(self.optimizer, self._plan.by_parameter, state)
        self._exchange.load_residual_state(state, "reduce", "gather")
