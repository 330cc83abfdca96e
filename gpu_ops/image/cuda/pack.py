"""The CUDA loop that packs images to four bytes a pixel, a whole table of them in one launch."""

import numpy as np
from numba import cuda

from augpipe.gpu_ops.cuda.memory import load_i64, store_u32
from augpipe.gpu_ops.image.cuda.pixels import load_pixel

PACK_COLUMNS = ("source", "target", "num_pixels", "channels")
"""Per image, int64: address of its dense (H, W, C) uint8, address of the RGBX (a multiple of 4), H * W, and C."""

PACK_RECORD_BYTES = 8 * len(PACK_COLUMNS)
TARGET, NUM_PIXELS, CHANNELS = 8, 16, 24
"""Bytes from the start of a record."""

PACK_SIGNATURE = "void(int64)"
PACK_THREADS = 256
PACK_LAUNCH_BOUNDS = (PACK_THREADS, 1)

SPARE = np.uint32(0xFF000000)


def pack(table):
    """A grid row an image; its threads take turns at the pixels."""
    record = table + np.int64(cuda.blockIdx.y) * PACK_RECORD_BYTES
    source, target = load_i64(record), load_i64(record + TARGET)
    num_pixels, channels = load_i64(record + NUM_PIXELS), np.int32(load_i64(record + CHANNELS))
    first = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
    step = np.int64(cuda.gridDim.x) * cuda.blockDim.x
    for pixel in range(first, num_pixels, step):
        store_u32(target + pixel * 4, np.uint32(load_pixel(source + pixel * channels, channels) | SPARE))
