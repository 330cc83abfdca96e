"""Mixed precision, and gradients that are not finite: which autocast, which scaler."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler

from augpipe.trainer.config.tables import RunConfig

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class FiniteCheckScaler(GradScaler):
    """A scaler that leaves the loss as it is and only keeps steps with gradients that are not finite from happening."""

    def __init__(self, device: str) -> None:
        super().__init__(device, init_scale=1.0)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Forget this step's findings; the scale stays 1."""
        super().update(1.0)


def make_scaler(config: RunConfig, device: torch.device) -> GradScaler | None:
    """fp16's scaler, else a `FiniteCheckScaler`, else nothing where nobody wants to know."""
    if config.optim.amp == "fp16":
        return GradScaler(device.type)
    return None if config.faults.on_nan == "ignore" else FiniteCheckScaler(device.type)


def autocast(config: RunConfig, device: torch.device) -> AbstractContextManager[Any]:
    """What the forward pass runs in."""
    if config.optim.amp == "off":
        return nullcontext()
    return torch.autocast(device.type, dtype=_DTYPES[config.optim.amp])
