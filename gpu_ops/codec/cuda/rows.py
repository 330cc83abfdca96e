"""The CUDA loop that adds rows of float32 to others in a stated order: a rank's slice and the other ranks' messages."""

import numpy as np
from numba import cuda

from augpipe.gpu_ops.codec.cuda.chunks import WARPS
from augpipe.gpu_ops.cuda.memory import (
    WARP,
    float32_of,
    load_changing_f32,
    load_f32,
    product,
    store_f32,
    sum_of_product,
)


def add_rows(values, rows, row_bytes, num_rows, num, share, factor):
    """factor * (share * values + share * row 0 + share * row 1 + ...) over `num` values; a thread takes one of them.

    `share` and `factor` are float32, given by their bits. A share's product is not rounded before it is added, nor is
    it on the CPU.
    """
    warp = np.int64(cuda.blockIdx.x) * WARPS + np.int64(cuda.threadIdx.y)
    i = warp * WARP + np.int64(cuda.threadIdx.x)
    if i < num:
        unit = float32_of(np.int32(share))
        total = product(load_changing_f32(values + i * 4), unit)
        place, end = rows + i * 4, rows + num_rows * row_bytes
        while place < end:
            total = sum_of_product(load_f32(place), unit, total)
            place += row_bytes
        store_f32(values + i * 4, product(total, float32_of(np.int32(factor))))
