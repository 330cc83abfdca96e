"""Rendering from the rectangle that is decoded gives the bits of rendering from the whole image."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from augpipe import Recipe, View, ops, plan, recipes
from augpipe.gpu_ops.image import aligned
from augpipe.gpu_ops.image.copied_levels import copy_levels
from augpipe.gpu_ops.image.fused import bends, jobs_per_image, run_jobs
from augpipe.gpu_ops.jit import kernel
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.plan import refusals
from augpipe.planning.regions import source_regions
from tests.augpipe.loader.loader_sources import run_python
from tests.parity import strategies

Pixels = npt.NDArray[np.uint8]
NUM = 3
"""Images a recipe."""

SIDES = st.one_of(st.integers(1, 12), st.integers(13, 240))


@kernel()
def is_aligned(row):
    return aligned.is_aligned(row)


@st.composite
def recipes_of_views(draw: st.DrawFn) -> Recipe:
    """Recipes of one to three views."""
    chains = draw(st.lists(strategies.chains(), min_size=1, max_size=3))
    return Recipe(views=[View(ops=chain) for chain in chains], **draw(strategies.borders_of(*chains))).fused()


def render(image: Pixels, first_x: int, first_y: int, row: npt.NDArray[np.void], size: tuple[int, int]) -> Any:
    """The output from an (H, W, 4) array that begins at a pixel of the image, or (H, W, 3); its rows may be strided."""
    out = np.empty(size[0] * size[1] * 3, np.float32)
    rgb_rows = np.array(image.strides[:1]) if image.shape[2] == 3 else None
    table = np.array([[image.ctypes.data, image.strides[0] // 4, first_x, first_y]], np.int64)
    run_jobs(table, row, out, *size, True, 0, jobs_per_image(size[0]), rgb_rows)
    return out


def copied(image: Pixels, first_x: int, first_y: int, row: npt.NDArray[np.void], size: tuple[int, int]) -> Any:
    """The same where all pixels are whole, by tables that leave levels as they are."""
    out, tables = np.empty(size[0] * size[1] * 3, np.uint8), np.tile(np.arange(256, dtype=np.uint8), (1, 3, 1))
    table = np.array([[image.ctypes.data, 0, first_x, first_y]], np.int64)
    copy_levels(table, row, np.zeros(1, np.int64), tables, out, *size, True, np.array(image.strides[:1]))
    return out


def assert_rectangles_hold_all_that_is_read(
    recipe: Recipe, size: tuple[int, int], factor: int, seed: int
) -> npt.NDArray[np.int32]:
    """Compare for NUM images of (height, width) `size`, decoded at 1/`factor`; returns the rectangles."""
    drawn = plan(recipe, range(NUM), sizes=[size] * NUM, seed=seed)
    tables = [kernel_rows(rows, np.full(NUM, factor)) for rows in drawn.views]
    outputs = [(int(rows["out_height"][0]), int(rows["out_width"][0])) for rows in drawn.views]
    regions = source_regions(tables, outputs)
    height, width = (-(-side // factor) for side in size)
    rng = np.random.default_rng(seed)
    for position, (left, top, right, bottom) in enumerate(regions.tolist()):
        assert 0 <= left < right <= width and 0 <= top < bottom <= height
        image = rng.integers(0, 256, (height, width, 4), np.uint8)
        other = image ^ rng.integers(1, 256, image.shape, np.uint8)  # each byte is another
        other[top:bottom, left:right] = image[top:bottom, left:right]
        alone = image[top:bottom, left:right].copy()
        for table, output in zip(tables, outputs, strict=True):
            row = table[position : position + 1]
            expected = render(image, 0, 0, row, output)
            np.testing.assert_array_equal(render(other, 0, 0, row, output), expected)
            np.testing.assert_array_equal(render(alone, left, top, row, output), expected)
            if is_aligned(row[0]) and not bends(row):
                np.testing.assert_array_equal(render(image[:, :, :3].copy(), 0, 0, row, output), expected)
                np.testing.assert_array_equal(render(alone[:, :, :3].copy(), left, top, row, output), expected)
    return regions


@settings(max_examples=50)
@given(
    recipe=st.one_of(strategies.recipes(), recipes_of_views()),
    size=st.tuples(SIDES, SIDES),
    factor=st.sampled_from([1, 1, 2, 4, 8]),
    seed=st.integers(0, 2**32),
)
def test_nothing_outside_is_read(recipe: Recipe, size: tuple[int, int], factor: int, seed: int) -> None:
    assume(refusals(recipe, [size]) == [None])
    assert_rectangles_hold_all_that_is_read(recipe, size, factor, seed)


FOLDING = Recipe(
    ops=(
        ops.LensDistortion(kinds=("pincushion",), max_strength=0.33),
        ops.Stretch(horizontal=(0.2, 0.4), vertical=(0.2, 0.4)),
        ops.MultiResolutionCrop(size=40, scales=(150,)),
    )
)
"""Points are looked up far outside the frame, where the lens turns the image over."""

NARROW = Recipe(
    ops=(
        ops.BrownConrady(k1=(0.5, 0.5), p1=(0.0, 0.0), p2=(-0.4, 0.4)),
        ops.RandomResizedCrop(size=(60, 1), scale=(0.05, 0.05), ratio=(1 / 60, 1 / 60)),
    )
)
"""Beside a crop one pixel wide the lens sees other columns: where that is at an end, further out than further in."""


MOVED = Recipe(
    ops=(
        ops.Translate(horizontal=(-0.9, 0.9), vertical=(-0.9, 0.9)),
        ops.LensDistortion(),
        ops.Translate(horizontal=(-0.5, 0.5), vertical=(-0.5, 0.5)),
        ops.Shear(horizontal_deg=(-60, 60), about="corner"),
        ops.MultiResolutionCrop(size=30, scales=(60, 120)),
    )
)
PROJECTED = Recipe(
    ops=(ops.Rotate(max_deg=180, step=None), ops.Perspective(), ops.MultiResolutionCrop(size=40, scales=(100, 300)))
)
BENT_AND_PROJECTED = Recipe(
    ops=(
        ops.BrownConrady(k1=(-0.1, 0.4), k2=(0.0, 0.2), k3=(0.0, 0.1), p1=(-0.05, 0.05), p2=(-0.05, 0.05)),
        ops.Stretch(),
        ops.Perspective(distortion=0.6),
        ops.Translate(p=0.5),
        ops.MultiResolutionCrop(size=(30, 50), scales=(80, 300)),
    )
)
HORIZON = Recipe(ops=(ops.Perspective(distortion=0.7), ops.Zoom(factor=(0.05, 0.3)), ops.CenterCrop(size=31, scale=90)))
"""The frame holds the horizon, and what lies behind it."""
BENT_BETWEEN_NODES = Recipe(
    ops=(
        ops.Rotate(max_deg=30, step=None),
        ops.OneOf(
            ops=(
                ops.GridDistortion(num_steps=4, distort_limit=(-1.0, 1.0), normalized=False),
                ops.ElasticTransform(alpha=300, sigma=4, affine_px=40, p=1.0),
                ops.OpticalDistortion(k=(-1.0, 1.0)),
            )
        ),
        ops.Perspective(distortion=0.3, p=0.5),
        ops.MultiResolutionCrop(size=(30, 50), scales=(80, 300)),
    )
)
BLURRED = Recipe(
    ops=(ops.Rotate(), ops.Blur(sigma_px=(0.1, 4.0), p=0.8), ops.MultiResolutionCrop(size=20, scales=(50, 99)))
)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("border", strategies.BORDERS)
@pytest.mark.parametrize(
    ("recipe", "size"),
    [
        (MOVED, (120, 90)),
        (PROJECTED, (150, 201)),
        (PROJECTED, (40, 3_000)),
        (BENT_AND_PROJECTED, (150, 201)),
        (HORIZON, (120, 90)),
        (BLURRED, (150, 110)),
        (BENT_BETWEEN_NODES, (150, 201)),
        (recipes.deep_image(60, (64, 128)), (150, 201)),
        (recipes.deep_image(224, (512,)), (375, 500)),
        (recipes.deep_image(64, (400,)), (300, 6_000)),
        (FOLDING, (300, 400)),
        (NARROW, (60, 20)),
        (Recipe(ops=(ops.Rotate(max_deg=180, step=None), ops.BrownConrady(), ops.CenterCrop(size=9))), (41, 77)),
        (Recipe(ops=(ops.Stretch(horizontal=(0.05, 0.05), vertical=(2, 2)), ops.CenterCrop(size=30))), (31, 44)),
    ],
)
@pytest.mark.parametrize("factor", [1, 2])
def test_recipes_that_reach_far(recipe: Recipe, size: tuple[int, int], border: Any, factor: int) -> None:
    changed = recipe.model_copy(update={"border": border})
    for seed in range(4):
        assert_rectangles_hold_all_that_is_read(changed, size, factor, seed)


def lens(**fixed: float) -> ops.BrownConrady:
    zero = dict.fromkeys(("k1", "k2", "k3", "p1", "p2"), 0.0)
    return ops.BrownConrady(**{name: (value, value) for name, value in (zero | fixed).items()})


@pytest.mark.parametrize(
    "chosen",
    [
        (ops.Rotate(max_deg=7, step=7),),
        (ops.Stretch(horizontal=(0.8, 0.8), vertical=(0.9, 0.9)),),
        *((lens(**{name: 0.16}),) for name in ("k1", "k2", "k3")),
        *((lens(**{name: value}),) for name in ("p1", "p2") for value in (-0.16, 0.16)),
        (ops.Translate(horizontal=(0.2, 0.2), vertical=(-0.1, -0.1)),),
        (lens(k1=0.16), ops.Translate(horizontal=(0.2, 0.2), vertical=(-0.1, -0.1))),
        (lens(p1=0.1), ops.Shear(horizontal_deg=(20, 20), vertical_deg=(-10, -10), about="corner")),
        (ops.Shear(horizontal_deg=(30, 30), vertical_deg=(0, 0)),),
        (ops.Shear(horizontal_deg=(30, 30), vertical_deg=(35, 35), order="at_once"),),
        (ops.Perspective(distortion=0.3),),
        (lens(k1=0.16), ops.Perspective(distortion=0.2), ops.Translate(horizontal=(0.1, 0.1))),
        (ops.Blur(sigma_px=(1.5, 1.5), p=1.0),),
        (ops.GridDistortion(num_steps=3, distort_limit=(0.1, 0.1), normalized=False),),
        (ops.GridDistortion(), ops.Translate(horizontal=(0.1, 0.1), vertical=(0.1, 0.1))),
        (ops.ElasticTransform(alpha=40, sigma=4, p=1.0), ops.Rotate(max_deg=7, step=7)),
        (ops.OpticalDistortion(k=(0.3, 0.3)),),
        (ops.Rotate(max_deg=90, step=90), lens(k1=0.2, p2=0.06), ops.Stretch(horizontal=(0.9, 0.9), vertical=(1, 1))),
    ],
    ids=lambda chosen: " ".join(op.op for op in chosen),
)
@pytest.mark.parametrize("size", [(90, 12), (1, 120), (60, 60)])
def test_where_no_border_is_minded_no_tap_lies_outside(chosen: tuple[ops.Op, ...], size: tuple[int, int]) -> None:
    """The crop lies by more and more pixels within the image, until nothing beside that is looked at."""
    rng = np.random.default_rng(0)
    is_minded = []
    for margin in range(120):
        height, width = (side + 2 * margin for side in size)
        image = rng.integers(0, 256, (height, width, 4), np.uint8)
        row = kernel_rows(plan(Recipe(ops=(*chosen, ops.CenterCrop(size=size))), [0], sizes=[(height, width)]).rows)
        is_minded.append(bool(row["reflects"][0]))
        if not is_minded[-1]:
            rendered = render(image, 0, 0, row, size)
            for border in ("reflects", "is_constant"):
                minding = row.copy()
                minding[border] = 1
                np.testing.assert_array_equal(render(image, 0, 0, minding, size), rendered)
        if is_minded[-3:] == [False] * 3:
            break
    assert is_minded == sorted(is_minded, reverse=True) and len(set(is_minded)) == 2


def test_a_rectangle_that_is_a_pixel_too_small_is_noticed() -> None:
    """That the comparison can fail: without its outermost pixels a rectangle of a turned crop is not enough."""
    recipe = Recipe(ops=(ops.Rotate(), ops.MultiResolutionCrop(size=60, scales=(150,))))
    size = (150, 201)
    drawn = plan(recipe, range(NUM), sizes=[size] * NUM)
    table = kernel_rows(drawn.rows)
    image = np.random.default_rng(0).integers(0, 256, (*size, 4), np.uint8)
    for position, (left, top, right, bottom) in enumerate(source_regions([table], [(60, 60)]).tolist()):
        row = table[position : position + 1]
        expected = render(image, 0, 0, row, (60, 60))
        for rows, columns in (
            (slice(top + 2, bottom), slice(left, right)),
            (slice(top, bottom - 3), slice(left, right)),
            (slice(top, bottom), slice(left + 2, right)),
            (slice(top, bottom), slice(left, right - 3)),
        ):
            other = ~image
            other[rows, columns] = image[rows, columns]
            assert not np.array_equal(render(other, 0, 0, row, (60, 60)), expected)


GUARDED = """
import numpy as np
from augpipe import Recipe, ops, plan, recipes
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.regions import source_regions
from tests.guard_pages import guarded
from tests.property.test_regions import copied, is_aligned, render

rows_missing = num_of_rgb = 0
turned = Recipe(border="reflect", ops=(ops.Rotate(max_deg=180, step=None), ops.BrownConrady(), ops.CenterCrop(size=37)))
def upright(size, border="context"):
    return Recipe(border=border, ops=(ops.RandomResizedCrop(size=size), ops.Flip()))

deep_image = recipes.deep_image(64, (96, 200))
crops = [(upright(size, border), size) for size in (9, 37, 96) for border in ("context", "reflect")]
crops += [(Recipe(ops=(ops.RandomCrop(size=size, padding=20), ops.Flip())), size) for size in (1, 37, 140)]
for recipe, output in ((deep_image, 64), (turned, 37), *crops):
    drawn = plan(recipe, range(12), sizes=[(150, 201)] * 12)
    table = kernel_rows(drawn.rows)
    for position, (left, top, right, bottom) in enumerate(source_regions([table], [(output, output)]).tolist()):
        photograph = np.random.default_rng(position).integers(0, 256, (150, 201, 4), np.uint8)
        row = table[position : position + 1]
        expected = render(photograph, 0, 0, row, (output, output))
        for at_end in (False, True):
            part = photograph[top : bottom - rows_missing, left:right]
            region = guarded(part.size, np.uint8, at_end).reshape(part.shape)
            region[:] = part
            assert np.array_equal(render(region, left, top, row, (output, output)), expected)
            if not is_aligned(row[0]):
                continue
            region = guarded(part.size // 4 * 3, np.uint8, at_end).reshape(*part.shape[:2], 3)
            region[:] = part[:, :, :3]
            assert np.array_equal(render(region, left, top, row, (output, output)), expected)
            if recipe.ops[0].op == "random_crop":
                assert np.array_equal(copied(region, left, top, row, (output, output)), expected)
            num_of_rgb += 1
assert num_of_rgb > 100
print("nothing outside was loaded")
"""


def test_no_load_leaves_the_rectangle() -> None:
    """The rectangle lies between memory that nobody may read; asking for cache lines ahead does no harm there."""
    ended = run_python(GUARDED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "nothing outside was loaded\n", "")


WRAPPED = """
import numpy as np
from augpipe import Augment, Recipe, ops

image = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
recipe = Recipe(ops=[ops.RandomCrop(size=96, padding=40, border="wrap")])
of_rgb, of_rgbx = (Augment(recipe, seed=0, dtype="uint8", framework="numpy") for _ in range(2))
for _ in range(200):
    assert np.array_equal(of_rgb(image), of_rgbx(np.dstack([image, image[..., :1]])))
print("equal")
"""


def test_outputs_across_a_border_that_wraps_have_scratch_for_all_columns() -> None:
    ended = run_python(WRAPPED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "equal\n", "")


def test_a_load_that_leaves_it_would_end_the_process() -> None:
    ended = run_python(GUARDED.replace("rows_missing = num_of_rgb = 0", "rows_missing, num_of_rgb = 40, 0"))
    assert ended.returncode < 0 and not ended.stdout
