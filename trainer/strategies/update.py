"""The update after the gradients are averaged: the loss scale and clipping, as all ranks agree on them."""

import torch
from torch import nn
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


class AgreedScaler:
    """Tells a scaler, by its public methods alone, what all ranks agreed on.

    The scaler looks for non-finite gradients in one optimizer of this rank's. Here it is shown an optimizer of one
    weight whose gradient is infinite exactly when any rank found something that is not finite.
    """

    def __init__(self, device: torch.device) -> None:
        self._weight = nn.Parameter(torch.zeros(1, device=device))
        self._optimizer = torch.optim.SGD([self._weight], lr=0.0)
        self.inverse_scale = 1.0
        """What gradients must be multiplied by; that of the scale before this step."""
        self.residual_factor = 1.0
        """What residuals of gradients must be multiplied by before the next step: they are in units of the loss scale.
        0 after a step that was left out, whose residuals may be as far off as its gradients were."""

    def found_inf(self, scaler: GradScaler | None, not_finite: bool) -> bool:
        """Whether the update must be left out; the scaler has updated its scale after this."""
        if scaler is None or not scaler.is_enabled():
            self.inverse_scale = self.residual_factor = 1.0
            return False
        scale = scaler.get_scale()
        # as torch has it: the reciprocal in double, rounded to float32
        self.inverse_scale = float(torch.tensor(1.0 / scale, dtype=torch.float32))
        self._weight.grad = torch.full_like(self._weight, float("inf") if not_finite else 0.0)
        scaler.unscale_(self._optimizer)
        scaler.step(self._optimizer)
        scaler.update()
        self.residual_factor = 0.0 if not_finite else scaler.get_scale() / scale
        return not_finite


def scale_lr(optimizer: Optimizer, factor: float) -> None:
    """Set each group's learning rate to `factor` times its first one."""
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
        group["lr"] = group["initial_lr"] * factor
