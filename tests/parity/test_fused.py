"""The fused loop against scipy and plain sums, over the table of ops x borders."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Recipe, ops, plan
from augpipe.recipes.recipe import Border
from tests.parity.by_pillow import BY_PILLOW, ON_LEVELS
from tests.parity.images import noise
from tests.parity.oracle import averaged, interpolated
from tests.parity.table import ROWS, expected_image, kinds_alone, recipes_of, with_borders

BORDERS: tuple[Border, ...] = ("context", "reflect", "edge", "constant")
ALL_BORDERS: tuple[Border, ...] = (*BORDERS, "reflect_101", "wrap")
LEVEL_TOLERANCE = 0.02
"""What float32 is allowed on noise: coordinates keep about 1e-5 pixels, and levels change by up to 255 a pixel."""


def compare(recipe: Recipe, photographs: list[np.ndarray], seed: int = 0) -> None:
    """Render with the package in float32 and uint8, and compare with the oracle."""
    sizes = [image.shape[:2] for image in photographs]
    drawn = plan(recipe, range(len(photographs)), sizes=sizes, seed=seed)
    images = Augment(recipe, num_threads=1, layout="NHWC")(photographs, plan=drawn)
    wanted = [expected_image(photograph, drawn, position) for position, photograph in enumerate(photographs)]
    for position, expected in enumerate(wanted):
        std = np.array(drawn.rows["std"][position])
        error = np.abs(images[position] - expected) * std * 255
        assert images[position].shape == expected.shape
        assert error.max() < LEVEL_TOLERANCE, f"{drawn[position : position + 1]}\n{error.max()} levels"
    if not recipe.normalises:
        levels = Augment(recipe, num_threads=1, layout="NHWC", dtype="uint8")(photographs, plan=drawn)
        for position, expected in enumerate(wanted):
            assert np.abs(levels[position] - np.clip(expected, 0, 255)).max() < 0.5 + LEVEL_TOLERANCE


def of_every_run() -> Iterator[Any]:
    """Each case with its first border; but in `make test-fast` with another in turn, in `make test-deep` with all."""
    by_name = groupby(with_borders(BORDERS), key=itemgetter(0))
    for place, (name, pairs) in enumerate(by_name):
        for nth, (_, border) in enumerate(pairs):
            is_in_turn = (nth - 1) == place % (len(BORDERS) - 1)
            marks = [pytest.mark.slow if is_in_turn else pytest.mark.deep] if nth else []
            yield pytest.param(name, border, marks=marks)


@pytest.mark.parametrize(("name", "border"), [*of_every_run()])
def test_within_a_level(name: str, border: Border) -> None:
    images = [noise(61, 83, seed=1), noise(97, 66, seed=2)]
    for recipe in recipes_of(name, border):
        compare(recipe, images)


def test_every_op_has_a_row_and_a_case_of_its_own() -> None:
    others = {ops.Op, ops.Custom, ops.KeepObjects, ops.MixUp, ops.CutMix, ops.CopyPaste, ops.Mosaic}
    kinds = {getattr(ops, name) for name in ops.__all__} - others
    assert set(ROWS) == kinds - {*BY_PILLOW, ops.CLAHE}  # which test_clahe.py has
    assert kinds_alone() == set(ROWS) - set(ON_LEVELS)


@pytest.mark.parametrize("border", ALL_BORDERS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (2, 2), (3, 40)])
def test_tiny_images(shape: tuple[int, int], border: Border) -> None:
    chosen = (ops.Rotate(max_deg=90, step=None), ops.LensDistortion(), ops.Stretch(), ops.Flip())
    for crop in ((), (ops.RandomResizedCrop(size=(9, 14), scale=(0.5, 1.0)),)):
        compare(Recipe(border=border, fill=(9, 8, 7), ops=(*chosen, *crop)), [noise(*shape, seed=s) for s in range(3)])


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("size", [(1, 1), (7, 13), (31, 32), (33, 65), (96, 3), (223, 225)])
def test_odd_outputs(size: tuple[int, int], border: Border) -> None:
    chosen = (ops.Rotate(), ops.BrownConrady(), ops.Vignette(), ops.RandomResizedCrop(size=size, scale=(0.3, 0.6)))
    compare(Recipe(border=border, ops=chosen).fused(), [noise(150, 171, seed=3)], seed=5)


@pytest.mark.parametrize("border", ALL_BORDERS)
def test_far_outside(border: Border) -> None:
    """A stretch by 0.05 shows the surroundings many times over."""
    chosen = (ops.Stretch(horizontal=(0.05, 0.05), vertical=(0.05, 0.1)), ops.CenterCrop(size=30))
    compare(Recipe(border=border, ops=chosen), [noise(40, 31)])


@pytest.mark.slow
def test_far_from_the_image_s_corner() -> None:
    """Coordinates count from near the crop, so that float32 does not lose them in a large image."""
    chosen = (ops.Rotate(), ops.LensDistortion(), ops.MultiResolutionCrop(size=60, scales=(600,)))
    for seed in range(4):
        compare(Recipe(ops=chosen), [noise(500, 9000, seed=4)], seed=seed)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("border", BORDERS)
def test_what_changes_nothing_gives_the_very_pixels(border: Border, dtype: str) -> None:
    photograph = noise(227, 301)
    still = (
        ops.Flip(p=0.0),
        ops.Rotate(p=0.0),
        ops.Stretch(horizontal=(1.0, 1.0), vertical=(1.0, 1.0)),
        ops.LensDistortion(p=0.0),
        ops.Vignette(p=0.0),
        ops.ColorCast(p=0.0),
    )
    for chosen in ((), still, (*still[:3], ops.BrownConrady(p=0.0), *still[4:])):
        image = Augment(Recipe(border=border, ops=chosen), dtype=dtype, layout="NHWC")(photograph)
        assert image.dtype == dtype
        assert np.array_equal(image, photograph)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("size", [(1, 1), (7, 13), (33, 65), (227, 301)])
def test_a_crop_alone_gives_the_very_pixels(size: tuple[int, int], border: Border) -> None:
    photograph = noise(420, 301)
    recipe = Recipe(border=border, ops=(ops.MultiResolutionCrop(size=size, scales=(301,)),))
    for sample_id in range(5):
        drawn = plan(recipe, [sample_id], sizes=[photograph.shape[:2]])
        image = Augment(recipe, dtype="float32", layout="NHWC")(photograph, plan=drawn)
        left, top = (int(drawn.rows["drawn"]["multi_resolution_crop"][name][0]) for name in ("x", "y"))
        assert np.array_equal(image, photograph[top : top + size[0], left : left + size[1]])


@pytest.mark.parametrize("border", ALL_BORDERS)
def test_the_oracle_s_two_samplers_agree(border: Border) -> None:
    """At a support of 1 the sums over every pixel are scipy's bilinear samples, far outside the image as well."""
    pixels = noise(7, 5).astype(np.float64)
    x, y = np.random.default_rng(0).uniform(-30, 30, (2, 20, 20))
    fill = (10.0, 20.0, 30.0)
    np.testing.assert_allclose(
        averaged(pixels, x, y, [1.0, 1.0], border, fill), interpolated(pixels, x, y, border, fill), atol=1e-9
    )
