"""Messages to all ranks, cut into pieces that travel side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from augpipe.trainer.exchange.deadlines import error_of

MOST_PIECES, PIECE_BYTES = 12, 2**17
"""Gloo takes 1.5 times bytes over bandwidth for a large all-to-all, and 1.1 for a dozen small ones that are under way
together. So on the CPU messages are cut into as many pieces, but none smaller than this."""


@dataclass(frozen=True, eq=False)
class AllToAll:
    """What one all-to-all carries: a part of every message, uint8; kept until it is over."""

    sent: Tensor
    sent_bytes: list[int]
    received: Tensor
    received_bytes: list[int]

    def issue(self, group: ProcessGroup) -> Any:
        """Begin it; returns torch's work."""
        return dist.all_to_all_single(
            self.received, self.sent, self.received_bytes, self.sent_bytes, group=group, async_op=True
        )


class Works:
    """Collectives under way, as one."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self, *timeout: timedelta) -> None:
        """Wait for all of them, as torch's do."""
        for work in self._works:
            work.wait(*timeout)

    def is_completed(self) -> bool:
        """Whether all of them are done."""
        return all(work.is_completed() for work in self._works)

    def exception(self) -> Exception | None:
        """The first error by which one of them has ended."""
        return next((error for work in self._works if (error := error_of(work)) is not None), None)


def num_pieces(largest_bytes: int, device: torch.device) -> int:
    """Into how many pieces messages are cut of which the largest, on any of the ranks, has so many bytes."""
    return max(1, min(MOST_PIECES, largest_bytes // PIECE_BYTES)) if device.type == "cpu" else 1


def cut(messages: Sequence[Tensor], received_bytes: Sequence[int], num: int) -> list[AllToAll]:
    """Pieces of the messages to all ranks, (num_bytes,) uint8, with room for those of messages of `received_bytes`."""
    sent = zip(*(torch.split(one, _sizes(len(one), num)) for one in messages), strict=True)
    received_sizes = zip(*(_sizes(one, num) for one in received_bytes), strict=True)
    return [
        AllToAll(torch.cat(parts), [len(part) for part in parts], parts[0].new_empty(sum(sizes)), list(sizes))
        for parts, sizes in zip(sent, received_sizes, strict=True)
    ]


def join(pieces: Sequence[AllToAll]) -> list[Tensor]:
    """Every rank's message, once all pieces are there."""
    parts = [torch.split(piece.received, piece.received_bytes) for piece in pieces]
    return list(parts[0]) if len(parts) == 1 else [torch.cat(message) for message in zip(*parts, strict=True)]


def _sizes(num_bytes: int, num: int) -> list[int]:
    """As even as they can be."""
    ends = [num_bytes * index // num for index in range(num + 1)]
    return [stop - start for start, stop in pairwise(ends)]
