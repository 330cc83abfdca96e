"""Images of files and arrays, on the CPU: one image after another, on a few threads during the call."""

import os
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.augment_call.inputs import Images
from augpipe.augment_call.plans_ahead import WORTH_A_REGION, Looks, PlanAhead, looks_of
from augpipe.decoding.jpeg import decoder_overloads
from augpipe.errors import SampleError
from augpipe.gpu_ops.compiled import background
from augpipe.gpu_ops.image.pixels import RGB_BYTES, pack_regions
from augpipe.native.buffers import BufferPool
from augpipe.native.cpu_render import Scratch, find_in_place, render
from augpipe.native.functions import Functions
from augpipe.native.workers import run_each
from augpipe.pipeline.stored_image import Decodable, StoredImage
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.plan import Plan

Rows = npt.NDArray[np.void]

AT_A_TIME_BYTES = 2**20
"""Bytes of packed arrays that are rendered by one call: about what a core's cache holds."""
MOST_AT_A_TIME = 8
"""Images that are rendered by one call; their levels are still in a cache when programs change them."""

LARGE_BYTES = 2**22
"""Bytes of a view's images from which on their memory is used again once nobody holds them: malloc gives back what is
larger than some size, at most 32 MiB, and zeroing fresh pages takes a third as long as rendering."""


class HostTransform:
    """Renders plans on the CPU; safe from several threads. Of files it decodes what a loader decodes of them."""

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._buffers = BufferPool(keep=0)
        self._held_for: tuple[Any, ...] = ()
        self._has_met_files = False

    def render(
        self, images: Images, plan: Plan, form: OutputFormat, num_threads: int, ahead: PlanAhead | None = None
    ) -> list[Any]:
        """The images of each view: a batch, or a list where their sizes differ.

        Args:
            images: of the call.
            plan: of these images.
            form: of what is made of them.
            num_threads: that render.
            ahead: the plan, where it is of a block of ids.

        Raises:
            SampleError: a file is damaged.
        """
        stored: list[StoredImage] = images.items
        if not self._has_met_files and any(image.may_crop for image in stored):
            self._has_met_files = True
            background.start([decoder_overloads(None)])  # libjpeg-turbo decodes until it is compiled
        num_planned = len(stored) if ahead is None else ahead.num_regions
        may_crop = [image.may_crop or image.is_array_above(WORTH_A_REGION // num_planned) for image in stored]
        may_scale = [image.may_scale for image in stored]
        arrays = _dense_arrays(stored) if stored else None
        wants_regions = arrays is None and any(may_crop)
        if ahead is None:
            looks = looks_of(plan.views, may_scale, wants_regions=wants_regions)
        else:
            looks = ahead.looks(may_scale, wants_regions)
        functions = [Functions.of(plan, view, images.names.__getitem__) for view in range(len(plan.views))]
        views = [_View(rows, view.out_size) for rows, view in zip(plan.views, plan.recipe.all_views, strict=True)]
        buffers = self._buffers_for(views, form)
        for view in views:
            view.take_memory(buffers, form)

        if arrays is not None:
            are_rgb = (arrays[:, 2] == RGB_BYTES) & (arrays[:, 1] != 0)
            for rows in looks.tables:
                find_in_place(rows, are_rgb)
            packed = None
            if not are_rgb.all():
                if any(may_crop):
                    looks = looks.with_regions(plan.views) if ahead is None else ahead.with_regions(looks)
                packed = _Packed(arrays, are_rgb, _whole(stored) if looks.regions is None else looks.regions)
            self._render_arrays(arrays, packed, looks.tables, views, form, functions, num_threads)
            return [view.wrapped(form) for view in views]

        def work(position: int) -> None:
            own = looks.of(slice(position, position + 1))
            sizes = [view.sizes[position] for view in views]
            try:
                pixels = stored[position].in_place()
                if pixels is None:
                    decodable = _decodable(stored[position], own, may_crop[position])
                    pixels = decodable.decode_into(self._scratch.pixels(decodable.num_bytes))
            except ValueError as problem:
                raise SampleError(images.names[position], str(problem)) from problem
            for view, row, size, called in zip(views, own.tables, sizes, functions, strict=True):
                called = called and called.starting_at(position)
                render([pixels], row, view.memory_of(position, position + 1), size, form, self._scratch, called)

        run_each(work, len(stored), num_threads)
        return [view.wrapped(form) for view in views]

    def _buffers_for(self, views: "list[_View]", form: OutputFormat) -> BufferPool:
        """Those of the call before, where it was alike and of this process: a lock may have been held by a fork."""
        wanted = os.getpid(), form.held_as, *(view.num for view in views)
        if wanted != self._held_for:
            self._buffers, self._held_for = BufferPool(keep=2 * len(views)), wanted
        return self._buffers

    def _render_arrays(
        self,
        arrays: npt.NDArray[np.int64],
        packed: "_Packed | None",
        tables: list[Rows],
        views: "list[_View]",
        form: OutputFormat,
        functions: list[Functions | None],
        num_threads: int,
    ) -> None:
        """Render several arrays at a time, by few calls of kernels: each call costs as much as a tenth of an image's
        work. All are read in place but those that are `packed` first."""
        sizes = list(zip(*(view.sizes for view in views), strict=True))
        num_bytes = [0] * len(arrays) if packed is None else packed.num_bytes.tolist()
        groups = _groups(num_bytes, sizes, min(-(-len(arrays) // num_threads), MOST_AT_A_TIME))
        located = np.zeros((len(arrays), 4), np.int64)
        located[:, 0] = arrays[:, 0]

        def work(group: int) -> None:
            own = slice(*groups[group])
            table, of_rgb = (located[own], arrays[own, 1]) if packed is None else packed.taken(own, self._scratch)
            for view, rows, called in zip(views, tables, functions, strict=True):
                called = called and called.starting_at(own.start)
                memory = view.memory_of(own.start, own.stop)
                render(table, rows[own], memory, view.sizes[own.start], form, self._scratch, called, of_rgb)

        run_each(work, len(groups), num_threads)


class _Packed:
    """Arrays of which some are packed before they are rendered."""

    def __init__(
        self, arrays: npt.NDArray[np.int64], are_rgb: npt.NDArray[np.bool_], regions: npt.NDArray[np.int32]
    ) -> None:
        self._arrays, self._regions, self._rgb_rows = arrays, regions, arrays[:, 1] * are_rgb
        self.num_bytes = 4 * (regions[:, 2:] - regions[:, :2]).prod(axis=1, dtype=np.int64) * ~are_rgb
        """Of each once it is packed, 0 of what is read in place."""

    def taken(self, own: slice, scratch: Scratch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
        """The pixel table of some of them, and the `rgb_rows` of what is read in place."""
        rgb_rows, table = self._rgb_rows[own], np.empty((own.stop - own.start, 4), np.int64)
        pixels = scratch.pixels(int(self.num_bytes[own].sum()))
        pack_regions(self._arrays[own], self._regions[own], rgb_rows, pixels, table)
        return table, rgb_rows if rgb_rows.any() else None


def _whole(stored: list[StoredImage]) -> npt.NDArray[np.int32]:
    return np.array([(0, 0, width, height) for height, width in (one.size for one in stored)], np.int32)


def _dense_arrays(stored: list[StoredImage]) -> npt.NDArray[np.int64] | None:
    """(B, 3) of `pack_regions`; None where an image is of another kind."""
    found = [image.dense_rows() for image in stored]
    return None if None in found else np.array(found, np.int64).reshape(-1, 3)


def _groups(num_bytes: list[int], sizes: list[tuple[tuple[int, int], ...]], most: int) -> list[tuple[int, int]]:
    """First and last image, excluded, of groups that are rendered by one call: of each view's outputs of one size."""
    ends, first, held = [], 0, 0
    for position, (num, size) in enumerate(zip(num_bytes, sizes, strict=True)):
        is_full = held + num > AT_A_TIME_BYTES or position - first == most
        if position > first and (is_full or size != sizes[first]):
            ends.append((first, position))
            first, held = position, 0
        held += num
    return [*ends, (first, len(num_bytes))]


def _decodable(image: StoredImage, looks: Looks, may_crop: bool) -> Decodable:
    """What the views look at, or all of the image."""
    (factor,) = looks.factors.tolist()
    if not may_crop:
        return image.whole(factor)
    assert looks.regions is not None
    return image.region(factor, looks.regions[0].tolist(), None)


class _View:
    """One view's images in memory, one behind the other."""

    def __init__(self, rows: Rows, out_size: tuple[int, int] | None) -> None:
        self.sizes = list(zip(rows["out_height"].tolist(), rows["out_width"].tolist(), strict=True))
        """Height and width of each, in pixels."""
        self.has_one_size = len(set(self.sizes)) <= 1
        """Whether all have the same."""
        self._common = self.sizes[0] if self.sizes else out_size or (0, 0)
        self._ends = list(accumulate((height * width * 3 for height, width in self.sizes), initial=0))
        self.num = self._ends[-1]
        """Of all their numbers."""

    def take_memory(self, buffers: BufferPool, form: OutputFormat) -> None:
        """Have memory for them, which is used again if it is large."""
        is_large = self.num * np.dtype(form.held_as).itemsize > LARGE_BYTES
        self._memory = buffers.take(self.num, form.held_as) if is_large else np.empty(self.num, form.held_as)

    def memory_of(self, first: int, end: int) -> npt.NDArray[np.generic]:
        """(numbers,) of the images `first`..`end` - 1."""
        return self._memory[self._ends[first] : self._ends[end]]

    def wrapped(self, form: OutputFormat) -> Any:
        """A batch, or a list of images where their sizes differ."""
        if self.has_one_size:
            return form.wrap(self._memory, len(self.sizes), *self._common)
        return [form.wrap(self.memory_of(i, i + 1), 1, *size)[0] for i, size in enumerate(self.sizes)]
