"""The CUDA loop that mixes rendered images of a batch in place: `gpu_ops.image.mix` says how."""

from typing import Any

import numpy as np
from numba import cuda

from augpipe.gpu_ops.cuda.functions import IS_SIMULATED, function, shared
from augpipe.gpu_ops.cuda.memory import (
    float32_of,
    float32_of_float16,
    load_changing_f32,
    load_changing_u8,
    load_changing_u16,
    load_f32,
    load_i32,
)
from augpipe.gpu_ops.image import mix
from augpipe.gpu_ops.image.cuda.writing import FLOAT16, FLOAT32, ITEM_BYTES, UINT8, write
from augpipe.gpu_ops.image.mix import MIX_JOB, PLACES, REGION_BYTES, REGIONS, WEIGHTS

mixed = shared(mix.mixed)

MIX_JOB_BYTES = MIX_JOB.itemsize
MIX_SIGNATURE = "void(int64, int64, int64, int64)"
MIX_THREADS = 4 if IS_SIMULATED else 256
MIX_LAUNCH_BOUNDS = (256, 4)


@function("float32")
def read(address, held_as):
    """A number of a batch, which this kernel changes."""
    if held_as == FLOAT32:
        value = load_changing_f32(address)
    elif held_as == UINT8:
        value = np.float32(load_changing_u8(address))
    elif held_as == FLOAT16:
        value = float32_of_float16(load_changing_u16(address))
    else:
        value = float32_of(np.int32(load_changing_u16(address) << np.uint32(16)))
    return value


@function("boolean")
def is_within(region, x, y):
    """Whether a pixel lies in the region whose four sides lie at an address."""
    is_inside_x = load_i32(region) <= x and x < load_i32(region + 8)
    return is_inside_x and load_i32(region + 4) <= y and y < load_i32(region + 12)


def mix_kernel(held_as: int, planar: bool) -> Any:
    """The kernel's Python function for one number type (`writing.HELD_AS`) and layout; its arguments are int64."""
    item_bytes = ITEM_BYTES[held_as]

    def mix_images(jobs, batch, height, width):
        """A grid row a job; its threads take turns at the pixels of its two images."""
        job = jobs + np.int64(cuda.blockIdx.y) * MIX_JOB_BYTES
        num_pixels = height * width
        image_bytes = 3 * num_pixels * item_bytes
        pixel_bytes, channel_bytes = (item_bytes, num_pixels * item_bytes) if planar else (3 * item_bytes, item_bytes)
        first, second = np.int64(load_i32(job + PLACES)), np.int64(load_i32(job + PLACES + 4))
        own_weight, other_weight = load_f32(job + WEIGHTS), load_f32(job + WEIGHTS + 4)
        start = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        step = np.int64(cuda.gridDim.x) * cuda.blockDim.x
        for pixel in range(start, num_pixels, step):
            x, y = np.int32(pixel) % np.int32(width), np.int32(pixel) // np.int32(width)
            changes_own = is_within(job + REGIONS, x, y)
            changes_other = is_within(job + REGIONS + REGION_BYTES, x, y)
            if changes_own or changes_other:
                at = batch + first * image_bytes + pixel * pixel_bytes
                other_at = batch + second * image_bytes + pixel * pixel_bytes
                for _ in range(3):
                    own, other = read(at, held_as), read(other_at, held_as)
                    if changes_own:
                        write(at, np.float32(mixed(own, other, own_weight)), held_as)
                    if changes_other:
                        write(other_at, np.float32(mixed(other, own, other_weight)), held_as)
                    at, other_at = at + channel_bytes, other_at + channel_bytes

    return mix_images
