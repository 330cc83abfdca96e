"""What must stay as it was when a strategy was built, and be alike on all ranks: which parameters, which options."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from augpipe.trainer.exchange.exchange_errors import SyncError


class Agreement:
    """One optimizer's parameters and options, to be checked in each step.

    `strangers` are the parameters that no strategy was given, since they were frozen, or not there, when it was built.
    """

    def __init__(self, optimizer: Optimizer, strangers: Callable[[], Iterator[nn.Parameter]]) -> None:
        self._optimizer = optimizer
        self._strangers = strangers
        self._updated = {parameter for group in optimizer.param_groups for parameter in group["params"]}

    def check(self) -> None:
        """Refuse parameters that came later: no rank would average their gradients."""
        for parameter in self._strangers():
            if parameter.requires_grad and parameter.grad is not None:
                raise ValueError(
                    f"a parameter of shape {tuple(parameter.shape)} has a gradient but was frozen, or not there, when "
                    f"the strategy was built, so ranks would drift apart: build the strategy after the last change of "
                    "requires_grad."
                )
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter not in self._updated:
                    raise ValueError(
                        f"the optimizer has a parameter of shape {tuple(parameter.shape)} that it had not when the "
                        "strategy was built, so ranks would drift apart: build the strategy after add_param_group."
                    )

    def digest(self) -> float:
        """A number for the optimizer's options as they are now, of which float64 holds every digit."""
        return float(zlib.crc32(repr(options_of(self._optimizer)).encode()))

    def compare(self, mine: float, digests: Sequence[float], ranks: Sequence[int]) -> None:
        """Refuse options of other ranks that differ from this rank's, by their digests of one moment.

        Raises:
            SyncError: those of a rank do.
        """
        for rank, theirs in zip(ranks, digests, strict=True):
            if theirs != mine:
                groups = self._optimizer.param_groups
                rates = ", ".join(f"lr={float(group['lr']):g}" for group in groups if "lr" in group)
                raise SyncError(
                    f"rank {rank}'s optimizer has other options than this rank's ({rates}), so ranks would drift "
                    "apart: set learning rates and other options alike on all ranks, by what all of them know."
                )


def options_of(optimizer: Optimizer) -> dict[str, Any]:
    """The options of all param groups by name, as far as ranks can compare them; floats to nine digits, since two kinds
    of processors may compute the last ones of a schedule differently."""
    return {
        f"{key} of param group {number}": _comparable(value)
        for number, group in enumerate(optimizer.param_groups)
        for key, value in group.items()
        if key not in ("params", "param_names")
    }


def _comparable(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(_comparable(one) for one in value)
    # a tensor on a GPU is not waited for
    if isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1 and not value.is_cuda):
        return float(f"{float(value):.9g}")
    return type(value).__name__
