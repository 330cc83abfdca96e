"""The 8-bit codecs: one scale a block, one code a number, the code's meaning in a codebook."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.codec.loops import RUN, decode_codes, encode_codes
from augpipe.trainer.codecs.arrays import Memory, Slice
from augpipe.trainer.codecs.base_codec import Codec, blocks_of
from augpipe.trainer.codecs.codebooks import CODEBOOKS, Codebook
from augpipe.trainer.codecs.lookup import NUM_DECADES, Lookup, build_lookup, decade_bounds

SCALE_BYTES = 4


@cache
def codebook_of(name: str) -> Codebook:
    """The codebook, built once; do not write to it."""
    codebook = CODEBOOKS[name]()
    codebook.flags.writeable = False
    return codebook


@cache
def lookup_of(name: str) -> Lookup:
    """The table of `codebook_of`, built once."""
    return build_lookup(codebook_of(name))


@cache
def bounds_of(name: str) -> npt.NDArray[np.float64]:
    """`lookup.decade_bounds` of the codebook."""
    return decade_bounds(codebook_of(name))


@dataclass(frozen=True)
class EightBitCodec(Codec):
    """An 8-bit type of `codebooks`, scaled by the absolute maximum (absmax) of each block of numbers.

    A number is divided by its block's absmax in float32 and gets the code of the nearest level; a number midway gets
    that of the smaller magnitude. Decoding multiplies the level by the absmax. With a the absmax of its block, a number
    is off by at most this share of a, and 2^-22 of itself for rounding in float32:

    ============  ========  ========  ========  ========  ========  ========  ========
    |x| / a from  0.1       0.01      1e-3      1e-4      1e-5      1e-6      0
    ============  ========  ========  ========  ========  ========  ========  ========
    dynamic-tree  8.60e-3   1.72e-3   3.44e-4   6.88e-5   1.38e-5   2.75e-6   1.00e-6
    dynamic-map   7.04e-3   1.41e-3   2.82e-4   5.63e-5   1.13e-5   2.25e-6   4.50e-7
    linear        3.94e-3   3.94e-3   3.94e-3   1.00e-3   1.00e-4   1.00e-5   1.00e-6
    mantissa      5.00e-2   5.00e-3   5.00e-4   5.00e-5   5.00e-6   5.00e-7   5.00e-8
    static-tree   3.44e-2   3.44e-3   3.44e-4   3.44e-5   3.44e-6   3.44e-7   3.44e-8
    ============  ========  ========  ========  ========  ========  ========  ========

    Payload: ceil(num / block) scales, float32 little-endian, then `num` codes, a byte each: the place in the sorted
    codebook. A scale that is NaN says that its block held a number that was not finite.
    """

    block: int | None = 256
    _lookup: Lookup = field(init=False, repr=False, compare=False)
    _levels: Codebook = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lookup", lookup_of(self.name))
        object.__setattr__(self, "_levels", codebook_of(self.name))

    @property
    def codebook(self) -> Codebook:
        """(256,) float32 in -1..1, ascending: what each code means, in units of the absmax; read-only."""
        return self._levels

    def num_bytes(self, num: int) -> int:
        """One a number and four a block."""
        return num + SCALE_BYTES * blocks_of(num, self.block)

    def num_values(self, payload: Memory) -> int:
        """The only number that has so many bytes."""
        if self.block is None:
            num = max(payload.num - SCALE_BYTES, 0)
        else:
            num = payload.num - SCALE_BYTES * blocks_of(payload.num, self.block + SCALE_BYTES)
        if self.num_bytes(num) != payload.num:
            raise ValueError(
                f"payload has {payload.num} bytes: no number of values has so many with {self.name}, "
                f"block={self.block}. It was cut, or encoded by another codec."
            )
        return num

    def encode_memory(self, values: Memory, payload: Memory) -> int:
        """Scales and codes."""
        table, scratch = self._lookup, np.empty(2 * RUN, np.int32)
        return int(
            encode_codes(
                values.address,
                payload.address,
                values.num,
                self.block or max(values.num, 1),
                table.entries.ctypes.data,
                table.first_bucket,
                table.num_buckets,
                scratch.ctypes.data,
            )
        )

    def decode_memory(self, payload: Memory, values: Memory, add: bool) -> None:
        """Level times scale."""
        block = self.block or max(values.num, 1)
        decode_codes(payload.address, values.address, values.num, block, self._levels.ctypes.data, add)

    def encode_on_device(self, slices: Sequence[Slice]) -> Any:
        """Scales and codes."""
        from augpipe.gpu_ops.codec.cuda import launch as codec_launch
        from augpipe.trainer.codecs import cuda

        place, table = slices[0].values, self._lookup
        with cuda.launch(slices, self.block, scale_bytes=SCALE_BYTES) as launch:
            entries = cuda.on_device(f"{self.name} entries", table.entries, place)
            count, scratch = cuda.zeros(place, 1), cuda.zeros(place, launch.slices.num_absmax)
            codec_launch.encode_codes(
                launch, count.data_ptr(), scratch.data_ptr(), entries, table.first_bucket, table.num_buckets
            )
        return count[0]

    def decode_on_device(self, slices: Sequence[Slice], add: bool) -> None:
        """Level times scale."""
        from augpipe.gpu_ops.codec.cuda import launch as codec_launch
        from augpipe.trainer.codecs import cuda

        with cuda.launch(slices, self.block, scale_bytes=SCALE_BYTES) as launch:
            levels = cuda.on_device(f"{self.name} levels", self._levels, slices[0].values)
            codec_launch.decode("decode_codes", launch, add, levels)

    def bound(self, x: npt.NDArray[np.float64], absmax: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """That of the decade below its block's absmax in which a number lies; see the table above."""
        share = np.abs(x) / np.where(absmax > 0, absmax, 1.0)
        decades = np.searchsorted(-(10.0 ** -np.arange(1.0, NUM_DECADES + 1)), -share, side="left")
        return bounds_of(self.name)[decades] * absmax
