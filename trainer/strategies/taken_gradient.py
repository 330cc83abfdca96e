"""What stands in `.grad` while the gradient itself is on its way: whoever uses it is told."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


def second_gradient(name: str) -> str:
    """What is said where a parameter gets one."""
    return (
        f"parameter {name} got a second gradient before step(): run every backward but the last of a step inside "
        "no_sync(). Reentrant checkpointing does this too: pass use_reentrant=False."
    )


class TakenGradient(torch.Tensor):
    """Takes the place of a parameter's gradient between backward and `step()`; it has no numbers.

    A gradient of None would make `torch.nn.utils.clip_grad_norm_` find a norm of 0, and silently clip nothing.
    """

    parameter_name: str
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, parameter: nn.Parameter, name: str) -> "TakenGradient":
        made: TakenGradient = torch.Tensor._make_wrapper_subclass(
            cls, parameter.shape, strides=parameter.stride(), dtype=parameter.dtype, device=parameter.device
        )
        made.parameter_name = name
        return made

    def __init__(self, parameter: nn.Parameter, name: str) -> None:
        """As `__new__`."""

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"TakenGradient({self.parameter_name})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.add_.Tensor:  # as backward does it
            raise RuntimeError(second_gradient(args[0].parameter_name))
        raise RuntimeError(
            "under butterfly and lazy gradients are on their way to the other ranks once backward has ended, and .grad "
            "has none of them. To clip them, give strategy(..., clip_norm=...); report.grad_norm is then their norm."
        )
