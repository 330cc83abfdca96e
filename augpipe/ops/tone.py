"""Colour cast, vignette and normalisation: what changes a pixel's value where it stands in the output frame."""

from collections.abc import Mapping
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range, where_applied
from augpipe.ops.random_words import RandomWords, check_steps, num_steps
from augpipe.validation.models import told


def _for_all(value: Any) -> Any:
    """One number, alone or in a list, three times; all else as it is."""
    number = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    return (number,) * 3 if not isinstance(number, bool) and isinstance(number, Real) else value


Channels = Annotated[
    tuple[float, float, float],
    BeforeValidator(_for_all, json_schema_input_type=float | tuple[float] | tuple[float, float, float]),
    told("must be three finite numbers in 0..1, for R, G and B, or one for all: {name}=[0.5, 0.5, 0.5]"),
]


class ColorCast(Op):
    """Shift the intensity of randomly chosen colour channels (Deep Image, section 4.1; Table 1 counts 41^3 - 1)."""

    op: Literal["color_cast"] = "color_cast"
    max_shift: Annotated[float, Field(gt=0.0, le=255.0)] = 20.0
    """Largest shift either way, in 8-bit levels; 20 in the paper. Results are kept within 0..255."""
    step: float | None = 1.0
    """Levels from one shift to the next, whole ones in the paper; None for any shift."""
    channel_p: Probability = 0.5
    """How often each channel is altered; an even coin in the paper."""
    p: Probability = 1.0
    """How often the op is applied at all."""

    num_words: ClassVar[int] = 7
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("shift", np.float64, (3,)),)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_steps("max_shift", 0.0, self.max_shift, self.step)
        return self

    @property
    def num_variants(self) -> int | None:
        # all three unshifted is the original
        return None if self.step is None else num_steps(-self.max_shift, self.max_shift, self.step) ** 3 - 1

    @property
    def draws_text(self) -> str:
        steps = "" if self.step is None else f" in steps of {self.step:g}"
        return f"three booleans; for each altered channel -{self.max_shift:g} to {self.max_shift:g} levels{steps}"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        applied = words.happens(0, self.p)
        shifts = [
            where_applied(
                applied & words.happens(1 + channel, self.channel_p),
                words.stepped(4 + channel, -self.max_shift, self.max_shift, self.step),
                0.0,
            )
            for channel in range(3)
        ]
        return {"shift": np.stack(shifts, axis=1)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.shift_colour(drawn["shift"])

    def caption(self, drawn: Mapping[str, Any]) -> str:
        shift = drawn["shift"]
        return (
            "cast " + ", ".join(f"{name} {value:+.3g}" for name, value in zip("RGB", shift, strict=True) if value)
            if np.any(shift)
            else ""
        )


class Vignette(Op):
    """Darken the periphery (Deep Image, section 4.1: the area and how much is lost; Table 1: 49 x 40).

    Up to `radius` nothing is lost; from there to the corner the loss grows with ((r^2 - radius^2) / (1 - radius^2))^2.
    """

    op: Literal["vignette"] = "vignette"
    radii: Range = (0.02, 0.98)
    """Smallest and largest radius where darkening begins, as a fraction of the crop's half-diagonal."""
    radius_step: float | None = 0.02
    """From one radius to the next, 49 of them by default; None for any radius."""
    strengths: Range = (0.02, 0.8)
    """Smallest and largest fraction of the brightness that is lost at the corner."""
    strength_step: float | None = 0.02
    """From one strength to the next, 40 of them by default; None for any strength."""
    p: Probability = 1.0
    """How often the corners are darkened."""

    num_words: ClassVar[int] = 3
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("radius", np.float64), ("strength", np.float64))

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        for name, (low, high), limit in (("radii", self.radii, 0.999), ("strengths", self.strengths, 1.0)):
            if low < 0.0 or high > limit:
                raise ValueError(f"{name}=({low}, {high}) leaves 0..{limit:g}. Choose a range within it.")
        check_steps("radii", *self.radii, self.radius_step)
        check_steps("strengths", *self.strengths, self.strength_step)
        return self

    @property
    def num_variants(self) -> int | None:
        if self.radius_step is None or self.strength_step is None:
            return None
        return num_steps(*self.radii, self.radius_step) * num_steps(*self.strengths, self.strength_step)

    @property
    def draws_text(self) -> str:
        return (
            f"where it begins, {self.radii[0]:g} to {self.radii[1]:g} of the half-diagonal; "
            f"the loss at the corner, {self.strengths[0]:.0%} to {self.strengths[1]:.0%}"
        )

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        strength = words.stepped(2, *self.strengths, self.strength_step)
        return {
            "radius": words.stepped(1, *self.radii, self.radius_step),
            "strength": where_applied(words.happens(0, self.p), strength, 0.0),
        }

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.darken_corners(drawn["radius"], drawn["strength"])

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"vignette radius {drawn['radius']:.2f}, strength {drawn['strength']:.0%}" if drawn["strength"] else ""


class Normalize(Op):
    """Subtract the mean and divide by the standard deviation; draws nothing and is always applied."""

    op: Literal["normalize"] = "normalize"
    mean: Channels = (0.485, 0.456, 0.406)
    """Per channel R, G, B, or one number for all, in 0..1 as in torchvision and timm; the default is ImageNet's."""
    std: Channels = (0.229, 0.224, 0.225)
    """Per channel, or one number for all, in 0..1; the default is ImageNet's."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if min(self.std) <= 0.0:
            raise ValueError(f"std={self.std} must be above 0 in every channel. Leave it out for ImageNet's.")
        if max(map(abs, self.mean)) > 1.0 or max(self.std) > 1.0:
            raise ValueError(
                f"mean={self.mean}, std={self.std} are given in 0..1, as in torchvision. Divide 8-bit values by 255."
            )
        return self

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.normalise(self.mean, self.std)
