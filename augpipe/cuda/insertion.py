"""Filling a cache in device memory: one launch a batch packs its new photographs into the arena."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from augpipe.cache import PixelCache
from augpipe.cuda.failures import allocate
from augpipe.cuda.streams import Event, Streams
from augpipe.gpu_ops.cuda.launch import pack_rgbx


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A whole photograph in device memory, at the DCT factor that it was decoded at."""

    sample_id: int
    factor: int
    height: int
    """Of the photograph, upright and whole, in pixels."""
    width: int
    may_scale: bool
    address: int
    """Of its first byte: dense rows of ceil(width / factor) pixels."""
    channels: int
    """1, 3 or 4 bytes a pixel."""


class CacheWriter:
    """Writes to one cache; one thread at a time, on whatever stream is current."""

    def __init__(self, cache: PixelCache, streams: Streams) -> None:
        self._cache = cache
        self._streams = streams
        self._written: Event | None = None

    @property
    def memory(self) -> Any:
        """What owns the cache's memory; whoever reads from it keeps this until the stream has passed the last use.

        One object, and no tensors: a large cache has hundreds of segments, and lending each takes as long as all else.
        """
        return self._cache.arena

    def wait(self) -> None:
        """Let the current stream's further work wait for all that was written, perhaps on another stream."""
        if self._written is not None:
            self._streams.wait_for(self._written)

    def write(self, pictures: Sequence[Picture], stream: int) -> list[Any]:
        """Queue the copies of those pictures that fit, on the current stream, and let the cache find them.

        Args:
            pictures: what was decoded; their memory must stay as it is until the stream has passed this.
            stream: the current one, as a number.

        Returns:
            What must be kept until then, too.
        """
        slots, table = [], []
        for picture in pictures:
            slot = self._cache.reserve(
                picture.sample_id,
                picture.factor,
                height=picture.height,
                width=picture.width,
                may_scale=picture.may_scale,
            )
            if slot is not None:
                slots.append(slot)
                table.append((picture.address, slot.place.address, slot.height * slot.width, picture.channels))
        if not slots:
            return []
        rows = np.array(table, np.int64)
        pinned = self._streams.pinned(rows.nbytes)
        pinned.numpy()[:] = rows.view(np.uint8).reshape(-1)
        uploaded = allocate((rows.nbytes,), torch.uint8, self._streams.device, purpose="the cache's table")
        uploaded.copy_(pinned, non_blocking=True)
        pack_rgbx(uploaded.data_ptr(), num=len(rows), max_pixels=int(rows[:, 2].max()), stream=stream)
        for slot in slots:
            self._cache.commit(slot)
        self._written = self._streams.record()
        return [uploaded]
