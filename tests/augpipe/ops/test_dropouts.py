"""GridDropout and PixelDropout: where their holes and pixels lie, and what cannot be asked for."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from augpipe import Augment, Recipe, ops, plan

WHITE = np.full((96, 120, 3), 255, np.uint8)
NUM = 2_000
LEAST_P = 1e-4


def holes(op: ops.Op, image: npt.NDArray[np.uint8] = WHITE, num: int = 1) -> npt.NDArray[np.bool_]:
    """(num, H, W, 3): what was filled with black."""
    made = Augment(Recipe(ops=(op,)), dtype="uint8", layout="NHWC", framework="numpy")([image] * num, range(num))
    return np.stack(list(made)) == 0


def test_each_cell_has_a_hole_of_its_share_at_a_place_of_its_own() -> None:
    found = holes(ops.GridDropout(grid=(8, 10), ratio=0.75, p=1.0), num=40)[..., 0]
    cells = found.reshape(40, 8, 12, 10, 12).swapaxes(2, 3).reshape(-1, 12, 12)
    assert (cells.sum((1, 2)) == 9 * 9).all() and (cells.any(1).sum(1) == 9).all()
    starts = np.stack([cells.any(2).argmax(1), cells.any(1).argmax(1)], axis=1)
    for axis in range(2):
        assert stats.chisquare(np.bincount(starts[:, axis], minlength=4)).pvalue > LEAST_P
    assert abs(np.corrcoef(starts.T)[0, 1]) < 5 / len(starts) ** 0.5


def test_cells_of_nearly_one_size_fill_the_view() -> None:
    (found,) = holes(ops.GridDropout(grid=(7, 9), ratio=1.0, place=(0, 0), p=1.0))[..., 0]
    for axis, num in enumerate((7, 9)):
        side = found.shape[axis]
        kept = np.flatnonzero(~found.any(axis=1 - axis)).tolist()
        assert kept == [side * nth // num - 1 for nth in range(1, num + 1)]


@pytest.mark.parametrize("fit", ["even", "cut"])
def test_all_holes_of_a_view_may_share_a_place(fit: str) -> None:
    op = ops.GridDropout(unit_px=(8, 8), ratio=0.5, place="shared", fit=fit, p=1.0)
    found = holes(op, num=30)[..., 0]
    for image in found:
        assert np.array_equal(image[:-8], image[8:]) and np.array_equal(image[:, :-8], image[:, 8:])
    assert len({image.tobytes() for image in found}) > 10


def test_cells_that_are_cut_off_have_the_size_of_the_others() -> None:
    (found,) = holes(ops.GridDropout(grid=(7, 9), fit="cut", place=(1, 2), p=1.0))[..., 0]
    (square,) = holes(ops.GridDropout(grid=(7, 9), fit="square", place=(1, 99), p=1.0))[..., 0]
    assert [np.diff(np.flatnonzero(np.diff(found.any(axis=axis).astype(int)))).tolist()[:4] for axis in (1, 0)] == [
        [6, 7, 6, 7],
        [6, 7, 6, 7],
    ]
    assert square.any(axis=1).tolist() == [1 <= y % 13 < 7 for y in range(96)]
    assert square.any(axis=0).tolist() == [x % 13 >= 7 for x in range(120)]


def test_sides_of_cells_are_evenly_distributed() -> None:
    recipe = Recipe(ops=(ops.GridDropout(unit_px=(5, 14), p=1.0),))
    sides = plan(recipe, range(NUM), sizes=[(96, 120)] * NUM).rows["drawn"]["grid_dropout"]["unit_px"]
    assert stats.chisquare(np.bincount(sides, minlength=15)[5:]).pvalue > LEAST_P


def test_a_view_that_is_smaller_than_its_cells_has_one() -> None:
    for shape in ((1, 1, 3), (2, 3, 3), (5, 1, 3)):
        found = holes(ops.GridDropout(unit_px=(50, 60), p=1.0), np.full(shape, 255, np.uint8), num=9)
        assert found.any() == (min(shape) > 1)
        assert holes(ops.GridDropout(fit="cut", p=1.0), np.full(shape, 255, np.uint8), num=9).any()


def test_pixels_are_dropped_by_their_share_and_independently() -> None:
    found = holes(ops.PixelDropout(share=(0.2, 0.2), p=1.0), num=30)
    assert np.array_equal(found[..., 0], found[..., 1]) and np.array_equal(found[..., 0], found[..., 2])
    one = found[..., 0].astype(float)
    assert abs(one.mean() - 0.2) < 5 * (0.16 / one.size) ** 0.5
    for a, b in [(one[:, 1:], one[:, :-1]), (one[:, :, 1:], one[:, :, :-1]), (one[1:], one[:-1])]:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / a.size**0.5


def test_channels_may_drop_pixels_of_their_own() -> None:
    found = holes(ops.PixelDropout(share=(0.3, 0.3), per_channel=True, p=1.0), num=10).astype(float)
    for a, b in pairwise((0, 1, 2, 0)):
        assert abs(np.corrcoef(found[..., a].ravel(), found[..., b].ravel())[0, 1]) < 5 / found[..., 0].size ** 0.5


@pytest.mark.parametrize(("share", "dropped"), [(0.0, False), (1.0, True)])
def test_none_and_all(share: float, dropped: bool) -> None:
    found = holes(ops.PixelDropout(share=(share, share), per_channel=True, p=1.0), num=4)
    assert (found == dropped).all()


def test_random_levels_are_those_of_a_view() -> None:
    augment = Augment(Recipe(ops=(ops.PixelDropout(share=(1.0, 1.0), fill="random", p=1.0),)), dtype="uint8")
    found = np.stack(list(augment([WHITE] * 300, range(300))))
    assert (found == found[:, :, :1, :1]).all()
    assert stats.kstest(found[:, :, 0, 0].ravel() / 255, "uniform").pvalue > LEAST_P


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.GridDropout(ratio=0.0), "ratio=0.0 must be above 0"),
        (lambda: ops.GridDropout(ratio=1.1), "ratio=1.1 must be at most 1"),
        (lambda: ops.GridDropout(grid=(0, 3)), r"grid=\(0, 3\) must be two numbers of cells in 1..32767"),
        (lambda: ops.GridDropout(unit_px=(1, 9)), r"unit_px=\(1, 9\) must be two whole numbers of pixels in 2..65535"),
        (lambda: ops.GridDropout(unit_px=(9, 5)), r"unit_px=\(9, 5\) is not a range: .* Swap them"),
        (
            lambda: ops.GridDropout(unit_px=(5, 9), grid=(3, 3)),
            "both say how large the cells are. Leave one of them out",
        ),
        (lambda: ops.GridDropout(place=(-1, 0)), r"place=\(-1, 0\) must be 'own', 'shared' or two numbers of pixels"),
        (lambda: ops.GridDropout(fill=300), "fill=300 must be three levels in 0..255"),
        (lambda: ops.PixelDropout(share=(0.5, 1.5)), r"share=\(0.5, 1.5\) leaves 0..1"),
        (lambda: ops.PixelDropout(share=(0.5, 0.1)), "is not a range: its first number is the larger one"),
        (lambda: ops.PixelDropout(fill="black"), "fill='black' must be 'random', three levels in 0..255"),
    ],
)
def test_impossible_fields_are_refused(make: Callable[[], ops.Op], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("length", [11, 40, 200])
def test_rectangles_from_centers_are_those_of_cutout(length: int) -> None:
    """As albumentations 1.3.1 makes them of each centre: clipped, and from there as long as there is room."""
    op = ops.CoarseDropout(num=(1, 1), height=(length,) * 2, width=(length,) * 2, from_centers=True, p=1.0)
    edges = plan(Recipe(ops=(op,)), range(4_000), sizes=[(30, 50)] * 4_000).rows["drawn"]["coarse_dropout"]["edges"]
    for axis, side in ((0, 50), (1, 30)):
        first = np.clip(np.arange(side + 1) - length // 2, 0, side)
        expected = np.bincount(first * 1_000 + np.clip(first + length, 0, side))
        found = np.bincount(edges[:, 0, axis] * 1_000 + edges[:, 0, axis + 2], minlength=len(expected))
        assert not found[np.flatnonzero(expected == 0)].any() and len(found) == len(expected)
        if (expected > 0).sum() > 1:
            shares = expected[expected > 0] / expected.sum()
            assert stats.chisquare(found[expected > 0], 4_000 * shares).pvalue > 1e-4
