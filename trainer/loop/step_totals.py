"""What ranks tell each other after each step, in one small sum that is under way while the next step runs."""

from dataclasses import dataclass, fields

import torch
import torch.distributed as dist


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """A rank's numbers after a step, and, summed over ranks, what all know."""

    num_stop: float = 0.0
    """Ranks that were asked to end."""
    num_failed_saves: float = 0.0
    """Ranks that saw a checkpoint fail and want to end for it."""
    num_not_finite: float = 0.0
    """Ranks that saw a loss or gradient which is not finite."""
    loss_sum: float = 0.0
    """Over the images of the step."""
    num_correct: float = 0.0
    """Images whose likeliest class was the right one."""
    num_samples: float = 0.0
    """Images of the step."""


class PendingTotals:
    """Sums of totals over ranks; what is read is one step old, so that nobody waits, and the same on every rank."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._pending: tuple[dist.Work | None, torch.Tensor] | None = None

    def exchange(self, totals: StepTotals) -> StepTotals | None:
        """Send this step's totals; returns the sum of the step before, None after the first."""
        before = self.drain()
        numbers = torch.tensor([getattr(totals, field.name) for field in fields(StepTotals)], dtype=torch.float64)
        work = dist.all_reduce(numbers, group=self._group, async_op=True)
        self._pending = work, numbers
        return before

    def drain(self) -> StepTotals | None:
        """Wait for what is under way; returns it, None where nothing is."""
        if self._pending is None:
            return None
        work, numbers = self._pending
        self._pending = None
        if work is not None:
            work.wait()
        return StepTotals(
            **{field.name: value for field, value in zip(fields(StepTotals), numbers.tolist(), strict=True)}
        )
