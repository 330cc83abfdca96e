"""A recipe by whatever names it: one of ours, a TOML file, or the recipe itself; alike for commands and Python."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from augpipe.validation.suggest import nearest, nearest_file, plain

if TYPE_CHECKING:
    from augpipe.recipes.recipe import Recipe
    from augpipe.recipes.schedule import Schedule

RECIPE_NAMES = (
    "deep_image",
    "trivial_augment_wide",
    "rand_augment",
    "auto_augment",
    "three_augment",
    "evaluation",
    "none",
)
"""Those of `augpipe.recipes.BY_NAME`; written out, so that help does not import it."""


def as_recipe(given: Any) -> "Recipe":
    """The recipe that a user gives: a `Recipe`, a name such as "deep_image", or the path of a TOML file.

    Raises:
        ValueError: it is none of these; says what to write.
    """
    from augpipe.recipes.refusals import check_recipe

    if isinstance(given, str | os.PathLike):
        return load_recipe(os.fspath(given))
    check_recipe(given)
    found: Recipe = given
    return found


def as_schedule(given: Any) -> "Schedule":
    """The schedule that a user gives: what `as_recipe` takes, a `Schedule` or the file of one, {first epoch: recipe}.

    Raises:
        ValueError: it is none of these; says what to write.
    """
    from augpipe.recipes.schedule import Schedule

    return load_schedule(os.fspath(given)) if isinstance(given, str | os.PathLike) else Schedule.of(given)


def load_recipe(text: str, size: int | None = None, scales: Sequence[int] | None = None) -> "Recipe":
    """The recipe of a name, at a size and from scales in pixels where those are given; or that of a TOML file.

    Raises:
        ValueError: there is none such, or size and scales do not go with it.
    """
    if text in RECIPE_NAMES:
        return _named(text, size, tuple(scales or ()))
    from augpipe.recipes.recipe import Recipe

    path = _recipe_file(text, size, scales)
    recipe = Recipe.load(path)
    return recipe if recipe.name else recipe.model_copy(update={"name": path.stem})


def load_schedule(text: str, size: int | None = None, scales: Sequence[int] | None = None) -> "Schedule":
    """As `load_recipe`, for all epochs; or the schedule of a TOML file.

    Raises:
        ValueError: there is none such, or size and scales do not go with it.
    """
    from augpipe.recipes.schedule import Schedule

    if text in RECIPE_NAMES:
        recipe = _named(text, size, tuple(scales or ()))
        return Schedule.of(recipe).model_copy(update={"name": recipe.name})
    path = _recipe_file(text, size, scales)
    schedule = Schedule.load(path)
    name = schedule.name or (schedule.recipes[0].name if len(schedule.stages) == 1 else "") or path.stem
    return schedule.model_copy(update={"name": name})


def _recipe_file(text: str, size: int | None, scales: Sequence[int] | None) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ValueError(_unknown_recipe(text, path))
    if size is not None or scales:
        raise ValueError(f"--size and --scale are for recipes by name. Change size and scales in {text} itself.")
    return path


def _named(name: str, size: int | None, scales: tuple[int, ...]) -> "Recipe":
    from augpipe import recipes

    options: dict[str, Any] = {} if size is None else {"size": size}
    if name == "none":
        if size is not None or scales:
            raise ValueError("--size and --scale do not go with the recipe none: it changes nothing. Leave them out.")
        return recipes.none()
    if name == "evaluation":
        if len(scales) > 1:
            raise ValueError(f"evaluation takes one --scale, and {len(scales)} were given. Keep one.")
        if scales:
            options["scale"] = scales[0]
        return recipes.evaluation(**options)
    if name != "deep_image" and scales:
        raise ValueError(f"--scale does not go with the recipe {name}: its crop is of random area. Leave it out.")
    if scales:
        options["scales"] = scales
    return recipes.BY_NAME[name](**options)


def _unknown_recipe(text: str, path: Path) -> str:
    names = ", ".join(RECIPE_NAMES)
    if path.is_dir():
        return (
            f"the recipe {text} is a folder, and images are the source: Loader(source, recipe) takes that first. Give "
            f"a TOML file, or a name: {names}."
        )
    if path.suffix.lower() == ".toml" or path.parent != Path("."):
        what, hint = f"there is no file {text}", nearest_file(path)
    else:
        # every other word of four letters is like "none"
        near = nearest(text, [name for name in RECIPE_NAMES if len(name) > 4 or plain(text)[:3] == name[:3]])
        what, hint = f"there is no recipe {text!r}", f" Did you mean {near}?" if near else ""
    return f"{what}.{hint} Give a name ({names}) or a TOML file (augpipe recipe deep_image > my.toml writes one)."
