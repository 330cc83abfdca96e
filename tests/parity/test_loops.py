"""The loop's bookkeeping, bit for bit: jobs in any split, regions of an image, number types, layouts, shortcuts."""

from functools import partial
from itertools import pairwise, product
from math import ceil, floor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe import Plan, Recipe, ops, plan
from augpipe.gpu_ops.image import copied
from augpipe.gpu_ops.image.fused import ROWS_PER_JOB, jobs_per_image, run_aligned, run_jobs, run_slanted
from augpipe.gpu_ops.image.pixels import narrow
from augpipe.gpu_ops.jit import kernel
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.recipes.recipe import Border, Interpolation
from tests.parity.images import Pixels, noise
from tests.parity.strategies import recipes
from tests.parity.table import described, expected_image

LAYOUTS = ("NCHW", "NHWC", "channels_last")
BUSY = (
    ops.ColorCast(),
    ops.Vignette(),
    ops.BrownConrady(),
    ops.Rotate(),
    ops.Stretch(),
    ops.RandomResizedCrop(size=(70, 45), scale=(0.2, 1.0)),
)


@kernel()
def is_copied(row, height, width):
    return copied.is_copied(row, height, width)


def packed(image: Pixels, spare: int = 255) -> Pixels:
    """(H, W, 4): RGBX."""
    return np.concatenate([image, np.full_like(image[:, :, :1], spare)], axis=2)


def run(
    images: list[Pixels],
    rows: np.ndarray,
    size: tuple[int, int],
    splits: list[int] | None = None,
    starts: list[tuple[int, int]] | None = None,
    dtype: type = np.float32,
    planar: bool = True,
) -> np.ndarray:
    """A batch by `run_jobs` alone; `splits` cuts the jobs into calls, run last to first."""
    table = np.array(
        [
            [image.ctypes.data, image.strides[0] // 4, *start]
            for image, start in zip(images, starts or [(0, 0)] * len(images), strict=True)
        ],
        np.int64,
    )
    out = np.full(len(images) * size[0] * size[1] * 3, 77, dtype)
    ends = sorted({0, *(splits or []), len(images) * jobs_per_image(size[0])})
    for first, last in reversed(list(pairwise(ends))):
        run_jobs(table, rows, out, *size, planar, first, last)
    return out


def busy_batch(border: str = "context") -> tuple[list[Pixels], Plan]:
    images = [noise(90, 120, seed=1), noise(121, 60, seed=2), noise(70, 70, seed=3)]
    recipe = Recipe(border=border, fill=(9.0, 100.0, 200.0), ops=BUSY).fused()
    return images, plan(recipe, range(3), sizes=[image.shape[:2] for image in images])


FILL = (9.0, 100.0, 200.0)
WHOLE_MOVES: dict[str, tuple[ops.Op, ...]] = {
    "as it is": (),
    "flips": (ops.Flip(p=0.5), ops.Flip(direction="vertical", p=0.5)),
    "turns": (ops.QuarterTurn(p=1.0), ops.Transpose(p=0.5)),
    "moves": (ops.Translate(horizontal=(-9, 9), vertical=(-9, 9), unit="px", step=1, p=1.0), ops.Flip(p=0.5)),
    "odd centre": (ops.CenterCrop(size=37), ops.Transpose(p=1.0)),
}


@pytest.mark.parametrize("moves", list(WHOLE_MOVES))
@pytest.mark.parametrize("border", ["constant", "edge", "reflect", "reflect_101", "wrap"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
def test_copied_pixels_are_those_of_the_filter(moves: str, border: Border, interpolation: Interpolation) -> None:
    """Rows that may bend go the long way, and none of these does."""
    moved = (*WHOLE_MOVES[moves], ops.Normalize())
    recipe = Recipe(border=border, fill=FILL, interpolation=interpolation, ops=moved)
    assert_copied_as_filtered(recipe)


SLANTED: dict[str, tuple[ops.Op, ...]] = {
    "rotated": (ops.Rotate(max_deg=180),),
    "turned and larger": (ops.Zoom(factor=(4.0, 4.0)), ops.Transpose(p=1.0)),
    "sheared": (ops.Shear(horizontal_deg=(20.0, 40.0)), ops.Translate(horizontal=(-0.3, 0.3))),
    "far smaller": (ops.Rotate(max_deg=180), ops.Zoom(factor=(0.1, 0.2))),
}


@pytest.mark.parametrize("move", list(SLANTED))
@pytest.mark.parametrize("border", ["constant", "edge", "reflect", "reflect_101", "wrap", "context"])
def test_nearest_pixels_of_slanted_outputs_are_copied(move: str, border: Border) -> None:
    moved = (*SLANTED[move], ops.Flip(p=0.5), ops.Normalize())
    assert_copied_as_filtered(Recipe(border=border, fill=FILL, interpolation="nearest", ops=moved))


def assert_copied_as_filtered(recipe: Recipe) -> None:
    photographs = [noise(44, 60, seed=seed) for seed in range(4)]
    drawn = plan(recipe, range(4), sizes=[(44, 60)] * 4)
    for photograph, row in zip(photographs, kernel_rows(drawn.rows), strict=True):
        size, rows = (int(drawn.rows["out_height"][0]), int(drawn.rows["out_width"][0])), row.reshape(1)
        assert is_copied(rows[0], *size)
        for planar, dtype in product([True, False], [np.float32, np.uint8]):
            copied, filtered = np.zeros((2, size[0] * size[1] * 3), dtype)
            image = packed(photograph)
            table = np.array([[image.ctypes.data, image.shape[1], 0, 0]], np.int64)
            for out, bends in ((copied, None), (filtered, True)):
                for run_kind in (partial(run_aligned, rgb_rows=None), run_slanted):
                    run_kind(table, rows, out, *size, planar, 0, jobs_per_image(size[0]), bends)
            assert np.array_equal(copied, filtered)


def test_a_padded_crop_is_copied() -> None:
    """Its fill, too: an edge that is not resampled."""
    photographs = [noise(32, 32, seed=seed) for seed in range(3)]
    recipe = Recipe(ops=[ops.RandomCrop(size=32, padding=9, fill=FILL)])
    drawn = plan(recipe, range(3), sizes=[(32, 32)] * 3)
    rows = kernel_rows(drawn.rows)
    assert all(is_copied(row, 32, 32) for row in rows)
    found = run([packed(photograph) for photograph in photographs], rows, (32, 32), dtype=np.uint8, planar=False)
    for image, photograph, drawn_of in zip(found.reshape(3, 32, 32, 3), photographs, drawn.rows["drawn"], strict=True):
        padded = np.full((50, 50, 3), FILL, np.uint8)
        padded[9:41, 9:41] = photograph
        x, y = (int(drawn_of["random_crop"][axis]) for axis in "xy")
        assert np.array_equal(image, padded[y + 9 : y + 41, x + 9 : x + 41])


@pytest.mark.parametrize(
    "ops_listed",
    [
        (ops.Translate(horizontal=(0.5, 0.5), vertical=(0.0, 0.0), unit="px", p=1.0),),
        (ops.Rotate(max_deg=1.0, p=1.0),),
        (ops.Rotate(p=1.0), ops.BrownConrady(p=1.0)),
        (ops.Resize(size=(42, 60)),),
        (ops.ColorCast(p=1.0),),
        (ops.Vignette(p=1.0),),
        (ops.Blur(sigma_px=(1.0, 1.0), p=1.0),),
    ],
)
def test_what_lies_between_pixels_or_has_a_tone_is_not_copied(ops_listed: tuple[ops.Op, ...]) -> None:
    drawn = plan(Recipe(ops=ops_listed), range(1), sizes=[(43, 60)])
    row = drawn.rows[0]
    assert not is_copied(kernel_rows(drawn.rows)[0], int(row["out_height"]), int(row["out_width"]))


@pytest.mark.parametrize("border", ["context", "reflect", "edge", "constant"])
@pytest.mark.parametrize("planar", [True, False])
def test_jobs_in_any_split_give_the_same_bits(planar: bool, border: str) -> None:
    photographs, drawn = busy_batch(border)
    images, rows = [packed(image) for image in photographs], kernel_rows(drawn.rows)
    assert jobs_per_image(70) == 3 and 70 % ROWS_PER_JOB
    whole = run(images, rows, (70, 45), planar=planar)
    assert np.array_equal(run(images, rows, (70, 45), list(range(10)), planar=planar), whole)
    assert np.array_equal(run(images, rows, (70, 45), [2, 7], planar=planar), whole)
    num = 70 * 45 * 3
    for position in range(3):
        alone = run(images[position : position + 1], rows[position : position + 1], (70, 45), planar=planar)
        assert np.array_equal(alone, whole[position * num : (position + 1) * num])


@pytest.mark.parametrize(("height", "expected"), [(1, 1), (31, 1), (32, 1), (33, 2), (64, 2), (65, 3), (224, 7)])
def test_jobs_cover_every_row(height: int, expected: int) -> None:
    assert jobs_per_image(height) == expected
    rows = kernel_rows(plan(Recipe(ops=(ops.CenterCrop(size=(height, 3)),)), [0], sizes=[(230, 9)]).rows)
    photograph = noise(230, 9)
    top = round((230 - height) / 2)
    for number in range(expected):
        # a job writes its own rows and no other
        table = np.array([[packed(photograph).ctypes.data, 9, 0, 0]], np.int64)
        image = packed(photograph)
        table[0, 0] = image.ctypes.data
        out = np.full(height * 9, -1.0, np.float32)
        run_jobs(table, rows, out, height, 3, False, number, number + 1)
        written = out.reshape(height, 3, 3)
        mine = slice(number * ROWS_PER_JOB, min(height, (number + 1) * ROWS_PER_JOB))
        assert np.array_equal(written[mine], photograph[top : top + height, 3:6][mine])
        assert (np.delete(written, np.r_[mine], axis=0) == -1.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
def test_images_that_need_more_scratch_than_the_first(first: int) -> None:
    """A call's scratch is for the most taps of any of its images."""
    images = [noise(20, 30), noise(20, 9000)][:: 1 - 2 * first]
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=(20, 60), p=0.0, ratio=(0.001, 1000.0)),))
    drawn = plan(recipe, [0, 1], sizes=[image.shape[:2] for image in images])
    rows = kernel_rows(drawn.rows)
    assert sorted(rows["support_x"]) == [1, 150]
    batch = run([packed(image) for image in images], rows, (20, 60), planar=False).reshape(2, 20, 60, 3)
    for position, photograph in enumerate(images):
        assert np.abs(batch[position] - expected_image(photograph, drawn, position)).max() < 0.02


@pytest.mark.parametrize("shift", [-1, 0, 1, 7])
def test_any_pixel_may_be_the_origin(shift: int) -> None:
    """Rows of an axis-aligned crop may start before the first pixel held, which those that are kept must not mind."""
    photograph = packed(noise(90, 120))
    drawn = plan(Recipe(ops=(ops.MultiResolutionCrop(size=(40, 30), scales=(90,)),)), [0], sizes=[(90, 120)])
    left, top = (int(drawn.rows["drawn"]["multi_resolution_crop"][name][0]) for name in ("x", "y"))
    held = photograph[top : top + 41, left : left + 31].copy()
    rows = kernel_rows(drawn.rows)
    moved = left + shift - rows["origin_x"]
    rows["origin_x"] += moved
    for name in ("low_x", "high_x", "offset_x"):
        rows[name] -= moved
    image = run([held], rows, (40, 30), starts=[(left, top)], dtype=np.uint8, planar=False)
    np.testing.assert_array_equal(image.reshape(40, 30, 3), held[:40, :30, :3])


@pytest.mark.parametrize("size", [(70, 45), (20, 9)], ids=["", "much smaller"])
@pytest.mark.parametrize("listed", [BUSY, (ops.Resize(size=(20, 9)),)], ids=["busy", "resized"])
def test_the_fourth_byte_is_not_looked_at(listed: tuple[ops.Op, ...], size: tuple[int, int]) -> None:
    images, _ = busy_batch()
    drawn = plan(Recipe(ops=listed).fused(), range(3), sizes=[image.shape[:2] for image in images])
    rows = kernel_rows(drawn.rows)
    results = [run([packed(image, spare) for image in images], rows, size) for spare in (0, 255)]
    assert np.array_equal(*results)


def test_rounding_to_sixteen_bits() -> None:
    """Halves go to even, as torch rounds; large numbers, subnormal ones, infinities and signs survive."""
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32)
    ties = np.array([0x3F808000, 0x3F818000, 0x3F80_8001, 0x7F7FFFFF, 0xFF800000, 0x7F800000, 0, 1 << 31, 1], np.uint32)
    values = np.concatenate([bits, ties]).view(np.float32)
    values = values[~np.isnan(values)]
    for out, dtype in (
        (np.empty(len(values), np.uint16), torch.bfloat16),
        (np.empty(len(values), np.float16), torch.float16),
    ):
        with np.errstate(over="ignore"):
            narrow(values, out)
        expected = torch.from_numpy(values).to(dtype).view(torch.int16).numpy()
        assert np.array_equal(out.view(np.int16), expected)


def lens(**fixed: float) -> ops.BrownConrady:
    zero = dict.fromkeys(("k1", "k2", "k3", "p1", "p2"), 0.0)
    return ops.BrownConrady(**{name: (value, value) for name, value in (zero | fixed).items()})


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_short_cuts_are_never_wrong(data: st.DataObject) -> None:
    """`reflects` and `is_constant` are left out only where no tap leaves the bounds: with them it is the same."""
    recipe = data.draw(recipes(borders=("context", "reflect", "constant"), normalised=False))
    size = data.draw(st.tuples(st.integers(8, 90), st.integers(8, 90)))
    image = packed(noise(*size))
    drawn = plan(recipe, [data.draw(st.integers(0, 2**32 - 1))], sizes=[size])
    out = int(drawn.rows["out_height"][0]), int(drawn.rows["out_width"][0])
    rows = kernel_rows(drawn.rows)
    minding = rows.copy()
    name = "is_constant" if recipe.border == "constant" else "reflects"
    minding[name] = np.where(rows[name], rows[name], 1)
    found, expected = run([image], rows, out), run([image], minding, out)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 if recipe.border == "constant" else 0)


@pytest.mark.slow
def test_a_crop_s_border_is_that_of_the_pixels_it_touches() -> None:
    """A crop that ends on a pixel's edge ends there: rounding of its quotients must not let in the next pixel."""
    rng = np.random.default_rng(0)
    wrong = []
    for seed in range(120):
        op = ops.MultiResolutionCrop(size=int(rng.integers(20, 60)), scales=(64, 96, 128, 160))
        sizes = rng.integers(40, 700, (40, 2))
        drawn = plan(Recipe(border="edge", ops=(op,)), range(40), sizes=sizes, seed=seed)
        rows = kernel_rows(drawn.rows)
        for position, row in enumerate(rows):
            left, top, width, height = described(drawn, position).crop  # fractions
            expected = floor(left), floor(top), ceil(left + width) - 1, ceil(top + height) - 1
            found = (
                int(row["low_x"] + row["origin_x"]),
                int(row["low_y"] + row["origin_y"]),
                int(row["high_x"] + row["origin_x"]),
                int(row["high_y"] + row["origin_y"]),
            )
            if found != expected:
                wrong.append((sizes[position].tolist(), found, expected))
    assert not wrong


@pytest.mark.parametrize("border", ["context", "reflect", "constant"])
def test_the_short_cut_is_taken(border: str) -> None:
    """Else the tests above would test nothing."""
    chosen = (ops.CenterCrop(size=100), ops.Rotate(), ops.LensDistortion())
    rows = kernel_rows(plan(Recipe(border=border, ops=chosen), range(20), sizes=[(300, 300)] * 20).rows)
    reflects, is_constant = rows["reflects"].astype(bool), rows["is_constant"].astype(bool)
    assert reflects.all() == (border == "reflect") and reflects.any() == (border == "reflect")
    assert is_constant.all() == (border == "constant") and is_constant.any() == (border == "constant")
