"""Changing how pixels are held: packed to four bytes on the way in, narrowed to 16-bit floats on the way out."""

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.jit import kernel


@kernel()
def pack_rgbx(image, packed):
    """Copy an uint8 image (H, W, C) with C of 1 (gray), 3 or 4 (the fourth is dropped) into (H, W, 4) RGBX, X = 255."""
    height, width, channels = image.shape
    green, blue = (0, 0) if channels == 1 else (1, 2)
    for y in range(height):
        for x in range(width):
            packed[y, x, 0] = image[y, x, 0]
            packed[y, x, 1] = image[y, x, green]
            packed[y, x, 2] = image[y, x, blue]
            packed[y, x, 3] = np.uint8(255)


@kernel()
def round_to_bfloat16(bits, out):
    """Round float32 numbers, given as (n,) uint32 bits, to bfloat16, as (n,) uint16 bits; halves to even."""
    for i in range(len(bits)):
        word = bits[i]
        odd = (word >> np.uint32(16)) & np.uint32(1)
        out[i] = np.uint16((word + np.uint32(0x7FFF) + odd) >> np.uint32(16))


def narrow(values: npt.NDArray[np.float32], out: npt.NDArray[np.generic]) -> None:
    """Round (n,) float32 `values` into (n,) `out`: float16, or uint16 that holds the bits of bfloat16."""
    if out.dtype == np.uint16:
        round_to_bfloat16(values.view(np.uint32), out)
    else:
        np.copyto(out, values, casting="same_kind")
