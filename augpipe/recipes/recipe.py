"""A recipe: which ops act on an image, in which order and ranges; frozen, validated, loaded from TOML."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from augpipe.ops import KeepObjects, Normalize, Op
from augpipe.ops.crops import seen_beyond
from augpipe.ops.custom import Custom
from augpipe.ops.kinds import Ops, is_list
from augpipe.ops.mixing import CopyPaste, Mixing
from augpipe.ops.mosaic import Mosaic, refused
from augpipe.ops.op import Beyond, Fill, product
from augpipe.ops.view_passes import (
    MOST_PASSES,
    Keyed,
    changes_places,
    functions_of,
    has_own_look,
    in_one_pass,
    moves,
    passes_of,
    reasons,
    sized_ops,
)
from augpipe.recipes.toml_file import TomlFile, read_toml, validated
from augpipe.recipes.view import View, border_text, joined
from augpipe.validation.log_once import log_once
from augpipe.validation.models import ListOf, changed
from augpipe.validation.suggest import nearest_file

logger = logging.getLogger("augpipe")

PIXELS = 2
"""Which pixels, draws and order this release makes of a recipe, a seed and an epoch. A release that changes any of them
raises it; recipes, states and runs carry it. A recipe without it means the release that reads it; a state or run
without it is of 1."""
PIXELS_OF_PASSES = 3
"""The same of recipes that take several passes: until 2 all was one, with steps behind all geometry."""

Border = Literal["context", "reflect", "reflect_101", "wrap", "edge", "constant"]
Interpolation = Literal["bilinear", "bicubic", "nearest", "random"]


class Recipe(TomlFile):
    """What happens to every image: `ops` for one view of it, or `views` for several from one decode."""

    name: str = ""
    """For captions and messages."""
    border: Border = "context"
    """What lies outside the crop: `context` is the image itself (mirrored beyond its own border); `reflect`
    mirrors the crop at its edge, `reflect_101` at the middle of its outermost pixels, `wrap` repeats it, `edge` repeats
    its outermost pixels, `constant` is `fill`."""
    fill: Fill = (0.0, 0.0, 0.0)
    """R, G, B of a constant border, in 0..255, or one number for all."""
    interpolation: Interpolation = "bilinear"
    """What is seen between pixels, in every view: `bilinear`, `bicubic` (a = -0.5 as Pillow's, and without `antialias`
    -0.75 as OpenCV's), `nearest`, or `random`, which draws bilinear or bicubic for each image, as timm does."""
    antialias: bool = True
    """Whether shrinking averages over all pixels that an output pixel covers, as Pillow does. False looks at a point's
    neighbours alone, as OpenCV and kornia do. `nearest` never averages."""
    channels: Literal[1, 3] = 3
    """Channels of a finished image. 1 keeps its gray level (that of `Grayscale`) after all other ops."""
    ops: Ops = ()
    """The ops of the only view; see `View.ops`."""
    views: Annotated[ListOf[View], BeforeValidator(is_list)] = ()
    """Several views of each image, instead of `ops`. Recipes among them stand for their views, and, where they agree,
    give this one what is not said here of all views, as border, interpolation and antialias."""
    mixing: Mixing = ()
    """What mixes finished images with those of other samples, and their labels: at most one of these a sample, each
    with its own `p`. A `Loader` does it; all views of a sample are mixed with the same views of the same sample."""
    mosaic: Mosaic | None = None
    """What shows four or nine samples in one image, before all ops, where a `Loader` gives batches with targets. None:
    each image is one sample's."""
    pixels: Annotated[int, Field(ge=1)] = PIXELS
    """The `PIXELS` of the release that wrote it, or of several passes `PIXELS_OF_PASSES`; left out, that of the release
    that reads it. It changes nothing: a recipe with another number is told of, and gets this release's."""

    noun: ClassVar[str] = "a recipe"

    @property
    def called(self) -> str:
        """Its name for a line of text: "recipe 'deep_image'"."""
        return f"recipe {self.name!r}" if self.name else "an unnamed recipe"

    @model_validator(mode="before")
    @classmethod
    def _joins_recipes(cls, data: Any) -> Any:
        return joined(data) if isinstance(data, Mapping) else data

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
                    f"the recipe's border is {border_text(own)}, and its padding shows {border_text(beyond)}; a view "
                    "has one border. Give both the same, or leave the recipe's out; geometry with a border of its own "
                    "is AllOf(ops=[...], own_look='bilinear', own_border='reflect')."
                )
        return self

    @model_validator(mode="after")
    def _blurs_by_one_filter(self) -> Self:
        blurs = any(inner.op == "blur" for view in self.all_views for op in view.ops for inner in op.flat)
        if blurs:
            log_once(
                logging.INFO,
                "blur widens the look-up, and so acts before all colours. gaussian_blur (ops.GaussianBlur) acts where "
                "it is listed, in 0.3 ms a view, for which blur takes 0.4 and turned 3.4 (224 pixels, a sigma of 2).",
            )
        if blurs and self.interpolation != "bilinear":
            raise ValueError(
                f"blur widens the bilinear look-up, and interpolation={self.interpolation!r} has none. Write "
                "GaussianBlur instead of Blur, or leave interpolation out."
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

    @model_validator(mode="after")
    def _can_be_a_mosaic(self) -> Self:
        if self.mosaic is None:
            return self
        own = seen_beyond("constant", self.mosaic.fill)
        if self.keeping:
            raise ValueError("keep_objects looks at one image, and a mosaic shows several. Leave one of them out.")
        for view in self.all_views:
            if view.out_size is None:
                raise ValueError(
                    "a mosaic is a canvas of twice its size, and a view without a crop keeps that. Add a crop, such as "
                    "CenterCrop(size=640)."
                )
            beyond = view.beyond or (own if self.border == "context" else seen_beyond(self.border, self.fill))
            if beyond != own:
                raise ValueError(
                    f"a mosaic shows {border_text(own)} beyond its images, and the recipe {border_text(beyond)}. Give "
                    "both the same fill, or leave the recipe's border out."
                )
            if reason := refused(view.ops):
                raise ValueError(reason)
            for size in self.mosaic.canvases[1 if self.mosaic.p == 1.0 else 0 :]:
                height, width = size
                for op in view.crops:
                    if reason := op.refuses(int(height), int(width)):
                        raise ValueError(f"the canvas of the mosaic: {reason}")
                    height, width = op.sides(height, width)
        return self

    @model_validator(mode="after")
    def _is_a_few_passes(self) -> Self:
        for view in self.views or (View(ops=self.ops),):
            passes = self._passes_of(view)
            if len(passes) == 1:
                continue
            waits = ", ".join(self.reasons(view))
            together = "functions of yours next to each other, and " if any(functions_of(passes)) else ""
            has_looks = any(has_own_look(op) for op in view.ops)
            if len(passes) > MOST_PASSES:
                raise ValueError(
                    f"a view takes {len(passes)} passes as it is listed ({waits}), and {MOST_PASSES} are the most. "
                    f"{'Leave own_look out of a group, or list' if has_looks else 'List'} {together}geometry before "
                    "the steps that do not commute with it."
                )
            if self.mosaic is not None and any(functions_of(passes)):
                raise ValueError(
                    f"a mosaic is one pass, and {waits} takes another: its images are rendered one by one. Leave one "
                    "of them out."
                )
            if self.mosaic is not None:
                raise ValueError(
                    f"a mosaic is one pass, and the listed order takes {len(passes)} ({waits}). "
                    f"{'Leave own_look out of all groups, list' if has_looks else 'List'} geometry before those steps, "
                    "or leave the mosaic out."
                )
        return self

    @model_validator(mode="after")
    def _tell_other_pixels(self) -> Self:
        made = PIXELS if self.num_passes == 1 else max(PIXELS, PIXELS_OF_PASSES)
        if self.pixels not in (made, PIXELS_OF_PASSES) and "pixels" in self.model_fields_set:
            logger.warning(
                "the recipe says pixels = %d, and this augpipe makes pixels = %d: the same seed gives other images now "
                "(CHANGELOG.md says what changed). If that is fine, write pixels = %d into it.",
                self.pixels,
                made,
                made,
            )
        object.__setattr__(self, "pixels", made)
        return self

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `mosaic` where there is none: states and plans then read as those of earlier releases."""
        written: dict[str, Any] = serialize(self)
        return {name: value for name, value in written.items() if name != "mosaic" or value is not None}

    def beyond_of(self, view: View) -> Beyond:
        """The border of a view, and its fill."""
        if self.mosaic is not None:
            return seen_beyond("constant", self.mosaic.fill)
        return view.beyond or (self.border, self.fill)

    @property
    def mixes_samples(self) -> bool:
        """Whether an image may show several samples."""
        return bool(self.mixing) or self.mosaic is not None

    @property
    def pastes_objects(self) -> bool:
        """Whether objects of other samples may be pasted on an image."""
        return any(isinstance(mix, CopyPaste) for mix in self.mixing)

    @cached_property
    def all_views(self) -> tuple[View, ...]:
        """One entry for each output image of an image: `count` is spread out, and `ops` alone is one view."""
        views = self.views or (View(ops=self.ops),)
        return tuple(view for view in views for _ in range(view.count))

    @cached_property
    def passes(self) -> tuple[tuple[Keyed, ...], ...]:
        """For each of `all_views` its ops by name, pass by pass, in the order in which they act."""
        found = {id(view): self._passes_of(view) for view in self.all_views}
        return tuple(found[id(view)] for view in self.all_views)

    @cached_property
    def functions(self) -> tuple[tuple[tuple[tuple[str, Custom], ...], ...], ...]:
        """For each of `all_views`, and each pass of it, the `ops.Custom` that are called on what it looks at."""
        return tuple(map(functions_of, self.passes))

    @cached_property
    def sized_ops(self) -> tuple[Keyed | None, ...]:
        """For each of `all_views` the ops that look at the size of the image; None where more may."""
        return tuple(map(sized_ops, self.passes))

    @property
    def has_functions(self) -> bool:
        """Whether any view calls a function of the user's."""
        return any(map(any, self.functions))

    @property
    def num_passes(self) -> int:
        """The most passes that a view takes: 1 unless steps stand before geometry that they do not commute with."""
        return max(map(len, self.passes))

    def fused(self) -> Self:
        """The recipe in one pass: steps that begin another one are moved behind all geometry. Logs what that changes,
        and what it saves.

        Geometry then moves what those steps have not touched yet: noise and holes are not turned with the image, and
        what looks at the whole image sees the finished frame. Draws stay, save those of groups that change places.

        Raises:
            ValueError: it calls a function of yours, or pads behind what moves, which takes a pass of its own.
        """
        if self.has_functions:
            raise ValueError(
                f"{self.called} calls a function of yours ({self.functions_text}) on what all before it have made: "
                "that cannot be one pass. Leave it out."
            )
        for view in self.all_views:
            ops = dict(view.acting_ops)
            for step, key in self.waits(view):
                if step and moves(ops[step]) and ops[key].beyond:
                    raise ValueError(
                        f"{self.called}: {key} pads what {step} has moved, in a pass of its own: that cannot be one "
                        f"pass. Put {key} before {step}."
                    )
        if not self.views:
            made = changed(self, ops=self._one_pass(self.all_views[0]))
        else:
            made = changed(self, views=tuple(changed(view, ops=self._one_pass(view)) for view in self.views))
        if self.num_passes > 1:
            told = "%s: one pass instead of %d: each image is looked up once, and no frame is rendered in between."
            logger.info(told, self.called, self.num_passes)
        return made

    def _one_pass(self, view: View) -> Sequence[Op]:
        if not any(self.waits(view)):
            return view.ops
        for step, look_up in self.waits(view):
            if step:
                logger.info("%s: %s stands before %s, and acts behind it now.", self.called, step, look_up)
        for key in (key for key, op in view.acting_ops if has_own_look(op)):
            told = "%s: %s has no look of its own now: what moves in it acts before all steps, its steps behind it."
            logger.info(told, self.called, key)
        if moved := changes_places(view.ops):
            logger.info("%s: groups change places, and each %s draws other numbers now.", self.called, moved)
        return in_one_pass(view.ops)

    def _passes_of(self, view: View) -> tuple[Keyed, ...]:
        return passes_of(view.acting_ops, self.beyond_of(view), self.interpolation)

    def waits(self, view: View) -> Iterator[tuple[str, str]]:
        """(step, look-up) for each pass of a view but the first that no function begins: the look-up that begins it,
        and a step listed before that look-up that must act before it. Of passes that an `own_look` asks for: ("", the
        group that has it)."""
        return reasons(self._passes_of(view), self.beyond_of(view), self.interpolation)

    def reasons(self, view: View) -> list[str]:
        """Why a view takes more than one pass, in words."""
        waits = [f"{step} before {key}" if step else f"{key} has own_look" for step, key in self.waits(view)]
        called = [key for one in functions_of(self._passes_of(view)) for key, _ in one]
        return [*dict.fromkeys(waits), *(f"{key} of yours" for key in called)]

    @property
    def functions_text(self) -> str:
        """The names of the functions that it calls."""
        return ", ".join(dict.fromkeys(key for of_view in self.functions for one in of_view for key, _ in one))

    @property
    def keeping(self) -> tuple[tuple[str, KeepObjects], ...]:
        """The crops that look at the image's objects, as `View.keeping`: a plan of the recipe needs their boxes."""
        return tuple(crop for view in self.all_views for crop in view.keeping)

    @property
    def num_variants(self) -> int | None:
        """Variants of one image: the product over ops and views; None where one of them is continuous, as mixing is."""
        if self.mixes_samples:
            return None
        return product(view.num_variants for view in self.all_views)

    @property
    def normalises(self) -> bool:
        """Whether any view ends in values other than 8-bit levels."""
        return any(op.op == "normalize" for view in self.all_views for op in view.ops)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML file.

        Raises:
            ValueError: the file is not TOML or not a recipe; the message names the file, the place and the remedy.
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
    def from_torchvision(cls, transform: Any, *, strict: bool = True) -> "Recipe":
        """The recipe of a torchvision transform; what differs is logged. `augpipe.importers` gives the list.

        Args:
            transform: a transform of v1 or v2, mostly a `Compose`.
            strict: refuse what cannot be mapped, instead of leaving it out.

        Raises:
            ValueError: `strict`, and something cannot be mapped; lists all of it.
        """
        from augpipe.recipes.imported import from_torchvision

        return from_torchvision(transform, strict=strict).logged()

    @classmethod
    def from_albumentations(cls, data: Any, *, strict: bool = True) -> "Recipe":
        """The recipe of an albumentations transform, or of what `A.to_dict` makes of it, as `from_torchvision`."""
        from augpipe.recipes.imported import from_albumentations

        return from_albumentations(data, strict=strict).logged()

    @classmethod
    def from_kornia(cls, module: Any, *, strict: bool = True) -> "Recipe":
        """The recipe of a `kornia.augmentation` module, as `from_torchvision`; images are in 0..1, as kornia's."""
        from augpipe.recipes.imported import from_kornia

        return from_kornia(module, strict=strict).logged()

    @classmethod
    def from_text(cls, text: str, name: str | None = None, *, version: str | None = None) -> "Recipe":
        """The recipe of calls of torchvision, albumentations, timm or kornia in a text, which is not executed.

        See `augpipe.importers.from_text`; the library need not be installed.
        """
        from augpipe.recipes.imported import from_text

        return from_text(text, name, version=version).logged()

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema of the TOML file, for editors that complete and check as one types."""
        return cls.model_json_schema()
