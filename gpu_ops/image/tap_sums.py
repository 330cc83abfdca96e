"""Weighted sums of rows of float32, a block of a row at a time, in registers until all taps are added."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 64
"""Numbers that are summed at once: the sums fill four registers of 512 bits, or eight."""


_FLOATS = ir.VectorType(ir.FloatType(), BLOCK)
_EVERYWHERE = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)


def _multiply_and_add(builder: Any, factors: tuple[Any, Any], addend: Any) -> Any:
    fused = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
    fma = cgutils.get_or_insert_function(builder.module, fused, f"llvm.fmuladd.v{BLOCK}f32")
    return builder.call(fma, [*factors, addend])


def _at(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _FLOATS.as_pointer())


def _loaders(builder: Any, at_rows: Any, at_taps: Any, ahead: Any) -> tuple[Any, Any]:
    """Functions of a number: a block of the row, so many bytes ahead, and a block of the tap."""
    addresses = builder.inttoptr(at_rows, at_rows.type.as_pointer())
    taps = builder.inttoptr(at_taps, ir.FloatType().as_pointer())

    def row(nth: Any) -> Any:
        at = builder.add(builder.load(builder.gep(addresses, [nth])), ahead)
        return builder.load(_at(builder, at), align=4)

    def tap(nth: Any) -> Any:
        number = builder.load(builder.gep(taps, [nth]))
        one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), number, ir.IntType(32)(0))
        return builder.shuffle_vector(one, one, _EVERYWHERE)

    return row, tap


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
        ahead = builder.mul(first, at_rows.type(4))
        row, tap = _loaders(builder, at_rows, at_taps, ahead)
        total = cgutils.alloca_once_value(builder, _FLOATS([0.0] * BLOCK))
        with cgutils.for_range(builder, num_taps) as loop:
            factors = row(loop.index), tap(loop.index)
            builder.store(_multiply_and_add(builder, factors, builder.load(total)), total)
        builder.store(builder.load(total), _at(builder, builder.add(at_sums, ahead)), align=4)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.intp, types.intp, types.uintp), generate


@intrinsic
def sum_pairs(typingctx: Any, at_rows: Any, at_taps: Any, num_pairs: Any, first: Any, at_sums: Any) -> Any:
    """`sum_taps` of (1 + 2 * num_pairs,) rows, of which each two behind the first one share one of (1 + num_pairs,)
    taps."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at_rows, at_taps, num_pairs, first, at_sums = args
        ahead, none, one = builder.mul(first, at_rows.type(4)), num_pairs.type(0), num_pairs.type(1)
        row, tap = _loaders(builder, at_rows, at_taps, ahead)
        total = cgutils.alloca_once_value(builder, builder.fmul(tap(none), row(none)))
        with cgutils.for_range(builder, num_pairs) as loop:
            left = builder.add(builder.add(loop.index, loop.index), one)
            both = builder.fadd(row(left), row(builder.add(left, one)))
            factors = tap(builder.add(loop.index, one)), both
            builder.store(_multiply_and_add(builder, factors, builder.load(total)), total)
        builder.store(builder.load(total), _at(builder, builder.add(at_sums, ahead)), align=4)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.intp, types.intp, types.uintp), generate
