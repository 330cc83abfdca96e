"""The CUDA loops of the one-bit codec, on the terms of `chunks`.

A warp sums its chunk in units of the chunk's absmax, so that no sum overflows. Where a block has several chunks, a
second kernel brings their sums together. Sums are float32, in an order that never changes.
"""

import numpy as np
from numba import cuda

from augpipe.gpu_ops.codec.cuda.chunks import (
    CHUNK,
    FAR,
    INFINITE,
    NAN_BITS,
    NO_BITS,
    ROW_BYTES,
    WARPS,
    ZERO,
    ZERO_BITS,
    bytes_at,
    chunk_decoder,
    chunk_of,
    count_infinite,
    four_at,
    is_header_of,
    largest_of_fours,
    largest_of_warp,
    sum_of_warp,
    write_bytes,
    write_header,
)
from augpipe.gpu_ops.codec.cuda.codes import checked_divisor
from augpipe.gpu_ops.codec.leaves import HEADER_BYTES
from augpipe.gpu_ops.codec.one_bit import MEANS_BYTES
from augpipe.gpu_ops.cuda.functions import function
from augpipe.gpu_ops.cuda.memory import (
    WARP,
    bits_of,
    float32_of,
    load_changing_f32,
    load_changing_i32,
    load_i64,
    load_u8,
    product,
    store_f32,
    store_i32,
    store_u8,
)

PARTIAL_BYTES = 16
"""What is kept of a chunk, float32 each: its absmax, the sums of its numbers >= 0 and of those below in units of that,
and how many are below, exact up to 2^24."""

ONE = np.float32(1.0)


@function("float32", "float32", "float32")
def with_number(bits, divisor, sums):
    """The sums of the numbers >= 0 and of those below, and how many are below, with one number more."""
    above, below, num_below = sums
    scaled = np.float32(float32_of(bits) / divisor)
    if scaled >= ZERO:
        return np.float32(above + scaled), below, num_below
    return above, np.float32(below + scaled), np.float32(num_below + ONE)


@function("float32", "float32", "float32")
def with_four(four, divisor, sums):
    """The same with four more; zeros that stand for missing numbers change nothing."""
    a, b, c, d = four
    sums = with_number(b, divisor, with_number(a, divisor, sums))
    return with_number(d, divisor, with_number(c, divisor, sums))


@function("float32", "float32", "float32")
def sums_of_warp(sums):
    """Those of all lanes."""
    above, below, num_below = sums
    return sum_of_warp(above), sum_of_warp(below), sum_of_warp(num_below)


@function()
def write_means(address, absmax, num, sums):
    """The two means of a block of `num` numbers, from its sums in units of its absmax; NaN where that is not finite."""
    above, below, num_below = sums
    is_finite = absmax < INFINITE
    unit = float32_of(absmax if is_finite else ZERO_BITS)
    above = product(np.float32(above / np.float32(max(np.float32(num - num_below), ONE))), unit)
    below = product(np.float32(below / np.float32(max(num_below, ONE))), unit)
    write_bytes(address, np.int32(4), np.uint32(bits_of(above) if is_finite else NAN_BITS))
    write_bytes(address + 4, np.int32(4), np.uint32(bits_of(below) if is_finite else NAN_BITS))


@function()
def write_partial(record, absmax, sums):
    """What `join_partials` needs to know of a chunk."""
    above, below, num_below = sums
    store_i32(record, absmax)
    store_f32(record + 4, above)
    store_f32(record + 8, below)
    store_f32(record + 12, num_below)


@function("float32", "float32", "float32")
def with_partial(record, divisor, sums):
    """A block's sums, in units of `divisor`, with those of one chunk more."""
    above, below, num_below = sums
    unit = np.float32(load_changing_f32(record) / divisor)
    above = np.float32(above + product(load_changing_f32(record + 4), unit))
    below = np.float32(below + product(load_changing_f32(record + 8), unit))
    return above, below, np.float32(num_below + load_changing_f32(record + 12))


@function("uint32")
def four_signs(four):
    """Four bits, the first lowest: whether numbers are >= 0."""
    a, b, c, d = four
    low = np.uint32(np.uint32(float32_of(a) >= ZERO) | np.uint32(np.uint32(float32_of(b) >= ZERO) << np.uint32(1)))
    high = np.uint32(np.uint32(float32_of(c) >= ZERO) | np.uint32(np.uint32(float32_of(d) >= ZERO) << np.uint32(1)))
    return np.uint32(low | np.uint32(high << np.uint32(2)))


@function()
def write_signs(values, signs, i, left):
    """A lane's byte: the signs of the `left`, at most eight, numbers from `i` on, which is a multiple of 8."""
    if left > 0:
        low = four_signs(four_at(values + i * 4, left))
        high = four_signs(four_at(values + i * 4 + 16, np.int32(left - np.int32(4))))
        byte = np.uint32(low | np.uint32(high << np.uint32(4)))
        present = np.uint32(np.uint32(1) << np.uint32(min(left, np.int32(8)))) - np.uint32(1)
        store_u8(signs + (i >> 3), np.uint32(byte & np.uint32(present)))


def encode_signs(slices, count, partials, block, chunks):
    """Headers, signs, and where a block is one chunk its means; else a record for each chunk at `partials`.

    The int32 at `count` grows by the numbers that are not finite.
    """
    row = slices + np.int64(cuda.blockIdx.y) * ROW_BYTES
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    lane = np.int32(cuda.threadIdx.x)
    values, means, signs, num = load_i64(row), load_i64(row + 8), load_i64(row + 16), load_i64(row + 24)
    if warp == 0 and lane == 0:
        write_header(means - HEADER_BYTES, num)
    nth, first, left = chunk_of(warp, num, block, chunks)
    if left > 0:
        at = np.int32(np.int32(4) * lane)
        address = values + (first + np.int64(at)) * 4
        near, far = four_at(address, np.int32(left - at)), four_at(address + FAR * 4, np.int32(left - at - FAR))
        absmax = largest_of_warp(largest_of_fours(near, far))
        sums = ZERO, ZERO, ZERO
        if absmax < INFINITE:
            divisor = checked_divisor(absmax)
            sums = with_four(far, divisor, with_four(near, divisor, sums))
        else:
            count_infinite(count, near)
            count_infinite(count, far)
        sums = sums_of_warp(sums)
        if lane == 0 and chunks > 1:
            chunk = (load_i64(row + 32) + nth) * chunks + (warp - nth * chunks)
            write_partial(partials + chunk * PARTIAL_BYTES, absmax, sums)
        elif lane == 0:
            write_means(means + nth * MEANS_BYTES, absmax, np.float32(left), sums)
    # not of the warp's own chunk where a block is not a multiple of eight numbers; else they come from the cache
    i = warp * CHUNK + np.int64(lane) * 8
    write_signs(values, signs, i, np.int32(min(max(num - i, 0), 8)))


def join_partials(slices, partials, block, chunks):
    """The means of blocks of several chunks: a warp takes a block."""
    row = slices + np.int64(cuda.blockIdx.y) * ROW_BYTES
    nth = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    num_here = min(load_i64(row + 24) - nth * block, block)
    if num_here > 0:
        chunks_here = (num_here + CHUNK - 1) // CHUNK
        lane = np.int64(cuda.threadIdx.x)
        records = partials + (load_i64(row + 32) + nth) * chunks * PARTIAL_BYTES
        absmax = ZERO_BITS
        for chunk in range(lane, chunks_here, WARP):
            absmax = np.int32(max(absmax, load_changing_i32(records + chunk * PARTIAL_BYTES)))
        absmax = largest_of_warp(absmax)
        sums = ZERO, ZERO, ZERO
        if absmax < INFINITE:
            divisor = checked_divisor(absmax)
            for chunk in range(lane, chunks_here, WARP):
                sums = with_partial(records + chunk * PARTIAL_BYTES, divisor, sums)
        sums = sums_of_warp(sums)
        if lane == 0:
            write_means(load_i64(row + 8) + nth * MEANS_BYTES, absmax, np.float32(num_here), sums)


@function("float32")
def chosen(signs, above, below):
    """One of two means by the lowest bit."""
    return above if np.uint32(signs & np.uint32(1)) != NO_BITS else below


@function("float32", "float32")
def means_of(address, nth, num):
    """The two means of a block; NaN where the header says another number than `num`."""
    is_ours = is_header_of(address - HEADER_BYTES, num)
    above = np.int32(bytes_at(address + nth * MEANS_BYTES, np.int32(4)))
    below = np.int32(bytes_at(address + nth * MEANS_BYTES + 4, np.int32(4)))
    return float32_of(above if is_ours else NAN_BITS), float32_of(below if is_ours else NAN_BITS)


@function("float32", "float32", "float32", "float32")
def four_means(signs, i, left, means, levels):
    """One of two means for each bit."""
    above, below = means
    word = NO_BITS
    if left > 0:
        last = (i + min(np.int64(left), 4) - 1) >> 3  # mostly in the same byte
        word = np.uint32(load_u8(signs + (i >> 3)) | np.uint32(load_u8(signs + last) << np.uint32(8)))
        word = np.uint32(word >> np.uint32(i & 7))
    return (
        chosen(word, above, below),
        chosen(np.uint32(word >> np.uint32(1)), above, below),
        chosen(np.uint32(word >> np.uint32(2)), above, below),
        chosen(np.uint32(word >> np.uint32(3)), above, below),
    )


decode_chunk_of_signs = chunk_decoder(means_of, four_means)


def decode_signs(slices, messages, block, chunks, levels, add):
    """As `gpu_ops.codec.one_bit.decode_signs`, on the terms of `codec_codes.decode_codes`."""
    row = slices + np.int64(cuda.blockIdx.y) * messages * ROW_BYTES
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    decode_chunk_of_signs(row, warp, np.int32(cuda.threadIdx.x), messages, block, chunks, levels, add)
