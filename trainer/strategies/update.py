"""The update after the gradients are averaged: the loss scale and clipping, as all ranks agree on them."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

CLIP_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad_norm_."""


def clip_factor(norm: float | None, clip_norm: float | None) -> float:
    """What gradients of that norm are multiplied by: at most 1; NaN stays NaN."""
    if norm is None or clip_norm is None:
        return 1.0
    factor = clip_norm / (norm + CLIP_EPSILON)
    return 1.0 if factor > 1.0 else factor


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a strategy knows of a step's gradient once it is averaged, the same on all ranks of its group."""

    square_sum: float
    """Sum of squares, still scaled by the loss scale; 0 where nobody clips."""
    num_bad: int
    """Averaged values that are not finite; 0 where nobody looks."""
    non_finite: int
    """Values that are not finite in the gradients of ranks, as `StepReport` has it."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What all ranks do with a step's gradient."""

    norm: float | None
    """Norm of the whole averaged gradient, unscaled; None where nobody clips."""
    found_inf: bool
    """Whether the update must be left out."""
    non_finite: int
    """As in `Found`, of the whole gradient."""
    inverse_scale: float
    """What gradients must be multiplied by; that of the scale before this step."""
    residual_factor: float
    """What residuals of gradients must be multiplied by before the next step: they are in units of the loss scale.
    0 after a step that was left out, whose residuals may be as far off as its gradients were."""


def is_scaled(scaler: GradScaler | None) -> bool:
    """Whether a step may be left out, so that somebody must look for what is not finite."""
    return scaler is not None and scaler.is_enabled()


class HostScaler(GradScaler):
    """A scaler whose scale lies in the host's memory, where strategies decide: nobody waits for a GPU to learn it."""

    def __init__(self, init_scale: float = 2.0**16) -> None:
        super().__init__("cpu", init_scale=init_scale)
        self.scale(torch.zeros((), device="cpu"))  # the scale is made where the first loss is


class AgreedScaler:
    """Tells a scaler, by its public methods alone, what all ranks agreed on.

    The scaler looks for non-finite gradients in one optimizer of this rank's. Here it is shown an optimizer of one
    weight, where its scale is, whose gradient is infinite exactly when any rank found something that is not finite.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_host, self._on_device = (
            torch.optim.SGD([torch.zeros(1, device=place, requires_grad=True)], lr=0.0) for place in ("cpu", device)
        )

    def decide(self, scaler: GradScaler | None, found: Found, clip_norm: float | None) -> Decision:
        """What follows from what was found; the scaler has updated its scale after this."""
        found_inf, inverse_scale, residual_factor = False, 1.0, 1.0
        if scaler is not None and scaler.is_enabled():
            found_inf = found.num_bad > 0
            scale = scaler.get_scale()
            # as torch has it: the reciprocal in double, rounded to float32
            inverse_scale = float(np.float32(1.0 / scale))
            shown = self._on_host if isinstance(scaler, HostScaler) else self._on_device
            (weight,) = shown.param_groups[0]["params"]
            weight.grad = torch.full_like(weight, math.inf if found_inf else 0.0)
            scaler.unscale_(shown)
            scaler.update()  # without a step, which would ask the device for what is known here
            residual_factor = 0.0 if found_inf else scaler.get_scale() / scale
        return Decision(
            norm=None if clip_norm is None else math.sqrt(found.square_sum) * inverse_scale,
            found_inf=found_inf,
            non_finite=found.non_finite,
            inverse_scale=inverse_scale,
            residual_factor=residual_factor,
        )


def scale_lr(optimizer: Optimizer, factor: float) -> None:
    """Set each group's learning rate to `factor` times its first one."""
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
        group["lr"] = group["initial_lr"] * factor
