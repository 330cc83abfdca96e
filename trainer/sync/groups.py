"""Process groups of a strategy's own, with a timeout of its own."""

from datetime import timedelta

import torch.distributed as dist
from torch.distributed import ProcessGroup

from augpipe.trainer.sync.errors import SyncError


def world_size_of(group: ProcessGroup | None) -> int:
    """Ranks in `group`, or in the default group; 1 where torch.distributed is not in use."""
    if not dist.is_available() or not dist.is_initialized():
        return 1
    return dist.get_world_size(group)


def own_group(like: ProcessGroup | None, *, timeout_s: float) -> ProcessGroup:
    """A new group of the same ranks and backend: collectives in it cannot mix with those of others.

    Made by all ranks of the group, and no others, at the same point. Of some of the ranks only, torch wants each of
    them to be in the same number of groups: it names the new one by that.

    Raises:
        SyncError: a rank did not come in time.
    """
    ranks = dist.get_process_group_ranks(like if like is not None else dist.group.WORLD)
    everyone = len(ranks) == dist.get_world_size()
    try:
        group: ProcessGroup = dist.new_group(
            ranks,
            timeout=timedelta(seconds=timeout_s),
            backend=dist.get_backend(like),
            use_local_synchronization=not everyone,
        )
    except RuntimeError as error:
        raise SyncError(
            f"handshake: waited for ranks {', '.join(map(str, ranks))}, at most {timeout_s:g} s, and got: {error}. "
            "A rank has died or has not reached this point."
        ) from error
    return group


def let_go(group: ProcessGroup) -> None:
    """Destroy a group made by `own_group`, unless another one could get its name.

    torch names a group of some of the ranks after them: once it is destroyed the next one of the same ranks would meet
    under the old one's keys, and fail to connect. Such groups live until the process group of all ranks is destroyed.
    """
    if dist.is_initialized() and dist.get_world_size(group) == dist.get_world_size():
        dist.destroy_process_group(group)
