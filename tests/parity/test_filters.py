"""Filters beside OpenCV's, on images of any size, in both layouts."""

from collections.abc import Callable
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Augment, Recipe, ops
from augpipe.ops.filters import drawn_line
from tests.parity.images import Pixels, noise

SHAPES = [(1, 1), (1, 7), (5, 2), (3, 3), (40, 61)]
ROUNDED = 0.5 + 1e-3
"""OpenCV's filters of 8-bit images round once."""


def _gaussian(sigma: float, size: int) -> Callable[[Pixels], npt.NDArray[np.float64]]:
    return lambda image: cv2.GaussianBlur(image.astype(np.float64), (size, size), sigma)


def _weighted(weights: npt.NDArray[np.float64]) -> Callable[[Pixels], Pixels]:
    return lambda image: cv2.filter2D(image, -1, weights)


def _jpeg(image: Pixels) -> Pixels:
    _, file = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 30])
    read: Pixels = cv2.imdecode(file, cv2.IMREAD_COLOR)
    return read


EACH: dict[str, tuple[ops.Op, Callable[[Pixels], npt.NDArray[np.generic]], float]] = {
    "gaussian": (ops.GaussianBlur(sigma_px=(2, 2), p=1), _gaussian(2.0, 15), 1e-3),
    "gaussian, cut off": (ops.GaussianBlur(sigma_px=(2, 2), kernel_px=5, p=1), _gaussian(2.0, 5), 1e-3),
    "box": (ops.BoxBlur(sizes=(7, 7), p=1), lambda image: cv2.blur(image, (7, 7)), ROUNDED),
    "median 3": (ops.MedianBlur(sizes=(3, 3), p=1), lambda image: cv2.medianBlur(image, 3), 0.0),
    "median 7": (ops.MedianBlur(sizes=(7, 7), p=1), lambda image: cv2.medianBlur(image, 7), 0.0),
    "jpeg": (ops.JpegCompression(quality=(30, 30), p=1), lambda image: _jpeg(image[:, :, ::-1])[:, :, ::-1], 0.0),
    "jpeg, blue first": (ops.JpegCompression(quality=(30, 30), blue_first=True, p=1), _jpeg, 0.0),
    "motion": (
        ops.MotionBlur(sizes=(5, 5), degrees=(-45, -45), direction=(0, 0), shifts=False, p=1),
        _weighted(np.diag([0.0, 1.0, 1.0, 1.0, 0.0]) / 3),  # cos(45 degrees) of two pixels is rounded to one
        ROUNDED,
    ),
    "motion of 15": (
        ops.MotionBlur(sizes=(15, 15), degrees=(0, 0), direction=(1, 1), shifts=False, p=1),
        _weighted(np.pad(np.ones((1, 8)), ((7, 7), (7, 0))) / 8),
        ROUNDED,
    ),
    "sharpen": (
        ops.Sharpen(alpha=(0.5, 0.5), lightness=(1, 1), p=1),
        _weighted(np.array([[-0.5, -0.5, -0.5], [-0.5, 5.0, -0.5], [-0.5, -0.5, -0.5]])),
        ROUNDED,
    ),
    "emboss": (
        ops.Emboss(alpha=(0.5, 0.5), strength=(1, 1), p=1),
        _weighted(np.array([[-1.0, -0.5, 0.0], [-0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])),
        ROUNDED,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", EACH)
def test_as_opencv(name: str, shape: tuple[int, int]) -> None:
    op, by_opencv, tolerance = EACH[name]
    image = noise(*shape, seed=1)
    found = Augment(Recipe(ops=(op,)), layout="NHWC")(image)
    assert np.abs(found - by_opencv(image).reshape(image.shape)).max() <= tolerance
    planar = Augment(Recipe(ops=(op,)), layout="NCHW")(image)
    assert np.array_equal(planar.transpose(1, 2, 0), found)


@pytest.mark.parametrize("scale", [0.25, 0.3, 0.5, 0.71])
def test_coarse_images_as_opencv(scale: float) -> None:
    """As albumentations calls it: by a factor down, and by a size up."""
    image = noise(40, 61)
    smaller = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
    expected = cv2.resize(smaller, (61, 40), interpolation=cv2.INTER_NEAREST)
    for layout in ("NHWC", "NCHW"):
        found = Augment(Recipe(ops=(ops.Downscale(scale=(scale, scale), p=1),)), layout=layout)(image)
        assert np.array_equal(found if layout == "NHWC" else found.transpose(1, 2, 0), expected)


def test_they_act_in_the_order_of_the_list() -> None:
    image = noise(20, 30)
    dark = (ops.Brightness(factor=(2.0, 2.0)), ops.BoxBlur(p=1))
    first, last = (Augment(Recipe(ops=chosen), layout="NHWC")(image) for chosen in (dark, dark[::-1]))
    assert np.abs(first - last).max() > 20.0


def test_a_filter_right_behind_a_jpeg_acts_too() -> None:
    """The JPEG's step is a kernel of its own, which the others go on from."""
    images = [noise(20, 30, seed=seed) for seed in range(2)]
    compress, median = ops.JpegCompression(quality=(30, 30), p=1), ops.MedianBlur(sizes=(3, 3), p=1)
    found = Augment(Recipe(ops=(compress, median, compress, compress)), layout="NHWC")(images)
    for image, seen in zip(images, found, strict=True):
        for op in (compress, median, compress, compress):
            image = np.rint(Augment(Recipe(ops=(op,)), layout="NHWC")(image)).astype(np.uint8)
        assert np.array_equal(seen, image)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", ["gaussian", "median 3", "sharpen"])
def test_levels_behind_a_filter_are_normalised_and_rounded(name: str, layout: Literal["NCHW", "NHWC"]) -> None:
    image, kind = noise(40, 70, seed=3), EACH[name][0]
    mean, std = np.array([0.5, 0.4, 0.3]), np.array([0.2, 0.25, 0.3])
    normalising = Recipe(ops=[kind, ops.Normalize(mean=tuple(mean.tolist()), std=tuple(std.tolist()))])
    parts = Augment(normalising, layout=layout)(image)
    parts = parts if layout == "NHWC" else parts.transpose(1, 2, 0)
    levels = Augment(Recipe(ops=[kind]), dtype="uint8", layout="NHWC")(image)
    assert abs((parts * std + mean) * 255 - levels).max() < 0.501


def test_images_that_drew_none_stay_as_they_are() -> None:
    images = [noise(20, 30, seed=seed) for seed in range(16)]
    recipe = Recipe(ops=(ops.Posterize(bits=(7, 7)), ops.GaussianBlur(sigma_px=(2, 2)), ops.CLAHE(p=0.3)))
    plain = Augment(Recipe(ops=recipe.ops[:1]), layout="NHWC", dtype="uint8")(images, range(16))
    found = Augment(recipe, layout="NHWC", dtype="uint8")(images, range(16))
    is_plain = (plain == found).all(axis=(1, 2, 3))
    assert 0 < is_plain.sum() < 16


@pytest.mark.parametrize(
    ("kind", "fields", "problem"),
    [
        (ops.BoxBlur, {"sizes": (3, 8)}, "must be odd, so that a pixel lies in the middle"),
        (ops.MedianBlur, {"sizes": (3, 9)}, "must be two odd numbers of pixels in 3..7"),
        (ops.BoxBlur, {"sizes": (7, 3)}, "its first number is the larger one"),
        (ops.GaussianBlur, {"kernel_px": 4}, r"must be odd, so that a pixel lies in the middle: kernel_px=23\."),
        (ops.GaussianBlur, {"kernel_px": 129}, "must be an odd number of pixels in 1..127"),
        (ops.GaussianBlur, {"sigma_px": (0, 20)}, r"leaves 0..18 pixels"),
        (ops.JpegCompression, {"quality": (0, 50)}, r"must be two whole qualities in 1..100"),
        (ops.Downscale, {"scale": (0.0, 0.5)}, r"leaves 0.01..1"),
        (ops.GridShuffle, {"grid": (17, 2)}, r"must be two numbers of cells in 1..16"),
        (ops.CLAHE, {"tiles": (8, 17)}, "must be two numbers in 1..16"),
        (ops.CLAHE, {"clip_limit": (0.5, 2)}, r"leaves 1..256"),
    ],
)
def test_wrong_fields_are_named(kind: type[ops.Op], fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kind(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("side", [3, 5, 7])
def test_lines_between_any_two_pixels_are_opencvs(side: int) -> None:
    ends = np.array([pair for pair in np.ndindex(*[side] * 4) if pair[:2] != pair[2:]])
    for (x, y, last_x, last_y), places in zip(ends.tolist(), drawn_line(np.full(len(ends), side), ends), strict=True):
        expected = cv2.line(np.zeros((side, side)), (x, y), (last_x, last_y), 1.0) > 0.0
        assert np.array_equal(places[: side**2].reshape(side, side), expected), (x, y, last_x, last_y)
