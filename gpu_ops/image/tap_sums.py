"""Weighted sums of rows of float32, a block of a row at a time, in registers until all taps are added."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 64
"""Numbers that are summed at once: the sums fill four registers of 512 bits, or eight."""


@intrinsic
def sum_taps(typingctx: Any, at_rows: Any, at_taps: Any, num_taps: Any, first: Any, at_sums: Any) -> Any:
    """Write the sums of `BLOCK` columns.

    Args:
        at_rows: the address of (num_taps,) addresses, intp, of rows.
        at_taps: the address of (num_taps,) float32.
        num_taps: of each sum.
        first: the block's first column.
        at_sums: the address of the row of sums, written.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at_rows, at_taps, num_taps, first, at_sums = args
        floats_type = ir.VectorType(ir.FloatType(), BLOCK)
        fused = ir.FunctionType(floats_type, [floats_type] * 3)
        fma = cgutils.get_or_insert_function(builder.module, fused, f"llvm.fmuladd.v{BLOCK}f32")
        addresses = builder.inttoptr(at_rows, at_rows.type.as_pointer())
        taps = builder.inttoptr(at_taps, ir.FloatType().as_pointer())
        ahead = builder.mul(first, at_rows.type(4))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
        total = cgutils.alloca_once_value(builder, floats_type([0.0] * BLOCK))
        with cgutils.for_range(builder, num_taps) as loop:
            at = builder.add(builder.load(builder.gep(addresses, [loop.index])), ahead)
            numbers = builder.load(builder.inttoptr(at, floats_type.as_pointer()), align=4)
            tap = builder.load(builder.gep(taps, [loop.index]))
            one = builder.insert_element(ir.Constant(floats_type, ir.Undefined), tap, ir.IntType(32)(0))
            weights = builder.shuffle_vector(one, one, everywhere)
            builder.store(builder.call(fma, [numbers, weights, builder.load(total)]), total)
        out = builder.inttoptr(builder.add(at_sums, ahead), floats_type.as_pointer())
        builder.store(builder.load(total), out, align=4)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.intp, types.intp, types.uintp), generate
