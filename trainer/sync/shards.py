"""The optimizer on slices: its parameters are the pieces that a rank owns, and so its state is a shard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from augpipe.trainer.sync.plan import Plan, in_memory_order
from augpipe.trainer.sync.state import FORMAT, check, load_groups

NOT_PER_WEIGHT = ("step", "mu_product", "eta", "mu")
"""Entries of torch's optimizers that have one number for a whole parameter, for the doubtful case of a 0-d
parameter."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Owned:
    """Elements `start` to `stop` of a parameter, in the order of its memory, that this rank updates."""

    index: int
    """Of the parameter in the plan."""
    start: int
    stop: int
    bucket: int
    offset: int
    """In the bucket."""
    weight: nn.Parameter
    """(stop - start,) what the optimizer updates: a view of the parameter, or a float32 copy where updates are
    encoded."""

    @property
    def key(self) -> str:
        """As it stands in a shard."""
        return f"{self.start}:{self.stop}"


def per_weight(value: Any, shape: torch.Size, key: str) -> bool:
    """Whether an entry of an optimizer's state has a number for each weight."""
    return isinstance(value, Tensor) and value.shape == shape and not (value.ndim == 0 and key in NOT_PER_WEIGHT)


def _sliced(values: Mapping[str, Any], parameter: Tensor, start: int, stop: int) -> dict[str, Any]:
    """A slice's part of a whole parameter's state."""

    def part(key: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if not per_weight(value, parameter.shape, key):
            return value.detach().clone()
        dense = torch.empty_like(parameter, dtype=value.dtype, memory_format=torch.preserve_format)
        dense.copy_(value)
        return in_memory_order(dense)[start:stop].clone()

    return {key: part(key, value) for key, value in values.items()}


def own_slices(optimizer: Optimizer, plan: Plan, owned: Sequence[Owned]) -> None:
    """Put the owned pieces in the place of the parameters; groups keep their options, state is sliced along."""
    pieces: dict[nn.Parameter, list[Owned]] = {parameter: [] for parameter in plan.parameters}
    for piece in owned:
        pieces[plan.parameters[piece.index]].append(piece)
    for group in optimizer.param_groups:
        group.pop("param_names", None)
        mine = []
        for parameter in group["params"]:
            state = optimizer.state.pop(parameter, None)
            for piece in pieces[parameter]:
                mine.append(piece.weight)
                if state:
                    optimizer.state[piece.weight] = _sliced(state, parameter, piece.start, piece.stop)
        group["params"] = mine


def shard_state(
    optimizer: Optimizer, plan: Plan, owned: Sequence[Owned], groups: list[list[str]], extra: Mapping[Owned, Tensor]
) -> dict[str, Any]:
    """This rank's shard: state by parameter and range; `extra` are residuals of encoded updates."""
    state: dict[str, dict[str, Any]] = {}
    residuals: dict[str, dict[str, Tensor]] = {}
    for piece in owned:
        name = plan.names[piece.index]
        if piece.weight in optimizer.state:
            state.setdefault(name, {})[piece.key] = dict(optimizer.state[piece.weight])
        if piece in extra:
            residuals.setdefault(name, {})[piece.key] = extra[piece]
    return {
        "format": FORMAT,
        "kind": "shard",
        "groups": [
            {key: value for key, value in group.items() if key != "params"} | {"params": names}
            for group, names in zip(optimizer.param_groups, groups, strict=True)
        ],
        "shapes": {name: (tuple(p.shape), p.stride()) for name, p in zip(plan.names, plan.parameters, strict=True)},
        "state": state,
        "update_residuals": residuals,
    }


def merge(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The full optimizer state from the states of all ranks of a run, in any order; for any strategy and world size.

    Residuals of gradients belong to ranks and are left out; those of encoded updates are kept. A full state is taken as
    it is.

    Raises:
        ValueError: a part of a parameter's state is in none of the shards.
    """
    if not shards:
        raise ValueError("merge() got no shards: give it the state_dict of every rank.")
    first = shards[0]
    if first.get("kind") == "full":
        return {key: first[key] for key in ("format", "kind", "groups", "state")}
    for shard in shards:
        check(shard, "shard")
    state: dict[str, dict[str, Any]] = {}
    residuals: dict[str, Tensor] = {}
    for name, (shape, stride) in first["shapes"].items():
        parts = {key: value for shard in shards for key, value in shard["state"].get(name, {}).items()}
        if parts:
            keys = next(iter(parts.values()))
            state[name] = {
                entry: _joined({where: part[entry] for where, part in parts.items()}, name, shape, stride)
                for entry in keys
            }
        kept = {key: value for shard in shards for key, value in shard["update_residuals"].get(name, {}).items()}
        if kept:
            residuals[name] = _joined(kept, name, shape, stride)
    return {
        "format": FORMAT,
        "kind": "full",
        "groups": first["groups"],
        "state": state,
        "update_residuals": residuals,
    }


def _joined(parts: Mapping[str, Any], name: str, shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """One tensor of the parameter's shape from its ranges; what is not per weight is the same in all."""
    some = next(iter(parts.values()))
    if not isinstance(some, Tensor) or some.ndim == 0:
        return some
    ranges = sorted((int(key.split(":")[0]), int(key.split(":")[1]), value) for key, value in parts.items())
    num = torch.Size(shape).numel()
    if [start for start, _, _ in ranges] != [0, *(stop for _, stop, _ in ranges[:-1])] or ranges[-1][1] != num:
        raise ValueError(
            f"the shards have elements {', '.join(f'{start} to {stop}' for start, stop, _ in ranges)} of {name}, "
            f"which has "
            f"{num}: give merge() the state_dict of every rank of one run."
        )
    return torch.cat([value for _, _, value in ranges]).as_strided(shape, stride).contiguous()


def load_shard(
    optimizer: Optimizer, plan: Plan, owned: Sequence[Owned], groups: list[list[str]], state: Mapping[str, Any]
) -> dict[Owned, Tensor]:
    """Take up a shard of the same slices or a full state; returns the residuals of encoded updates."""
    load_groups(optimizer, groups, state)
    full = state["kind"] == "full"
    residuals: dict[Owned, Tensor] = {}
    for piece in owned:
        name, parameter = plan.names[piece.index], plan.parameters[piece.index]
        saved = state["state"].get(name)
        kept = state.get("update_residuals", {}).get(name)
        if full:
            values = None if saved is None else _sliced(saved, parameter, piece.start, piece.stop)
            if kept is not None:
                residuals[piece] = _sliced({"": kept}, parameter, piece.start, piece.stop)[""]
        else:
            if saved is not None and piece.key not in saved:
                raise ValueError(
                    f"the shard has elements {', '.join(saved)} of {name}, this rank owns {piece.key}: it is of "
                    f"another rank, world size or bucket size. Use merge(all shards) or full_optimizer_state()."
                )
            values = None if saved is None else _copied(saved[piece.key])
            if kept is not None:
                residuals[piece] = kept[piece.key].clone()
        optimizer.state.pop(piece.weight, None)
        if values is not None:
            optimizer.state[piece.weight] = {key: _placed(value, piece.weight, key) for key, value in values.items()}
    return residuals


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.detach().clone() if isinstance(value, Tensor) else value for key, value in values.items()}


def _placed(value: Any, weight: nn.Parameter, key: str) -> Any:
    return value.to(weight.device) if per_weight(value, weight.shape, key) else value
