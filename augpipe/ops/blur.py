"""Blur: a wider sampling filter."""

from typing import Annotated, Literal

from augpipe.ops.draws import Number, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range

__all__ = ["Blur"]

MAX_SIGMA_PX = 10.0
"""Already this takes 49 taps along each axis where the image keeps its size."""


class Blur(Op):
    """Soften the output, as a Gaussian of standard deviation sigma does, by a wider filter of the same one look-up.

    Next to geometry it acts in the same look-up. `GaussianBlur` is a Gaussian's, acts behind it, and mostly takes less
    time.

    The triangle that samples the image becomes so wide that its variance grows by sigma^2, in pixels of the output: it
    has 2 * sqrt(1 + 6 * sigma^2) taps along each axis where there were 2. The time grows with them, and that of rotated
    views with their square: 2.5 times a crop's for a sigma of 1, and 5 for 2; 4 and 12 times a rotation's.
    """

    op: Literal["blur"] = "blur"
    sigma_px: Annotated[Range, Within(0.0, MAX_SIGMA_PX, " pixels. For more, make smaller images.")] = (0.1, 2.0)
    """Smallest and largest standard deviation, in pixels of the output; torchvision's and SimCLR's is 0.1 to 2."""
    step: float | None = None
    """From one standard deviation to the next; None for any."""
    p: Probability = 0.5
    """How often the image is blurred; half of the time in SimCLR."""

    draws = (Number("sigma_px", step="step"),)
    formula = "the sampling filter's variance grows by its square"
    inspect_text = "a standard deviation of {sigma_px[0]:g} to {sigma_px[1]:g} px{steps}"
    caption_text = "blur {sigma_px:.2f} px"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.blur(drawn["sigma_px"])
