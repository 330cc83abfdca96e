"""One bucket's exchange on one rank: its values, its messages, and the arithmetic between them."""

import math
from threading import Event

import torch
from torch import Tensor

from augpipe.trainer.sync.meter import Meter
from augpipe.trainer.sync.residuals import Residuals
from augpipe.trainer.sync.wire import Control, Wire, padded


class Unit:
    """Values (n,) of a bucket, cut into one slice a rank.

    `pack_reduce` and `reduce` turn this rank's values into the mean over ranks in the slice that it owns; `pack_gather`
    and `unpack_gather` bring the other owners' slices in. Every rank, the owner too, ends with the decoded values.
    """

    def __init__(
        self,
        values: Tensor,
        cuts: tuple[int, ...],
        rank: int,
        wire: Wire,
        *,
        label: str,
        payload_classes: tuple[str, str],
        num_flags: int,
        with_norm: bool,
        residuals: Residuals | None,
        gather_residuals: Residuals | None,
        meter: Meter,
    ) -> None:
        self.values = values
        self.label = label
        self._cuts = cuts
        self._rank = rank
        self._world_size = len(cuts) - 1
        self._wire = wire
        self._payload_classes = payload_classes
        self._with_norm = with_norm
        self._residuals = residuals
        self._gather_residuals = gather_residuals
        self._meter = meter
        self._control = Control(num_flags)
        self._others = [other for other in range(self._world_size) if other != rank]
        slices = [self._message_bytes(other) for other in range(self._world_size)]
        mine = slices[rank]
        self.theirs_split = [0 if other == rank else slices[other] for other in range(self._world_size)]
        """Bytes of the messages about other ranks' slices: sent to them first, got from them in the end."""
        self.mine_split = [0 if other == rank else mine for other in range(self._world_size)]
        """Bytes of the messages about this rank's own slice: got from each other rank first, sent to each in the
        end."""
        # one buffer is sent first and received into later, the other the other way round
        self.theirs = values.new_zeros(sum(self.theirs_split), dtype=torch.uint8)
        self.mine = values.new_zeros(sum(self.mine_split), dtype=torch.uint8)
        self.flags = [False] * num_flags
        """Which of the bucket's parameters have a gradient on this rank; after `reduce`, on any rank."""
        self.non_finite = 0
        """Values that were not finite, over all ranks, before averaging."""
        self.gathered_non_finite = 0
        """Values that were not finite in what the owners sent back, over all slices."""
        self.square_sums = [0.0] * self._world_size
        """Sum of squares of each owner's slice; only this rank's until the gather."""
        self.reduced = Event()
        self.done = Event()
        self.done.set()

    @property
    def own_values(self) -> Tensor:
        """The slice that this rank owns."""
        return self._slice(self._rank)

    @property
    def own_range(self) -> tuple[int, int]:
        """Offsets of that slice in the bucket."""
        return self._cuts[self._rank], self._cuts[self._rank + 1]

    def _slice(self, owner: int) -> Tensor:
        return self.values[self._cuts[owner] : self._cuts[owner + 1]]

    def _payload_bytes(self, owner: int) -> int:
        return self._wire.num_bytes(self._cuts[owner + 1] - self._cuts[owner])

    def _message_bytes(self, owner: int) -> int:
        return padded(self._payload_bytes(owner)) + padded(self._control.num_bytes)

    def _fill(self, message: Tensor, owner: int, control: Tensor) -> Tensor:
        """The payload part of a message whose control part is written here."""
        start = padded(self._payload_bytes(owner))
        message[start : start + self._control.num_bytes].copy_(control)
        return message[: self._payload_bytes(owner)]

    def _split(self, message: Tensor, owner: int) -> tuple[Tensor, tuple[int, float, list[bool]]]:
        start = padded(self._payload_bytes(owner))
        control = self._control.unpack(message[start : start + self._control.num_bytes])
        return message[: self._payload_bytes(owner)], control

    def _count(self, phase: int, owner: int) -> None:
        payload = self._payload_bytes(owner)
        self._meter.add(self._payload_classes[phase], payload)
        self._meter.add("control", self._message_bytes(owner) - payload)

    def pack_reduce(self) -> None:
        """Encode every other owner's slice into `theirs`."""
        messages = torch.split(self.theirs, self.theirs_split)
        # the own slice is not sent, so nobody counts what is in it unless it is done here
        self.non_finite = count_non_finite(self.own_values)
        for other in self._others:
            payload = messages[other][: self._payload_bytes(other)]
            if self._residuals is None:
                self.non_finite += self._wire.write(self._slice(other), payload)
            else:
                self.non_finite += self._residuals.write(self._wire, other, self._slice(other), payload)
        control = self._control.pack(self.non_finite, 0.0, self.flags)
        for other in self._others:
            self._fill(messages[other], other, control)
            self._count(0, other)

    def reduce(self) -> None:
        """Mean over ranks of the own slice, in the values' dtype; ranks are added in ascending order after the own."""
        own = self.own_values
        messages = torch.split(self.mine, self.mine_split)
        for other in self._others:
            payload, (count, _, flags) = self._split(messages[other], self._rank)
            self._wire.read(payload, own, add=True)
            self.non_finite += count
            self.flags = [a or b for a, b in zip(self.flags, flags, strict=True)]
        own.mul_(1.0 / self._world_size)
        if self._with_norm:
            self.square_sums[self._rank] = square_sum(own)

    def pack_gather(self) -> None:
        """Encode the own slice into `mine`, once for each other rank, and decode it in place."""
        own = self.own_values
        messages = torch.split(self.mine, self.mine_split)
        first = messages[self._others[0]]
        payload = first[: self._payload_bytes(self._rank)]
        if self._gather_residuals is None:
            count = self._wire.write(own, payload)
        else:
            count = self._gather_residuals.write(self._wire, self._rank, own, payload)
        if not self._wire.exact:
            self._wire.read(payload, own)
            if self._with_norm:  # of what is applied, not of what was meant
                self.square_sums[self._rank] = square_sum(own)
        self.gathered_non_finite = count
        self._fill(first, self._rank, self._control.pack(count, self.square_sums[self._rank], []))
        for other in self._others[1:]:
            messages[other].copy_(first)
        for _ in self._others:
            self._count(1, self._rank)

    def unpack_gather(self) -> None:
        """Decode the other owners' slices."""
        messages = torch.split(self.theirs, self.theirs_split)
        for other in self._others:
            payload, (count, square, _) = self._split(messages[other], other)
            self._wire.read(payload, self._slice(other))
            self.gathered_non_finite += count
            self.square_sums[other] = square


def square_sum(values: Tensor) -> float:
    """Sum of squares, accumulated in float64."""
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2


def count_non_finite(values: Tensor) -> int:
    """Values that are NaN or infinite; a finite sum, the common case, has none."""
    if math.isfinite(float(values.sum())):
        return 0
    return values.numel() - int(torch.isfinite(values).sum())
