"""What the codecs share: checking what is handed in, and going by where it lies."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.trainer.codecs.arrays import Array, Memory, Slice, empty_like, flat, is_tensor, payload_of, same_place


@dataclass(frozen=True)
class BaseCodec(ABC):
    """The methods of `Codec` in terms of those that a codec family has."""

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
        """`encode_into` on the CPU, after all checks."""

    @abstractmethod
    def decode_memory(self, payload: Memory, values: Memory, add: bool) -> None:
        """`decode_into` on the CPU, after all checks."""

    @abstractmethod
    def encode_on_device(self, slices: Sequence[Slice]) -> Any:
        """`encode_slices` on a CUDA device, after all checks."""

    @abstractmethod
    def decode_on_device(self, slices: Sequence[Slice], add: bool) -> None:
        """Each slice's payloads, as many for all, over its values or in addition to them; on a CUDA device."""

    @abstractmethod
    def bound(self, x: npt.NDArray[np.float64], absmax: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """`error_bound` of finite numbers but for rounding in float32; `absmax` is that of each one's block."""

    def encode(self, x: Array) -> Any:
        """A new payload."""
        values = flat(x, "float32", "x", copy=True)
        payload = empty_like(values.owner, self.num_bytes(values.num), "uint8")
        self.encode_slices([values.owner], [payload])
        return payload

    def decode(self, payload: Array) -> Any:
        """(num,) float32, new."""
        memory = flat(payload, "uint8", "payload", copy=True)
        values = empty_like(memory.owner, self.num_values(memory), "float32")
        self.decode_slices([memory.owner], [values])
        return values

    def encode_into(self, x: Array, payload: Array) -> int:
        """Encode into (num_bytes(num),) `payload`; returns how many numbers were not finite."""
        one = self._checked(x, "x", payload)
        if one.values.device is None:
            return self.encode_memory(one.values, one.payloads[0])
        return int(self.encode_on_device([one]))

    def decode_into(self, payload: Array, out: Array, *, add: bool = False) -> None:
        """Decode into `out`, or add to what it holds."""
        one = self._checked(out, "out", payload)
        if one.values.device is None:
            self.decode_memory(one.payloads[0], one.values, add)
        else:
            self.decode_on_device([one], add)

    def encode_slices(self, xs: Sequence[Array], payloads: Sequence[Array]) -> Any:
        """Encode each `x` into its payload; returns how many numbers were not finite."""
        slices = [self._checked(x, "x", payload) for x, payload in zip(xs, payloads, strict=True)]
        if slices and slices[0].values.device is not None:
            return self.encode_on_device(slices)
        return sum(self.encode_memory(one.values, one.payloads[0]) for one in slices)

    def decode_slices(self, payloads: Sequence[Array], outs: Sequence[Array]) -> None:
        """Decode each payload into its `out`."""
        self._decode([self._checked(out, "out", payload) for payload, out in zip(payloads, outs, strict=True)], False)

    def add_slices(self, payloads: Sequence[Array], out: Array) -> None:
        """Add what each payload decodes to to what `out` holds."""
        self._decode([self._checked(out, "out", *payloads)], True)

    def _decode(self, slices: Sequence[Slice], add: bool) -> None:
        if slices and slices[0].values.device is not None:
            self.decode_on_device(slices, add)
            return
        for one in slices:
            for payload in one.payloads:
                self.decode_memory(payload, one.values, add)

    def _checked(self, x: Array, name: str, *payloads: Array) -> Slice:
        values = flat(x, "float32", name)
        num_bytes = self.num_bytes(values.num)
        memories = tuple([payload_of(payload, num_bytes, values.num) for payload in payloads])
        for memory in memories:
            same_place(values, memory)
        return Slice(values, memories)

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
