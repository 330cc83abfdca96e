"""The one-bit codec of Seide, Fu, Droppo, Li and Yu, 1-Bit Stochastic Gradient Descent, 2014."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.codec.leaves import HEADER_BYTES
from augpipe.gpu_ops.codec.one_bit import MEANS_BYTES, decode_signs, encode_signs
from augpipe.trainer.codecs.arrays import Memory, Slice
from augpipe.trainer.codecs.base_codec import Codec, blocks_of, check_header, num_in_header


@dataclass(frozen=True)
class OneBitCodec(Codec):
    """A bit a number: its sign, decoded to the mean of its block's numbers >= 0 or to that of those below.

    |error| <= the absmax of the block, which is as much as the number itself may be: use it with `ErrorFeedback`, as
    the paper does. The paper takes a column of a weight matrix for a block.

    Payload: how many numbers (int64), two means a block (float32), all little-endian, then the signs: bit i % 8 of byte
    i // 8 is 1 where number i is >= 0. Means are NaN for a block that held a number that was not finite. The means are
    sums in float64, whose order depends on the CPU: two CPUs may differ in the last bit of a mean.
    """

    name: str = "one-bit"
    block: int | None = 256

    def num_bytes(self, num: int) -> int:
        """Eight, eight a block, and one for eight numbers."""
        return HEADER_BYTES + MEANS_BYTES * blocks_of(num, self.block) + -(-num // 8)

    def num_values(self, payload: Memory) -> int:
        """What the payload says, if that goes with its length."""
        return num_in_header(self, payload)

    def encode_memory(self, values: Memory, payload: Memory) -> int:
        """Means and signs."""
        return int(encode_signs(values.address, payload.address, values.num, self.block or max(values.num, 1)))

    def decode_memory(self, payload: Memory, values: Memory, add: bool) -> None:
        """One of two means for each bit."""
        check_header(self, payload, values.num)
        decode_signs(payload.address, values.address, values.num, self.block or max(values.num, 1), add)

    def encode_on_device(self, slices: Sequence[Slice]) -> Any:
        """Means and signs."""
        from augpipe.gpu_ops.codec.cuda import launch as codec_launch
        from augpipe.trainer.codecs import cuda

        place = slices[0].values
        with cuda.launch(slices, self.block, scale_bytes=MEANS_BYTES, header_bytes=HEADER_BYTES) as launch:
            count, scratch = cuda.zeros(place, 1), cuda.zeros(place, launch.slices.partial_bytes // 4)
            codec_launch.encode_signs(launch, count.data_ptr(), scratch.data_ptr())
        return count[0]

    def decode_on_device(self, slices: Sequence[Slice], add: bool) -> None:
        """One of two means for each bit; NaN where a payload's header says another number: the host reads none."""
        from augpipe.gpu_ops.codec.cuda import launch as codec_launch
        from augpipe.trainer.codecs import cuda

        with cuda.launch(slices, self.block, scale_bytes=MEANS_BYTES, header_bytes=HEADER_BYTES) as launch:
            codec_launch.decode("decode_signs", launch, add)

    def bound(self, x: npt.NDArray[np.float64], absmax: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The absmax."""
        return absmax
