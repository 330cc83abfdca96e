"""Weighted sums of rows of float32 or uint8, a block of a row at a time, in registers until all taps are added."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 64
"""Numbers that are summed at once: the sums fill four registers of 512 bits, or eight."""


_FLOATS = ir.VectorType(ir.FloatType(), BLOCK)
_WORDS, _BYTES = (ir.VectorType(ir.IntType(bits), BLOCK) for bits in (32, 8))
_EVERYWHERE = ir.Constant(_WORDS, [0] * BLOCK)


def _multiply_and_add(builder: Any, factors: tuple[Any, Any], addend: Any) -> Any:
    kind = addend.type
    fused = ir.FunctionType(kind, [kind] * 3)
    fma = cgutils.get_or_insert_function(builder.module, fused, f"llvm.fmuladd.v{kind.count}f32")
    return builder.call(fma, [*factors, addend])


def _at(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _FLOATS.as_pointer())


def _loaders(builder: Any, at_rows: Any, at_taps: Any, ahead: Any, *, of_bytes: bool = False) -> tuple[Any, Any]:
    """Functions of a number: a block of the row, so many bytes ahead, and a block of the tap."""
    addresses = builder.inttoptr(at_rows, at_rows.type.as_pointer())
    taps = builder.inttoptr(at_taps, ir.FloatType().as_pointer())

    def row(nth: Any) -> Any:
        at = builder.add(builder.load(builder.gep(addresses, [nth])), ahead)
        if of_bytes:
            levels = builder.load(builder.inttoptr(at, _BYTES.as_pointer()), align=1)
            return builder.sitofp(builder.zext(levels, _WORDS), _FLOATS)
        return builder.load(_at(builder, at), align=4)

    def tap(nth: Any) -> Any:
        number = builder.load(builder.gep(taps, [nth]))
        one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), number, ir.IntType(32)(0))
        return builder.shuffle_vector(one, one, _EVERYWHERE)

    return row, tap


def _summing(*, of_bytes: bool) -> Any:
    @intrinsic
    def summing(typingctx: Any, at_rows: Any, at_taps: Any, num_taps: Any, first: Any, at_sums: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at_rows, at_taps, num_taps, first, at_sums = args
            ahead = builder.mul(first, at_rows.type(4))
            row, tap = _loaders(builder, at_rows, at_taps, first if of_bytes else ahead, of_bytes=of_bytes)
            total = cgutils.alloca_once_value(builder, _FLOATS([0.0] * BLOCK))
            with cgutils.for_range(builder, num_taps) as loop:
                factors = row(loop.index), tap(loop.index)
                builder.store(_multiply_and_add(builder, factors, builder.load(total)), total)
            builder.store(builder.load(total), _at(builder, builder.add(at_sums, ahead)), align=4)
            return context.get_dummy_value()

        return types.void(types.uintp, types.uintp, types.intp, types.intp, types.uintp), generate

    return summing


sum_taps = _summing(of_bytes=False)
"""A procedure that writes the sums of `BLOCK` columns.

Args:
    at_rows: the address of (num_taps,) addresses, intp, of rows of float32.
    at_taps: the address of (num_taps,) float32.
    num_taps: of each sum.
    first: the block's first column.
    at_sums: the address of the row of sums, float32, written.
"""

sum_taps_of_bytes = _summing(of_bytes=True)
"""`sum_taps` of rows of uint8."""


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


def _summing_pixels(num: int) -> Any:
    @intrinsic
    def summing(typingctx: Any, at_columns: Any, step: Any, at_indices: Any, at_weights: Any, offset: Any, taps: Any,
                at_sums: Any) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at_columns, step, at_indices, at_weights, offset, taps, at_sums = args
            i32, f32, four = ir.IntType(32), ir.FloatType(), ir.VectorType(ir.FloatType(), 4)

            def item(start: Any, kind: Any, nth: int) -> Any:
                return builder.gep(builder.inttoptr(start, kind.as_pointer()), [i32(nth)])

            totals = [cgutils.alloca_once_value(builder, four([0.0] * 4)) for _ in range(num)]
            with cgutils.for_range(builder, taps) as loop:
                ahead = builder.mul(loop.index, offset)
                at_index, at_weight = builder.add(at_indices, ahead), builder.add(at_weights, ahead)
                for nth, total in enumerate(totals):
                    index = builder.sext(builder.load(item(at_index, i32, nth)), step.type)
                    at = builder.add(at_columns, builder.mul(index, step))
                    levels = builder.load(builder.inttoptr(at, four.as_pointer()), align=4)
                    weight = builder.load(item(at_weight, f32, nth))
                    one = builder.insert_element(ir.Constant(four, ir.Undefined), weight, i32(0))
                    weights = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(i32, 4), [0] * 4))
                    builder.store(_multiply_and_add(builder, (weights, levels), builder.load(total)), total)
            for channel in range(3):
                at_channel = builder.add(at_sums, builder.mul(offset, offset.type(channel)))
                for nth, total in enumerate(totals):
                    builder.store(
                        builder.extract_element(builder.load(total), i32(channel)), item(at_channel, f32, nth)
                    )
            return context.get_dummy_value()

        at, number = types.uintp, types.intp
        return types.void(at, number, at, at, number, number, at), generate

    return summing


PIXELS = 4
"""Pixels that are summed at once: each addition waits for the one before it."""

sum_pixel = _summing_pixels(1)
"""A procedure that writes the sums of a pixel's red, green and blue.

Args:
    at_columns: the address of pixels, float32 next to each other; one more number behind the last one may be read.
    step: bytes from pixel to pixel.
    at_indices: the address of the first tap's pixel, int32; each further tap's lies `offset` bytes behind.
    at_weights: that of its weight, float32, as above.
    offset: in bytes; the sum of green lies as far behind that of red, and that of blue behind it.
    taps: how many.
    at_sums: the address of the sum of red, float32.
"""

sum_pixels = _summing_pixels(PIXELS)
"""`sum_pixel` of `PIXELS` next to each other."""
