"""How the weights are laid one after another and cut into one slice a server."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from augpipe.trainer.exchange.layout import ALIGN


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Elements `start` to `stop` of a slice: a parameter, or what a cut leaves of it."""

    parameter: str
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class Slice:
    """What one server keeps: a range of the wide tensors' numbers, and one of the narrow ones'."""

    wide: tuple[int, int]
    """From, to: in the flat vector of all weights."""
    narrow: tuple[int, int]
    wide_segments: tuple[Segment, ...]
    """Seen from the slice's own start."""
    narrow_segments: tuple[Segment, ...]

    @property
    def num_wide(self) -> int:
        """Numbers of tensors of two and more dimensions."""
        return self.wide[1] - self.wide[0]

    @property
    def num_narrow(self) -> int:
        """Numbers of the other tensors."""
        return self.narrow[1] - self.narrow[0]


class FlatWeights:
    """A network's trainable parameters and their gradients as two flat vectors of float32, and its buffers.

    Tensors of two and more dimensions come first (`wide`: those that codecs encode and that weight decay always pulls
    at), then the others. The parameters become views of `values`, and their gradients of `gradients`.

    Raises:
        ValueError: a parameter is of another dtype or not in torch's default memory format.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
        for name, one in named:
            if one.dtype != torch.float32 or not one.is_contiguous():
                raise ValueError(
                    f"the parameter {name} is {one.dtype} with strides {one.stride()}: parameter servers take float32 "
                    "in torch's default memory format. Leave model.channels_last out, and use optim.amp for half "
                    "precision."
                )
        wide = [(name, one) for name, one in named if one.ndim > 1]
        narrow = [(name, one) for name, one in named if one.ndim <= 1]
        self.sizes = [(name, one.numel()) for name, one in (*wide, *narrow)]
        self.num_wide = sum(one.numel() for _, one in wide)
        total = sum(num for _, num in self.sizes)
        self.values = torch.empty(total)
        self.gradients = torch.zeros(total)
        start = 0
        for _, one in (*wide, *narrow):
            stop = start + one.numel()
            self.values[start:stop] = one.detach().reshape(-1)
            one.data = self.values[start:stop].view(one.shape)
            one.grad = self.gradients[start:stop].view(one.shape)
            start = stop
        buffers = list(model.buffers())
        self._floating = [one for one in buffers if one.is_floating_point()]
        self._counting = [one for one in buffers if not one.is_floating_point()]

    def cut(self, num_servers: int) -> tuple[Slice, ...]:
        """One slice a server; they differ by less than 2 * 64 numbers of each kind."""
        kinds = self.sizes[: self._num_wide_tensors()], self.sizes[self._num_wide_tensors() :]
        (wide, wide_segments), (narrow, narrow_segments) = (_cut(kind, num_servers) for kind in kinds)
        return tuple(
            Slice(
                wide=wide[k],
                narrow=(self.num_wide + narrow[k][0], self.num_wide + narrow[k][1]),
                wide_segments=wide_segments[k],
                narrow_segments=narrow_segments[k],
            )
            for k in range(num_servers)
        )

    def _num_wide_tensors(self) -> int:
        done, count = 0, 0
        while done < self.num_wide:
            done += self.sizes[count][1]
            count += 1
        return count

    def buffers(self) -> tuple[Tensor, Tensor]:
        """Copies: (num,) float32 of the floating-point buffers, (num,) int64 of the others."""
        floating = [one.detach().reshape(-1).float() for one in self._floating]
        counting = [one.detach().reshape(-1).long() for one in self._counting]
        return (
            torch.cat(floating) if floating else torch.zeros(0),
            torch.cat(counting) if counting else torch.zeros(0, dtype=torch.int64),
        )

    @torch.no_grad()
    def set_buffers(self, floating: Tensor, counting: Tensor) -> None:
        """The other way round."""
        for buffers, values in ((self._floating, floating), (self._counting, counting)):
            parts = torch.split(values, [one.numel() for one in buffers]) if buffers else ()
            for one, part in zip(buffers, parts, strict=True):
                one.copy_(part.view(one.shape))


def _cut(sizes: Sequence[tuple[str, int]], num_servers: int) -> tuple[list[tuple[int, int]], list[tuple[Segment, ...]]]:
    """Ranges of the tensors' numbers laid one after another, and the segments of each."""
    total = sum(num for _, num in sizes)
    cuts = [_snap(sizes, round(k * total / num_servers)) for k in range(num_servers + 1)]
    ranges = list(pairwise(cuts))
    return ranges, [_segments(sizes, low, high) for low, high in ranges]


def _snap(sizes: Sequence[tuple[str, int]], offset: int) -> int:
    """To a multiple of ALIGN from the start of the tensor that it falls into: vector loops then see the same numbers in
    their main part as they would in the whole tensor."""
    start = 0
    for _, num in sizes:
        if start <= offset < start + num:
            aligned = (offset - start + ALIGN // 2) // ALIGN * ALIGN
            return start + min(aligned, num)
        start += num
    return offset


def _segments(sizes: Sequence[tuple[str, int]], low: int, high: int) -> tuple[Segment, ...]:
    found, start = [], 0
    for name, num in sizes:
        first, last = max(low, start), min(high, start + num)
        if first < last:
            found.append(Segment(parameter=name, start=first - low, stop=last - low))
        start += num
    return tuple(found)
