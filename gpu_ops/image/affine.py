"""Linear maps about the crop's centre, one 2x2 matrix a sample: where a point of the changed frame came from.

Frames count pixels from their centre, x to the right and y downwards. Each matrix maps a point of the output to the
point of the input that it shows, so a chain of ops is the product of their matrices in the order of the ops.
"""

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]


def identity(num: int) -> Float:
    """(num, 2, 2): every point shows itself."""
    return np.tile(np.eye(2), (num, 1, 1))


def rotation(angles_deg: Float) -> Float:
    """(n, 2, 2) for the image turned by (n,) `angles_deg`, anticlockwise as seen."""
    radians = np.deg2rad(angles_deg)
    matrix = np.empty((len(radians), 2, 2))
    matrix[:, 0, 0] = matrix[:, 1, 1] = np.cos(radians)
    matrix[:, 1, 0] = np.sin(radians)
    matrix[:, 0, 1] = -matrix[:, 1, 0]
    return matrix


def magnification(factors_x: Float, factors_y: Float) -> Float:
    """(n, 2, 2) for the image stretched by (n,) factors along each axis; -1 mirrors it."""
    matrix = np.zeros((len(factors_x), 2, 2))
    matrix[:, 0, 0] = 1.0 / factors_x
    matrix[:, 1, 1] = 1.0 / factors_y
    return matrix


def compose(first: Float, then: Float) -> Float:
    """The map of two changes of the image, `first` and `then` another one; both (n, 2, 2)."""
    product: Float = np.matmul(first, then)
    return product
