"""A checked device as augpipe uses one: streams, torch's allocators, kernels that only say what they touch, and DALI.

Memory is told apart by pages. What nobody holds any more is handed out again as soon as its allocator may.
"""

import ctypes
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from augpipe.cuda import cache_writer, cuda_render, staging, upload
from augpipe.gpu_ops.image.mix import MIX_JOB
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from tests.happens_before import Device, FakeEvent, FakeStream

CPU = torch.device("cpu")
PAGE_BYTES = 1024
NUM_PAGES = 200

Bytes = npt.NDArray[np.uint8]


@dataclass(eq=False)
class _Block:
    owner: str
    """The stream of the device that it was allocated on, "host", or "DALI"."""
    first: int
    num_pages: int
    users: set[FakeStream] = field(default_factory=set)
    """Other streams that may be using it."""
    events: list[FakeEvent] = field(default_factory=list)
    """Of its users, when it was dropped."""


class Memory:
    """Torch's caching allocators, and DALI's.

    A stream's memory, once dropped, is free for the stream's further work; if it was lent to other streams, only when
    these have passed what they had been given by then. Page-locked memory is nobody's until the copies from it have
    passed. DALI's is free for its own stream at once.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        memory = np.zeros((NUM_PAGES + 1) * PAGE_BYTES, np.uint8)
        self._pages = memory[-memory.ctypes.data % PAGE_BYTES :][: NUM_PAGES * PAGE_BYTES]
        self._held: dict[int, _Block] = {}
        self._dropped: list[_Block] = []
        self._owners: list[str] = []

    def take(self, owner: str, num_bytes: int) -> Bytes:
        """Memory of a pool; dropping the array, and all tensors made of it, gives it back."""
        num_pages = -(-max(num_bytes, 1) // PAGE_BYTES)
        for block in self._dropped:
            is_fit = (block.owner, block.num_pages) == (owner, num_pages)
            if is_fit and all(event.query() for event in block.events):
                self._dropped.remove(block)
                break
        else:
            block = _Block(owner, len(self._owners), num_pages)
            self._owners += [owner] * num_pages
            assert len(self._owners) <= NUM_PAGES
        self._held[block.first] = block
        held = self._pages[block.first * PAGE_BYTES :][:num_bytes]
        weakref.finalize(held, self._drop, block).atexit = False
        return held

    def _drop(self, block: _Block) -> None:
        del self._held[block.first]
        block.events = [stream.record_event() for stream in sorted(block.users, key=lambda stream: stream.name)]
        block.users.clear()
        self._dropped.append(block)

    def has(self, address: int) -> bool:
        return 0 <= address - self._pages.ctypes.data < self._pages.nbytes

    def lend(self, address: int, stream: FakeStream) -> None:
        """What `record_stream` does, and every copy from page-locked memory."""
        block = self._held[(address - self._pages.ctypes.data) // PAGE_BYTES]
        if block.owner != stream.name:
            block.users.add(stream)

    def names(self, address: int, num_bytes: int = 1) -> list[str]:
        """The pages of some memory, as the checker is told them."""
        assert self.has(address)
        first = address - self._pages.ctypes.data
        pages = range(first // PAGE_BYTES, -(-(first + num_bytes) // PAGE_BYTES))
        return [f"page {page} of {self._owners[page]}" for page in pages]

    def state(self) -> Any:
        """What decides about the memory that is handed out from now on."""
        held = tuple(sorted((first, tuple(sorted(s.name for s in b.users))) for first, b in self._held.items()))
        return held, tuple((block.first, tuple(event.known for event in block.events)) for block in self._dropped)


class CheckedStreams:
    """`augpipe.cuda.streams.Streams` of a checked device."""

    device = CPU

    def __init__(self, machine: "Machine") -> None:
        self.machine = machine

    @contextmanager
    def on_current(self) -> Generator[int, None, None]:
        yield self.machine.device.streams.index(self.machine.device.current)

    @contextmanager
    def aside(self) -> Generator[None, None, None]:
        with self.machine.device.on(self.machine.aside):
            yield

    def record(self) -> FakeEvent:
        return self.machine.device.current.record_event()

    def wait_for(self, event: Any) -> None:
        self.machine.device.current.wait_event(event)

    def pinned(self, num_bytes: int) -> torch.Tensor:
        return torch.from_numpy(self.machine.host_memory(num_bytes))

    def lend(self, tensor: torch.Tensor) -> None:
        if self.machine.memory.has(tensor.data_ptr()):
            self.machine.memory.lend(tensor.data_ptr(), self.machine.device.current)


class Machine:
    """A device in the place of CUDA's, for all that runs until the test ends; `begin` gives a fresh one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin()
        for module in (cuda_render, staging, upload, cache_writer):
            monkeypatch.setattr(module, "allocate", self._allocate)
        for kernel in ("render_batch", "finish_batch", "mix_batch", "look_up_label_maps"):
            monkeypatch.setattr(cuda_render, kernel, getattr(self, f"_{kernel}"))
        monkeypatch.setattr(cache_writer, "pack_rgbx", self._pack_rgbx)
        monkeypatch.setattr(upload, "MIN_SLOT_BYTES", PAGE_BYTES)
        copy, fill = torch.Tensor.copy_, upload.UploadSlot.upload

        def checked_copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
            if non_blocking:
                self._copied(target, source)
            return copy(target, source)

        def checked_fill(slot: upload.UploadSlot, tables: Sequence[Any]) -> list[int]:
            self.write_on_host("fill the slot", slot._host)
            return fill(slot, tables)

        monkeypatch.setattr(torch.Tensor, "copy_", checked_copy)
        monkeypatch.setattr(upload.UploadSlot, "upload", checked_fill)

    def begin(self) -> None:
        self.device = Device()
        self.aside, self.dali = self.device.stream("aside"), self.device.stream("DALI")
        self.memory = Memory(self.device)
        self.fails_next = False
        """Whether the next `finish_batch` cannot be launched."""
        self.is_full = False
        """Whether no table of the cache finds room."""

    def host_memory(self, num_bytes: int) -> Bytes:
        """Page-locked memory, into which something is written."""
        held = self.memory.take("host", num_bytes)
        self.write_on_host("write", held)
        return held

    def tensor(self, num_bytes: int) -> torch.Tensor:
        """Memory of the current stream's, as a caller allocates it."""
        return self._allocate((num_bytes,), torch.uint8, CPU, purpose="a caller")

    def write_on_host(self, what: str, held: Bytes) -> None:
        self.device.use_on_host(what, writes=self.memory.names(held.ctypes.data, held.nbytes))

    def use(self, what: str, reads: Sequence[Any], writes: Sequence[Any] = ()) -> None:
        """Queue work on the current stream that touches (address, num_bytes) or tensors."""
        named = [[name for one in of for name in self._names(one)] for of in (reads, writes)]
        self.device.use(f"{what} on {self.device.current.name}", reads=named[0], writes=named[1])

    def _names(self, one: Any) -> list[str]:
        span = (one.data_ptr(), one.numel() * one.element_size()) if isinstance(one, torch.Tensor) else one
        return self.memory.names(*span)

    def _allocate(self, shape: Sequence[int], dtype: torch.dtype, device: Any, *, purpose: str) -> torch.Tensor:
        if self.is_full and purpose == "the cache's table":
            raise torch.OutOfMemoryError("full")
        num_bytes = int(np.prod(shape)) * dtype.itemsize
        held = self.memory.take(self.device.current.name, num_bytes)
        return torch.from_numpy(held).view(dtype).view(tuple(shape))

    def _copied(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.use("copy", [source], [target])
        if self.memory.names(source.data_ptr())[0].endswith("of host"):  # torch keeps only such memory by itself
            self.memory.lend(source.data_ptr(), self.device.current)

    def _render_batch(self, pixels: int, rows: int, batch: int, *, num: int, stream: int, **shape: Any) -> None:
        table = np.frombuffer(ctypes.string_at(pixels, num * 40), np.int64).reshape(num, 5)
        images = [(int(address), 1) for address in table[:, 0]]
        reads = [(pixels, num * 40), (rows, num * KERNEL_ROW.itemsize), *images]
        with self.device.on(self.device.streams[stream]):
            self.use("render", reads, [(batch, _num_bytes(num, **shape))])

    def _finish_batch(
        self,
        rows: int,
        levels: int,
        batch: int,
        copies: int,
        *,
        row_bytes: int,
        copied_bytes: int,
        filters: bool,
        num: int,
        stream: int,
        **shape: Any,
    ) -> None:
        if self.fails_next:
            self.fails_next = False
            raise TypeError("a kernel that does not compile")
        # the levels are overwritten, too
        writes = [(levels, _num_bytes(num, **shape | {"held_as": "float32"})), (batch, _num_bytes(num, **shape))]
        with self.device.on(self.device.streams[stream]):
            self.use(
                "finish",
                [(rows, num * row_bytes)],
                [*writes, *([(copies, num * copied_bytes)] if copied_bytes else [])],
            )

    def _look_up_label_maps(
        self, labels: int, rows: int, batch: int, *, num: int, height: int, width: int, stream: int, **look_up: Any
    ) -> None:
        table = np.frombuffer(ctypes.string_at(labels, num * 40), np.int64).reshape(num, 5)
        reads = [(labels, num * 40), (rows, num * KERNEL_ROW.itemsize), *((int(at), 1) for at in table[:, 0])]
        with self.device.on(self.device.streams[stream]):
            self.use("look up", reads, [(batch, num * height * width * 8)])

    def _mix_batch(self, jobs: int, batch: int, *, num_jobs: int, stream: int, **shape: Any) -> None:
        images = batch, _num_bytes(1, **shape)
        with self.device.on(self.device.streams[stream]):
            self.use("mix", [(jobs, num_jobs * MIX_JOB.itemsize), images], [images])

    def _pack_rgbx(self, table: int, *, num: int, max_pixels: int, stream: int) -> None:
        rows = np.frombuffer(ctypes.string_at(table, num * 32), np.int64).reshape(num, 4)
        with self.device.on(self.device.streams[stream]):
            reads = [(int(source), 1) for source in rows[:, 0]]
            self.use("pack", [(table, num * 32), *reads], [(int(to), int(pixels) * 4) for to, pixels in rows[:, 1:3]])


def _num_bytes(num: int, *, height: int, width: int, held_as: str, planar: bool) -> int:
    return num * height * width * 3 * (4 if held_as == "float32" else 1)


class DaliPipeline:
    """Decodes on DALI's stream, into memory that a later batch gets as soon as nobody holds the outputs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._fed: dict[str, list[Any]] = {}
        self._done: list[tuple[list[Any], FakeEvent]] = []

    def feed_input(self, name: str, arrays: Sequence[Any]) -> None:
        self._fed[name] = list(arrays)

    def schedule_run(self) -> None:
        images = []
        with self.machine.device.on(self.machine.dali):
            for content, (height, width) in zip(self._fed["encoded"], self._fed["shape"], strict=True):
                image = _Image(self.machine.memory.take("DALI", height * width * 3), (height, width, 3))
                file = content.ctypes.data, content.nbytes
                self.machine.use("decode", [file], [(image.data_ptr(), image.held.nbytes)])
                images.append(image)
        self._done.append((images, self.machine.dali.record_event()))

    def share_outputs(self, cuda_stream: int | None = None) -> tuple[list[Any]]:
        images, event = self._done.pop(0)
        if cuda_stream is None:
            event.synchronize()
        else:
            self.machine.device.streams[cuda_stream].wait_event(event)
        return (images,)

    def release_outputs(self) -> None:
        pass


@dataclass
class _Image:
    held: Bytes
    size: tuple[int, ...]

    def shape(self) -> tuple[int, ...]:
        return self.size

    def data_ptr(self) -> int:
        return self.held.ctypes.data
