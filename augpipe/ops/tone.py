"""Colour cast, vignette and normalisation: what changes a pixel's value where it stands in the output frame."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from augpipe.ops.draws import Draw, Number, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range, for_all, where_applied
from augpipe.ops.random_words import RandomWords, check_steps, num_steps
from augpipe.validation.models import told

__all__ = ["ColorCast", "Normalize", "Vignette"]


Channels = Annotated[
    tuple[float, float, float],
    BeforeValidator(for_all, json_schema_input_type=float | tuple[float] | tuple[float, float, float]),
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

    draws = (Draw("shift", shape=(3,), num_words=6, neutral=0.0, scaled=("max_shift", "step")),)
    formula = "v + shift, kept within 0..255"
    inspect_text = "three booleans; for each altered channel -{max_shift:g} to {max_shift:g} levels{steps}"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_steps("max_shift", 0.0, self.max_shift, self.step)
        return self

    @property
    def num_variants(self) -> int | None:
        # all three unshifted is the original
        return None if self.step is None else num_steps(-self.max_shift, self.max_shift, self.step) ** 3 - 1

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
    radii: Annotated[Range, Within(0.0, 0.999)] = (0.02, 0.98)
    """Smallest and largest radius where darkening begins, as a fraction of the crop's half-diagonal."""
    radius_step: float | None = 0.02
    """From one radius to the next, 49 of them by default; None for any radius."""
    strengths: Annotated[Range, Within(0.0, 1.0)] = (0.02, 0.8)
    """Smallest and largest fraction of the brightness that is lost at the corner."""
    strength_step: float | None = 0.02
    """From one strength to the next, 40 of them by default; None for any strength."""
    p: Probability = 1.0
    """How often the corners are darkened."""

    draws = (
        Number("radius", of="radii", step="radius_step", neutral=None),
        Number("strength", of="strengths", step="strength_step"),
    )
    formula = "v (1 - strength ((r² - radius²) / (1 - radius²))²) outside the radius"
    inspect_text = (
        "where it begins, {radii[0]:g} to {radii[1]:g} of the half-diagonal; "
        "the loss at the corner, {strengths[0]:.0%} to {strengths[1]:.0%}"
    )
    caption_text = "vignette radius {radius:.2f}, strength {strength:.0%}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.darken_corners(drawn["radius"], drawn["strength"])


class Normalize(Op):
    """Subtract the mean and divide by the standard deviation; draws nothing and is always applied."""

    op: Literal["normalize"] = "normalize"
    mean: Channels = (0.485, 0.456, 0.406)
    """Per channel R, G, B, or one number for all, in 0..1 as in torchvision and timm; the default is ImageNet's."""
    std: Channels = (0.229, 0.224, 0.225)
    """Per channel, or one number for all, in 0..1; the default is ImageNet's."""

    formula = "(v / 255 - mean) / std"

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
