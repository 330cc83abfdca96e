"""Antialiased downscaling against Pillow, and an image that was decoded at a DCT scale."""

import numpy as np
import pytest
from PIL import Image

from augpipe import Augment, Recipe, ops, plan
from augpipe.gpu_ops.image.fused import jobs_per_image, run_jobs
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from tests.parity.images import Pixels, noise, smooth
from tests.parity.table import described

BILINEAR = Image.Resampling.BILINEAR
FACTORS = (1.1, 1.25, 1.5, 2.0, 2.7, 3.0, 4.0, 6.0, 8.0)


def resized_by_pillow(image: Pixels, height: int, width: int) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((width, height), BILINEAR), np.int64)


def rendered(recipe: Recipe, photograph: Pixels, **options: object) -> np.ndarray:
    image = Augment(recipe, dtype="uint8", layout="NHWC", **options)(photograph, sample_ids=[3])
    return image.astype(np.int64)


@pytest.mark.parametrize("picture", [smooth, noise])
@pytest.mark.parametrize("factor", FACTORS)
def test_downscaling_like_pillow(factor: float, picture: object) -> None:
    """Pillow rounds to 8 bits between its two passes: 1 level. At the border it cuts its filter off where ours sees the
    mirrored image: a few levels more on noise, in a frame of one pixel."""
    side = 40
    photograph = picture(round(side * factor), round(side * factor))
    recipe = Recipe(ops=(ops.CenterCrop(size=side, scale=side),))
    error = np.abs(rendered(recipe, photograph) - resized_by_pillow(photograph, side, side))
    assert error.mean() < 0.5
    assert error[1:-1, 1:-1].max() <= 1
    assert error.max() <= (60 if picture is noise else 3)


@pytest.mark.parametrize("factor", FACTORS)
def test_a_crop_of_the_downscaled_image(factor: float) -> None:
    """Resize and crop in one is Pillow's crop of Pillow's resize, long side rounded down."""
    photograph = noise(round(61 * factor), round(90 * factor), seed=5)
    recipe = Recipe(ops=(ops.MultiResolutionCrop(size=(33, 50), scales=(61,)),))
    short = min(photograph.shape[:2])
    height, width = photograph.shape[0] * 61 // short, photograph.shape[1] * 61 // short
    expected = resized_by_pillow(photograph, height, width)
    frame = np.ones((height, width), bool)
    frame[1:-1, 1:-1] = False
    for sample_id in range(6):
        drawn = plan(recipe, [sample_id], sizes=[photograph.shape[:2]])
        x, y = (int(drawn.rows["drawn"]["multi_resolution_crop"][name][0]) for name in ("x", "y"))
        image = Augment(recipe, dtype="uint8", layout="NHWC")(photograph, plan=drawn).astype(np.int64)
        error = np.abs(image - expected[y : y + 33, x : x + 50]).max(axis=2)
        assert error[~frame[y : y + 33, x : x + 50]].max() <= 1
        assert error.mean() < 2


def render_reduced(recipe: Recipe, reduced: Pixels, drawn: object, factor: int) -> np.ndarray:
    """(H, W, 3) float32 from an image held at 1/factor of its size."""
    height, width = (int(drawn.rows[name][0]) for name in ("out_height", "out_width"))
    pixels = np.ascontiguousarray(np.concatenate([reduced, reduced[:, :, :1]], axis=2))
    out = np.empty(height * width * 3, np.float32)
    table = np.array([[pixels.ctypes.data, pixels.shape[1], 0, 0]], np.int64)
    rows = kernel_rows(drawn.rows, np.array([factor]))
    run_jobs(table, rows, out, height, width, False, 0, jobs_per_image(height))
    return out.reshape(height, width, 3)


@pytest.mark.parametrize(
    "further",
    [(), (ops.Blur(sigma_px=(0.4, 1.2), p=1.0),), (ops.Perspective(distortion=0.3), ops.Translate())],
    ids=["", "blurred", "projected"],
)
@pytest.mark.parametrize("border", ["context", "reflect", "edge", "constant"])
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_an_image_held_at_a_dct_scale(factor: int, border: str, further: tuple[ops.Op, ...]) -> None:
    """Where the decoder gives 1/factor of the pixels, each of them a block's mean, the same places are looked up."""
    reduced = noise(83, 107, seed=factor)
    chosen = (
        ops.CenterCrop(size=(41, 30), scale=50),
        ops.Rotate(max_deg=40, step=None),
        ops.BrownConrady(),
        ops.Stretch(),
        *further,
    )
    # the last block of a row or column is rarely whole
    size = (83 * factor - factor // 2, 107 * factor - 1)
    recipe = Recipe(border=border, fill=(1.0, 200.0, 30.0), ops=chosen)
    for sample_id in range(3):
        drawn = plan(recipe, [sample_id], sizes=[size])
        expected = described(drawn, 0).sampled(reduced, border, recipe.fill, factor)
        assert np.abs(render_reduced(recipe, reduced, drawn, factor) - expected).max() < 0.02


@pytest.mark.parametrize(
    ("side", "scale", "expected"),
    [
        (512, 512, 1),
        (512, 300, 1),
        (512, 257, 1),
        (512, 256, 2),
        (512, 129, 2),
        (512, 128, 4),
        (512, 64, 8),
        (512, 16, 8),
    ],
)
def test_the_dct_scale_keeps_a_pixel_for_every_output_pixel(side: int, scale: int, expected: int) -> None:
    drawn = plan(Recipe(ops=(ops.CenterCrop(size=16, scale=scale),)), [0], sizes=[(side, side)])
    assert dct_factors(drawn.views).tolist() == [expected]


def test_the_dct_scale_suits_the_finest_view_and_axis() -> None:
    coarse, fine = ops.CenterCrop(size=16, scale=16), ops.CenterCrop(size=100, scale=200)
    sizes = [(512, 512), (63, 700), (64, 700), (700, 63), (700, 64)]
    both = plan(Recipe(views=({"ops": [coarse]}, {"ops": [fine]})), range(5), sizes=sizes)
    assert dct_factors(both.views).tolist() == [2, 1, 1, 1, 1]
    every_pixel = ops.RandomResizedCrop(size=(100, 10), p=0.0, ratio=(0.01, 100.0))
    wide = plan(Recipe(ops=(every_pixel,)), range(5), sizes=sizes)
    assert dct_factors(wide.views).tolist() == [4, 1, 1, 1, 4]
    alone = plan(Recipe(ops=(coarse,)), range(5), sizes=sizes)
    assert dct_factors(alone.views).tolist() == [8, 1, 4, 1, 4]
