"""A device on the host whose events pass when a test says so, and which writes down what is asked of it."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from augpipe.cuda.streams import SimulatedStreams


class LaterEvent:
    """Passes when a test, or a wait, lets it; or raises what a lost device raises."""

    def __init__(self) -> None:
        self.has_passed = False
        self.num_waits = 0
        self.error: Exception | None = None

    def query(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.has_passed

    def synchronize(self) -> None:
        self.num_waits += 1
        if self.error is not None:
            raise self.error
        self.has_passed = True


class LaterStreams(SimulatedStreams):
    """Records its events, the tensors lent to it and the order of its calls."""

    def __init__(self) -> None:
        self.events: list[LaterEvent] = []
        self.lent: list[torch.Tensor] = []
        self.calls: list[str] = []
        self.num_pinned = 0

    @contextmanager
    def aside(self) -> Generator[None, None, None]:
        self.calls.append("aside")
        yield
        self.calls.append("back")

    def record(self) -> LaterEvent:
        self.calls.append("record")
        self.events.append(LaterEvent())
        return self.events[-1]

    def wait_for(self, event: Any) -> None:
        self.calls.append(f"wait for {self.events.index(event)}")

    def pinned(self, num_bytes: int) -> torch.Tensor:
        self.num_pinned += 1
        return super().pinned(num_bytes)

    def lend(self, tensor: torch.Tensor) -> None:
        self.lent.append(tensor)
