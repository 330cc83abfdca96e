"""The optimizer on slices: its parameters are the pieces that a rank owns, and so its state is a shard.

That asks for one that treats each weight by itself: `check_elementwise` tells.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from augpipe.trainer.strategies.flat_buffers import Plan, in_memory_order
from augpipe.trainer.strategies.state import FORMAT, check, copied, group_state, load_groups, per_weight

TRIAL_STEPS = 3
TRIAL_SHAPE = (4, 6)


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnedSlice:
    """Elements `start` to `stop` of a parameter, in the order of its memory, that this rank updates."""

    index: int
    """The parameter's, in the plan."""
    start: int
    stop: int
    offset: int
    """Where it lies in its bucket."""
    weight: nn.Parameter
    """(stop - start,) what the optimizer updates: a view of the parameter, or a float32 copy where updates are
    encoded."""

    @property
    def num(self) -> int:
        """Elements."""
        return self.stop - self.start

    @property
    def range(self) -> tuple[int, int]:
        """What stands for it in a shard."""
        return self.start, self.stop


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


def own_slices(optimizer: Optimizer, plan: Plan, owned: Sequence[OwnedSlice]) -> None:
    """Put the owned pieces in the place of the parameters; groups keep their options, state is sliced along."""
    pieces: dict[nn.Parameter, list[OwnedSlice]] = {parameter: [] for parameter in plan.parameters}
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
    optimizer: Optimizer,
    plan: Plan,
    owned: Sequence[OwnedSlice],
    groups: list[list[str]],
    extra: Mapping[OwnedSlice, Tensor],
) -> dict[str, Any]:
    """This rank's shard: state by parameter and range; `extra` are residuals of encoded updates."""
    state: dict[str, dict[tuple[int, int], Any]] = {}
    residuals: dict[str, dict[tuple[int, int], Tensor]] = {}
    for piece in owned:
        name = plan.names[piece.index]
        if piece.weight in optimizer.state:
            state.setdefault(name, {})[piece.range] = dict(optimizer.state[piece.weight])
        if piece in extra:
            residuals.setdefault(name, {})[piece.range] = extra[piece]
    return {
        "format": FORMAT,
        "kind": "shard",
        "groups": group_state(optimizer, groups),
        "shapes": {name: (tuple(p.shape), p.stride()) for name, p in zip(plan.names, plan.parameters, strict=True)},
        "state": state,
        "update_residuals": residuals,
    }


def merge(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The full optimizer state from the states of all ranks of a run, in any order; for any strategy and world size.

    Residuals of gradients belong to ranks and are left out; those of encoded updates are kept. A full state is taken as
    it is; of a split network, each model rank's shards are put together.

    Raises:
        ValueError: a part of a parameter's state is in none of the shards.
    """
    if not shards:
        raise ValueError("merge() got no shards: give it the state_dict of every rank.")
    first = shards[0]
    if first.get("kind") == "full":
        return {key: first[key] for key in ("format", "kind", "groups", "state")}
    if first.get("kind") == "split":
        model_ranks = sorted({rank for shard in shards for rank in shard["shards"]})
        return {
            **first,
            "rest": None if first["rest"] is None else merge([shard["rest"] for shard in shards]),
            "shards": {
                rank: merge([shard["shards"][rank] for shard in shards if rank in shard["shards"]])
                for rank in model_ranks
            },
        }
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


def _joined(parts: Mapping[tuple[int, int], Any], name: str, shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """One tensor of the parameter's shape from its ranges; what is not per weight is the same in all."""
    some = next(iter(parts.values()))
    if not isinstance(some, Tensor) or some.ndim == 0:
        return some
    ranges = sorted(parts)
    num = torch.Size(shape).numel()
    if [start for start, _ in ranges] != [0, *(stop for _, stop in ranges[:-1])] or ranges[-1][1] != num:
        raise ValueError(
            f"the shards have elements {_told(ranges)} of {name}, which has {num}: give merge() the state_dict of "
            "every rank of one run."
        )
    return torch.cat([parts[one] for one in ranges]).as_strided(shape, stride).contiguous()


def _told(ranges: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{start} to {stop}" for start, stop in ranges)


def load_shard(
    optimizer: Optimizer, plan: Plan, owned: Sequence[OwnedSlice], groups: list[list[str]], state: Mapping[str, Any]
) -> dict[OwnedSlice, Tensor]:
    """Take up a shard of the same slices or a full state; returns the residuals of encoded updates."""
    load_groups(optimizer, groups, state)
    full = state["kind"] == "full"
    group_of = {weight: group for group in optimizer.param_groups for weight in group["params"]}
    residuals: dict[OwnedSlice, Tensor] = {}
    for piece in owned:
        name, parameter = plan.names[piece.index], plan.parameters[piece.index]
        saved = state["state"].get(name)
        kept = state.get("update_residuals", {}).get(name)
        if full:
            values = None if saved is None else _sliced(saved, parameter, piece.start, piece.stop)
            if kept is not None:
                residuals[piece] = _sliced({"": kept}, parameter, piece.start, piece.stop)[""]
        else:
            if saved is not None and piece.range not in saved:
                raise ValueError(
                    f"the shard has elements {_told(saved)} of {name}, this rank owns {_told([piece.range])}: it is of "
                    f"another rank, world size or bucket size. Use merge(all shards) or full_optimizer_state()."
                )
            values = None if saved is None else saved[piece.range]
            if kept is not None:
                residuals[piece] = kept[piece.range].clone()
        optimizer.state.pop(piece.weight, None)
        if values is not None:
            group = group_of[piece.weight]
            optimizer.state[piece.weight] = {
                key: copied(value, piece.weight, key, group) for key, value in values.items()
            }
    return residuals


def check_elementwise(optimizer: Optimizer) -> None:
    """Refuse optimizers whose update of a weight depends on others, such as LBFGS, LARS, Muon or Adafactor.

    Found out by trying: a small tensor is updated as a whole, and in two halves by two optimizers; results must agree.
    """
    for group in optimizer.param_groups:
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(TRIAL_SHAPE, generator=generator)
        gradients = torch.randn((TRIAL_STEPS, *TRIAL_SHAPE), generator=generator)
        try:
            whole = _updated(optimizer, group, weights, gradients)
            halves = [
                _updated(optimizer, group, weights[rows].reshape(-1), gradients[:, rows].reshape(TRIAL_STEPS, -1))
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
