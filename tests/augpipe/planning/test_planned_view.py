"""What is planned for images of one size, and then for one of another: only what depends on the size is done again."""

import numpy as np
import pytest

from augpipe import Recipe, View, ops, plan
from augpipe.planning.kernel_rows import kernel_rows, resized_rows
from augpipe.planning.plan import plan_ahead
from tests.parity.table import CASES, recipes_of

CROP, COLOURS = ops.RandomResizedCrop(size=(24, 30)), ops.ColorJitter(brightness=0.4, contrast=0.4, hue=0.1)
FOR_ANY_SIZE = {
    "colours of whole images": Recipe(
        ops=[COLOURS, ops.Flip(), ops.Rotate(), ops.Blur(), ops.Noise(), ops.Normalize()]
    ),
    "a size that depends on the image": Recipe(ops=[ops.ResizeShortest(size=40), ops.Flip(), COLOURS]),
    "steps and flips before the crop": Recipe(ops=[ops.Grayscale(), ops.Flip(p=1.0), CROP, ops.CoarseDropout(p=1.0)]),
    "two passes": Recipe(ops=[ops.Resize(size=(40, 30)), ops.Gamma(p=1.0), ops.Rotate(p=1.0), ops.Perspective(), CROP]),
    "a crop of what is turned": Recipe(ops=[CROP, ops.Translate(), ops.BrownConrady(), ops.RandomCrop(size=20)]),
    "padding": Recipe(
        ops=[ops.Pad(size=150, fill=9), ops.Flip(), ops.Resize(size=64), ops.RandomCrop(size=60), COLOURS]
    ),
    "groups": Recipe(ops=[CROP, ops.OneOf(ops=[ops.Rotate(), ops.Shear(about="corner"), ops.Invert()], p=0.8)]),
    "looks of their own": Recipe(ops=[CROP, ops.OneOf(ops=[ops.Rotate(), ops.Invert()], own_look="nearest"), COLOURS]),
    "fields": Recipe(ops=[ops.CenterCrop(size=30, scale=36), ops.ElasticTransform(p=1.0), ops.Flip()]),
    "views": Recipe(views=[View(ops=[CROP, COLOURS], count=2), View(ops=[ops.RandomCrop(size=20), ops.Flip()])]),
    "one channel": Recipe(ops=[CROP, COLOURS], channels=1, interpolation="random", antialias=False),
    "in turn": Recipe(ops=[ops.Flip(alternate=True), ops.RandomCrop(size=20, padding=4)]),
}
NOT = {
    "drawn in parts of the image": Recipe(ops=[ops.Translate(), ops.Flip()]),
    "drawn within the image": Recipe(ops=[ops.Erase()]),
    "a crop of what is turned": Recipe(ops=[ops.ResizeShortest(size=40), ops.Rotate(), ops.CenterCrop(size=20)]),
    "blurred before the crop": Recipe(ops=[ops.Blur(), CROP]),
    "a group that flips before the crop": Recipe(ops=[ops.OneOf(ops=[ops.Flip(), ops.Invert()]), CROP]),
    "a look of its own": Recipe(ops=[ops.OneOf(ops=[ops.Rotate(), ops.Invert()], own_look="nearest")]),
    "padded, turned and cropped": Recipe(
        ops=[ops.Resize(size=20), ops.Pad(px=4), ops.Rotate(), ops.RandomCrop(size=20)]
    ),
    "passes over whole images": Recipe(ops=[ops.Gamma(p=1.0), ops.Rotate()]),
}


def check(recipe: Recipe) -> None:
    """That it gives the records and kernel rows of `plan`, to the bit."""
    views = plan_ahead(recipe, np.arange(6), sizes=np.full((6, 2), (90, 120)), epoch=3, seed=5)
    tables = [kernel_rows(view.rows) for view in views]
    sizes, factors_of_all = np.array([(120, 90), (90, 120), (90, 120), (64, 64), (1, 77), (203, 131)]), np.arange(1, 7)
    for own in (slice(0, 1), slice(5, 6), slice(1, 3), slice(0, 6), slice(2, 5)):
        expected = plan(recipe, np.arange(6)[own], sizes=sizes[own], epoch=3, seed=5).views
        for view, table, rows in zip(views, tables, expected, strict=True):
            found, factors = view.resized(own, sizes[own]), factors_of_all[own]
            assert found.dtype == rows.dtype and found.tobytes() == rows.tobytes()
            resized = resized_rows(found, table[own], factors)
            assert resized.tobytes() == kernel_rows(rows, factors).tobytes()


@pytest.mark.parametrize("name", FOR_ANY_SIZE)
def test_other_sizes_have_the_plan_that_they_have_alone(name: str) -> None:
    check(FOR_ANY_SIZE[name])


@pytest.mark.parametrize("name", CASES)
def test_each_op_has_it(name: str) -> None:
    for recipe in recipes_of(name, "context"):
        if None not in recipe.sized_ops:
            check(recipe)


@pytest.mark.parametrize("name", NOT)
def test_what_may_depend_on_the_size_is_planned_for_each(name: str) -> None:
    assert NOT[name].sized_ops == (None,)
