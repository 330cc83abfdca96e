"""The ranks of an exchange: their process group, and the handshake in which they compare what they are about to do."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup

from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.exchange.objects import gather_json


def world_size_of(group: ProcessGroup | None) -> int:
    """Ranks in `group`, or in the default group; 1 where torch.distributed is not in use."""
    if not dist.is_available() or not dist.is_initialized():
        return 1
    return dist.get_world_size(group)


_of_some: list[ProcessGroup] = []
"""The groups of some of the ranks that were made here."""


def own_group(
    like: ProcessGroup | None, *, timeout_s: float, waits_itself: bool = False, backend: str | None = None
) -> ProcessGroup:
    """A new group of the same ranks, and the same backend or `backend`: its collectives cannot mix with others'.

    Made by all ranks of the group, and no others, at the same point. Of some of the ranks only, torch wants each of
    them to be in the same number of groups: it names the new one by that.

    Where a collective takes longer than the group's timeout, Gloo raises an error, but under NCCL torch's watchdog ends
    the whole process. So there a group is given more time than `timeout_s` where whoever waits in it gives up by then
    (`waits_itself`; see `ExchangeThreads`).

    Raises:
        SyncError: a rank did not come in time.
    """
    ranks = dist.get_process_group_ranks(like if like is not None else dist.group.WORLD)
    everyone = len(ranks) == dist.get_world_size()
    backend = backend or dist.get_backend(like)
    longer_s = timeout_s + 60 if waits_itself and "nccl" in backend else 0
    try:
        group: ProcessGroup = dist.new_group(
            ranks,
            timeout=timedelta(seconds=timeout_s + longer_s),
            backend=backend,
            use_local_synchronization=not everyone,
        )
    except RuntimeError as error:
        raise SyncError(
            f"handshake: waited for ranks {', '.join(map(str, ranks))}, at most {timeout_s:g} s, and got: {error}. "
            "A rank has died or has not reached this point."
        ) from error
    if not everyone:
        _of_some.append(group)
    return group


def destroy_group(group: ProcessGroup) -> None:
    """Destroy a group made by `own_group`, unless another one could get its name.

    torch names a group of some of the ranks after them and the number of groups that there are. Once it is destroyed
    the next one of the same ranks would meet under the old one's keys, and fail to connect; and once any other group is
    destroyed, the next one could be called as one that there is. Where there are such groups, all live until the
    process group of all ranks is destroyed.
    """
    if not _of_some and dist.is_initialized() and dist.get_world_size(group) == dist.get_world_size():
        dist.destroy_process_group(group)


def describe(names_and_parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, str]:
    """Each parameter's shape, dtype and memory order, as a text."""
    return {
        name: f"{tuple(parameter.shape)} {str(parameter.dtype).removeprefix('torch.')} strides {parameter.stride()}"
        + ("" if parameter.requires_grad else " frozen")
        for name, parameter in names_and_parameters
    }


def describe_buffers(model: nn.Module) -> dict[str, str]:
    """Each buffer's shape and dtype, as a text."""
    return {
        f"buffer {name}": f"{tuple(buffer.shape)} {str(buffer.dtype).removeprefix('torch.')}"
        for name, buffer in model.named_buffers()
    }


def handshake(settings: dict[str, Any], parameters: dict[str, str], group: ProcessGroup, *, timeout_s: float) -> None:
    """Compare `settings` and `parameters` of all ranks.

    Raises:
        SyncError: on every rank, naming the first thing that differs and the ranks it differs on; or on this one, when
            a rank did not come to the handshake in time.
    """
    world_size = dist.get_world_size(group)
    try:
        everyones = gather_json([settings, list(parameters.items())], group)
    except RuntimeError as error:
        raise SyncError(
            f"handshake: waited for the settings of all {world_size} ranks, at most {timeout_s:g} s, and got: {error}. "
            "A rank has died or has not reached this point."
        ) from error
    problem = difference(everyones)
    if problem:
        raise SyncError(f"ranks differ: {problem}. Give all ranks the same configuration.")


def difference(everyones: list[Any]) -> str:
    """What of (settings, [(name, what), ...]) differs first from rank 0's, as a text; empty where nothing does."""
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
