"""How a pair of neighbouring pixels is written: each number type, planar or interleaved."""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import (
    float16_bits,
    float16_pair_bits,
    float32_bits,
    store_f32,
    store_f32_pair,
    store_u8,
    store_u16,
    store_u32,
)
from augpipe.gpu_ops.image import pixels, tone

bfloat16_bits, to_uint8 = shared(pixels.bfloat16_bits), shared(tone.to_uint8)

FLOAT32, FLOAT16, BFLOAT16, UINT8 = 0, 1, 2, 3
HELD_AS = {"float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16, "uint8": UINT8}
"""What a kernel's `held_as` is, a constant when it is compiled."""

ITEM_BYTES = (4, 2, 2, 1)


@function("uint32")
def item_bits(value, held_as):
    """A finished number as its type holds it, in the low bits of a uint32."""
    if held_as == FLOAT16:
        bits = float16_bits(value)
    elif held_as == BFLOAT16:
        bits = np.uint32(bfloat16_bits(float32_bits(value)))
    else:
        bits = np.uint32(to_uint8(value))
    return bits


@function()
def write(address, value, held_as):
    """One number."""
    if held_as == FLOAT32:
        store_f32(address, value)
    elif held_as == UINT8:
        store_u8(address, item_bits(value, held_as))
    else:
        store_u16(address, item_bits(value, held_as))


@function()
def write_pair(address, first, second, held_as):
    """Two numbers that lie side by side, the first at a multiple of their common size: one store."""
    if held_as == FLOAT32:
        store_f32_pair(address, first, second)
    elif held_as == FLOAT16:
        store_u32(address, float16_pair_bits(first, second))
    elif held_as == BFLOAT16:
        store_u32(address, np.uint32(item_bits(first, held_as) | (item_bits(second, held_as) << np.uint32(16))))
    else:
        store_u16(address, np.uint32(item_bits(first, held_as) | (item_bits(second, held_as) << np.uint32(8))))
