"""Label maps on their way to a device, which looks them up next to the images: out of a cache there, or staged."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from augpipe.cache import PixelCache
from augpipe.cache.label_maps import LabelRoom, LocatedLabels
from augpipe.cuda.cuda_render import LabelMaps, LookUp
from augpipe.cuda.staging import StagingBatch
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.planning.fields import BENDING, drawn_by
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.sources.targets import LabelMap

STAGED = tuple(map(np.dtype, (np.uint8, np.uint16, np.int32)))
"""The kernel reads these as they are; all others travel as int64, in which they are handed out."""


@dataclass(kw_only=True, slots=True)
class DeviceLabels:
    """The label map of an item."""

    shape: tuple[int, ...]
    """(H, W)."""
    dtype: np.dtype[Any]
    held: LocatedLabels | None = None
    """Where it lies in the cache; None: in the staging memory of the batch."""


class DeviceLabelMaps:
    """Looks up label maps on a device; one instance serves a loader over all its epochs.

    Args:
        settings: the loader's.
        cache: in the device's memory; None: label maps are read each time.
    """

    def __init__(self, settings: Settings, cache: PixelCache | None) -> None:
        self._options = settings.targets
        self._cache = cache

    def has(self, batch: BatchInProgress, item: Item) -> bool:
        """Take an item's label map from the cache, and say whether it was there."""
        held = self._cache and self._cache.label_maps.find(item.sample_id)
        if not held or held.shape != tuple(item.opened.size):
            return False
        batch.target.labels[item.position] = DeviceLabels(shape=held.shape, dtype=held.dtype, held=held)
        return True

    def take(self, batch: BatchInProgress, item: Item, labels: LabelMap) -> None:
        """Copy an item's label map into page-locked memory."""
        own = labels.dtype.newbyteorder("=")
        staged = own if own in STAGED else np.dtype(np.int64)
        room = batch.target.staging.room(~item.position, labels.size * staged.itemsize)
        room.view(staged).reshape(labels.shape)[...] = labels
        batch.target.labels[item.position] = DeviceLabels(shape=labels.shape, dtype=staged)

    def of_views(self, batch: BatchInProgress) -> list[LabelMaps]:
        """What is to be looked up for each view, once the staged label maps are on their way; empty for nothing."""
        staging: StagingBatch = batch.target.staging
        found: dict[int, DeviceLabels] = batch.target.labels
        if not found or self._options is None:
            return []
        assert batch.plan is not None
        rows = []
        for position in range(len(batch.items)):
            labels = found[position]
            address = staging.address(~position) if labels.held is None else labels.held.address
            rows.append((address, labels.shape[1], 0, 0, labels.dtype.itemsize))
        looked_at, fill = np.array(rows, np.int64), self._options.mask_fill
        fills = self._options.mask_border == "fill"
        return [
            LabelMaps(
                looked_at, kernel_rows(records), size, LookUp(fill, fills, not drawn_by(records).isdisjoint(BENDING))
            )
            for records, size in zip(batch.plan.views, batch.sizes, strict=True)
        ]

    def reserved(self, batch: BatchInProgress) -> list[tuple[Any, LabelRoom]]:
        """The staged label maps of a delivered batch, as bytes on the device, with the room for each in the cache."""
        assert self._cache is not None
        found, reserved = batch.target.labels, []
        for item in batch.items:
            labels = found.get(item.position)
            if labels is not None and labels.held is None:
                room = self._cache.label_maps.reserve(item.sample_id, labels.shape, labels.dtype)
                if room is not None:
                    reserved.append((batch.target.staging.tensor(~item.position, room.num_bytes), room))
        return reserved
