"""Images that threads decode on the host, on their way to the device: straight into pinned memory, then copied.

A batch's images go into segments of one size. Threads fill them; the one that finishes the batch starts the copies,
which run on a stream of their own, in parallel with the consumer's work. The consumer's stream waits for them before
the launch.
Both sides' memory comes from torch's caching allocators, which know when a copy has passed: the segments of finished
batches are used again, and nothing is allocated once as many of them exist as are in use at a time.
"""

import threading

import numpy as np
import numpy.typing as npt
import torch

from augpipe.cuda.failures import allocate
from augpipe.cuda.streams import Event, Streams, streams_of

SEGMENT_BYTES = 32 << 20
"""One copy moves this much: long enough for the bus's full rate; 45 images of 500x375 pixels in RGBX."""

ALIGNMENT_BYTES = 128
"""Each image starts on a cache line of the device."""


class StagingPool:
    """Makes staging batches for one device; safe from several threads.

    Args:
        device: as `require_device` gives it.
        segment_bytes: images that need more get a segment of their own, a multiple of this.
        streams: the device's; None to ask torch for them.
    """

    def __init__(
        self, device: torch.device, *, segment_bytes: int = SEGMENT_BYTES, streams: Streams | None = None
    ) -> None:
        self._streams = streams or streams_of(device)
        self._segment_bytes = segment_bytes

    def take(self) -> "StagingBatch":
        """An empty batch; dropping it gives its memory back."""
        return StagingBatch(self._streams, self._segment_bytes)


class StagingBatch:
    """The decoded images of one batch, by their position in it, and its label maps, by the inverted bits of theirs.

    `room` is called by any thread until `copy`, and `copy` once, when all rooms are filled. Then `wait` and `addresses`
    serve the launch. It owns the device memory: keep it until the device has passed the launch (`DeviceRenderer` does,
    given it in `keep`).
    """

    def __init__(self, streams: Streams, segment_bytes: int) -> None:
        self._streams = streams
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._segments: list[_Segment] = []
        self._open: _Segment | None = None
        self._places: dict[int, tuple[_Segment, int]] = {}
        self._copied: Event | None = None

    def room(self, position: int, num_bytes: int) -> npt.NDArray[np.uint8]:
        """(num_bytes,) uint8 of pinned memory for the image at `position`, content arbitrary.

        Asking again for a position gives it another room, as where an image is replaced by one of another size.
        """
        with self._lock:
            assert self._copied is None, "the batch is on its way already"
            segment = self._segment_for(num_bytes)
            first = segment.used_bytes
            segment.used_bytes = -(-(first + num_bytes) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            self._places[position] = segment, first
            return segment.host[first : first + num_bytes]

    def copy(self) -> None:
        """Start the copies to the device; the host does not wait for them.

        Raises:
            torch.OutOfMemoryError: the device is full; the message says for what.
        """
        with self._lock, self._streams.aside():
            assert self._copied is None, "a batch is copied once"
            for segment in self._segments:
                segment.copy(self._streams)
            self._copied = self._streams.record()

    def wait(self) -> None:
        """Let the current stream's further work wait for the copies; the host does not wait."""
        assert self._copied is not None, "the copies have not been started"
        self._streams.wait_for(self._copied)

    def address(self, position: int) -> int:
        """The device address of the image at `position`, after `copy`; a multiple of 128."""
        segment, first = self._places[position]
        assert segment.device is not None, "the copies have not been started"
        return segment.device.data_ptr() + first

    def tensor(self, position: int, num_bytes: int) -> torch.Tensor:
        """(num_bytes,) uint8 on the device, as `address` has it."""
        segment, first = self._places[position]
        assert segment.device is not None, "the copies have not been started"
        return segment.device[first : first + num_bytes]

    def _segment_for(self, num_bytes: int) -> "_Segment":
        """The open segment, or another one where it has no room left."""
        if self._open is None or self._open.num_bytes - self._open.used_bytes < num_bytes:
            size = -(-max(num_bytes, 1) // self._segment_bytes) * self._segment_bytes
            segment = _Segment(self._streams, size)
            self._segments.append(segment)
            if size > self._segment_bytes:
                return segment  # full at once: the open one keeps its room
            self._open = segment
        return self._open


class _Segment:
    def __init__(self, streams: Streams, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.used_bytes = 0
        self.device: torch.Tensor | None = None
        self._pinned: torch.Tensor | None = streams.pinned(num_bytes)
        self.host: npt.NDArray[np.uint8] = self._pinned.numpy()

    def copy(self, streams: Streams) -> None:
        assert self._pinned is not None
        device = allocate((self.num_bytes,), torch.uint8, streams.device, purpose="a batch's decoded photographs")
        device[: self.used_bytes].copy_(self._pinned[: self.used_bytes], non_blocking=True)
        self.device, self._pinned = device, None
        self.host = np.empty(0, np.uint8)  # the pinned memory is torch's again once the copy has passed
