"""A recipe: which ops act on an image, in which order and ranges; frozen, validated, loaded from TOML."""

import logging
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from augpipe.ops import Grayscale, Normalize, Op
from augpipe.ops.crops import seen_beyond
from augpipe.ops.kinds import Ops, is_list
from augpipe.ops.mixing import Mixing
from augpipe.ops.op import CONTINUOUS, Beyond, Fill, keyed
from augpipe.validation.models import Checked, FieldError, ListOf
from augpipe.validation.suggest import nearest_file
from augpipe.validation.written import written

logger = logging.getLogger("augpipe")

PIXELS = 2
"""Which pixels, draws and order this release makes of a recipe, a seed and an epoch. A release that changes any of them
raises it; recipes, states and runs carry it. A recipe without it means the release that reads it; a state or run
without it is of 1."""

Border = Literal["context", "reflect", "edge", "constant"]
Model = TypeVar("Model", bound=BaseModel)
UNLIKE_SIZES = ((1, 1), (1, 60_000), (60_000, 1), (375, 500), (4_001, 2_999))
"""Heights and widths of images: a view's output has one size if it has for all of these."""


class View(Checked):
    """One crop of an image, or several alike, with ops of its own."""

    ops: Ops = ()
    """In order: crops and geometry as they are listed, tone last in its order. With a MultiResolutionCrop among them,
    crops act before all else, as in the papers."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many such crops, each with draws of its own."""

    noun: ClassVar[str] = "a view"

    @model_validator(mode="after")
    def _is_one_pass(self) -> Self:
        lenses = [inner.op for op in self.ops for inner in op.flat if inner.is_lens]
        projections = [inner.op for op in self.ops for inner in op.flat if inner.is_projective]
        for what, found in (("lens", lenses), ("perspective", projections)):
            if len(found) > 1:
                raise ValueError(
                    f"a view takes one {what} and this one holds {len(found)}: {', '.join(found)}. Keep one."
                )
        bending = [inner.op for op in self.ops for inner in op.flat if inner.is_lens or inner.is_projective]
        if lenses and bending[0] not in lenses:
            raise ValueError(
                f"{bending[0]} comes before {lenses[0]}, and the one look-up of a view projects before its lens bends. "
                f"Put {lenses[0]} first."
            )
        borders = {key: op.beyond for key, op in keyed(self.ops) if op.beyond}
        if len(set(borders.values())) > 1:
            texts = (f"{name} shows {_border_text(beyond)}" for name, beyond in borders.items())
            raise ValueError(f"a view has one border, and {', '.join(texts)}. Give them the same border and fill.")
        acting = [op for _, op in self.acting_ops]
        geometry = [place for place, op in enumerate(acting) if any(inner.is_geometry for inner in op.flat)]
        padding = [place for place, op in enumerate(acting) if op.beyond]
        cutting = [place for place in range(len(acting)) if acting[place].cuts]
        if padding and any(padding[0] <= place < padding[-1] for place in cutting):
            cut = next(acting[place].op for place in cutting if padding[0] <= place < padding[-1])
            raise ValueError(
                f"{acting[padding[-1]].op} pads what {cut} has cut out of a padded image, and one look-up would show "
                "the image there. Pad once, before the crop."
            )
        if geometry and padding and padding[-1] > geometry[0]:
            pads, moves = acting[padding[-1]].op, acting[geometry[0]].op
            raise ValueError(
                f"{pads} stands behind {moves}, and one look-up would show there what {moves} moved out of the frame "
                f"instead of padding. Put {pads} before {moves}."
            )
        kinds = Counter(op.op for op in self.ops)
        for kind in ("color_cast", "vignette", "normalize"):
            if kinds[kind] > 1:
                raise ValueError(f"a view takes one {kind} and this one holds {kinds[kind]}. Keep one.")
        return self

    def __repr__(self) -> str:
        return written(self)

    @cached_property
    def crops(self) -> tuple[Op, ...]:
        """The crops, resizes and paddings, in order; none where the whole image is kept."""
        return tuple(op for op in self.ops if op.is_crop)

    @cached_property
    def out_size(self) -> tuple[int, int] | None:
        """(height, width) of the output in pixels; None where it depends on the image."""
        sides = np.array(UNLIKE_SIZES).T
        for op in self.crops:
            sides = np.stack(np.broadcast_arrays(*op.sides(*sides), sides[0])[:2])
        height, width = (int(side) for side in sides[:, 0])
        return (height, width) if (sides == sides[:, :1]).all() else None

    @cached_property
    def ends_gray(self) -> bool:
        """Whether its last op that changes levels is a Grayscale of every image."""
        levels = [op for op in self.ops if not (op.is_crop or op.is_geometry or op.op in ("flip", "normalize", "blur"))]
        return bool(levels) and isinstance(levels[-1], Grayscale) and levels[-1].p == 1.0

    @cached_property
    def beyond(self) -> Beyond | None:
        """The border and the fill that its ops ask for; None leaves them to the recipe."""
        return next((op.beyond for op in self.ops if op.beyond), None)

    @property
    def num_variants(self) -> int | None:
        """The product of its ops' variants; None where one of them is continuous."""
        return _product(op.num_variants for op in self.ops)

    @cached_property
    def keyed_ops(self) -> tuple[tuple[str, Op], ...]:
        """Each op under a name that is unique in the view: its kind, and from the second of a kind on its place."""
        return keyed(self.ops)

    @cached_property
    def acting_ops(self) -> tuple[tuple[str, Op], ...]:
        """`keyed_ops` in the order in which they act: as they are listed, or with the crops first."""
        if any(op.acts_first for op in self.crops):
            return tuple(sorted(self.keyed_ops, key=lambda keyed: not keyed[1].is_crop))
        return self.keyed_ops

    @cached_property
    def drawn_dtype(self) -> np.dtype[np.void]:
        """The record of what its ops draw, one field for each op that draws anything."""
        return np.dtype([(key, op.record) for key, op in self.keyed_ops if op.record.names])


class TomlFile(Checked):
    """A description that is written to a TOML file."""

    def to_toml(self) -> str:
        """TOML with every field written out, so that a later default cannot change it."""
        import tomli_w  # only here: to augment, a machine without this package needs none of it

        return tomli_w.dumps(_without_none(self.model_dump(), self))

    def dump(self, path: str | Path) -> None:
        """Write it to a TOML file that `load` reads back as an equal one."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    def __repr__(self) -> str:
        return written(self)


class Recipe(TomlFile):
    """What happens to every image: `ops` for one view of it, or `views` for several from one decode."""

    name: str = ""
    """For captions and messages."""
    border: Border = "context"
    """What lies outside the crop: `context` is the image itself (mirrored beyond its own border); `reflect`
    mirrors the crop, `edge` repeats its outermost pixels, `constant` is `fill`."""
    fill: Fill = (0.0, 0.0, 0.0)
    """R, G, B of a constant border, in 0..255, or one number for all."""
    channels: Literal[1, 3] = 3
    """Channels of a finished image. 1 keeps its gray level (that of `Grayscale`) after all other ops."""
    ops: Ops = ()
    """The ops of the only view; see `View.ops`."""
    views: Annotated[ListOf[View], BeforeValidator(is_list)] = ()
    """Several views of each image, instead of `ops`."""
    mixing: Mixing = ()
    """What mixes finished images with those of other samples, and their labels: at most one of these a sample, each
    with its own `p`. A `Loader` does it; all views of a sample are mixed with the same views of the same sample."""
    pixels: Annotated[int, Field(ge=1)] = PIXELS
    """The `PIXELS` of the release that wrote it; left out, that of the release that reads it. It changes nothing: a
    recipe with another number is told of, and gets this release's."""

    noun: ClassVar[str] = "a recipe"

    @property
    def called(self) -> str:
        """Its name for a line of text: "recipe 'deep_image'"."""
        return f"recipe {self.name!r}" if self.name else "an unnamed recipe"

    @field_validator("pixels")
    @classmethod
    def _tell_other_pixels(cls, pixels: int) -> int:
        if pixels != PIXELS:
            logger.warning(
                "the recipe says pixels = %d, and this augpipe makes pixels = %d: the same seed gives other images now "
                "(CHANGELOG.md says what changed). If that is fine, write pixels = %d into it.",
                pixels,
                PIXELS,
                PIXELS,
            )
        return PIXELS

    @model_validator(mode="after")
    def _has_ops_or_views(self) -> Self:
        if self.ops and self.views:
            raise ValueError("a recipe holds either ops or views, and this one has both. Move the ops into a view.")
        if not self.views:
            View(ops=self.ops)
        return self

    @model_validator(mode="after")
    def _has_one_border(self) -> Self:
        for beyond in (view.beyond for view in self.all_views):
            own = seen_beyond(self.border, self.fill)
            if beyond is not None and self.border != "context" and own != beyond:
                raise ValueError(
                    f"the recipe's border is {_border_text(own)}, and its padding shows {_border_text(beyond)}; a view "
                    "has one border. Give both the same, or leave the recipe's out."
                )
        return self

    @model_validator(mode="after")
    def _has_one_level(self) -> Self:
        for op in (op for view in self.all_views for op in view.ops if self.channels == 1):
            if isinstance(op, Normalize) and (len(set(op.mean)), len(set(op.std))) != (1, 1):
                raise ValueError(
                    f"channels=1 keeps one number a pixel, and normalize has three, mean={op.mean}, std={op.std}. Give "
                    "one for all, as Normalize(mean=0.5, std=0.5)."
                )
        return self

    @model_validator(mode="after")
    def _can_be_mixed(self) -> Self:
        total = sum(mix.p for mix in self.mixing)
        if total > 1.0 + 1e-9:
            raise ValueError(
                f"the probabilities of mixing add up to {total:g}, and one of them at most happens to a sample. Lower "
                "their p, as mixing=[MixUp(p=0.5), CutMix(p=0.5)]."
            )
        if self.mixing and any(view.out_size is None for view in self.all_views):
            raise ValueError(
                "mixing needs images of one size, and a view without a crop keeps each image's own. Add a crop, such "
                "as CenterCrop(size=32)."
            )
        return self

    @cached_property
    def all_views(self) -> tuple[View, ...]:
        """One entry for each output image of an image: `count` is spread out, and `ops` alone is one view."""
        views = self.views or (View(ops=self.ops),)
        return tuple(view for view in views for _ in range(view.count))

    @property
    def num_variants(self) -> int | None:
        """Variants of one image: the product over ops and views; None where one of them is continuous, as mixing is."""
        if self.mixing:
            return None
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
            FileNotFoundError: there is none; names one that is called like it.
            OSError: the file cannot be read.
        """
        try:
            data = read_toml(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"there is no file {path}.{nearest_file(Path(path))} augpipe recipe deep_image > my.toml writes one to "
                "begin with; recipes.deep_image() is one that needs no file."
            ) from error
        if "stages" in data:
            raise ValueError(
                f"{path} is a schedule, and one recipe is needed. Schedule.load(path).at(epoch) is that of an epoch; a "
                "Loader and a run's config take the schedule."
            )
        return validated(cls, data, path, "recipe")

    @classmethod
    def from_torchvision(cls, transform: Any) -> "Recipe":
        """The recipe of a torchvision transform; what differs is logged. `augpipe.importers` gives the list.

        Raises:
            ValueError: something cannot be mapped; lists all of it.
        """
        from augpipe.recipes.imported import from_torchvision

        return from_torchvision(transform).logged()

    @classmethod
    def from_albumentations(cls, data: Mapping[str, Any] | str) -> "Recipe":
        """The recipe of `A.to_dict(transform)` or its JSON text, as `from_torchvision`."""
        from augpipe.recipes.imported import from_albumentations

        return from_albumentations(data).logged()

    @classmethod
    def from_kornia(cls, module: Any) -> "Recipe":
        """The recipe of a `kornia.augmentation` module, as `from_torchvision`; images are in 0..1, as kornia's."""
        from augpipe.recipes.imported import from_kornia

        return from_kornia(module).logged()

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
    if Path(path).is_dir():
        raise ValueError(
            f"{path} is a folder, and a recipe is a TOML file. augpipe recipe deep_image > my.toml writes one; images "
            "are the source, which comes first: Loader(source, recipe)."
        )
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


def _border_text(beyond: Beyond) -> str:
    border, fill = beyond
    return f"{border} {[round(level, 3) for level in fill]}" if border == "constant" else border


def _product(counts: Iterable[int | None]) -> int | None:
    product = 1
    for count in counts:
        if count is None:
            return None
        product *= count
    return product


def check_recipe(recipe: object) -> None:
    """Raise ValueError unless it is a recipe, with what to write instead."""
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe is {_what(recipe)}")


def _what(given: object) -> str:
    """What was given instead of a recipe, and what to write."""
    library = type(given).__module__.partition(".")[0]
    name = getattr(given, "__name__", type(given).__name__)
    if library == "torchvision" or type(given).__module__ == "torch.nn.modules.container":
        return f"a {name} of torchvision. Write Recipe.from_torchvision(transform), or recipes.deep_image()."
    if library in ("albumentations", "albumentationsx"):
        return f"a {name} of albumentations. Write Recipe.from_albumentations(A.to_dict(transform))."
    if library == "kornia":
        return f"a {name} of kornia. Write Recipe.from_kornia(module)."
    if isinstance(given, Op):
        return f"an op. Write Recipe(ops=[ops.{type(given).__name__}(...)])."
    if isinstance(given, list | tuple):
        return f"a {name}. Write Recipe(ops=[...]) around the list."
    if callable(given):
        return f"{name} itself. Write {name}() for what it makes, as recipes.deep_image()."
    return f"a {name}. Give a Recipe, as recipes.deep_image(); Recipe.load(path) reads one."


def refuse_mixing(recipe: Recipe, what: str) -> None:
    """Raise ValueError where a recipe mixes images and `what` sees no others to mix them with."""
    if recipe.mixing:
        raise ValueError(
            f"the recipe {recipe.name or 'unnamed'!r} mixes samples, and {what} cannot tell which: partners go by "
            "position in an epoch. Use a Loader, or leave mixing out: Recipe(ops=recipe.ops, views=recipe.views)."
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
            elif name in ("ops", "views", "mixing") and not value:
                continue
            kept[name] = _without_none(value, getattr(model, name))
        return kept
    if isinstance(data, list | tuple):
        return [_without_none(item, part) for item, part in zip(data, model, strict=True)]
    return data
