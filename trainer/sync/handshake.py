"""Before the first exchange the ranks compare what they are about to do: a mismatch is an error, never a hang."""

from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup

from augpipe.trainer.sync.errors import SyncError


def describe(names_and_parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, str]:
    """Each parameter's shape, dtype and memory order, in words."""
    return {
        name: f"{tuple(parameter.shape)} {str(parameter.dtype).removeprefix('torch.')} strides {parameter.stride()}"
        + ("" if parameter.requires_grad else " frozen")
        for name, parameter in names_and_parameters
    }


def handshake(settings: dict[str, Any], parameters: dict[str, str], group: ProcessGroup, *, timeout_s: float) -> None:
    """Compare `settings` and `parameters` of all ranks.

    Raises:
        SyncError: on every rank, naming the first thing that differs and the ranks it differs on; or on this one, when
            a rank did not come to the handshake in time.
    """
    world_size = dist.get_world_size(group)
    everyones: list[Any] = [None] * world_size
    try:
        dist.all_gather_object(everyones, (settings, list(parameters.items())), group=group)
    except RuntimeError as error:
        raise SyncError(
            f"handshake: waited for the settings of all {world_size} ranks, at most {timeout_s:g} s, and got: {error}. "
            "A rank has died or has not reached this point."
        ) from error
    problem = difference(everyones)
    if problem:
        raise SyncError(f"ranks differ: {problem}. Give all ranks the same configuration.")


def difference(everyones: list[tuple[dict[str, Any], list[tuple[str, str]]]]) -> str:
    """The first difference from rank 0, in words; empty where there is none."""
    settings, parameters = everyones[0]
    for rank, (their_settings, their_parameters) in enumerate(everyones):
        for key in {**settings, **their_settings}:
            ours, theirs = settings.get(key), their_settings.get(key)
            if ours != theirs:
                return f"{key} is {ours!r} on rank 0 and {theirs!r} on rank {rank}"
        if len(parameters) != len(their_parameters):
            names = {name for name, _ in parameters} ^ {name for name, _ in their_parameters}
            some = f", among them {min(names)}" if names else ""
            return (
                f"the model has {len(parameters)} parameters on rank 0 and {len(their_parameters)} on rank {rank}{some}"
            )
        for (name, what), (their_name, their_what) in zip(parameters, their_parameters, strict=True):
            if (name, what) != (their_name, their_what):
                return f"parameter {name} {what} on rank 0 is {their_name} {their_what} on rank {rank}"
    return ""
