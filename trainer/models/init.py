"""How weights are drawn, after He et al. (2015), and checks of the options that networks share."""

import math
from collections.abc import Sequence

from torch import nn

from augpipe.arguments import as_count


def initialise(model: nn.Module, *, nonlinearity: str = "relu") -> None:
    """Draw the weights of every convolution and linear layer; biases become 0, and normalisations the identity.

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
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


def check_dropout(name: str, value: float) -> float:
    """A probability of dropping a number: 0 (no dropout) up to, not including, 1."""
    if not (isinstance(value, int | float) and math.isfinite(value) and 0 <= value < 1):
        raise ValueError(f"{name}={value!r} must lie in 0..1, without 1: it is the part that is dropped.")
    return float(value)


def check_widths(name: str, values: Sequence[int], num: int) -> tuple[int, ...]:
    """`num` layer widths, each at least 1."""
    if not isinstance(values, list | tuple) or len(values) != num:
        raise ValueError(f"{name}={values!r} must be a list of {num} numbers, one a layer or part of the network.")
    return tuple(as_count(f"{name}[{index}]", value) for index, value in enumerate(values))
