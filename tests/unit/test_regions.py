"""The rectangles of photographs that are decoded, where they can be worked out by hand."""

import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Recipe, View, ops, plan, recipes
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.regions import source_regions
from augpipe.recipe import Border


def regions_of(recipe: Recipe, *sizes: tuple[int, int], factor: int = 1, seed: int = 0) -> npt.NDArray[np.int32]:
    """(B, 4) for photographs of (height, width) `sizes`, decoded at 1/`factor`."""
    drawn = plan(recipe, range(len(sizes)), sizes=sizes, seed=seed)
    tables = [kernel_rows(rows, np.full(len(rows), factor)) for rows in drawn.views]
    outputs = [(int(rows["out_height"][0]), int(rows["out_width"][0])) for rows in drawn.views]
    return source_regions(tables, outputs)


def test_a_crop_at_its_own_size_and_one_pixel_around_it() -> None:
    """Bilinear taps of weight 0 are read too, and rounding is allowed for: one pixel each side at most."""
    recipe = Recipe(ops=(ops.CenterCrop(size=(20, 30)),))
    (region,) = regions_of(recipe, (100, 200)).tolist()
    left, top, right, bottom = region
    assert 84 <= left <= 85 and 115 <= right <= 117
    assert 39 <= top <= 40 and 60 <= bottom <= 62


def test_types_and_an_empty_batch() -> None:
    recipe = recipes.deep_image()
    regions = regions_of(recipe, (375, 500), (500, 375), (300, 300))
    assert regions.shape == (3, 4) and regions.dtype == np.int32
    empty = plan(recipe, [], sizes=np.empty((0, 2)))
    assert source_regions([kernel_rows(empty.rows)], [(224, 224)]).shape == (0, 4)


@pytest.mark.parametrize("border", ["context", "reflect", "edge", "constant"])
def test_a_whole_photograph_unchanged(border: Border) -> None:
    assert regions_of(Recipe(border=border), (37, 51)).tolist() == [[0, 0, 51, 37]]


@pytest.mark.parametrize(("border", "width"), [("context", 100), ("reflect", 20), ("edge", 20), ("constant", 20)])
def test_what_lies_around_the_crop_is_read_with_context_alone(border: Border, width: int) -> None:
    """A stretch to a fifth shows five times the crop's width, which is the photograph's."""
    recipe = Recipe(border=border, ops=(ops.Stretch(horizontal=(0.2, 0.2), vertical=(1, 1)), ops.CenterCrop(size=20)))
    ((left, top, right, bottom),) = regions_of(recipe, (100, 100)).tolist()
    assert right - left == width and left == (100 - width) // 2
    assert 20 <= bottom - top <= 22


@pytest.mark.parametrize("shift", [30.0, -30.0])
@pytest.mark.parametrize("border", ["reflect", "edge", "constant"])
def test_mirrored_pixels_are_held(border: Border, shift: float) -> None:
    """A frame moved out of its crop by 30 of 40 pixels sees 10 of the crop's columns, and mirrored 20 more."""
    table = kernel_rows(plan(Recipe(border=border, ops=(ops.CenterCrop(size=40),)), [0], sizes=[(100, 100)]).rows)
    table["offset_x"] += shift  # taps from 60 to 100 or a pixel more, where the crop ends at 70; or from 0 to 40
    table["reflects"], table["is_constant"] = border == "reflect", border == "constant"
    ((left, _, right, _),) = source_regions([table], [(40, 40)]).tolist()
    at_the_end, inner = (right == 70, left) if shift > 0 else (left == 30, 100 - right)
    assert at_the_end
    assert inner in ((38, 39, 40, 41) if border == "reflect" else (58, 59, 60))


def test_float32_is_allowed_for() -> None:
    """Coordinates that end beside a whole number: the kernel's float32 may take the tap before or after it."""
    rng = np.random.default_rng(0)
    table = np.tile(kernel_rows(plan(Recipe(ops=(ops.CenterCrop(size=32),)), [0], sizes=[(500, 500)]).rows), 4000)
    table["after_xx"] = rng.uniform(0.3, 3.0, len(table))
    table["support_x"] = np.maximum(table["after_xx"], 1.0)
    edge = np.float32(-15.5)
    wanted = rng.integers(-100, 100, len(table)).astype(np.float32)
    table["offset_x"] = wanted + table["support_x"] + np.float32(0.5) - table["after_xx"] * edge
    regions = source_regions([table], [(32, 32)])
    coordinate = table["after_xx"] * edge + (table["offset_x"] - np.float32(0.5))
    assert coordinate.dtype == np.float32
    fused = np.float32(table["after_xx"].astype(np.float64) * edge + (table["offset_x"] - np.float32(0.5)))
    for rounded in (coordinate, fused):  # a*b + c as two operations, and as one
        first = np.floor(rounded - table["support_x"]) + 1.0 + table["origin_x"]
        assert len({0.0, -1.0} & set((first - table["origin_x"] - wanted - 1.0).tolist())) == 2
        assert (regions[:, 0] <= first).all()


def test_wrapping_round_more_than_once_takes_all() -> None:
    recipe = Recipe(border="reflect", ops=(ops.Stretch(horizontal=(0.1, 0.1), vertical=(0.1, 0.1)),))
    assert regions_of(recipe, (9, 14)).tolist() == [[0, 0, 14, 9]]


def test_all_views_of_a_sample_share_one_rectangle() -> None:
    crops = [ops.MultiResolutionCrop(size=size, scales=(scale,)) for size, scale in ((16, 200), (24, 100), (8, 300))]
    both = Recipe(views=tuple(View(ops=(crop,)) for crop in crops))
    sizes = [(100, 160)] * 20
    drawn = plan(both, range(20), sizes=sizes)
    tables = [kernel_rows(rows) for rows in drawn.views]
    outputs = [(crop.size, crop.size) for crop in crops]
    alone = np.stack([source_regions([table], [size]) for table, size in zip(tables, outputs, strict=True)])
    together = source_regions(tables, outputs)  # type: ignore[arg-type]
    np.testing.assert_array_equal(together[:, :2], alone[:, :, :2].min(axis=0))
    np.testing.assert_array_equal(together[:, 2:], alone[:, :, 2:].max(axis=0))
    assert (together != alone).any(axis=(1, 2)).all()


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_pixels_are_those_of_the_photograph_as_decoded(factor: int) -> None:
    recipe = Recipe(ops=(ops.CenterCrop(size=32, scale=128),))
    ((left, top, right, bottom),) = regions_of(recipe, (1027, 2051), factor=factor).tolist()
    # the crop covers (1027 / 128) * 32 = 256.75 pixels, and the filter as much as an output pixel on each side
    for first, last, length in ((left, right, 2051), (top, bottom, 1027)):
        assert abs((first + last) / 2 - length / factor / 2) < 4.1 / factor + 1  # the crop lies on resized pixels
        assert 256.75 / factor <= last - first <= (256.75 + 3 * 1027 / 128) / factor + 4
    assert regions_of(Recipe(), (1027, 2051), factor=factor).tolist() == [
        [0, 0, -(-2051 // factor), -(-1027 // factor)]
    ]


def test_what_cannot_be_bounded_takes_all() -> None:
    table = kernel_rows(plan(recipes.deep_image(), [0], sizes=[(375, 500)]).rows)
    for name, value in (("k3", 1e30), ("after_xx", np.inf), ("after_yy", np.nan), ("offset_x", 1e9)):
        changed = table.copy()
        changed[name] = value
        ((left, top, right, bottom),) = source_regions([changed], [(224, 224)]).tolist()
        if name != "after_yy":
            assert (left, right) == (0, 500), name
        if name in ("k3", "after_yy"):
            assert (top, bottom) == (0, 375), name


@pytest.mark.parametrize(("scale", "least", "most"), [(256, 0.5, 0.7), (512, 0.12, 0.2)])
def test_much_is_left_out(scale: int, least: float, most: float) -> None:
    """The mean share of a photograph's area that the papers' recipe reads."""
    recipe = recipes.deep_image(224, (scale,))
    sizes = [(375, 500), (500, 375), (333, 500), (480, 640)] * 50
    drawn = plan(recipe, range(200), sizes=sizes)
    regions = source_regions([kernel_rows(drawn.rows, dct_factors(drawn.views))], [(224, 224)])
    sides = regions[:, 2:] - regions[:, :2]
    assert least < (sides.prod(axis=1) / np.prod(sizes, axis=1)).mean() < most
