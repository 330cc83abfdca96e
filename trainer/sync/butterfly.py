"""The butterfly: every rank averages one slice of each bucket and sends the average to all others, during backward."""

import math
from contextlib import AbstractContextManager
from typing import Any

from torch.amp.grad_scaler import GradScaler

from augpipe.trainer.sync.base import Parts
from augpipe.trainer.sync.collect import Collector
from augpipe.trainer.sync.engine import Engine
from augpipe.trainer.sync.protocol import StepReport
from augpipe.trainer.sync.scaling import Witness, clip_factor
from augpipe.trainer.sync.state import full_state, load_full_state
from augpipe.trainer.sync.update import scale_lr


class Butterfly:
    """A `Strategy`: gradients travel, the whole optimizer runs on every rank (Deep Image, section 3.1)."""

    def __init__(self, parts: Parts) -> None:
        self.module = parts.model
        self.optimizer = parts.optimizer
        self.meter = parts.meter
        self._parts = parts
        self._plan = parts.plan
        self._units = parts.make_units(gradient_gather=True)
        self._engine = Engine(
            "butterfly",
            parts.reduce_group,
            parts.gather_group,
            device=parts.device,
            timeout_s=parts.timeout_s,
            chained=True,
        )
        self._collector = Collector(self._plan, self._units, self._engine, parts.model.parameters)
        self._witness = Witness(parts.device)

    def no_sync(self) -> AbstractContextManager[None]:
        """Backward inside it adds to the gradients without any exchange."""
        return self._collector.no_sync()

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Await the averages, unscale, clip, update."""
        self._collector.finish()
        for unit in self._units:
            self._engine.wait(unit.done, unit)
        not_finite = sum(unit.gathered_non_finite for unit in self._units)
        found_inf = self._witness.found_inf(scaler, not_finite > 0)
        self._parts.scale_residuals(self._witness.residual_factor)
        norm = None
        factor = self._witness.inverse_scale
        if self._parts.clip_norm is not None:
            # one order of adding on every rank: the norm, and so the weights, are the same to the last bit
            norm = math.sqrt(math.fsum(square for unit in self._units for square in unit.square_sums)) * factor
        if not found_inf:
            clip = 1.0 if norm is None or self._parts.clip_norm is None else clip_factor(norm, self._parts.clip_norm)
            for flat in self._plan.flats:
                if factor != 1.0:
                    flat.mul_(factor)
                if clip != 1.0:
                    flat.mul_(clip)
            self._hand_over_gradients()
            self.optimizer.step()
        for parameter in self._plan.parameters:
            parameter.grad = None
        return StepReport(
            grad_norm=norm,
            found_inf=found_inf,
            non_finite=max(sum(unit.non_finite for unit in self._units), not_finite),
            exposed_s=self._engine.take_exposed_s(),
            bytes_sent=self.meter.since_last(),
        )

    def _hand_over_gradients(self) -> None:
        """Views of the flat buffers where the dtype allows it."""
        for parameter, view, used in zip(self._plan.parameters, self._plan.views, self._collector.used(), strict=True):
            parameter.grad = view.to(parameter.dtype) if used else None

    def flush(self) -> None:
        """Weights are whole whenever `step` is not running; raises `SyncError` where an exchange has failed."""
        self._engine.check()

    def set_lr(self, factor: float) -> None:
        """Set every group's learning rate to `factor` times its first one."""
        scale_lr(self.optimizer, factor)

    def full_optimizer_state(self) -> dict[str, Any]:
        """The optimizer state, which every rank has."""
        return full_state(self.optimizer, self._parts.names)

    def state_dict(self) -> dict[str, Any]:
        """The full optimizer state, and this rank's residuals."""
        return self.full_optimizer_state() | self._parts.residual_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a full state; residuals only of this very rank."""
        load_full_state(self.optimizer, self._parts.names, state)
        self._parts.load_residual_state(state)

    def close(self) -> None:
        """End the threads and take the hooks off."""
        self._collector.close()
        self._engine.close()
        self._parts.close()
