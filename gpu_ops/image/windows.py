"""Sums over pixels that lie close to each other: AVX-512 takes them from a window of a row that it holds in registers.

Gathers take ten times as long, and without AVX-512 there is nothing faster.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from augpipe.gpu_ops.image.scratch_rows import load_index_x, load_index_y, store_index_y
from augpipe.gpu_ops.jit import subroutine
from augpipe.gpu_ops.memory import cpu_has_avx512, has_avx512

BLOCK = 16
"""Pixels that are summed at once."""

WINDOW, WIDE_WINDOW = 32, 64
"""Pixels of two registers, and of four."""

_PERMUTE, _MULTIPLY_AND_ADD = "llvm.x86.avx512.vpermi2var.d.512", "llvm.fmuladd.v16f32"


@subroutine
def find_windows(at_index_x, at_base, width, taps):
    """Where the window of each block of a row begins; see `_window_sum`.

    Args:
        at_index_x: address of (taps, width) int32, the indices of the pixels at the taps.
        at_base: address of int32, written, one for each block: the index that its window begins with.
        width, taps: pixels of the row, and taps of each.

    Returns:
        `WINDOW` or `WIDE_WINDOW`; 0 where the pixels lie too far from each other, or the CPU has no AVX-512.
    """
    if not has_avx512() or width < BLOCK:
        return 0
    num_blocks, widest = (width + BLOCK - 1) // BLOCK, np.int32(0)
    least, largest = load_index_x(at_index_x, 0), load_index_x(at_index_x, 0)
    for block in range(num_blocks):
        first = min(block * BLOCK, width - BLOCK)
        low, high = load_index_x(at_index_x, first), load_index_x(at_index_x, first)
        for tap in range(taps):
            for i in range(first, first + BLOCK):
                index = load_index_x(at_index_x, tap * width + i)
                low, high = min(low, index), max(high, index)
        store_index_y(at_base, block, low)
        widest = max(widest, np.int32(high - low + 1))
        least, largest = min(least, low), max(largest, high)
    window = WINDOW if widest <= WINDOW else WIDE_WINDOW
    if widest > window or largest - least + 1 < window:
        return 0
    for block in range(num_blocks):  # a window ends where the pixels that are looked at end
        store_index_y(at_base, block, min(load_index_y(at_base, block), np.int32(largest - window + 1)))
    return window


@subroutine
def span(at_index_x, num):
    """The least of so many indices, and how many pixels lie from there to the largest one."""
    least, largest = load_index_x(at_index_x, 0), load_index_x(at_index_x, 0)
    for nth in range(num):
        index = load_index_x(at_index_x, nth)
        least, largest = min(least, index), max(largest, index)
    return np.int64(least), np.int64(largest - least + 1)


def _window_sum(num_registers: int, pixel_bytes: int) -> Any:
    pixels_type, floats_type = ir.VectorType(ir.IntType(32), BLOCK), ir.VectorType(ir.FloatType(), BLOCK)

    def everywhere(number: int) -> Any:
        return ir.Constant(pixels_type, [number] * BLOCK)

    def load_block(builder: Any, address: Any, type_: Any) -> Any:
        return builder.load(builder.inttoptr(address, type_.as_pointer()), align=4)

    def load_rgbx(builder: Any, at_window: Any, nth: int) -> Any:
        return load_block(builder, builder.add(at_window, at_window.type(4 * BLOCK * nth)), pixels_type)

    def load_rgb(builder: Any, at_window: Any, nth: int) -> Any:
        """As RGBX, X = 0: of two registers, the second one's bytes end where it is loaded, within the window."""
        before = 0 if nth % 2 == 0 else 64 - 3 * BLOCK
        at = builder.add(at_window, at_window.type(3 * BLOCK * nth - before))
        bytes_type = ir.VectorType(ir.IntType(8), 64)
        packed = builder.load(builder.inttoptr(at, bytes_type.as_pointer()), align=1)
        places = [before + 3 * pixel + channel if channel < 3 else 64 for pixel in range(BLOCK) for channel in range(4)]
        taken = ir.Constant(ir.VectorType(ir.IntType(32), 64), places)
        spread = builder.shuffle_vector(packed, ir.Constant(bytes_type, [0] * 64), taken)
        return builder.bitcast(spread, pixels_type)

    def pixels_at(builder: Any, places: Any, held: list[Any]) -> Any:
        permuting = ir.FunctionType(pixels_type, [pixels_type] * 3)
        permute = cgutils.get_or_insert_function(builder.module, permuting, _PERMUTE)
        pixels = builder.call(permute, [held[0], places, held[1]])
        if len(held) == 2:
            return pixels
        others = builder.call(permute, [held[2], places, held[3]])
        return builder.select(builder.icmp_unsigned("<", places, everywhere(WINDOW)), pixels, others)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not cpu_has_avx512(context):
            return context.get_dummy_value()
        at_window, base, at_indices, at_weights, step, taps, at_sums = args
        fused = ir.FunctionType(floats_type, [floats_type] * 3)
        fma = cgutils.get_or_insert_function(builder.module, fused, _MULTIPLY_AND_ADD)
        load_pixels = load_rgbx if pixel_bytes == 4 else load_rgb
        held = [load_pixels(builder, at_window, n) for n in range(num_registers)]
        first = builder.insert_element(everywhere(0), base, ir.IntType(32)(0))
        bases = builder.shuffle_vector(first, first, everywhere(0))
        sums = [cgutils.alloca_once_value(builder, floats_type([0.0] * BLOCK)) for _ in range(3)]
        with cgutils.for_range(builder, taps) as loop:
            ahead = builder.mul(step, loop.index)
            indices = load_block(builder, builder.add(at_indices, ahead), pixels_type)
            weights = load_block(builder, builder.add(at_weights, ahead), floats_type)
            pixels = pixels_at(builder, builder.sub(indices, bases), held)
            for channel, total in enumerate(sums):
                level = builder.and_(builder.lshr(pixels, everywhere(8 * channel)), everywhere(255))
                addend = builder.sitofp(level, floats_type)
                builder.store(builder.call(fma, [addend, weights, builder.load(total)]), total)
        for channel, total in enumerate(sums):
            at = builder.add(at_sums, builder.mul(step, step.type(channel)))
            builder.store(builder.load(total), builder.inttoptr(at, floats_type.as_pointer()), align=4)
        return context.get_dummy_value()

    @intrinsic
    def window_sum(
        typingctx: Any, at_window: Any, base: Any, at_indices: Any, at_weights: Any, step: Any, taps: Any, at_sums: Any
    ) -> Any:
        """The sums of `BLOCK` pixels over their taps, in registers.

        Args:
            at_window, base: address of the window, in a row of RGBX or RGB pixels, and the index of its first pixel.
            at_indices, at_weights: addresses of what belongs to the block's first tap.
            step: bytes from there to its next tap, and from the block's sums of red to those of green, and of blue.
            taps: of each pixel.
            at_sums: address of the sums, written.
        """
        given = (types.uintp, types.int32, types.uintp, types.uintp, types.intp, types.intp, types.uintp)
        return types.void(*given), generate

    return window_sum


sum_window, sum_wide_window = (_window_sum(num // BLOCK, 4) for num in (WINDOW, WIDE_WINDOW))
sum_window_of_rgb, sum_wide_window_of_rgb = (_window_sum(num // BLOCK, 3) for num in (WINDOW, WIDE_WINDOW))
