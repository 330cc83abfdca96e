"""Which label maps are held in a cache's memory, next to the images of the same samples: by sample, at full size."""

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augpipe.cache.arena import Arena, Place

CLAIMED = -1
"""The address of a label map that somebody is about to write."""
KNOWN = np.dtype([("address", np.int64), ("width", np.int32), ("label_bytes", np.uint8)])
"""Of each sample; zeros where nothing is held."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocatedLabels:
    """A label map in memory, rows one behind the other."""

    address: int
    width: int
    """In pixels."""
    label_bytes: int
    """Of each label: 1 for uint8, 2 for uint16, 4 for int32, 8 for int64."""


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
    """Label maps in the arena of a `PixelCache`; 13 bytes more for each sample once one is held. Safe from several
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
        self.held_bytes = 0
        """Of all, each rounded up to 16."""

    def find(self, sample_id: int) -> LocatedLabels | None:
        """A label map that nobody changes any more, or None where it is not held."""
        with self._lock:
            address, width, label_bytes = self._known[sample_id].item() if len(self._known) else (0, 0, 0)
        if address in (0, CLAIMED):
            return None
        return LocatedLabels(address=address, width=width, label_bytes=label_bytes)

    def reserve(self, sample_id: int, height: int, width: int, label_bytes: int) -> LabelRoom | None:
        """Room for a label map; None where it is held, being written, or does not fit.

        Nobody finds it before `commit`, and each goes to either `commit` or `cancel`.
        """
        with self._lock:
            if not len(self._known):
                self._known = np.zeros(self._num_samples, KNOWN)
            if self._known[sample_id]["address"]:
                return None
            self._known[sample_id]["address"] = CLAIMED
        num_bytes = height * width * label_bytes
        place = self._arena.take(num_bytes)
        if place is None:
            self._known[sample_id]["address"] = 0
            return None
        labels = LocatedLabels(address=place.address, width=width, label_bytes=label_bytes)
        return LabelRoom(labels=labels, place=place, num_bytes=num_bytes, sample_id=sample_id)

    def commit(self, room: LabelRoom) -> None:
        """Let everybody find what was written; in device memory on the terms of `PixelCache.commit`."""
        with self._lock:
            labels = room.labels
            self._known[room.sample_id] = labels.address, labels.width, labels.label_bytes
            self.held_bytes += room.place.num_bytes

    def cancel(self, room: LabelRoom) -> None:
        """Give the room of a label map that was not written to others."""
        self._known[room.sample_id]["address"] = 0
        self._arena.give_back(room.place)
