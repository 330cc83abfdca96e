"""Batches in host memory: images are rendered by the thread that decoded them, out of its core's cache."""

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.gpu_ops.image.fused import bends
from augpipe.gpu_ops.image.program import take_programs
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.gpu_ops.jpeg.workspace import MAX_FILES, View
from augpipe.native.buffers import BufferPool
from augpipe.native.cpu_render import Scratch, mix, paste, render
from augpipe.native.functions import Functions
from augpipe.pipeline.decode_stage import Decoder
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.mosaic_stage import are_hidden, put_together, seen
from augpipe.pipeline.mosaic_windows import fill_around, render_window, window_of
from augpipe.planning.output_format import import_torch
from augpipe.planning.record_passes import is_joined
from augpipe.sources.protocol import Labels, Pixels

AT_A_TIME_BYTES = 2**20
"""Bytes of images that a thread decodes before it renders them: about what a core's cache holds. Each call of the
kernel hands the GIL to another thread and has to get it back."""
AT_A_TIME = MAX_FILES
"""Images that are read one behind the other, and then decoded and rendered."""


class HostOutput:
    """Decodes and renders on the CPU; one instance serves a loader over all its epochs."""

    decodes = True
    label_maps = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._buffers = BufferPool(keep=(settings.prefetch + 2) * len(settings.recipe.all_views))
        self._scratch = Scratch()
        self._memory = _DecodedMemory()
        self._calls_functions = settings.recipe.has_functions

    def begin(self, batch: BatchInProgress) -> None:
        """Give a planned batch its memory."""
        # guests are as many as come: room for the most of them is found again, and what is not touched costs nothing
        recipe, has_guests = self._settings.recipe, batch.num_own < len(batch.items)
        mosaic = recipe.mosaic
        most = (2 if recipe.mixing else 1) * (1 if mosaic is None else mosaic.num_images)
        num = (most if has_guests else 1) * batch.num_own
        batch.windows = [] if mosaic is None else [[None] * len(batch.items) for _ in batch.sizes]
        if has_guests and not self._settings.skips_bad:  # of what replaces a damaged one, something may be seen
            batch.hidden = are_hidden(batch)
        batch.target = tuple(self._take(num * height * width * 3) for height, width in batch.sizes)

    def fill(self, batch: BatchInProgress, items: Sequence[Item], decoder: Decoder) -> None:
        """Read, decode and render items, a few at a time; those that are damaged carry an error then."""
        items = seen(batch, items)
        for start in range(0, len(items), AT_A_TIME):
            some = items[start : start + AT_A_TIME]
            self._read(batch, some, decoder)
            left = [item for item in some if item.error is None]
            self._decode_and_render(batch, self._render_files(batch, left, decoder), decoder)

    def _render_files(self, batch: BatchInProgress, items: Sequence[Item], decoder: Decoder) -> Sequence[Item]:
        """Decode and render in one compiled call what can be; the others."""
        form = self._settings.form
        of_views = list(zip(batch.tables, batch.target, batch.sizes, strict=True))
        if form.is_narrow or batch.windows or not all(_is_one_call(rows, target) for rows, target, _ in of_views):
            return items
        views = [View(rows, target, *size) for rows, target, size in of_views]
        left = decoder.render(items, views, self._memory.take, planar=form.planar)
        self._memory.clear()
        rendered = [item.position for item in items if item.error is None and item not in left]
        for rows, target, (height, width) in of_views:
            if rows.dtype != KERNEL_ROW:
                num = height * width * 3
                for start, stop in _runs(rendered):
                    levels = target[start * num : stop * num]
                    take_programs(rows[start:stop], levels, levels, height, width, form.planar)
        return left

    def _decode_and_render(self, batch: BatchInProgress, items: Sequence[Item], decoder: Decoder) -> None:
        """Decode items by themselves, and render those that are decoded together as far as memory goes."""
        memory = self._memory
        ready: list[Item] = []
        for item in items:
            follows = bool(ready) and item.position == ready[-1].position + 1
            if memory.is_full or not follows:
                self._render(batch, ready)
                memory.clear()
                ready = []
            try:
                decoder.decode(batch, item, memory.take)
                ready.append(item)
            except BaseException as problem:
                item.error = problem
        self._render(batch, ready)
        memory.clear()

    def _read(self, batch: BatchInProgress, items: Sequence[Item], decoder: Decoder) -> None:
        """Read items one behind the other: Python that runs between kernels finds nothing of its own in the cache."""
        for item in items:
            try:
                decoder.read(batch, item)
            except BaseException as problem:
                item.error = problem

    def deliver(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Nothing is left to do: images were rendered as they were decoded."""

    def mix(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Mix images of all views, those of the items with others that nobody else mixes meanwhile."""
        for view, size in enumerate(batch.sizes):
            first = np.searchsorted(batch.mix_jobs[view]["places"][:, 0], items[0].position)
            jobs = batch.mix_jobs[view][first : first + len(items)]
            pieces = self._pieces(batch, view, jobs["places"].ravel().tolist()) if batch.pasted else []
            mix(jobs, batch.target[view], size, self._settings.form, self._scratch)
            for own, partner, alpha in pieces:
                paste(own, partner, alpha, self._settings.form)

    def _pieces(self, batch: BatchInProgress, view: int, places: Sequence[int]) -> list[tuple[Any, Any, Any]]:
        """What is pasted on images of a view at some places: the part of each that changes, the same part of its
        partner before that one is changed, and the alpha."""
        assert batch.request.block.mixing is not None
        partners = batch.request.block.mixing.partner_places[batch.request.cut]
        images = self._images(batch, view)
        pieces = []
        for place in places:
            if (found := batch.pasted[view].get(place)) is not None and found.alpha.size:
                left, top, right, bottom = found.region
                cut = (
                    np.s_[..., top:bottom, left:right] if self._settings.form.planar else np.s_[top:bottom, left:right]
                )
                pieces.append((images[place][cut], images[partners[place]][cut].copy(), found.alpha))
        return pieces

    def _images(self, batch: BatchInProgress, view: int) -> npt.NDArray[np.generic]:
        """(B, 3, H, W) or (B, H, W, 3) of a view."""
        height, width = batch.sizes[view]
        planar, num = self._settings.form.planar, len(batch.items)
        shape = (num, 3, height, width) if planar else (num, height, width, 3)
        images: npt.NDArray[np.generic] = batch.target[view][: math.prod(shape)].reshape(shape)
        return images

    def put_together(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Put together the images of all views that are mosaics of the items and their guests."""
        planar = self._settings.form.planar
        for view in range(len(batch.sizes)):
            images = self._images(batch, view)
            for item in items:
                put_together(batch, images, item.position, view, planar=planar, windows=batch.windows[view])

    def finish(self, batch: BatchInProgress) -> list[Any]:
        """The images of each view, without guests; called by the thread that asked for the batch."""
        form, num = self._settings.form, batch.num_own
        return [
            form.wrap(memory[: num * height * width * 3], num, height, width)
            for memory, (height, width) in zip(batch.target, batch.sizes, strict=True)
        ]

    def labels(self, labels: Labels) -> Any:
        """(B,) or (B, k) labels next to the images."""
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
            if batch.windows:
                for nth, image in enumerate(pixels):
                    self._render_shown(batch, image, start + nth, view)
            else:
                functions = self._functions(batch, view, start)
                render(pixels, rows, out, (height, width), self._settings.form, self._scratch, functions)
        for item in items:
            item.pixels = None  # the memory is the next ones'

    def _functions(self, batch: BatchInProgress, view: int, first: int) -> Functions | None:
        """Those of a view, for items from a position on; None where the recipe has none."""
        if not self._calls_functions:
            return None
        assert batch.plan is not None
        found = Functions.of(batch.plan, view, lambda place: self._settings.source.name(batch.items[place].sample_id))
        return found and found.starting_at(first)

    def _render_shown(self, batch: BatchInProgress, image: LocatedPixels, position: int, view: int) -> None:
        """Render what an output shows of an image, and around an own one what is shown there."""
        (height, width), form, scratch = batch.sizes[view], self._settings.form, self._scratch
        num, own = height * width * 3, slice(position, position + 1)
        out, table = batch.target[view][position * num : (position + 1) * num], batch.tables[view][own]
        # of all that is shown of it, though less is decoded of a guest: where it begins, numbers of pixels are rounded
        window = window_of(batch.whole_tables[view][own], (height, width))
        batch.windows[view][position] = None
        if window is None or window == (0, 0, width, height):
            render([image], table, out, (height, width), form, scratch)
        elif batch.request.outputs[position] != position:
            render_window(image, table, window, (height, width), out, form, scratch)
            batch.windows[view][position] = window
        else:
            left, top, right, bottom = window
            shown = scratch.pixels(num * out.itemsize).view(out.dtype)
            render_window(image, table, window, (height, width), shown, form, scratch)
            around, shown = fill_around(table, form, scratch), shown[: (right - left) * (bottom - top) * 3]
            if form.planar:
                planes = out.reshape(3, height, width)
                planes[:] = around[:, None, None]
                planes[:, top:bottom, left:right] = shown.reshape(3, bottom - top, right - left)
            else:
                out.reshape(height, width * 3)[:] = np.tile(around, width)
                out.reshape(height, width, 3)[top:bottom, left:right] = shown.reshape(bottom - top, right - left, 3)

    def _take(self, num: int) -> npt.NDArray[np.generic]:
        held_as = self._settings.form.held_as
        if not self._settings.pins_memory:
            return self._buffers.take(num, held_as)
        # torch's own cache of page-locked memory knows which copies to a device are still under way, and ours does not
        torch = import_torch()
        pinned: npt.NDArray[np.generic]
        pinned = torch.empty(num * np.dtype(held_as).itemsize, dtype=torch.uint8, pin_memory=True).numpy().view(held_as)
        return pinned


def _is_one_call(rows: npt.NDArray[np.void], target: npt.NDArray[np.generic]) -> bool:
    """Whether images of a view are decoded and rendered in one call: of one pass, not bent, and in float32 if steps
    follow, which change them in place."""
    has_steps = rows.dtype != KERNEL_ROW
    return not (has_steps and (is_joined(rows) or target.dtype != np.float32)) and not bends(rows)


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Where ascending positions that follow each other begin and end, excluded."""
    edges = [nth for nth in range(1, len(positions)) if positions[nth] != positions[nth - 1] + 1]
    return [(part[0], part[-1] + 1) for part in np.split(np.array(positions), edges) if len(part)]


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
