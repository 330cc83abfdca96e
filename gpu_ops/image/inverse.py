"""The inverse of what bends: which point of the frame shows a point of the image, by Newton's method in float64.

The method knows no more of the map than `forward`, whose slopes it takes from differences: a stage that is added to
`forward` is inverted with the rest.
"""

import numpy as np

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.lens import distort, radial_gain
from augpipe.gpu_ops.jit import kernel, leaf

LENS_COLUMNS = ("k1", "k2", "k3", "p1", "p2", "reach")
"""The columns of a lens: its Brown-Conrady coefficients, and the radius beyond which it is continued straight."""

LEAST_SLOPE = 0.3
"""How steeply a lens is continued at least: a pincushion's own slope may be 0 at its reach, where steps have no end."""

MOST_STEPS = 40
LONGEST_STEP = 0.5
"""In lens coordinates, where the frame's corner has radius 1: further away the slope says little."""
HALVINGS = 8
"""How often a step that leads no nearer is halved."""
DIFFERENCE = 1e-6
NEAR = 1e-11
"""A point is found where it is missed by less: 1e-8 pixels of a frame of a thousand."""


@leaf
def forward(u, v, k1, k2, k3, p1, p2, reach):
    """Where a point of the frame is looked up, in lens coordinates: through the lens, beyond its reach straight on."""
    r2 = u * u + v * v
    if r2 <= reach * reach:
        gain = radial_gain(r2, k1, k2, k3)
        return distort(u, v, r2, gain, p2, p1), distort(v, u, r2, gain, p1, p2)
    radius = np.sqrt(r2)
    along_u, along_v = u / radius, v / radius
    edge2, edge_u, edge_v = reach * reach, reach * along_u, reach * along_v
    gain = radial_gain(edge2, k1, k2, k3)
    further = (radius - reach) * slope_beyond(k1, k2, k3, reach)
    bent_u = distort(edge_u, edge_v, edge2, gain, p2, p1) + further * along_u
    bent_v = distort(edge_v, edge_u, edge2, gain, p1, p2) + further * along_v
    return bent_u, bent_v


@leaf
def slope_beyond(k1, k2, k3, reach):
    """How fast the looked-up radius grows beyond the reach."""
    edge2 = reach * reach
    return max(1.0 + edge2 * (3.0 * k1 + edge2 * (5.0 * k2 + edge2 * 7.0 * k3)), LEAST_SLOPE)


@kernel()
def unbend(points, item, lenses, found, is_found):
    """Find the points whose `forward` is (N, 2) `points`, into `found`, and whether that came near, (N,).

    Args:
        points: (N, 2) float64 lens coordinates of what is looked up.
        item: (N,) int64, the row of `lenses` of each.
        lenses: (B, 6) float64 `LENS_COLUMNS`.
        found: (N, 2) float64, written: lens coordinates of the frame.
        is_found: (N,) bool, written.
    """
    for n in range(len(points)):
        k1, k2, k3, p1, p2, reach = lenses[item[n]]
        wanted_u, wanted_v = points[n, 0], points[n, 1]
        u, v = wanted_u, wanted_v
        radius, seen = np.sqrt(u * u + v * v), reach * radial_gain(reach * reach, k1, k2, k3)
        if radius > seen:  # from where it would be without tangential terms, however far away
            scale = (reach + (radius - seen) / slope_beyond(k1, k2, k3, reach)) / radius
            u, v = u * scale, v * scale
        elif radius > reach:  # a lens that shows less of the image than the frame has is not beyond its reach
            u, v = u * reach / radius, v * reach / radius
        bent_u, bent_v = forward(u, v, k1, k2, k3, p1, p2, reach)
        missed = np.hypot(bent_u - wanted_u, bent_v - wanted_v)
        for _ in range(MOST_STEPS):
            if missed < NEAR:
                break
            step_u, step_v = wanted_u - bent_u, wanted_v - bent_v
            right_u, right_v = forward(u + DIFFERENCE, v, k1, k2, k3, p1, p2, reach)
            left_u, left_v = forward(u - DIFFERENCE, v, k1, k2, k3, p1, p2, reach)
            down_u, down_v = forward(u, v + DIFFERENCE, k1, k2, k3, p1, p2, reach)
            up_u, up_v = forward(u, v - DIFFERENCE, k1, k2, k3, p1, p2, reach)
            uu, vu = (right_u - left_u) / (2.0 * DIFFERENCE), (right_v - left_v) / (2.0 * DIFFERENCE)
            uv, vv = (down_u - up_u) / (2.0 * DIFFERENCE), (down_v - up_v) / (2.0 * DIFFERENCE)
            area = uu * vv - uv * vu
            if area > 1e-9:
                step_u, step_v = (vv * step_u - uv * step_v) / area, (uu * step_v - vu * step_u) / area
            length = np.hypot(step_u, step_v)
            share = min(1.0, LONGEST_STEP / length)
            for _ in range(HALVINGS):
                bent_u, bent_v = forward(u + share * step_u, v + share * step_v, k1, k2, k3, p1, p2, reach)
                now = np.hypot(bent_u - wanted_u, bent_v - wanted_v)
                if now < missed:
                    break
                share *= 0.5
            u, v, missed = u + share * step_u, v + share * step_v, now
        found[n, 0], found[n, 1] = u, v
        is_found[n] = missed < 1e3 * NEAR


declare(
    __name__,
    unbend,
    any=lambda: (np.zeros((1, 2)), np.zeros(1, np.int64), np.zeros((1, 6)), np.zeros((1, 2)), np.zeros(1, np.bool_)),
)
