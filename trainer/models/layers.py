"""What networks share: their shape, how weights are drawn (after He et al., 2015), and checks of their options."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from augpipe.validation.arguments import as_count


def initialise(model: nn.Module, *, nonlinearity: str = "relu") -> None:
    """Draw the weights of every convolution and linear layer; biases become 0. Normalisations begin as torch has them.

    Standard deviation sqrt(gain² / fan in), with `nonlinearity`'s gain (sqrt(2) for ReLU, 5/3 for tanh). The last
    linear layer, whose outputs are logits, has gain 1.
    """
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    head = linear[-1] if linear else None
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            gain_of = "linear" if module is head else nonlinearity
            nn.init.kaiming_normal_(module.weight, nonlinearity=gain_of)  # type: ignore[arg-type]
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def check_dropout(name: str, value: float) -> float:
    """A probability of dropping a number: 0 (no dropout) up to, not including, 1."""
    if not (isinstance(value, int | float) and math.isfinite(value) and 0 <= value < 1):
        raise ValueError(f"{name}={value!r} must lie in 0..1, without 1: it is the part that is dropped.")
    return float(value)


def check_widths(name: str, values: Sequence[int], num: int | None = None) -> tuple[int, ...]:
    """`num` layer widths, or any number of them, each at least 1."""
    if not isinstance(values, list | tuple) or num not in (None, len(values)):
        what = "numbers" if num is None else f"{num} numbers"
        raise ValueError(f"{name}={values!r} must be a list of {what}, one a layer or part of the network.")
    return tuple(as_count(f"{name}[{index}]", value) for index, value in enumerate(values))


class ConvNet(nn.Module):
    """`features`, pooled by `pool` to a grid of fixed size, then `classifier`.

    The pooling lets images of any size through. Where the features have the grid's size already, as for images of
    the size in the network's source, it changes nothing.
    """

    def __init__(self, features: nn.Module, pool: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.pool = pool
        self.classifier = classifier

    def forward(self, images_NCHW: Tensor) -> Tensor:
        """Logits (N, num_classes) of float images (N, C, H, W)."""
        logits: Tensor = self.classifier(self.pool(self.features(images_NCHW)).flatten(1))
        return logits


class AveragePool(nn.AdaptiveAvgPool2d):
    """As torch's, for a square grid; its backward has a deterministic form on CUDA, which torch's has not."""

    def __init__(self, grid: int) -> None:
        super().__init__(grid)
        self.grid = grid

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, grid, grid) means of images (N, C, H, W)."""
        height, width = input.shape[2:]
        if height % self.grid == 0 and width % self.grid == 0:
            return functional.avg_pool2d(input, (height // self.grid, width // self.grid))
        for dim in (2, 3):  # windows of unequal size: first the means of rows, then of columns
            size = input.shape[dim]
            edges = [(size * i // self.grid, -(-size * (i + 1) // self.grid)) for i in range(self.grid)]
            input = torch.stack([input.narrow(dim, start, stop - start).mean(dim) for start, stop in edges], dim)
        return input


class MaximumPool(nn.AdaptiveMaxPool2d):
    """The greatest value over all places; its backward is deterministic on CUDA, which torch's adaptive one is not."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, 1, 1) of images (N, C, H, W)."""
        return functional.max_pool2d(input, input.shape[2:])


class ResponseNorm(nn.LocalResponseNorm):
    """As torch's, which pools images in three dimensions and so has no deterministic backward on CUDA.

    Of signals it pools in two. An image is a signal whose places are all in one row: the numbers are the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, H, W), as the images given."""
        return super().forward(input.flatten(2)).view(input.shape)


def fully_connected(in_features: int, widths: tuple[int, ...], num_classes: int, dropout: float) -> nn.Sequential:
    """Linear, ReLU, dropout for each of `widths`, then the linear layer that gives the logits."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(in_features, width), nn.ReLU(inplace=True), nn.Dropout(dropout)]
        in_features = width
    return nn.Sequential(*layers, nn.Linear(in_features, num_classes))
