"""The CUDA loops of the codecs: a run of float32 to a payload and back, on the CPU's leaves; all memory by address.

A block of threads works on a chunk: up to `CHUNK` numbers of one block of the codec. Encoding takes two kernels: the
largest magnitude of each block, into scratch, then the codes. Values lie at multiples of 4; payloads of codes anywhere.
"""

import numpy as np
from numba import cuda

from augpipe.gpu_ops import codec_leaves
from augpipe.gpu_ops.cuda.codec_memory import (
    add_to,
    bits_of,
    float32_of,
    load_changing_f32,
    load_changing_i32,
    product,
    raise_to,
)
from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import load_f32, load_i32, load_u8, store_f32, store_u8, store_u16
from augpipe.gpu_ops.cuda.simulation import IS_SIMULATED

bfloat16_code, code_of = shared(codec_leaves.bfloat16_code), shared(codec_leaves.code_of)
divisor_of, magnitude_bits = shared(codec_leaves.divisor_of), shared(codec_leaves.magnitude_bits)
table_slot = shared(codec_leaves.table_slot)

THREADS = 4 if IS_SIMULATED else 128
"""Of a block; the simulator starts a Python thread for each."""

CHUNK = 32 if IS_SIMULATED else 4096
"""Numbers a block of threads takes at most."""

LAUNCH_BOUNDS = (THREADS, 1)

INFINITE = codec_leaves.INFINITE
NAN_BITS = np.int32(0x7FC00000)
ZERO_BITS = np.int32(0)


@function("float32")
def load_scale(payload, nth):
    """Scale `nth` of a payload, byte by byte: a payload may start anywhere."""
    at = payload + nth * 4
    low = np.uint32(load_u8(at) | np.uint32(load_u8(at + 1) << np.uint32(8)))
    high = np.uint32(np.uint32(load_u8(at + 2) << np.uint32(16)) | np.uint32(load_u8(at + 3) << np.uint32(24)))
    return float32_of(np.int32(low | high))


@function()
def store_word(payload, nth, word):
    """Four bytes at place `nth` of a payload, given as an uint32."""
    at = payload + nth * 4
    store_u8(at, np.uint32(word & np.uint32(255)))
    store_u8(at + 1, np.uint32(np.uint32(word >> np.uint32(8)) & np.uint32(255)))
    store_u8(at + 2, np.uint32(np.uint32(word >> np.uint32(16)) & np.uint32(255)))
    store_u8(at + 3, np.uint32(word >> np.uint32(24)))


@function("int32")
def magnitude_at(values, i):
    """Bits of the magnitude of number `i`."""
    return magnitude_bits(load_i32(values + i * 4))


@function("int32")
def code_at(values, i, divisor, table, first_bucket, num_buckets):
    """The code of number `i` of a block with this divisor."""
    bits = bits_of(load_f32(values + i * 4) / divisor)
    entry = load_i32(table + np.int64(table_slot(bits, first_bucket, num_buckets)) * 4)
    return code_of(bits, entry)


@function("int32")
def rounded(bits):
    """The 16 bits of a bfloat16."""
    return bfloat16_code(bits)


@function("float32")
def checked_divisor(largest):
    """What a finite block is divided by, from the bits of its absmax."""
    return divisor_of(float32_of(largest))


def largest_magnitudes(values, largest, num, block, chunks):
    """Raise (blocks,) int32 at `largest`, zero before, to the bits of each block's absmax; the count behind them grows.

    The int32 behind the last block's counts numbers that are not finite.
    """
    per_thread = cuda.shared.array(THREADS, np.int32)
    thread = np.int64(cuda.threadIdx.x)
    nth = np.int64(cuda.blockIdx.x) // chunks
    first = nth * block + (np.int64(cuda.blockIdx.x) - nth * chunks) * CHUNK
    last = min(min(first + CHUNK, (nth + 1) * block), num)
    found, num_non_finite = ZERO_BITS, ZERO_BITS
    for i in range(first + thread, last, THREADS):
        bits = magnitude_at(values, i)
        found = np.int32(max(found, bits))
        num_non_finite = np.int32(num_non_finite + np.int32(bits >= INFINITE))
    if num_non_finite > 0:
        num_blocks = (num + block - 1) // block
        add_to(largest + num_blocks * 4, num_non_finite)
    per_thread[thread] = found
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if thread < half:
            per_thread[thread] = np.int32(max(per_thread[thread], per_thread[thread + half]))
        half //= 2
    if thread == 0:
        raise_to(largest + nth * 4, per_thread[0])


def encode_codes(values, payload, largest, num, block, chunks, table, first_bucket, num_buckets):
    """Scales and codes of chunks, as `gpu_ops.codec_loops.encode_codes` writes them."""
    thread = np.int64(cuda.threadIdx.x)
    nth = np.int64(cuda.blockIdx.x) // chunks
    first = nth * block + (np.int64(cuda.blockIdx.x) - nth * chunks) * CHUNK
    last = min(min(first + CHUNK, (nth + 1) * block), num)
    codes = payload + ((num + block - 1) // block) * 4
    bits = load_changing_i32(largest + nth * 4)
    is_finite = bits < INFINITE
    if first == nth * block and thread == 0:
        store_word(payload, nth, np.uint32(bits if is_finite else NAN_BITS))
    if is_finite:
        divisor = checked_divisor(bits)
        for i in range(first + thread, last, THREADS):
            code = code_at(values, i, divisor, table, np.int32(first_bucket), np.int32(num_buckets))
            store_u8(codes + i, np.uint32(code))
    else:
        for i in range(first + thread, last, THREADS):
            store_u8(codes + i, np.uint32(0))


def decode_codes(payload, values, num, block, chunks, levels, add):
    """As `gpu_ops.codec_loops.decode_codes`."""
    thread = np.int64(cuda.threadIdx.x)
    nth = np.int64(cuda.blockIdx.x) // chunks
    first = nth * block + (np.int64(cuda.blockIdx.x) - nth * chunks) * CHUNK
    last = min(min(first + CHUNK, (nth + 1) * block), num)
    codes = payload + ((num + block - 1) // block) * 4
    scale = load_scale(payload, nth)
    for i in range(first + thread, last, THREADS):
        value = product(load_f32(levels + np.int64(load_u8(codes + i)) * 4), scale)
        if add:
            value = load_changing_f32(values + i * 4) + value
        store_f32(values + i * 4, value)


def encode_whole(values, payload, count, num, item_bytes):
    """float32 to themselves (4 item bytes) or to bfloat16 (2); the int32 at `count` grows by the non-finite ones."""
    start = np.int64(cuda.blockIdx.x) * CHUNK
    num_non_finite = ZERO_BITS
    for i in range(start + np.int64(cuda.threadIdx.x), min(start + CHUNK, num), THREADS):
        bits = load_i32(values + i * 4)
        num_non_finite = np.int32(num_non_finite + np.int32(magnitude_at(values, i) >= INFINITE))
        if item_bytes == 4:
            store_f32(payload + i * 4, float32_of(bits))
        else:
            store_u16(payload + i * 2, np.uint32(rounded(bits)))
    if num_non_finite > 0:
        add_to(count, num_non_finite)


def decode_whole(payload, values, num, item_bytes, add):
    """What `encode_whole` wrote, exactly."""
    start = np.int64(cuda.blockIdx.x) * CHUNK
    for i in range(start + np.int64(cuda.threadIdx.x), min(start + CHUNK, num), THREADS):
        if item_bytes == 4:
            value = load_f32(payload + i * 4)
        else:
            low, high = load_u8(payload + i * 2), load_u8(payload + i * 2 + 1)
            value = float32_of(np.int32(np.uint32(low << np.uint32(16)) | np.uint32(high << np.uint32(24))))
        if add:
            value = load_changing_f32(values + i * 4) + value
        store_f32(values + i * 4, value)
