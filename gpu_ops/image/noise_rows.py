"""Random words and normal numbers of a row's pixels, on the CPU, in scratch."""

import numpy as np
from numba import types

from augpipe.gpu_ops.image.noise import (
    BITS_OF_ONE,
    EXPONENT_BIAS,
    EXPONENT_SHIFT,
    MANTISSA,
    above_zero,
    radius_squared,
    sine_and_cosine,
    turn_of,
)
from augpipe.gpu_ops.jit import leaf, subroutine
from augpipe.gpu_ops.memory import load, load_bytes, prefer_wide_vectors, store
from augpipe.gpu_ops.random.philox import philox_block

load_key = load_bytes("values", types.uint32)
load_word, store_word = load("slots", types.uint32), store("slots", types.uint32)
store_normal = store("scaled")


@subroutine
def draw_words(at, at_key, first, width, at_words):
    """Four random words for each pixel of a row, of which the first one is the image's pixel `first`."""
    prefer_wide_vectors()
    zero, key0, key1 = np.uint64(0), np.uint64(load_key(at, at_key)), np.uint64(load_key(at, at_key + 4))
    for i in range(width):
        word0, word1, word2, word3 = philox_block(np.uint64(first + i), zero, zero, zero, key0, key1)
        store_word(at_words, i, np.uint32(word0))
        store_word(at_words, width + i, np.uint32(word1))
        store_word(at_words, 2 * width + i, np.uint32(word2))
        store_word(at_words, 3 * width + i, np.uint32(word3))


@subroutine
def draw_normals(at, at_key, first, width, at_words, at_normals):
    """Three normal numbers for each pixel of a row, of which the first one is the image's pixel `first`."""
    prefer_wide_vectors()
    draw_words(at, at_key, first, width, at_words)
    for i in range(width):
        radius = _radius(load_word(at_words, i))
        sine, cosine = sine_and_cosine(turn_of(load_word(at_words, width + i)))
        store_normal(at_normals, i, radius * cosine)
        store_normal(at_normals, width + i, radius * sine)
    for i in range(width):
        sine, cosine = sine_and_cosine(turn_of(load_word(at_words, 3 * width + i)))
        store_normal(at_normals, 2 * width + i, _radius(load_word(at_words, 2 * width + i)) * cosine)


@leaf
def _radius(word):
    """The distance from zero of a pair of normal numbers."""
    bits = np.float32(above_zero(word)).view(np.int32)
    mantissa = np.int32((bits & MANTISSA) | BITS_OF_ONE).view(np.float32)
    return np.float32(np.sqrt(radius_squared(mantissa, np.float32((bits >> EXPONENT_SHIFT) - EXPONENT_BIAS))))
