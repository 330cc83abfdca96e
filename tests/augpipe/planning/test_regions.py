"""The rectangles of images that are decoded, where they can be worked out by hand."""

import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Recipe, View, ops, plan, recipes
from augpipe.gpu_ops.image.rows import REFLECT, REFLECT_101, WRAP
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.regions import _limits, source_regions
from augpipe.recipes.recipe import Border

Float = npt.NDArray[np.float64]


def regions_of(recipe: Recipe, *sizes: tuple[int, int], factor: int = 1, seed: int = 0) -> npt.NDArray[np.int32]:
    """(B, 4) for images of (height, width) `sizes`, decoded at 1/`factor`."""
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
def test_a_whole_image_unchanged(border: Border) -> None:
    assert regions_of(Recipe(border=border), (37, 51)).tolist() == [[0, 0, 51, 37]]


@pytest.mark.parametrize(("border", "width"), [("context", 100), ("reflect", 20), ("edge", 20), ("constant", 20)])
def test_what_lies_around_the_crop_is_read_with_context_alone(border: Border, width: int) -> None:
    """A stretch to a fifth shows five times the crop's width, which is the image's."""
    recipe = Recipe(border=border, ops=(ops.CenterCrop(size=20), ops.Stretch(horizontal=(0.2, 0.2), vertical=(1, 1))))
    ((left, top, right, bottom),) = regions_of(recipe, (100, 100)).tolist()
    assert right - left == width and left == (100 - width) // 2
    assert 20 <= bottom - top <= 22


@pytest.mark.parametrize(
    ("size", "scale"),
    [
        (55, 165),  # 55 * (21 / 165) is a little less than 7
        (25, 75),  # 50 * (21 / 75) is a little more than 14
    ],
)
@pytest.mark.parametrize("border", ["reflect", "edge", "constant"])
def test_a_crop_that_rounding_made_larger_is_as_it_should_be(border: Border, size: int, scale: int) -> None:
    """The middle third of 21 pixels, seen from so far that all of it is read, and nothing else."""
    stretch = ops.Stretch(horizontal=(0.2, 0.2), vertical=(0.2, 0.2))
    recipe = Recipe(border=border, ops=(ops.CenterCrop(size=size, scale=scale), stretch))
    (crop,) = plan(recipe, [0], sizes=[(21, 21)]).rows["crop"]
    assert crop.tolist() != [7, 7, 14, 14]
    np.testing.assert_allclose(crop, [7, 7, 14, 14], rtol=1e-14)
    assert regions_of(recipe, (21, 21)).tolist() == [[7, 7, 14, 14]]


@pytest.mark.parametrize("border", ["reflect", "edge", "constant"])
def test_a_pixel_that_a_crop_holds_a_sliver_of_is_part_of_it(border: Border) -> None:
    """From 1365 / 4096 to 2731 / 4096 of 21 pixels: within 0.002 of 7 and 14, outside of them."""
    stretch = ops.Stretch(horizontal=(0.2, 0.2), vertical=(0.2, 0.2))
    recipe = Recipe(border=border, ops=(ops.CenterCrop(size=1366, scale=4096), stretch))
    assert regions_of(recipe, (21, 21)).tolist() == [[6, 6, 15, 15]]


@pytest.mark.parametrize("axis", ["x", "y"])
@pytest.mark.parametrize(
    ("border", "shift", "expected"),
    [
        # taps from 60 to 100, where the crop ends at 70; mirrored about its end, the last of them is 39
        ("reflect", 30.25, (39, 70)),
        ("edge", 30.25, (60, 70)),
        ("constant", 30.25, (60, 70)),
        # taps from -1 to 39, where the crop begins at 30; mirrored, the first of them is 60
        ("reflect", -30.25, (30, 61)),
        # the last of them is 30 + (30 - -1) without the outermost pixel twice, and 69 + (0 - 1) of a repeated crop
        ("reflect_101", -30.25, (30, 62)),
        ("wrap", -30.25, (30, 70)),
        ("wrap", 0.0, (30, 70)),
        ("edge", -30.25, (30, 40)),
        ("constant", -30.25, (30, 40)),
    ],
)
def test_mirrored_pixels_are_held(axis: str, border: Border, shift: float, expected: tuple[int, int]) -> None:
    """A frame moved out of its crop by 30 of 40 pixels sees 10 of the crop's columns, and mirrored 20 more."""
    table = kernel_rows(plan(Recipe(border=border, ops=(ops.CenterCrop(size=40),)), [0], sizes=[(100, 100)]).rows)
    table[f"offset_{axis}"] += shift
    kinds = {"reflect": REFLECT, "reflect_101": REFLECT_101, "wrap": WRAP}
    table["reflects"], table["is_constant"] = kinds.get(border, 0), border == "constant"
    ((left, top, right, bottom),) = source_regions([table], [(40, 40)]).tolist()
    assert ((left, right) if axis == "x" else (top, bottom)) == expected


def looked_up(x: Float, y: Float, k1: float, k2: float, k3: float, p1: float, p2: float) -> Float:
    """(2, N): where the lens looks points up, by the formula in `BrownConrady`'s docstring."""
    r2 = x * x + y * y
    gain = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
    bent_x = x * gain + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    return np.stack([bent_x, y * gain + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y])


@pytest.mark.parametrize(
    ("lens", "most"),
    [
        ((0.3, 0.0, 0.0, 0.0, 0.0), 1.001),
        ((-0.3, 0.0, 0.0, 0.0, 0.0), 1.001),
        ((0.0, 0.2, 0.0, 0.0, 0.0), 1.001),
        ((0.0, 0.0, 0.1, 0.0, 0.0), 1.001),
        ((0.3, 0.2, 0.1, 0.0, 0.0), 1.001),
        ((-0.3, 0.2, 0.0, 0.0, 0.0), 4.0),
        ((0.0, 0.0, 0.0, 0.1, 0.0), 1.2),
        ((0.0, 0.0, 0.0, 0.0, -0.1), 1.2),
        ((0.0, 0.0, 0.0, 0.1, 0.1), 1.7),
        ((0.3, 0.0, 0.0, -0.1, 0.0), 1.2),
    ],
)
def test_the_limits_of_a_lens_are_kept_and_not_far_off(lens: tuple[float, ...], most: float) -> None:
    """Up to the radius of 0.9 nothing bends more than the limit, and the most is not below it by a factor of `most`."""
    rng = np.random.default_rng(0)
    angle, direction = rng.uniform(0, 2 * np.pi, (2, 20_000))
    angle[:1000] = direction[:1000] = np.arange(1000) * (2 * np.pi / 1000)  # where radial lenses bend most
    radius = 0.9 * np.where(np.arange(20_000) < 10_000, 1.0, np.sqrt(rng.uniform(0, 1, 20_000)))
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    step_x, step_y = 1e-3 * np.cos(direction), 1e-3 * np.sin(direction)
    middle = looked_up(x, y, *lens)
    beside = looked_up(x + step_x, y + step_y, *lens) + looked_up(x - step_x, y - step_y, *lens)
    length, curvature = np.hypot(*middle).max(), np.hypot(*(beside - 2 * middle)).max() / 1e-6
    limits = _limits(np.array([[0.81]]), *(np.array([[value]]) for value in lens))
    (longest,), (bent_most,) = (limit[0] for limit in limits)
    assert length * (1 - 1e-9) <= longest <= length * 2
    assert curvature * (1 - 1e-5) <= bent_most <= curvature * most


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


@pytest.mark.parametrize("lens", [(0.0, 0.0, 0.0, 0.0, 0.0), (0.3, -0.1, 0.05, 0.02, -0.03)], ids=["plain", "lens"])
def test_projections_that_run_up_to_the_horizon_and_beyond(lens: tuple[float, ...]) -> None:
    """Beside every look-up of every pixel, worked out here: nothing is missing, and without a lens little is too much.

    The image is so large that no border hides a bound that is too low.
    """
    rng = np.random.default_rng(0)
    num, height, width = 600, 17, 24
    table = np.tile(
        kernel_rows(plan(Recipe(ops=(ops.CenterCrop(size=(17, 24)),)), [0], sizes=[(60_000, 60_000)]).rows), num
    )
    for name in ("before_xx", "before_xy", "before_yx", "before_yy"):
        table[name] = rng.uniform(-0.06, 0.06, num)
    for name in ("before_x0", "before_y0"):
        table[name] = rng.uniform(-0.5, 0.5, num)
    for name in ("before_wx", "before_wy"):
        table[name] = rng.uniform(-0.06, 0.06, num)
    table["before_w0"] = rng.uniform(-0.5, 1.5, num)
    table["after_xx"], table["after_yy"], table["has_lens"], table["has_projection"] = 20.0, 30.0, 1, 1
    for name, value in zip(("k1", "k2", "k3", "p1", "p2"), lens, strict=True):
        table[name] = value
    y, x = np.mgrid[:height, :width] - np.array([(height - 1) / 2, (width - 1) / 2])[:, None, None]
    t = {name: table[name].astype(np.float64)[:, None, None] for name in table.dtype.names if table[name].ndim == 1}
    divisor = t["before_wx"] * x + t["before_wy"] * y + t["before_w0"]
    u = (t["before_xx"] * x + t["before_xy"] * y + t["before_x0"]) / np.maximum(divisor, 0.125)
    v = (t["before_yx"] * x + t["before_yy"] * y + t["before_y0"]) / np.maximum(divisor, 0.125)
    u, v = looked_up(u, v, *lens)
    seen_x, seen_y = 20 * u + t["offset_x"] - 0.5 + t["origin_x"], 30 * v + t["offset_y"] - 0.5 + t["origin_y"]
    seen_x, seen_y = np.clip(seen_x, 0.0, 59_999.0), np.clip(seen_y, 0.0, 59_999.0)
    regions = source_regions([table], [(height, width)])
    at_corners = divisor[:, :: height - 1, :: width - 1]
    is_in_front = at_corners.min(axis=(1, 2)) > 0.126
    assert 100 < is_in_front.sum() < 500
    ends = [f(s, axis=(1, 2)) for f, s in ((np.min, seen_x), (np.min, seen_y), (np.max, seen_x), (np.max, seen_y))]
    assert (regions[:, 0] <= ends[0]).all() and (regions[:, 1] <= ends[1]).all()
    assert (regions[:, 2] >= ends[2] + 1).all() and (regions[:, 3] >= ends[3] + 1).all()
    if not any(lens):
        too_much = np.abs(regions[is_in_front] - np.stack(ends, axis=1)[is_in_front]).max()
        assert too_much < 3.5


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
def test_pixels_are_those_of_the_image_as_decoded(factor: int) -> None:
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
        changed["has_lens"] |= name == "k3"  # without one the kernel looks at no coefficient
        ((left, top, right, bottom),) = source_regions([changed], [(224, 224)]).tolist()
        if name != "after_yy":
            assert (left, right) == (0, 500), name
        if name in ("k3", "after_yy"):
            assert (top, bottom) == (0, 375), name


@pytest.mark.parametrize(("scale", "least", "most"), [(256, 0.5, 0.7), (512, 0.12, 0.2)])
def test_much_is_left_out(scale: int, least: float, most: float) -> None:
    """The mean share of an image's area that the papers' recipe reads."""
    recipe = recipes.deep_image(224, (scale,))
    sizes = [(375, 500), (500, 375), (333, 500), (480, 640)] * 50
    drawn = plan(recipe, range(200), sizes=sizes)
    regions = source_regions([kernel_rows(drawn.rows, dct_factors(drawn.views))], [(224, 224)])
    sides = regions[:, 2:] - regions[:, :2]
    assert least < (sides.prod(axis=1) / np.prod(sizes, axis=1)).mean() < most


def test_outputs_of_several_sizes_are_looked_at_together() -> None:
    bent = (ops.Rotate(p=0.5), ops.BrownConrady(p=0.5), ops.Perspective(p=0.5))
    recipe = Recipe(ops=(ops.Transpose(swaps_sides=True, p=0.5), *bent), border="reflect")
    drawn = plan(recipe, range(40), sizes=[(30 + nth, 95 - 2 * nth) for nth in range(40)]).rows
    table, sizes = kernel_rows(drawn), np.stack([drawn["out_height"], drawn["out_width"]], axis=1)
    together = source_regions([table], [sizes])
    alone = [source_regions([table[n : n + 1]], [(height, width)]) for n, (height, width) in enumerate(sizes.tolist())]
    np.testing.assert_array_equal(together, np.concatenate(alone))
