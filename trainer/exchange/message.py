"""How the values of a slice become a message: payload, then control data, each from a 64-byte boundary on."""

from collections.abc import Hashable, Sequence
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from augpipe.trainer.codecs.error_feedback import ErrorFeedback

LINE = 64
"""Payloads and messages begin at multiples of this many bytes: aligned for any dtype and for vector loads."""

Count: TypeAlias = int | Tensor
"""A number; on a GPU a tensor of one, which stays there until somebody reads it and so waits for the device."""

HAS_NUMBA_CUDA = find_spec("numba_cuda") is not None
"""Whether kernels of ours can run on a GPU: values that are not encoded travel without them, too."""


def padded(num_bytes: int) -> int:
    """The next multiple of LINE."""
    return -(-num_bytes // LINE) * LINE


def on_gpu(values: Tensor) -> bool:
    """Whether what is done to `values` is only queued, so that the host is not to look at it before the step's end."""
    return values.is_cuda


def count_non_finite(values: Tensor) -> Count:
    """Values that are NaN or infinite."""
    # of values that the host may look at, a finite sum is the common case, and only another one worth a second look
    if not on_gpu(values) and bool(torch.isfinite(values.sum())):
        return 0
    count = torch.count_nonzero(values - values)  # NaN, and 0 of what is finite: half the launches of torch.isfinite
    return count if on_gpu(values) else int(count)


class Wire(Protocol):
    """Turns slices of one-dimensional values into payloads and back; values are float32, or the wire's dtype if wider.

    On a GPU what is given at once takes one launch, and nothing waits for it.
    """

    exact: bool
    """Whether decoding gives back the very values that were encoded."""

    def num_bytes(self, num: int) -> int:
        """Payload bytes of `num` values."""

    def view(self, payload: Tensor) -> Tensor:
        """(..., num_bytes) uint8 in the form that the other methods take."""

    def encode(self, slices: list[Tensor], payloads: list[Tensor], keys: Sequence[Hashable] = ()) -> Count | None:
        """Fill the payloads; returns how many values are not finite, or None if that is left to the caller.

        With `keys`, one a slice, what earlier payloads under a key lacked is added to its slice (in place) first.
        """

    def decode(self, payloads: list[Tensor], slices: list[Tensor]) -> None:
        """Overwrite the slices."""

    def mean(self, payloads: Tensor, values: Tensor) -> None:
        """The mean of one slice and all payloads, a row each, in its place; payloads are added in their order."""


class RawWire:
    """Values in the parameters' own dtype: "fp32" for float32 parameters, and never wider than the parameters."""

    def __init__(self, dtype: torch.dtype, values_dtype: torch.dtype) -> None:
        self._dtype = dtype
        self.exact = dtype == values_dtype

    def num_bytes(self, num: int) -> int:
        """The dtype's size each."""
        return num * self._dtype.itemsize

    def view(self, payload: Tensor) -> Tensor:
        """In the dtype."""
        return payload.view(self._dtype)

    def encode(self, slices: list[Tensor], payloads: list[Tensor], keys: Sequence[Hashable] = ()) -> Count | None:
        """Copy, rounding if the dtype is narrower; nothing is kept under `keys`.

        On a GPU, the caller counts: all slices of a bucket side by side take one pass.
        """
        torch._foreach_copy_(payloads, slices)
        return None if on_gpu(slices[0]) else sum(count_non_finite(values) for values in slices)

    def decode(self, payloads: list[Tensor], slices: list[Tensor]) -> None:
        """Copy."""
        torch._foreach_copy_(slices, payloads)

    def mean(self, payloads: Tensor, values: Tensor) -> None:
        """In the values' dtype; of finite numbers it is finite.

        All are divided before they are added, by the next power of two: that costs nothing, and changes no bit of the
        mean but where numbers are below the least normal one.
        """
        num = len(payloads) + 1
        share = 0.5 ** (num - 1).bit_length()
        factor = 1.0 / (share * num)
        # no operator of torch's adds rows in a stated order: float64, or no numba-cuda, takes one launch a row
        if on_gpu(values) and values.dtype == torch.float32 and HAS_NUMBA_CUDA:
            from augpipe.trainer.codecs import cuda

            cuda.add_rows(values, payloads.float(), share, factor)
            return
        values.mul_(share)
        for payload in payloads:
            values.add_(payload, alpha=share)
        if factor != 1.0:
            values.mul_(factor)


class CodecWire:
    """Values encoded by a codec, whose residuals are in `feedback`; no values take no bytes."""

    exact = False

    def __init__(self, feedback: ErrorFeedback) -> None:
        self._feedback = feedback
        self._codec = feedback.codec

    def num_bytes(self, num: int) -> int:
        """The codec's."""
        return self._codec.num_bytes(num) if num else 0

    def view(self, payload: Tensor) -> Tensor:
        """As it is."""
        return payload

    def encode(self, slices: list[Tensor], payloads: list[Tensor], keys: Sequence[Hashable] = ()) -> Count | None:
        """Encode."""
        filled = [i for i, values in enumerate(slices) if values.numel()]
        xs, outs = [slices[i] for i in filled], [payloads[i] for i in filled]
        count: Count
        if keys:
            count = self._feedback.encode_slices([keys[i] for i in filled], xs, outs)
        else:
            count = self._codec.encode_slices(xs, outs)
        return count

    def decode(self, payloads: list[Tensor], slices: list[Tensor]) -> None:
        """Decode."""
        filled = [i for i, values in enumerate(slices) if values.numel()]
        self._codec.decode_slices([payloads[i] for i in filled], [slices[i] for i in filled])

    def mean(self, payloads: Tensor, values: Tensor) -> None:
        """Decode and add, then divide: a sum beyond the range of float32 becomes NaN, which is counted."""
        if values.numel():
            self._codec.add_slices(payloads.unbind(), values)
            values.mul_(1.0 / (len(payloads) + 1))


class ControlData:
    """What travels with a payload: a count, a float64, which exchange it is of, and a bit for each parameter."""

    FIXED_BYTES = 24

    def __init__(self, num_flags: int) -> None:
        self._num_flags = num_flags
        self.num_bytes = self.FIXED_BYTES + -(-num_flags // 8)

    def message_bytes(self, payload_bytes: int) -> int:
        """Bytes of a message with such a payload and this behind it."""
        return padded(payload_bytes) + padded(self.num_bytes)

    def pack(
        self, count: Count, value: float | Tensor, flags: list[bool], *, tag: int = 0, out: Tensor | None = None
    ) -> Tensor:
        """(num_bytes,) uint8, new or `out`; on a GPU nothing waits for it. No flags are left as they are."""
        packed = torch.zeros(self.num_bytes, dtype=torch.uint8) if out is None else out
        packed[:8].view(torch.int64).fill_(count)
        packed[8:16].view(torch.float64).fill_(value)
        packed[16:24].view(torch.int64).fill_(tag)
        if flags:
            packed[self.FIXED_BYTES :].copy_(torch.from_numpy(np.packbits(flags)), non_blocking=True)
        return packed

    def unpack(self, packed: Tensor) -> tuple[Any, Any, Any, Any]:
        """The inverse of `pack`, on the CPU: count, value, flags, tag; lists where it has several rows."""
        array = packed.numpy()
        counts, tags = (array[..., start : start + 8].view(np.int64)[..., 0] for start in (0, 16))
        values = array[..., 8:16].view(np.float64)[..., 0]
        flags = np.unpackbits(array[..., self.FIXED_BYTES :], axis=-1, count=self._num_flags).view(bool)
        return counts.tolist(), values.tolist(), flags.tolist(), tags.tolist()
