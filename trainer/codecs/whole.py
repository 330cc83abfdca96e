"""The codecs without a scale: float32 as it is, and bfloat16."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.codec.loops import decode_bfloat16, decode_float32, encode_bfloat16, encode_float32
from augpipe.trainer.codecs.arrays import Memory, Slice
from augpipe.trainer.codecs.base_codec import Codec


@dataclass(frozen=True)
class Float32Codec(Codec):
    """The numbers' own bytes, four each, little-endian: no error; infinities and NaN come out as they went in."""

    name: str = "fp32"

    def num_bytes(self, num: int) -> int:
        """Four a number."""
        return 4 * num

    def num_values(self, payload: Memory) -> int:
        """A quarter of the bytes."""
        return _items(payload, 4, self.name)

    def encode_memory(self, values: Memory, payload: Memory) -> int:
        """Copy and count."""
        return int(encode_float32(values.address, payload.address, values.num))

    def decode_memory(self, payload: Memory, values: Memory, add: bool) -> None:
        """Copy or add."""
        decode_float32(payload.address, values.address, values.num, add)

    def encode_on_device(self, slices: Sequence[Slice]) -> Any:
        """Copy and count, by torch's own operators."""
        for one in slices:
            one.payloads[0].owner.copy_(one.values.owner.view(one.payloads[0].owner.dtype))
        return sum((~one.values.owner.isfinite()).sum() for one in slices)

    def decode_on_device(self, slices: Sequence[Slice], add: bool) -> None:
        """Copy or add, as above."""
        for one in slices:
            for payload in one.payloads:
                if add:  # of a copy, which torch can view as float32 wherever the payload lies
                    one.values.owner.add_(payload.owner.clone().view(one.values.owner.dtype))
                else:
                    one.values.owner.view(payload.owner.dtype).copy_(payload.owner)

    def bound(self, x: npt.NDArray[np.float64], absmax: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Zero."""
        return np.zeros_like(x)

    @property
    def shares_scale(self) -> bool:
        """No scale."""
        return False


@dataclass(frozen=True)
class Bfloat16Codec(Codec):
    """bfloat16, two bytes each, little-endian: |error| <= 2^-8 |x|, and 2^-134 below the normal numbers (2^-126).

    Halves round to even. A finite number stays finite: the largest ones go to the largest bfloat16 and not, as torch's
    cast has it, to infinity. Infinities and NaN come out as they went in.
    """

    name: str = "bf16"

    def num_bytes(self, num: int) -> int:
        """Two a number."""
        return 2 * num

    def num_values(self, payload: Memory) -> int:
        """Half the bytes."""
        return _items(payload, 2, self.name)

    def encode_memory(self, values: Memory, payload: Memory) -> int:
        """Round and count."""
        return int(encode_bfloat16(values.address, payload.address, values.num))

    def decode_memory(self, payload: Memory, values: Memory, add: bool) -> None:
        """Widen, and add if asked to."""
        decode_bfloat16(payload.address, values.address, values.num, add)

    def encode_on_device(self, slices: Sequence[Slice]) -> Any:
        """Round and count."""
        from augpipe.gpu_ops.codec.cuda import launch as codec_launch
        from augpipe.gpu_ops.codec.cuda.chunks import CHUNK
        from augpipe.trainer.codecs import cuda

        with cuda.launch(slices, CHUNK) as launch:
            count = cuda.zeros(slices[0].values, 1)
            codec_launch.encode_bfloat16(launch, count.data_ptr())
        return count[0]

    def decode_on_device(self, slices: Sequence[Slice], add: bool) -> None:
        """Widen, and add if asked to."""
        from augpipe.gpu_ops.codec.cuda import launch as codec_launch
        from augpipe.gpu_ops.codec.cuda.chunks import CHUNK
        from augpipe.trainer.codecs import cuda

        with cuda.launch(slices, CHUNK) as launch:
            codec_launch.decode("decode_bfloat16", launch, add)

    def bound(self, x: npt.NDArray[np.float64], absmax: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Half a unit in the last of eight binary places."""
        return np.maximum(np.abs(x) * 2.0**-8, 2.0**-134)

    @property
    def shares_scale(self) -> bool:
        """No scale."""
        return False


def _items(payload: Memory, item_bytes: int, name: str) -> int:
    if payload.num % item_bytes:
        raise ValueError(f"payload has {payload.num} bytes: those of {name} are a multiple of {item_bytes}.")
    return payload.num // item_bytes
