"""Matrices of colours: (n, 3, 4), which make of levels R, G, B and 1 new levels, one matrix an image."""

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Three = tuple[float, float, float]

LUMA = np.array([0.299, 0.587, 0.114])
"""What each channel adds to a gray level (ITU-R BT.601), as in Pillow and torchvision."""
MID_GREY = 127.5
TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]])


def linear(matrices: Float, shifts: Float | None = None) -> Float:
    """(n, 3, 4) of (n, 3, 3) matrices and (n, 3) shifts in levels."""
    whole = np.zeros((len(matrices), 3, 4))
    whole[:, :, :3] = matrices
    if shifts is not None:
        whole[:, :, 3] = shifts
    return whole


def shifted(levels: Float) -> Float:
    """(n, 3, 4) that add (n, 3) levels."""
    return linear(np.repeat(np.eye(3)[None], len(levels), axis=0), levels)


def brightened(factors: Float) -> Float:
    """(n, 3, 4) that multiply the levels."""
    return linear(factors[:, None, None] * np.eye(3))


def contrasted(factors: Float) -> Float:
    """(n, 3, 4) that move the levels away from mid-grey."""
    return linear(factors[:, None, None] * np.eye(3), np.repeat((1.0 - factors)[:, None] * MID_GREY, 3, axis=1))


def saturated(factors: Float) -> Float:
    """(n, 3, 4) that move each pixel away from its own gray."""
    kept = factors[:, None, None]
    return linear(kept * np.eye(3) + (1.0 - kept) * np.tile(LUMA, (3, 1)))


def turned(turns: Float) -> Float:
    """(n, 3, 4) that turn the plane of chroma by parts of a whole turn."""
    angles = 2.0 * np.pi * turns
    cosines, sines = np.cos(angles), np.sin(angles)
    turn = np.zeros((len(turns), 3, 3))
    turn[:, 0, 0] = 1.0
    turn[:, 1, 1], turn[:, 1, 2] = cosines, sines
    turn[:, 2, 1], turn[:, 2, 2] = -sines, cosines
    return linear(np.linalg.inv(TO_YIQ) @ turn @ TO_YIQ)


def into_numbers(mean: Three, std: Three) -> Float:
    """(3, 4) that make of levels what normalises to 0..1, times 255."""
    made: Float = linear(np.diag(1.0 / np.array(std))[None], -255.0 * np.array([mean]) / np.array([std]))[0]
    return made


def out_of_numbers(mean: Three, std: Three) -> Float:
    """(3, 4), the inverse of `into_numbers`."""
    made: Float = linear(np.diag(np.array(std))[None], 255.0 * np.array([mean]))[0]
    return made
