"""Codecs of CUDA tensors: the tables on each device, scratch from torch's allocator, the current stream."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.trainer.codecs.arrays import Memory

_tables: dict[tuple[str, int], Any] = {}
_lock = threading.Lock()


@contextmanager
def current_stream(memory: Memory) -> Iterator[int]:
    """Make the memory's device the current one; gives its current stream as a number."""
    torch = sys.modules["torch"]
    with torch.cuda.device(memory.device):
        yield torch.cuda.current_stream().cuda_stream


def on_device(name: str, table: npt.NDArray[np.generic], memory: Memory) -> int:
    """Address of a copy of `table` on the memory's device, made once for each name and device."""
    torch = sys.modules["torch"]
    assert memory.device is not None
    key = name, memory.device
    with _lock:
        if key not in _tables:
            copied = torch.from_numpy(table.copy()).to(memory.owner.device)
            torch.cuda.current_stream().synchronize()  # other streams read it too
            _tables[key] = copied
        return int(_tables[key].data_ptr())


def zeros(memory: Memory, num_bytes: int) -> Any:
    """Scratch on the memory's device: int32 zeros, of the current stream."""
    return memory.owner.new_zeros(-(-num_bytes // 4), dtype=sys.modules["torch"].int32)


def check_alignment(payload: Memory, item_bytes: int) -> None:
    """`ValueError` where a payload starts between two items: a GPU cannot write those."""
    if payload.address % item_bytes:
        raise ValueError(
            f"payload starts at address {payload.address:#x}: on a CUDA device it must be a multiple of {item_bytes}. "
            "Start each slice of a larger payload at such a place."
        )
