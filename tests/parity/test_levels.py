"""Ops on whole levels beside Pillow, and their programs in any form of a batch."""

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from augpipe import Augment, Recipe, ops, plan
from tests.parity.by_pillow import BY_PILLOW, LEVELS_APART, ON_LEVELS, expected_levels
from tests.parity.images import Pixels, noise
from tests.parity.table import SEPIA_WEIGHTS

SHAPES = [(1, 1), (1, 7), (2, 2), (3, 3), (40, 61), (33, 96)]
EACH: list[ops.Op] = [
    ops.AutoContrast(p=0.8),
    ops.Contrast(about="mean", factor=(0.0, 3.0)),
    ops.Equalize(p=0.8),
    ops.Gamma(gamma=(0.3, 3.0)),
    ops.Invert(p=0.8),
    ops.JpegCompression(quality=(1, 100), p=0.8),
    ops.MedianBlur(p=0.8),
    ops.Posterize(bits=(1, 8)),
    ops.Sharpness(factor=(0.0, 3.0)),
    ops.Solarize(threshold=(0, 256), p=0.8),
    ops.SolarizeAdd(addition=(0, 110), p=0.8),
    ops.ToneCurve(scale=0.4, p=0.8),
]
EACH += [kind(p=0.8) for kind in ON_LEVELS if kind not in BY_PILLOW]  # type: ignore[call-arg]
MIXED = (
    ops.Brightness(factor=(0.3, 1.7)),
    ops.Equalize(p=0.5),
    ops.Posterize(bits=(2, 7), p=0.5),
    ops.Sharpness(p=0.5),
    ops.Gamma(p=0.5),
    ops.Contrast(about="mean", p=0.5),
    ops.Hue(p=0.5),
)


def dim(height: int, width: int, seed: int) -> Pixels:
    """An image of few and uneven levels, as histograms have something to say of."""
    levels = noise(height, width, seed=seed).astype(np.float64)
    return (40 + (levels / 255) ** 2 * (60, 120, 0)).astype(np.uint8)


def test_every_op_on_levels_is_compared() -> None:
    assert {type(op) for op in EACH} == {*ON_LEVELS, ops.Contrast}


@pytest.mark.parametrize("make", [noise, dim])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", EACH, ids=lambda op: op.op)
def test_as_pillow(op: ops.Op, shape: tuple[int, int], make: Any) -> None:
    images = [make(*shape, seed=seed) for seed in range(12)]
    recipe = Recipe(ops=(op,))
    drawn = plan(recipe, range(12), sizes=[shape] * 12).rows["drawn"][op.op]
    levels = Augment(recipe, dtype="uint8", layout="NHWC")(images, range(12))
    for image, found, values in zip(images, levels, drawn, strict=True):
        apart = np.abs(found.astype(int) - expected_levels(op, image, values))
        assert apart.max() <= LEVELS_APART.get(type(op), 0)
    is_changed = not np.array_equal(levels, np.stack(images))
    assert is_changed or make is noise or min(shape) < 30


@pytest.mark.parametrize("make", [noise, dim])
def test_sepia_as_opencv(make: Any) -> None:
    image = make(240, 320, seed=4)
    found = Augment(Recipe(ops=(ops.Sepia(p=1.0),)), dtype="uint8", layout="NHWC")(image, [0])
    np.testing.assert_array_equal(found, cv2.transform(image, np.array(SEPIA_WEIGHTS)))


@pytest.mark.parametrize("op", EACH, ids=lambda op: op.op)
def test_resampled_images_as_pillow(op: ops.Op) -> None:
    """The nearest levels of what was sampled are what Pillow is given."""
    images = [noise(50, 44, seed=seed) for seed in range(12)]
    before: tuple[ops.Op, ...] = (ops.RandomResizedCrop(size=(40, 61)), ops.Rotate(), ops.Saturation())
    drawn = plan(Recipe(ops=(*before, op)), range(12), sizes=[(50, 44)] * 12).rows["drawn"][op.op]
    sampled = Augment(Recipe(ops=before), dtype="uint8", layout="NHWC")(images, range(12))
    levels = Augment(Recipe(ops=(*before, op)), dtype="uint8", layout="NHWC")(images, range(12))
    for image, found, values in zip(sampled, levels, drawn, strict=True):
        apart = np.abs(found.astype(int) - expected_levels(op, image, values))
        assert apart.max() <= LEVELS_APART.get(type(op), 0)
    assert not np.array_equal(levels, sampled)


@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (31, 47)])
def test_float_numbers_are_those_of_levels(shape: tuple[int, int]) -> None:
    """A program that ends in whole levels gives the same ones in every number type and layout."""
    images = [noise(*shape, seed=seed) for seed in range(16)]
    recipe = Recipe(ops=(*MIXED, ops.Posterize(bits=(3, 3))))
    whole = Augment(Recipe(ops=recipe.ops), dtype="float32", layout="NHWC")(images, range(16))
    assert set(np.unique(whole)) <= set(range(0, 256, 32))
    planar = Augment(recipe, dtype="float32", layout="NCHW")(images, range(16))
    assert np.array_equal(planar.transpose(0, 2, 3, 1), whole)
    half = Augment(recipe, dtype="float16", layout="NHWC")(images, range(16))
    assert np.array_equal(half.astype(np.float32), whole)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 3))
def test_an_image_does_not_depend_on_its_batch(ids: list[int], num_threads: int) -> None:
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=(20, 31)), *MIXED, ops.Normalize()))
    images = {i: noise(50, 44, seed=i) for i in set(ids)}
    together = Augment(recipe, num_threads=num_threads)([images[i] for i in ids], ids)
    for i, found in zip(ids, together, strict=True):
        assert np.array_equal(Augment(recipe, num_threads=1)(images[i], [i]), found)


def test_normalisation_comes_last_wherever_it_stands() -> None:
    image = noise(20, 30, seed=1)
    first = Augment(Recipe(ops=(ops.Normalize(), ops.Invert(p=1))))(image, [0])
    last = Augment(Recipe(ops=(ops.Invert(p=1), ops.Normalize())))(image, [0])
    assert np.array_equal(first, last)
    expected = ((255.0 - image) / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    assert np.abs(first.transpose(1, 2, 0) - expected).max() < 1e-5


def test_a_mean_is_of_gray_levels_rounded_down() -> None:
    """As in Pillow and torchvision: (2, 3, 4) is gray 2.8, which counts as 2."""
    image = np.full((8, 8, 3), (2, 3, 4), np.uint8)
    recipe = Recipe(ops=(ops.Contrast(about="mean", factor=(0.0, 0.0)),))
    assert (Augment(recipe, dtype="uint8", layout="NHWC")([image], [0]) == 2).all()


@pytest.mark.parametrize("level", [0, 90, 255])
def test_equalizing_where_most_pixels_have_one_level(level: int) -> None:
    """The brightest level's pixels are not counted by the step from level to level, in Pillow too."""
    image = noise(40, 61, seed=2) // 3
    image[np.random.default_rng(3).random((40, 61)) < 0.6] = level
    op = ops.Equalize(p=1.0)
    (found,) = Augment(Recipe(ops=(op,)), dtype="uint8", layout="NHWC")([image], [0])
    np.testing.assert_array_equal(found, ImageOps.equalize(Image.fromarray(image)))
