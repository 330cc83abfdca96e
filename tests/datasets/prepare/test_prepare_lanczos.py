"""Lanczos gives Pillow's pixels, and the weights do not lead out of the image."""

import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.prepare.lanczos import _weights, lanczos
from augpipe.datasets.prepare.rendition import resize, target_size

SIZES = [(1, 1), (1, 9), (2, 3), (7, 400), (33, 31), (64, 64), (99, 150), (375, 500), (333, 257), (700, 90)]
SCALES = ["1", "5", "32", "64", "100", "256", "300"]


def picture(height: int, width: int, seed: int) -> np.ndarray:
    """Noise; every other time of black and white alone, where filters with lobes overshoot most."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 4), dtype=np.uint8)
    return np.where(pixels > 127, np.uint8(255), np.uint8(0)) if seed % 2 else pixels


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_it_is_bit_equal_to_pillow(height: int, width: int, scale: str) -> None:
    for seed in range(2):
        pixels = picture(height, width, seed)
        tall, wide = target_size(height, width, scale, upscale=True)
        image = Image.fromarray(np.ascontiguousarray(pixels[..., :3]))
        # two calls, as Pillow takes the columns first where an image is some times as high as wide
        narrow = image.resize((wide, height), Image.Resampling.LANCZOS)
        wanted = np.asarray(narrow.resize((wide, tall), Image.Resampling.LANCZOS))
        assert np.array_equal(lanczos(pixels, tall, wide)[..., :3], wanted)
        assert np.array_equal(np.asarray(resize(image, tall, wide, linear_light=False)), wanted)


@pytest.mark.parametrize("num_in", [1, 2, 7, 100])
@pytest.mark.parametrize("num_out", [1, 3, 7, 300])
def test_no_weight_leads_out_of_the_image(num_in: int, num_out: int) -> None:
    starts, weights = _weights(num_in, num_out)
    assert starts.min() >= 0 and starts.max() + weights.shape[1] <= num_in


def test_all_four_bytes_are_resampled_alike() -> None:
    pixels = picture(40, 60, 0)
    assert np.array_equal(lanczos(pixels, 20, 30)[..., ::-1], lanczos(np.ascontiguousarray(pixels[..., ::-1]), 20, 30))


def test_the_same_size_is_the_same_array() -> None:
    pixels = picture(8, 9, 0)
    assert lanczos(pixels, 8, 9) is pixels


def test_a_plain_image_stays_plain() -> None:
    for level in (0, 1, 127, 254, 255):
        made = lanczos(np.full((37, 53, 4), level, np.uint8), 11, 19)
        assert made.shape == (11, 19, 4) and (made == level).all()
