"""The exponential moving average of the weights, by torch's AveragedModel."""

from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from augpipe.trainer.config.tables import EmaConfig


class Ema:
    """The averaged copy; its buffers are the model's own at the last update."""

    def __init__(self, config: EmaConfig, model: nn.Module) -> None:
        assert config.decay is not None
        self.every = config.every
        """Steps between updates."""
        self.averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.decay**config.every))  # type: ignore[no-untyped-call]

    @property
    def module(self) -> nn.Module:
        """The network with averaged weights."""
        inner: nn.Module = self.averaged.module
        return inner

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the model's weights, which must be whole."""
        self.averaged.update_parameters(model)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return dict(self.averaged.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.averaged.load_state_dict(state)


def make_ema(config: EmaConfig, model: nn.Module) -> Ema | None:
    """The average, where one is asked for."""
    return None if config.decay is None else Ema(config, model)
