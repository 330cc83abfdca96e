"""What ranks tell each other besides tensors: JSON and bytes, never a pickle, in which a program could hide."""

import json
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

MAX_BYTES = 2**28
"""The longest text that is taken from other ranks."""
MAX_DEPTH = 100
"""Lists and objects within each other; what the trainer writes has less than 20."""
CHUNK_BYTES = 2**26
"""What travels by way of a GPU's memory, which NCCL alone takes, goes in pieces of this size."""


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text of whatever origin.

    Raises:
        ValueError: it is not JSON, or is nested deeper than `MAX_DEPTH`.
    """
    too_deep = f"its lists and objects are nested deeper than {MAX_DEPTH}"
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(too_deep) from None
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return value
        level = [one for items in level for one in (items.values() if isinstance(items, dict) else items)]
    raise ValueError(too_deep)


def gather_json(value: Any, group: ProcessGroup | None = None) -> list[Any]:
    """Every rank's value, in the order of ranks; tuples arrive as lists, and keys as texts, also this rank's own.

    Raises:
        TypeError: it is nothing that JSON knows.
        ValueError: on every rank, if a rank's text is longer than `MAX_BYTES`.
        RuntimeError: as torch says it, where a rank does not come.
    """
    mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    return [parse_json(text.numpy().tobytes()) for text in gather_bytes(mine, group, most=MAX_BYTES)]


def broadcast_json(value: Any, group: ProcessGroup | None = None) -> Any:
    """What the group's first rank gives, on every rank: there, too, as JSON makes it; see `gather_json`."""
    return gather_json(value if dist.get_rank(group) == 0 else None, group)[0]


def gather_bytes(mine: Tensor, group: ProcessGroup | None = None, *, most: int | None = None) -> list[Tensor]:
    """Every rank's (num_bytes,) uint8, of any length, in the order of ranks; on the CPU, as `mine` must be.

    Raises:
        ValueError: on every rank, if a rank has more bytes than `most`.
    """
    device = _device(group)
    lengths = _gather(torch.tensor([len(mine)], device=device), group).tolist()
    longest = max(lengths)
    if most is not None and longest > most:
        raise ValueError(f"a rank has {longest:,} bytes to tell the others, and {most:,} are the most.")
    found = [torch.empty(longest, dtype=torch.uint8) for _ in lengths]
    for start in range(0, longest, CHUNK_BYTES):
        own = mine[start : start + CHUNK_BYTES]
        sent = torch.zeros(min(CHUNK_BYTES, longest - start), dtype=torch.uint8, device=device)
        sent[: len(own)] = own
        for whole, chunk in zip(found, _gather(sent, group).view(len(lengths), -1), strict=True):
            whole[start : start + len(sent)] = chunk
    return [whole[:length] for whole, length in zip(found, lengths, strict=True)]


def _gather(mine: Tensor, group: ProcessGroup | None) -> Tensor:
    """(world_size * n,) of every rank's (n,)."""
    everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyones, mine, group=group)
    return torch.cat(everyones)


def _device(group: ProcessGroup | None) -> torch.device:
    """Where the group's backend takes tensors from: the CPU if it can."""
    takes_cpu = "cpu" in dist.get_backend_config(group)
    return torch.device("cpu") if takes_cpu else torch.device("cuda", torch.cuda.current_device())
