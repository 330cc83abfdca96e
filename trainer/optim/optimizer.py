"""From the config to a torch optimizer, with weight decay kept from 1-D tensors where that is asked for."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from augpipe.trainer.config.tables import OptimConfig


def make_optimizer(config: OptimConfig, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The optimizer that a config describes; with decay_1d off, of two groups: the second holds the 1-D tensors."""
    groups = param_groups(list(parameters), config)
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    eps: dict[str, Any] = {} if config.eps is None else {"eps": config.eps}
    match config.name:
        case "sgd":
            return torch.optim.SGD(groups, momentum=config.momentum, nesterov=config.nesterov, **common)
        case "rmsprop":
            return torch.optim.RMSprop(groups, momentum=config.momentum, alpha=config.alpha, **common, **eps)
        case "adagrad":
            return torch.optim.Adagrad(groups, **common, **eps)
        case "adamw":
            return torch.optim.AdamW(groups, betas=config.betas, **common, **eps)


def param_groups(parameters: list[nn.Parameter], config: OptimConfig) -> list[dict[str, Any]]:
    """One group, or two: those that decay, and those of at most one dimension, which do not."""
    if config.decay_1d or config.weight_decay == 0:
        return [{"params": parameters}]
    decaying = [parameter for parameter in parameters if parameter.ndim > 1]
    rest = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": decaying}, {"params": rest, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
