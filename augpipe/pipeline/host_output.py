"""Batches in host memory: images are rendered by the thread that decoded them, out of its core's cache."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.cpu.buffers import BufferPool
from augpipe.cpu.render import Scratch, render
from augpipe.output import import_torch
from augpipe.pipeline.decode import Decoder
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.source import Labels, Pixels

AT_A_TIME_BYTES = 2**20
"""Bytes of images that a thread decodes before it renders them: about what a core's cache holds. Each call of the
kernel hands the GIL to another thread and has to get it back."""
AT_A_TIME = 8
"""Images, however small they are."""


class HostOutput:
    """Decodes and renders on the CPU; one instance serves a loader over all its epochs."""

    decodes = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._buffers = BufferPool(keep=(settings.prefetch + 2) * len(settings.recipe.all_views))
        self._scratch = Scratch()
        self._memory = _DecodedMemory()

    def begin(self, batch: BatchInProgress) -> None:
        """Give a planned batch its memory."""
        batch.target = tuple(self._take(len(batch.items) * height * width * 3) for height, width in batch.sizes)

    def fill(self, batch: BatchInProgress, items: Sequence[Item], decoder: Decoder) -> None:
        """Decode and render items, a few at a time; those that are damaged carry an error then."""
        memory = self._memory
        ready: list[Item] = []
        for number, item in enumerate(items):
            if number % AT_A_TIME == 0:
                self._read(batch, items[number : number + AT_A_TIME], decoder)
            if item.error is not None:
                continue
            follows = bool(ready) and item.position == ready[-1].position + 1
            if memory.is_full or len(ready) == AT_A_TIME or not follows:
                self._render(batch, ready)
                memory.clear()
                ready = []
            try:
                decoder.decode(batch, item, memory.take)
                ready.append(item)
            except BaseException as problem:
                item.error = problem
        self._render(batch, ready)

    def _read(self, batch: BatchInProgress, items: Sequence[Item], decoder: Decoder) -> None:
        """Read items one behind the other: Python that runs between kernels finds nothing of its own in the cache."""
        for item in items:
            try:
                decoder.read(batch, item)
            except BaseException as problem:
                item.error = problem

    def deliver(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Nothing is left to do: images were rendered as they were decoded."""

    def finish(self, batch: BatchInProgress) -> list[Any]:
        """The images of each view; called by the thread that asked for the batch."""
        form, num = self._settings.form, len(batch.items)
        return [
            form.wrap(memory, num, height, width)
            for memory, (height, width) in zip(batch.target, batch.sizes, strict=True)
        ]

    def labels(self, labels: Labels) -> Any:
        """(B,) or (B, k) labels beside the images."""
        return self._settings.form.wrap_labels(labels)

    def _render(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Render all views of decoded items whose positions follow each other."""
        if not items:
            return
        start, stop = items[0].position, items[-1].position + 1
        pixels = [item.pixels for item in items if item.pixels is not None]
        for view, (height, width) in enumerate(batch.sizes):
            num = height * width * 3
            out = batch.target[view][start * num : stop * num]
            rows = batch.tables[view][start:stop]
            render(pixels, rows, out, (height, width), self._settings.form, self._scratch)
        for item in items:
            item.pixels = None  # the memory is the next ones'

    def _take(self, num: int) -> npt.NDArray[np.generic]:
        held_as = self._settings.form.held_as
        if not self._settings.pins_memory:
            return self._buffers.take(num, held_as)
        # torch's own cache of page-locked memory knows which copies to a device are still under way, and ours does not
        torch = import_torch()
        pinned: npt.NDArray[np.generic]
        pinned = torch.empty(num * np.dtype(held_as).itemsize, dtype=torch.uint8, pin_memory=True).numpy().view(held_as)
        return pinned


class _DecodedMemory(threading.local):
    """A thread's memory for the images that it decodes before it renders them."""

    def __init__(self) -> None:
        self._memory: Pixels = np.empty(AT_A_TIME_BYTES, np.uint8)
        self._one_more: Pixels = np.empty(0, np.uint8)
        self._used = 0
        self.is_full = False
        """Whether the last image did not fit, and lies elsewhere: one more would have no place at all."""

    def take(self, num_bytes: int) -> Pixels:
        """(num_bytes,) uint8, its content arbitrary."""
        end = self._used + num_bytes
        if end <= len(self._memory):
            taken, self._used = self._memory[self._used : end], end
            return taken
        assert not self.is_full
        self.is_full = True
        if len(self._one_more) < num_bytes:
            self._one_more = np.empty(num_bytes, np.uint8)
        return self._one_more[:num_bytes]

    def clear(self) -> None:
        """Let all be used again."""
        self._used, self.is_full = 0, False
