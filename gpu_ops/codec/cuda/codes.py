"""The CUDA loops of the 8-bit codecs and of bfloat16, on the CPU's leaves; what they share with others is in
`chunks`.

A warp whose chunk is its whole block finds the absmax of the numbers in its registers, and encodes them from there. Of
a larger block, a kernel before that finds the absmax.
"""

import numpy as np
from numba import cuda

from augpipe.gpu_ops.codec import leaves as codec_leaves
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
    largest_of_fours,
    largest_of_warp,
    write_bytes,
)
from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import (
    bits_of,
    float32_of,
    load_changing_i32,
    load_f32,
    load_i32,
    load_i64,
    load_two_i32,
    product,
    raise_to,
    store_two_i32,
)

bfloat16_code, code_of = shared(codec_leaves.bfloat16_code), shared(codec_leaves.code_of)
divisor_of, table_slot = shared(codec_leaves.divisor_of), shared(codec_leaves.table_slot)


@function("float32")
def checked_divisor(largest):
    """What a finite block is divided by, from the bits of its absmax."""
    return divisor_of(float32_of(largest))


@function("uint32")
def code(bits, divisor, lookup, first_bucket, num_buckets):
    """The code of a number, given by its bits, of a block with this divisor."""
    scaled = bits_of(np.float32(float32_of(bits) / divisor))
    entry = load_i32(lookup + np.int64(table_slot(scaled, first_bucket, num_buckets)) * 4)
    return np.uint32(code_of(scaled, entry))


@function("uint32")
def four_codes(four, divisor, lookup, first_bucket, num_buckets):
    """The codes of four numbers side by side, the first lowest."""
    a, b, c, d = four
    low = np.uint32(
        code(a, divisor, lookup, first_bucket, num_buckets)
        | np.uint32(code(b, divisor, lookup, first_bucket, num_buckets) << np.uint32(8))
    )
    high = np.uint32(
        np.uint32(code(c, divisor, lookup, first_bucket, num_buckets) << np.uint32(16))
        | np.uint32(code(d, divisor, lookup, first_bucket, num_buckets) << np.uint32(24))
    )
    return np.uint32(low | high)


def largest_magnitudes(slices, largest, block, chunks):
    """Raise an int32 for each block of all slices at `largest`, zero before, to the bits of its absmax."""
    row = slices + np.int64(cuda.blockIdx.y) * ROW_BYTES
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    nth, first, left = chunk_of(warp, load_i64(row + 24), block, chunks)
    if left > 0:
        at = np.int32(np.int32(4) * np.int32(cuda.threadIdx.x))
        address = load_i64(row) + (first + np.int64(at)) * 4
        near, far = four_at(address, np.int32(left - at)), four_at(address + FAR * 4, np.int32(left - at - FAR))
        found = largest_of_warp(largest_of_fours(near, far))
        place = largest + (load_i64(row + 32) + nth) * 4
        # what another warp has just raised may not show yet: then one more atomic is all it costs
        if at == 0 and found > load_changing_i32(place):
            raise_to(place, found)


def encode_codes(slices, count, largest, block, chunks, lookup, first_bucket, num_buckets):
    """Scales and codes of all slices, as `gpu_ops.codec.loops.encode_codes` writes them.

    The int32 at `count` grows by the numbers that are not finite. `largest` is read where blocks have several chunks.
    """
    row = slices + np.int64(cuda.blockIdx.y) * ROW_BYTES
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    nth, first, left = chunk_of(warp, load_i64(row + 24), block, chunks)
    if left > 0:
        at = np.int32(np.int32(4) * np.int32(cuda.threadIdx.x))
        i, left_near, left_far = first + np.int64(at), np.int32(left - at), np.int32(left - at - FAR)
        values, codes = load_i64(row) + i * 4, load_i64(row + 16) + i
        near, far = four_at(values, left_near), four_at(values + FAR * 4, left_far)
        if chunks > 1:
            found = load_changing_i32(largest + (load_i64(row + 32) + nth) * 4)
        else:
            found = largest_of_warp(largest_of_fours(near, far))
        if at == 0 and first == nth * block:
            scale = np.uint32(found if found < INFINITE else NAN_BITS)
            write_bytes(load_i64(row + 8) + nth * 4, np.int32(4), scale)
        near_codes, far_codes = NO_BITS, NO_BITS
        if found < INFINITE:
            divisor, low, buckets = checked_divisor(found), np.int32(first_bucket), np.int32(num_buckets)
            near_codes = four_codes(near, divisor, lookup, low, buckets)
            far_codes = four_codes(far, divisor, lookup, low, buckets)
        else:
            count_infinite(count, near)
            count_infinite(count, far)
        write_bytes(codes, left_near, near_codes)
        write_bytes(codes + FAR, left_far, far_codes)


@function("float32")
def decoded(byte, scale, levels):
    """The number of a code, which is the lowest byte of an uint32."""
    return product(load_f32(levels + np.int64(np.uint32(byte & np.uint32(255))) * 4), scale)


@function("float32")
def scale_of(address, nth, num):
    """The absmax of a block."""
    return float32_of(np.int32(bytes_at(address + nth * 4, np.int32(4))))


@function("float32", "float32", "float32", "float32")
def four_decoded(codes, i, left, scale, levels):
    """Level times scale."""
    word = bytes_at(codes + i, left)
    return (
        decoded(word, scale, levels),
        decoded(np.uint32(word >> np.uint32(8)), scale, levels),
        decoded(np.uint32(word >> np.uint32(16)), scale, levels),
        decoded(np.uint32(word >> np.uint32(24)), scale, levels),
    )


decode_chunk_of_codes = chunk_decoder(scale_of, four_decoded)


def decode_codes(slices, messages, block, chunks, levels, add):
    """As `gpu_ops.codec.loops.decode_codes`, of all messages of all slices, over their values or added to them."""
    row = slices + np.int64(cuda.blockIdx.y) * messages * ROW_BYTES
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    decode_chunk_of_codes(row, warp, np.int32(cuda.threadIdx.x), messages, block, chunks, levels, add)


@function("int32")
def two_bfloat16(a, b):
    """Two bfloat16 side by side, from the bits of two numbers."""
    return np.int32(np.uint32(np.uint32(bfloat16_code(a)) | np.uint32(np.uint32(bfloat16_code(b)) << np.uint32(16))))


@function()
def write_four_bfloat16(address, left, four):
    """The first `left` of four numbers, given by their bits, to any address."""
    a, b, c, d = four
    low, high = two_bfloat16(a, b), two_bfloat16(c, d)
    if left >= 4 and (address & 7) == 0:
        store_two_i32(address, low, high)
    else:
        write_bytes(address, np.int32(left * np.int32(2)), np.uint32(low))
        write_bytes(address + 4, np.int32(left * np.int32(2) - np.int32(4)), np.uint32(high))


def encode_bfloat16(slices, count):
    """As `gpu_ops.codec.loops.encode_bfloat16`, of all slices; a chunk is a block of its own."""
    row = slices + np.int64(cuda.blockIdx.y) * ROW_BYTES
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    _, first, left = chunk_of(warp, load_i64(row + 24), np.int64(2 * FAR), np.int64(1))
    at = np.int32(np.int32(4) * np.int32(cuda.threadIdx.x))
    i, left_near, left_far = first + np.int64(at), np.int32(left - at), np.int32(left - at - FAR)
    values, codes = load_i64(row) + i * 4, load_i64(row + 16) + i * 2
    near, far = four_at(values, left_near), four_at(values + FAR * 4, left_far)
    count_infinite(count, near)
    count_infinite(count, far)
    write_four_bfloat16(codes, left_near, near)
    write_four_bfloat16(codes + FAR * 2, left_far, far)


@function("float32")
def no_scale(address, nth, num):
    """bfloat16 has none."""
    return np.float32(1.0)


@function("float32", "float32", "float32", "float32")
def four_widened(codes, i, left, scale, levels):
    """What four bfloat16 are, exactly."""
    address = codes + i * 2
    if left >= 4 and (address & 7) == 0:
        low, high = load_two_i32(address)
    else:
        low = np.int32(bytes_at(address, np.int32(left * np.int32(2))))
        high = np.int32(bytes_at(address + 4, np.int32(left * np.int32(2) - np.int32(4))))
    upper = np.int32(-65536)
    return (
        float32_of(np.int32(low << np.int32(16))),
        float32_of(np.int32(low & upper)),
        float32_of(np.int32(high << np.int32(16))),
        float32_of(np.int32(high & upper)),
    )


widen_chunk = chunk_decoder(no_scale, four_widened)


def decode_bfloat16(slices, messages, block, chunks, levels, add):
    """As `gpu_ops.codec.loops.decode_bfloat16`, on the terms of `decode_codes`."""
    row = slices + np.int64(cuda.blockIdx.y) * messages * ROW_BYTES
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    widen_chunk(row, warp, np.int32(cuda.threadIdx.x), messages, block, chunks, levels, add)
