"""Which of a network's layers train: all of them, the last fully connected ones, or the last one alone."""

import re
from dataclasses import dataclass
from functools import partial

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

_LAST_FC = re.compile(r"last-fc:([1-9][0-9]*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainable:
    """What `trainable` chose; `str()` of it is one line to print."""

    layers: tuple[str, ...]
    """The layers that train, by their names in the model; "" is the model itself."""
    num_trained: int
    """Weights and biases that train."""
    num_frozen: int
    """Weights and biases that stay as they are."""

    def __str__(self) -> str:
        total = self.num_trained + self.num_frozen
        if not self.num_frozen:
            return f"all layers train: {total:,} weights"
        return f"{', '.join(self.layers)} train: {self.num_trained:,} of {total:,} weights; the rest stays"


def trainable(model: nn.Module, which: str) -> Trainable:
    """Let the layers that `which` names train, and freeze all others.

    "all": every layer. "last-fc:N": the last N fully connected layers (torch.nn.Linear). "last": the last layer that
    has weights. Last means in the order of `model.named_modules()`, the one in which layers were assigned to the model.

    A frozen weight has requires_grad False. A frozen batch normalisation normalises by the statistics that it has and
    does not update them: it stays in evaluation mode through `model.train()`. Dropout and the like are left as they
    are. Deep copies of the model freeze alike; a state_dict does not carry it. Another call starts again: "all" undoes
    an earlier choice. Call it after SyncBatchNorm's conversion and before an optimizer, DistributedDataParallel, a sync
    strategy or torch.compile takes the model.

    Raises:
        ValueError: `which` is none of these, or the model has fewer fully connected layers; they are listed.
    """
    chosen = _choose(model, which)
    trained = {id(parameter) for _, layer in chosen for parameter in layer.parameters()}
    inside = {id(module) for _, layer in chosen for module in layer.modules()}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in trained)
    for module in model.modules():
        if isinstance(module, _NormBase):
            _freeze_statistics(module, id(module) not in inside)
    num_trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    num_total = sum(parameter.numel() for parameter in model.parameters())
    layers = tuple(name for name, _ in chosen)
    return Trainable(layers=layers, num_trained=num_trained, num_frozen=num_total - num_trained)


def last_layer(model: nn.Module) -> str:
    """The name of the last layer that has weights of its own: the head, whose outputs are logits.

    Raises:
        ValueError: the model has no weights.
    """
    names: list[str] = [
        name for name, module in model.named_modules() if next(module.parameters(recurse=False), None) is not None
    ]
    if not names:
        raise ValueError(f"the model, a {type(model).__name__}, has no weights to train.")
    return names[-1]


def _choose(model: nn.Module, which: str) -> list[tuple[str, nn.Module]]:
    if which == "all":
        return [("", model)]
    if which == "last":
        name = last_layer(model)
        return [(name, model.get_submodule(name))]
    match = _LAST_FC.fullmatch(which)
    if match is None:
        raise ValueError(f'trainable={which!r} is not known. Choose "all", "last-fc:N" with N from 1, or "last".')
    num = int(match[1])
    layers: list[tuple[str, nn.Module]] = [
        (name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)
    ]
    if num > len(layers):
        listed = ", ".join(name for name, _ in layers) or "none"
        raise ValueError(
            f"trainable={which!r} asks for {num} fully connected layers, and the model has {len(layers)}: {listed}. "
            'Lower N, or choose "all".'
        )
    return layers[-num:]


def _freeze_statistics(module: nn.Module, frozen: bool) -> None:
    """Put a method of its own before the class's `train`, which `model.train()` calls; or take it away again."""
    vars(module).pop("train", None)
    if frozen:
        # a partial, unlike a bound method, can be pickled with the module
        module.train = partial(_stay_in_evaluation, module)  # type: ignore[method-assign]
        module.eval()


def _stay_in_evaluation(module: nn.Module, mode: bool = True) -> nn.Module:
    module.training = False
    return module
