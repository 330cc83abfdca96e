"""A recipe: which ops act on a photograph, in which order and ranges; frozen, validated, loaded from TOML."""

import difflib
import tomllib
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from augpipe.ops import (
    BrownConrady,
    CenterCrop,
    ColorCast,
    Flip,
    LensDistortion,
    MultiResolutionCrop,
    Normalize,
    Op,
    RandomResizedCrop,
    Rotate,
    Stretch,
    Vignette,
)
from augpipe.ops.base import CONTINUOUS, pair, refuse_unknown

AnyOp = Annotated[
    BrownConrady
    | CenterCrop
    | ColorCast
    | Flip
    | LensDistortion
    | MultiResolutionCrop
    | Normalize
    | RandomResizedCrop
    | Rotate
    | Stretch
    | Vignette,
    Field(discriminator="op"),
]
Crop = CenterCrop | MultiResolutionCrop | RandomResizedCrop
Border = Literal["context", "reflect", "edge", "constant"]
Level = Annotated[float, Field(ge=0.0, le=255.0)]


class View(BaseModel):
    """One crop of a photograph, or several alike, with ops of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ops: tuple[AnyOp, ...] = ()
    """In order; the crop acts first wherever it stands, geometry in its order, tone last in its order."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many such crops, each with draws of its own."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_unknown(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            refuse_unknown("a view", data, list(cls.model_fields))
        return data

    @model_validator(mode="after")
    def _is_one_pass(self) -> Self:
        crops = [op.op for op in self.ops if op.is_crop]
        lenses = [op.op for op in self.ops if op.is_lens]
        for what, found in (("crop", crops), ("lens", lenses)):
            if len(found) > 1:
                raise ValueError(
                    f"a view takes one {what} and this one holds {len(found)}: {', '.join(found)}. Keep one."
                )
        kinds = Counter(op.op for op in self.ops)
        for kind in ("color_cast", "vignette", "normalize"):
            if kinds[kind] > 1:
                raise ValueError(f"a view takes one {kind} and this one holds {kinds[kind]}. Keep one.")
        return self

    @property
    def crop(self) -> Op | None:
        """The op that decides the output's size; None where the whole photograph is kept."""
        return next((op for op in self.ops if op.is_crop), None)

    @property
    def out_size(self) -> tuple[int, int] | None:
        """(height, width) of the output in pixels; None where the whole photograph is kept."""
        return pair(self.crop.size) if isinstance(self.crop, Crop) else None

    @property
    def num_variants(self) -> int | None:
        """The product of its ops' variants; None where one of them is continuous."""
        product = 1
        for op in self.ops:
            if op.num_variants is None:
                return None
            product *= op.num_variants
        return product

    @cached_property
    def keyed_ops(self) -> tuple[tuple[str, Op], ...]:
        """Each op under a name that is unique in the view: its kind, and from the second of a kind on its place."""
        seen: Counter[str] = Counter()
        keyed = []
        for op in self.ops:
            seen[op.op] += 1
            keyed.append((op.op if seen[op.op] == 1 else f"{op.op}_{seen[op.op]}", op))
        return tuple(keyed)

    @cached_property
    def drawn_dtype(self) -> np.dtype[np.void]:
        """The record of what its ops draw, one field for each op that draws anything."""
        return np.dtype([(key, np.dtype(list(op.fields_drawn))) for key, op in self.keyed_ops if op.fields_drawn])


class Recipe(BaseModel):
    """What happens to every photograph: `ops` for one view of it, or `views` for several from one decode."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    """For captions and messages."""
    border: Border = "context"
    """What lies outside the crop: `context` is the photograph itself (mirrored beyond its own border); `reflect`
    mirrors the crop, `edge` repeats its outermost pixels, `constant` is `fill`."""
    fill: tuple[Level, Level, Level] = (0.0, 0.0, 0.0)
    """R, G, B of a constant border, in 0..255."""
    ops: tuple[AnyOp, ...] = ()
    """The ops of the only view; see `View.ops`."""
    views: tuple[View, ...] = ()
    """Several views of each photograph, instead of `ops`."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_unknown(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            refuse_unknown("a recipe", data, list(cls.model_fields))
        return data

    @model_validator(mode="after")
    def _has_ops_or_views(self) -> Self:
        if self.ops and self.views:
            raise ValueError("a recipe holds either ops or views, and this one has both. Move the ops into a view.")
        if not self.views:
            View(ops=self.ops)
        return self

    @cached_property
    def all_views(self) -> tuple[View, ...]:
        """One entry for each output image of a photograph: `count` is spread out, and `ops` alone is one view."""
        views = self.views or (View(ops=self.ops),)
        return tuple(view for view in views for _ in range(view.count))

    @property
    def num_variants(self) -> int | None:
        """Variants of one photograph: the product over ops and views; None where one of them is continuous."""
        product = 1
        for view in self.all_views:
            if view.num_variants is None:
                return None
            product *= view.num_variants
        return product

    @property
    def normalises(self) -> bool:
        """Whether any view ends in values other than 8-bit levels."""
        return any(op.op == "normalize" for view in self.all_views for op in view.ops)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML file.

        Raises:
            ValueError: the file is no TOML or no recipe; the message names the file, the place and the remedy.
            OSError: the file cannot be read.
        """
        content = Path(path).read_bytes()
        try:
            return cls.model_validate(tomllib.loads(content.decode()))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not valid TOML: {error}.") from error
        except ValidationError as error:
            problems = "\n".join(f"  {line}" for line in explain(error))
            raise ValueError(f"{path}: not a valid recipe:\n{problems}") from error

    def to_toml(self) -> str:
        """The recipe as TOML with every field written out, so that a later default cannot change it."""
        import tomli_w  # only here: to augment, a machine without this package needs none of it

        return tomli_w.dumps(_without_none(self.model_dump(), self))

    def dump(self, path: str | Path) -> None:
        """Write the recipe to a TOML file that `load` reads back as an equal recipe."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema of the TOML file, for editors that complete and check as one types."""
        return cls.model_json_schema()


def _without_none(data: Any, model: Any) -> Any:
    """TOML has no null: leave a None out where it is the default, and write `continuous` where it is not."""
    if isinstance(model, BaseModel):
        fields = type(model).model_fields
        kept = {}
        for name, value in data.items():
            if value is None:
                if fields[name].default is None:
                    continue
                value = CONTINUOUS
            elif name in ("ops", "views") and not value:
                continue
            kept[name] = _without_none(value, getattr(model, name))
        return kept
    if isinstance(data, list | tuple):
        return [_without_none(item, part) for item, part in zip(data, model, strict=True)]
    return data


def explain(error: ValidationError) -> list[str]:
    """One line for each problem: where it is, what the rule says, what was found."""
    lines = []
    for problem in error.errors():
        place = ""
        for part in problem["loc"]:
            place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "union_tag_invalid":
            kinds = [kind.strip("' ") for kind in str(problem["ctx"]["expected_tags"]).split(",")]
            found = problem["ctx"]["tag"]
            near = difflib.get_close_matches(str(found), kinds, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            message = f"{found!r} is not an op.{hint} The ops: {', '.join(kinds)}."
        elif problem["type"] == "union_tag_not_found":
            message = 'every op names its kind, as in op = "color_cast".'
        elif problem["type"] != "value_error":
            message += f" (found {problem['input']!r})"
        lines.append(f"{place}: {message}" if place else message)
    return lines
