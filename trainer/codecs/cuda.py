"""Codecs of CUDA tensors: launches on the current stream, tables on each device, scratch from torch's allocator."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.codec.cuda import launch as codec_launch
from augpipe.gpu_ops.codec.cuda.launch import Launch, cut_slices
from augpipe.trainer.codecs.arrays import Memory, Slice, flat

NUM_TABLES = 1024
"""Tables of slices kept on devices, of 40 bytes a slice; a training run has a few for each bucket."""

_tables: dict[tuple[str, int], Any] = {}
_lock = threading.Lock()


@contextmanager
def current_stream(memory: Memory) -> Iterator[int]:
    """Make the memory's device the current one; gives its current stream as a number."""
    torch = sys.modules["torch"]
    with torch.cuda.device(memory.device):
        yield torch.cuda.current_stream().cuda_stream


@contextmanager
def launch(
    slices: Sequence[Slice], block: int | None, *, scale_bytes: int = 0, header_bytes: int = 0
) -> Iterator[Launch]:
    """What kernels need to know of slices on one device, which is the current one meanwhile; see `cut_slices`."""
    runs = tuple(
        (one.values.address, tuple(payload.address for payload in one.payloads), one.values.num) for one in slices
    )
    cut = cut_slices(runs, block, scale_bytes, header_bytes)
    place = slices[0].values
    with current_stream(place) as stream:
        table = _rows_on_device(cut.rows, place.owner.device, stream)
        yield Launch(slices=cut, table=table.data_ptr(), stream=stream)


@lru_cache(NUM_TABLES)
def _rows_on_device(rows: tuple[tuple[int, ...], ...], device: Any, stream: int) -> Any:
    # kept for each stream: should torch use this memory again, that comes later on the same stream
    torch = sys.modules["torch"]
    return torch.tensor(rows, dtype=torch.int64).to(device, non_blocking=True)


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


def zeros(memory: Memory, num: int) -> Any:
    """(num,) int32 zeros on the memory's device, of the current stream."""
    return memory.owner.new_zeros(num, dtype=sys.modules["torch"].int32)


def add_rows(values: Any, rows: Any, share: float, factor: float) -> None:
    """Make (num,) `values` factor * (share * values + share * rows[0] + share * rows[1] + ...), added in this order.

    Both are float32; `rows` is (num_rows, num), each row contiguous. One launch, which nothing waits for.
    """
    memory = flat(values, "float32", "values")
    assert rows.dtype == values.dtype and rows.device == values.device and rows.shape[1:] == values.shape
    if not memory.num:
        return
    with current_stream(memory) as stream:
        codec_launch.add_rows(
            memory.address,
            rows.data_ptr(),
            row_bytes=rows.stride(0) * rows.element_size(),
            num_rows=len(rows),
            num=memory.num,
            share=share,
            factor=factor,
            stream=stream,
        )
