"""A schedule: one recipe after another, as an epoch's number says; frozen, validated, loaded from TOML."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from augpipe.gpu_ops.random.philox import MAX_WORD
from augpipe.recipes.recipe import Recipe
from augpipe.recipes.refusals import check_recipe
from augpipe.recipes.toml_file import TomlFile, read_toml, validated
from augpipe.validation.models import Checked, ListOf


class Stage(Checked):
    """A recipe and the epoch that it begins with."""

    epoch: Annotated[int, Field(ge=0, le=MAX_WORD)]
    """The first epoch, counted from 0."""
    recipe: Recipe
    """What happens to every image from then on."""

    noun: ClassVar[str] = "a stage"


class Schedule(TomlFile):
    """Recipes that follow each other: images that grow, ranges that widen, what a run ends with.

    A sample's draws in an epoch depend on the epoch's recipe alone, as if that had been the recipe all along.
    """

    name: str = ""
    """For people."""
    stages: ListOf[Stage]
    """In the order of their epochs; the first begins with epoch 0."""

    noun: ClassVar[str] = "a schedule"

    @model_validator(mode="after")
    def _follow_each_other(self) -> Self:
        epochs = [stage.epoch for stage in self.stages]
        if not epochs or epochs[0] != 0:
            raise ValueError(f"the stages begin with epochs {epochs}, and the first one must with epoch 0. Add it.")
        if any(after <= before for before, after in pairwise(epochs)):
            raise ValueError(f"the stages begin with epochs {epochs}, which must rise. Put them in order, each once.")
        for stage in self.stages:
            for what, found, first in (
                ("views", len(stage.recipe.all_views), len(self.recipes[0].all_views)),
                ("Normalize", stage.recipe.normalises, self.recipes[0].normalises),
                ("channels", stage.recipe.channels, self.recipes[0].channels),
            ):
                if found != first:
                    raise ValueError(
                        f"the recipe of epoch {stage.epoch} differs from the first one in {what} ({found}, {first} "
                        "there), so that batches would change their kind. Make them the same."
                    )
        return self

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Those of its stages."""
        return tuple(stage.recipe for stage in self.stages)

    def at(self, epoch: int) -> Recipe:
        """The recipe of an epoch."""
        return self.stages[bisect_right([stage.epoch for stage in self.stages], epoch) - 1].recipe

    @classmethod
    def of(cls, recipe: Any) -> "Schedule":
        """A schedule as it is, of a `Recipe` for all epochs, or of {first epoch: recipe}.

        Raises:
            ValueError: it is none of these, or the recipes do not follow each other.
        """
        if isinstance(recipe, Schedule):
            return recipe
        if not isinstance(recipe, Mapping):
            check_recipe(recipe)
            return cls(stages=(Stage(epoch=0, recipe=recipe),))
        for each in recipe.values():
            check_recipe(each)
        ordered = sorted(recipe.items(), key=lambda item: item[0] if isinstance(item[0], int) else -1)
        return cls(stages=tuple(Stage(epoch=epoch, recipe=each) for epoch, each in ordered))

    @classmethod
    def load(cls, path: str | Path) -> "Schedule":
        """Read a TOML file of `[[stages]]`, or of a recipe, which is then that of all epochs.

        Raises:
            ValueError: the file is not TOML, or neither a schedule nor a recipe; names the file and the place.
            OSError: the file cannot be read.
        """
        data = read_toml(path)
        if "stages" in data:
            return validated(cls, data, path, "schedule")
        return cls.of(validated(Recipe, data, path, "recipe"))
