"""Servers and workers that compute nothing: what they send has the right sizes, and takes no memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from augpipe.trainer.codecs.registry import codec
from augpipe.trainer.servers.messages import Hand, Lease, LeaseName, Part
from augpipe.trainer.servers.worker import Computed


@dataclass(frozen=True)
class Sizes:
    """Numbers of a network: wide and narrow weights, floating-point and integer buffers."""

    wide: int
    narrow: int
    floating: int = 0
    counting: int = 0

    @property
    def num_weights(self) -> int:
        """Wide and narrow ones."""
        return self.wide + self.narrow

    def parts(self, num_servers: int, wide_codec: str = "fp32", *, is_change: bool = False) -> tuple[Part, ...]:
        """Cut into equal slices, the wide weights as a codec has them; real ones differ by less than 128 numbers."""
        wide_bytes = codec(wide_codec).num_bytes(self.wide // num_servers)
        return tuple(
            Part(
                wide=_zeros(wide_bytes, np.uint8),
                narrow=_zeros(self.narrow // num_servers, np.float32),
                buffers=_zeros(self.floating, np.float32) if index == 0 else None,
                counts=_zeros(self.counting, np.int64) if index == 0 else None,
                is_change=is_change,
            )
            for index in range(num_servers)
        )


def _zeros(num: int, dtype: Any) -> Any:
    """An array of that size that takes no memory."""
    return np.broadcast_to(np.zeros(1, dtype), (num,))


def sizes_of(model: nn.Module) -> Sizes:
    """Those of a network, which may be on "meta": what trains of it, and its buffers."""
    trained = [one for one in model.parameters() if one.requires_grad]
    buffers = list(model.buffers())
    return Sizes(
        wide=sum(one.numel() for one in trained if one.ndim > 1),
        narrow=sum(one.numel() for one in trained if one.ndim <= 1),
        floating=sum(one.numel() for one in buffers if one.is_floating_point()),
        counting=sum(one.numel() for one in buffers if not one.is_floating_point()),
    )


class SizedServer:
    """Answers with a part of the right size.

    Args:
        whole: its slice of the weights.
        change: what it hands to a worker that has older weights; None: the slice.
    """

    def __init__(self, whole: Part, change: Part | None = None) -> None:
        self._whole = whole
        self._change = change or whole

    def stage(self, worker: int, name: LeaseName, part: Part) -> None:
        """Nothing is kept."""

    def carry_out(self, number: int, command: Any) -> Part | None:
        """The weights, where they are asked for."""
        if not isinstance(command, Hand):
            return None
        return self._whole if command.whole else self._change


class SizedWorker:
    """Pushes parts of the right size."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts

    def load(self, parts: Sequence[Part]) -> None:
        """Nothing is kept."""

    def begin_afresh(self) -> None:
        """Nothing is kept."""

    def settle(self, *, counted: bool) -> None:
        """Nothing is kept."""

    def compute(self, lease: Lease, upcoming: Lease | None, lr: float) -> Computed:
        """No time passes here."""
        num = lease.num_samples
        return Computed(parts=self._parts, loss_sum=0.0, num_correct=0, num_samples=num, data_s=0.0, compute_s=0.0)
