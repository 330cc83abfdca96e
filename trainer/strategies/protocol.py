"""What a training loop may ask of a sync strategy, whichever it is."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.strategies.collected import Collected
from augpipe.trainer.strategies.update import Decision

MakeOptimizer: TypeAlias = Callable[[Iterable[nn.Parameter]], Optimizer]
"""Builds the optimizer from the model's trainable parameters, or from param groups of them that it makes itself."""


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What one step did, the same on every rank except for `exposed_s` and `bytes_sent`."""

    grad_norm: float | None
    """Norm of the whole averaged gradient, unscaled, before clipping; None without `clip_norm`."""
    found_inf: bool
    """A scaler was given and some rank's gradients were not finite: no rank updated its weights."""
    non_finite: int
    """Gradient values that were not finite, over all ranks; `ddp` and one rank alone count what is left after
    averaging."""
    exposed_s: float
    """Seconds, since the last report, that this rank's main thread waited for other ranks; under NCCL only those in
    which it waited to read what the exchanges had found."""
    bytes_sent: dict[str, int] = field(default_factory=dict)
    """Bytes this rank sent since the last report, by payload class (see `Meter`)."""


class Strategy(Protocol):
    """Keeps the weights of all ranks bit-identical while each trains on batches of its own.

    Per step: forward through `module`, backward as often as gradients accumulate (all but one inside `no_sync()`),
    then `step()`. Every method is called by all ranks, in the same order.
    """

    module: nn.Module
    """What to call in the forward pass: DDP's wrapper, or the model itself."""
    optimizer: Optimizer
    """For learning-rate schedulers and `param_groups`; its parameters may be slices. Never call its `step`."""
    meter: Meter
    """Bytes that this rank sent."""

    def no_sync(self) -> AbstractContextManager[None]:
        """Backward inside it adds to the gradients without any exchange."""

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Finish the exchange; average over ranks, unscale, clip, update; drop the gradients.

        With a scaler the loss was `scaler.scale(loss)`, and `scaler.update()` happens in here; do not call `unscale_`,
        `step` or `update` yourself. All ranks skip the update if one found a gradient that is not finite.
        """

    def collect(self, scaled: bool) -> Collected:
        """The first half of `step`, for whoever decides on the gradients of several strategies at once: finish the
        exchange, and say what there is, before anybody waits for a GPU; `scaled` where a scaler may leave the step
        out."""

    def update(self, decision: Decision) -> StepReport:
        """The second half: do what was decided."""

    def flush(self) -> None:
        """Return when this rank's weights are whole and the same as everyone's; cheap when nothing is pending."""

    def set_lr(self, factor: float) -> None:
        """Set every group's learning rate to `factor` times what it was when the optimizer was built."""

    def state_dict(self) -> dict[str, Any]:
        """This rank's optimizer state (a shard under `lazy`) and residuals; weights are the model's own affair."""

    def full_optimizer_state(self) -> dict[str, Any]:
        """The whole optimizer state, by parameter name, on every rank: for any strategy and any world size."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state of the same rank and world size, or a full one (`full_optimizer_state`, `merge`).

        Load the model's weights first. Raises `ValueError` where the state does not fit, saying what to do.
        """

    def close(self) -> None:
        """Flush, then let go of threads, hooks and process groups; the model stays as it is and may be used on."""
