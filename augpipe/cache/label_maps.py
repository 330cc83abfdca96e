"""Which label maps are held in a cache's memory, next to the images of the same samples: by sample, at full size."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.cache.arena import Arena, Place, aligned

CLAIMED = -1
"""The address of a label map that somebody is about to write."""
DID_NOT_FIT = -2
"""The address of a label map that found no room."""
KNOWN = np.dtype(
    [("address", np.int64), ("height", np.int32), ("width", np.int32), ("planes", np.int32), ("type", np.uint8)]
)
"""Of each sample; zeros where nothing is held. -1 planes: a number for each pixel. The type is dtype's character."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocatedLabels:
    """A label map in memory, rows one behind the other."""

    address: int
    shape: tuple[int, ...]
    """(H, W) or (H, W, C)."""
    dtype: np.dtype[Any]
    """In this machine's byte order."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LabelRoom:
    """Room for a label map, which its taker writes and then hands to `HeldLabelMaps.commit`."""

    labels: LocatedLabels
    place: Place
    """The same as a piece of the arena."""
    num_bytes: int
    """Of all labels; the piece may be larger."""
    sample_id: int


class HeldLabelMaps:
    """Label maps in the arena of a `PixelCache`; 21 bytes more for each sample once one is held. Safe from several
    threads.

    Args:
        num_samples: of the source.
        arena: the cache's.
    """

    def __init__(self, num_samples: int, arena: Arena) -> None:
        self._arena = arena
        self._num_samples = num_samples
        self._known: npt.NDArray[np.void] = np.empty(0, KNOWN)  # until the first one is reserved
        self._lock = threading.Lock()
        self.num_held = self.held_bytes = 0
        """Of all, each rounded up to 16 bytes."""
        self.num_did_not_fit = self.did_not_fit_bytes = 0
        """Those that found no room; each counts once."""

    def find(self, sample_id: int) -> LocatedLabels | None:
        """A label map that nobody changes any more, or None where it is not held."""
        with self._lock:
            found = self._known[sample_id].item() if len(self._known) else (0, 0, 0, 0, 0)
        address, height, width, planes, code = found
        if address in (0, CLAIMED, DID_NOT_FIT):
            return None
        shape = (height, width, planes) if planes >= 0 else (height, width)
        return LocatedLabels(address=address, shape=shape, dtype=np.dtype(chr(code)))

    def array(self, sample_id: int) -> npt.NDArray[Any] | None:
        """`find` in a cache on the host: the labels themselves, not to be written to."""
        found = self.find(sample_id)
        if found is None:
            return None
        num_bytes = math.prod(found.shape) * found.dtype.itemsize
        for segment in self._arena.segments:
            first = found.address - segment.address
            if 0 <= first < segment.num_bytes:
                labels: npt.NDArray[Any] = segment.memory[first : first + num_bytes].view(found.dtype)
                return labels.reshape(found.shape)
        raise AssertionError(f"no segment holds the address {found.address}")

    def keep(self, sample_id: int, labels: npt.NDArray[Any]) -> None:
        """Copy labels, (H, W) or (H, W, C), into a cache on the host, where they fit."""
        room = self.reserve(sample_id, labels.shape, labels.dtype.newbyteorder("="))
        if room is None:
            return
        first = room.place.offset
        memory = room.place.segment.memory[first : first + room.num_bytes]
        try:
            memory.view(room.labels.dtype).reshape(labels.shape)[...] = labels
        except BaseException:
            self.cancel(room)
            raise
        self.commit(room)

    def reserve(self, sample_id: int, shape: Sequence[int], dtype: np.dtype[Any]) -> LabelRoom | None:
        """Room for a label map; None where it is held, being written, or does not fit.

        Nobody finds it before `commit`, and each goes to either `commit` or `cancel`.
        """
        num_bytes = math.prod(shape) * dtype.itemsize
        with self._lock:
            if not len(self._known):
                self._known = np.zeros(self._num_samples, KNOWN)
            before = int(self._known[sample_id]["address"])
            if before not in (0, DID_NOT_FIT):
                return None
            self._known[sample_id]["address"] = CLAIMED
        place = self._arena.take(num_bytes)
        now = CLAIMED if place is not None else DID_NOT_FIT
        with self._lock:
            self._known[sample_id]["address"] = now
            change = (now == DID_NOT_FIT) - (before == DID_NOT_FIT)
            self.num_did_not_fit += change
            self.did_not_fit_bytes += change * aligned(num_bytes)
        if place is None:
            return None
        labels = LocatedLabels(address=place.address, shape=tuple(shape), dtype=dtype)
        return LabelRoom(labels=labels, place=place, num_bytes=num_bytes, sample_id=sample_id)

    def commit(self, room: LabelRoom) -> None:
        """Let everybody find what was written; in device memory on the terms of `PixelCache.commit`."""
        labels = room.labels
        height, width, planes = (*labels.shape, -1)[:3]
        with self._lock:
            self._known[room.sample_id] = labels.address, height, width, planes, ord(labels.dtype.char)
            self.num_held += 1
            self.held_bytes += room.place.num_bytes

    def cancel(self, room: LabelRoom) -> None:
        """Give the room of a label map that was not written to others."""
        with self._lock:
            self._known[room.sample_id]["address"] = 0
        self._arena.give_back(room.place)
