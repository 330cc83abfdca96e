"""Transforms of torchvision, albumentations, timm and kornia as recipes."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from augpipe.recipes.importers import albumentations, kornia, timm, torchvision
from augpipe.recipes.importers.findings import Findings
from augpipe.recipes.recipe import Recipe

logger = logging.getLogger("augpipe")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A recipe made of another library's transforms."""

    recipe: Recipe
    exact: tuple[str, ...]
    """The transforms that do the same here, but for rounding."""
    notes: tuple[str, ...]
    """What differs, a sentence each."""

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


def from_torchvision(transform: Any) -> Imported:
    """A recipe of a `torchvision.transforms` or `torchvision.transforms.v2` object, mostly a `Compose`.

    Raises:
        ValueError: something cannot be mapped; lists all of it.
    """
    return _imported(torchvision.found_in(transform))


def from_albumentations(data: Mapping[str, Any] | str) -> Imported:
    """A recipe of `A.to_dict(transform)`, or of its JSON text.

    Raises:
        ValueError: it is none, or something cannot be mapped; lists all of it.
    """
    return _imported(albumentations.found_in(data))


def from_kornia(module: Any) -> Imported:
    """A recipe of a `kornia.augmentation` module, mostly an `AugmentationSequential`; images are in 0..1, as there.

    Raises:
        ValueError: something cannot be mapped; lists all of it.
    """
    return _imported(kornia.found_in(module))


def from_timm(**arguments: Any) -> Imported:
    """A recipe of `timm.data.create_transform(**arguments)`, for training unless `is_training=False`.

    Raises:
        ValueError: something cannot be mapped; lists all of it.
    """
    return _imported(timm.found_in(arguments))


def _imported(found: Findings) -> Imported:
    recipe = Recipe.model_validate({"name": f"from {found.source}", **found.recipe_fields()})
    return Imported(recipe=recipe, exact=tuple(found.exact), notes=tuple(found.notes))
