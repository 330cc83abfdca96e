"""What the codecs share: checking what is handed in, and going by where it lies."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.trainer.codecs.arrays import Array, Memory, empty_like, flat, is_tensor, payload_of, same_place


@dataclass(frozen=True)
class BaseCodec(ABC):
    """The methods of `Codec` in terms of four that a codec family has."""

    name: str
    block: int | None = None

    @abstractmethod
    def num_bytes(self, num: int) -> int:
        """Bytes of the payload of `num` numbers."""

    @abstractmethod
    def num_values(self, payload: Memory) -> int:
        """How many numbers a payload holds; `ValueError` for a length that no number of values has."""

    @abstractmethod
    def encode_memory(self, values: Memory, payload: Memory) -> int:
        """`encode_into` after all checks."""

    @abstractmethod
    def decode_memory(self, payload: Memory, values: Memory, add: bool) -> None:
        """`decode_into` after all checks."""

    @abstractmethod
    def bound(self, x: npt.NDArray[np.float64], absmax: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """`error_bound` of finite numbers but for rounding in float32; `absmax` is that of each one's block."""

    def encode(self, x: Array) -> Any:
        """A new payload."""
        values = flat(x, "float32", "x", copy=True)
        payload = empty_like(values.owner, self.num_bytes(values.num), "uint8")
        self.encode_memory(values, flat(payload, "uint8", "payload"))
        return payload

    def decode(self, payload: Array) -> Any:
        """(num,) float32, new."""
        memory = flat(payload, "uint8", "payload", copy=True)
        values = empty_like(memory.owner, self.num_values(memory), "float32")
        self.decode_memory(memory, flat(values, "float32", "values"), False)
        return values

    def encode_into(self, x: Array, payload: Array) -> int:
        """Encode into (num_bytes(num),) `payload`; returns how many numbers were not finite."""
        values = flat(x, "float32", "x")
        memory = payload_of(payload, self.num_bytes(values.num), values.num)
        same_place(values, memory)
        return self.encode_memory(values, memory)

    def decode_into(self, payload: Array, out: Array, *, add: bool = False) -> None:
        """Decode into `out`, or add to what it holds."""
        values = flat(out, "float32", "out")
        memory = payload_of(payload, self.num_bytes(values.num), values.num)
        same_place(values, memory)
        self.decode_memory(memory, values, add)

    def error_bound(self, x: Array) -> npt.NDArray[np.float32]:
        """For each number, what |decoded - x| is at most; NaN in blocks that hold a number that is not finite."""
        memory = flat(x, "float32", "x", copy=True)
        numbers = (memory.owner.cpu().numpy() if is_tensor(memory.owner) else memory.owner).astype(np.float64)
        absmax = np.abs(numbers)
        if self.block is not None or self.shares_scale:
            starts = np.arange(0, len(numbers), self.block or max(len(numbers), 1))
            if len(starts):
                lengths = np.diff(np.append(starts, len(numbers)))
                absmax = np.repeat(np.maximum.reduceat(absmax, starts), lengths)  # a NaN stays one
        with np.errstate(invalid="ignore"):
            # two roundings to float32 on the way, and denormal numbers
            limit = self.bound(numbers, absmax) * (1 + 2.0**-20) + np.abs(numbers) * 2.0**-22 + 2.0**-148
            limit = np.minimum(limit, float(np.finfo(np.float32).max))
            return np.where(np.isfinite(absmax), limit, np.nan).astype(np.float32)

    @property
    def shares_scale(self) -> bool:
        """Whether numbers share a scale."""
        return True


def blocks_of(num: int, block: int | None) -> int:
    """Scales that `num` numbers have."""
    return math.ceil(num / block) if block else min(num, 1)
