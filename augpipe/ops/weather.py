"""What weather and a camera in little light put between the image and who looks at it, within the rendered view."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from augpipe.gpu_ops.image.program_rows import GRAIN, HAZE, MAX_RADIUS, SEPARABLE
from augpipe.ops.draws import Number, Seed, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range

__all__ = ["Fog", "ISONoise"]

LEAST_DISC_PX = 10
"""The width of the smallest disc."""
RINGS_PER_DISC = 3
"""By how many widths of a disc both sides of a ring grow together."""


class Fog(Op):
    """Blend the view with white discs, densest about its middle, and blur it: albumentations 1's `RandomFog`.

    A disc is as wide as a third of the view times the density. Their number grows as they shrink, down to a width of 10
    pixels, below which there are none.
    """

    op: Literal["fog"] = "fog"
    density: Annotated[Range, Within(0.0, 1.0)] = (0.3, 1.0)
    """Smallest and largest density; 0 changes nothing."""
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.08
    """The part of white in a disc at density 1; at others, in proportion."""
    p: Probability = 0.5
    """How often the view is foggy."""

    draws = (Number("density"), Seed())
    is_within_output = True
    formula = "255 - (1 - alpha density)^k (255 - v) under k discs, then the mean of a square a tenth as wide as one"
    inspect_text = "a density of {density[0]:g} to {density[1]:g}, and the places of its discs"
    caption_text = "fog {density:.2f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        heights, widths = frame.final_sides
        disc = (widths // 3 * drawn["density"]).astype(np.int64)
        side, wide = np.maximum(disc, 1), np.maximum(disc, LEAST_DISC_PX)
        first_x, first_y = widths // 2 - 2 * side, heights // 2 - side
        growth = [np.maximum(RINGS_PER_DISC * side * sides // (heights + widths), 1) for sides in (widths, heights)]
        rings = [-((first + side) // -grown) for first, grown in zip((first_x, first_y), growth, strict=True)]
        num_rings = np.maximum(np.maximum(*rings), 0)
        clear = 1.0 - self.alpha * drawn["density"]
        numbers = [first_x, first_y, *growth, num_rings, side // 10, side, wide // 2, clear]
        frame.scatter(HAZE, np.stack(numbers, axis=1), drawn["key"], self.changes(drawn))
        radii = np.minimum(wide // 10 // 2, MAX_RADIUS)
        weights = (np.arange(MAX_RADIUS + 1) <= radii[:, None]) / (2.0 * radii[:, None] + 1.0)
        frame.filter(SEPARABLE, radii, weights, self.changes(drawn) & (radii > 0))


class ISONoise(Op):
    """Add the grain of a camera in little light, in hue and lightness of HLS, as albumentations' `ISONoise`.

    albumentations counts the lightness' grain by how much the image's own lightness varies; here `contrast` says it.
    """

    op: Literal["iso_noise"] = "iso_noise"
    hue: Annotated[Range, Within(0.0, 1.0)] = (0.01, 0.05)
    """Smallest and largest standard deviation of the hue at intensity 1, in turns."""
    intensity: Annotated[Range, Within(0.0, 10.0)] = (0.1, 0.5)
    """Smallest and largest factor of both; 0 changes nothing."""
    contrast: Annotated[float, Field(ge=0.0, le=0.5)] = 0.2
    """The standard deviation of a usual image's lightness, in 0..1: in the mean, grain brightens black by this times
    the intensity."""
    p: Probability = 0.5
    """How often grain is added."""

    draws = (Number("hue", neutral=None), Number("intensity"), Seed())
    formula = "HLS with hue + n hue intensity and L + (1 - L) m, n normal and m a count of mean 255 contrast intensity"
    inspect_text = "grain of an intensity of {intensity[0]:g} to {intensity[1]:g}"
    caption_text = "grain {intensity:.2f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        counted = 255.0 * self.contrast * drawn["intensity"]
        numbers = [6.0 * drawn["hue"] * drawn["intensity"], counted, np.sqrt(counted)]
        frame.scatter(GRAIN, np.stack(numbers, axis=1), drawn["key"], self.changes(drawn))
