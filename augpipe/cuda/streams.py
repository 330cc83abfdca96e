"""What the runtime asks of a device's streams and events, and the same for simulated kernels, which run at once."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Protocol

import torch

from augpipe.cuda.requirements import check_capability
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED


class Event(Protocol):
    """A place in a stream's work."""

    def query(self) -> bool:
        """Whether the device has passed it; never waits."""

    def synchronize(self) -> None:
        """Wait until the device has passed it."""


class Streams(Protocol):
    """One device's memory, and the order of the work on it. Safe from several threads."""

    @property
    def device(self) -> torch.device:
        """Where device memory lies."""

    def on_current(self) -> AbstractContextManager[int]:
        """Make the device the thread's current one; gives the `cudaStream_t` of the thread's current stream on it."""

    def aside(self) -> AbstractContextManager[None]:
        """Make a stream of this object's own the current one, for copies in parallel with the consumer's work."""

    def record(self) -> Event:
        """An event after all work that the current stream has been given."""

    def wait_for(self, event: Event) -> None:
        """Let the current stream's further work wait for an event; the host does not wait."""

    def pinned(self, num_bytes: int) -> torch.Tensor:
        """(num_bytes,) uint8 on the host that the device can copy from while the host goes on, content arbitrary.

        It may be dropped while a `copy_(..., non_blocking=True)` from it is under way: torch lends it out again only
        when the copy has passed.
        """

    def lend(self, tensor: torch.Tensor) -> None:
        """Tell torch's allocator that the current stream reads `tensor`, so that its owner may drop it at any time."""


class CudaStreams:
    """The streams of a CUDA device, as torch knows them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._is_capable = False

    @contextmanager
    def on_current(self) -> Generator[int, None, None]:
        with torch.cuda.device(self.device):
            self._require_capable()
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    "the current stream is being captured into a CUDA graph, and a batch is planned again each time. "
                    "Augment before the capture, into the tensor that the graph reads."
                )
            yield torch.cuda.current_stream(self.device).cuda_stream

    @contextmanager
    def aside(self) -> Generator[None, None, None]:
        with torch.cuda.stream(self._own):  # makes its device current, too
            yield

    def record(self) -> Event:
        # blocking: whoever waits for it leaves the core to the decoding threads
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def wait_for(self, event: Event) -> None:
        assert isinstance(event, torch.cuda.Event)
        torch.cuda.current_stream(self.device).wait_event(event)

    def pinned(self, num_bytes: int) -> torch.Tensor:
        # a thread's current device is the first one, and the first page-locked memory may begin a context there
        with torch.cuda.device(self.device):
            return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def lend(self, tensor: torch.Tensor) -> None:
        tensor.record_stream(torch.cuda.current_stream(self.device))

    def _require_capable(self) -> None:
        """Raise DeviceError where no kernel can be compiled for the device; asked once CUDA is initialised."""
        if not self._is_capable:
            check_capability(torch.cuda.get_device_capability(self.device), torch.cuda.get_device_name(self.device))
            self._is_capable = True

    @cached_property
    def _own(self) -> torch.cuda.Stream:
        # made when it is first used: until then this object does not initialise CUDA, and its process may fork
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]


class SimulatedStreams:
    """Host memory in the device's place, where each call has ended when it returns."""

    device = torch.device("cpu")

    def on_current(self) -> AbstractContextManager[int]:
        return nullcontext(0)

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def record(self) -> Event:
        return _Passed()

    def wait_for(self, event: Event) -> None:
        assert event.query()

    def pinned(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def lend(self, tensor: torch.Tensor) -> None:
        pass


class _Passed:
    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


def streams_of(device: torch.device) -> Streams:
    """The streams of a device that `require_device` gave."""
    if device.type == "cuda":
        return CudaStreams(device)
    assert IS_SIMULATED, f"{device} has no streams"
    return SimulatedStreams()
