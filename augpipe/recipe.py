"""A recipe: which ops act on an image, in which order and ranges; frozen, validated, loaded from TOML."""

import difflib
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, WrapValidator, model_validator

from augpipe.checks.models import Checked, FieldError, broken, refuse_unknown, told
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
from augpipe.ops.op import CONTINUOUS, pair

AnyKind = (
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
    | Vignette
)
_KINDS = {kind.model_fields["op"].default: kind for kind in get_args(AnyKind)}
"""The name in TOML -> the op."""


def _is_op(value: Any, validate: Callable[[Any], Any]) -> Any:
    """Say of what is no op at all what it is instead; whatever looks like one is validated as such."""
    if isinstance(value, get_args(AnyKind)):
        return validate(value)
    if isinstance(value, type) and issubclass(value, Op):
        raise ValueError(f"{value.__name__} is the class. Write {value.__name__}() for an op of it.")
    name = value.get("op") if isinstance(value, Mapping) else value
    if isinstance(value, Mapping) and name is None:
        raise ValueError('every op names its kind, as in op = "color_cast".')
    if not isinstance(name, str):
        raise ValueError(f"a {type(value).__name__} is no op. augpipe.ops has them: {', '.join(_names())}.")
    if name not in _KINDS:
        near = difflib.get_close_matches(name, _KINDS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name!r} is not an op.{hint} The ops: {', '.join(_KINDS)}.")
    if name is value:
        raise ValueError(
            f'{name!r} is only the name of an op. Write {_KINDS[name].__name__}(), in TOML {{op = "{name}"}}.'
        )
    return validate(value)


def _names() -> list[str]:
    return [kind.__name__ for kind in _KINDS.values()]


def _is_list(value: Any) -> Any:
    """Say of one op or view, which pydantic would take for the list of its own fields, that it belongs into a list."""
    if isinstance(value, BaseModel):
        raise broken(f"must be a list: {{name}}=[{type(value).__name__}(...)]")
    return value


AnyOp = Annotated[AnyKind, Field(discriminator="op"), WrapValidator(_is_op)]
Ops = Annotated[tuple[AnyOp, ...], BeforeValidator(_is_list)]
Crop = CenterCrop | MultiResolutionCrop | RandomResizedCrop
Border = Literal["context", "reflect", "edge", "constant"]
Model = TypeVar("Model", bound=BaseModel)
Level = Annotated[float, Field(ge=0.0, le=255.0)]


class View(Checked):
    """One crop of an image, or several alike, with ops of its own."""

    ops: Ops = ()
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
        """The op that decides the output's size; None where the whole image is kept."""
        return next((op for op in self.ops if op.is_crop), None)

    @property
    def out_size(self) -> tuple[int, int] | None:
        """(height, width) of the output in pixels; None where the whole image is kept."""
        return pair(self.crop.size) if isinstance(self.crop, Crop) else None

    @property
    def num_variants(self) -> int | None:
        """The product of its ops' variants; None where one of them is continuous."""
        return _product(op.num_variants for op in self.ops)

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


class Recipe(Checked):
    """What happens to every image: `ops` for one view of it, or `views` for several from one decode."""

    name: str = ""
    """For captions and messages."""
    border: Border = "context"
    """What lies outside the crop: `context` is the image itself (mirrored beyond its own border); `reflect`
    mirrors the crop, `edge` repeats its outermost pixels, `constant` is `fill`."""
    fill: Annotated[
        tuple[Level, Level, Level], told("must be three levels in 0..255, for R, G and B: {name}=[0, 0, 0]")
    ] = (
        0.0,
        0.0,
        0.0,
    )
    """R, G, B of a constant border, in 0..255."""
    ops: Ops = ()
    """The ops of the only view; see `View.ops`."""
    views: Annotated[tuple[View, ...], BeforeValidator(_is_list)] = ()
    """Several views of each image, instead of `ops`."""

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
        """One entry for each output image of an image: `count` is spread out, and `ops` alone is one view."""
        views = self.views or (View(ops=self.ops),)
        return tuple(view for view in views for _ in range(view.count))

    @property
    def num_variants(self) -> int | None:
        """Variants of one image: the product over ops and views; None where one of them is continuous."""
        return _product(view.num_variants for view in self.all_views)

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
        data = read_toml(path)
        if "stages" in data:
            raise ValueError(
                f"{path} is a schedule, and one recipe is needed. Schedule.load(path).at(epoch) is that of an epoch; a "
                "Loader and a run's config take the schedule."
            )
        return validated(cls, data, path, "recipe")

    def to_toml(self) -> str:
        """The recipe as TOML with every field written out, so that a later default cannot change it."""
        return as_toml(self)

    def dump(self, path: str | Path) -> None:
        """Write the recipe to a TOML file that `load` reads back as an equal recipe."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema of the TOML file, for editors that complete and check as one types."""
        return cls.model_json_schema()


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        ValueError: it is no TOML.
        OSError: it cannot be read.
    """
    content = Path(path).read_bytes()
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid TOML: {error}.") from error


def validated(kind: type[Model], data: Mapping[str, Any], path: str | Path, what: str) -> Model:
    """What a TOML file describes; ValueError names the file, the place and the remedy."""
    try:
        return kind.model_validate(data)
    except FieldError as error:
        problems = "\n".join(f"  {line}" for line in error.lines)
        raise ValueError(f"{path}: not a valid {what}:\n{problems}") from error


def as_toml(model: BaseModel) -> str:
    """TOML with every field written out."""
    import tomli_w  # only here: to augment, a machine without this package needs none of it

    return tomli_w.dumps(_without_none(model.model_dump(), model))


def _product(counts: Iterable[int | None]) -> int | None:
    product = 1
    for count in counts:
        if count is None:
            return None
        product *= count
    return product


def check_recipe(recipe: object) -> None:
    """Raise ValueError unless it is a recipe, with where to get one."""
    if not isinstance(recipe, Recipe):
        raise ValueError(
            f"recipe is a {type(recipe).__name__}. Give a Recipe, as recipes.deep_image(); Recipe.load(path) reads one."
        )


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
