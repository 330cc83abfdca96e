"""Where objects lie in an output, by a look at each pixel of it: the map of `tests.parity.oracle`, never an inverse."""

from dataclasses import dataclass
from math import ceil, floor

import numpy as np
import numpy.typing as npt

from augpipe import Plan
from tests.parity.oracle import Float
from tests.parity.table import described

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Dense:
    """The source points of every pixel of an output image."""

    x: Float
    """(H, W), pixel centres of the image at +0.5."""
    y: Float
    limits: tuple[float, float, float, float]
    """Left, top, right and bottom of the pixels that the output may show."""
    folds: bool
    """Whether the map turns over itself where the output shows the image, so that some of it is seen twice."""

    @property
    def is_shown(self) -> Bool:
        """(H, W): whether a pixel of the image is seen, and no border."""
        left, top, right, bottom = self.limits
        shown: Bool = (self.x >= left) & (self.x < right) & (self.y >= top) & (self.y < bottom)
        return shown

    def filled(self, polygon: Float) -> Bool:
        """(H, W): which pixels show the inside of a source polygon."""
        return self.is_shown & inside(polygon, self.x, self.y)


def dense(plan: Plan, position: int, view: int = 0, finer: int = 1) -> Dense:
    """Of one output of a plan, or of `finer` times as many points along each side."""
    expected = described(plan, position, view)
    x, y = ((np.arange(finer * side) + 0.5) / finer - 0.5 * side for side in (expected.out_width, expected.out_height))
    x, y = np.meshgrid(x, y)
    at_x, at_y = expected.source(x, y)
    border = (expected.beyond or (plan.recipe.border, ()))[0]
    limits = 0.0, 0.0, float(expected.width), float(expected.height)
    if border != "context":
        left, top, width, height = expected.padded or expected.crop
        first_x, first_y = min(max(floor(left), 0), expected.width - 1), min(max(floor(top), 0), expected.height - 1)
        limits = (
            float(first_x),
            float(first_y),
            float(min(max(ceil(left + width), first_x + 1), expected.width)),
            float(min(max(ceil(top + height), first_y + 1), expected.height)),
        )
    step = 1e-4
    (right_x, right_y), (down_x, down_y) = expected.source(x + step, y), expected.source(x, y + step)
    areas = (right_x - at_x) * (down_y - at_y) - (right_y - at_y) * (down_x - at_x)
    made = Dense(x=at_x, y=at_y, limits=limits, folds=False)
    (centre_x, centre_y), (next_x, next_y), (below_x, below_y) = (
        expected.source(np.array(at[0]), np.array(at[1])) for at in ((0.0, 0.0), (step, 0.0), (0.0, step))
    )
    at_centre = (next_x - centre_x) * (below_y - centre_y) - (next_y - centre_y) * (below_x - centre_x)
    folds = bool((areas * np.sign(at_centre) <= 0.0)[made.is_shown].any())
    return Dense(x=at_x, y=at_y, limits=limits, folds=folds)


def inside(polygon: Float, x: Float, y: Float) -> Bool:
    """Whether points lie in a polygon, by how often a line to the right crosses it."""
    odd = np.zeros(x.shape, np.bool_)
    for (from_x, from_y), (to_x, to_y) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if from_y != to_y:
            crosses = (from_y <= y) != (to_y <= y)
            odd ^= crosses & (x < from_x + (y - from_y) * (to_x - from_x) / (to_y - from_y))
    return odd


def hull(mask: Bool, finer: int = 1) -> Float:
    """(4,) left, top, right and bottom around a mask, in pixels of which it has `finer` along each."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / finer


def star(rng: np.random.Generator, x: float, y: float, radius: float, least: float = 0.4) -> Float:
    """(N, 2): an outline around a point, with dents down to a part of its radius; its sides do not cross."""
    corners = int(rng.integers(4, 16))
    angles = (np.arange(corners) + rng.uniform(0.0, 1.0, corners)) * (2.0 * np.pi / corners)
    radii = radius * rng.uniform(least, 1.0, corners)
    return np.stack([x + radii * np.cos(angles), y + radii * np.sin(angles)], axis=1)
