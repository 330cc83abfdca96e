"""Weighted sums of rows of float32, a block of a row at a time, in registers until all taps are added."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 64
"""Numbers that are summed at once: the sums fill four registers of 512 bits, or eight."""


def _sum_of_taps(in_pairs: bool) -> Any:
    @intrinsic
    def sum_block(typingctx: Any, at_rows: Any, at_taps: Any, num_taps: Any, first: Any, at_sums: Any) -> Any:
        """Write the sums of `BLOCK` columns.

        Args:
            at_rows: the address of (num_taps,) addresses, intp, of rows; (num_taps, 2) where two rows share a tap: they
                are added first, and of the first tap only the first row counts.
            at_taps: the address of (num_taps,) float32.
            num_taps: at least 1.
            first: the block's first column.
            at_sums: the address of the row of sums, written.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at_rows, at_taps, num_taps, first, at_sums = args
            word = at_rows.type
            floats_type = ir.VectorType(ir.FloatType(), BLOCK)
            fused = ir.FunctionType(floats_type, [floats_type] * 3)
            fma = cgutils.get_or_insert_function(builder.module, fused, f"llvm.fmuladd.v{BLOCK}f32")
            addresses = builder.inttoptr(at_rows, word.as_pointer())
            taps = builder.inttoptr(at_taps, ir.FloatType().as_pointer())
            ahead = builder.mul(first, word(4))

            def levels_of(place: Any) -> Any:
                at = builder.add(builder.load(builder.gep(addresses, [place])), ahead)
                return builder.load(builder.inttoptr(at, floats_type.as_pointer()), align=4)

            def tap_of(nth: Any) -> Any:
                tap = builder.load(builder.gep(taps, [nth]))
                one = builder.insert_element(ir.Constant(floats_type, ir.Undefined), tap, ir.IntType(32)(0))
                everywhere = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
                return builder.shuffle_vector(one, one, everywhere)

            if in_pairs:
                start, begin = builder.fmul(tap_of(word(0)), levels_of(word(0))), word(1)
            else:
                start, begin = floats_type([0.0] * BLOCK), word(0)
            total = cgutils.alloca_once_value(builder, start)
            with cgutils.for_range(builder, num_taps, begin) as loop:
                if in_pairs:
                    place = builder.mul(loop.index, word(2))
                    levels = builder.fadd(levels_of(place), levels_of(builder.add(place, word(1))))
                else:
                    levels = levels_of(loop.index)
                builder.store(builder.call(fma, [levels, tap_of(loop.index), builder.load(total)]), total)
            at = builder.add(at_sums, ahead)
            builder.store(builder.load(total), builder.inttoptr(at, floats_type.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(types.uintp, types.uintp, types.intp, types.intp, types.uintp), generate

    return sum_block


sum_taps, sum_paired_taps = _sum_of_taps(in_pairs=False), _sum_of_taps(in_pairs=True)
