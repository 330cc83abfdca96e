"""Flips, turns, stretches and translations of the cropped frame."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from augpipe.gpu_ops.image import affine
from augpipe.ops.common_ops import FactorOp, SwitchOp
from augpipe.ops.draws import Applied, Draw, FactorsWithin, Number
from augpipe.ops.frame import Frame
from augpipe.ops.op import MAX_SIDE_PX, Drawn, Op, Probability, Range, where_applied
from augpipe.ops.random_words import RandomWords, check_steps, num_steps
from augpipe.validation.models import told

__all__ = ["Flip", "QuarterTurn", "Rotate", "Stretch", "Translate", "Transpose", "Zoom"]


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

    draws = (Applied("flipped"),)
    formula = "mirror about the vertical (or horizontal) axis; with `alternate` drawn once, then every other epoch"
    caption_text = "flipped"

    @model_validator(mode="after")
    def _halves(self) -> Self:
        if self.alternate and self.p != 0.5:
            raise ValueError(
                f"alternate=True mirrors each image every other epoch, and p={self.p:g} asks for another share. Leave "
                "out one of the two."
            )
        return self

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
        flipped, not_flipped = drawn["flipped"], np.zeros(frame.num, np.bool_)
        across = self.direction == "horizontal"
        frame.mirror(flipped if across else not_flipped, not_flipped if across else flipped)


class Rotate(Op):
    """Turn the image about its centre (Deep Image, section 4.1; Table 1 counts 20 angles)."""

    op: Literal["rotate"] = "rotate"
    max_deg: Annotated[
        Annotated[float, Field(gt=0.0)] | tuple[float, float],
        told("must be above 0, in degrees, or the smallest and largest angle: {name}=10 or {name}=[0, 90]"),
    ] = 10.0
    """Largest angle either way, in degrees; Table 1's 20 are -10..-1 and 1..10. Or smallest and largest angle."""
    step: float | None = 1.0
    """Degrees from one angle to the next, 0 left out where angles go either way; None for any angle."""
    p: Probability = 1.0
    """How often the image is turned."""
    fit_frame: Literal["no", "up", "down"] = "no"
    """Whether all of the turned image is shrunk into the frame, along each axis by itself. "up" and "down" say how its
    height and width are made whole pixels before: up in albumentations 1, down in 2."""

    is_geometry = True
    draws = (Draw("degrees", neutral=0.0, scaled=("max_deg", "step")),)
    formula = "a turn about the centre; `max_deg = [0, 360]` names both ends"
    caption_text = "rotated {degrees:+.3g}°"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_steps("max_deg", *(self.max_deg if isinstance(self.max_deg, tuple) else (0.0, self.max_deg)), self.step)
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest angle."""
        return self.max_deg if isinstance(self.max_deg, tuple) else (-self.max_deg, self.max_deg)

    @property
    def num_variants(self) -> int | None:
        if self.step is None:
            return None
        return num_steps(*self.limits, self.step) - (0 if isinstance(self.max_deg, tuple) else 1)

    @property
    def draws_text(self) -> str:
        low, high = self.limits
        without = "" if isinstance(self.max_deg, tuple) else ", not 0"
        steps = "" if self.step is None else f" in steps of {self.step:g}{without}"
        return f"an angle of {low:g} to {high:g} degrees{steps}, anticlockwise positive"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        if self.step is None or isinstance(self.max_deg, tuple):
            degrees = words.stepped(1, *self.limits, self.step)
        else:
            half = round(self.max_deg / self.step)
            position = words.integer(1, 2 * half) - half
            degrees = self.step * np.where(position >= 0, position + 1, position)
        return {"degrees": where_applied(words.happens(0, self.p), degrees, 0.0)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        turn = affine.rotation(drawn["degrees"])
        frame.transform(turn)
        if self.fit_frame != "no":
            cosine, sine = np.abs(turn[:, 0, 0]), np.abs(turn[:, 1, 0])
            heights, widths, whole = (
                frame.out_heights,
                frame.out_widths,
                np.ceil if self.fit_frame == "up" else np.floor,
            )
            wide, high = whole(heights * sine + widths * cosine), whole(heights * cosine + widths * sine)
            frame.transform(affine.magnification(widths / np.maximum(wide, 1.0), heights / np.maximum(high, 1.0)))


class QuarterTurn(Op):
    """Turn the image by right angles about its centre, pixel by pixel; if it is not square, its border shows."""

    op: Literal["quarter_turn"] = "quarter_turn"
    turns: Annotated[
        tuple[Literal[0, 1, 2, 3], ...],
        Field(min_length=1),
        told("must be a list of some of 0, 1, 2 and 3: {name}=[1, 3] for a quarter either way"),
    ] = (0, 1, 2, 3)
    """Right angles to choose from, anticlockwise as seen."""
    swaps_sides: bool = False
    """Whether height and width change places with a quarter turn, in a view that keeps each image at its own size."""
    p: Probability = 1.0
    """How often one is chosen."""

    is_geometry = True
    draws = (Draw("turns", np.int8, neutral=0),)
    formula = "whole pixels move; the frame keeps its shape, so the border shows if it is not square"

    @model_validator(mode="after")
    def _are_distinct(self) -> Self:
        if len(set(self.turns)) < len(self.turns):
            raise ValueError(f"turns={self.turns} names one turn twice. Name each once.")
        return self

    @property
    def num_variants(self) -> int | None:
        return len(self.turns)

    @property
    def draws_text(self) -> str:
        return f"{' or '.join(f'{90 * turns}' for turns in self.turns)} degrees, anticlockwise"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        chosen = np.array(self.turns, np.int8)[words.integer(1, len(self.turns))]
        return {"turns": np.where(words.happens(0, self.p), chosen, np.int8(0))}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        turns = drawn["turns"].astype(np.int64)
        frame.transform(affine.quarter_turns(turns))
        if self.swaps_sides:
            frame.swap_sides(turns % 2 == 1)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"turned {90 * int(drawn['turns'])}°" if drawn["turns"] else ""


class Transpose(SwitchOp):
    """Swap rows and columns about the centre, pixel by pixel; the frame keeps its shape."""

    op: Literal["transpose"] = "transpose"
    swaps_sides: bool = False
    """Whether height and width change places, too, in a view that keeps each image at its own size."""

    is_geometry = True
    formula = "shows at (x, y) what stood at (y, x), from the centre; the frame keeps its shape"
    caption_text = "transposed"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        swapped = np.array([[0.0, 1.0], [1.0, 0.0]])
        frame.transform(np.where(drawn["applied"][:, None, None], swapped, np.eye(2)))
        if self.swaps_sides:
            frame.swap_sides(drawn["applied"])


Magnification = Annotated[Range, FactorsWithin(0.05, 20.0)]


class Zoom(FactorOp):
    """Enlarge or shrink the image about its centre, both axes alike; for each by a factor of its own see `Stretch`."""

    op: Literal["zoom"] = "zoom"
    factor: Magnification = (0.8, 1.25)
    """Smallest and largest factor; above 1 enlarges what is seen."""

    is_geometry = True
    formula = "both axes alike; above 1 enlarges"
    inspect_text = "both sides times {factor[0]:g} to {factor[1]:g}{steps}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.transform(affine.magnification(drawn["factor"], drawn["factor"]))


class Stretch(Op):
    """Widen or heighten the image about its centre, each axis by a factor of its own."""

    op: Literal["stretch"] = "stretch"
    horizontal: Magnification = (0.8, 1.25)
    """Smallest and largest factor of the width; above 1 widens what is seen."""
    vertical: Magnification = (0.8, 1.25)
    """Smallest and largest factor of the height."""
    step: float | None = None
    """From one factor to the next; None for any factor."""
    p: Probability = 1.0
    """How often the image is stretched."""

    is_geometry = True
    draws = (Number("horizontal", step="step", neutral=1.0), Number("vertical", step="step", neutral=1.0))
    formula = "above 1 widens (or heightens) what is seen"
    inspect_text = (
        "width times {horizontal[0]:g} to {horizontal[1]:g}, height times {vertical[0]:g} to {vertical[1]:g}{steps}"
    )
    caption_text = "stretch {horizontal:.2f} x {vertical:.2f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.transform(affine.magnification(drawn["horizontal"], drawn["vertical"]))


class Translate(Op):
    """Move the image within its frame; the place that it leaves shows what lies beyond the crop."""

    op: Literal["translate"] = "translate"
    horizontal: Range = (-0.1, 0.1)
    """Smallest and largest way to the right, in `unit`; negative is to the left."""
    vertical: Range = (-0.1, 0.1)
    """Smallest and largest way down, in `unit`; negative is up."""
    unit: Literal["fraction", "px"] = "fraction"
    """fraction counts in widths (or heights) of the output, px in its pixels."""
    step: float | None = None
    """From one way to the next, in `unit`; None for any. 1 with px moves by whole pixels."""
    whole_px: Literal["no", "nearest", "towards_zero"] = "no"
    """Whether it is made a whole number of pixels: torchvision takes the nearest, albumentations 2 drops the part."""
    p: Probability = 1.0
    """How often the image is moved."""

    is_geometry = True
    draws = (Number("horizontal", step="step"), Number("vertical", step="step"))
    formula = "in fractions of the output's sides, or its pixels; positive is right and down"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        most = 1 if self.unit == "fraction" else MAX_SIDE_PX
        for name, limits in (("horizontal", self.horizontal), ("vertical", self.vertical)):
            if max(map(abs, limits)) > most:
                remedy = "Give fractions of the output's side, or unit='px'." if most == 1 else "Move it by less."
                raise ValueError(f"{name}={limits} leaves -{most}..{most} in unit={self.unit!r}. {remedy}")
        return self

    @property
    def draws_text(self) -> str:
        (low_x, high_x), (low_y, high_y) = self.horizontal, self.vertical
        unit = "px" if self.unit == "px" else "of the output's side"
        steps = self.steps_text and f",{self.steps_text}"
        return f"{low_x:g} to {high_x:g} {unit} to the right, {low_y:g} to {high_y:g} down{steps}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        width, height = (frame.out_widths, frame.out_heights) if self.unit == "fraction" else (1, 1)
        ways = drawn["horizontal"] * width, drawn["vertical"] * height
        if self.whole_px != "no":
            ways = tuple(map(np.rint if self.whole_px == "nearest" else np.trunc, ways))
        frame.transform(affine.translation(*ways))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        ways = drawn["horizontal"], drawn["vertical"]
        if not any(ways):
            return ""
        texts = [f"{way:+.3g} px" if self.unit == "px" else f"{way:+.1%}" for way in ways]
        return f"moved x {texts[0]}, y {texts[1]}"


def last_swap(listed: Sequence[Op]) -> Op | None:
    """The last op that has, or holds what has, height and width change places."""
    return next((op for op in reversed(listed) if any(_swaps_sides(inner) for inner in op.flat)), None)


def within_swapped(listed: Sequence[Op]) -> str:
    """The first op that is drawn within sides which an op behind it swaps; empty where there is none."""
    swap = last_swap(listed)
    if swap is None:
        return ""
    before = listed[: next(place for place, op in enumerate(listed) if op is swap)]
    return next((inner.op for op in before for inner in op.flat if inner.is_within_output), "")


def _swaps_sides(op: Op) -> bool:
    return isinstance(op, QuarterTurn | Transpose) and op.swaps_sides
