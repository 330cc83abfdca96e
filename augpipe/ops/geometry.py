"""Flip, rotate and stretch: linear maps of the cropped frame about its centre."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from augpipe.gpu_ops.image import affine
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range, where_applied
from augpipe.ops.random_words import RandomWords, check_steps, num_steps


class Flip(Op):
    """Mirror the image, left to right unless told otherwise (Deep Image, section 4.1)."""

    op: Literal["flip"] = "flip"
    direction: Literal["horizontal", "vertical"] = "horizontal"
    """horizontal swaps left and right; vertical swaps top and bottom."""
    p: Probability = 0.5
    """How often the image is mirrored."""
    alternate: bool = False
    """Mirror a random half of all images in epoch 0, and from then on each image every other epoch, so that two epochs
    in a row show both sides of it (Jordan 2024, arXiv:2404.00498)."""

    num_words: ClassVar[int] = 1
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("flipped", np.bool_),)

    @model_validator(mode="after")
    def _halves(self) -> Self:
        if self.alternate and self.p != 0.5:
            raise ValueError(
                f"alternate=True mirrors each image every other epoch, and p={self.p:g} asks for another share. Leave "
                "out one of the two."
            )
        return self

    @property
    def num_variants(self) -> int | None:
        return 2

    @property
    def alternates(self) -> bool:
        return self.alternate

    @property
    def draws_text(self) -> str:
        return f"{self.direction} or not" + (", in turn from epoch to epoch" if self.alternate else "")

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        flipped = words.happens(0, self.p)
        return {"flipped": ~flipped if self.alternate and words.epoch % 2 else flipped}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        sign = np.where(drawn["flipped"], -1.0, 1.0)
        ones = np.ones(len(sign))
        across = self.direction == "horizontal"
        frame.transform(affine.magnification(sign if across else ones, ones if across else sign))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return "flipped" if drawn["flipped"] else ""


class Rotate(Op):
    """Turn the image about its centre (Deep Image, section 4.1; Table 1 counts 20 angles)."""

    op: Literal["rotate"] = "rotate"
    max_deg: Annotated[float, Field(gt=0.0, le=180.0)] = 10.0
    """Largest angle either way, in degrees; Table 1's 20 are -10..-1 and 1..10."""
    step: float | None = 1.0
    """Degrees from one angle to the next, 0 left out; None for any angle."""
    p: Probability = 1.0
    """How often the image is turned."""

    num_words: ClassVar[int] = 2
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("degrees", np.float64),)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_steps("max_deg", 0.0, self.max_deg, self.step)
        return self

    @property
    def num_variants(self) -> int | None:
        return None if self.step is None else 2 * round(self.max_deg / self.step)

    @property
    def draws_text(self) -> str:
        steps = "" if self.step is None else f" in steps of {self.step:g}, not 0"
        return f"an angle of -{self.max_deg:g} to {self.max_deg:g} degrees{steps}, anticlockwise positive"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        if self.step is None:
            degrees = words.uniform(1, -self.max_deg, self.max_deg)
        else:
            half = round(self.max_deg / self.step)
            position = words.integer(1, 2 * half) - half
            degrees = self.step * np.where(position >= 0, position + 1, position)
        return {"degrees": where_applied(words.happens(0, self.p), degrees, 0.0)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.transform(affine.rotation(drawn["degrees"]))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"{drawn['degrees']:+.3g}°" if drawn["degrees"] else ""


class Stretch(Op):
    """Widen or heighten the image about its centre, each axis by a factor of its own."""

    op: Literal["stretch"] = "stretch"
    horizontal: Range = (0.8, 1.25)
    """Smallest and largest factor of the width; above 1 widens what is seen."""
    vertical: Range = (0.8, 1.25)
    """Smallest and largest factor of the height."""
    step: float | None = None
    """From one factor to the next; None for any factor."""
    p: Probability = 1.0
    """How often the image is stretched."""

    num_words: ClassVar[int] = 3
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("horizontal", np.float64), ("vertical", np.float64))

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        for name, limits in (("horizontal", self.horizontal), ("vertical", self.vertical)):
            if not limits[0] >= 0.05 or not limits[1] <= 20.0:
                raise ValueError(f"{name}={limits} leaves 0.05..20. Choose factors nearer to 1, which changes nothing.")
            check_steps(name, *limits, self.step)
        return self

    @property
    def num_variants(self) -> int | None:
        if self.step is None:
            return None
        return num_steps(*self.horizontal, self.step) * num_steps(*self.vertical, self.step)

    @property
    def draws_text(self) -> str:
        steps = "" if self.step is None else f" in steps of {self.step:g}"
        (low_x, high_x), (low_y, high_y) = self.horizontal, self.vertical
        return f"width times {low_x:g} to {high_x:g}, height times {low_y:g} to {high_y:g}{steps}"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        applied = words.happens(0, self.p)
        return {
            "horizontal": where_applied(applied, words.stepped(1, *self.horizontal, self.step), 1.0),
            "vertical": where_applied(applied, words.stepped(2, *self.vertical, self.step), 1.0),
        }

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.transform(affine.magnification(drawn["horizontal"], drawn["vertical"]))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"stretch {drawn['horizontal']:.2f} x {drawn['vertical']:.2f}"
