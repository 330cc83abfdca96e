"""Which rank a process is, where its user does not say so."""

import logging
import os
import sys
from typing import Any, NamedTuple

from augpipe.validation.arguments import as_count, as_whole
from augpipe.validation.plural import count


class Ranks(NamedTuple):
    """A process's place among those that share the data."""

    rank: int
    world_size: int
    is_found: bool = False
    """Whether it was looked for, as nobody said it."""
    told: tuple[int, str] | None = None
    """What is worth a line in the log, and its level."""


def ranks_of(rank: Any, world_size: Any) -> Ranks:
    """What a loader was given, or, where both are None, what `_found` finds.

    Raises:
        ValueError: a number is out of range, or given alone; or the environment makes no sense.
    """
    if rank is None and world_size is None:
        return _found()
    size = as_count("world_size", 1 if world_size is None else world_size)
    if rank is None and size > 1:
        raise ValueError(
            f"world_size={size} is given without rank, so that each process would take the same share. Give both, or "
            "neither: the rank is then that of the process group or of torchrun."
        )
    number = as_whole("rank", 0 if rank is None else rank)
    if not 0 <= number < size:
        remedy = " Give world_size too, the number of processes." if size == 1 else ""
        raise ValueError(f"rank={number} must lie in 0..world_size - 1, which is 0..{size - 1}.{remedy}")
    return Ranks(number, size)


def check_still(ranks: Ranks) -> None:
    """Raise ValueError where a process group says otherwise than what was found before there was one."""
    now = _of_the_group() if ranks.is_found else None
    if now is not None and now != (ranks.rank, ranks.world_size):
        raise ValueError(
            f"this loader was made before the process group and gives samples as rank {ranks.rank} of "
            f"{ranks.world_size}, and the group says rank {now[0]} of {now[1]}. Make the loader after "
            "init_process_group, or give it rank and world_size."
        )


def empty_batch_of(ranks: Ranks, num_left: int) -> str:
    """What a rank is told that gets none of an epoch's last samples."""
    return (
        f"an epoch's last batch is empty for rank {ranks.rank}: all {ranks.world_size} ranks share "
        f"{count(num_left, 'sample')} there. The mean of no losses is NaN; drop_last=True leaves that batch out."
    )


def _found() -> Ranks:
    """The initialised process group's, or else torchrun's environment's, or else the only rank there is."""
    of_group = _of_the_group()
    if of_group is not None:
        return _with_a_line(*of_group, "the process group says")
    rank, world_size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world_size in (None, "1"):
        return Ranks(0, 1, True)
    if rank is None or world_size is None:
        there, lacking = ("RANK", "WORLD_SIZE") if world_size is None else ("WORLD_SIZE", "RANK")
        line = (
            f"{there}={os.environ[there]} of the environment is ignored, as there is no {lacking}: this loader gives "
            "all samples. Give rank and world_size where processes are to share them."
        )
        return Ranks(0, 1, True, (logging.WARNING, line))
    if not (rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size)):
        raise ValueError(
            f"RANK={rank!r} and WORLD_SIZE={world_size!r} of the environment must be whole numbers, RANK from 0 to "
            "WORLD_SIZE - 1. Give rank and world_size, or unset both."
        )
    return _with_a_line(int(rank), int(world_size), "RANK and WORLD_SIZE of the environment say")


def _with_a_line(rank: int, world_size: int, who_says: str) -> Ranks:
    line = (
        f"rank {rank} of {world_size}, as {who_says}: each rank is given its share of the samples. "
        "Loader(rank=0, world_size=1) gives a process all of them."
    )
    # a line that is seen where nobody has set up logging, and once, not once a rank
    level = logging.WARNING if rank == 0 else logging.INFO
    return Ranks(rank, world_size, True, (level, line) if world_size > 1 else None)


def _of_the_group() -> tuple[int, int] | None:
    dist = sys.modules.get("torch.distributed")  # who has a process group has imported it
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()
