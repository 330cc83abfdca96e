"""Networks that compute nothing: outputs and gradients of the right sizes, so that exchanges alone are timed."""

import math
import time
from typing import Any

import torch
from torch import Tensor, nn

TIMEOUT_S = 300.0


def shapes(num: int) -> list[tuple[int, ...]]:
    """ResNet-50's parameters, its widths scaled until there are about `num` of them."""

    def build(width: float) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []

        def conv(out: int, into: int, kernel: int) -> None:
            found.extend([(out, into, kernel, kernel), (out,), (out,)])

        w = max(int(64 * width), 1)
        conv(w, 3, 7)
        into = w
        for stage, blocks in enumerate((3, 4, 6, 3)):
            mid = w * 2**stage
            for block in range(blocks):
                conv(mid, into, 1)
                conv(mid, mid, 3)
                conv(4 * mid, mid, 1)
                if block == 0:
                    conv(4 * mid, into, 1)
                into = 4 * mid
        return [*found, (1000, into), (1000,)]

    low, high = 0.02, 8.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(map(math.prod, build(middle))) < num else (low, middle)
    return build(high)


class Given(torch.autograd.Function):
    """A ready-made output, and ready-made gradients of the inputs; computing is played by sleeping."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, gradients: tuple[Tensor, ...], sleep_s: float, *inputs: Tensor) -> Tensor:
        ctx.gradients, ctx.sleep_s = gradients, sleep_s
        _sleep(sleep_s)
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Any, ...]:
        _sleep(2 * ctx.sleep_s)
        return None, None, None, *ctx.gradients


def _sleep(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


class Layers(nn.Module):
    """A parameter a layer, each with the same gradient every time; together they compute for `compute_s`."""

    def __init__(self, gradients: list[Tensor], compute_s: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(torch.zeros_like(one)) for one in gradients)
        self._gradients, self._sleep_s = gradients, compute_s / 3 / len(gradients)

    def forward(self, x: Tensor) -> Tensor:
        for layer, gradient in zip(self.layers, self._gradients, strict=True):
            x = Given.apply(x, (torch.ones_like(x), gradient), self._sleep_s, x, layer)
        return x


class Nothing(torch.optim.SGD):
    """A step that takes no time."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.0)

    def step(self, closure: Any = None) -> None:
        """Leaves the weights as they are."""


def momentum(parameters: Any) -> torch.optim.Optimizer:
    """SGD with momentum."""
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
