"""Decoded pixels, wherever they lie."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


@dataclass(kw_only=True, slots=True, eq=False)  # one is made for each image of a batch; frozen ones take twice as long
class LocatedPixels:
    """A region of an image, or all of it: uint8 in dense rows, in host memory or a device's."""

    address: int
    """The address of the first byte."""
    height: int
    width: int
    first_x: int = 0
    """The column of the image that the first column is, at the scale at which the image was decoded."""
    first_y: int = 0
    """The row of the image that the first row is, as above."""
    channels: int = 4
    """1, 3 or 4 bytes a pixel; the fourth means nothing."""
    owner: Any
    """What keeps the memory: on the host a uint8 array that they lie in, C-contiguous unless read in place by a call;
    else a batch or an arena."""

    @classmethod
    def of(cls, pixels: Pixels, first_x: int = 0, first_y: int = 0) -> "LocatedPixels":
        """A C-contiguous (height, width, channels) array on the host."""
        height, width, channels = pixels.shape
        return cls(
            address=pixels.ctypes.data,
            height=height,
            width=width,
            first_x=first_x,
            first_y=first_y,
            channels=channels,
            owner=pixels,
        )

    @property
    def is_on_host(self) -> bool:
        return isinstance(self.owner, np.ndarray)

    @property
    def array(self) -> Pixels:
        """(height, width, channels) uint8, a view of the host's memory."""
        memory: Pixels = self.owner.reshape(-1)
        first = self.address - memory.ctypes.data
        shape = self.height, self.width, self.channels
        return memory[first : first + self.height * self.width * self.channels].reshape(shape)
