"""Ops that replace each of 256 levels by another one, by a table a sample, or by one that the image itself decides."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from augpipe.gpu_ops.image.program_rows import AUTO_CONTRAST, EQUALIZE, SHARPNESS
from augpipe.ops.common_draws import FactorOp, SwitchOp, is_changed
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range, where_applied
from augpipe.ops.random_words import RandomWords, check_steps, num_steps
from augpipe.validation.models import told

LEVELS = np.arange(256)
ROUNDING = 1e-6
"""Levels by which a threshold may miss a whole one, and still be it."""
Level = Annotated[int, Field(ge=0, le=256)]
LevelRange = Annotated[tuple[Level, Level], told("must be two levels in 0..256: {name}=[smallest, largest]")]


def as_tables(levels: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """(n, 256) levels, kept within 0..255 and rounded down."""
    tables: npt.NDArray[np.uint8] = np.clip(levels, 0, 255).astype(np.uint8)
    return tables


class Gamma(Op):
    """Raise the levels, in 0..1, to a power: above 1 darkens, below 1 brightens."""

    op: Literal["gamma"] = "gamma"
    gamma: Range = (0.7, 1.5)
    """Smallest and largest power; its logarithm is drawn evenly."""
    p: Probability = 1.0
    """How often the op is applied."""

    num_words: ClassVar[int] = 2
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("gamma", np.float64),)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not 0.01 <= self.gamma[0] <= self.gamma[1] <= 100.0:
            raise ValueError(f"gamma={self.gamma} is no range within 0.01..100. Choose powers about 1, smaller first.")
        return self

    @property
    def num_variants(self) -> int | None:
        return None

    @property
    def draws_text(self) -> str:
        return f"a power of {self.gamma[0]:g} to {self.gamma[1]:g}"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        gamma = np.exp(words.uniform(1, *np.log(self.gamma)))
        return {"gamma": where_applied(words.happens(0, self.p), gamma, 1.0)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        applied = is_changed(drawn["gamma"])
        raised = (LEVELS / 255.0) ** drawn["gamma"][applied][:, None]
        frame.look_up_levels(as_tables(255.0 * raised + 0.5), applied)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"gamma {drawn['gamma']:.2f}" if drawn["gamma"] != 1.0 else ""


class Posterize(Op):
    """Keep the highest bits of each level alone."""

    op: Literal["posterize"] = "posterize"
    bits: Annotated[
        tuple[Annotated[int, Field(ge=0, le=8)], Annotated[int, Field(ge=0, le=8)]],
        told("must be two numbers of bits in 0..8: {name}=[smallest, largest]"),
    ] = (4, 8)
    """Fewest and most bits that are kept; 8 changes nothing."""
    p: Probability = 1.0
    """How often the op is applied."""

    num_words: ClassVar[int] = 2
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("bits", np.int8),)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_steps("bits", *self.bits, None)
        return self

    @property
    def num_variants(self) -> int | None:
        return self.bits[1] - self.bits[0] + 1

    @property
    def draws_text(self) -> str:
        return f"{self.bits[0]} to {self.bits[1]} bits of each level"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        bits = self.bits[0] + words.integer(1, self.bits[1] - self.bits[0] + 1)
        return {"bits": where_applied(words.happens(0, self.p), bits, 8).astype(np.int8)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        applied = drawn["bits"] < 8
        kept = 256 - (256 >> drawn["bits"][applied].astype(np.int64))
        frame.look_up_levels(as_tables(LEVELS & kept[:, None]), applied)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"posterize {drawn['bits']} bits" if drawn["bits"] < 8 else ""


class Solarize(Op):
    """Invert the levels from a threshold on."""

    op: Literal["solarize"] = "solarize"
    threshold: LevelRange = (128, 128)
    """Smallest and largest level from which on levels are inverted; 256 changes nothing."""
    step: Annotated[float, Field(gt=0.0)] = 1.0
    """From one threshold to the next; one that is no whole level is rounded up, which inverts the same levels."""
    p: Probability = 0.5
    """How often the op is applied."""

    num_words: ClassVar[int] = 2
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("threshold", np.int16),)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_steps("threshold", *self.threshold, self.step)
        return self

    @property
    def num_variants(self) -> int | None:
        return num_steps(*self.threshold, self.step)

    @property
    def draws_text(self) -> str:
        steps = "" if self.step == 1.0 else f" in steps of {self.step:g}"
        return f"inverted from level {self.threshold[0]} to {self.threshold[1]} on{steps}"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        threshold = np.ceil(words.stepped(1, *self.threshold, self.step) - ROUNDING)
        return {"threshold": where_applied(words.happens(0, self.p), threshold, 256).astype(np.int16)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        applied = drawn["threshold"] < 256
        is_inverted = drawn["threshold"][applied][:, None] <= LEVELS
        frame.look_up_levels(as_tables(np.where(is_inverted, 255 - LEVELS, LEVELS)), applied)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"solarize from {drawn['threshold']}" if drawn["threshold"] < 256 else ""


class SolarizeAdd(Op):
    """Add to the levels below a threshold."""

    op: Literal["solarize_add"] = "solarize_add"
    addition: LevelRange = (0, 110)
    """Fewest and most levels that are added; sums are kept within 255."""
    threshold: Annotated[int, Field(ge=1, le=256)] = 128
    """The first level that stays as it is."""
    p: Probability = 1.0
    """How often the op is applied."""

    num_words: ClassVar[int] = 2
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("addition", np.int16),)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_steps("addition", *self.addition, None)
        return self

    @property
    def num_variants(self) -> int | None:
        return self.addition[1] - self.addition[0] + 1

    @property
    def draws_text(self) -> str:
        return f"{self.addition[0]} to {self.addition[1]} more below level {self.threshold}"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        addition = self.addition[0] + words.integer(1, self.addition[1] - self.addition[0] + 1)
        return {"addition": where_applied(words.happens(0, self.p), addition, 0).astype(np.int16)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        applied = drawn["addition"] > 0
        added = LEVELS + drawn["addition"][applied][:, None]
        frame.look_up_levels(as_tables(np.where(self.threshold > LEVELS, added, LEVELS)), applied)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"solarize +{drawn['addition']}" if drawn["addition"] else ""


class Invert(SwitchOp):
    """Turn each level into 255 minus it."""

    op: Literal["invert"] = "invert"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        inverted = np.repeat(as_tables(255 - LEVELS)[None], drawn["applied"].sum(), axis=0)
        frame.look_up_levels(inverted, drawn["applied"])


class AutoContrast(SwitchOp):
    """Stretch the levels of each channel to 0..255, as Pillow's `autocontrast`; looks at the rendered image."""

    op: Literal["auto_contrast"] = "auto_contrast"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.look_at_image(AUTO_CONTRAST, np.ones(len(drawn["applied"])), drawn["applied"])


class Equalize(SwitchOp):
    """Spread the levels of each channel evenly, as Pillow's `equalize`; looks at the rendered image."""

    op: Literal["equalize"] = "equalize"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.look_at_image(EQUALIZE, np.ones(len(drawn["applied"])), drawn["applied"])


class Sharpness(FactorOp):
    """Move each pixel away from the mean about it, as Pillow's `ImageEnhance.Sharpness`; below 1 it blurs."""

    op: Literal["sharpness"] = "sharpness"

    word: ClassVar[str] = "sharpness"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.look_at_image(SHARPNESS, drawn["factor"], is_changed(drawn["factor"]))
