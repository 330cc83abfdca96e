"""Batches in host memory: a photograph is rendered by the thread that decoded it, while it is in that core's cache."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.backends.assembly import Assembly, Settings
from augpipe.backends.render import Scratch, render
from augpipe.buffers import BufferPool
from augpipe.output import import_torch
from augpipe.source import Pixels


class HostOutput:
    """Renders on the CPU; one instance serves a loader over all its epochs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._buffers = BufferPool(keep=(settings.prefetch + 2) * len(settings.recipe.all_views))
        self._scratch = Scratch()

    def begin(self, assembly: Assembly) -> None:
        """Give a planned batch its memory."""
        num = len(assembly.photographs)
        assembly.target = tuple(self._take(num * height * width * 3) for height, width in assembly.sizes)

    def room(self, assembly: Assembly, position: int, num_bytes: int) -> Pixels:
        """(num_bytes,) to decode a photograph into; it is the calling thread's until the thread asks again."""
        return self._scratch.pixels(num_bytes)

    def put(self, assembly: Assembly, position: int, pixels: Pixels, first: tuple[int, int] = (0, 0)) -> None:
        """Render the views of one photograph, given as (H, W, 4) RGBX that starts at column and row `first` of it."""
        for view, (height, width) in enumerate(assembly.sizes):
            num = height * width * 3
            out = assembly.target[view][position * num : (position + 1) * num]
            row = assembly.tables[view][position : position + 1]
            render(pixels, row, out, (height, width), self._settings.form, self._scratch, first)

    def ready(self, assembly: Assembly) -> None:
        """Nothing is left to do: each photograph was rendered when it was put."""

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
