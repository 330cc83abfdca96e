"""Steps of the colours' program, for one pixel: levels in 0..255 in and out."""

import numpy as np

from augpipe.gpu_ops.jit import leaf

ZERO = np.float32(0.0)
HALF = np.float32(0.5)
WHITE = np.float32(255.0)

LUMA_RED, LUMA_GREEN, LUMA_BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)
"""What each channel adds to a gray level (ITU-R BT.601), as Pillow and torchvision have it."""


@leaf
def kept_within(level):
    """The level within 0..255."""
    return min(max(level, ZERO), WHITE)


@leaf
def combined(red, green, blue, of_red, of_green, of_blue, shift):
    """A channel of three, kept within 0..255."""
    return kept_within(red * of_red + green * of_green + blue * of_blue + shift)


@leaf
def gray(red, green, blue):
    """How bright a pixel is."""
    return red * LUMA_RED + green * LUMA_GREEN + blue * LUMA_BLUE


@leaf
def nearest_level(level):
    """The nearest of 0..255, halves upwards, as int32."""
    return np.int32(kept_within(level) + HALF)


@leaf
def away_from(blurred, level, factor):
    """The level moved away from a blurred one, or towards it, by a factor of which 1 changes nothing."""
    return kept_within(blurred + factor * (level - blurred))


@leaf
def noisy(level, normal, std, speckle):
    """The level with noise of a standard deviation that has a part of its own and one that grows with the level."""
    return kept_within(level + normal * (std + speckle * level))
