"""Lightness of CIE 1976 L*a*b* (ISO/CIE 11664-4), of sRGB levels under D65, and levels of another lightness.

Powers are polynomials and square roots, off by less than 2e-6 of a cube root, 2e-5 of a power of 2.4 and 5e-4 levels,
which every compiler vectorises.
"""

import math

import numpy as np

from augpipe.gpu_ops.image.tone import kept_within
from augpipe.gpu_ops.jit import leaf

ONE, TWO = np.float32(1.0), np.float32(2.0)
WHITE = np.float32(255.0)
INVERSE_WHITE = np.float32(1 / 255)
KAPPA, LINEAR = np.float32(0.008856), np.float32(7.787)
OFFSET = np.float32(16 / 116)
KAPPA_ROOT = np.float32(6 / 29)
"""Below them the cube root and the cube are straight lines."""
LEVELS_PER_ROOT, LEVELS_AT_BLACK = np.float32(116 * 2.55), np.float32(16 * 2.55)
"""Lightness is counted in 0..255 here, as 8-bit images hold it."""

MOST_LIGHT = 2040
_VALUES = np.arange(256) / 255
_LIGHTS = np.arange(MOST_LIGHT + 1) / MOST_LIGHT
_ROOTS = np.where(_LIGHTS < 0.008856, 7.787 * _LIGHTS + 16 / 116, np.cbrt(_LIGHTS))
LIGHT = np.rint(MOST_LIGHT * np.where(_VALUES <= 0.04045, _VALUES / 12.92, ((_VALUES + 0.055) / 1.055) ** 2.4)).astype(
    np.int32
)
"""The intensity of each level, in whole numbers."""
LIGHTNESS = ((296 * np.rint(32768 * _ROOTS).astype(np.int64) - 1336934 + 16384) >> 15).astype(np.uint8)
"""The nearest level of lightness of each intensity: OpenCV's, whose whole numbers CPU and CUDA cannot round apart."""


@leaf
def linear_light(level):
    """The intensity, in 0..1, of a level of sRGB."""
    value = kept_within(level) * INVERSE_WHITE
    raised = (value + np.float32(0.055)) * np.float32(1 / 1.055)
    s = np.float32(math.sqrt(raised))
    power = np.float32(0.03585678) + s * (
        np.float32(1.33537377)
        + s
        * (
            np.float32(-0.79886933)
            + s * (np.float32(0.75411127) + s * (np.float32(-0.43321496) + s * np.float32(0.10675334)))
        )
    )
    return value * np.float32(1 / 12.92) if value <= np.float32(0.04045) else raised * raised * power


@leaf
def cube_root(value):
    """The cube root of a number in 0.003..1.1: a polynomial of its square root, and a step of Halley's."""
    s = np.float32(math.sqrt(value))
    near = np.float32(0.05911362) + s * (
        np.float32(1.66130259) + s * (np.float32(-1.33654319) + s * np.float32(0.61958893))
    )
    cube = near * near * near
    return near * ((cube + TWO * value) / (TWO * cube + value))


@leaf
def root_of(light):
    """The function of L*a*b* that is a cube root but near black."""
    return cube_root(light) if light > KAPPA else LINEAR * light + OFFSET


@leaf
def light_of(root):
    """The inverse of `root_of`."""
    return root * root * root if root > KAPPA_ROOT else (root - OFFSET) * np.float32(1 / 7.787)


@leaf
def roots(red, green, blue):
    """What L*, a* and b* are sums of, for levels of sRGB."""
    r, g, b = linear_light(red), linear_light(green), linear_light(blue)
    x = r * np.float32(0.412453 / 0.950456) + g * np.float32(0.357580 / 0.950456) + b * np.float32(0.180423 / 0.950456)
    y = r * np.float32(0.212671) + g * np.float32(0.715160) + b * np.float32(0.072169)
    z = r * np.float32(0.019334 / 1.088754) + g * np.float32(0.119193 / 1.088754) + b * np.float32(0.950227 / 1.088754)
    return root_of(x), root_of(y), root_of(z)


@leaf
def brightness(red_light, green_light, blue_light):
    """The place in `LIGHTNESS` of the whole numbers that `LIGHT` holds for a pixel's levels."""
    return np.int32(
        (np.int32(871) * red_light + np.int32(2929) * green_light + np.int32(296) * blue_light + 2048) >> 12
    )


@leaf
def srgb(light):
    """The level of sRGB of an intensity, kept within 0..255."""
    kept = min(max(light, np.float32(0.0)), ONE)
    s = np.float32(math.sqrt(np.float32(math.sqrt(kept))))
    curved = np.float32(-0.05963365) + s * (
        np.float32(0.1406856)
        + s
        * (
            np.float32(1.36063336)
            + s
            * (
                np.float32(-0.83989614)
                + s * (np.float32(0.63991816) + s * (np.float32(-0.30676666) + s * np.float32(0.06506043)))
            )
        )
    )
    return kept_within(WHITE * (kept * np.float32(12.92) if kept <= np.float32(0.0031308) else curved))


@leaf
def relit(root_x, root_y, root_z, new_lightness):
    """R, G and B of another lightness in 0..255, with a* and b* as they were."""
    new_root = (new_lightness + LEVELS_AT_BLACK) * (ONE / LEVELS_PER_ROOT)
    moved = new_root - root_y
    x = light_of(root_x + moved) * np.float32(0.950456)
    y = light_of(new_root)
    z = light_of(root_z + moved) * np.float32(1.088754)
    red = x * np.float32(3.240479) - y * np.float32(1.537150) - z * np.float32(0.498535)
    green = y * np.float32(1.875991) - x * np.float32(0.969256) + z * np.float32(0.041556)
    blue = x * np.float32(0.055648) - y * np.float32(0.204043) + z * np.float32(1.057311)
    return srgb(red), srgb(green), srgb(blue)
