"""Error feedback: what encoding loses of one gradient is added to the next one (Seide et al., 2014)."""

import sys
import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from augpipe.trainer.codecs.arrays import Array, empty_like, flat, is_tensor
from augpipe.trainer.codecs.protocol import Codec


@dataclass
class _Slot:
    residual: Array
    total: Array
    """Scratch: x + residual, then what is left of it."""
    decoded: Array
    """Scratch."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class ErrorFeedback:
    """A codec with a residual for each key, say one for each slice of a bucket that goes to another rank.

    Threads may encode at the same time; those with one key wait for each other. A key's residual has the size, kind and
    device of the numbers it was first used with, and takes three times their memory with its scratch.
    """

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._slots: dict[Hashable, _Slot] = {}
        self._lock = threading.Lock()

    def encode_into(self, key: Hashable, x: Array, payload: Array) -> int:
        """Encode x + residual, and keep x + residual - decoded; returns how many numbers were not finite.

        `x` is left as it is. Where the payload decodes to a number that is not finite, the residual stays what it was.
        """
        values = flat(x, "float32", "x").owner
        slot = self._slot(key, values)
        with slot.lock:
            if is_tensor(values):
                torch = sys.modules["torch"]
                torch.add(values, slot.residual, out=slot.total)
            else:
                np.add(values, slot.residual, out=slot.total)
            num_non_finite = self.codec.encode_into(slot.total, payload)
            self.codec.decode_into(payload, slot.decoded)
            if is_tensor(values):
                torch.sub(slot.total, slot.decoded, out=slot.total)
                if num_non_finite:
                    torch.where(slot.decoded.isfinite(), slot.total, slot.residual, out=slot.residual)
                    return num_non_finite
            else:
                with np.errstate(invalid="ignore"):  # infinity less infinity; looked at below
                    np.subtract(slot.total, slot.decoded, out=slot.total)
                if num_non_finite:
                    np.copyto(slot.residual, slot.total, where=np.isfinite(slot.decoded))
                    return num_non_finite
            slot.residual, slot.total = slot.total, slot.residual
        return num_non_finite

    def residual(self, key: Hashable) -> Any:
        """A copy of a key's residual; KeyError for a key that was never encoded."""
        slot = self._slots[key]
        with slot.lock:
            return _copy(slot.residual)

    def state_dict(self) -> dict[Hashable, Any]:
        """A copy of each key's residual."""
        with self._lock:
            keys = list(self._slots)
        return {key: self.residual(key) for key in keys}

    def load_state_dict(self, state: Mapping[Hashable, Array]) -> None:
        """Take on residuals, (num,) float32 each, in place of all there were; they are copied."""
        slots = {key: _slot(flat(residual, "float32", f"residual of {key!r}").owner) for key, residual in state.items()}
        with self._lock:
            self._slots = slots

    def _slot(self, key: Hashable, values: Array) -> _Slot:
        with self._lock:
            slot = self._slots.get(key)
            if slot is None:
                zeros = empty_like(values, len(values), "float32")
                zeros[:] = 0.0
                slot = self._slots[key] = _slot(zeros)
        kept = flat(slot.residual, "float32", "residual")
        given = flat(values, "float32", "x")
        if (kept.num, kept.device, is_tensor(kept.owner)) != (given.num, given.device, is_tensor(given.owner)):
            raise ValueError(
                f"x for key {key!r} has {given.num} numbers, and its residual {kept.num}, or they are of another kind "
                "or device. Use another key, or a new ErrorFeedback."
            )
        return slot


def _slot(residual: Array) -> _Slot:
    num = len(residual)
    return _Slot(_copy(residual), empty_like(residual, num, "float32"), empty_like(residual, num, "float32"))


def _copy(x: Array) -> Any:
    return x.clone() if is_tensor(x) else x.copy()
