"""Batches in host memory, rendered from the array that holds all images: nothing is done image by image."""

from collections.abc import Sequence

import numpy as np

from augpipe.gpu_ops.image.pixels import pack_stack
from augpipe.native.cpu_render import render
from augpipe.pipeline.decode_stage import Decoder
from augpipe.pipeline.host_output import AT_A_TIME_BYTES, HostOutput
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.planning.plan import refusals
from augpipe.sources.protocol import Pixels, stack_of
from augpipe.validation.arguments import MAX_INDEXABLE_PIXELS


class StackOutput(HostOutput):
    """Renders on the CPU what lies in one array; one instance serves a loader over all its epochs.

    Args:
        settings: the loader's.
        stack: (N, H, W, C) uint8, see `source.StackedSource`.
    """

    decodes = False

    def __init__(self, settings: Settings, stack: Pixels) -> None:
        super().__init__(settings)
        self._stack = stack

    def fill(self, batch: BatchInProgress, items: Sequence[Item], decoder: Decoder) -> None:
        """Render items whose positions follow each other; no image can be damaged."""
        assert batch.plan is not None
        _, height, width, _ = self._stack.shape
        image_bytes = height * width * 4
        at_a_time = max(1, AT_A_TIME_BYTES // image_bytes)
        end = items[-1].position + 1
        for start in range(items[0].position, end, at_a_time):
            stop = min(start + at_a_time, end)
            packed = self._scratch.pixels((stop - start) * image_bytes).reshape(stop - start, height, width, 4)
            pack_stack(self._stack, batch.plan.rows["sample_id"][start:stop], packed)
            table = np.zeros((stop - start, 4), np.int64)
            table[:, 0] = packed.ctypes.data + image_bytes * np.arange(stop - start)
            table[:, 1] = width
            for view, size in enumerate(batch.sizes):
                num = size[0] * size[1] * 3
                out, rows = batch.target[view][start * num : stop * num], batch.tables[view][start:stop]
                render(table, rows, out, size, self._settings.form, self._scratch)


def stack_for(settings: Settings) -> Pixels | None:
    """(N, H, W, C) uint8 where the source's images all lie in one array, and are of a size that can be used."""
    stack = stack_of(settings.source)
    if stack is None:
        return None
    height, width = stack.shape[1:3]
    can_be_used = height * width <= MAX_INDEXABLE_PIXELS and refusals(settings.recipe, [(height, width)])[0] is None
    return stack if can_be_used else None
