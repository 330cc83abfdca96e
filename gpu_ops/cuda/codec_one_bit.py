"""The CUDA loops of the one-bit codec; on the terms of `codec_codes`.

Three kernels encode: partial sums of each chunk, in units of its block's absmax so that none overflows; the means; the
signs. Sums are float32, in an order that never changes.
"""

import numpy as np
from numba import cuda

from augpipe.gpu_ops.codec_one_bit import HEADER_BYTES, MEANS_BYTES
from augpipe.gpu_ops.cuda.codec_codes import (
    CHUNK,
    INFINITE,
    NAN_BITS,
    THREADS,
    checked_divisor,
    load_scale,
    store_word,
)
from augpipe.gpu_ops.cuda.codec_memory import (
    bits_of,
    float32_of,
    load_changing_f32,
    load_changing_i32,
    product,
    store_i32,
)
from augpipe.gpu_ops.cuda.memory import load_f32, load_u8, store_f32, store_u8

PARTIAL_BYTES = 12
"""Of a chunk: the sum of its numbers >= 0, that of the others, how many are >= 0."""

ZERO = np.float32(0.0)
NO_BITS = np.uint32(0)


def partial_sums(values, partials, largest, num, block, chunks):
    """Write a record for each chunk; its sums are in units of the block's absmax."""
    above_of = cuda.shared.array(THREADS, np.float32)
    below_of = cuda.shared.array(THREADS, np.float32)
    num_above_of = cuda.shared.array(THREADS, np.int32)
    thread = np.int64(cuda.threadIdx.x)
    nth = np.int64(cuda.blockIdx.x) // chunks
    first = nth * block + (np.int64(cuda.blockIdx.x) - nth * chunks) * CHUNK
    last = min(min(first + CHUNK, (nth + 1) * block), num)
    above, below, num_above = ZERO, ZERO, np.int32(0)
    bits = load_changing_i32(largest + nth * 4)
    if bits < INFINITE:
        divisor = checked_divisor(bits)
        for i in range(first + thread, last, THREADS):
            scaled = load_f32(values + i * 4) / divisor
            if scaled >= ZERO:
                above = np.float32(above + scaled)
                num_above = np.int32(num_above + np.int32(1))
            else:
                below = np.float32(below + scaled)
    above_of[thread], below_of[thread], num_above_of[thread] = above, below, num_above
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if thread < half:
            above_of[thread] = np.float32(above_of[thread] + above_of[thread + half])
            below_of[thread] = np.float32(below_of[thread] + below_of[thread + half])
            num_above_of[thread] = np.int32(num_above_of[thread] + num_above_of[thread + half])
        half //= 2
    if thread == 0:
        record = partials + np.int64(cuda.blockIdx.x) * PARTIAL_BYTES
        store_f32(record, above_of[0])
        store_f32(record + 4, below_of[0])
        store_i32(record + 8, num_above_of[0])


def write_means(payload, partials, largest, num, block, chunks):
    """The header, and for each block, by one thread, the two means."""
    nth = np.int64(cuda.blockIdx.x) * THREADS + np.int64(cuda.threadIdx.x)
    num_blocks = (num + block - 1) // block
    if nth == 0:
        store_word(payload, np.int64(0), np.uint32(num & 0xFFFFFFFF))
        store_word(payload, np.int64(1), np.uint32(num >> 32))
    if nth < num_blocks:
        above, below, num_above = ZERO, ZERO, np.int32(0)
        for chunk in range(chunks):
            record = partials + (nth * chunks + chunk) * PARTIAL_BYTES
            above = np.float32(above + load_changing_f32(record))
            below = np.float32(below + load_changing_f32(record + 4))
            num_above = np.int32(num_above + load_changing_i32(record + 8))
        num_here = np.int32(min(block, num - nth * block))
        bits = load_changing_i32(largest + nth * 4)
        is_finite = bits < INFINITE
        absmax = float32_of(bits if is_finite else np.int32(0))
        above = product(above / np.float32(max(num_above, np.int32(1))), absmax)
        below = product(below / np.float32(max(np.int32(num_here - num_above), np.int32(1))), absmax)
        means = payload + HEADER_BYTES
        store_word(means, 2 * nth, np.uint32(bits_of(above) if is_finite else NAN_BITS))
        store_word(means, 2 * nth + 1, np.uint32(bits_of(below) if is_finite else NAN_BITS))


def write_signs(values, payload, num, block):
    """A thread a byte: eight signs."""
    j = np.int64(cuda.blockIdx.x) * THREADS + np.int64(cuda.threadIdx.x)
    signs = payload + HEADER_BYTES + ((num + block - 1) // block) * MEANS_BYTES
    if j * 8 < num:
        byte = NO_BITS
        for k in range(min(np.int64(8), num - j * 8)):
            if load_f32(values + (j * 8 + k) * 4) >= ZERO:
                byte = np.uint32(byte | np.uint32(np.uint32(1) << np.uint32(k)))
        store_u8(signs + j, byte)


def decode_signs(payload, values, num, block, chunks, add):
    """As `gpu_ops.codec_one_bit.decode_signs`."""
    thread = np.int64(cuda.threadIdx.x)
    nth = np.int64(cuda.blockIdx.x) // chunks
    first = nth * block + (np.int64(cuda.blockIdx.x) - nth * chunks) * CHUNK
    last = min(min(first + CHUNK, (nth + 1) * block), num)
    means = payload + HEADER_BYTES
    signs = means + ((num + block - 1) // block) * MEANS_BYTES
    above, below = load_scale(means, 2 * nth), load_scale(means, 2 * nth + 1)
    for i in range(first + thread, last, THREADS):
        bit = np.uint32(load_u8(signs + (i >> 3)) >> np.uint32(i & 7)) & np.uint32(1)
        value = above if bit != NO_BITS else below
        if add:
            value = load_changing_f32(values + i * 4) + value
        store_f32(values + i * 4, value)
