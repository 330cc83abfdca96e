"""One pixel of a photograph on the device, whatever the photograph's channels."""

import numpy as np

from augpipe.gpu_ops.cuda.functions import function
from augpipe.gpu_ops.cuda.memory import load_u8, load_u32


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
