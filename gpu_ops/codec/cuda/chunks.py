"""How a launch of the codecs' kernels covers many slices, and what a warp does with its part of one.

A row of the launch's table is a slice. A warp takes a chunk of one of its blocks: up to `CHUNK` numbers, eight a lane,
four side by side at a time. Values lie at multiples of 4 and payloads anywhere; where four numbers are whole and
aligned, one instruction moves them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from augpipe.gpu_ops.codec import leaves as codec_leaves
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED, function, shared
from augpipe.gpu_ops.cuda.memory import (
    WARP,
    add_to,
    bits_of,
    float32_of,
    load_changing_f32,
    load_changing_four_f32,
    load_four_i32,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    of_lane,
    store_f32,
    store_four_f32,
    store_u8,
    store_u32,
)

magnitude_bits = shared(codec_leaves.magnitude_bits)

WARPS = 2 if IS_SIMULATED else 8
"""Warps in a block of threads."""

THREADS = WARP, WARPS
LAUNCH_BOUNDS = (WARP * WARPS, 1)

CHUNK = 8 * WARP
"""Numbers a warp takes: eight a lane stay in registers from the absmax to the codes."""

FAR = np.int32(4 * WARP)
"""From a lane's first four numbers to its other four: so a warp's loads of four are side by side."""

ROW_BYTES = 40
"""A slice's numbers in the table, int64 each: address of its values, of its payload's scales, of its payload's codes;
how many numbers it has; how many blocks the slices before it have."""

INFINITE = codec_leaves.INFINITE
NAN_BITS = np.int32(0x7FC00000)
ZERO_BITS = np.int32(0)
ZERO = np.float32(0.0)
NOTHING = np.float32(-0.0)
"""Any number plus this is that number, zeros of both signs too."""
NO_BITS = np.uint32(0)


@function("int64", "int64", "int32")
def chunk_of(warp, num, block, chunks):
    """The block that a warp works on, its first number, and how many are its own: none beyond the slice's end."""
    nth = warp
    if chunks > 1:
        nth = np.int64(np.uint32(np.uint32(warp) // np.uint32(chunks)))
    first = nth * block + (warp - nth * chunks) * CHUNK
    last = min(min(first + CHUNK, (nth + 1) * block), num)
    return nth, first, np.int32(max(last - first, 0))


@function("int32")
def largest_of_warp(value):
    """The largest int32 of all lanes, which every lane gets."""
    distance = WARP // 2
    while distance > 0:
        value = np.int32(max(value, of_lane(value, distance)))
        distance //= 2
    return value


@function("float32")
def sum_of_warp(value):
    """The sum of all lanes' float32, the same in every lane and always in the same order."""
    distance = WARP // 2
    while distance > 0:
        value = np.float32(value + float32_of(of_lane(bits_of(value), distance)))
        distance //= 2
    return value


@function("int32")
def one_at(address, left):
    """The bits of a number; zero where none is `left`."""
    return load_i32(address) if left > 0 else ZERO_BITS


@function("int32", "int32", "int32", "int32")
def four_at(address, left):
    """The bits of four numbers; zeros beyond the `left` ones that there are."""
    if left >= 4 and (address & 15) == 0:
        return load_four_i32(address)
    a, b = one_at(address, left), one_at(address + 4, left - 1)
    return a, b, one_at(address + 8, left - 2), one_at(address + 12, left - 3)


@function("float32")
def one_sum_at(address, left):
    """A number of memory that this kernel writes, or nothing."""
    return load_changing_f32(address) if left > 0 else NOTHING


@function("float32", "float32", "float32", "float32")
def four_sums_at(address, left, add):
    """What is to be added to: four numbers of memory that this kernel writes, or without `add` nothing."""
    if add and left >= 4 and (address & 15) == 0:
        return load_changing_four_f32(address)
    left = left if add else 0
    a, b = one_sum_at(address, left), one_sum_at(address + 4, left - 1)
    return a, b, one_sum_at(address + 8, left - 2), one_sum_at(address + 12, left - 3)


@function("float32", "float32", "float32", "float32")
def sum_of_fours(sums, numbers):
    """Number by number."""
    a, b, c, d = sums
    e, f, g, h = numbers
    return np.float32(a + e), np.float32(b + f), np.float32(c + g), np.float32(d + h)


@function()
def write_one(address, left, value):
    """A number, if one is `left`."""
    if left > 0:
        store_f32(address, value)


@function()
def write_four(address, left, four):
    """The first `left` of four numbers."""
    a, b, c, d = four
    if left >= 4 and (address & 15) == 0:
        store_four_f32(address, a, b, c, d)
    else:
        write_one(address, left, a)
        write_one(address + 4, left - 1, b)
        write_one(address + 8, left - 2, c)
        write_one(address + 12, left - 3, d)


@function("uint32")
def byte_at(address, left, shift):
    """A byte in its place in a word; zero where none is `left`."""
    return np.uint32(load_u8(address) << np.uint32(shift)) if left > 0 else NO_BITS


@function("uint32")
def bytes_at(address, left):
    """Up to four bytes from any address as an uint32; zeros beyond the `left` ones."""
    if left >= 4 and (address & 3) == 0:
        return load_u32(address)
    low = np.uint32(byte_at(address, left, 0) | byte_at(address + 1, left - 1, 8))
    return np.uint32(low | byte_at(address + 2, left - 2, 16) | byte_at(address + 3, left - 3, 24))


@function()
def write_byte(address, left, word, shift):
    """A byte of a word, if one is `left`."""
    if left > 0:
        store_u8(address, np.uint32(np.uint32(word >> np.uint32(shift)) & np.uint32(255)))


@function()
def write_bytes(address, left, word):
    """The first `left` bytes of an uint32 to any address."""
    if left >= 4 and (address & 3) == 0:
        store_u32(address, word)
    else:
        write_byte(address, left, word, 0)
        write_byte(address + 1, left - 1, word, 8)
        write_byte(address + 2, left - 2, word, 16)
        write_byte(address + 3, left - 3, word, 24)


@function()
def write_header(address, num):
    """How many numbers a payload holds, int64 at any address."""
    write_bytes(address, np.int32(4), np.uint32(num & 0xFFFFFFFF))
    write_bytes(address + 4, np.int32(4), np.uint32(num >> 32))


@function("boolean")
def is_header_of(address, num):
    """Whether the header at `address` says `num`."""
    low, high = bytes_at(address, np.int32(4)), bytes_at(address + 4, np.int32(4))
    return low == np.uint32(num & 0xFFFFFFFF) and high == np.uint32(num >> 32)


@function("int32")
def largest_of_fours(near, far):
    """The bits of the largest magnitude of a lane's eight numbers, given by theirs."""
    a, b, c, d = near
    e, f, g, h = far
    first = np.int32(max(np.int32(max(magnitude_bits(a), magnitude_bits(b))), magnitude_bits(c)))
    second = np.int32(max(np.int32(max(magnitude_bits(d), magnitude_bits(e))), magnitude_bits(f)))
    third = np.int32(max(magnitude_bits(g), magnitude_bits(h)))
    return np.int32(max(np.int32(max(first, second)), third))


@function()
def count_infinite(count, four):
    """Add to the int32 at `count` how many of four numbers are not finite: mostly none."""
    a, b, c, d = four
    num = np.int32(np.int32(magnitude_bits(a) >= INFINITE) + np.int32(magnitude_bits(b) >= INFINITE))
    num = np.int32(num + np.int32(magnitude_bits(c) >= INFINITE) + np.int32(magnitude_bits(d) >= INFINITE))
    if num > 0:
        add_to(count, num)


@function("int64")
def same_place(i, nth, block):
    """Where the code of number `i` stands among all codes: it is the `i`-th."""
    return i


def chunk_decoder(
    scales_of: Callable[..., Any], four_decoded: Callable[..., Any], place_of: Callable[..., Any] = same_place
) -> Any:
    """A function that decodes a lane's part of a chunk: a slice's messages, whose rows begin at `row`, in turn.

    Args:
        scales_of: (address, nth, num) -> what block `nth` of a payload of `num` numbers has for all its numbers.
        four_decoded: (codes, place, left, scales, levels) -> the four numbers whose codes stand from `place` on;
            anything beyond the `left` ones.
        place_of: (i, nth, block) -> where the code of number `i`, of block `nth`, stands among all codes.
    """

    @function()
    def decode_chunk(row, warp, lane, messages, block, chunks, levels, add):
        num = load_i64(row + 24)
        nth, first, left = chunk_of(warp, num, block, chunks)
        at = np.int32(np.int32(4) * np.int32(lane))
        i, left_near, left_far = first + np.int64(at), np.int32(left - at), np.int32(left - at - FAR)
        values, place = load_i64(row) + i * 4, place_of(i, nth, block)
        near, far = four_sums_at(values, left_near, add), four_sums_at(values + FAR * 4, left_far, add)
        last = row + messages * ROW_BYTES
        while left > 0 and row < last:
            scales, codes = scales_of(load_i64(row + 8), nth, num), load_i64(row + 16)
            near = sum_of_fours(near, four_decoded(codes, place, left_near, scales, levels))
            far = sum_of_fours(far, four_decoded(codes, place + FAR, left_far, scales, levels))
            row += ROW_BYTES
        write_four(values, left_near, near)
        write_four(values + FAR * 4, left_far, far)

    return decode_chunk
