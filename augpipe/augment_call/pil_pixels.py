"""PIL images as arrays: their own memory where Pillow shows it, a copy elsewhere.

Pillow holds an RGB image as four bytes a pixel, which is what the kernel reads. From 11.2 on it shows them by Arrow's C
interface (https://arrow.apache.org/docs/format/CDataInterface.html), where numpy's makes two copies, of three bytes.
"""

import ctypes
from typing import Any

import numpy as np

from augpipe.sources.protocol import Pixels


class _ArrowArray(ctypes.Structure):
    """The C interface's struct of that name."""


_ArrowArray._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowArray))),
    *((name, ctypes.c_void_p) for name in ("dictionary", "release", "private_data")),
]

_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Memory:
    """What numpy makes an array of, which keeps the capsule, and with it the image's memory."""

    def __init__(self, address: int, shape: tuple[int, ...], capsule: Any) -> None:
        self.__array_interface__ = {"data": (address, True), "shape": shape, "typestr": "|u1", "version": 3}
        self.capsule = capsule


def pixels_of(image: Any) -> Pixels:
    """What numpy makes of a PIL image in mode L, RGB or RGBX: (H, W), (H, W, 3) or (H, W, 4) uint8.

    It is Pillow's memory, and read-only, unless Pillow is older or holds the image in pieces, as it does above 16 MB.
    """
    width, height = image.size
    capsule = _shown(image) if width * height else None
    if capsule is None:
        return np.asarray(image)
    array = _ArrowArray.from_address(_pointer_of(capsule, b"arrow_array"))
    if array.n_children == 0:
        return np.asarray(_Memory(array.buffers[1], (height, width), capsule))
    of_bytes = array.children[0].contents
    pixels = np.asarray(_Memory(of_bytes.buffers[1], (height, width, 4), capsule))
    return pixels[:, :, :3] if image.mode == "RGB" else pixels


def _shown(image: Any) -> Any:
    """The image's memory, as a capsule of Arrow's C interface; None where Pillow does not show it."""
    try:
        _, capsule = image.__arrow_c_array__()
    except (AttributeError, ValueError):
        return None
    return capsule
