"""Mixed precision, and gradients that are not finite: which autocast, which scaler."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.strategies.update import HostScaler

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class FiniteCheckScaler(HostScaler):
    """A scaler that leaves the loss as it is and only keeps steps with gradients that are not finite from happening."""

    def __init__(self) -> None:
        super().__init__(init_scale=1.0)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Forget this step's findings; the scale stays 1."""
        super().update(1.0)


def make_scaler(config: RunConfig) -> HostScaler | None:
    """fp16's scaler, else a `FiniteCheckScaler`, else nothing where nobody wants to know."""
    if config.optim.amp == "fp16":
        return HostScaler()
    return None if config.faults.on_nan == "ignore" else FiniteCheckScaler()


def autocast(config: RunConfig, device: torch.device) -> AbstractContextManager[Any]:
    """What the forward pass runs in."""
    if config.optim.amp == "off":
        return nullcontext()
    return torch.autocast(device.type, dtype=_DTYPES[config.optim.amp])
