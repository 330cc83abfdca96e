"""One pixel of an image on the device: which one stands for a tap beyond the border, and what its channels are."""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import load_u8, load_u32, reciprocal
from augpipe.gpu_ops.image import sampling

clamp, continued = shared(sampling.clamp), shared(sampling.continued)
border_period, border_turn = shared(sampling.border_period), shared(sampling.border_turn)

ONE = np.float32(1.0)


@function("int32")
def existing(tap, low, high, reflects):
    """The index of the pixel for a tap, both counted from the row's origin; `low` and `high` are float32 like `tap`."""
    if reflects:
        num = high - low + ONE
        period = border_period(reflects, num)
        tap = continued(tap, low, period, reciprocal(period), border_turn(reflects, num))
    return np.int32(clamp(tap, low, high))


@function("uint32")
def load_pixel(address, channels):
    """One pixel as RGBX in a uint32; X is arbitrary."""
    if channels == 4:
        pixel = load_u32(address)
    elif channels == 3:
        green, blue = np.uint32(load_u8(address + 1) << np.uint32(8)), np.uint32(load_u8(address + 2) << np.uint32(16))
        pixel = np.uint32(load_u8(address) | green | blue)
    else:
        pixel = np.uint32(load_u8(address) * np.uint32(0x010101))
    return pixel
