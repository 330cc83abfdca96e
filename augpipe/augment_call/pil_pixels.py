"""PIL images: their own memory where Pillow shows it, else a copy of what is looked at.

Pillow holds an RGB image as four bytes a pixel, which is what the kernel reads. From 11.2 on it shows them by Arrow's C
interface (https://arrow.apache.org/docs/format/CDataInterface.html), where numpy's makes two copies, of three bytes.
"""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from augpipe.native.cpu_render import pack_into
from augpipe.pipeline.stored_image import Decodable
from augpipe.sources.protocol import Pixels

BYTES_IN_ONE_PIECE = 2**24
"""The largest image that Pillow holds in one piece, unless it was told otherwise."""

STRIP_BYTES = 2**18
"""Of what is copied at once: it stays in the core's cache."""


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

    It is Pillow's memory, and read-only, unless Pillow is older or holds the image in pieces.
    """
    image.load()  # some files have another size then
    width, height = image.size
    capsule = _shown(image) if width * height else None
    if capsule is None:
        return np.asarray(image)
    array = _ArrowArray.from_address(_pointer_of(capsule, b"arrow_array"))
    assert array.length == width * height
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


def is_in_pieces(image: Any) -> bool:
    """Whether Pillow shows memory, but not this large image's, as it holds rows of it in several places."""
    image.load()
    num_pixels: int = image.size[0] * image.size[1]
    return 4 * num_pixels > BYTES_IN_ONE_PIECE and hasattr(image, "__arrow_c_array__") and _shown(image) is None


class ImageInPieces:
    """A large PIL image in mode RGB or RGBX as a `StoredImage`: only what a plan looks at is copied."""

    may_crop = may_scale = False

    def __init__(self, image: Any) -> None:
        self._image = image
        self.size = image.size[1], image.size[0]
        """Height and width."""

    @property
    def content(self) -> Pixels:
        """A copy of all of it."""
        return np.asarray(self._image)

    def is_array_above(self, num_pixels: int) -> bool:
        """As of a `StoredImage`."""
        height, width = self.size
        return bool(height * width > num_pixels)

    def in_place(self) -> None:
        """As of a `StoredImage`."""
        return

    def dense_rows(self) -> None:
        """As of a `StoredImage`."""
        return

    def whole(self, factor: int = 1) -> Decodable:
        """As of a `StoredImage`."""
        return self.region(factor, (0, 0, self.size[1], self.size[0]), None)

    def region(self, factor: int, region: Sequence[int], row_indexes: None) -> Decodable:
        """As of a `StoredImage`."""
        left, top, right, bottom = region
        decode = partial(self._copied, left, top, right, bottom)
        return Decodable(height=bottom - top, width=right - left, first_x=left, first_y=top, decode=decode)

    def _copied(self, left: int, top: int, right: int, bottom: int, memory: Pixels) -> Pixels:
        pixels = memory.reshape(bottom - top, right - left, 4)
        num_rows = max(STRIP_BYTES // (4 * (right - left)), 1)
        for first in range(top, bottom, num_rows):
            last = min(first + num_rows, bottom)
            strip = pixels_of(self._image.crop((left, first, right, last)))
            pack_into(pixels[first - top : last - top].reshape(-1), strip)
        return pixels
