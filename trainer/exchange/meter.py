"""Counts the bytes a rank sends, by payload class, a step and in total."""

from collections.abc import Callable
from threading import Lock

CLASSES = ("gradients", "weights", "exempt", "activations", "deltas", "control")
"""gradients: encoded gradients, and their encoded means on the way back; weights: slices of updated weights or encoded
updates; exempt: one-dimensional tensors that go uncompressed, either way; activations: features that split layers
exchange; deltas: their error deltas on the way back; control: masks, norms, flags, padding."""


class Meter:
    """Payload bytes that this rank handed to other ranks; what TCP adds is not in it. Safe to use from several
    threads. What `parts` count is in it, too."""

    def __init__(self, *parts: "Meter") -> None:
        self._lock = Lock()
        self._parts = parts
        self._own = dict.fromkeys(CLASSES, 0)
        self._reported = dict(self._own)

    def add(self, payload_class: str, num_bytes: int) -> None:
        """Count `num_bytes` sent."""
        with self._lock:
            self._own[payload_class] += num_bytes

    @property
    def total(self) -> dict[str, int]:
        """Bytes since construction, by class."""
        totals = [part.total for part in self._parts]
        with self._lock:
            return {name: num + sum(total[name] for total in totals) for name, num in self._own.items()}

    def since_last(self) -> dict[str, int]:
        """Bytes since this was last called, by class."""
        before, self._reported = self._reported, self.total
        return {name: num - before[name] for name, num in self._reported.items()}


def butterfly_bytes(num: int, world_size: int, num_bytes: Callable[[int], int]) -> float:
    """Bytes that one rank sends a step, on average over the ranks: 2 (K-1)/K of the encoded size of `num` values.

    Deep Image, section 3.1: it depends on the size of the model and hardly on the number of ranks.
    """
    return 2 * (world_size - 1) / world_size * num_bytes(num)
