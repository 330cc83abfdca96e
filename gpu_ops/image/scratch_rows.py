"""What the loops of this room share: rows of scratch between a kernel's steps, and what a row ends as."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from augpipe.gpu_ops.image.tone import kept_within, to_uint8
from augpipe.gpu_ops.jit import leaf
from augpipe.gpu_ops.memory import load, load_bytes, store

load_pixel, load_two_pixels = load("pixels", types.uint32, types.int32), load_bytes("pixels", types.uint64)
load_fetched, store_fetched = load("fetched", types.uint32), store("fetched", types.uint32)
store_two_fetched = store("fetched", types.uint64, aligned=False)
store_batch = store("batch")
load_source_x, store_source_x = load("source_x", types.float32), store("source_x")
load_source_y, store_source_y = load("source_y", types.float32), store("source_y")
load_first_x, store_first_x = load("first_x", types.float32), store("first_x")
load_first_y, store_first_y = load("first_y", types.float32), store("first_y")
load_weight_x, store_weight_x = load("weight_x", types.float32), store("weight_x")
load_weight_y, store_weight_y = load("weight_y", types.float32), store("weight_y")
load_index_x, store_index_x = load("index_x", types.int32), store("index_x")
load_index_y, store_index_y = load("index_y", types.int32), store("index_y")
load_sum_x, store_sum_x = load("sum_x", types.float32), store("sum_x")
load_sum_y, store_sum_y = load("sum_y", types.float32), store("sum_y")
load_inverse, store_inverse = load("inverse", types.float32), store("inverse")
load_inside_x, store_inside_x = load("inside_x", types.float32), store("inside_x")
load_inside_y, store_inside_y = load("inside_y", types.float32), store("inside_y")
load_red, store_red = load("red", types.float32), store("red")
load_green, store_green = load("green", types.float32), store("green")
load_blue, store_blue = load("blue", types.float32), store("blue")

ZERO = np.float32(0.0)
ONE = np.float32(1.0)
HALF = np.float32(0.5)

PREFETCH_ROWS = np.float32(4.0)
"""Output rows ahead for which the image is asked for; 3 to 6 measured alike, none a third slower at scale 256."""

PREFETCH_STEP = 8
"""Output pixels between two such requests: a cache line holds 16 source pixels."""

SOURCE_X, SOURCE_Y, FIRST_X, FIRST_Y, SUM_X, SUM_Y, INSIDE_X, INSIDE_Y = range(8)
WEIGHT_Y, INDEX_Y, RED, GREEN, BLUE, INVERSE, WEIGHTS_X = range(8, 15)
"""Rows of scratch, each as long as a row of the output; `INVERSE` is 1 over the sums of weights. From `WEIGHTS_X` on,
there is one for each tap along x: of weights, then of indices, then `ROWS_KEPT` times of fetched pixels, where those of
two taps are interleaved."""


@leaf
def centred(position, length):
    """A pixel's centre, counted from the middle of a frame of `length` pixels; halves are exact in float32."""
    return np.float32(position) + (HALF - HALF * np.float32(length))


@intrinsic
def normalised(typing_context: Any, value: Any, scale: Any, bias: Any) -> Any:
    """`tone.normalise` as one operation, wherever the CPU has it.

    LLVM may contract a*b + c, and need not: it did in a loop over whole vectors of a row, and not at its end.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        float32 = ir.FloatType()
        signed = ir.FunctionType(float32, [float32] * 3)
        return builder.call(builder.module.declare_intrinsic("llvm.fmuladd", [float32], signed), arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


def as_held(batch, value):
    """`value` as the batch holds it: float32 as it is, uint8 to the nearest level."""
    return to_uint8.py_func(value) if batch.dtype == np.uint8 else value


@overload(as_held, inline="always")
def _as_held(batch, value):
    if batch.dtype == types.uint8:
        return lambda batch, value: to_uint8(value)
    return lambda batch, value: value


def finish(batch, level, scale, bias):
    """A level as the batch holds it: float32 normalised, uint8 the nearest one, since such a batch holds levels."""
    return to_uint8.py_func(level) if batch.dtype == np.uint8 else level * scale + bias


@overload(finish, inline="always")
def _finish(batch, level, scale, bias):
    if batch.dtype == types.uint8:
        return lambda batch, level, scale, bias: to_uint8(level)
    return lambda batch, level, scale, bias: normalised(level, scale, bias)


def finish_kept(batch, level, scale, bias):
    """`finish` of a level that is kept within 0..255 first."""
    return finish(batch, kept_within.py_func(level), scale, bias)


@overload(finish_kept, inline="always")
def _finish_kept(batch, level, scale, bias):
    if batch.dtype == types.uint8:
        return lambda batch, level, scale, bias: to_uint8(level)
    return lambda batch, level, scale, bias: normalised(kept_within(level), scale, bias)
