"""What every codec does: float32 to bytes and back, checked, and wherever the numbers lie."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.codec.leaves import HEADER_BYTES
from augpipe.trainer.codecs.arrays import Array, Memory, Slice, empty_like, flat, is_tensor, payload_of, same_place


@dataclass(frozen=True)
class Codec(ABC):
    """Encodes float32 numbers into a payload of bytes that can be decoded without anything else.

    Values are float32 numpy arrays or torch tensors (CPU, or CUDA: then on the current stream) of any shape, taken as
    one run; payloads are uint8, one-dimensional, of the same kind and on the same device. A codec holds no state: any
    number of threads may use it at a time, and it compares equal to another with the same name and block.

    Numbers that are not finite are never encoded into nonsense. With one scale for a block of numbers the whole block
    decodes to NaN; fp32 and bf16 hand infinities and NaN on one by one.
    """

    name: str
    """The name that `codec(name)` takes."""
    block: int | None = None
    """Numbers that share a scale; None for one scale for all, or for codecs without scales."""

    @abstractmethod
    def num_bytes(self, num: int) -> int:
        """Bytes of the payload of `num` numbers; does not depend on the numbers."""

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
        """`error_bound` of finite numbers except for rounding in float32; `absmax` is that of each one's block."""

    def encode(self, x: Array) -> Any:
        """A new payload."""
        values = flat(x, "float32", "x", copy=True)
        payload = empty_like(values.owner, self.num_bytes(values.num), "uint8")
        self.encode_slices([values.owner], [payload])
        return payload

    def decode(self, payload: Array) -> Any:
        """(num,) float32, new; `ValueError` for a payload whose length no number of values has."""
        memory = flat(payload, "uint8", "payload", copy=True)
        values = empty_like(memory.owner, self.num_values(memory), "float32")
        self.decode_slices([memory.owner], [values])
        return values

    def encode_into(self, x: Array, payload: Array) -> int:
        """Encode into (num_bytes(num),) `payload`, without allocating; returns how many numbers were not finite.

        On the CPU the GIL is free meanwhile. For CUDA tensors, the count makes the host wait for the stream.
        """
        one = self._checked(x, "x", payload)
        if one.values.device is None:
            return self.encode_memory(one.values, one.payloads[0])
        return int(self.encode_on_device([one]))

    def decode_into(self, payload: Array, out: Array, *, add: bool = False) -> None:
        """Decode into `out`, float32 with as many numbers as were encoded; with `add`, add to what it holds."""
        one = self._checked(out, "out", payload)
        if one.values.device is None:
            self.decode_memory(one.payloads[0], one.values, add)
        else:
            self.decode_on_device([one], add)

    def encode_slices(self, xs: Sequence[Array], payloads: Sequence[Array]) -> Any:
        """`encode_into` of each `x` and its payload; of CUDA tensors, which lie on one device, in one launch.

        Returns how many numbers were not finite: an int, or for CUDA tensors a tensor, which nothing has waited for.
        """
        slices = [self._checked(x, "x", payload) for x, payload in zip(xs, payloads, strict=True)]
        if slices and slices[0].values.device is not None:
            return self.encode_on_device(slices)
        return sum(self.encode_memory(one.values, one.payloads[0]) for one in slices)

    def decode_slices(self, payloads: Sequence[Array], outs: Sequence[Array]) -> None:
        """`decode_into` of each payload and its `out`, as above."""
        self._decode([self._checked(out, "out", payload) for payload, out in zip(payloads, outs, strict=True)], False)

    def add_slices(self, payloads: Sequence[Array], out: Array) -> None:
        """Add what each payload decodes to, in their order, to what `out` holds; as above."""
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


def num_in_header(codec: Codec, payload: Memory) -> int:
    """How many numbers a payload's first eight bytes say, int64; `ValueError` where that does not go with its size."""
    if payload.num >= HEADER_BYTES:
        head = payload.owner[:HEADER_BYTES]
        num = int.from_bytes((head.cpu().numpy() if is_tensor(head) else head).tobytes(), "little", signed=True)
        if num >= 0 and codec.num_bytes(num) == payload.num:
            return num
    raise ValueError(
        f"payload has {payload.num} bytes, and its header does not say that many numbers with {codec.name}, "
        f"block={codec.block}. It was cut, or encoded by another codec."
    )


def check_header(codec: Codec, payload: Memory, num: int) -> None:
    """`ValueError` where a payload's header says another number than `num`."""
    held = num_in_header(codec, payload)
    if held != num:
        raise ValueError(f"payload holds {held} numbers and out {num}: sizes must agree.")


def blocks_of(num: int, block: int | None) -> int:
    """Scales that `num` numbers have."""
    return math.ceil(num / block) if block else min(num, 1)
