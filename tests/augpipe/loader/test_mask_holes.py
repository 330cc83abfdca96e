"""Label maps of batches are filled where the image shows the fill of the recipe's holes, and nowhere else."""

from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Recipe, TargetOptions, View, ops
from augpipe.planning.targets import fill_notice
from tests.augpipe.loader.target_sources import LabelMapSource, loader_of, targets_by_id

COLOUR, HOLE, FILL = 200, 30, 255
HOLES = ops.CoarseDropout(num=(1, 6), height=(2, 14), width=(2, 14), fill=HOLE, p=0.9)
GRID = ops.GridDropout(grid=(3, 4), fill=HOLE, p=0.5)
MOVED = (ops.RandomResizedCrop(size=(36, 44)), ops.Flip(), ops.Rotate(max_deg=30, step=None))
RECIPES = {
    "one view": Recipe(ops=(*MOVED, HOLES)),
    "views": Recipe(views=(View(ops=(*MOVED, HOLES), count=2), View(ops=(ops.CenterCrop(size=24), GRID)))),
    "passes": Recipe(ops=(ops.Emboss(p=0.5), *MOVED, GRID, HOLES), border="constant", fill=COLOUR),
    "mosaic": Recipe(mosaic=ops.Mosaic(size=24), ops=(ops.CenterCrop(size=40), HOLES), fill=COLOUR),
    "cut and pasted": Recipe(ops=(*MOVED, HOLES), mixing=(ops.CutMix(p=0.7),)),
}


def source(num: int = 9) -> LabelMapSource:
    """Images of one colour, with labels that differ from pixel to pixel."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(50, 90, (num, 2)).tolist()
    images = [np.full((*size, 3), COLOUR, np.uint8) for size in sizes]
    return LabelMapSource(images, [], [rng.integers(0, 99, size).astype(np.uint8) for size in sizes])


def views_of(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("by", ["nearest", "majority"])
@pytest.mark.parametrize("name", RECIPES)
def test_label_maps_are_filled_where_the_images_are(name: str, by: Any) -> None:
    recipe = RECIPES[name]
    options: Any = {"dtype": "uint8", "layout": "NHWC", "framework": "numpy"}
    without, filled = (
        loader_of(source(), recipe, targets=TargetOptions(mask_holes=asked, mask_interpolation=by), **options)
        for asked in (False, True)
    )
    num = 0
    for other, batch in zip(without, filled, strict=True):
        for images, labels, expected in zip(*map(views_of, (batch.images, batch.targets, other.targets)), strict=True):
            is_hole = (images == HOLE).all(axis=3)
            num += int(is_hole.sum())
            np.testing.assert_array_equal(labels, np.where(is_hole, FILL, expected))
    assert num > 500


def test_batches_and_threads_change_no_bit_and_calls_give_the_same() -> None:
    images, recipe, options = source(), RECIPES["one view"], TargetOptions(mask_holes=True)
    found = [
        targets_by_id(loader_of(images, recipe, targets=options, batch_size=size, num_threads=threads))
        for size, threads in ((4, 2), (1, 1), (9, 2))
    ]
    assert found[0] == found[1] == found[2]
    augment = Augment(recipe, seed=3)
    for batch in loader_of(images, recipe, targets=options, shuffle=False):
        for sample_id, labels in zip(batch.sample_ids.tolist(), batch.targets, strict=True):
            given = {"image": images.contents[sample_id], "mask": images.maps[sample_id], "sample_ids": sample_id}
            np.testing.assert_array_equal(labels, augment(**given, targets=options)["mask"])


def test_a_plan_that_is_replayed_fills_the_same() -> None:
    recipe, options = RECIPES["passes"], TargetOptions(mask_holes=True)
    images, augment = source(), Augment(recipe)
    batch = next(iter(loader_of(images, recipe, targets=options, shuffle=False)))
    for position in range(2):
        given = {"image": images.contents[position], "mask": images.maps[position]}
        found = augment(**given, plan=batch.plan[position : position + 1], targets=options)
        np.testing.assert_array_equal(found["mask"], batch.targets[position])


def test_a_default_fill_of_holes_that_masks_do_not_mean_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fill_notice, "_looks_left", 64)
    recipe, images = Recipe(ops=(ops.CenterCrop(size=40), HOLES)), source()
    images.maps = [255 * (one % 2) for one in images.maps]
    for options, is_told in (
        ({}, False),
        ({"mask_fill": 255, "mask_holes": True}, False),
        ({"mask_holes": True}, True),
    ):
        [*loader_of(images, recipe, targets=TargetOptions(**options))]
        told = [text for text in caplog.messages if "mask_fill" in text]
        assert len(told) == is_told and all("255 where there is no image or a hole, which" in text for text in told)
