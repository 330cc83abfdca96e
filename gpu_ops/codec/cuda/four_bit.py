"""The CUDA loops of the 4-bit codec, on the CPU's leaves and the terms of `chunks`.

A lane has two codes of two bytes each; the absmax is found as that of the 8-bit codecs is.
"""

import numpy as np
from numba import cuda

from augpipe.gpu_ops.codec import four_bit as codec_four_bit
from augpipe.gpu_ops.codec.cuda.chunks import (
    FAR,
    INFINITE,
    NAN_BITS,
    NO_BITS,
    ROW_BYTES,
    WARPS,
    bytes_at,
    chunk_decoder,
    chunk_of,
    count_infinite,
    four_at,
    is_header_of,
    largest_of_fours,
    largest_of_warp,
    write_bytes,
    write_header,
)
from augpipe.gpu_ops.codec.cuda.codes import checked_divisor
from augpipe.gpu_ops.codec.leaves import HEADER_BYTES
from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import (
    float32_of,
    load_changing_i32,
    load_f32,
    load_i64,
    load_u16,
    product,
    store_u16,
)

nibble_of, byte_of_nibbles = shared(codec_four_bit.nibble_of), shared(codec_four_bit.byte_of_nibbles)
first_nibble, second_nibble = shared(codec_four_bit.first_nibble), shared(codec_four_bit.second_nibble)


@function("int64")
def nibble_place(i, nth, block):
    """Where the code of number `i`, of block `nth`, stands among all codes: each block begins with a byte."""
    return i + nth * (block & 1)


@function("int32")
def num_bytes(left):
    """The bytes, two at most, in which the codes of the first `left` of four numbers lie."""
    return np.int32(min(np.int32(np.int32(left + np.int32(1)) >> np.int32(1)), np.int32(2)))


@function("int32")
def nibble(bits, divisor):
    """The code of a number, given by its bits, of a block with this divisor."""
    return nibble_of(np.float32(float32_of(bits) / divisor))


@function("uint32")
def four_nibbles(four, left, divisor):
    """The codes of four numbers, the first lowest; zeros beyond the `left` ones."""
    a, b, c, d = four
    low = np.uint32(byte_of_nibbles(nibble(a, divisor), nibble(b, divisor)))
    high = np.uint32(byte_of_nibbles(nibble(c, divisor), nibble(d, divisor)))
    present = np.uint32(np.uint32(1) << np.uint32(np.int32(4) * min(max(left, np.int32(0)), np.int32(4))))
    return np.uint32(np.uint32(low | np.uint32(high << np.uint32(8))) & np.uint32(present - np.uint32(1)))


@function()
def write_nibbles(address, left, word):
    """The codes of the first `left` of four numbers to any address."""
    if left >= 4 and (address & 1) == 0:
        store_u16(address, word)
    else:
        write_bytes(address, num_bytes(left), word)


def encode_nibbles(slices, count, largest, block, chunks):
    """Headers, scales and codes of all slices, as `gpu_ops.codec.four_bit.encode_nibbles` writes them.

    The int32 at `count` grows by the numbers that are not finite. `largest` is read where blocks have several chunks.
    """
    row = slices + np.int64(cuda.blockIdx.y) * ROW_BYTES
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    scales, num = load_i64(row + 8), load_i64(row + 24)
    at = np.int32(np.int32(4) * np.int32(cuda.threadIdx.x))
    if warp == 0 and at == 0:
        write_header(scales - HEADER_BYTES, num)
    nth, first, left = chunk_of(warp, num, block, chunks)
    if left > 0:
        i, left_near, left_far = first + np.int64(at), np.int32(left - at), np.int32(left - at - FAR)
        values, codes = load_i64(row) + i * 4, load_i64(row + 16) + (nibble_place(i, nth, block) >> 1)
        near, far = four_at(values, left_near), four_at(values + FAR * 4, left_far)
        if chunks > 1:
            found = load_changing_i32(largest + (load_i64(row + 32) + nth) * 4)
        else:
            found = largest_of_warp(largest_of_fours(near, far))
        if at == 0 and first == nth * block:
            write_bytes(scales + nth * 4, np.int32(4), np.uint32(found if found < INFINITE else NAN_BITS))
        near_codes, far_codes = NO_BITS, NO_BITS
        if found < INFINITE:
            divisor = checked_divisor(found)
            near_codes = four_nibbles(near, left_near, divisor)
            far_codes = four_nibbles(far, left_far, divisor)
        else:
            count_infinite(count, near)
            count_infinite(count, far)
        write_nibbles(codes, left_near, near_codes)
        write_nibbles(codes + FAR // 2, left_far, far_codes)


@function("float32")
def scale_of(address, nth, num):
    """The absmax of a block; NaN where the header says another number than `num`."""
    scale = np.int32(bytes_at(address + nth * 4, np.int32(4)))
    return float32_of(scale if is_header_of(address - HEADER_BYTES, num) else NAN_BITS)


@function("float32")
def decoded(code, scale, levels):
    """The number of a code."""
    return product(load_f32(levels + np.int64(code) * 4), scale)


@function("float32", "float32", "float32", "float32")
def four_decoded(codes, place, left, scale, levels):
    """Level times scale."""
    address = codes + (place >> 1)
    if left >= 4 and (address & 1) == 0:
        word = np.int32(load_u16(address))
    else:
        word = np.int32(bytes_at(address, num_bytes(left)))
    high = np.int32(word >> np.int32(8))
    return (
        decoded(first_nibble(word), scale, levels),
        decoded(second_nibble(word), scale, levels),
        decoded(first_nibble(high), scale, levels),
        decoded(second_nibble(high), scale, levels),
    )


decode_chunk_of_nibbles = chunk_decoder(scale_of, four_decoded, nibble_place)


def decode_nibbles(slices, messages, block, chunks, levels, add):
    """As `gpu_ops.codec.four_bit.decode_nibbles`, on the terms of `codes.decode_codes`."""
    row = slices + np.int64(cuda.blockIdx.y) * messages * ROW_BYTES
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    decode_chunk_of_nibbles(row, warp, np.int32(cuda.threadIdx.x), messages, block, chunks, levels, add)
