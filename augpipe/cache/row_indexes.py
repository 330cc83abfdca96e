"""Row indexes of a loader's JPEGs, from one epoch to the next."""

import math
import mmap
import threading
from collections.abc import Callable
from copy import copy

import numpy as np
import numpy.typing as npt

from augpipe.decoding.jpeg import decoder_if_compiled
from augpipe.decoding.row_index import HEADER, MAX_POINTS, POINT_BYTES, FileSum, pack, unpack, used_part
from augpipe.gpu_ops.jpeg.workspace import NO_POINTS, Points
from augpipe.sources.protocol import Pixels, Source

DEFAULT_BYTES = 256 * 2**20
"""What they may take in memory unless told otherwise: all points of 125,000 photographs of 500x375 pixels, and every
eighth or so of a million."""

LEAST_POINTS = 4
"""With fewer a photograph, nothing is kept."""


class RowIndexes:
    """The indexes that a source has stored, or else those that are found while its JPEGs are decoded.

    Each JPEG has the same room in memory: where that does not hold all points of one, it holds every second, fourth or
    eighth. Room that is not used takes no memory. Safe from several threads.

    Args:
        source: the loader's; what it stores it gives by `row_index`, if it has one.
        max_bytes: what may be kept in memory.
    """

    def __init__(self, source: Source, max_bytes: int) -> None:
        self._stored: Callable[[int], bytes | memoryview] | None = getattr(source, "row_index", None)
        self._num_samples = len(source)
        room = min(max_bytes // self._num_samples, HEADER.size + MAX_POINTS * POINT_BYTES)
        num_points = (room - HEADER.size) // POINT_BYTES
        self.max_points = num_points if num_points >= LEAST_POINTS else 0
        """How many points may be noted of a file of which none are known."""
        self._room_bytes = HEADER.size + self.max_points * POINT_BYTES
        self._rooms: npt.NDArray[np.uint8] | None = None
        self._keeps = True
        self._lock = threading.Lock()

    def read_only(self) -> "RowIndexes":
        """The same, which keeps nothing more."""
        same = copy(self)
        same._keeps = False
        return same

    def decode_region(
        self,
        sample_id: int,
        data: bytes | memoryview,
        height: int,
        width: int,
        factor: int,
        region: tuple[int, int, int, int],
        out: Pixels,
    ) -> bool:
        """`decoding.jpeg.decode_region` from the nearest point on; what is found on the way is kept."""
        decoder = decoder_if_compiled()
        if decoder is None or out.ctypes.data % 4:
            return False
        codes = np.frombuffer(data, np.uint8)
        known, file = self.find(sample_id, data)
        if not decoder.decode(codes, height, width, region, out, known, self.max_points, factor):
            return False
        self.keep(sample_id, file, known, decoder.points())
        return True

    def find(self, sample_id: int, data: bytes | memoryview) -> tuple[Points, FileSum | None]:
        """What the source has stored of this very file, or else what was found of it before; and its sum for `keep`."""
        if self._stored is None and not self.max_points:
            return NO_POINTS, None
        file = FileSum.of(data)
        known = unpack(self._stored(sample_id), file) if self._stored is not None else NO_POINTS
        if known.num_rows == 0 and self._rooms is not None:
            with self._lock:  # a copy: another thread may write more points into the room
                held = used_part(memoryview(self._rooms[sample_id])).tobytes()
            known = unpack(held, file)
        return known, file

    def keep(self, sample_id: int, file: FileSum | None, known: Points, found: Points) -> None:
        """Keep what was found beyond what was known."""
        if not self._keeps or file is None or found.num_rows <= known.num_rows:
            return
        index = pack(found, file)
        if len(index) > self._room_bytes:  # what a source has stored of a part of the rows has grown
            return
        with self._lock:
            if self._rooms is None:
                self._rooms = _zeros(self._num_samples, self._room_bytes)
            self._rooms[sample_id, : len(index)] = np.frombuffer(index, np.uint8)


def _zeros(*shape: int) -> npt.NDArray[np.uint8]:
    """`np.zeros`, which would ask Linux for pages of 2 MB: one for each JPEG, of which an index fills some KB."""
    size = math.prod(shape)
    # a process that forks keeps its own
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    return np.frombuffer(mmap.mmap(-1, size, **private), np.uint8).reshape(shape)
