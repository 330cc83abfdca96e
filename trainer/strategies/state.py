"""Optimizer state by parameter name: the form that any strategy at any world size can take up."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from augpipe.trainer.checkpoint.tree import flatten, restore

FORMAT = 2

NOT_PER_WEIGHT = ("step", "mu_product", "eta", "mu")
"""Entries of torch's optimizers that have one number for a whole parameter, for the doubtful case of a 0-d
parameter."""


def names_of(optimizer: Optimizer, given: Mapping[nn.Parameter, str]) -> dict[nn.Parameter, str]:
    """The name of every parameter of the optimizer, which are some or all of the given ones."""
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"optimizer makes a {type(optimizer).__name__}, and must return a torch.optim.Optimizer.")
    names = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in given:
                raise ValueError(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not among those that it "
                    "was given: build it from them."
                )
            names[parameter] = given[parameter]
    return names


def named_groups(optimizer: Optimizer, names: Mapping[nn.Parameter, str]) -> list[list[str]]:
    """Every group's parameters by name."""
    return [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups]


def group_state(optimizer: Optimizer, groups: list[list[str]]) -> list[dict[str, Any]]:
    """Every group's options, with the names of its parameters."""
    return [
        {key: value for key, value in group.items() if key not in ("params", "param_names")} | {"params": names}
        for group, names in zip(optimizer.param_groups, groups, strict=True)
    ]


def full_state(optimizer: Optimizer, names: Mapping[nn.Parameter, str]) -> dict[str, Any]:
    """State of an optimizer that holds whole parameters; tensors have their parameter's shape, and are not copied."""
    return {
        "format": FORMAT,
        "kind": "full",
        "groups": group_state(optimizer, named_groups(optimizer, names)),
        "state": {name: dict(optimizer.state[p]) for p, name in names.items() if p in optimizer.state},
    }


def gather_states(mine: Any, gather: Callable[[Tensor], list[Tensor]]) -> list[Any]:
    """Every rank's state of dicts, lists, tuples, numbers, texts and tensors; on the CPU, and as JSON and plain bytes.

    Args:
        mine: this rank's.
        gather: gives every rank's (num_bytes,) uint8, in the order of ranks.
    """
    text, tensors = flatten(mine)
    about = {place: [str(tensor.dtype).removeprefix("torch."), *tensor.shape] for place, tensor in tensors.items()}
    header = json.dumps([text, about]).encode()
    first = torch.frombuffer(bytearray(len(header).to_bytes(8, "little") + header), dtype=torch.uint8)
    packed = torch.cat([first, *(tensor.reshape(-1).view(torch.uint8) for tensor in tensors.values())])
    return [_unpacked(one) for one in gather(packed)]


def _unpacked(packed: Tensor) -> Any:
    """The inverse of what `gather_states` packs."""
    start = 8 + int.from_bytes(packed[:8].numpy().tobytes(), "little")
    text, about = json.loads(packed[8:start].numpy().tobytes())
    tensors = {}
    for place, (name, *shape) in about.items():
        dtype: torch.dtype = getattr(torch, name)
        stop = start + math.prod(shape) * dtype.itemsize
        tensors[place] = packed[start:stop].clone().view(dtype).view(shape)
        start = stop
    return restore(json.loads(text), tensors.__getitem__)


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
            f"kind={kind!r}. Shards of another world size become a full state by "
            "augpipe.trainer.strategies.merge(shards)."
        )


def load_full_state(optimizer: Optimizer, names: Mapping[nn.Parameter, str], state: Mapping[str, Any]) -> None:
    """The inverse of `full_state`; tensors are copied to their parameter's device."""
    check(state, "full")
    load_groups(optimizer, named_groups(optimizer, names), state)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            saved = state["state"].get(names[parameter])
            if saved is None:
                optimizer.state.pop(parameter, None)
                continue
            optimizer.state[parameter] = {key: copied(value, parameter, key, group) for key, value in saved.items()}


def per_weight(value: Any, shape: torch.Size, key: str) -> bool:
    """Whether an entry of an optimizer's state has a number for each weight."""
    return isinstance(value, Tensor) and value.shape == shape and not (value.ndim == 0 and key in NOT_PER_WEIGHT)


def copied(value: Any, parameter: nn.Parameter, key: str, group: Mapping[str, Any]) -> Any:
    """A copy of a state's entry; what has a number for each weight follows the weight to its device.

    So does everything in a param group that is fused or capturable: torch counts its steps there, as
    `Optimizer.load_state_dict` knows.
    """
    if not isinstance(value, Tensor):
        return value
    all_there = group.get("fused") or group.get("capturable")
    device = parameter.device if all_there or per_weight(value, parameter.shape, key) else value.device
    return value.detach().to(device, copy=True)
