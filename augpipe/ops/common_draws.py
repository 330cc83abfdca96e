"""What ops have in common: a number drawn from each of their ranges, one factor, or only whether they are applied."""

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, model_validator

from augpipe.ops.op import Drawn, Op, Probability, Range, where_applied
from augpipe.ops.random_words import RandomWords, check_steps, num_steps
from augpipe.validation.models import broken


class RangesOp(Op):
    """An op that draws a number from each range of `fields_drawn`, which are fields of the same names."""

    if TYPE_CHECKING:  # fields of those that are of this kind, behind their ranges
        step: float | None
        p: Probability

    neutral: ClassVar[float] = 0.0
    """The number that changes nothing."""

    def evenly_drawn(self, limits: tuple[float, float]) -> tuple[float, float]:
        """The limits of the numbers that are drawn evenly for a range."""
        return limits

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """What is drawn, from where to where."""
        return {name: self.evenly_drawn(getattr(self, name)) for name, *_ in self.fields_drawn}

    @model_validator(mode="after")
    def _are_in_steps(self) -> Self:
        for name, limits in self.ranges.items():
            check_steps(name, *limits, self.step)
        return self

    @property
    def num_variants(self) -> int | None:
        return None if self.step is None else prod(num_steps(*limits, self.step) for limits in self.ranges.values())

    @property
    def steps_text(self) -> str:
        """In which steps it draws, if in any."""
        return "" if self.step is None else f" in steps of {self.step:g}"

    def draw(self, words: RandomWords, frame: Any) -> Drawn:
        applied = words.happens(0, self.p)
        return {
            name: where_applied(applied, words.stepped(place, *limits, self.step), self.neutral)
            for place, (name, limits) in enumerate(self.ranges.items(), start=1)
        }


def factors_within(low: float, high: float) -> AfterValidator:
    """For `Annotated`: a range whose ends lie in `low`..`high`."""

    def check(limits: tuple[float, float]) -> tuple[float, float]:
        if limits[0] < low or limits[1] > high:
            raise broken(f"leaves {low:g}..{high:g}. Choose factors nearer to 1, which changes nothing.")
        return limits

    return AfterValidator(check)


Factors = Annotated[Range, factors_within(0.0, 100.0)]


class FactorOp(RangesOp):
    """An op that draws a factor, of which 1 changes nothing."""

    factor: Factors = (0.6, 1.4)
    """Smallest and largest factor; 1 changes nothing."""
    step: float | None = None
    """From one factor to the next; None for any factor."""
    p: Probability = 1.0
    """How often the op is applied."""

    neutral: ClassVar[float] = 1.0
    word: ClassVar[str] = ""
    """What is multiplied, for captions."""
    num_words: ClassVar[int] = 2
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("factor", np.float64),)

    @property
    def draws_text(self) -> str:
        return f"{self.word} times {self.factor[0]:g} to {self.factor[1]:g}{self.steps_text}"

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"{self.word} {drawn['factor']:.2f}" if drawn["factor"] != 1.0 else ""


def is_changed(factors: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """(n,): whether a factor changes anything."""
    changed: npt.NDArray[np.bool_] = factors != 1.0
    return changed


class SwitchOp(Op):
    """An op that is applied or not, and draws no more."""

    p: Probability = 0.5
    """How often the op is applied."""

    num_words: ClassVar[int] = 1
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("applied", np.bool_),)

    @property
    def num_variants(self) -> int | None:
        return 2

    @property
    def draws_text(self) -> str:
        return "applied or not"

    def draw(self, words: RandomWords, frame: Any) -> Drawn:
        return {"applied": words.happens(0, self.p)}

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return self.op.replace("_", "") if drawn["applied"] else ""
