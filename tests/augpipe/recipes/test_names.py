"""A recipe by its name, its file or itself: alike for the loader, transforms, sheets and runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Loader, Recipe, Schedule, ops, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.nn import AugmentModule
from augpipe.preview import by_op, over_epochs
from augpipe.recipes.names import RECIPE_NAMES, as_recipe, as_schedule
from augpipe.trainer.config.tables import DataConfig
from augpipe.trainer.loop.data import training_recipe

PIXELS = np.arange(2 * 300 * 300 * 3, dtype=np.uint32).astype(np.uint8).reshape(2, 300, 300, 3)
SMALL = Recipe(ops=(ops.CenterCrop(size=8), ops.Flip()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    SMALL.dump(tmp_path / "small.toml")
    return tmp_path / "small.toml"


@pytest.mark.parametrize("name", RECIPE_NAMES)
def test_names_are_those_of_recipes(name: str) -> None:
    assert as_recipe(name) == recipes.BY_NAME[name]() == as_schedule(name).at(7)


def test_files_and_what_is_a_recipe_already(path: Path) -> None:
    named = SMALL.model_copy(update={"name": "small"})
    assert as_recipe(path) == as_recipe(str(path)) == named
    assert as_schedule(path).name == "small" and as_schedule(path).at(0) == SMALL
    assert as_recipe(SMALL) is SMALL and as_schedule({0: SMALL}) == Schedule.of(SMALL)
    Schedule.of({0: SMALL, 3: SMALL}).dump(path)
    assert len(as_schedule(path).stages) == 2
    with pytest.raises(ValueError, match="is a schedule, and one recipe is needed"):
        as_recipe(path)


def test_all_take_the_same(path: Path) -> None:
    source = ArraySource(PIXELS)
    for given in (SMALL, path, str(path)):
        loader = Loader(source, given, batch_size=2, framework="numpy", dtype="uint8", num_threads=1)
        assert loader.recipe.ops == SMALL.ops
        assert Augment(given, dtype="uint8")(PIXELS[0]).shape == (3, 8, 8)
        assert AugmentModule(given).recipe.ops == AugmentModule("none", given).eval_recipe.ops == SMALL.ops
        sheets = [over_epochs(source, given, rows=1, cols=1), by_op(source, given, rows=1)]
        assert all(sheet.rows[0].cells[-1].image.shape == (8, 8, 3) for sheet in sheets)


@pytest.mark.parametrize("name", [name for name in RECIPE_NAMES if name not in ("deep_image", "evaluation", "none")])
def test_runs_take_all_names_that_make_images_of_one_size(name: str) -> None:
    data = DataConfig(source="photos", recipe=name, size=32)
    assert training_recipe(data) == recipes.BY_NAME[name](size=32)


@pytest.mark.parametrize(("size", "scale"), [(224, 256), (64, 74), (256, 293), (300, 343), (512, 586)])
def test_evaluation_of_any_size(size: int, scale: int) -> None:
    expected: Any = ops.CenterCrop(size=size, scale=scale)
    assert recipes.evaluation(size).ops[0] == expected
