"""Unaligned words of a byte array, and the bits of an entropy-coded stream.

A reader of the stream is three unsigned numbers: `position`, the next byte to load; `bits`, the next bits of the stream
from the highest one down; `count`, how many of them are valid in its lowest six bits, so that it may be decreased by
whole table entries whose lowest six bits say how many were taken.

Nothing is bounds-checked: a stream is followed by `STREAM_PADDING` zeros, and callers look where they are after each
block.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import int64, types, uint64
from numba.core import cgutils
from numba.extending import intrinsic

from augpipe.gpu_ops.jit import leaf

U = np.uint64

MAX_BLOCK_BYTES = 64 * 4
"""No block of 64 coefficients takes more: each is a code of up to 16 bits and up to 15 bits of value."""

STREAM_PADDING = 3 * MAX_BLOCK_BYTES
"""Zeros behind a stream, so that a block that begins before its end is read within memory."""


def _loader(*, swaps: bool) -> Any:
    @intrinsic
    def load(typingctx: Any, memory: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0])
            word = builder.load(builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(64).as_pointer()))
            word.align = 1
            return builder.bswap(word) if swaps else word

        return types.uint64(memory, offset), codegen

    return load


load_little_endian = _loader(swaps=False)
"""A function (uint8 array, offset) -> eight bytes as a uint64, the first one lowest."""

load_big_endian = _loader(swaps=True)
"""The same, the first one highest."""


@intrinsic
def store_little_endian(typingctx: Any, memory: Any, offset: Any, word: Any) -> Any:
    """A procedure (uint8 array, offset, uint64): eight bytes, the lowest first."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0])
        pointer = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(64).as_pointer())
        builder.store(args[2], pointer).align = 1
        return context.get_dummy_value()

    return types.void(memory, offset, types.uint64), codegen


@intrinsic
def trailing_zeros(typingctx: Any, word: Any) -> Any:
    """A function uint64 -> how many of its lowest bits are zero, 64 for 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@leaf
def marker_bytes(word):
    """The highest bit of the lowest byte that is 255, and perhaps of bytes above it; 0 where no byte is."""
    zero_bytes = ~word
    return (zero_bytes - U(0x0101010101010101)) & word & U(0x8080808080808080)


@leaf
def refill(stream, position, bits, count):
    """The reader with at least 56 valid bits."""
    loaded = bits | (load_big_endian(stream, position) >> (count & U(63)))
    return position + (((U(63) - count) >> U(3)) & U(7)), loaded, count | U(56)


@leaf
def extend(bits, size):
    """The signed number that the first `size` of `bits` (0 to 15) stand for: T.81, F.2.2.1."""
    sign = int64(~bits) >> 63
    magnitude = int64(((bits ^ uint64(sign)) >> U(1)) >> (U(63) - size))
    return (magnitude ^ sign) - sign
