"""Numbers of a GPU that the host wants, but not yet."""

import torch
from torch import Tensor


class HostCopy:
    """Numbers on their way to the host. Reading them waits for a GPU only if nothing queued later was waited for."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers
        self._arrived: torch.cuda.Event | None = None
        if numbers.is_cuda:
            self._numbers = torch.empty_like(numbers, device="cpu", pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._arrived = torch.cuda.current_stream(numbers.device).record_event()

    def read(self) -> Tensor:
        """The numbers on the CPU, once they are there."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._numbers
