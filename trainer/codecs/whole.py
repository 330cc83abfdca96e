"""The codecs without a scale: float32 as it is, and bfloat16."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.codec_loops import decode_bfloat16, decode_float32, encode_bfloat16, encode_float32
from augpipe.trainer.codecs.arrays import Memory
from augpipe.trainer.codecs.base import BaseCodec


@dataclass(frozen=True)
class Float32Codec(BaseCodec):
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
        if values.device is not None:
            return _encode_cuda(values, payload, 4)
        return int(encode_float32(values.address, payload.address, values.num))

    def decode_memory(self, payload: Memory, values: Memory, add: bool) -> None:
        """Copy or add."""
        if values.device is not None:
            _decode_cuda(payload, values, 4, add)
            return
        decode_float32(payload.address, values.address, values.num, add)

    def bound(self, x: npt.NDArray[np.float64], absmax: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Zero."""
        return np.zeros_like(x)

    @property
    def shares_scale(self) -> bool:
        """No scale."""
        return False


@dataclass(frozen=True)
class Bfloat16Codec(BaseCodec):
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
        if values.device is not None:
            return _encode_cuda(values, payload, 2)
        return int(encode_bfloat16(values.address, payload.address, values.num))

    def decode_memory(self, payload: Memory, values: Memory, add: bool) -> None:
        """Widen, and add if asked to."""
        if values.device is not None:
            _decode_cuda(payload, values, 2, add)
            return
        decode_bfloat16(payload.address, values.address, values.num, add)

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


def _encode_cuda(values: Memory, payload: Memory, item_bytes: int) -> int:
    from augpipe.gpu_ops.cuda import codec_launch
    from augpipe.trainer.codecs import cuda

    cuda.check_alignment(payload, item_bytes)
    with cuda.current_stream(values) as stream:
        count = cuda.zeros(values, 4)
        codec_launch.encode_whole(values.address, payload.address, count.data_ptr(), values.num, item_bytes, stream)
        return int(count)


def _decode_cuda(payload: Memory, values: Memory, item_bytes: int, add: bool) -> None:
    from augpipe.gpu_ops.cuda import codec_launch
    from augpipe.trainer.codecs import cuda

    cuda.check_alignment(payload, item_bytes)
    with cuda.current_stream(values) as stream:
        codec_launch.decode_whole(payload.address, values.address, values.num, item_bytes, add, stream)
