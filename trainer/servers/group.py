"""Groups of processes that share a lease, and average among themselves before one of them pushes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from augpipe.trainer.exchange.layout import ALIGN
from augpipe.trainer.exchange.objects import broadcast_json, gather_json
from augpipe.trainer.loop.score import Score


@dataclass(frozen=True, kw_only=True)
class ShareResult(Score):
    """What one process's share of a lease gave."""

    gradient: Tensor
    """(num,) of the mean over all images of the lease: shares are added up."""
    buffers: tuple[Tensor, Tensor]
    """What changed in the floating-point and the integer buffers."""


class Group(Protocol):
    """Who computes which shares of a lease."""

    @property
    def members(self) -> Sequence[int]:
        """Those that this process computes."""
        ...

    def combine(self, shares: Sequence[ShareResult]) -> ShareResult:
        """All of a lease, from this process's shares and those of the others."""
        ...


class OneProcess:
    """All shares are this process's, one after the other: a lease without a group, a virtual cluster, a replay."""

    def __init__(self, size: int) -> None:
        self.members = range(size)

    def combine(self, shares: Sequence[ShareResult]) -> ShareResult:
        """As `Group` has it."""
        return _added(shares, in_butterfly_order([share.gradient for share in shares]))


class Processes:
    """Each process of a `torch.distributed` group computes one share; the first one of them works and pushes.

    The gradient is added up as the butterfly does it: each process owns a slice, gets it from all others, and adds
    them to its own in the order of ranks; then the first process gathers the slices.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self.members = (self._rank,)

    def tell(self, message: Any) -> Any:
        """What the first process says, as JSON has it, on all of them."""
        return broadcast_json(message, self._group)

    def hand(self, tensors: Sequence[Tensor]) -> None:
        """Give all processes the first one's values, in place."""
        for tensor in tensors:
            if tensor.numel():
                dist.broadcast(tensor, group=self._group, group_src=0)

    def combine(self, shares: Sequence[ShareResult]) -> ShareResult:
        """As `Group` has it; the gradient is whole on the first process alone."""
        (own,) = shares
        cuts = _cuts(own.gradient.numel(), self._size)
        sizes = [stop - start for start, stop in pairwise(cuts)]
        mine = sizes[self._rank]
        got = own.gradient.new_empty(mine * self._size)
        dist.all_to_all_single(got, own.gradient, [mine] * self._size, sizes, group=self._group)
        slices = got.view(self._size, mine)
        total = slices[self._rank].clone()
        for other in range(self._size):
            if other != self._rank:
                total.add_(slices[other])
        whole = own.gradient.new_empty(own.gradient.numel() if self._rank == 0 else 0)
        sent = [mine if rank == 0 else 0 for rank in range(self._size)]
        dist.all_to_all_single(whole, total, sizes if self._rank == 0 else [0] * self._size, sent, group=self._group)
        floats, integers = (self._gather(buffer) for buffer in own.buffers)
        counts = gather_json([own.loss_sum, own.num_correct, own.num_samples], self._group)
        shares = [
            ShareResult(gradient=whole, buffers=buffers, loss_sum=loss_sum, num_correct=num_correct, num_samples=num)
            for buffers, (loss_sum, num_correct, num) in zip(zip(floats, integers, strict=True), counts, strict=True)
        ]
        return _added(shares, whole)

    def _gather(self, mine: Tensor) -> list[Tensor]:
        """Every process's tensor of this shape."""
        everyones = [torch.empty_like(mine) for _ in range(self._size)]
        if mine.numel():
            dist.all_gather(everyones, mine, group=self._group)
        return everyones


def in_butterfly_order(gradients: Sequence[Tensor]) -> Tensor:
    """The sum, each owner's slice begun with its own numbers, the others added in the order of ranks; the first is
    overwritten where it is the only one."""
    if len(gradients) == 1:
        return gradients[0]
    total = torch.empty_like(gradients[0])
    for owner, (start, stop) in enumerate(pairwise(_cuts(total.numel(), len(gradients)))):
        own = total[start:stop].copy_(gradients[owner][start:stop])
        for other, gradient in enumerate(gradients):
            if other != owner:
                own.add_(gradient[start:stop])
    return total


def _cuts(num: int, size: int) -> list[int]:
    return [min(num, round(k * num / size / ALIGN) * ALIGN) for k in range(size)] + [num]


def _added(shares: Sequence[ShareResult], gradient: Tensor) -> ShareResult:
    """Buffers move by the mean of their changes, weighted by images; counts by the most."""
    if len(shares) == 1:
        return shares[0]
    num_samples = sum(share.num_samples for share in shares)
    floating = torch.zeros_like(shares[0].buffers[0])
    for share in shares:
        floating.add_(share.buffers[0], alpha=share.num_samples / max(num_samples, 1))
    counts = shares[0].buffers[1]
    for share in shares[1:]:
        counts = torch.maximum(counts, share.buffers[1])
    return ShareResult(
        gradient=gradient,
        buffers=(floating, counts),
        loss_sum=sum(share.loss_sum for share in shares),
        num_correct=sum(share.num_correct for share in shares),
        num_samples=num_samples,
    )
