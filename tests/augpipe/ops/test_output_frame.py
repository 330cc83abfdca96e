"""Erase, GridShuffle and Noise: what is drawn, and how the pixels' noise is spread."""

import numpy as np
import pytest
from scipy import stats

from augpipe import Augment, Recipe, ops, plan

GRAY = np.full((120, 160, 3), 128, np.uint8)
NUM = 4_000
LEAST_P = 1e-4


def edges_of(op: ops.Erase, shape: tuple[int, int] = (120, 160), num: int = NUM) -> np.ndarray:
    return plan(Recipe(ops=(op,)), range(num), sizes=[shape] * num).rows["drawn"]["erase"]["edges"]


def test_rectangles_are_as_large_and_as_long_as_asked_for_and_anywhere() -> None:
    left, top, right, bottom = edges_of(ops.Erase(p=1.0, scale=(0.05, 0.2), ratio=(0.5, 2.0))).T
    height, width = bottom - top, right - left
    assert (height > 0).all() and left.min() >= 0 and top.min() >= 0 and right.max() <= 160 and bottom.max() <= 120
    area, ratio = height * width / (120 * 160), height / width
    assert area.min() > 0.048 and area.max() < 0.205 and ratio.min() > 0.47 and ratio.max() < 2.1
    assert stats.kstest(area, stats.uniform(0.05, 0.15).cdf).pvalue > LEAST_P
    assert stats.kstest(left / (160 - width + 1), "uniform").pvalue > LEAST_P
    assert stats.kstest(np.log(ratio), stats.uniform(np.log(0.5), np.log(4)).cdf).statistic < 0.03


def test_what_does_not_fit_is_drawn_again_or_left_out() -> None:
    far_too_high = edges_of(ops.Erase(p=1.0, scale=(0.9, 0.9), ratio=(50.0, 50.0)), num=50)
    assert not far_too_high.any()
    often_too_high = edges_of(ops.Erase(p=1.0, scale=(0.3, 0.3), ratio=(0.3, 6.0)))
    assert (often_too_high[:, 2] > 0).mean() > 0.999
    assert not edges_of(ops.Erase(p=1.0), shape=(1, 1), num=50).any()


def test_only_the_rectangle_is_filled() -> None:
    recipe = Recipe(ops=(ops.Erase(p=1.0, fill=(1.0, 2.0, 3.0)),))
    found = Augment(recipe, dtype="uint8", layout="NHWC")([GRAY] * 20, range(20))
    for image, (left, top, right, bottom) in zip(found, edges_of(ops.Erase(p=1.0), num=20), strict=True):
        expected = GRAY.copy()
        expected[top:bottom, left:right] = (1, 2, 3)
        assert np.array_equal(image, expected)


@pytest.mark.parametrize("fill", ["mean", "noise"])
def test_normalised_it_is_nought_or_standard_normal(fill: str) -> None:
    recipe = Recipe(ops=(ops.Normalize(), ops.Erase(p=1.0, scale=(0.3, 0.3), fill=fill)))
    found = Augment(recipe, layout="NHWC")([GRAY] * 20, range(20))
    edges = plan(recipe, range(20), sizes=[GRAY.shape[:2]] * 20).rows["drawn"]["erase"]["edges"]
    inside = [image[top:bottom, left:right] for image, (left, top, right, bottom) in zip(found, edges, strict=True)]
    values = np.concatenate([part.reshape(-1) for part in inside])
    if fill == "mean":
        assert np.abs(values).max() < 1e-5
    else:
        assert stats.kstest(values, "norm").pvalue > LEAST_P


def test_noise_is_normal_and_independent() -> None:
    recipe = Recipe(ops=(ops.Noise(std=(10.0, 10.0), p=1.0),))
    noise = (Augment(recipe, layout="NHWC")([GRAY] * 8, range(8)) - 128.0) / 10.0
    assert stats.kstest(noise.reshape(-1), "norm").pvalue > LEAST_P
    assert np.abs(noise).max() > 4.0
    limit = 5 / np.sqrt(noise.size / 3)
    pairs = [(noise[..., 0], noise[..., 1]), (noise[..., 0], noise[..., 2]), (noise[:, :, 1:], noise[:, :, :-1])]
    pairs += [(noise[:, 1:], noise[:, :-1]), (noise[1:], noise[:-1])]
    for one, other in pairs:
        assert abs(np.corrcoef(one.reshape(-1), other.reshape(-1))[0, 1]) < limit


def test_speckle_grows_with_the_level() -> None:
    recipe = Recipe(ops=(ops.Noise(std=(0.0, 0.0), speckle=(0.1, 0.1), p=1.0),))
    for level in (0, 50, 150):
        found = Augment(recipe, layout="NHWC")(np.full((60, 60, 3), level, np.uint8), [3])
        assert np.std(found) == pytest.approx(0.1 * level, rel=0.03, abs=1e-6)


def test_two_epochs_and_two_ops_have_noise_of_their_own() -> None:
    augment = Augment(Recipe(ops=(ops.Noise(std=(9.0, 9.0), p=1.0),)), layout="NHWC")
    first, again, other = augment(GRAY, [5]), augment(GRAY, [5]), augment(GRAY, [5], epoch=1)
    assert np.array_equal(first, again)
    assert abs(np.corrcoef(first.reshape(-1), other.reshape(-1))[0, 1]) < 0.03
    twice = Augment(Recipe(ops=(ops.Noise(std=(9.0, 9.0), p=1.0),) * 2), layout="NHWC")(GRAY, [5])
    assert np.std(twice) == pytest.approx(9.0 * np.sqrt(2), rel=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.Erase(scale=(0.5, 0.1)), r"scale=\(0.5, 0.1\) is not a range of shares of the area"),
        (lambda: ops.Erase(scale=(0.0, 0.1)), "smaller one first"),
        (lambda: ops.Erase(ratio=(0.0, 1.0)), r"ratio=\(0.0, 1.0\) is not a range within 0.01..100"),
        (lambda: ops.Erase(fill="black"), "fill='black' must be 'noise', 'mean' or three levels"),
        (lambda: ops.Erase(mean=(123.0, 116.0, 103.0)), "are given in 0..1. Divide 8-bit values by 255"),
        (lambda: ops.Noise(std=(-1.0, 2.0)), r"std=\(-1.0, 2.0\) leaves 0..255"),
        (lambda: ops.Noise(speckle=(3.0, 2.0)), "is not a range: its first number is the larger one"),
    ],
)
def test_impossible_fields_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("shape", "groups"), [((9, 12), [12]), ((10, 12), [8, 4]), ((10, 10), [4, 4, 2, 2]), ((1, 1), [6, 3, 2, 1])]
)
def test_cells_of_a_size_are_permuted_evenly(shape: tuple[int, int], groups: list[int]) -> None:
    recipe = Recipe(ops=(ops.GridShuffle(grid=(3, 4), p=1.0),))
    moves = plan(recipe, range(NUM), sizes=[shape] * NUM).rows["drawn"]["grid_shuffle"]["moves"]
    sources = moves + np.arange(12)
    assert (np.sort(sources, axis=1) == np.arange(12)).all()
    heights, widths = (np.diff(np.arange(num + 1) * side // num) for num, side in zip((3, 4), shape, strict=True))
    sizes = np.stack(np.meshgrid(heights, widths, indexing="ij"), axis=-1).reshape(12, 2)
    assert (sizes[sources] == sizes).all()
    found = []
    for size in np.unique(sizes, axis=0):
        (cells,) = np.nonzero((sizes == size).all(axis=1))
        found.append(len(cells))
        for cell in cells[len(cells) == 1 :]:
            assert stats.chisquare([(sources[:, cell] == source).sum() for source in cells]).pvalue > LEAST_P / 10
    assert sorted(found, reverse=True) == groups


def test_noise_that_channels_share_is_that_of_the_first() -> None:
    own, shared = (
        Augment(Recipe(ops=(ops.Noise(std=(9, 9), per_channel=each, p=1),)))(GRAY, [3]) for each in (True, False)
    )
    assert np.array_equal(shared, np.stack([own[0]] * 3)) and not np.array_equal(own[0], own[1])
