"""What a strategy has found of a step's gradient while the host has not read it: it lies on the device."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from augpipe.trainer.strategies.update import Found


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Numbers of which whoever decides makes one copy: that is where a step waits for a GPU."""

    numbers: Tensor
    """(num_bytes,) uint8 on the device, as many bytes as make whole float64 numbers."""
    take: Callable[[Tensor], Found]
    """What a copy of `numbers` on the CPU says; raises what made an exchange fail. It may have to exchange and read
    more where something is not finite."""
    totals: Callable[[], Tensor]
    """(owners, 2) int64 on the device: how many averaged values of each owner's are not finite, or 1 where nobody has
    counted them, and the bits of their float64 sum of squares. The same on all ranks that average them."""


def add_up(totals: Tensor) -> tuple[int, float]:
    """The sums of (..., 2) totals on the CPU; the same bits in whatever order they are."""
    rows = totals.view(-1, 2)
    return sum(rows[:, 0].tolist()), math.fsum(rows.view(torch.float64)[:, 1].tolist())
