"""Batches in a CUDA device's memory: one launch a view, on the stream that is current where the batch is handed out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from augpipe.cache import PixelCache, Reservation
from augpipe.cuda.cache_writer import CacheWriter
from augpipe.cuda.cuda_render import DeviceRenderer, LabelMaps
from augpipe.cuda.staging import StagingBatch, StagingPool
from augpipe.cuda.streams import streams_of
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.pipeline.decode_stage import Decoder
from augpipe.pipeline.device_label_maps import DeviceLabelMaps, DeviceLabels
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.mosaic_stage import Part, pieces
from augpipe.sources.protocol import Labels, Pixels

Piece = tuple[int, Part, npt.NDArray[np.bool_] | None]
"""See `mosaic_stage.pieces`."""


@dataclass(kw_only=True)
class _Target:
    """Where the pixels of a batch lie."""

    staging: StagingBatch
    table: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 5), np.int64))
    """(B, 5): the kernel's pixel table, once all pixels are on their way."""
    labels: dict[int, DeviceLabels] = field(default_factory=dict)
    """Position of an item -> its label map."""
    label_maps: list[LabelMaps] = field(default_factory=list)
    """For each view what is looked up, once all label maps are on their way; empty for nothing."""
    pieces: dict[int, list[list[Piece]]] = field(default_factory=dict)
    """Position of a mosaic -> for each view what it shows of its guests."""


class DeviceOutput:
    """Renders on one device; one instance serves a loader over all its epochs.

    Args:
        settings: the loader's.
        device: as `require_device` gives it.
        cache: filled here where it lies in the device's memory; one on the host is the decoder's.
    """

    decodes = True

    def __init__(self, settings: Settings, device: torch.device, cache: PixelCache | None) -> None:
        self._settings = settings
        self._streams = streams_of(device)
        self._renderer = DeviceRenderer(device, settings.recipe, settings.form, streams=self._streams)
        self._pool = StagingPool(device, streams=self._streams)
        self._cache = cache if cache is not None and not cache.is_on_host else None
        self._writer = CacheWriter(self._cache, self._streams) if self._cache is not None else None
        self.label_maps = DeviceLabelMaps(settings, self._cache)

    def begin(self, batch: BatchInProgress) -> None:
        """Give a planned batch its staging memory."""
        batch.target = _Target(staging=self._pool.take())

    def fill(self, batch: BatchInProgress, items: Sequence[Item], decoder: Decoder) -> None:
        """Decode items into page-locked memory; those that are damaged carry an error then."""
        for item in items:
            try:
                self._stage(batch.target.staging, batch, item, decoder)
            except BaseException as problem:
                item.error = problem

    def deliver(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Start the copy to the device; little more than the launch is left to the thread that asked for the batch."""
        target: _Target = batch.target
        target.staging.copy()
        rows = []
        for item in items:
            pixels = item.pixels
            assert pixels is not None
            if pixels.is_on_host:
                pixels.address, pixels.owner = target.staging.address(item.position), target.staging
            rows.append((pixels.address, pixels.width, pixels.first_x, pixels.first_y, pixels.channels))
        target.table = np.array(rows, np.int64).reshape(-1, 5)
        target.label_maps = self.label_maps.of_views(batch)

    def put_together(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Find what mosaics show of their guests; they are put together behind their rendering, in `finish`."""
        for item in items:
            of_views = range(len(batch.sizes))
            batch.target.pieces[item.position] = [[*pieces(batch, item.position, view)] for view in of_views]

    def mix(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Nothing is to be done yet: images are mixed behind their rendering, in `finish`."""

    def finish(self, batch: BatchInProgress) -> list[Any]:
        """The images of each view, without guests, ready on the calling thread's current stream.

        Raises:
            KernelError: a CUDA error of this batch or of an earlier one.
            torch.OutOfMemoryError: the device is full.
        """
        target: _Target = batch.target
        keep: list[Any] = [target.staging, *batch.owners]
        assert batch.plan is not None
        ids = batch.plan.sample_ids
        # the copies into the cache read the pixels, also where the launch behind them finds no memory
        with self._renderer.launching(ids, keep) as stream:
            target.staging.wait()
            if self._writer is not None:
                self._writer.wait()
                keep.append(self._writer.memory)
                reserved = self._reserved(batch)
                keep += self._writer.write(reserved, stream, self.label_maps.reserved(batch))
            tables, sizes, more = batch.tables, batch.sizes, (batch.mix_jobs, target.label_maps)
            put_together = partial(self._put_together, target.pieces) if target.pieces else None
            found = self._renderer.render(target.table, tables, sizes, keep, ids, *more, put_together)
            images, masks = found[: len(sizes)], found[len(sizes) :]
            if masks:
                views = zip(batch.targets, masks, strict=True)
                batch.targets = tuple(replace(of_view, label_maps=mask) for of_view, mask in views)
            return [of_view[: batch.num_own] for of_view in images]

    def _put_together(self, found: dict[int, list[list[Piece]]], view: int, images: torch.Tensor) -> None:
        """Copy into the images of a view what their guests show of them."""
        if self._settings.form.planar:
            images = images.permute(0, 2, 3, 1)
        of_view = [(position, *piece) for position, views in found.items() for piece in views[view]]
        masks = [where for *_, where in of_view if where is not None]
        on_device: Iterator[torch.Tensor] = iter(())
        if masks:
            flat: torch.Tensor = self.labels(np.concatenate([where.reshape(-1) for where in masks]))
            on_device = iter(torch.split(flat, [where.size for where in masks]))
        for position, guest, part, where in of_view:
            own, shown = images[position][part], images[guest][part]
            if where is not None:
                shown = torch.where(next(on_device).view(*where.shape, 1), shown, own)
            own.copy_(shown)

    def labels(self, labels: Labels | torch.Tensor) -> Any:
        """(B,) or (B, k) on the device, copied without waiting, unless they lie there."""
        if isinstance(labels, torch.Tensor):
            return labels
        with self._streams.on_current():
            plain = torch.from_numpy(np.ascontiguousarray(labels))
            pinned = self._streams.pinned(labels.nbytes).view(plain.dtype).view(plain.shape)
            pinned.copy_(plain)
            return pinned.to(self._streams.device, non_blocking=True)

    def _reserved(self, batch: BatchInProgress) -> list[tuple[LocatedPixels, Reservation]]:
        """The pixels that were decoded now, and whole, with room for each in the cache."""
        assert self._cache is not None
        reserved = []
        for item in batch.items:
            pixels, image = item.pixels, item.opened
            assert pixels is not None
            if not item.is_cached and (pixels.height, pixels.width, 4) == image.shape(item.factor):
                room = self._cache.reserve(image.sample_id, item.factor, *image.size, image.may_scale)
                if room is not None:
                    reserved.append((pixels, room))
        return reserved

    def _stage(self, staging: StagingBatch, batch: BatchInProgress, item: Item, decoder: Decoder) -> None:
        rooms: list[Pixels] = []

        def room(num_bytes: int) -> Pixels:
            rooms.append(staging.room(item.position, num_bytes))
            return rooms[-1]

        decoder.decode(batch, item, room)
        assert item.pixels is not None
        if not rooms and item.pixels.is_on_host:  # in a cache
            cached = item.pixels.array
            room(cached.nbytes)[:] = cached.reshape(-1)
