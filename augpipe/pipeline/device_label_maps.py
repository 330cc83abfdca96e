"""Label maps on their way to a device, which looks them up next to the images: out of a cache there, or staged."""

from collections.abc import Sequence
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

STAGED = {np.dtype(np.uint8): np.uint8, np.dtype(np.uint16): np.uint16, np.dtype(np.int32): np.int32}
"""The kernel reads these as they are; all others travel as int64, in which they are handed out."""


@dataclass(kw_only=True, slots=True)
class DeviceLabels:
    """The label map of an item."""

    height: int
    width: int
    label_bytes: int
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
        if not held:
            return False
        height, width = item.opened.size
        batch.target.labels[item.position] = DeviceLabels(
            height=height, width=width, label_bytes=held.label_bytes, held=held
        )
        return True

    def take(self, batch: BatchInProgress, item: Item, labels: LabelMap) -> None:
        """Copy an item's label map into page-locked memory."""
        staged = STAGED.get(labels.dtype.newbyteorder("="), np.int64)
        height, width = labels.shape
        room = batch.target.staging.room(~item.position, labels.size * np.dtype(staged).itemsize)
        room.view(staged).reshape(labels.shape)[...] = labels
        batch.target.labels[item.position] = DeviceLabels(
            height=height, width=width, label_bytes=np.dtype(staged).itemsize
        )

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
            rows.append((address, labels.width, 0, 0, labels.label_bytes))
        looked_at, fill = np.array(rows, np.int64), self._options.mask_fill
        fills = self._options.mask_border == "fill"
        return [
            LabelMaps(
                looked_at, kernel_rows(records), size, LookUp(fill, fills, not drawn_by(records).isdisjoint(BENDING))
            )
            for records, size in zip(batch.plan.views, batch.sizes, strict=True)
        ]

    def reserved(self, batch: BatchInProgress, new_ids: Sequence[int]) -> list[tuple[Any, LabelRoom]]:
        """The staged label maps, as bytes on the device, of samples whose images the cache holds or is about to, with
        the room for each in it.

        Args:
            batch: a delivered one.
            new_ids: the samples whose images are about to be written.
        """
        assert self._cache is not None
        found, reserved = batch.target.labels, []
        for item in batch.items:
            labels = found.get(item.position)
            if labels is None or labels.held is not None:
                continue
            if item.sample_id in new_ids or self._cache.size_of(item.sample_id) is not None:
                size = labels.height, labels.width, labels.label_bytes
                room = self._cache.label_maps.reserve(item.sample_id, *size)
                if room is not None:
                    reserved.append((batch.target.staging.tensor(~item.position, room.num_bytes), room))
        return reserved
