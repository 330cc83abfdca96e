"""Filling a cache in device memory: one launch a batch packs its new images into the arena."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from augpipe.cache import PixelCache, Reservation
from augpipe.cache.label_maps import LabelRoom
from augpipe.cuda.failures import allocate
from augpipe.cuda.streams import Event, Streams
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.gpu_ops.image.cuda.launch import pack_rgbx


class CacheWriter:
    """Writes to one cache; one thread at a time, on whatever stream is current."""

    def __init__(self, cache: PixelCache, streams: Streams) -> None:
        self._cache = cache
        self._streams = streams

    @property
    def memory(self) -> Any:
        """What owns the cache's memory; whoever reads from it keeps this until the stream has passed the last use.

        One object, and no tensors: a large cache has hundreds of segments, and lending each takes as long as all else.
        """
        return self._cache.arena

    def wait(self) -> None:
        """Let the current stream's further work wait for all that was written, perhaps on another stream.

        Called before `write`, too, so that one event stands for all writes.
        """
        written: Event | None = self._cache.written
        if written is not None:
            self._streams.wait_for(written)

    def write(
        self,
        reserved: Sequence[tuple[LocatedPixels, Reservation]],
        stream: int,
        labels: Sequence[tuple[torch.Tensor, LabelRoom]] = (),
    ) -> list[Any]:
        """Queue the copies of pixels to the room that is reserved for them, on the current stream, and commit them.

        Args:
            reserved: pixels on the device, which must stay as they are until the stream has passed this.
            stream: the current one, as a number.
            labels: label maps on the device, as bytes, and the room for each; on the same terms.

        Returns:
            What must be kept until then, too.

        Raises:
            torch.OutOfMemoryError: the device is full; no copy was queued.
        """
        if not reserved and not labels:
            return []
        try:
            used = self._pack(reserved, stream) if reserved else []
            for source, place in labels:
                first = place.place.offset
                place.place.segment.memory[first : first + place.num_bytes].copy_(source, non_blocking=True)
        except BaseException:  # the images may come again
            for _, room in reserved:
                self._cache.cancel(room)
            for _, place in labels:
                self._cache.label_maps.cancel(place)
            raise
        finally:  # before anybody finds them; and where it failed, as a new segment is free for this stream only
            self._cache.written = self._streams.record()
        for _, room in reserved:
            self._cache.commit(room)
        for _, place in labels:
            self._cache.label_maps.commit(place)
        return used

    def _pack(self, reserved: Sequence[tuple[LocatedPixels, Reservation]], stream: int) -> list[Any]:
        rows = np.array(
            [
                (pixels.address, room.pixels.address, pixels.height * pixels.width, pixels.channels)
                for pixels, room in reserved
            ],
            np.int64,
        )
        pinned = self._streams.pinned(rows.nbytes)
        pinned.numpy()[:] = rows.view(np.uint8).reshape(-1)
        uploaded = allocate((rows.nbytes,), torch.uint8, self._streams.device, purpose="the cache's table")
        uploaded.copy_(pinned, non_blocking=True)
        pack_rgbx(uploaded.data_ptr(), num=len(rows), max_pixels=int(rows[:, 2].max()), stream=stream)
        return [uploaded]
