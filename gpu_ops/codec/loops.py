"""The CPU loops of the codecs: a run of float32 to a payload and back, without the GIL; all memory by address.

Every argument that names memory is an address. Values are float32 and lie at a multiple of 4; payloads lie anywhere.
Loops return how many non-finite numbers they saw. No fast-math: the same bits from every CPU.
"""

import numpy as np

from augpipe.gpu_ops.codec.leaves import INFINITE, bfloat16_code, code_of, divisor_of, magnitude_bits, table_slot
from augpipe.gpu_ops.codec.memory import (
    load_bits,
    load_byte,
    load_entry,
    load_float,
    load_half,
    load_level,
    load_slot,
    load_value,
    load_value_bits,
    store_bits,
    store_byte,
    store_float,
    store_half,
    store_slot,
    store_value,
)
from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.memory import prefer_wide_vectors

NAN = np.float32(np.nan)
RUN = 256
"""Numbers that are scaled before their codes are looked up: what lies between stays in the first-level cache."""


@kernel(fastmath=False)
def encode_codes(values, payload, num, block, table, first_bucket, num_buckets, scratch):
    """Blocks of float32 to one scale (absmax) each, then one code a number; a block with a non-finite one: scale NaN.

    Args:
        values: (num,) float32.
        payload: (4 * ceil(num / block) + num,) bytes, written.
        block: numbers that share a scale.
        table: (2 * num_buckets,) int32, see `codec_leaves`.
        first_bucket: upper bits of the magnitude that has the table's first entry.
        scratch: (2 * RUN,) int32.
    """
    prefer_wide_vectors()
    values, payload, table = np.uintp(values), np.uintp(payload), np.uintp(table)
    first_bucket, num_buckets = np.int32(first_bucket), np.int32(num_buckets)
    scaled_bits, slots = np.uintp(scratch), np.uintp(np.uintp(scratch) + np.uintp(4 * RUN))
    num_blocks = (num + block - 1) // block
    codes = np.uintp(payload + np.uintp(4 * num_blocks))
    num_non_finite = np.int64(0)
    for nth in range(num_blocks):
        first = nth * block
        last = min(first + block, num)
        largest = np.int32(0)
        for i in range(first, last):
            largest = np.int32(max(largest, magnitude_bits(load_value_bits(values, i))))
        if largest >= INFINITE:
            store_float(payload, nth, NAN)
            for i in range(first, last):
                num_non_finite += np.int64(magnitude_bits(load_value_bits(values, i)) >= INFINITE)
                store_byte(codes, i, np.uint8(0))
            continue
        found = np.int32(largest)  # numba views only what is assigned once
        absmax = found.view(np.float32)
        store_float(payload, nth, absmax)
        divisor = divisor_of(absmax)
        for start in range(first, last, RUN):
            run = min(RUN, last - start)
            # in a loop without the lookup, which not every CPU vectorises, and which would keep it from dividing so
            for i in range(run):
                scaled = np.float32(load_value(values, start + i) / divisor)
                bits = scaled.view(np.int32)
                store_bits(scaled_bits, i, bits)
                store_slot(slots, i, table_slot(bits, first_bucket, num_buckets))
            for i in range(run):
                entry = load_entry(table, load_slot(slots, i))
                store_byte(codes, start + i, np.uint8(code_of(load_bits(scaled_bits, i), entry)))
    return num_non_finite


@kernel(fastmath=False)
def decode_codes(payload, values, num, block, levels, add):
    """What `encode_codes` wrote as float32: level times scale, written over `values` or added to them.

    Args:
        levels: (256,) float32, the codebook.
        add: whether to add.
    """
    prefer_wide_vectors()
    values, payload, levels = np.uintp(values), np.uintp(payload), np.uintp(levels)
    num_blocks = (num + block - 1) // block
    codes = np.uintp(payload + np.uintp(4 * num_blocks))
    for nth in range(num_blocks):
        first = nth * block
        last = min(first + block, num)
        scale = load_float(payload, nth)
        if add:
            for i in range(first, last):
                level = load_level(levels, np.int32(load_byte(codes, i)))
                store_value(values, i, load_value(values, i) + level * scale)
        else:
            for i in range(first, last):
                store_value(values, i, load_level(levels, np.int32(load_byte(codes, i))) * scale)


@kernel(fastmath=False)
def encode_bfloat16(values, payload, num):
    """(num,) float32 to as many bfloat16."""
    prefer_wide_vectors()
    values, payload = np.uintp(values), np.uintp(payload)
    num_non_finite = np.int64(0)
    for i in range(num):
        bits = load_value_bits(values, i)
        num_non_finite += np.int64(magnitude_bits(bits) >= INFINITE)
        store_half(payload, i, np.uint16(bfloat16_code(bits)))
    return num_non_finite


@kernel(fastmath=False)
def decode_bfloat16(payload, values, num, add):
    """(num,) bfloat16 to float32, exactly."""
    prefer_wide_vectors()
    values, payload = np.uintp(values), np.uintp(payload)
    for i in range(num):
        bits = np.uint32(np.uint32(load_half(payload, i)) << np.uint32(16))
        value = bits.view(np.float32)
        if add:
            value = load_value(values, i) + value
        store_value(values, i, value)


@kernel(fastmath=False)
def encode_float32(values, payload, num):
    """A copy that counts."""
    prefer_wide_vectors()
    values, payload = np.uintp(values), np.uintp(payload)
    num_non_finite = np.int64(0)
    for i in range(num):
        value = load_value(values, i)
        num_non_finite += np.int64(magnitude_bits(load_value_bits(values, i)) >= INFINITE)
        store_float(payload, i, value)
    return num_non_finite


@kernel(fastmath=False)
def decode_float32(payload, values, num, add):
    """A copy, or a sum."""
    prefer_wide_vectors()
    values, payload = np.uintp(values), np.uintp(payload)
    for i in range(num):
        value = load_float(payload, i)
        if add:
            value = load_value(values, i) + value
        store_value(values, i, value)


# addresses and numbers of items
declare(__name__, encode_codes, any=lambda: (1,) * 8)
declare(__name__, decode_codes, any=lambda: (*(1,) * 5, True))
declare(__name__, encode_bfloat16, any=lambda: (1,) * 3)
declare(__name__, decode_bfloat16, any=lambda: (*(1,) * 3, True))
declare(__name__, encode_float32, any=lambda: (1,) * 3)
declare(__name__, decode_float32, any=lambda: (*(1,) * 3, True))
