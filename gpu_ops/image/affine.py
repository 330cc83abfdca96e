"""Maps of the cropped frame, one matrix a sample: where a point of the changed frame came from.

Frames count pixels from their centre, x to the right and y downwards. Each matrix maps a point of the output to the
point of the input that it shows, so a chain of ops is the product of their matrices in the order of the ops. A linear
map is 2x2; one that moves or projects is 3x3, of homogeneous coordinates (x, y, 1).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]


def identity(num: int) -> Float:
    """(num, 2, 2): every point shows itself."""
    matrix = np.zeros((num, 2, 2))
    matrix[:, 0, 0] = matrix[:, 1, 1] = 1.0
    return matrix


def rotation(angles_deg: Float) -> Float:
    """(n, 2, 2) for the image turned by (n,) `angles_deg`, anticlockwise as seen."""
    radians = np.deg2rad(angles_deg)
    matrix = np.empty((len(radians), 2, 2))
    matrix[:, 0, 0] = matrix[:, 1, 1] = np.cos(radians)
    matrix[:, 1, 0] = np.sin(radians)
    matrix[:, 0, 1] = -matrix[:, 1, 0]
    return matrix


def quarter_turns(turns: npt.NDArray[np.int64]) -> Float:
    """(n, 2, 2) for the image turned by (n,) right angles, anticlockwise as seen; all of it whole numbers."""
    cosine, sine = np.array([1.0, 0.0, -1.0, 0.0])[turns % 4], np.array([0.0, 1.0, 0.0, -1.0])[turns % 4]
    return np.stack([cosine, -sine, sine, cosine], axis=1).reshape(-1, 2, 2)


def shear(horizontal: Float, vertical: Float) -> Float:
    """(n, 2, 2) for the image sheared by (n,) tangents: along x first, where y > 0 goes left, then along y."""
    matrix = identity(len(horizontal))
    matrix[:, 0, 0] += horizontal * vertical
    matrix[:, 0, 1], matrix[:, 1, 0] = horizontal, vertical
    return matrix


def shear_y_first(horizontal: Float, vertical: Float) -> Float:
    """(n, 2, 2) for the image sheared as by `shear`, but along y first, and then along x."""
    matrix = identity(len(horizontal))
    matrix[:, 1, 1] += horizontal * vertical
    matrix[:, 0, 1], matrix[:, 1, 0] = horizontal, vertical
    return matrix


def shear_at_once(horizontal: Float, vertical: Float) -> Float:
    """(n, 2, 2) for the image sheared as by `shear`, but along y as it was before it was along x."""
    matrix = identity(len(horizontal))
    matrix[:, 0, 1], matrix[:, 1, 0] = horizontal, vertical
    whole: Float = matrix / (1.0 - horizontal * vertical)[:, None, None]
    return whole


def magnification(factors_x: Float, factors_y: Float) -> Float:
    """(n, 2, 2) for the image stretched by (n,) factors along each axis; -1 mirrors it."""
    matrix = np.zeros((len(factors_x), 2, 2))
    matrix[:, 0, 0] = 1.0 / factors_x
    matrix[:, 1, 1] = 1.0 / factors_y
    return matrix


def translation(right: Float, down: Float) -> Float:
    """(n, 3, 3) for the image moved by (n,) pixels to the right and down."""
    matrix = homogeneous(identity(len(right)))
    matrix[:, 0, 2], matrix[:, 1, 2] = -right, -down
    return matrix


def about(matrix: Float, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Float:
    """(n, 3, 3): the (n, 2, 2) `matrix` about the points (n,) x and y, which stay where they are."""
    whole = homogeneous(matrix)
    whole[:, 0, 2] = x - (matrix[:, 0, 0] * x + matrix[:, 0, 1] * y)
    whole[:, 1, 2] = y - (matrix[:, 1, 0] * x + matrix[:, 1, 1] * y)
    return whole


def projection(corners: Float) -> Float:
    """(n, 3, 3) that looks (n, 4, 2) `corners` up at those of the square -1..1, clockwise from the upper left one.

    The square becomes the quadrangle by (A s + B t + C) / (G s + H t + 1). At its corners that is the bilinear
    mean + a s + b t + c s t, and for products to agree c + G b + H a must be 0 along x and y. The look-up is its
    inverse, by cofactors, with a divisor of 1 at (0, 0).
    """
    first, second, third, fourth = corners[:, 0], corners[:, 1], corners[:, 2], corners[:, 3]
    mean, a = 0.25 * (first + second + third + fourth), 0.25 * (second + third - first - fourth)
    b, c = 0.25 * (third + fourth - first - second), 0.25 * (first - second + third - fourth)
    area = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    g = ((c[:, 0] * a[:, 1] - c[:, 1] * a[:, 0]) / area)[:, None]
    h = ((c[:, 1] * b[:, 0] - c[:, 0] * b[:, 1]) / area)[:, None]
    along_s, along_t, at_centre = a + g * mean + h * c, b + g * c + h * mean, mean + g * a + h * b
    rows = np.stack([along_s, along_t, at_centre], axis=2)
    divisor = np.concatenate([g, h, np.ones_like(g)], axis=1)
    adjugate = np.stack(
        [np.cross(rows[:, 1], divisor), np.cross(divisor, rows[:, 0]), np.cross(rows[:, 0], rows[:, 1])], axis=2
    )
    look_up: Float = adjugate / adjugate[:, 2:, 2:]
    return look_up


def scaled(matrix: Float, width: npt.NDArray[Any], height: npt.NDArray[Any]) -> Float:
    """The (n, 3, 3) map of a frame whose unit of length is (n,) `width` along x and `height` along y, in pixels."""
    unit = np.stack([width, height, np.ones(len(matrix))], axis=1)
    whole: Float = matrix * unit[:, :, None] / unit[:, None, :]
    return whole


def homogeneous(matrix: Float) -> Float:
    """(n, 3, 3) of (n, 2, 2), or as it is where it has that shape."""
    if matrix.shape[1] == 3:
        return matrix
    whole = np.zeros((len(matrix), 3, 3))
    whole[:, :2, :2] = matrix
    whole[:, 2, 2] = 1.0
    return whole


def compose(first: Float, then: Float) -> Float:
    """The map of two changes of the image, `first` and `then` another one; (n, 3, 3) unless both are (n, 2, 2)."""
    if first.shape != then.shape:
        first, then = homogeneous(first), homogeneous(then)
    product: Float = np.matmul(first, then)
    return product
