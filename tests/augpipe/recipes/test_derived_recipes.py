"""Recipes that are made of a recipe keep all of it that is not about ops: how it looks between pixels, its border."""

from collections.abc import Callable

import numpy as np
import pytest

from augpipe import Augment, Recipe, View, ops, recipes
from augpipe.recipes.parts import only_ops, without_normalize
from augpipe.trainer.evaluation.robustness import with_op
from augpipe.trainer.evaluation.views import centre_recipe, whole_recipe

OWN = Recipe(
    border="reflect_101",
    fill=(1, 2, 3),
    interpolation="bicubic",
    antialias=False,
    views=(View(ops=(ops.CenterCrop(size=8), ops.Rotate(), ops.Normalize(mean=0.5, std=0.5))),),
    channels=1,
)
DERIVED: dict[str, Callable[[Recipe], Recipe]] = {
    "the preview's": without_normalize,
    "one op of the preview's": lambda recipe: only_ops(recipe, 0, ["rotate"]),
    "an op's strength": lambda recipe: with_op(recipe, ops.Invert()),
    "the centre at a scale": lambda recipe: centre_recipe(recipe, (9,)),
    "whole images": lambda recipe: whole_recipe(recipe, ((9, 9),)),
    "other sizes": lambda recipe: recipes.resized(recipe, 16),
}


@pytest.mark.parametrize("name", DERIVED)
def test_what_is_not_about_ops_stays(name: str) -> None:
    about_ops = {"name", "ops", "views", "mixing"}
    made = DERIVED[name](OWN)
    assert made.model_dump(exclude=about_ops) == OWN.model_dump(exclude=about_ops) and made.all_views != OWN.all_views


def test_evaluation_looks_between_pixels_as_training_did() -> None:
    made = recipes.evaluation_of(OWN)
    assert (made.interpolation, made.antialias, made.channels) == ("bicubic", False, 1)
    assert (
        recipes.evaluation_of(Recipe(interpolation="random", ops=[ops.CenterCrop(size=8)])).interpolation == "bilinear"
    )


def test_a_crop_of_its_own_size_stays_so_in_other_sizes_and_is_all_of_the_image_in_evaluation() -> None:
    crop = ops.RandomResizedCrop(own_size=True, scale=(0.1, 0.2))
    recipe = Recipe(ops=[crop, ops.Resize(size=(8, 12))])
    assert recipes.resized(recipe, 24).ops == (crop, ops.Resize(size=(16, 24)))
    image = np.arange(30 * 90 * 3, dtype=np.uint8).reshape(30, 90, 3)
    evaluated, cropped = (
        Augment(one, dtype="uint8", layout="NHWC", framework="numpy")(image)
        for one in (recipes.evaluation_of(Recipe(ops=[crop])), Recipe(ops=[crop]))
    )
    np.testing.assert_array_equal(evaluated, image)
    assert cropped.shape == image.shape and not np.array_equal(cropped, image)


def test_the_place_of_a_crop_is_scaled_with_it() -> None:
    crop = ops.RandomCrop(size=(20, 40), at=(10, 6))
    assert recipes.resized(Recipe(ops=[crop]), 80).ops == (ops.RandomCrop(size=(40, 80), at=(20, 12)),)
