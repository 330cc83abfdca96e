"""Shears of the cropped frame: along one axis after the other, or both at once."""

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from augpipe.gpu_ops.image import affine
from augpipe.ops.draws import Limits, Number, Scale, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range
from augpipe.ops.random_words import RandomWords

__all__ = ["Shear"]

MAX_SHEAR_DEG = 75.0
"""The most that a shear slants an axis; its tangent is 3.7."""
MOST_AT_ONCE = 0.95
"""The most that the product of two tangents may be where both axes are slanted at once; at 1 the image is a line."""
Slant = Annotated[Range, Within(-MAX_SHEAR_DEG, MAX_SHEAR_DEG, " degrees. Choose angles nearer to 0.")]


SHEARS = {"x_first": affine.shear, "y_first": affine.shear_y_first, "at_once": affine.shear_at_once}
"""An order of slanting -> the look-up of what it makes."""


class Shear(Op):
    """Slant the image, along x first, as torchvision's affine does, or both ways at once.

    A positive angle moves what lies lower to the left (horizontal), what lies further right upwards (vertical), by its
    tangent of a pixel for each pixel from the centre or the upper left corner.
    """

    op: Literal["shear"] = "shear"
    horizontal_deg: Slant = (-10.0, 10.0)
    """Smallest and largest angle by which columns are slanted, in degrees."""
    vertical_deg: Slant = (-10.0, 10.0)
    """Smallest and largest angle by which rows are slanted, in degrees."""
    about: Literal["centre", "corner"] = "centre"
    """What stays where it is: the middle of the frame, or its upper left corner as in torchvision's policies."""
    order: Literal["x_first", "y_first", "at_once"] = "x_first"
    """x_first slants columns, and rows of what that made, and y_first the other way round; at_once slants both of the
    image as it was, as albumentations 2 does."""
    opposite: bool = False
    """Whether rows are slanted by the angle that is drawn for columns, the other way, as imgaug does; `vertical_deg` is
    `horizontal_deg` the other way then."""
    even_in: Literal["degrees", "tangent"] = "degrees"
    """Whether angles lie evenly in their range, or their tangents, as in torchvision's policies."""
    step: float | None = None
    """From one angle to the next, in degrees or tangents as `even_in` says; None for any angle."""
    p: Probability = 1.0
    """How often the image is sheared."""

    is_geometry = True
    draws = (Number("horizontal_deg", step="step"), Number("vertical_deg", step="step"))
    formula = (
        "shows at (x, y) what stood at (x + tan(a) y', y'), where y' = y + tan(b) x, for columns slanted by a "
        "and rows by b; from the centre or the `corner`; `at_once` moves (x, y) to (x - tan(a) y, y - tan(b) x)"
    )
    caption_text = "shear x {horizontal_deg:+.3g}°, y {vertical_deg:+.3g}°"

    @model_validator(mode="after")
    def _is_opposite(self) -> Self:
        low, high = self.horizontal_deg
        if self.opposite and self.vertical_deg != (-high, -low):
            raise ValueError(
                f"opposite=True slants rows by {-high:g}..{-low:g} degrees, and vertical_deg={self.vertical_deg} says "
                f"otherwise. Choose vertical_deg=({-high:g}, {-low:g})."
            )
        return self

    @model_validator(mode="after")
    def _leaves_an_area(self) -> Self:
        tangents = [
            [math.tan(math.radians(one)) for one in limits] for limits in (self.horizontal_deg, self.vertical_deg)
        ]
        most = max(across * down for across in tangents[0] for down in tangents[1])
        if self.order == "at_once" and most > MOST_AT_ONCE:
            raise ValueError(
                f"horizontal_deg={self.horizontal_deg} and vertical_deg={self.vertical_deg} at once may squash the "
                f"image to a line: the product of their tangents must not exceed {MOST_AT_ONCE:g}. "
                "Choose angles nearer to 0."
            )
        return self

    def evenly(self, draw: Number, limits: Limits) -> Limits:
        if self.even_in == "degrees":
            return limits
        return math.tan(math.radians(limits[0])), math.tan(math.radians(limits[1]))

    def unevenly(self, draw: Number, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return numbers if self.even_in == "degrees" else np.rad2deg(np.arctan(numbers))

    @property
    def scaled_fields(self) -> dict[str, Scale]:
        fields = super().scaled_fields
        if self.even_in == "tangent":
            fields |= {"horizontal_deg": _by_tangent, "vertical_deg": _by_tangent}
        return fields

    @property
    def draws_text(self) -> str:
        (low_x, high_x), (low_y, high_y) = self.horizontal_deg, self.vertical_deg
        what = "" if self.even_in == "degrees" else " of the tangent"
        steps = f"{self.steps_text}{what}" if self.steps_text else ""
        return f"columns slanted by {low_x:g} to {high_x:g} degrees, rows by {low_y:g} to {high_y:g}{steps}"

    @property
    def num_variants(self) -> int | None:
        return self.draws[0].num_variants(self) if self.opposite else super().num_variants

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        drawn = super().draw(words, frame)
        return drawn | {"vertical_deg": 0.0 - drawn["horizontal_deg"]} if self.opposite else drawn

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        tangents = [np.tan(np.deg2rad(drawn[name])) for name in ("horizontal_deg", "vertical_deg")]
        matrix = SHEARS[self.order](*tangents)
        if self.about == "corner":
            matrix = affine.about(matrix, -0.5 * frame.out_widths, -0.5 * frame.out_heights)
        frame.transform(matrix)


def _by_tangent(limits: Any, strength: float) -> Any:
    """Angles whose tangents are drawn, at a strength."""
    return tuple(math.degrees(math.atan(strength * math.tan(math.radians(one)))) for one in limits)
