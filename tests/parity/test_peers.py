"""Sign, centre and radius of each op against Pillow, numpy, OpenCV and torch, on draws that are known."""

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from augpipe import Augment, Recipe, ops, plan
from augpipe.recipes.recipe import Border
from tests.parity.images import Pixels, noise, smooth

TILE = noise(64, 64, seed=8)


def augmented(image: Pixels, *chosen: ops.Op, border: Border = "context", fill: float = 0.0) -> np.ndarray:
    recipe = Recipe(border=border, fill=(fill, fill, fill), ops=chosen)
    return Augment(recipe, layout="NHWC")(image, sample_ids=[0]).astype(np.float64)


def both_ways(degrees: float, image: Pixels, border: Border) -> dict[float, np.ndarray]:
    recipe = Recipe(border=border, ops=(ops.Rotate(max_deg=degrees, step=degrees),))
    ids = np.arange(20)
    drawn = plan(recipe, ids, sizes=[image.shape[:2]] * 20)
    images = Augment(recipe, layout="NHWC", num_threads=1)([image] * 20, plan=drawn)
    found = dict(zip(drawn.rows["drawn"]["rotate"]["degrees"].tolist(), images, strict=True))
    assert set(found) == {degrees, -degrees}
    return found


def test_flips_are_exact() -> None:
    image = noise(33, 50)
    assert np.array_equal(augmented(image, ops.Flip(p=1.0)), image[:, ::-1])
    assert np.array_equal(augmented(image, ops.Flip(p=1.0, direction="vertical")), image[::-1])
    both = augmented(image, ops.Flip(p=1.0), ops.Flip(p=1.0, direction="vertical"))
    assert np.array_equal(both, image[::-1, ::-1])


@pytest.mark.parametrize("side", [64, 65])
def test_right_angles_are_numpy_s(side: int) -> None:
    """np.rot90 turns anticlockwise as seen."""
    photograph = noise(side, side)
    for degrees, image in both_ways(90.0, photograph, "edge").items():
        assert np.abs(image - np.rot90(photograph, round(degrees / 90))).max() < 0.01
    for image in both_ways(180.0, photograph, "edge").values():
        assert np.abs(image - photograph[::-1, ::-1]).max() < 0.01


@pytest.mark.parametrize("degrees", [3.0, 10.0, 45.0, 120.0])
def test_rotation_is_pillow_s(degrees: float) -> None:
    """Image.rotate turns anticlockwise; away from the border, where Pillow fills, the images agree."""
    photograph = smooth(90, 117)
    inside = np.asarray(Image.new("L", (117, 90), 255).rotate(degrees, fillcolor=0)).astype(bool)
    for angle, image in both_ways(degrees, photograph, "constant").items():
        expected = np.asarray(Image.fromarray(photograph).rotate(angle, Image.Resampling.BILINEAR), np.float64)
        inside = np.asarray(Image.new("L", (117, 90), 255).rotate(angle)).astype(bool)
        inside = ndimage.binary_erosion(inside, iterations=2)
        assert inside.mean() > 0.4
        assert np.abs(image - expected)[inside].max() <= 1


@pytest.mark.parametrize(("kind", "sign"), [("barrel", 1), ("pincushion", -1)])
@pytest.mark.parametrize("size", [(80, 80), (40, 90)])
def test_the_lens_s_radius_is_1_at_the_corner(kind: str, sign: int, size: tuple[int, int]) -> None:
    """On a ramp of column and row numbers a level says where it came from: r * (1 +- s * r^2)."""
    strength = 0.25
    rows, columns = np.mgrid[: size[0], : size[1]]
    ramp = np.stack([columns, rows, rows], axis=2).astype(np.uint8)
    image = augmented(ramp, ops.LensDistortion(kinds=(kind,), max_strength=strength, degrees=1))
    x, y = columns + 0.5 - size[1] / 2, rows + 0.5 - size[0] / 2
    gain = 1 + sign * strength * (x**2 + y**2) / ((size[1] / 2) ** 2 + (size[0] / 2) ** 2)
    inside = (np.abs(gain * x) < size[1] / 2 - 1) & (np.abs(gain * y) < size[0] / 2 - 1)
    assert np.abs(image[:, :, 0] + 0.5 - size[1] / 2 - gain * x)[inside].max() < 0.01
    assert np.abs(image[:, :, 1] + 0.5 - size[0] / 2 - gain * y)[inside].max() < 0.01
    # a barrel lens shows what lies beyond the corner, a pincushion less than the frame
    assert inside[0, 0] == (kind == "pincushion")


@pytest.mark.parametrize("size", [(61, 90), (90, 64)])
def test_brown_conrady_is_opencv_s(size: tuple[int, int]) -> None:
    """initUndistortRectifyMap looks up what OpenCV's lens model says, with the half-diagonal as focal length."""
    image = noise(*size)
    k1, k2, k3, p1, p2 = -0.11, 0.07, 0.02, 0.013, -0.021
    corner = np.hypot(*size) / 2
    camera = np.array([[corner, 0, (size[1] - 1) / 2], [0, corner, (size[0] - 1) / 2], [0, 0, 1]])
    maps = cv2.initUndistortRectifyMap(
        camera, np.array([k1, k2, p1, p2, k3]), np.eye(3), camera, (size[1], size[0]), cv2.CV_32FC1
    )
    expected = np.stack(
        [ndimage.map_coordinates(image[:, :, i].astype(float), maps[::-1], order=1, mode="reflect") for i in range(3)],
        axis=2,
    )
    op = ops.BrownConrady(k1=(k1, k1), k2=(k2, k2), k3=(k3, k3), p1=(p1, p1), p2=(p2, p2))
    assert np.abs(augmented(image, op) - expected).max() < 0.02
    # remap rounds coordinates to 1/32 of a pixel, so a soft image is what it can be compared on
    image = smooth(*size)
    remapped = cv2.remap(image, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    assert np.abs(augmented(image, op) - remapped).max() <= 1


@pytest.mark.parametrize(("border", "padding"), [("context", "reflection"), ("edge", "border"), ("constant", "zeros")])
def test_affine_maps_are_torch_s(border: Border, padding: str) -> None:
    """affine_grid and grid_sample, align_corners=False: the same half-pixel centres."""
    photograph = noise(48, 70)
    chosen = (
        ops.Rotate(max_deg=35.0, step=35.0),
        ops.Stretch(horizontal=(1.4, 1.4), vertical=(1.1, 1.1)),
        ops.Flip(p=1.0),
    )
    recipe = Recipe(border=border, ops=chosen)
    drawn = plan(recipe, [0], sizes=[photograph.shape[:2]])
    angle = np.deg2rad(drawn.rows["drawn"]["rotate"]["degrees"][0])
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    pixels = rotation @ np.diag([1 / 1.4, 1 / 1.1]) @ np.diag([-1, 1])
    half = np.diag([35.0, 24.0])  # affine_grid counts in half widths and half heights
    theta = np.concatenate([np.linalg.inv(half) @ pixels @ half, np.zeros((2, 1))], axis=1)
    grid = torch.nn.functional.affine_grid(torch.from_numpy(theta)[None], [1, 3, 48, 70], align_corners=False)
    source = torch.from_numpy(photograph).permute(2, 0, 1)[None].double()
    expected = torch.nn.functional.grid_sample(source, grid, padding_mode=padding, align_corners=False)
    image = Augment(recipe)(photograph, plan=drawn)
    assert np.abs(image - expected[0].numpy()).max() < 0.01


@pytest.mark.parametrize(
    ("border", "mode"), [("context", None), ("reflect", "symmetric"), ("edge", "edge"), ("constant", "constant")]
)
def test_what_lies_outside_a_crop(border: Border, mode: str | None) -> None:
    """At half its size a crop is seen whole, with what the border makes of its surroundings: numpy's padding."""
    photograph = noise(60, 60)
    chosen = (ops.CenterCrop(size=20), ops.Stretch(horizontal=(0.5, 0.5), vertical=(0.5, 0.5)))
    image = augmented(photograph, *chosen, border=border, fill=77.0)
    crop = photograph[20:40, 20:40]
    padding = ((11, 11), (11, 11), (0, 0))
    if mode is None:
        around = photograph[9:51, 9:51]
    elif mode == "constant":
        around = np.pad(crop, padding, mode="constant", constant_values=77)
    else:
        around = np.pad(crop, padding, mode=mode)
    # the mean of each 2x2 block and its neighbours, weighed 1:3:3:1
    kernel = np.array([1, 3, 3, 1]) / 8
    smoothed = sum(kernel[i] * around[i : i + 40 : 2] for i in range(4))
    expected = sum(kernel[i] * smoothed[:, i : i + 40 : 2] for i in range(4))
    assert np.abs(image - expected).max() < 0.01
