"""What an op draws, told once: its record, words, checks, number of outcomes, neutral values and strength follow."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from augpipe.ops.random_words import RandomWords, check_steps, num_steps
from augpipe.validation.models import broken

if TYPE_CHECKING:
    from augpipe.ops.op import Op

Limits = tuple[float, float]
Bool = npt.NDArray[np.bool_]

Scale = Callable[[Any, float], Any]
"""A field's value and a strength to the value at that strength; strength 1 leaves it as it is."""


def from_zero(value: Any, strength: float) -> Any:
    """Numbers that change nothing at 0, and steps; None stays."""
    if value is None:
        return None
    return tuple(strength * one for one in value) if isinstance(value, tuple) else strength * value


def from_one(value: Any, strength: float) -> Any:
    """Factors, which change nothing at 1; one number is the distance from there."""
    if not isinstance(value, tuple):
        return strength * value
    return tuple(1.0 + strength * (one - 1.0) for one in value)


def power(value: Any, strength: float) -> Any:
    """Powers, whose logarithm is drawn."""
    return tuple(one**strength for one in value)


@dataclass(frozen=True)
class Draw:
    """A value that an op draws for each image, made by the op's own `draw`; those below make their own."""

    name: str
    """Its name in the plan."""
    dtype: Any = np.float64
    shape: tuple[int, ...] = ()
    _: KW_ONLY
    num_words: int = 1
    """Random words that it takes, after those of the draws before it; word 0 is that of `p`."""
    neutral: float | None = None
    """The value that changes nothing, of images that the op is not applied to; None where every image draws one."""
    scaled: tuple[str, ...] = ()
    """Fields of the op that a strength multiplies."""

    @property
    def scaled_fields(self) -> dict[str, Scale]:
        """How the op's fields move with its strength."""
        return dict.fromkeys(self.scaled, from_zero)

    def check(self, op: "Op") -> None:
        """Raise ValueError where the op's fields leave nothing to draw from."""

    def num_variants(self, op: "Op") -> int | None:
        """How many values there are; None for any number, or where the op says it."""
        return None

    def drawn(self, op: "Op", words: RandomWords, place: int, applied: Bool) -> npt.NDArray[Any] | None:
        """(n, ..) values of the words from `place` on; None where the op draws them."""
        return None


@dataclass(frozen=True)
class Applied(Draw):
    """Whether the op is applied, and no more."""

    name: str = "applied"
    dtype: Any = np.bool_
    _: KW_ONLY
    num_words: int = 0
    neutral: float | None = False

    def num_variants(self, op: "Op") -> int:
        return 2

    def drawn(self, op: "Op", words: RandomWords, place: int, applied: Bool) -> Bool:
        return applied


@dataclass(frozen=True)
class Seed(Draw):
    """What a pixel's noise is made of, in addition to its place."""

    name: str = "key"
    dtype: Any = np.uint32
    shape: tuple[int, ...] = (2,)
    _: KW_ONLY
    num_words: int = 2

    def drawn(self, op: "Op", words: RandomWords, place: int, applied: Bool) -> npt.NDArray[np.uint32]:
        return words.words[:, place : place + 2]


@dataclass(frozen=True)
class Number(Draw):
    """A number from a range that is a field of the op, evenly distributed, continuous or in steps."""

    _: KW_ONLY
    of: str = ""
    """The field with the range; without one, that of the draw's name."""
    step: str | float | None = None
    """From one number to the next: the field that says it, or how far it is; None for any number."""
    neutral: float | None = 0.0
    log: bool = False
    """Whether its logarithm is what is evenly distributed."""
    rounded: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]] | None = None
    """What is made of the number before it is kept."""

    @property
    def field(self) -> str:
        """The field with the range."""
        return self.of or self.name

    @property
    def scaled_fields(self) -> dict[str, Scale]:
        if self.neutral is None or not np.issubdtype(self.dtype, np.floating):
            return {}
        steps = {self.step: from_zero} if isinstance(self.step, str) else {}
        return {self.field: power if self.log else from_one if self.neutral else from_zero, **steps}

    def check(self, op: "Op") -> None:
        limits = op.range_of(self)
        check_steps(self.field, *limits, None)
        for within in type(op).model_fields[self.field].metadata:
            if isinstance(within, Within) and not within.holds(limits):
                raise ValueError(f"{self.field}={limits} {within.text}")
        check_steps(self.field, *op.even_ranges[self.name])

    def num_variants(self, op: "Op") -> int | None:
        low, high, step = op.even_ranges[self.name]
        return None if step is None else num_steps(low, high, step)

    def drawn(self, op: "Op", words: RandomWords, place: int, applied: Bool) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = op.unevenly(self, words.stepped(place, *op.even_ranges[self.name]))
        if self.rounded is not None:
            numbers = self.rounded(numbers)
        if self.neutral is not None:
            numbers = np.where(applied, numbers, self.neutral)
        return numbers.astype(self.dtype, copy=False)


@dataclass(frozen=True)
class Within:
    """For `Annotated`: where a range must lie."""

    low: float
    high: float
    remedy: str = ". Choose a range within it."
    """What stands behind the limits in a message."""

    @property
    def text(self) -> str:
        """What a message says of a range that does not."""
        return f"leaves {self.low:g}..{self.high:g}{self.remedy}"

    def holds(self, limits: Limits) -> bool:
        """Whether a range, smaller end first, lies there."""
        return self.low <= limits[0] and limits[1] <= self.high

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Both of a range's numbers have the limits, for editors and sliders."""
        schema = handler(core_schema)
        for number in schema.get("prefixItems", ()):
            number |= {"minimum": self.low, "maximum": self.high}
        return schema


@dataclass(frozen=True)
class FactorsWithin(Within):
    """As `Within`, of factors; checked with the field."""

    remedy: str = ". Choose factors nearer to 1, which changes nothing."

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(limits: Limits) -> Limits:
            if not self.holds(limits):
                raise broken(self.text)
            return limits

        return core_schema.no_info_after_validator_function(check, handler(source))
