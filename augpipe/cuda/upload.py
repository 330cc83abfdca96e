"""A batch's tables on their way to the device: one asynchronous copy, from pinned memory that is used again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from augpipe.cuda.failures import allocate
from augpipe.cuda.streams import Streams

ALIGNMENT_BYTES = 128
"""Each table starts on a cache line of the device."""

MIN_SLOT_BYTES = 1 << 16
"""Room for the tables of a batch of a few hundred, so that a ring does not grow in steps."""


class UploadSlot:
    """Memory of one size on both sides; whoever took it owns it until the device has passed its last use."""

    def __init__(self, num_bytes: int, streams: Streams) -> None:
        self.num_bytes = num_bytes
        self._pinned = streams.pinned(num_bytes)
        self._host: npt.NDArray[np.uint8] = self._pinned.numpy()
        self._device = allocate((num_bytes,), torch.uint8, streams.device, purpose="a batch's tables")

    def upload(self, tables: Sequence[npt.NDArray[Any]]) -> list[int]:
        """Copy the tables by one copy on the current stream; returns their device addresses."""
        first = self._device.data_ptr()
        addresses, end = [], 0
        for table in tables:
            addresses.append(first + end)
            self._host[end : end + table.nbytes] = np.ascontiguousarray(table).view(np.uint8).reshape(-1)
            end += aligned(table.nbytes)
        self._device[:end].copy_(self._pinned[:end], non_blocking=True)
        return addresses


class UploadRing:
    """Slots that are lent and given back; a new one is made only where all are lent, or too small."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._idle: list[UploadSlot] = []

    def take(self, tables: Sequence[npt.NDArray[Any]]) -> UploadSlot:
        """A slot with room for the tables; give it back when the device has passed its last use."""
        num_bytes = sum(aligned(table.nbytes) for table in tables)
        if self._idle:
            slot = self._idle.pop(0)
            if slot.num_bytes >= num_bytes:
                return slot
        return UploadSlot(max(MIN_SLOT_BYTES, 1 << (num_bytes - 1).bit_length()), self._streams)

    def give_back(self, slot: UploadSlot) -> None:
        """Lend the slot again from now on."""
        self._idle.append(slot)


def aligned(num_bytes: int) -> int:
    """`num_bytes` rounded up to whole cache lines."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
