"""The 4-bit codec: one scale a block, two codes a byte."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.codec.four_bit import LEVELS, RUN, bytes_of_block, decode_nibbles, encode_nibbles
from augpipe.gpu_ops.codec.leaves import HEADER_BYTES
from augpipe.trainer.codecs.arrays import Memory, Slice
from augpipe.trainer.codecs.base_codec import Codec, blocks_of, check_header, num_in_header
from augpipe.trainer.codecs.codebooks import Codebook
from augpipe.trainer.codecs.lookup import NUM_DECADES, decade_bounds

SCALE_BYTES = 4

_LEVELS: Codebook = np.array(LEVELS, np.float32)
_LEVELS.flags.writeable = False
_BOUNDS = decade_bounds(_LEVELS)


@dataclass(frozen=True)
class FourBitCodec(Codec):
    """NormalFloat (NF4) of Dettmers, Pagnoni, Holtzman and Zettlemoyer, QLoRA, 2023: 16 quantiles of a normal
    distribution, scaled by the absolute maximum (absmax) of each block of numbers.

    A number is divided by its block's absmax in float32 and gets the code of the nearest level; a number midway gets
    that of the smaller magnitude. Decoding multiplies the level by the absmax. With a the absmax of its block, a number
    is off by at most this share of a, and 2^-22 of itself for rounding in float32; use it with `ErrorFeedback`:

    ============  ========  ========  ========  ========
    |x| / a from  0.1       0.01      1e-3      0
    ============  ========  ========  ========  ========
    nf4           1.52e-1   4.56e-2   1.00e-2   1.00e-3
    ============  ========  ========  ========  ========

    Payload: how many numbers (int64), ceil(num / block) scales (float32), all little-endian, then the codes, two a
    byte, the first number's in the lower half. Each block's codes begin with a byte; where its numbers are odd, the
    upper half of its last one is zero. A scale that is NaN says that its block held a number that was not finite.
    """

    name: str = "nf4"
    block: int | None = 256

    @property
    def codebook(self) -> Codebook:
        """(16,) float32 in -1..1, ascending: what each code means, in units of the absmax; read-only."""
        return _LEVELS

    def num_bytes(self, num: int) -> int:
        """Eight, four a block, and one for two numbers of a block."""
        block = self._block_of(num)
        codes = num // block * bytes_of_block.py_func(block) + bytes_of_block.py_func(num % block)
        return HEADER_BYTES + SCALE_BYTES * blocks_of(num, self.block) + int(codes)

    def num_values(self, payload: Memory) -> int:
        """What the payload says, if that goes with its length."""
        return num_in_header(self, payload)

    def encode_memory(self, values: Memory, payload: Memory) -> int:
        """Scales and codes."""
        scratch = np.empty(RUN, np.int32)
        block = self._block_of(values.num)
        return int(encode_nibbles(values.address, payload.address, values.num, block, scratch.ctypes.data))

    def decode_memory(self, payload: Memory, values: Memory, add: bool) -> None:
        """Level times scale."""
        check_header(self, payload, values.num)
        block = self._block_of(values.num)
        decode_nibbles(payload.address, values.address, values.num, block, _LEVELS.ctypes.data, add)

    def encode_on_device(self, slices: Sequence[Slice]) -> Any:
        """Scales and codes."""
        from augpipe.gpu_ops.codec.cuda import launch as codec_launch
        from augpipe.trainer.codecs import cuda

        place = slices[0].values
        with cuda.launch(slices, self.block, scale_bytes=SCALE_BYTES, header_bytes=HEADER_BYTES) as launch:
            count, scratch = cuda.zeros(place, 1), cuda.zeros(place, launch.slices.num_absmax)
            codec_launch.encode_nibbles(launch, count.data_ptr(), scratch.data_ptr())
        return count[0]

    def decode_on_device(self, slices: Sequence[Slice], add: bool) -> None:
        """Level times scale; NaN where a payload's header says another number: the host reads none."""
        from augpipe.gpu_ops.codec.cuda import launch as codec_launch
        from augpipe.trainer.codecs import cuda

        with cuda.launch(slices, self.block, scale_bytes=SCALE_BYTES, header_bytes=HEADER_BYTES) as launch:
            levels = cuda.on_device(f"{self.name} levels", _LEVELS, slices[0].values)
            codec_launch.decode("decode_nibbles", launch, add, levels)

    def bound(self, x: npt.NDArray[np.float64], absmax: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """That of the decade below its block's absmax in which a number lies; see the table above."""
        share = np.abs(x) / np.where(absmax > 0, absmax, 1.0)
        decades = np.searchsorted(-(10.0 ** -np.arange(1.0, NUM_DECADES + 1)), -share, side="left")
        return _BOUNDS[decades] * absmax

    def _block_of(self, num: int) -> int:
        return self.block or max(num, 1)
