"""Split layers: each rank of a model axis holds its part of the weights, by outputs or by inputs.

Elsewhere a gradient is that of one rank's loss, and a strategy takes the mean over ranks. A part has seen the losses of
all ranks of its model axis, so its gradient is made their mean: deltas are divided by the number of ranks before they
meet the features, and multiplied again before they go on, which costs less than a pass over the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from augpipe.trainer.models.cifar import LocallyConnected2d
from augpipe.trainer.parallel.exchange import with_scaled_gradient
from augpipe.trainer.parallel.layouts import Kind, even_cuts


@dataclass(frozen=True, kw_only=True)
class Part:
    """Which part of a whole parameter a rank holds."""

    shape: tuple[int, ...]
    """The whole parameter's."""
    dim: int
    """The dimension that is cut."""
    cuts: tuple[int, ...]
    """Where, M + 1 offsets."""

    def range_of(self, rank: int) -> tuple[int, int]:
        """Where a rank's part begins and ends."""
        return self.cuts[rank], self.cuts[rank + 1]

    def of(self, whole: Tensor, rank: int) -> Tensor:
        """A rank's part of the whole parameter, a view."""
        start, stop = self.range_of(rank)
        return whole.narrow(self.dim, start, stop - start)

    def shape_of(self, rank: int) -> tuple[int, ...]:
        """The shape of a rank's part."""
        start, stop = self.range_of(rank)
        return (*self.shape[: self.dim], stop - start, *self.shape[self.dim + 1 :])


class SplitLinear(nn.Linear):
    """A part of a torch.nn.Linear; its bias is always cut by outputs.

    By columns it turns (rows, in_features) into (rows, its outputs), by rows (rows, its inputs) into a summand of
    (rows, out_features), to whose own outputs it adds its part of the bias.
    """

    chain: Callable[[Tensor], Any] | None = None
    """The `Chain` that begins with this layer."""

    def __init__(self, layer: nn.Linear, kind: Kind, rank: int, size: int) -> None:
        nn.Module.__init__(self)  # a whole layer's would make whole weights
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.kind = kind
        self.rank, self.size = rank, size
        self.input_cuts, self.output_cuts = even_cuts(layer.in_features, size), even_cuts(layer.out_features, size)
        self.input_depth = self.output_depth = 1
        dim, cuts = (0, self.output_cuts) if kind == "column" else (1, self.input_cuts)
        self.parts = {"weight": Part(shape=tuple(layer.weight.shape), dim=dim, cuts=cuts)}
        if layer.bias is not None:
            self.parts["bias"] = Part(shape=(layer.out_features,), dim=0, cuts=self.output_cuts)
        take_parts(self, layer, rank)
        self._own = slice(*self.output_cuts[rank : rank + 2])

    def forward(self, x: Tensor) -> Any:
        """Run the chain."""
        assert self.chain is not None, "another layer's chain runs this one"
        return self.chain(x)

    def compute(self, x: Tensor) -> Tensor:
        """This rank's share of the outputs, or its summand."""
        x = with_scaled_gradient(x, float(self.size))
        if self.kind == "column":
            y = functional.linear(x, self.weight, self.bias)
        else:
            y = functional.linear(x, self.weight)
            if self.bias is not None:
                whole = functional.pad(self.bias, (self._own.start, self.out_features - self._own.stop))
                y = y + whole.to(y.dtype)
        return with_scaled_gradient(y, 1.0 / self.size, is_own=True)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, split by {self.kind} in {self.size}"


class SplitLocallyConnected2d(nn.Module):
    """A part of a LocallyConnected2d: the filters of some rows of places.

    Features are its places here, each of as many numbers as it has channels.
    """

    kind: Kind = "column"
    chain: Callable[[Tensor], Any] | None = None
    """The `Chain` that begins with this layer."""
    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, layer: LocallyConnected2d, kind: Kind, rank: int, size: int) -> None:
        super().__init__()
        assert kind == "column"
        out_channels, self.height, self.width = layer.bias.shape
        self.kernel = layer.kernel
        self.rank, self.size = rank, size
        self.input_depth, self.output_depth = layer.weight.shape[2] // layer.kernel**2, out_channels
        heights = even_cuts(self.height, size)
        self.output_cuts = tuple(self.width * height for height in heights)
        self.input_cuts = self.output_cuts
        self.in_features = self.out_features = self.height * self.width
        self.parts = {
            "weight": Part(shape=tuple(layer.weight.shape), dim=0, cuts=self.output_cuts),
            "bias": Part(shape=tuple(layer.bias.shape), dim=1, cuts=heights),
        }
        take_parts(self, layer, rank)
        self._rows = heights[rank : rank + 2]

    def forward(self, x: Tensor) -> Any:
        """Run the chain."""
        assert self.chain is not None, "another layer's chain runs this one"
        return self.chain(x)

    def compute(self, x: Tensor) -> Tensor:
        """(rows, in_channels, places) to (rows, out_channels, its places)."""
        images = with_scaled_gradient(x, float(self.size)).view(*x.shape[:2], self.height, self.width)
        margin = self.kernel // 2
        start, stop = self._rows
        above, below = max(margin - start, 0), max(stop + margin - self.height, 0)
        looked_at = images[:, :, max(start - margin, 0) : stop + margin]
        patches = functional.unfold(functional.pad(looked_at, (margin, margin, above, below)), self.kernel)
        sums = torch.bmm(patches.permute(2, 0, 1), self.weight.transpose(1, 2)).permute(1, 2, 0)
        return with_scaled_gradient(sums + self.bias.flatten(1), 1.0 / self.size, is_own=True)

    def extra_repr(self) -> str:
        return f"{self.height}×{self.width} places, split by rows of places in {self.size}"


SplitLayer = SplitLinear | SplitLocallyConnected2d


def take_parts(split: SplitLayer, layer: nn.Module, rank: int) -> None:
    """Give a split layer its part of each of a layer's parameters; of one without memory ("meta") none either."""
    for name in ("weight", "bias"):
        whole = getattr(layer, name)
        if whole is None:
            split.register_parameter(name, None)
            continue
        own = split.parts[name].of(whole.detach(), rank).clone(memory_format=torch.contiguous_format)
        split.register_parameter(name, nn.Parameter(own, requires_grad=whole.requires_grad))
