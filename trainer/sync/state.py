"""Optimizer state by parameter name: the form that any strategy at any world size can take up."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

FORMAT = 1


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that a strategy is for; a shared one counts once."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError("the model has no parameter with requires_grad=True: nothing to train. Unfreeze some.")
    return parameters


def names_of(model: nn.Module, optimizer: Optimizer) -> dict[nn.Parameter, str]:
    """The name in `model` of every parameter of the optimizer."""
    known = {parameter: name for name, parameter in model.named_parameters()}
    names = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in known:
                raise ValueError(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not the model's: "
                    "build it from the parameters that it is given."
                )
            names[parameter] = known[parameter]
    return names


def hyperparameters(optimizer: Optimizer, names: Mapping[nn.Parameter, str]) -> list[dict[str, Any]]:
    """Every group's options, its parameters by name."""
    return [
        {key: value for key, value in group.items() if key not in ("params", "param_names")}
        | {"params": [names[parameter] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]


def full_state(optimizer: Optimizer, names: Mapping[nn.Parameter, str]) -> dict[str, Any]:
    """State of an optimizer that holds whole parameters; tensors have their parameter's shape, and are not copied."""
    return {
        "format": FORMAT,
        "kind": "full",
        "groups": hyperparameters(optimizer, names),
        "state": {name: dict(optimizer.state[p]) for p, name in names.items() if p in optimizer.state},
    }


def load_groups(optimizer: Optimizer, ours: list[list[str]], state: Mapping[str, Any]) -> None:
    """Take up the groups' options; the groups must be of the same parameters as `ours`, by name."""
    theirs = [list(group["params"]) for group in state["groups"]]
    if ours != theirs:
        raise ValueError(
            f"the state is of param groups of {[len(group) for group in theirs]} parameters, the optimizer's are of "
            f"{[len(group) for group in ours]}, or of others: build the optimizer as it was when saved."
        )
    for group, saved in zip(optimizer.param_groups, state["groups"], strict=True):
        # a newer torch may know more options than an older one, or the other way round, but not both
        unknown, lacking = (set(saved) - set(group), set(group) - set(saved) - {"param_names"})
        if unknown and lacking:
            raise ValueError(
                f"the state is of an optimizer with the options {', '.join(sorted(unknown))}, and this is "
                f"{type(optimizer).__name__}, which has {', '.join(sorted(lacking))}: use the one "
                "that it was saved with."
            )
    for group, saved in zip(optimizer.param_groups, state["groups"], strict=True):
        group.update({key: value for key, value in saved.items() if key != "params"})


def check(state: Mapping[str, Any], kind: str) -> None:
    """Refuse what is not a state of this kind."""
    if state.get("format") != FORMAT or state.get("kind") != kind:
        raise ValueError(
            f"the state has format={state.get('format')!r}, kind={state.get('kind')!r}; expected format={FORMAT}, "
            f"kind={kind!r}. Shards of another world size become a full state by augpipe.trainer.sync.merge(shards)."
        )


def load_full_state(optimizer: Optimizer, names: Mapping[nn.Parameter, str], state: Mapping[str, Any]) -> None:
    """The inverse of `full_state`; tensors are copied to their parameter's device."""
    check(state, "full")
    load_groups(
        optimizer, [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups], state
    )
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            saved = state["state"].get(names[parameter])
            if saved is None:
                optimizer.state.pop(parameter, None)
                continue
            optimizer.state[parameter] = {key: copied(value, parameter, key) for key, value in saved.items()}


def copied(value: Any, parameter: nn.Parameter, key: str) -> Any:
    """A copy of a state's entry; only what has an element for each weight follows the weight to its device."""
    if not isinstance(value, torch.Tensor):
        return value
    follows = value.shape == parameter.shape and key != "step"
    return value.detach().clone().to(parameter.device) if follows else value.detach().clone()
