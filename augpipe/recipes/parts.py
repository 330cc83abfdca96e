"""Recipes reduced to parts of themselves, whose ops draw as in the whole: for sheets that show what an op does."""

from collections.abc import Callable, Collection
from typing import Any

from augpipe.ops import Op
from augpipe.recipes.recipe import PIXELS_OF_PASSES, Recipe
from augpipe.recipes.view import View
from augpipe.validation.models import changed

Parts = Callable[[Recipe, int], list[tuple[str, Recipe]]]
"""Takes a recipe and the number of a view, and gives a heading and a recipe of some of its ops for each column."""


def without_normalize(recipe: Recipe) -> Recipe:
    """The recipe as far as it can be seen: one entry in `views` for each output image, none of them normalised."""
    views = tuple(View(ops=tuple(op for op in view.ops if op.op != "normalize")) for view in recipe.all_views)
    return _made(recipe, ops=(), views=views)


def with_ops(recipe: Recipe, of_op: Callable[[Op], Op], **fields: Any) -> Recipe:
    """The recipe with each op replaced by what `of_op` makes of it, in all views, and with other `fields`."""
    views = tuple(View(ops=tuple(map(of_op, view.ops)), count=view.count) for view in recipe.views)
    return _made(recipe, ops=tuple(map(of_op, recipe.ops)), views=views, **fields)


def only_ops(recipe: Recipe, view: int, keys: Collection[str]) -> Recipe:
    """The recipe with one view reduced to its crop and the ops `keys` (of `View.keyed_ops`), which draw as before.

    Nothing is mixed.
    """
    keyed = recipe.views[view].keyed_ops
    kept: list[Any] = []
    for place, (name, op) in enumerate(keyed):
        if name in keys or op.is_crop:
            kept.append(op)
        elif any(later.op == op.op and other in keys for other, later in keyed[place + 1 :]):
            # an op's stream is named by its place among its kind: those before it stay, and never happen
            kept.append(op.model_copy(update={"p": 0.0}))
    views = list(recipe.views)
    views[view] = View(ops=tuple(kept))
    return _made(recipe, ops=(), views=views, mixing=())


def without_ops(recipe: Recipe, names: Collection[str]) -> Recipe:
    """The recipe as if ops of these names (of `View.keyed_ops`) never happened; all others draw as before.

    Raises:
        ValueError: there is no such op, or it is a crop.
    """
    views = without_normalize(recipe).views
    known = dict.fromkeys(key for view in views for key, op in view.keyed_ops if not op.is_crop)
    for name in names:
        if name not in known:
            raise ValueError(f"the recipe has no {name} that could be left out. Choose from {', '.join(known)}.")
    made = _made(recipe, ops=(), views=views)
    for number, view in enumerate(views):
        keys = [key for key, _ in view.keyed_ops if key not in names]
        made = changed(only_ops(made, number, keys), mixing=recipe.mixing)
    return made


def solos(recipe: Recipe, view: int) -> list[tuple[str, Recipe]]:
    """(key, recipe) of each op of a view alone, the crop first."""
    keyed, mirrors = sorted(recipe.views[view].keyed_ops, key=lambda item: not item[1].is_crop), _mirrors(recipe, view)
    return [(key, only_ops(recipe, view, [key, *mirrors])) for key, _ in keyed]


def growing(recipe: Recipe, view: int) -> list[tuple[str, Recipe]]:
    """(key, recipe) of each op of a view with all ops before it, the crop first."""
    keys = [key for key, _ in sorted(recipe.views[view].acting_ops, key=lambda item: not item[1].is_crop)]
    mirrors = _mirrors(recipe, view)
    return [(key, only_ops(recipe, view, [*keys[: place + 1], *mirrors])) for place, key in enumerate(keys)]


def _mirrors(recipe: Recipe, view: int) -> list[str]:
    """Flips before a crop with `keep_objects`: without them objects lie elsewhere, and another crop is drawn."""
    acting = recipe.views[view].acting_ops
    last = max((place for place, (_, op) in enumerate(acting) if getattr(op, "keep_objects", None)), default=0)
    return [key for key, op in acting[:last] if op.op == "flip"]


def _made(recipe: Recipe, **fields: Any) -> Recipe:
    """The recipe with other fields, of this release, also where it takes other passes than before."""
    return changed(recipe, pixels=PIXELS_OF_PASSES, **fields)
