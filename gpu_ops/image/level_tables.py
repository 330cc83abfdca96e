"""Looking up levels of pixels in tables of 256: rows of RGBX pixels, and finished images in place."""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.scratch_rows import store_batch
from augpipe.gpu_ops.jit import kernel, leaf, subroutine
from augpipe.gpu_ops.memory import cpu_has_avx512, cpu_has_byte_tables, has_avx512, load, prefer_wide_vectors

load_word = load("fetched", types.uint32)
load_level = load("table", types.uint8, types.int32)
load_byte = load("batch", types.uint8)

NUM_LEVELS = 256
BLOCK = 64
"""Pixels that `_look_up_block` takes at once."""
BYTE = np.uint32(255)
_PERMUTE_WORDS, _PERMUTE_BYTES = "llvm.x86.avx512.vpermi2var.hi.512", "llvm.x86.avx512.vpermi2var.qi.512"
"""AVX-512's look-up of words of 16 bits in two registers, and of bytes."""


@kernel()
def look_up_levels(images, tables, batch, num_pixels, planar):
    """Look up levels of finished images, in place.

    Args:
        images: (n,) int64 numbers of the images.
        tables: (n, 3, 256) uint8: what becomes of each level of each channel.
        batch: (B * num_pixels * 3,) uint8, changed where these images lie.
        num_pixels: of an image.
        planar: True for channels, rows, columns, False for rows, columns, channels.
    """
    num_runs, length, step = (3, num_pixels, 0) if planar else (1, 3 * num_pixels, NUM_LEVELS)
    for nth in range(len(images)):
        for run in range(num_runs):
            at = np.uintp(batch.ctypes.data + 3 * num_pixels * images[nth] + run * num_pixels)
            at_table = np.uintp(tables.ctypes.data + NUM_LEVELS * (3 * nth + run))
            end = length - length % (3 * BLOCK) if has_avx512() else 0
            for first in range(0, end, 3 * BLOCK):
                _look_up_bytes(np.uintp(at + first), at_table, step)
            for channel in range(1 if planar else 3):
                for i in range(end + channel, length, 1 if planar else 3):
                    level = np.int32(load_byte(at, i))
                    store_batch(at, i, load_level(at_table, np.int32(step * channel + level)))


def _looking_up() -> tuple[Any, ...]:
    tables: npt.NDArray[np.uint8] = np.zeros((1, 3, NUM_LEVELS), np.uint8)
    return np.zeros(1, np.int64), tables, np.zeros(1, np.uint8), 1, True


declare(__name__, look_up_levels, uint8_steps=_looking_up)


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


@subroutine
def look_up_rgb_row(at_pixels, at_table, is_changed, turns, out, plane, width, planar):
    """`look_up_row` of RGB pixels, at least `BLOCK`, on CPUs with AVX-512: from the last one on where it `turns`.

    Where nothing `is_changed`, the tables are not looked at.
    """
    prefer_wide_vectors()
    for i in range(0, width, BLOCK):
        first = min(np.int64(i), np.int64(width - BLOCK))  # the last block may write again what is there
        source = width - BLOCK - first if turns else first
        at_first = np.uintp(out + first * (1 if planar else 3))
        _look_up_rgb_block(np.uintp(at_pixels + 3 * source), at_table, at_first, plane, planar, is_changed, turns)


@leaf
def _looked_up(at_table, table_step, pixel, channel):
    level = np.int32((pixel >> np.uint32(8 * channel)) & BYTE)
    return load_level(at_table, np.int32(table_step * channel + level))


def _vector(bits: int, num: int) -> Any:
    return ir.VectorType(ir.IntType(bits), num)


def _taken(*places: int) -> Any:
    return ir.Constant(_vector(32, len(places)), list(places))


def _function(builder: Any, name: str, of: Any) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(of, [of] * 3), name)


def _table_of(context: Any, builder: Any, at_table: Any) -> Any:
    """A function that looks up (`BLOCK`,) bytes in the table at an address, which it holds in four registers."""
    byte, half = _vector(8, BLOCK), _vector(16, BLOCK // 2)
    of_bytes = cpu_has_byte_tables(context)
    table = builder.inttoptr(at_table, (byte if of_bytes else half).as_pointer())
    parts = [builder.load(builder.gep(table, [ir.IntType(32)(n)]), align=1) for n in range(4)]

    def look_up(levels: Any) -> Any:
        permute = _function(builder, _PERMUTE_BYTES, byte)
        low, high = (builder.call(permute, [parts[n], levels, parts[n + 1]]) for n in (0, 2))
        return builder.select(builder.icmp_signed(">=", levels, byte([0] * BLOCK)), low, high)

    def look_up_half(levels: Any) -> Any:
        """Of words of 16 bits: each holds two levels of the table, and the byte is taken that is asked for."""
        permute = _function(builder, _PERMUTE_WORDS, half)
        of_two = builder.lshr(levels, half([1] * 32))
        low, high = (builder.call(permute, [parts[n], of_two, parts[n + 1]]) for n in (0, 2))
        found = builder.select(builder.icmp_unsigned("<", levels, half([128] * 32)), low, high)
        bits = builder.shl(builder.and_(levels, half([1] * 32)), half([3] * 32))
        return builder.trunc(builder.lshr(found, bits), _vector(8, BLOCK // 2))

    def look_up_halves(levels: Any) -> Any:
        halves = [
            builder.zext(builder.shuffle_vector(levels, levels, _taken(*range(first, first + BLOCK // 2))), half)
            for first in (0, BLOCK // 2)
        ]
        return builder.shuffle_vector(*(look_up_half(one) for one in halves), _taken(*range(BLOCK)))

    return look_up if of_bytes else look_up_halves


def _tables(context: Any, builder: Any, at_table: Any, step: Any) -> list[Any]:
    return [
        _table_of(context, builder, builder.add(at_table, builder.mul(step, step.type(channel))))
        for channel in range(3)
    ]


@intrinsic
def _look_up_bytes(typingctx: Any, at: Any, at_table: Any, table_step: Any) -> Any:
    """Look up three times `BLOCK` bytes in place, the first one in the first table, the next in the next."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not cpu_has_avx512(context):
            return context.get_dummy_value()
        tables = _tables(context, builder, *args[1:])
        blocks = builder.inttoptr(args[0], _vector(8, BLOCK).as_pointer())
        for nth in range(3):
            place = builder.gep(blocks, [ir.IntType(32)(nth)])
            levels = builder.load(place, align=1)
            found = [look_up(levels) for look_up in tables]
            mixed = found[0]
            for channel in (1, 2):
                own = [int((nth * BLOCK + i) % 3 == channel) for i in range(BLOCK)]
                mixed = builder.select(ir.Constant(_vector(1, BLOCK), own), found[channel], mixed)
            builder.store(mixed, place, align=1)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.intp), codegen


def _write_block(builder: Any, found: list[Any], out: Any, plane: Any, planar: Any) -> None:
    """Store (`BLOCK`,) levels of each channel at an address, `plane` apart where the image is planar."""
    with builder.if_else(planar) as (if_planar, otherwise):
        with if_planar:
            for channel in range(3):
                at = builder.add(out, builder.mul(plane, plane.type(channel)))
                builder.store(found[channel], builder.inttoptr(at, found[channel].type.as_pointer()), align=1)
        with otherwise:
            two = builder.shuffle_vector(found[0], found[1], _taken(*range(2 * BLOCK)))
            one = builder.shuffle_vector(found[2], found[2], _taken(*range(2 * BLOCK)))
            places = [BLOCK * (n % 3) + n // 3 for n in range(3 * BLOCK)]
            mixed = builder.shuffle_vector(two, one, _taken(*places))
            builder.store(mixed, builder.inttoptr(out, mixed.type.as_pointer()), align=1)


@intrinsic
def _look_up_block(
    typingctx: Any, at_pixels: Any, at_table: Any, table_step: Any, out: Any, plane: Any, planar: Any
) -> Any:
    """`look_up_row` of `BLOCK` pixels, in registers; LLVM by itself takes one level at a time, a third as fast."""
    word, byte = _vector(32, BLOCK), _vector(8, BLOCK)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not cpu_has_avx512(context):
            return context.get_dummy_value()
        pixels = builder.load(builder.inttoptr(args[0], word.as_pointer()), align=4)
        found = [
            look_up(builder.trunc(builder.lshr(pixels, word([8 * channel] * BLOCK)), byte))
            for channel, look_up in enumerate(_tables(context, builder, args[1], args[2]))
        ]
        _write_block(builder, found, *args[3:])
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, types.intp, types.uintp, types.intp, types.boolean), codegen


@intrinsic
def _look_up_rgb_block(
    typingctx: Any, at_pixels: Any, at_table: Any, out: Any, plane: Any, planar: Any, is_changed: Any, turns: Any
) -> Any:
    """`look_up_rgb_row` of `BLOCK` pixels, in registers."""
    byte = _vector(8, BLOCK)

    def channel_of(builder: Any, parts: list[Any], channel: int) -> Any:
        """Every third byte of three registers."""
        at = [3 * n + channel for n in range(BLOCK)]
        of_two = builder.shuffle_vector(parts[0], parts[1], _taken(*(place % (2 * BLOCK) for place in at)))
        last = [n if place < 2 * BLOCK else place - BLOCK for n, place in enumerate(at)]
        return builder.shuffle_vector(of_two, parts[2], _taken(*last))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not cpu_has_avx512(context):
            return context.get_dummy_value()
        at_pixels, at_table, out, plane, planar, is_changed, turns = args
        blocks = builder.inttoptr(at_pixels, byte.as_pointer())
        parts = [builder.load(builder.gep(blocks, [ir.IntType(32)(n)]), align=1) for n in range(3)]
        found = [cgutils.alloca_once_value(builder, channel_of(builder, parts, channel)) for channel in range(3)]
        with builder.if_then(is_changed):
            tables = _tables(context, builder, at_table, at_table.type(NUM_LEVELS))
            for levels, look_up in zip(found, tables, strict=True):
                builder.store(look_up(builder.load(levels)), levels)
        with builder.if_then(turns):
            for levels in found:
                there = builder.load(levels)
                builder.store(builder.shuffle_vector(there, there, _taken(*reversed(range(BLOCK)))), levels)
        _write_block(builder, [builder.load(levels) for levels in found], out, plane, planar)
        return context.get_dummy_value()

    given = types.uintp, types.uintp, types.uintp, types.intp, types.boolean, types.boolean, types.boolean
    return types.void(*given), codegen
