"""What every op is: a frozen, validated description that draws numbers for a batch and changes a frame by them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from augpipe.ops.draws import Draw, Limits, Number, Scale
from augpipe.ops.frame import Frame
from augpipe.ops.random_words import RandomWords
from augpipe.validation.models import Checked, refuse_unknown, told

Drawn = dict[str, Any]
"""What an op draws: (n, ..) arrays by name; of a group, its ops' own, too."""
MAX_SIDE_PX = 65_535
Side = Annotated[int, Field(ge=1, le=MAX_SIDE_PX)]
Size = Annotated[
    Side | tuple[Side, Side],
    told(f"must be a whole number of pixels in 1..{MAX_SIDE_PX}, or two of them, height and width: {{name}}=224"),
]
Range = Annotated[tuple[float, float], told("must be two finite numbers: {name}=[smallest, largest]")]
Probability = Annotated[
    float, Field(ge=0.0, le=1.0), told("must be a probability in 0..1, as {name}=0.5 for half of all photographs")
]
Level = Annotated[float, Field(ge=0.0, le=255.0)]


def for_all(value: Any) -> Any:
    """One number, alone or in a list, three times; all else as it is."""
    number = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    return (number,) * 3 if not isinstance(number, bool) and isinstance(number, Real) else value


Fill = Annotated[
    tuple[Level, Level, Level],
    BeforeValidator(for_all, json_schema_input_type=Level | tuple[Level] | tuple[Level, Level, Level]),
    told("must be three levels in 0..255, for R, G and B, or one for all: {name}=[0, 0, 0]"),
]
Border = Literal["constant", "edge", "reflect", "reflect_101", "wrap"]
"""What is seen outside of an image that was padded."""
Beyond = tuple[str, tuple[float, float, float]]
"""The border and the fill that an op asks for."""
CONTINUOUS = "continuous"
"""What TOML, which has no null, writes for a step of None."""
KINDS: dict[str, type["Op"]] = {}
"""The name in TOML -> the op, complete once `augpipe.ops` is imported: each class below that package enters itself."""


NEW_FIELDS = {
    "align_corners",
    "at",
    "blue_first",
    "cells",
    "corners",
    "fit_frame",
    "from_centers",
    "height_px",
    "in_turn",
    "inner_std",
    "keep_objects",
    "keeps_gray",
    "line",
    "of_normalized",
    "opposite",
    "own_border",
    "own_fill",
    "own_look",
    "own_size",
    "rounding",
    "side_px",
    "swaps_sides",
}
"""Fields that ops of the first release did not have."""


class Op(Checked):
    """One augmentation; `draw` is where its randomness is spent, `apply` is deterministic.

    A class lists its draws in `draws`; what follows from that is here, and a class that differs overrides it.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    op: str
    """The kind, as written in TOML; it also names the op's stream of random numbers."""

    draws: ClassVar[tuple[Draw, ...]] = ()
    """Its draws for each image, in the order of the random words."""
    formula: ClassVar[str] = ""
    """Its effect in a line, for the table in docs/ops.md."""
    inspect_text: ClassVar[str] = ""
    """Its draws, for `augpipe inspect`: a template of its fields and of `steps`; without one, its ranges."""
    caption_text: ClassVar[str] = ""
    """A template of what was drawn, for preview sheets; without one, the kind and the numbers."""
    is_crop: ClassVar[bool] = False
    """Whether it decides what is seen, and in how many pixels."""
    is_geometry: ClassVar[bool] = False
    """Whether it moves what is seen, other than by mirroring it."""
    acts_first: ClassVar[bool] = False
    """Whether a view's crops act before its other ops, wherever they stand: as in the papers."""
    cuts: ClassVar[bool] = False
    """Whether it may leave out a part of what is there."""
    sides_px: ClassVar[tuple[str, ...]] = ()
    """Fields that count pixels of what is seen: they change in proportion where images of another size are wanted."""
    is_within_output: ClassVar[bool] = False
    """Whether it looks at the sides of the output, `Frame.final_sides`, which no op behind it may change then."""
    is_lens: ClassVar[bool] = False
    """Whether it bends lines, by a lens or a displacement: one look-up bends an image once."""
    is_projective: ClassVar[bool] = False
    """Whether it makes parallels meet: one look-up does it once, before what bends."""
    in_files: ClassVar[bool] = True
    """Whether a TOML file can hold it."""
    num_words: ClassVar[int] = 0
    """How many 32-bit random words the op reads; that of its `draws` unless it is given."""

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what is new and not given: states and plans then read as those of earlier releases."""
        written: dict[str, Any] = serialize(self)
        fields = type(self).model_fields
        return {
            name: value
            for name, value in written.items()
            if name not in NEW_FIELDS or getattr(self, name) != fields[name].default
        }

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        if "draws" in vars(cls) and "num_words" not in vars(cls):
            cls.num_words = 1 + sum(draw.num_words for draw in cls.draws)
        kind = cls.model_fields["op"].default
        if isinstance(kind, str) and cls.__module__.startswith("augpipe.ops.") and cls.in_files:
            assert kind not in KINDS, f"two ops are called {kind}"
            KINDS[kind] = cls

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """TOML has no null: where a field may be None, the file says `continuous`."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        for field in handler.resolve_ref_schema(schema).get("properties", {}).values():
            for option in field.get("anyOf", ()):
                if option == {"type": "null"}:
                    option.update(type="string", const=CONTINUOUS)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _name_the_unknown(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            data = {name: None if value == CONTINUOUS else value for name, value in data.items()}
            refuse_unknown(cls.__name__, data, cls.field_names(), ("op",))
        return data

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        for draw in self.draws:
            draw.check(self)
        return self

    @classmethod
    def field_names(cls) -> list[str]:
        return [field for field in cls.model_fields if field != "op"]

    @property
    def scaled_px(self) -> tuple[str, ...]:
        """Those of `sides_px` that say something of this one."""
        return self.sides_px

    @property
    def key(self) -> str:
        """What it is called in a view; from the second of that name on its place is added."""
        return self.op

    @property
    def flat(self) -> tuple["Op", ...]:
        """The op itself, or those that it chooses among."""
        return (self,)

    @property
    def bends(self) -> frozenset[tuple["Op", ...]]:
        """Which lenses and perspectives may act on one image: each combination of one or two, in order."""
        return frozenset([(self,)]) if self.is_lens or self.is_projective else NO_BENDS

    @cached_property
    def record(self) -> np.dtype[np.void]:
        """The numpy record of its draws for an image, without fields where there are none."""
        return np.dtype([(draw.name, draw.dtype, draw.shape) for draw in self.draws])

    @property
    def num_variants(self) -> int | None:
        """How many outcomes it can draw; None where a range is continuous or depends on the image."""
        return product(draw.num_variants(self) for draw in self.draws)

    @property
    def alternates(self) -> bool:
        """Whether its words are a sample's for good, those of epoch 0, and epochs only change what is made of them."""
        return False

    @property
    def scaled_fields(self) -> dict[str, Scale]:
        """Field -> how it moves with the op's strength, of those that say how far it goes; empty for one that is done
        or not. The number of steps stays, so that the same word picks the same place in the range at every strength."""
        return {field: scale for draw in self.draws for field, scale in draw.scaled_fields.items()}

    @property
    def draws_text(self) -> str:
        """Its draws, in words, for `augpipe inspect`."""
        if self.inspect_text:
            return self.inspect_text.format(steps=self.steps_text, **dict(self))
        ranges = [(draw.name, *self.range_of(draw)) for draw in self.draws if isinstance(draw, Number)]
        if ranges:
            return (
                ", ".join(f"{name} {low:g} to {high:g}" for name, low, high in ranges if low < high) + self.steps_text
            )
        return "applied or not" if self.draws else "nothing"

    @property
    def steps_text(self) -> str:
        """In which steps it draws, if in any."""
        step = getattr(self, "step", None)
        are_whole = all(np.issubdtype(draw.dtype, np.integer) for draw in self.draws)
        return "" if step is None or (are_whole and step == 1.0) else f" in steps of {step:g}"

    def range_of(self, draw: Number) -> Limits:
        """What a number is drawn from, as a message shows it."""
        limits: Limits = getattr(self, draw.field)
        return limits

    def evenly(self, draw: Number, limits: Limits) -> Limits:
        """Smallest and largest of the numbers that are evenly distributed, for a range."""
        return (np.log(limits[0]), np.log(limits[1])) if draw.log else limits

    def unevenly(self, draw: Number, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The numbers of a range, made of evenly distributed ones."""
        return np.exp(numbers) if draw.log else numbers

    def step_of(self, draw: Number) -> float | None:
        """From one of the evenly distributed numbers to the next; None for any."""
        step: float | None = getattr(self, draw.step) if isinstance(draw.step, str) else draw.step
        return step

    @cached_property
    def even_ranges(self) -> dict[str, tuple[float, float, float | None]]:
        """Name -> smallest and largest of the evenly distributed numbers, and the step between, of each `Number`."""
        numbers = [draw for draw in self.draws if isinstance(draw, Number)]
        return {draw.name: (*self.evenly(draw, self.range_of(draw)), self.step_of(draw)) for draw in numbers}

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        """The drawn values, one entry an image, under the names of `draws`."""
        if not self.draws:
            return {}
        applied, drawn, place = words.happens(0, getattr(self, "p", 1.0)), Drawn(), 1
        for draw in self.draws:
            values = draw.drawn(self, words, place, applied)
            if values is not None:
                drawn[draw.name] = values
            place += draw.num_words
        return drawn

    def changes(self, drawn: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """(n,): whether anything was drawn that changes an image."""
        parts = [drawn[draw.name] != draw.neutral for draw in self.draws if draw.neutral is not None]
        whole = [part if part.ndim == 1 else part.any(axis=tuple(range(1, part.ndim))) for part in parts]
        changed: npt.NDArray[np.bool_] = whole[0] if len(whole) == 1 else np.logical_or.reduce(whole)
        return changed

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        """Change the frame by what was drawn."""
        raise AssertionError(f"{type(self).__name__} does not say what it does")

    @property
    def draws_size(self) -> bool:
        """Whether it draws how many pixels an image has: an op behind it makes them one size."""
        return False

    def draws_size_of(self, sides: tuple[int, int] | None) -> bool:
        """Whether it does so of an image of this height and width; None: of any."""
        return self.draws_size

    @property
    def beyond(self) -> Beyond | None:
        """What is seen outside the image, where the op says so; None leaves it to the recipe."""
        return None

    @property
    def centred(self) -> "Op":
        """A crop that draws nothing, for the evaluation of what was trained with this one."""
        return self

    def sides(self, heights: Any, widths: Any) -> tuple[Any, Any]:
        """Height and width behind the op, of those before it: whole numbers, or (n,) arrays of them."""
        return heights, widths

    def refuses(self, height: int, width: int) -> str | None:
        """Why an image of this size cannot be used, with the remedy; None where it can."""
        return None

    def caption(self, drawn: Mapping[str, Any]) -> str:
        """One image's drawn values in a few characters, for preview sheets; empty when there is nothing to say."""
        neutral = [(drawn[draw.name], draw.neutral) for draw in self.draws if draw.neutral is not None]
        if not self.draws or (neutral and all(np.all(value == unchanged) for value, unchanged in neutral)):
            return ""
        if self.caption_text:
            return self.caption_text.format(**{draw.name: drawn[draw.name] for draw in self.draws})
        numbers = [f"{drawn[draw.name]:.2f}" for draw in self.draws if isinstance(draw, Number)]
        return " ".join([self.op.replace("_", ""), *numbers])


NO_BENDS: frozenset[tuple[Op, ...]] = frozenset([()])


def bends_in_turn(ops: Iterable[Op], most: int | None = None) -> frozenset[tuple[Op, ...]]:
    """What `Op.bends` is of ops that follow each other, or of which `most` act at once."""
    found = {0: NO_BENDS}
    for op in ops:
        for num, before in sorted(found.items(), reverse=True):
            longer = frozenset((one + other)[:2] for one in before for other in op.bends)
            if longer != before and (most is None or num < most):
                found[num + 1] = found.get(num + 1, frozenset()) | longer
    return NO_BENDS.union(*found.values())


def keyed(ops: Sequence[Op]) -> tuple[tuple[str, Op], ...]:
    """Each op under a name of its own among them: its kind, and from the second of a kind on its place, too."""
    seen: Counter[str] = Counter()
    named: dict[str, Op] = {}
    for op in ops:
        seen[op.key] += 1
        while (name := op.key if seen[op.key] == 1 else f"{op.key}_{seen[op.key]}") in named:
            seen[op.key] += 1  # of a user's own name
        named[name] = op
    return tuple(named.items())


def product(counts: Iterable[int | None]) -> int | None:
    """The product of numbers of variants; None where one of them is."""
    known = list(counts)
    return None if None in known else prod(count for count in known if count is not None)


def pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size that may be given as one number."""
    return (size, size) if isinstance(size, int) else size


def one_of_them(op: Op, replaced: str, instead: str, what: str = "how large the result is") -> None:
    """That a field was left as it is by default where another one takes its place.

    Raises:
        ValueError: both were given, and the first would have no effect.
    """
    given, default = getattr(op, replaced), type(op).model_fields[replaced].default
    if getattr(op, instead) is not None and given != default:
        raise ValueError(
            f"{replaced}={given} and {instead}={getattr(op, instead)} both say {what}. Leave one of them out."
        )


def where_applied(applied: npt.NDArray[np.bool_], drawn: npt.NDArray[Any], neutral: float) -> npt.NDArray[Any]:
    """The drawn values where the op is applied, `neutral` elsewhere."""
    mask = applied.reshape(applied.shape + (1,) * (drawn.ndim - 1))
    return np.where(mask, drawn, neutral)
