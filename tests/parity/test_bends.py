"""Frames that are bent: against OpenCV's maps, and the law of an elastic field against that of filtered noise."""

import cv2
import numpy as np
import pytest
from scipy import ndimage

from augpipe import Augment, Recipe, TargetOptions, ops, plan
from tests.parity.images import smooth
from tests.parity.table import expected_image


def levels(image: np.ndarray, op: ops.Op, border: str = "reflect_101", num: int = 1) -> np.ndarray:
    """(num, H, W, 3) float32 of as many images alike."""
    return Augment(Recipe(border=border, ops=[op]), layout="NHWC", num_threads=1)([image] * num, sample_ids=range(num))


@pytest.mark.parametrize("k", [-2.0, -0.3, 0.05, 0.4, 2.0])
def test_an_optical_distortion_is_opencv_s_undistortion(k: float) -> None:
    """By a camera whose focal lengths are the image's sides: its map is half a pixel further right and down."""
    image = smooth(61, 90)
    camera = np.array([[90, 0, 45], [0, 61, 30.5], [0, 0, 1]], np.float32)
    x, y = cv2.initUndistortRectifyMap(
        camera, np.array([k, k, 0, 0, 0]), np.empty(0), np.empty(0), (90, 61), cv2.CV_32FC1
    )
    found = levels(image, ops.OpticalDistortion(k=(k, k)))[0]
    channels = [
        ndimage.map_coordinates(image[..., i].astype(float), [y - 0.5, x - 0.5], order=1, mode="mirror")
        for i in range(3)
    ]
    assert np.abs(found - np.stack(channels, axis=2)).max() < 0.02


def displaced(op: ops.ElasticTransform, num: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """(num, H, W) how far right and down pixels are looked up, seen in ramps; without the border's pixels."""
    y, x = np.mgrid[:side, :side].astype(np.uint8)
    found = levels(np.stack([x, y, x], axis=2), op, "edge", num).astype(np.float64)
    inside = slice(20, side - 20)
    return found[:, inside, inside, 0] - x[inside, inside], found[:, inside, inside, 1] - y[inside, inside]


def alike(fields: np.ndarray, lag: int) -> float:
    """The correlation of points that lie `lag` pixels from each other along x."""
    return float((fields[:, :, lag:] * fields[:, :, : fields.shape[2] - lag]).mean() / (fields**2).mean())


@pytest.mark.slow
def test_an_elastic_field_is_distributed_like_filtered_noise() -> None:
    sigma, alpha = 5.0, 50.0
    rng = np.random.default_rng(0)
    noise = [alpha * ndimage.gaussian_filter(rng.uniform(-1, 1, (280, 280)), sigma)[40:-40, 40:-40] for _ in range(20)]
    theirs = np.stack(noise)
    right, down = displaced(ops.ElasticTransform(alpha=alpha, sigma=sigma, p=1.0), 20, 240)
    for ours in (right, down):
        assert abs(ours.std() / theirs.std() - 1) < 0.04
        for quantile in (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
            assert abs(np.quantile(ours, quantile) - np.quantile(theirs, quantile)) < 0.12 * theirs.std()
        for lag in (2, 5, 8, 12, 20):
            assert abs(alike(ours, lag) - np.exp(-(lag**2) / (4 * sigma**2))) < 0.05
    assert abs((right * down).mean()) < 0.05 * theirs.var()


def test_a_field_for_a_side_bends_other_frames_alike() -> None:
    op = ops.ElasticTransform(alpha=60.0, sigma=6.0, affine_px=5.0, side_px=60, p=1.0)
    fields = []
    for height, width, large in ((60, 60, 1.0), (180, 180, 3.0), (90, 160, 2.0)):
        rows = plan(Recipe(ops=[op]), range(500), sizes=[(height, width)] * 500).rows
        drawn, field = rows["drawn"]["elastic_transform"], rows["field"]
        np.testing.assert_allclose(drawn["amplitude"], large * 0.162868 * 10.0, rtol=1e-4)
        assert 4.9 * large < np.abs(drawn["corners"]).max() <= 5.0 * large
        fields.append(field["scale"].mean() * large)
    np.testing.assert_allclose(fields, fields[0], rtol=0.01)
    right, down = displaced(ops.ElasticTransform(alpha=7.0, sigma=2.0, side_px=80, p=1.0), 10, 240)
    apart = displaced(ops.ElasticTransform(alpha=63.0, sigma=6.0, p=1.0), 10, 240)
    np.testing.assert_allclose([right, down], apart, atol=1e-3)


def test_both_ways_may_be_the_same() -> None:
    right, down = displaced(ops.ElasticTransform(alpha=50.0, sigma=5.0, same=True, p=1.0), 2, 120)
    np.testing.assert_allclose(right, down, atol=1e-3)


def test_the_affine_part_moves_three_corners() -> None:
    """The image of a corner of the triangle is where the drawn displacement takes it, as OpenCV has such maps."""
    op = ops.ElasticTransform(alpha=0.0, sigma=5.0, affine_px=8.0, p=1.0)
    image = smooth(90, 90)
    recipe = Recipe(border="constant", ops=[op])
    drawn = plan(recipe, [3], sizes=[(90, 90)])
    moved = drawn.rows["drawn"]["elastic_transform"]["corners"][0]
    corners = 44.5 + 30.0 * np.array([[1, 1], [1, -1], [-1, -1]])
    matrix = cv2.getAffineTransform(corners.astype(np.float32), (corners + moved).astype(np.float32))
    looked_up = cv2.invertAffineTransform(matrix)
    y, x = np.mgrid[:90, :90]
    at = looked_up @ np.stack([x.ravel(), y.ravel(), np.ones(90 * 90)])
    expected = ndimage.map_coordinates(
        image[..., 0].astype(float), at[::-1].reshape(2, 90, 90), order=1, mode="grid-constant"
    )
    found = Augment(recipe, layout="NHWC", num_threads=1)([image], plan=drawn)[0][..., 0]
    inside = slice(12, 78)  # OpenCV's corners are float32
    assert np.abs(moved).max() > 2 and np.abs(found - expected)[inside, inside].max() < 0.5


@pytest.mark.parametrize("later", [(), (ops.Resize(size=(60, 72)),), (ops.Zoom(factor=(2, 2)), ops.Perspective())])
def test_a_label_map_shows_the_pixels_that_the_image_shows(later: tuple[ops.Op, ...]) -> None:
    labels = np.random.default_rng(0).integers(1, 250, (60, 80), np.uint8)
    turned = (ops.Resize(size=(20, 16)), ops.Rotate(max_deg=(20, 20), step=None), *later)
    recipe = Recipe(interpolation="nearest", border="constant", ops=turned)
    shown = Augment(recipe, dtype="uint8", layout="NHWC", framework="numpy")(
        image=np.repeat(labels[..., None], 3, axis=2), mask=labels, targets=TargetOptions(mask_fill=0)
    )
    np.testing.assert_array_equal(shown["mask"], shown["image"][..., 0])


@pytest.mark.parametrize(
    ("chosen", "second"),
    [
        ((ops.ElasticTransform(), ops.GridDistortion()), "elastic_transform and grid_distortion"),
        ((ops.OneOf(ops=[ops.GridDistortion()]), ops.LensDistortion()), "grid_distortion and lens_distortion"),
        ((ops.SomeOf(num=(1, 2), ops=[ops.ElasticTransform(), ops.OpticalDistortion()]),), "elastic_transform and"),
        ((ops.AllOf(ops=[ops.ElasticTransform(), ops.OpticalDistortion()]),), "elastic_transform and"),
    ],
)
def test_two_that_may_bend_one_image_are_refused(chosen: tuple[ops.Op, ...], second: str) -> None:
    with pytest.raises(ValueError, match=f"{second}.*may both act on one"):
        Recipe(ops=chosen)


def test_several_of_which_one_acts_may_stand_in_a_view() -> None:
    three = [ops.ElasticTransform(), ops.GridDistortion(), ops.OpticalDistortion(), ops.Perspective()]
    assert Recipe(ops=[ops.Rotate(), ops.OneOf(ops=three), ops.Zoom()]).num_variants is None
    Recipe(ops=[ops.SomeOf(num=(0, 1), ops=three)])
    Recipe(ops=[ops.OneOf(ops=three[:3]), ops.Perspective()])
    with pytest.raises(ValueError, match=r"perspective comes before elastic_transform.*Put elastic_transform first"):
        Recipe(ops=[ops.Perspective(), ops.OneOf(ops=three[:3])])


@pytest.mark.parametrize("cells", ["whole_px", "to_edge"])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("sides", [(1, 1), (5, 5), (2, 9), (9, 3), (10, 11)])
def test_cells_of_frames_of_few_pixels_are_two_wide(sides: tuple[int, int], normalized: bool, cells: str) -> None:
    recipe, image = (
        Recipe(antialias=False, ops=[ops.GridDistortion(normalized=normalized, cells=cells)]),
        smooth(*sides),
    )
    drawn = plan(recipe, [0], sizes=[sides])
    assert np.abs(Augment(recipe, layout="NHWC")(image, plan=drawn) - expected_image(image, drawn)).max() < 0.02


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"distort_limit": (-1.2, 0.3)}, "below -1 a cell folds over"),
        ({"distort_limit": (-1.0, -1.0)}, "not both -1"),
        ({"distort_limit": (0.3, -0.3)}, "the smaller one first"),
        ({"num_steps": 11}, "num_steps=11 must be at most 10"),
    ],
)
def test_a_grid_that_folds_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ops.GridDistortion(**fields)
