"""Tone and colour: what happens to a pixel once it has been sampled; values are levels in 0..255 until `normalise`."""

import numpy as np

from augpipe.gpu_ops.jit import leaf

ZERO = np.float32(0.0)
HALF = np.float32(0.5)
ONE, TWO, FOUR, SIX = np.float32(1.0), np.float32(2.0), np.float32(4.0), np.float32(6.0)
WHITE = np.float32(255.0)

RED_AT, GREEN_AT, BLUE_AT = np.float32(5.0), np.float32(3.0), np.float32(1.0)
"""Where the channels lie for `of_hue`."""

LUMA_RED, LUMA_GREEN, LUMA_BLUE = np.float32(0.299), np.float32(0.587), np.float32(0.114)
"""What each channel adds to a gray level (ITU-R BT.601), as Pillow and torchvision have it."""


@leaf
def channel(pixel, shift):
    """One 8-bit channel of an RGBX pixel held in a uint32, as float32; `shift` is 0, 8 or 16 bits."""
    return np.float32(np.int32((pixel >> np.uint32(shift)) & np.uint32(255)))


@leaf
def vignette_gain(r2, inner_r2, inverse_span, strength):
    """Brightness left at squared radius `r2` (1 at the corner): 1 up to `inner_r2`, 1 - `strength` at the corner.

    Between the two it falls with the square of (r2 - inner_r2) * inverse_span, smooth at the inner circle, much as the
    cos^4 law of a real lens does; `inverse_span` is 1 / (1 - inner_r2).
    """
    depth = max(r2 - inner_r2, np.float32(0.0)) * inverse_span
    return np.float32(1.0) - strength * (depth * depth)


@leaf
def cast(value, gain_before, shift, gain_after):
    """Add `shift` levels with saturation at 0 and 255, between the gains of whatever acts before and after the cast."""
    shifted = value * gain_before + shift
    return min(max(shifted, np.float32(0.0)), np.float32(255.0)) * gain_after


@leaf
def normalise(value, scale, bias):
    """`value * scale + bias`, with scale = 1/(255*std) and bias = -mean/std for mean and std in 0..1."""
    return value * scale + bias


@leaf
def to_uint8(value):
    """The nearest 8-bit level, halves upwards, saturated."""
    return np.uint8(np.int32(min(max(value, np.float32(0.0)), np.float32(255.0)) + np.float32(0.5)))


@leaf
def kept_within(level):
    """The level within 0..255."""
    return min(max(level, ZERO), WHITE)


@leaf
def combined(red, green, blue, of_red, of_green, of_blue, shift):
    """A channel of three, kept within 0..255."""
    return kept_within(red * of_red + green * of_green + blue * of_blue + shift)


@leaf
def hue_of(red, green, blue, value, chroma):
    """The hue of HSV in sixths of a turn from red, -1..5; 0 for gray. `value` is the largest channel, less the smallest
    one `chroma`."""
    inverse = ONE / chroma if chroma > ZERO else ZERO
    from_red, from_green = (green - blue) * inverse, (blue - red) * inverse + TWO
    from_blue = (red - green) * inverse + FOUR
    return from_red if value == red else (from_green if value == green else from_blue)


@leaf
def saturation_of(value, chroma, added, least):
    """The saturation of HSV, with some added where the chroma is at least `least`, kept within 0..1."""
    saturation = chroma / value if value > ZERO else ZERO
    saturation = saturation + added if chroma >= least else saturation
    return min(max(saturation, ZERO), ONE)


@leaf
def of_hue(place, hue, value, chroma):
    """A channel of HSV, from its `place`, as `RED_AT`, and a hue in sixths of a turn."""
    sixths = place + hue  # -6..16 with a hue turned by up to a turn
    sixths = sixths + SIX if sixths < ZERO else sixths
    sixths = sixths - SIX if sixths >= SIX else sixths
    sixths = sixths - SIX if sixths >= SIX else sixths
    return value - chroma * min(max(min(sixths, FOUR - sixths), ZERO), ONE)


@leaf
def gray(red, green, blue):
    """How bright a pixel is."""
    return red * LUMA_RED + green * LUMA_GREEN + blue * LUMA_BLUE


@leaf
def nearest_level(level):
    """The nearest of 0..255, halves upwards, as int32; CPU and CUDA may differ next to a half (docs/gpu.md)."""
    return np.int32(kept_within(level) + HALF)


@leaf
def away_from(blurred, level, factor):
    """The level moved away from a blurred one, or towards it, by a factor of which 1 changes nothing."""
    return kept_within(blurred + factor * (level - blurred))


@leaf
def noisy(level, normal, std, speckle):
    """The level with noise of a standard deviation that has a part of its own and one that grows with the level."""
    return kept_within(level + normal * (std + speckle * level))
