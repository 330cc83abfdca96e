"""Tells whether an optimizer treats each weight by itself, as it must where ranks own slices of tensors."""

from collections import OrderedDict, defaultdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

NUM_STEPS = 3
SHAPE = (4, 6)


def check_elementwise(optimizer: Optimizer) -> None:
    """Refuse optimizers whose update of a weight depends on others, such as LBFGS, LARS, Muon or Adafactor.

    Found out by trying: a small tensor is updated as a whole, and in two halves by two optimizers; results must agree.
    """
    for group in optimizer.param_groups:
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(SHAPE, generator=generator)
        gradients = torch.randn((NUM_STEPS, *SHAPE), generator=generator)
        try:
            whole = _updated(optimizer, group, weights, gradients)
            halves = [
                _updated(optimizer, group, weights[rows].reshape(-1), gradients[:, rows].reshape(NUM_STEPS, -1))
                for rows in (slice(0, 2), slice(2, 4))
            ]
            same = torch.allclose(whole.reshape(-1), torch.cat(halves), rtol=1e-4, atol=1e-6)
            reason = "it updates two halves of a tensor otherwise than the whole"
        except (TypeError, ValueError, RuntimeError, AssertionError) as error:
            same, reason = False, f"on a slice it says: {error}"
        if not same:
            raise ValueError(
                f"optimizer {type(optimizer).__name__} does not treat each weight by itself ({reason}), and lazy gives "
                "each rank slices of tensors. Use SGD, RMSprop, Adagrad, Adam, AdamW or another elementwise one, or "
                "the strategy butterfly."
            )


def _updated(optimizer: Optimizer, group: dict[str, Any], weights: Tensor, gradients: Tensor) -> Tensor:
    """What the weights are after some steps of an optimizer like `optimizer`, with the options of `group`."""
    weight = nn.Parameter(weights.clone())
    trial = object.__new__(type(optimizer))
    # no constructor: its arguments are unknown, while options are in the group and everything else in the instance
    trial.__dict__.update(optimizer.__dict__)
    trial._optimizer_step_pre_hooks = OrderedDict()
    trial._optimizer_step_post_hooks = OrderedDict()
    options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
    if isinstance(options.get("lr"), float):
        options["lr"] = 0.1  # with the first rate of a warm-up, often 0, nothing would move
    trial.param_groups = [options | {"params": [weight]}]
    trial.state = defaultdict(dict)
    for parameter in group["params"][:1]:  # Adagrad's and others' state is there from the start
        for key, value in optimizer.state.get(parameter, {}).items():
            whole = isinstance(value, Tensor) and value.shape == parameter.shape and value.numel() > 0 and key != "step"
            start = torch.full_like(weight, float(value.reshape(-1)[0])) if whole else value
            trial.state[weight][key] = start.clone() if isinstance(start, Tensor) else start
    for gradient in gradients:
        weight.grad = gradient.clone()
        type(trial).step(trial)
    return weight.detach()
