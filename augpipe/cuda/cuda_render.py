"""From pixels in device memory and a batch's tables to finished images: uploaded, launched, and never waited for."""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from augpipe.cuda.failures import SampleIds, allocate
from augpipe.cuda.in_flight import InFlight
from augpipe.cuda.streams import Streams, streams_of
from augpipe.cuda.upload import UploadRing
from augpipe.gpu_ops.image.cuda.launch import (
    finish_batch,
    look_up_label_maps,
    mix_batch,
    most_copied_bytes,
    render_batch,
)
from augpipe.gpu_ops.image.program_rows import are_filters, first_parts
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.record_passes import is_joined, parted_tables
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.refusals import refuse_functions

Rows = npt.NDArray[np.void]

MAX_PENDING = 8
"""Batches that the host may be ahead of the device by; each keeps the memory of its pixels."""


class LookUp(NamedTuple):
    """How label maps are looked up; see `gpu_ops.image.nearest.nearest_pixels`."""

    fill: int
    """The label where nothing is shown."""
    fills: bool
    as_taps: bool


class LabelMaps(NamedTuple):
    """A view's label maps, to be looked up."""

    looked_at: npt.NDArray[np.int64]
    """(B, 5) `DEVICE_PIXEL_COLUMNS`, in which channels are the bytes of a label: see `look_up_label_maps`."""
    table: Rows
    """(B,) `planning.kernel_rows.kernel_rows` at full scale."""
    size: tuple[int, int]
    """Height and width of the view's images, in pixels."""
    look_up: LookUp


class Rendering(NamedTuple):
    """Images of one size that one pass makes of others."""

    looked_at: npt.NDArray[np.int64]
    """(B, 5) `DEVICE_PIXEL_COLUMNS`."""
    rows: Rows
    """(B,) kernel rows of one pass, one behind the other in memory."""
    out: torch.Tensor
    """(B, 3, height, width), or (B, height, width, 3); of label maps (B, height, width)."""
    size: tuple[int, int]
    """Height and width, in pixels."""
    dtype: str
    planar: bool
    look_up: LookUp | None = None
    """Of label maps; None of images."""

    @property
    def uploads(self) -> list[npt.NDArray[Any]]:
        """The tables that the kernels read: what is looked at, where, and what follows, if anything does."""
        more = [] if self.rows.dtype == KERNEL_ROW or self.look_up is not None else [self.rows]
        return [self.looked_at, first_parts(self.rows), *more]


class DeviceRenderer:
    """Renders batches on one device, on whatever stream is current; safe from several threads.

    Args:
        device: as `require_device` gives it.
        recipe: named where the device fails.
        form: what the images are; framework is "torch".
        max_pending: batches that may be unfinished before a further one waits for the oldest.
        streams: the device's; None to ask torch for them.
    """

    def __init__(
        self,
        device: torch.device,
        recipe: Recipe,
        form: OutputFormat,
        *,
        max_pending: int = MAX_PENDING,
        streams: Streams | None = None,
    ) -> None:
        assert form.framework == "torch"
        refuse_functions(recipe, str(device))
        self._streams = streams or streams_of(device)
        self._form = form
        self._ring = UploadRing(self._streams)
        self._in_flight = InFlight(recipe.name, max_pending)
        self._lock = threading.Lock()

    def render(
        self,
        pixels: npt.NDArray[np.int64],
        tables: Sequence[Rows],
        sizes: Sequence[tuple[int, int]],
        keep: Sequence[Any],
        sample_ids: SampleIds,
        mix_jobs: Sequence[Rows] = (),
        label_maps: Sequence[LabelMaps] = (),
        put_together: Callable[[int, torch.Tensor], None] | None = None,
    ) -> list[torch.Tensor]:
        """Launch a batch on the current stream.

        Args:
            pixels: (B, 5) address, stride in pixels, first x, first y, channels: `DEVICE_PIXEL_COLUMNS`.
            tables: for each view, (B,) `planning.kernel_rows.kernel_rows`.
            sizes: for each view, its images' height and width in pixels.
            keep: what owns the pixels. Torch tensors are lent to the stream, so that torch's allocator gives their
                memory to nobody else too early; all else is kept alive until the device has passed the batch.
            sample_ids: (B,), named where the device fails.
            mix_jobs: for each view, (n,) `gpu_ops.image.mix.MIX_JOB` for the finished images; empty for none.
            label_maps: for each view, those of the images; empty for none. `keep` holds what owns them, too.
            put_together: changes the images of a view, of that number, before any are mixed.

        Returns:
            For each view, the (B, C, height, width) images, or (B, height, width, C), on the device; behind them for
            each of `label_maps` (B, height, width) int64. They are ready for work on the stream that is current now.

        Raises:
            KernelError: a CUDA error of this batch or of an earlier one.
            torch.OutOfMemoryError: the device is full; the message says for what.
            RuntimeError: the stream is being captured into a CUDA graph.
        """
        with self._lock, self.launching(sample_ids) as stream:
            self._in_flight.make_room()
            outs = [self._empty(len(pixels), size, view) for view, size in enumerate(sizes)]
            masks = [self._empty_labels(len(maps.looked_at), maps.size) for maps in label_maps]
            if len(pixels):
                renderings = self._renderings(np.asarray(pixels, np.int64), tables, sizes, outs)
                for maps, mask in zip(label_maps, masks, strict=True):
                    whole = Rendering(maps.looked_at, maps.table, mask, maps.size, "int64", False, maps.look_up)
                    renderings += self._passes(whole)
                self._launch(renderings, sizes, outs, keep, sample_ids, stream, mix_jobs, put_together)
        if self._form.channels == 1:  # all three are the same
            outs = [(out[:, :1] if self._form.planar else out[..., :1]).contiguous() for out in outs]
        return [out.permute(0, 3, 1, 2) if self._form.layout == "channels_last" else out for out in outs] + masks

    @contextmanager
    def launching(self, sample_ids: SampleIds, owners: Sequence[Any] = ()) -> Generator[int, None, None]:
        """Around further launches of a batch: makes the device current and turns CUDA errors into `KernelError`.

        Gives the `cudaStream_t` of the thread's current stream on the device. Where it is left by an exception, what
        `owners` holds by then is kept until the device has passed what was launched.
        """
        with self._in_flight.explaining(sample_ids), self._streams.on_current() as stream:
            try:
                yield stream
            except BaseException:
                if owners:
                    with self._lock:
                        self._keep(owners, sample_ids)
                raise

    def drain(self) -> None:
        """Wait until the device has finished every batch, and let go of what they kept.

        Raises:
            KernelError: a CUDA error of one of them.
        """
        with self._lock:
            self._in_flight.drain()

    def _empty(self, num: int, size: tuple[int, int], view: int) -> torch.Tensor:
        shape = (num, 3, *size) if self._form.planar else (num, *size, 3)
        dtype: torch.dtype = getattr(torch, self._form.dtype)
        return allocate(shape, dtype, self._streams.device, purpose=f"a batch's images of view {view}")

    def _empty_labels(self, num: int, size: tuple[int, int]) -> torch.Tensor:
        return allocate((num, *size), torch.int64, self._streams.device, purpose="a batch's label maps")

    def _launch(
        self,
        renderings: Sequence[Rendering],
        sizes: Sequence[tuple[int, int]],
        outs: Sequence[torch.Tensor],
        keep: Sequence[Any],
        sample_ids: SampleIds,
        stream: int,
        mix_jobs: Sequence[Rows],
        put_together: Callable[[int, torch.Tensor], None] | None,
    ) -> None:
        of_jobs = [(view, jobs) for view, jobs in enumerate(mix_jobs) if len(jobs)]
        uploads = [table for one in renderings for table in one.uploads]
        uploads += [jobs for _, jobs in of_jobs]
        slot = self._ring.take(uploads)
        try:
            given = iter(slot.upload(uploads))
            for one in renderings:
                self._launch_one(one, [next(given) for _ in one.uploads], stream)
            if put_together is not None:
                for view, out in enumerate(outs):
                    put_together(view, out)
            for (view, jobs), address in zip(of_jobs, given, strict=True):
                (height, width), out = sizes[view], outs[view]
                shape: dict[str, Any] = {"num_jobs": len(jobs), "height": height, "width": width}
                shape |= {"planar": self._form.planar}
                mix_batch(address, out.data_ptr(), **shape, held_as=self._form.dtype, stream=stream)
        finally:  # also where a view's launch fails: the views before it are on their way
            self._keep(keep, sample_ids, partial(self._ring.give_back, slot))

    def _renderings(
        self,
        pixels: npt.NDArray[np.int64],
        tables: Sequence[Rows],
        sizes: Sequence[tuple[int, int]],
        outs: Sequence[torch.Tensor],
    ) -> list[Rendering]:
        """What is rendered one after the other: the passes of each view, of which all but the last write bytes."""
        found: list[Rendering] = []
        for table, size, out in zip(tables, sizes, outs, strict=True):
            found += self._passes(Rendering(pixels, table, out, size, self._form.dtype, self._form.planar))
        return found

    def _passes(self, whole: Rendering) -> list[Rendering]:
        """The passes of a view, one after the other; `whole` has the rows of all, and looks at what the first does."""
        if not is_joined(whole.rows):
            return [whole]
        found: list[Rendering] = []
        looked_at = whole.looked_at
        *before, (last, _) = parted_tables(whole.rows)
        for rows, own_sizes in before:
            made = [
                self._earlier(
                    whole._replace(looked_at=looked_at, rows=rows),
                    np.flatnonzero((own_sizes == one).all(axis=1)),
                    one.tolist(),
                )
                for one in np.unique(own_sizes, axis=0)
            ]
            looked_at = np.empty_like(looked_at)
            for chosen, rendering in made:
                out, (height, width) = rendering.out, rendering.size
                pixel_bytes = 3 if whole.look_up is None else out.element_size()
                looked_at[chosen] = 0, width, 0, 0, pixel_bytes
                looked_at[chosen, 0] = out.data_ptr() + pixel_bytes * height * width * np.arange(len(chosen))
            found += [rendering for _, rendering in made]
        return [*found, whole._replace(looked_at=looked_at, rows=last)]

    def _earlier(
        self, whole: Rendering, chosen: npt.NDArray[np.intp], size: tuple[int, int]
    ) -> tuple[npt.NDArray[np.intp], Rendering]:
        """Some images of a pass that another one looks at, and which they are."""
        height, width = size
        if whole.look_up is not None:
            out, dtype = self._empty_labels(len(chosen), (height, width)), whole.dtype
        else:
            shape, purpose = (len(chosen), height, width, 3), "images between two passes"
            out, dtype = allocate(shape, torch.uint8, self._streams.device, purpose=purpose), "uint8"
        looked_at, rows = whole.looked_at[chosen], whole.rows[chosen]
        return chosen, Rendering(looked_at, rows, out, (height, width), dtype, planar=False, look_up=whole.look_up)

    def _launch_one(self, one: Rendering, addresses: Sequence[int], stream: int) -> None:
        height, width = one.size
        shape: dict[str, Any] = {"num": len(one.rows), "height": height, "width": width}
        shape |= {"planar": one.planar, "stream": stream}
        looked_at, first, *more = addresses
        if one.look_up is not None:
            num, look_up = len(one.rows), one.look_up._asdict()
            target = one.out.data_ptr()
            look_up_label_maps(looked_at, first, target, num=num, height=height, width=width, stream=stream, **look_up)
            return
        if not more:
            render_batch(looked_at, first, one.out.data_ptr(), **shape, held_as=one.dtype)
            return
        # of this stream alone, so that nobody else is given it before the launches are over
        copied_bytes = most_copied_bytes(one.rows["steps"], height, width)
        levels, copies = self._levels(one.out), self._copies(len(one.rows) * copied_bytes)
        render_batch(looked_at, first, levels.data_ptr(), **shape, held_as="float32")
        memory = levels.data_ptr(), one.out.data_ptr(), copies.data_ptr()
        shape |= {"row_bytes": one.rows.itemsize, "copied_bytes": copied_bytes}
        finish_batch(more[0], *memory, **shape, filters=are_filters(one.rows["steps"]), held_as=one.dtype)

    def _levels(self, out: torch.Tensor) -> torch.Tensor:
        """Memory for levels that steps follow: the images' own where that holds float32."""
        if out.dtype == torch.float32:
            return out
        return allocate(out.shape, torch.float32, self._streams.device, purpose="levels that steps follow")

    def _copies(self, num_bytes: int) -> torch.Tensor:
        """Memory for levels of images that are filtered, which their neighbours still look at."""
        return allocate((num_bytes,), torch.uint8, self._streams.device, purpose="levels that are filtered")

    def _keep(self, owners: Sequence[Any], sample_ids: SampleIds, release: Callable[[], None] = lambda: None) -> None:
        """Lend the tensors among `owners` to the stream, and keep the others until the device has passed its work."""
        for owner in owners:
            if isinstance(owner, torch.Tensor):
                self._streams.lend(owner)
        others = [owner for owner in owners if not isinstance(owner, torch.Tensor)]
        self._in_flight.add(self._streams.record(), others, sample_ids, release)
