"""Tone: what happens to a pixel's value once it has been sampled; values are in 0..255 until `normalise`."""

import numpy as np

from augpipe.gpu_ops.jit import leaf


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
