"""The median of the levels in a square, by a sorting network over bytes in registers."""

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 32
"""Medians that are found at once: 512-bit registers hold twice as many, and measured no faster."""


def exchanges(num: int) -> Iterator[tuple[int, int]]:
    """Which two of `num` to exchange where the first is larger, one after the other, until all are sorted.

    Source: Batcher's merge exchange, Knuth, The Art of Computer Programming, volume 3, 5.2.2, algorithm M.
    """
    first = 1 << ((num - 1).bit_length() - 1)
    p = first
    while p > 0:
        q, r, d = first, 0, p
        while True:
            yield from ((i, i + d) for i in range(num - d) if i & p == r)
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2


def _median(side: int) -> Any:
    @intrinsic
    def find(typingctx: Any, at_rows: Any, across: Any, at_found: Any) -> Any:
        """Write the medians of `BLOCK` squares of bytes.

        Args:
            at_rows: the address of `side` addresses, intp: of the first byte of the first square's rows.
            across: bytes from one column of a square to the next.
            at_found: address of the medians, written.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            bytes_type, address_type = ir.VectorType(ir.IntType(8), BLOCK), args[0].type
            addresses = builder.inttoptr(args[0], address_type.as_pointer())
            levels = []
            for down in range(side):
                row = builder.load(cgutils.gep_inbounds(builder, addresses, down))
                for nth in range(side):
                    at = builder.add(row, builder.mul(args[1], args[1].type(nth)))
                    levels.append(builder.load(builder.inttoptr(at, bytes_type.as_pointer()), align=1))
            for low, high in exchanges(side * side):  # LLVM leaves out what the median does not depend on
                first, second = levels[low], levels[high]
                in_order = builder.icmp_unsigned("<", first, second)
                levels[low] = builder.select(in_order, first, second)
                levels[high] = builder.select(in_order, second, first)
            out = builder.inttoptr(args[2], bytes_type.as_pointer())
            builder.store(levels[side * side // 2], out, align=1)
            return context.get_dummy_value()

        return types.void(types.uintp, types.intp, types.uintp), generate

    return find


median_of_9, median_of_25, median_of_49 = _median(3), _median(5), _median(7)
