"""What a recipe looks at between pixels: the oracle's filters, Pillow, OpenCV and torch."""

import itertools
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from augpipe import Augment, Recipe, ops, plan
from augpipe.recipes.recipe import Border
from tests.parity.images import noise, smooth
from tests.parity.test_fused import compare

CHAINS: dict[str, tuple[ops.Op, ...]] = {
    "smaller": (ops.Resize(size=(40, 37)),),
    "much smaller": (ops.Resize(size=(13, 12)), ops.Translate(horizontal=(-0.2, 0.2), p=1.0)),
    "larger": (ops.RandomResizedCrop(size=(70, 66), scale=(0.1, 0.3)),),
    "turned": (ops.Rotate(max_deg=30, step=None), ops.LensDistortion(), ops.Zoom(factor=(0.4, 0.6))),
    "darkened": (
        ops.Resize(size=(70, 90)),
        ops.Vignette(radii=(0.0, 0.1), radius_step=None, p=1.0),
        ops.ColorCast(p=1.0),  # after which levels are kept within 0..255 in any case, and before which they are not
    ),
    "padded": (ops.Resize(size=(40, 37)), ops.Pad(px=9, fill=200.0)),
}
LOOKS = [("bicubic", True), ("bicubic", False), ("bilinear", False)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("interpolation", "antialias"), LOOKS)
@pytest.mark.parametrize(
    ("name", "border"),
    [
        *itertools.product(
            ["smaller", "much smaller", "larger", "turned", "darkened"], ["context", "reflect_101", "constant"]
        ),
        ("padded", "context"),
    ],
)
def test_the_oracle_s_pixels(name: str, interpolation: Any, antialias: bool, border: Border) -> None:
    look = {"interpolation": interpolation, "antialias": antialias}
    compare(Recipe(border=border, fill=(9, 8, 200), ops=CHAINS[name], **look), [noise(61, 83, seed=1), noise(97, 66)])


@pytest.mark.parametrize("size", [(40, 37), (150, 201), (61, 83)])
def test_the_nearest_pixel_is_a_pixel_as_it_is(size: tuple[int, int]) -> None:
    image = noise(61, 83)
    found = Augment(Recipe(interpolation="nearest", ops=[ops.Resize(size=size)]), dtype="uint8", layout="NHWC")(image)
    assert np.array_equal(found, np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.NEAREST)))


@pytest.mark.parametrize(("name", "filter_"), [("bilinear", Image.Resampling.BILINEAR), ("bicubic", 3)])
@pytest.mark.parametrize("size", [(40, 37), (150, 201)])
def test_pillow_resizes_alike_but_for_its_rounding_between_two_passes(name: Any, filter_: Any, size: Any) -> None:
    image = smooth(61, 83)
    found = Augment(Recipe(interpolation=name, ops=[ops.Resize(size=size)]), layout="NHWC")(image)
    expected = np.asarray(Image.fromarray(image).resize(size[::-1], filter_))
    inner = (slice(9, -9), slice(9, -9))  # at the border it weighs fewer pixels, where ours mirrors them
    assert np.abs(found[inner] - expected[inner]).max() < 1.6


@pytest.mark.parametrize(("name", "filter_"), [("bilinear", cv2.INTER_LINEAR), ("bicubic", cv2.INTER_CUBIC)])
@pytest.mark.parametrize("size", [(40, 37), (150, 201)])
def test_opencv_resizes_alike_without_antialias(name: Any, filter_: int, size: tuple[int, int]) -> None:
    image = noise(61, 83)
    recipe = Recipe(interpolation=name, antialias=False, border="edge", ops=[ops.Resize(size=size)])
    expected = cv2.resize(image.astype(np.float32), size[::-1], interpolation=filter_)
    found = Augment(recipe, layout="NHWC")(image)
    assert np.abs(found - np.clip(expected, 0, 255)).max() < 0.02


def test_torch_averages_alike() -> None:
    image = noise(61, 83)
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    expected = torch.nn.functional.interpolate(planes, (40, 37), mode="bicubic", antialias=True)[0].clip(0, 255)
    found = Augment(Recipe(interpolation="bicubic", ops=[ops.Resize(size=(40, 37))]))(image)
    assert np.abs(found - expected.numpy())[:, 6:-6, 6:-6].max() < 0.02


@pytest.mark.parametrize("size", [(40, 37), (150, 201), (61, 1), (1, 90)])
@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
def test_torch_aligns_corners_alike(name: Any, size: tuple[int, int]) -> None:
    image = noise(61, 83)
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    expected = torch.nn.functional.interpolate(planes, size, mode=name, align_corners=True)[0].numpy()
    crop = ops.RandomResizedCrop(size=size, scale=(1, 1), ratio=(83 / 61, 83 / 61), align_corners=True)
    for op in (ops.Resize(size=size, align_corners=True), crop):
        found = Augment(Recipe(interpolation=name, antialias=False, ops=[op]))(image)
        inner = (slice(None), *(slice(3, -3) if side > 1 and name == "bicubic" else slice(None) for side in size))
        assert np.abs(found - expected.clip(0, 255))[inner].max() < 0.02


def test_random_draws_one_of_two_for_each_image() -> None:
    image, size = noise(61, 83), (40, 37)
    recipes = {name: Recipe(interpolation=name, ops=[ops.Resize(size=size)]) for name in ("bilinear", "bicubic")}
    both = {name: Augment(recipe)(image) for name, recipe in recipes.items()}
    random = Recipe(interpolation="random", ops=[ops.Resize(size=size)])
    drawn = plan(random, range(400), sizes=[image.shape[:2]] * 400)
    assert 150 < drawn.rows["interpolation"].astype(bool).sum() < 250
    again = plan(random, range(100, 400), sizes=[image.shape[:2]] * 300)
    assert np.array_equal(again.rows["interpolation"], drawn.rows["interpolation"][100:])
    for place, is_cubic in itertools.islice(enumerate(drawn.rows["interpolation"]), 8):
        expected = both["bicubic" if is_cubic else "bilinear"]
        assert np.array_equal(Augment(random)(image, plan=drawn[place : place + 1]), expected)


def test_blur_widens_the_bilinear_look_up_alone() -> None:
    with pytest.raises(ValueError, match="Write GaussianBlur instead of Blur"):
        Recipe(interpolation="bicubic", ops=[ops.OneOf(ops=[ops.Blur()])])
    with pytest.raises(ValueError, match="interpolation='cubic'"):
        Recipe(interpolation="cubic", ops=[])  # type: ignore[arg-type]


@pytest.mark.parametrize("border", ["constant", "wrap"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("scale", [0.3, 1.7])
def test_what_is_resized_does_not_mix_with_its_border(border: Any, interpolation: Any, scale: float) -> None:
    """Where nothing beyond a crop is shown, as Pillow's own resize of the crop does; so it is before a later pass."""
    image, by = smooth(61, 90), {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    height, width = round(61 * scale), round(90 * scale)
    resized = Recipe(ops=[ops.Resize(size=(height, width)), ops.Flip(p=1.0)], border=border, fill=90)
    recipe = resized.model_copy(update={"interpolation": interpolation})
    expected = np.asarray(Image.fromarray(image).resize((width, height), by[interpolation])).astype(int)[:, ::-1]
    found = Augment(recipe, dtype="uint8", layout="NHWC")(image).astype(int)
    assert np.abs(found - expected).max() <= 1
    mirrored = ops.AllOf(ops=[ops.Flip(p=1.0)], own_look="nearest")
    later = recipe.model_copy(update={"ops": (*recipe.ops, mirrored)})
    levels = Augment(later, dtype="uint8", layout="NHWC")(image).astype(int)
    assert later.num_passes == 2 and np.abs(levels[:, ::-1] - expected).max() <= 1
    crop = ops.RandomResizedCrop(size=(40, 50), scale=(0.2, 0.2))  # within the image: all its edges are a crop's
    cropped = Recipe(ops=[crop], border=border, fill=90, interpolation=interpolation)
    drawn = plan(cropped, [0], sizes=[(61, 90)])
    columns = np.repeat(np.linspace(0, 200, 90).astype(np.uint8)[None, :, None], 61, axis=0).repeat(3, axis=2)
    whole = Augment(cropped, dtype="uint8", layout="NHWC")(columns, plan=drawn)
    assert (np.diff(whole.astype(int), axis=1) >= 0).all() and (whole == whole[:1]).all()


@pytest.mark.parametrize(
    "op", [ops.GridDistortion(p=0.2), ops.Perspective(p=0.2), ops.LensDistortion(p=0.2), ops.OpticalDistortion(p=0.2)]
)
def test_images_that_an_op_leaves_out_do_not_mix_either(op: ops.Op) -> None:
    recipe = Recipe(ops=[ops.RandomResizedCrop(size=24), op], border="constant", fill=90)
    drawn = plan(recipe, range(40), sizes=[(61, 90)] * 40)
    images = Augment(recipe, dtype="uint8", layout="NHWC")([np.full((61, 90, 3), 200, np.uint8)] * 40, plan=drawn)
    left_out = np.array([not any(key == op.op for key, _ in drawn.captions(nth)) for nth in range(40)])
    assert 20 < left_out.sum() < 40 and (images[left_out] == 200).all()
