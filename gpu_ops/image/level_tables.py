"""Looking up levels of pixels in tables of 256, a row at a time."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from augpipe.gpu_ops.image.scratch_rows import store_batch
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import cpu_has_avx512, has_avx512, load, prefer_wide_vectors

load_word = load("fetched", types.uint32)
load_level = load("table", types.uint8, types.int32)

NUM_LEVELS = 256
BLOCK = 64
"""Pixels that `_look_up_block` takes at once."""
BYTE = np.uint32(255)
_PERMUTE = "llvm.x86.avx512.vpermi2var.hi.512"
"""AVX-512's look-up of words of 16 bits in two registers."""


@subroutine
def look_up_row(at_pixels, at_table, table_step, out, plane, width, planar):
    """Look up a row of RGBX pixels in uint8 tables, one a channel, and write it.

    Args:
        at_pixels, at_table, out: addresses.
        table_step: levels from one channel's table to the next, 0 where they share one.
        plane: pixels of an image, from one of its channels to the next where it is planar.
        width: pixels of the row.
        planar: True for channels, rows, columns, False for rows, columns, channels.
    """
    prefer_wide_vectors()
    if has_avx512() and width >= BLOCK:
        for i in range(0, width, BLOCK):
            first = min(np.int64(i), np.int64(width - BLOCK))  # the last block may write again what is there
            at_first = out + first * (1 if planar else 3)
            _look_up_block(at_pixels + 4 * first, at_table, table_step, at_first, plane, planar)
    else:
        pixel_step, channel_step = (np.int64(1), plane) if planar else (np.int64(3), np.int64(1))
        for i in range(width):
            pixel = load_word(at_pixels, i)
            store_batch(out, pixel_step * i, _looked_up(at_table, table_step, pixel, 0))
            store_batch(out, pixel_step * i + channel_step, _looked_up(at_table, table_step, pixel, 1))
            store_batch(out, pixel_step * i + 2 * channel_step, _looked_up(at_table, table_step, pixel, 2))


@leaf
def _looked_up(at_table, table_step, pixel, channel):
    level = np.int32((pixel >> np.uint32(8 * channel)) & BYTE)
    return load_level(at_table, np.int32(table_step * channel + level))


@intrinsic
def _look_up_block(
    typingctx: Any, at_pixels: Any, at_table: Any, table_step: Any, out: Any, plane: Any, planar: Any
) -> Any:
    """`look_up_row` of `BLOCK` pixels, in registers.

    LLVM by itself takes one level at a time, a third as fast. AVX-512 looks up words in two registers of 32: four
    registers hold a table of levels two by two, and of a word the byte is taken that is asked for.
    """
    word, short, byte = (ir.VectorType(ir.IntType(bits), BLOCK) for bits in (32, 16, 8))
    half = ir.VectorType(ir.IntType(16), BLOCK // 2)

    def taken(*places: int) -> Any:
        return ir.Constant(ir.VectorType(ir.IntType(32), len(places)), list(places))

    def look_up(builder: Any, permute: Any, parts: list[Any], levels: Any) -> Any:
        of_two = builder.lshr(levels, half([1] * 32))
        low, high = (builder.call(permute, [parts[n], of_two, parts[n + 1]]) for n in (0, 2))
        found = builder.select(builder.icmp_unsigned("<", levels, half([128] * 32)), low, high)
        bits = builder.shl(builder.and_(levels, half([1] * 32)), half([3] * 32))
        return builder.trunc(builder.lshr(found, bits), ir.VectorType(ir.IntType(8), BLOCK // 2))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not cpu_has_avx512(context):
            return context.get_dummy_value()
        pixels = builder.load(builder.inttoptr(args[0], word.as_pointer()), align=4)
        permute = builder.module.globals.get(_PERMUTE) or ir.Function(
            builder.module, ir.FunctionType(half, [half] * 3), _PERMUTE
        )
        found = []
        for channel in range(3):
            at_table = builder.add(args[1], builder.mul(args[2], args[2].type(channel)))
            table = builder.inttoptr(at_table, half.as_pointer())
            parts = [builder.load(builder.gep(table, [ir.IntType(32)(n)]), align=1) for n in range(4)]
            levels = builder.trunc(builder.lshr(pixels, word([8 * channel] * BLOCK)), short)
            levels = builder.and_(levels, short([255] * BLOCK))
            halves = [
                builder.shuffle_vector(levels, levels, taken(*range(first, first + BLOCK // 2)))
                for first in (0, BLOCK // 2)
            ]
            looked_up = [look_up(builder, permute, parts, one) for one in halves]
            found.append(builder.shuffle_vector(*looked_up, taken(*range(BLOCK))))
        with builder.if_else(args[5]) as (if_planar, otherwise):
            with if_planar:
                for channel in range(3):
                    at = builder.add(args[3], builder.mul(args[4], args[4].type(channel)))
                    builder.store(found[channel], builder.inttoptr(at, byte.as_pointer()), align=1)
            with otherwise:
                two = builder.shuffle_vector(found[0], found[1], taken(*range(2 * BLOCK)))
                one = builder.shuffle_vector(found[2], found[2], taken(*range(2 * BLOCK)))
                places = [BLOCK * (n % 3) + n // 3 for n in range(3 * BLOCK)]
                mixed = builder.shuffle_vector(two, one, taken(*places))
                builder.store(mixed, builder.inttoptr(args[3], mixed.type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.intp, types.uintp, types.intp, types.boolean), codegen
