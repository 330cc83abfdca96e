"""How a look-up changes with the output pixel where the frame is moved or projected before the lens.

An output pixel (x, y), counted from the frame's centre, has lens coordinates (before (x, y) + offset) / divisor, where
the divisor is linear in x and y. Where it would be below `LEAST_DIVISOR`, nothing of the projected frame is seen.
"""

from augpipe.gpu_ops.image.sampling import LEAST_DIVISOR
from augpipe.gpu_ops.jit import leaf
from augpipe.gpu_ops.records import product


@leaf
def slope_at_centre(before, offset, divisor, lens):  # type: ignore[no-untyped-def]
    """xx, xy, yx and yy of the look-up's derivatives behind the lens, at the centre of a plan record's frame.

    Its arguments are `before` (2, 2), `before_offset` (2,), `before_divisor` (3,) and `lens` (5,) of the record.
    """
    is_in_front = divisor[2] > LEAST_DIVISOR
    whole = divisor[2] if is_in_front else float(LEAST_DIVISOR)
    u, v = offset[0] / whole, offset[1] / whole
    turning_x, turning_y = (divisor[0], divisor[1]) if is_in_front else (0.0, 0.0)
    before_xx, before_xy = (before[0, 0] - u * turning_x) / whole, (before[0, 1] - u * turning_y) / whole
    before_yx, before_yy = (before[1, 0] - v * turning_x) / whole, (before[1, 1] - v * turning_y) / whole
    # the derivatives of `gpu_ops.image.lens.distort` at (u, v)
    k1, k2, k3, p1, p2 = lens[0], lens[1], lens[2], lens[3], lens[4]
    r2 = u * u + v * v
    gain = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
    growth = 2.0 * (k1 + r2 * (2.0 * k2 + r2 * 3.0 * k3))
    lens_xx = gain + growth * u * u + 2.0 * p1 * v + 6.0 * p2 * u
    lens_yy = gain + growth * v * v + 6.0 * p1 * v + 2.0 * p2 * u
    lens_xy = growth * u * v + 2.0 * (p1 * u + p2 * v)
    return (
        product(lens_xx, lens_xy, before_xx, before_yx),
        product(lens_xx, lens_xy, before_xy, before_yy),
        product(lens_xy, lens_yy, before_xx, before_yx),
        product(lens_xy, lens_yy, before_xy, before_yy),
    )
