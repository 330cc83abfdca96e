"""Blur: a wider sampling filter."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from augpipe.ops.common_draws import RangesOp
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Probability, Range

MAX_SIGMA_PX = 10.0
"""Already this takes 49 taps along each axis where the image keeps its size."""


class Blur(RangesOp):
    """Soften the output, as a Gaussian of standard deviation sigma does, by a wider filter of the same one look-up.

    The triangle that samples the image becomes so wide that its variance grows by sigma^2, in pixels of the output: it
    has 2 * sqrt(1 + 6 * sigma^2) taps along each axis where there were 2. The time grows with their square: it was
    measured at 6 times that of a crop for a sigma of 1, and at 20 times for 2.
    """

    op: Literal["blur"] = "blur"
    sigma_px: Range = (0.1, 2.0)
    """Smallest and largest standard deviation, in pixels of the output; torchvision's and SimCLR's is 0.1 to 2."""
    step: float | None = None
    """From one standard deviation to the next; None for any."""
    p: Probability = 0.5
    """How often the image is blurred; half of the time in SimCLR."""

    num_words: ClassVar[int] = 2
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("sigma_px", np.float64),)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.sigma_px[0] < 0.0 or self.sigma_px[1] > MAX_SIGMA_PX:
            raise ValueError(
                f"sigma_px={self.sigma_px} leaves 0..{MAX_SIGMA_PX:g} pixels. For more, make smaller images."
            )
        return self

    @property
    def draws_text(self) -> str:
        return f"a standard deviation of {self.sigma_px[0]:g} to {self.sigma_px[1]:g} px{self.steps_text}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.blur(drawn["sigma_px"])

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"blur {drawn['sigma_px']:.2f} px" if drawn["sigma_px"] else ""
