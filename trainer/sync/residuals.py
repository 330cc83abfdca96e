"""What encoding left out, kept to be sent the next time."""

import torch
from torch import Tensor

from augpipe.trainer.sync.wire import Wire


class Residuals:
    """Error feedback for the slices of one bucket: what is written is the value plus what earlier payloads lacked of
    it."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}

    def write(self, wire: Wire, owner: int, values: Tensor, payload: Tensor) -> int:
        """As `Wire.write`, with the residual added to `values` (in place) first; returns how many are not finite."""
        kept = self._kept.get(owner)
        if kept is None:
            kept = self._kept[owner] = torch.zeros_like(values)
        values.add_(kept)
        count = wire.write(values, payload)
        before = kept.clone() if count else None
        wire.read(payload, kept)
        torch.sub(values, kept, out=kept)
        if before is not None:  # what was not finite tells nothing about the error: those keep what they had
            torch.where(torch.isfinite(kept), kept, before, out=kept)
        return count

    def scale(self, factor: float) -> None:
        """Bring the residuals to another loss scale; 0 drops them."""
        for kept in self._kept.values():
            if factor:
                kept.mul_(factor)
            else:
                kept.zero_()  # whatever it is: zero times infinity is not

    def state(self) -> dict[int, Tensor]:
        """Residual by owner; not copied."""
        return dict(self._kept)

    def load(self, state: dict[int, Tensor], device: torch.device) -> None:
        """Take up copies, on the device that the slices lie on."""
        self._kept = {owner: residual.detach().to(device, copy=True) for owner, residual in state.items()}
