"""How the values of a slice become a message: payload, then control data, each from a 64-byte boundary on."""

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from augpipe.trainer.codecs.protocol import Codec

LINE = 64
"""Payloads and messages begin at multiples of this many bytes: aligned for any dtype and for vector loads."""


def padded(num_bytes: int) -> int:
    """The next multiple of LINE."""
    return -(-num_bytes // LINE) * LINE


class Wire(Protocol):
    """Turns one-dimensional values into a payload and back; values are float32 (or the wire's own dtype, if wider)."""

    @property
    def exact(self) -> bool:
        """Reading gives back the very values that were written."""
        ...

    def num_bytes(self, num: int) -> int:
        """Payload bytes of `num` values."""
        ...

    def write(self, values: Tensor, payload: Tensor) -> int:
        """Fill `payload`; returns how many values are not finite."""
        ...

    def read(self, payload: Tensor, values: Tensor, *, add: bool = False) -> None:
        """Overwrite `values`, or add to them."""
        ...


class RawWire:
    """Values in the parameters' own dtype: "fp32" for float32 parameters, and never wider than the parameters."""

    def __init__(self, dtype: torch.dtype, values_dtype: torch.dtype) -> None:
        self._dtype = dtype
        self.exact = dtype == values_dtype

    def num_bytes(self, num: int) -> int:
        """The dtype's size each."""
        return num * self._dtype.itemsize

    def write(self, values: Tensor, payload: Tensor) -> int:
        """Copy, rounding if the dtype is narrower."""
        payload.view(self._dtype).copy_(values)
        # a finite sum of finite values is the common case; only another one is worth a second look
        return 0 if math.isfinite(float(values.sum())) else values.numel() - int(torch.isfinite(values).sum())

    def read(self, payload: Tensor, values: Tensor, *, add: bool = False) -> None:
        """Copy or add."""
        if add:
            values.add_(payload.view(self._dtype))
        else:
            values.copy_(payload.view(self._dtype))


class CodecWire:
    """Values encoded by a codec."""

    exact = False

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def num_bytes(self, num: int) -> int:
        """The codec's; no value takes no bytes."""
        return self._codec.num_bytes(num) if num else 0

    def write(self, values: Tensor, payload: Tensor) -> int:
        """Encode."""
        return self._codec.encode_into(values, payload) if values.numel() else 0

    def read(self, payload: Tensor, values: Tensor, *, add: bool = False) -> None:
        """Decode."""
        if values.numel():
            self._codec.decode_into(payload, values, add=add)


class Control:
    """What travels beside a payload: a count, a float64 and a bit for each parameter."""

    FIXED_BYTES = 16

    def __init__(self, num_flags: int) -> None:
        self._num_flags = num_flags
        self.num_bytes = self.FIXED_BYTES + -(-num_flags // 8)

    def pack(self, count: int, value: float, flags: list[bool]) -> Tensor:
        """(num_bytes,) uint8 on the CPU."""
        bits = np.packbits(np.array(flags, bool)) if flags else np.zeros(0, np.uint8)
        fixed = np.array([count], np.int64).tobytes() + np.array([value], np.float64).tobytes()
        packed = np.zeros(self.num_bytes, np.uint8)
        packed[: self.FIXED_BYTES] = np.frombuffer(fixed, np.uint8)
        packed[self.FIXED_BYTES : self.FIXED_BYTES + len(bits)] = bits
        return torch.from_numpy(packed)

    def unpack(self, packed: Tensor) -> tuple[int, float, list[bool]]:
        """The inverse of `pack`."""
        array = packed.cpu().numpy().copy()
        count = int(array[:8].view(np.int64)[0])
        value = float(array[8:16].view(np.float64)[0])
        flags = np.unpackbits(array[self.FIXED_BYTES :], count=self._num_flags).astype(bool).tolist()
        return count, value, flags
