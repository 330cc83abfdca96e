"""What ops have in common that draw one factor, of which 1 changes nothing."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, model_validator

from augpipe.ops.op import Drawn, Op, Probability, Range, where_applied
from augpipe.ops.random_words import RandomWords, check_steps, num_steps

MAX_FACTOR = 100.0


def _is_factor(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] < 0.0 or limits[1] > MAX_FACTOR:
        raise ValueError(f"{limits} leaves 0..{MAX_FACTOR:g}. Choose factors about 1, which changes nothing.")
    return limits


Factors = Annotated[Range, AfterValidator(_is_factor)]


class FactorOp(Op):
    """An op that draws a factor; those that are of this kind say what it does to an image."""

    factor: Factors = (0.6, 1.4)
    """Smallest and largest factor; 1 changes nothing."""
    step: float | None = None
    """From one factor to the next; None for any factor."""
    p: Probability = 1.0
    """How often the op is applied."""

    word: ClassVar[str] = ""
    """What is multiplied, for captions."""
    num_words: ClassVar[int] = 2
    fields_drawn: ClassVar[tuple[tuple[Any, ...], ...]] = (("factor", np.float64),)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        check_steps("factor", *self.factor, self.step)
        return self

    @property
    def num_variants(self) -> int | None:
        return None if self.step is None else num_steps(*self.factor, self.step)

    @property
    def draws_text(self) -> str:
        steps = "" if self.step is None else f" in steps of {self.step:g}"
        return f"{self.word} times {self.factor[0]:g} to {self.factor[1]:g}{steps}"

    def draw(self, words: RandomWords, frame: Any) -> Drawn:
        factor = words.stepped(1, *self.factor, self.step)
        return {"factor": where_applied(words.happens(0, self.p), factor, 1.0)}

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"{self.word} x{drawn['factor']:.2f}" if drawn["factor"] != 1.0 else ""


def is_changed(factors: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """(n,): whether a factor changes anything."""
    changed: npt.NDArray[np.bool_] = factors != 1.0
    return changed
