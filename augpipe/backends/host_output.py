"""Batches in host memory: photographs are rendered by the thread that decoded them, out of its core's cache."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.backends.assembly import Assembly, Settings
from augpipe.backends.render import Scratch, render
from augpipe.buffers import BufferPool
from augpipe.output import import_torch
from augpipe.source import Pixels

GATHERED_BYTES = 2**20
"""Of a thread's memory for photographs that it decodes before it renders them: about what a core's cache holds. Each
call of the kernel hands Python's lock to another thread and has to get it back."""
MOST_GATHERED = 8
"""Photographs, however small they are."""


class _Gathered(threading.local):
    """Photographs of one batch, at positions that follow each other, that one thread has decoded and not rendered."""

    def __init__(self) -> None:
        self.memory: Pixels = np.empty(GATHERED_BYTES, np.uint8)
        self.used = 0
        """Bytes of `memory` that hold pixels of `images`."""
        self.handed_out = 0
        """Where in `memory` ends what was last handed out."""
        self.is_full = False
        """Whether the last one had to lie elsewhere."""
        self.assembly: Assembly | None = None
        self.first_position = 0
        self.images: list[tuple[Pixels, int, int]] = []


class HostOutput:
    """Renders on the CPU; one instance serves a loader over all its epochs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._buffers = BufferPool(keep=(settings.prefetch + 2) * len(settings.recipe.all_views))
        self._scratch = Scratch()
        self._gathered = _Gathered()

    def begin(self, assembly: Assembly) -> None:
        """Give a planned batch its memory."""
        num = len(assembly.photographs)
        assembly.target = tuple(self._take(num * height * width * 3) for height, width in assembly.sizes)

    def room(self, assembly: Assembly, position: int, num_bytes: int) -> Pixels:
        """(num_bytes,) to decode a photograph into; the calling thread's until it has put it, or asks again."""
        gathered = self._gathered
        end = gathered.used + num_bytes
        gathered.is_full = end > len(gathered.memory)
        if gathered.is_full:
            return self._scratch.pixels(num_bytes)  # what lies there is rendered as soon as it is put
        gathered.handed_out = end
        return gathered.memory[gathered.used : end]

    def put(self, assembly: Assembly, position: int, pixels: Pixels, first: tuple[int, int] = (0, 0)) -> None:
        """Take one photograph, given as (H, W, 4) RGBX that starts at column and row `first` of it."""
        gathered = self._gathered
        end, is_full = gathered.handed_out, gathered.is_full
        if gathered.assembly is not assembly or position != gathered.first_position + len(gathered.images):
            self.flush()
            gathered.assembly, gathered.first_position = assembly, position
        gathered.images.append((pixels, *first))
        gathered.used = gathered.handed_out = max(gathered.used, end)
        if is_full or len(gathered.images) == MOST_GATHERED:
            self.flush()

    def flush(self) -> None:
        """Render the views of what the calling thread has put."""
        gathered = self._gathered
        assembly, images = gathered.assembly, gathered.images
        gathered.assembly, gathered.images = None, []
        gathered.used = gathered.handed_out = 0
        gathered.is_full = False
        if assembly is None:
            return
        start, stop = gathered.first_position, gathered.first_position + len(images)
        for view, (height, width) in enumerate(assembly.sizes):
            num = height * width * 3
            out = assembly.target[view][start * num : stop * num]
            rows = assembly.tables[view][start:stop]
            render(images, rows, out, (height, width), self._settings.form, self._scratch)

    def ready(self, assembly: Assembly) -> None:
        """Nothing is left to do: photographs were rendered as they were put."""

    def finish(self, assembly: Assembly) -> list[Any]:
        """The images of each view; called by the thread that asked for the batch."""
        form, num = self._settings.form, len(assembly.photographs)
        return [
            form.wrap(memory, num, height, width)
            for memory, (height, width) in zip(assembly.target, assembly.sizes, strict=True)
        ]

    def labels(self, labels: npt.NDArray[np.int64]) -> Any:
        """(B,) labels beside the images."""
        return self._settings.form.wrap_labels(labels)

    def close(self) -> None:
        """Nothing is held beyond a pass."""

    def _take(self, num: int) -> npt.NDArray[np.generic]:
        held_as = self._settings.form.held_as
        if not self._settings.pins_memory:
            return self._buffers.take(num, held_as)
        # torch's own cache of page-locked memory knows which copies to a device are still under way, and ours does not
        torch = import_torch()
        pinned: npt.NDArray[np.generic]
        pinned = torch.empty(num * np.dtype(held_as).itemsize, dtype=torch.uint8, pin_memory=True).numpy().view(held_as)
        return pinned
