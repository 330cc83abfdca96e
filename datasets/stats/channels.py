"""Exact sums over pixels: mean and standard deviation per channel that depend on no order of adding."""

import math
from dataclasses import dataclass

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel
from augpipe.sources.protocol import Pixels

_BLOCK_PX = 65_536
"""Pixels whose squares of 8 bits add up in 32."""
_PIXEL = np.dtype(np.uint32)
"""Loaded as one number of four bytes, R the lowest, as everywhere in `gpu_ops`: so the loop is vectorised."""
_BYTE = np.uint32(255)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelSums:
    """Integer sums over the pixels of some images; sums of two sets of images `merge` into those of both."""

    num_pixels: int = 0
    sums: tuple[int, int, int] = (0, 0, 0)
    """The sums of R, G and B in 0..255."""
    squares: tuple[int, int, int] = (0, 0, 0)
    """The sums of their squares."""
    is_gray: bool = True
    """Whether R = G = B in every pixel."""

    @classmethod
    def of(cls, pixels: Pixels) -> "ChannelSums":
        """The sums of one (H, W, 4) uint8 RGBX image, C-contiguous; the fourth byte is not looked at."""
        totals = np.zeros(7, np.uint64)
        _add_up(pixels.reshape(-1).view(_PIXEL), totals)
        red, green, blue, red2, green2, blue2, differences = map(int, totals)
        return cls(
            num_pixels=pixels.shape[0] * pixels.shape[1],
            sums=(red, green, blue),
            squares=(red2, green2, blue2),
            is_gray=differences == 0,
        )

    def merge(self, other: "ChannelSums") -> "ChannelSums":
        """The sums of both sets of images."""
        return ChannelSums(
            num_pixels=self.num_pixels + other.num_pixels,
            sums=_plus(self.sums, other.sums),
            squares=_plus(self.squares, other.squares),
            is_gray=self.is_gray and other.is_gray,
        )

    @property
    def mean(self) -> tuple[float, float, float]:
        """Per channel, in 0..1, every pixel counting alike; 0 where there is no pixel."""
        red, green, blue = (total / (255 * max(self.num_pixels, 1)) for total in self.sums)
        return red, green, blue

    @property
    def std(self) -> tuple[float, float, float]:
        """Per channel, in 0..1: that of all pixels (divided by their number, not one less)."""
        num = max(self.num_pixels, 1)
        # in whole numbers up to the last step: the difference of two large floats would lose what is looked for
        red, green, blue = (
            math.sqrt((num * square - total * total) / (num * num)) / 255
            for total, square in zip(self.sums, self.squares, strict=True)
        )
        return red, green, blue


def _plus(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@kernel()
def _add_up(pixels, totals):  # type: ignore[no-untyped-def]
    """Add to (7,) uint64 `totals` of (N,) uint32 RGBX: R, G, B, their squares, bits in which channels differ."""
    num = len(pixels)
    for start in range(0, num, _BLOCK_PX):
        stop = min(start + _BLOCK_PX, num)
        red, green, blue = np.uint32(0), np.uint32(0), np.uint32(0)
        red2, green2, blue2 = np.uint32(0), np.uint32(0), np.uint32(0)
        differences = np.uint32(0)
        for i in range(start, stop):
            pixel = pixels[i]
            r, g, b = pixel & _BYTE, pixel >> np.uint32(8) & _BYTE, pixel >> np.uint32(16) & _BYTE
            red = np.uint32(red + r)
            green = np.uint32(green + g)
            blue = np.uint32(blue + b)
            red2 = np.uint32(red2 + np.uint32(r * r))
            green2 = np.uint32(green2 + np.uint32(g * g))
            blue2 = np.uint32(blue2 + np.uint32(b * b))
            differences = np.uint32(differences | np.uint32((r ^ g) | (g ^ b)))
        totals[0] += red
        totals[1] += green
        totals[2] += blue
        totals[3] += red2
        totals[4] += green2
        totals[5] += blue2
        totals[6] |= differences


declare(__name__, _add_up, any=lambda: (np.zeros(1, _PIXEL), np.zeros(7, np.uint64)))
