"""The update after the gradients are averaged: unscale, clip, let the optimizer step, drop the gradients."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """All parameters of all groups, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def count_non_finite(parameters: list[nn.Parameter]) -> int:
    """Gradient values that are NaN or infinite."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return sum(gradient.numel() - int(torch.isfinite(gradient).sum()) for gradient in gradients)


def apply_replicated(
    optimizer: Optimizer, parameters: list[nn.Parameter], *, clip_norm: float | None, scaler: GradScaler | None
) -> tuple[float | None, bool, int]:
    """Update weights whose gradients are whole on this rank, as any trainer does; (norm, found_inf, non-finite
    values)."""
    if scaler is not None:
        scaler.unscale_(optimizer)
    norm = None
    if clip_norm is not None:
        norm = float(nn.utils.clip_grad_norm_(parameters, clip_norm))
    with _counted(optimizer) as ran:
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    found_inf = scaler is not None and scaler.is_enabled() and not ran
    suspect = found_inf or (norm is not None and not math.isfinite(norm))
    non_finite = count_non_finite(parameters) if suspect else 0
    for parameter in parameters:
        parameter.grad = None
    return norm, found_inf, non_finite


@contextmanager
def _counted(optimizer: Optimizer) -> Iterator[list[bool]]:
    """A list with one entry for each time the optimizer stepped; the scaler does not say whether it let it."""
    ran: list[bool] = []
    handle = optimizer.register_step_post_hook(lambda *_: ran.append(True))
    try:
        yield ran
    finally:
        handle.remove()


def scale_lr(optimizer: Optimizer, factor: float) -> None:
    """Set each group's learning rate to `factor` times its first one."""
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
        group["lr"] = group["initial_lr"] * factor
