"""Shadow: how many polygons there are, where their corners lie, and what cannot be asked for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from augpipe import Augment, Recipe, ops, plan

SHAPE = 90, 120
NUM = 3_000
LEAST_P = 1e-4


def drawn_of(op: ops.Shadow) -> Any:
    return plan(Recipe(ops=(op,)), range(NUM), sizes=[SHAPE] * NUM).rows["drawn"]["shadow"]


def test_corners_lie_anywhere_in_the_region() -> None:
    drawn = drawn_of(ops.Shadow(num=(2, 4), num_corners=4, region=(0.25, 0.5, 0.75, 1.0), loss=(0.2, 0.6), p=0.5))
    assert stats.chisquare(np.bincount(drawn["num"][drawn["num"] > 0] - 2, minlength=3)).pvalue > LEAST_P
    assert stats.binomtest(int((drawn["num"] > 0).sum()), NUM).pvalue > LEAST_P
    for axis, (first, end) in enumerate([(30, 90), (45, 90)]):
        counts = np.bincount(drawn["at"][..., axis].ravel(), minlength=end)
        assert len(counts) == end and not counts[:first].any()
        assert stats.chisquare(counts[first:]).pvalue > LEAST_P
    assert stats.kstest((drawn["loss"].ravel() - 0.2) / 0.4, "uniform").pvalue > LEAST_P


def test_a_region_without_room_is_a_pixel() -> None:
    drawn = drawn_of(ops.Shadow(region=(1.0, 0.5, 1.0, 0.5), p=1.0))
    assert (drawn["at"] == (120, 45)).all()


@pytest.mark.parametrize(("of", "expected"), [("levels", [32, 16]), ("lightness", [64, 64])])
def test_where_polygons_meet(of: Any, expected: list[int]) -> None:
    """Levels lose light to each polygon; lightness to the darkest one."""
    op = ops.Shadow(num=(3, 4), num_corners=8, region=(0, 0, 1, 1), of=of, p=1.0)
    image = np.full((60, 60, 3), 128, np.uint8)
    augment = Augment(Recipe(ops=(op,)), dtype="uint8", framework="numpy")
    found = np.unique(np.stack(list(augment([image] * 50, range(50)))))
    assert set(found) == {128, 64, *expected} | ({8} if of == "levels" else set())


def test_lightness_keeps_hue_and_saturation() -> None:
    op = ops.Shadow(num=(4, 4), num_corners=8, region=(0, 0, 1, 1), of="lightness", p=1.0)
    augment = Augment(Recipe(ops=(op,)), layout="NHWC", framework="numpy")
    found = np.stack(list(augment([np.full((60, 60, 3), (200, 220, 255), np.uint8)] * 4, range(4)))).reshape(-1, 3)
    colours = np.unique(np.round(found, 2), axis=0)
    np.testing.assert_allclose(colours, [[0.0, 82.73, 227.5], [200.0, 220.0, 255.0]], atol=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.Shadow(num=(0, 2)), r"num=\(0, 2\) must be two numbers of polygons in 1..8"),
        (lambda: ops.Shadow(num=(3, 2)), r"num=\(3, 2\) must hold the smaller number first"),
        (lambda: ops.Shadow(num_corners=2), "num_corners=2 must be at least 3"),
        (lambda: ops.Shadow(num=(1, 8)), "are up to 40 corners, and there is room for 32 in all. Lower one of them"),
        (
            lambda: ops.Shadow(region=(0, 0.5, 1, 1.5)),
            "must be left, top, right and bottom in 0..1",
        ),
        (
            lambda: ops.Shadow(region=(0.5, 0, 0.4, 1)),
            "must be left, top, right and bottom in 0..1",
        ),
        (lambda: ops.Shadow(loss=(0.5, 1.5)), r"loss=\(0.5, 1.5\) leaves 0..1"),
        (lambda: ops.Shadow(loss=(0.5, 0.1)), "is not a range: its first number is the larger one"),
        (lambda: ops.Shadow(of="hue"), "of='hue'"),
    ],
)
def test_impossible_fields_are_refused(make: Callable[[], ops.Op], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
