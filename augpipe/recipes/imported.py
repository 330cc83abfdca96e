"""Transforms of torchvision, albumentations, timm, kornia and transformers as recipes."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from augpipe.recipes.importers import albumentations, hugging_face, kornia, timm, torchvision
from augpipe.recipes.importers.findings import Findings
from augpipe.recipes.importers.one_recipe import recipe_fields
from augpipe.recipes.importers.reasons import in_their_words
from augpipe.recipes.importers.rows import Row, table_of
from augpipe.recipes.importers.text import found_in as found_in_text
from augpipe.recipes.importers.timm_objects import NO_NORMALIZE, Unread, arguments_of
from augpipe.recipes.recipe import Recipe
from augpipe.reports.tables import Table
from augpipe.validation.models import FieldError

logger = logging.getLogger("augpipe")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A recipe made of another library's transforms."""

    recipe: Recipe
    rows: tuple[Row, ...]
    """What became of each transform, those within others before these."""
    notes: tuple[str, ...]
    """What differs, a sentence each."""

    @property
    def exact(self) -> tuple[str, ...]:
        """The transforms that do the same here, except for rounding."""
        return tuple(row.name for row in self.rows if row.verdict == "exact")

    def table(self) -> Table:
        """What became of each transform: a name, ops, a verdict (exact, near, not measured, left out), and what
        differs."""
        return table_of(self.rows)

    def __str__(self) -> str:
        lines = [f"exactly: {', '.join(self.exact) or 'none'}", *(f"approximately: {note}" for note in self.notes)]
        return "\n".join(lines)

    def logged(self) -> Recipe:
        """The recipe; what differs is logged, once for the same notes."""
        if self.notes:
            _log(f"imported as {self.recipe.name!r}, with differences:\n" + "\n".join(f"  {n}" for n in self.notes))
        return self.recipe


@lru_cache(maxsize=256)
def _log(text: str) -> None:
    logger.warning(text)


def from_torchvision(transform: Any, *, strict: bool = True) -> Imported:
    """A recipe of a `torchvision.transforms` or `torchvision.transforms.v2` object, mostly a `Compose`.

    Args:
        transform: the object, or a list of such.
        strict: refuse what cannot be mapped, instead of leaving it out.

    Raises:
        ValueError: something cannot be mapped, and `strict`; lists all of it.
    """
    _check_library("torchvision", transform)
    if any(map(_is_timms, getattr(transform, "transforms", ()))):
        try:
            return _of_timms(transform, strict)
        except Unread:  # a chain that holds some of timm's transforms
            pass
    return _imported(torchvision.found_in(transform), strict)


def from_albumentations(data: Any, *, strict: bool = True) -> Imported:
    """A recipe of an albumentations transform, mostly a `Compose`, of `A.to_dict(transform)`, or of its JSON text.

    Args:
        data: the transform, the dict or the text.
        strict: refuse what cannot be mapped, instead of leaving it out.

    Raises:
        ValueError: it is none, or something cannot be mapped, and `strict`; lists all of it.
    """
    _check_library("albumentations", data)
    return _imported(albumentations.found_in(data), strict)


def from_kornia(module: Any, *, strict: bool = True) -> Imported:
    """A recipe of a `kornia.augmentation` module, mostly an `AugmentationSequential`; images are in 0..1, as there.

    Args:
        module: the module.
        strict: refuse what cannot be mapped, instead of leaving it out.

    Raises:
        ValueError: something cannot be mapped, and `strict`; lists all of it.
    """
    _check_library("kornia", module)
    return _imported(kornia.found_in(module), strict)


def from_timm(transform: Any = None, /, **arguments: Any) -> Imported:
    """A recipe of `timm.data.create_transform(**arguments)`, for training unless `is_training=False`.

    Args:
        transform: what `create_transform` has made, instead of its arguments.
        arguments: those of `create_transform`.

    Raises:
        ValueError: something cannot be mapped; lists all of it. Or a transform is given that `create_transform` does
            not make, or one next to arguments.
    """
    if transform is None:
        return _imported(timm.found_in(arguments), strict=None)
    if arguments:
        raise ValueError(
            f"from_timm takes a transform or arguments, and {next(iter(arguments))} is given, too. Drop it."
        )
    _check_library("torchvision", transform)  # of which timm's chains are
    return _of_timms(transform, strict=None)


def from_hugging_face(settings: Mapping[str, Any] | str | Path) -> Imported:
    """A recipe of an image processor of transformers, for evaluation: resizing, centre crop and normalisation.

    Args:
        settings: its `to_dict()`, or the path of its `preprocessor_config.json`.

    Raises:
        ValueError: it is not such settings, or something cannot be mapped; lists all of it.
        OSError: the file cannot be read.
    """
    return _imported(hugging_face.found_in(settings), strict=None)


def from_text(text: str, name: str | None = None, *, version: str | None = None, strict: bool = True) -> Imported:
    """A recipe of calls of torchvision, albumentations, timm or kornia in a text of Python, read and never executed.

    The library need not be installed.

    Args:
        text: `A.Compose([...])`, or a script that has such a call.
        name: which one, where the script has several recipes: the name that it is assigned to, as `train` or
            `transforms['train']`; one of its lines, as `42`; or a call, as `get_transforms(phase='train')`.
        version: "1" or "2" of albumentations, whose defaults differ; None takes the one that has all arguments.
        strict: refuse what cannot be mapped, instead of leaving it out.

    Raises:
        ValueError: the text holds no recipe, one that is known only when it runs, or, with `strict`, something that
            cannot be mapped; lists all of it.
    """
    return _imported(found_in_text(text, name, version), strict)


def from_object(transform: Any, *, strict: bool = True) -> Imported:
    """A recipe of a transform of torchvision, albumentations or kornia, whichever it is of.

    Raises:
        ValueError: it is of none of them, or, with `strict`, something cannot be mapped; lists all of it.
    """
    library = _library_of(transform)
    if library is None:
        raise ValueError(
            f"{type(transform).__name__} of {type(transform).__module__} is not a transform of {', '.join(TAKERS)}."
        )
    return TAKERS[library](transform, strict=strict)


TAKERS = {"torchvision": from_torchvision, "albumentations": from_albumentations, "kornia": from_kornia}
"""A library -> what takes its objects."""

WRAPPED = {"albumentations": "A.Compose(transforms)", "kornia": "K.AugmentationSequential(*transforms)"}
"""What a list of transforms stands in; of torchvision it may stand alone."""


def _is_timms(one: Any) -> bool:
    return str(getattr(type(one), "__module__", "")).startswith("timm.")


def _of_timms(transform: Any, strict: bool | None) -> Imported:
    """What `create_transform` has made."""
    arguments = arguments_of(transform)
    found = timm.found_in(arguments)
    if arguments["is_training"] and not arguments["normalize"]:
        found.note(NO_NORMALIZE)
    return _imported(found, strict)


def _library_of(transform: Any) -> str | None:
    """Whose object it is, or what one of torch holds; None: of no library here."""
    libraries = [str(getattr(one, "__module__", "")).partition(".")[0] for one in type(transform).__mro__]
    if type(transform).__name__ == "Sequential" and libraries[0] == "torch":
        return next(filter(None, map(_library_of, transform.children())), None)
    return next((library for library in libraries if library in TAKERS), None)


def _check_library(library: str, transform: Any) -> None:
    """Raise ValueError where a transform, or one of a list, is of another library, with what takes it; and where a list
    is given of a library that has none."""
    is_list = isinstance(transform, list | tuple)
    for one in transform if is_list else [transform]:
        found = _library_of(one)
        if found not in (None, library):
            raise ValueError(f"a {type(one).__name__} of {found} is given. Write Recipe.from_{found}(transform).")
    if is_list and library in WRAPPED:
        raise ValueError(f"a {type(transform).__name__} is given. Wrap it: {WRAPPED[library]}.")


def _imported(found: Findings, strict: bool | None) -> Imported:
    fields = recipe_fields(found, strict)
    try:
        recipe = Recipe.model_validate({"name": f"from {found.source}", **fields})
    except FieldError as error:
        told = in_their_words(" ".join(error.lines), found.rows)
        raise ValueError(f"{found.source}'s transforms cannot be one recipe: {told}") from None
    return Imported(recipe=recipe, rows=tuple(found.rows), notes=tuple(found.notes))
