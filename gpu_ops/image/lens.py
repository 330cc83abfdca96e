"""Lens distortion: where in the undistorted frame a point of the distorted one is looked up.

Coordinates are normalised: (0, 0) is the crop's centre and radius 1 its corner. `r2` is the squared radius.
"""

import numpy as np

from augpipe.gpu_ops.jit import leaf


@leaf
def radial_gain(r2, k1, k2, k3):
    """Radial magnification of the look-up at squared radius `r2`: Brown's polynomial to third order.

    Above 1 the frame's periphery is looked up further out: barrel distortion; below 1: pincushion.
    """
    return np.float32(1.0) + r2 * (k1 + r2 * (k2 + r2 * k3))


@leaf
def distort(along, across, r2, gain, p_along, p_across):
    """One coordinate of the Brown-Conrady look-up: radial `gain`, and the tangential terms of a decentred lens.

    `distort(x, y, r2, gain, p2, p1)` gives x and `distort(y, x, r2, gain, p1, p2)` gives y, in OpenCV's notation:
    x' = x*gain + 2*p1*x*y + p2*(r2 + 2*x*x).
    """
    two = np.float32(2.0)
    return along * gain + (two * p_across * along * across + p_along * (r2 + two * along * along))
