"""Moves, shears, turns, perspectives and blurs against OpenCV, Pillow, torch, scipy and numpy."""

from typing import Literal

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from augpipe import Augment, Plan, Recipe, ops, plan
from augpipe.recipes.recipe import Border
from tests.parity.images import Pixels, noise, smooth
from tests.parity.oracle import SCIPY_MODES

BORDERS: tuple[Border, ...] = ("context", "reflect", "edge", "constant")


def rendered(image: Pixels, *chosen: ops.Op, border: Border = "context", seed: int = 0) -> tuple[np.ndarray, Plan]:
    """(H, W, 3) float64 levels and the plan of one sample; what lies outside is 0 where the border is constant."""
    recipe = Recipe(border=border, ops=chosen)
    drawn = plan(recipe, [0], sizes=[image.shape[:2]], seed=seed)
    return Augment(recipe, layout="NHWC", num_threads=1)(image, plan=drawn).astype(np.float64), drawn


def sampled(image: Pixels, x: np.ndarray, y: np.ndarray, border: Border) -> np.ndarray:
    """Bilinear samples of the whole image by scipy, with pixel centres at +0.5."""
    channels = [
        ndimage.map_coordinates(image[..., i].astype(float), [y - 0.5, x - 0.5], order=1, mode=SCIPY_MODES[border])
        for i in range(3)
    ]
    return np.stack(channels, axis=2)


def pixel_centres(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    y, x = np.mgrid[:height, :width] + 0.5
    return x, y


# translations


@pytest.mark.parametrize(("right", "down"), [(0, 0), (7, 0), (-3, 5), (0, -11), (33, -40), (90, 2)])
def test_a_move_by_whole_pixels_is_exact(right: int, down: int) -> None:
    """As numpy shifts an array, with zeros for what comes in."""
    image = noise(41, 53)
    move = ops.Translate(horizontal=(right, right), vertical=(down, down), unit="px")
    padded = np.pad(image, ((99, 99), (99, 99), (0, 0)))
    expected = padded[99 - down : 99 - down + 41, 99 - right : 99 - right + 53]
    assert np.array_equal(rendered(image, move, border="constant")[0], expected)


@pytest.mark.parametrize("border", BORDERS)
def test_a_move_by_parts_of_a_pixel_is_scipy_s(border: Border) -> None:
    image = noise(41, 53)
    found, drawn = rendered(image, ops.Translate(horizontal=(-0.4, 0.4), vertical=(-0.4, 0.4)), border=border)
    ways = drawn.rows["drawn"]["translate"][0]
    down, right = float(ways["vertical"]) * 41, float(ways["horizontal"]) * 53
    expected = ndimage.shift(image.astype(float), (down, right, 0), order=1, mode=SCIPY_MODES[border])
    assert abs(down) > 1 and abs(right) > 1
    assert np.abs(found - expected).max() < 0.01


def test_a_fraction_counts_in_the_sides_of_what_is_there() -> None:
    image, crop = noise(60, 80), ops.CenterCrop(size=(20, 40))
    move = ops.Translate(horizontal=(0.1, 0.1), vertical=(-0.25, -0.25))
    assert np.array_equal(rendered(image, crop, move)[0], image[25:45, 16:56])
    assert np.array_equal(rendered(image, move, crop)[0], image[35:55, 12:52])


def test_ops_act_in_the_order_of_the_list_and_a_paper_s_crop_first() -> None:
    square, turn = noise(80, 80), ops.QuarterTurn(turns=(1,))
    for crop in (ops.CenterCrop(size=(30, 20)), ops.RandomCrop(size=(30, 20), p=0.0)):
        assert np.array_equal(rendered(square, turn, crop)[0], np.rot90(square)[25:55, 30:50])
    papers = ops.MultiResolutionCrop(size=30, scales=(80,), p=0.0)
    flip = ops.Flip(direction="vertical", p=1.0)
    moved = ops.Translate(horizontal=(0.1, 0.1), vertical=(0.0, 0.0))
    assert np.array_equal(rendered(square, moved, flip, papers)[0], rendered(square, papers, moved, flip)[0])


# shears


@pytest.mark.parametrize("factor", [-0.3, 0.12, 0.9])
@pytest.mark.parametrize("axis", ["horizontal", "vertical"])
def test_a_shear_about_the_corner_is_pillow_s(axis: str, factor: float) -> None:
    """AutoAugment's ShearX and ShearY: Image.transform with (1, factor, 0, 0, 1, 0) and (1, 0, 0, factor, 1, 0)."""
    image = smooth(70, 90)
    degrees = float(np.rad2deg(np.arctan(factor)))
    angles = {"horizontal_deg": (0, 0), "vertical_deg": (0, 0), f"{axis}_deg": (degrees, degrees)}
    found, _ = rendered(image, ops.CenterCrop(size=(70, 90)), ops.Shear(**angles, about="corner"), border="constant")
    coefficients = (1, factor, 0, 0, 1, 0) if axis == "horizontal" else (1, 0, 0, factor, 1, 0)
    options = {"method": Image.Transform.AFFINE, "data": coefficients, "resample": Image.Resampling.BILINEAR}
    expected = np.asarray(Image.fromarray(image).transform((90, 70), **options), np.float64)
    inside = np.asarray(Image.new("L", (90, 70), 255).transform((90, 70), **options)) == 255
    inside = ndimage.binary_erosion(inside, iterations=2)
    assert inside.mean() > 0.3
    # the filter is as wide as the slanted pixel: on soft waves that is a level more than Pillow's rounding
    assert np.abs(found - expected)[inside].max() <= 2


@pytest.mark.parametrize("seed", range(3))
def test_a_shear_along_both_axes_is_torchvision_s(seed: int) -> None:
    """The inverse of its `_get_inverse_affine_matrix` without rotation, about the centre, by torch's grid_sample."""
    image = noise(48, 70)
    chosen = (ops.Zoom(factor=(2.0, 2.0)), ops.Shear(horizontal_deg=(-30, 30), vertical_deg=(-20, 20)))
    found, drawn = rendered(image, *chosen, border="constant", seed=seed)
    angles = np.deg2rad([drawn.rows["drawn"]["shear"][0][f"{axis}_deg"] for axis in ("horizontal", "vertical")])
    a, b = np.cos(-angles[1]) / np.cos(angles[1]), -np.cos(-angles[1]) * np.tan(angles[0]) / np.cos(angles[1])
    c = np.sin(-angles[1]) / np.cos(angles[1])
    d = -np.sin(-angles[1]) * np.tan(angles[0]) / np.cos(angles[1]) + 1
    pixels = np.array([[d, -b], [-c, a]]) / 2  # after the zoom, so that no pixel covers more than one
    half = np.diag([35.0, 24.0])
    theta = np.concatenate([np.linalg.inv(half) @ pixels @ half, np.zeros((2, 1))], axis=1)
    grid = torch.nn.functional.affine_grid(torch.from_numpy(theta)[None], [1, 3, 48, 70], align_corners=False)
    source = torch.from_numpy(image).permute(2, 0, 1)[None].double()
    expected = torch.nn.functional.grid_sample(source, grid, padding_mode="zeros", align_corners=False)
    assert np.abs(found - expected[0].permute(1, 2, 0).numpy()).max() < 0.01


@pytest.mark.parametrize("seed", range(3))
def test_a_shear_of_both_axes_at_once_is_opencv_s(seed: int) -> None:
    """By albumentations 2's matrix ((1, -tan a), (-tan b, 1)) about the middle of pixel (40, 30)."""
    cv2 = pytest.importorskip("cv2")
    image = smooth(61, 81)
    slanted = ops.Shear(horizontal_deg=(-30, 30), vertical_deg=(-25, 25), order="at_once")
    found, drawn = rendered(image, slanted, border="edge", seed=seed)
    across, down = (
        np.tan(np.deg2rad(drawn.rows["drawn"]["shear"][0][f"{axis}_deg"])) for axis in ("horizontal", "vertical")
    )
    matrix = np.array([[1, -across, 30 * across], [-down, 1, 40 * down]])
    expected = cv2.warpAffine(image, matrix, (81, 61), borderMode=cv2.BORDER_REPLICATE).astype(np.float64)
    assert np.abs(found - expected).mean() < 1.0


# turns


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("border", BORDERS)
def test_quarter_turns_are_numpy_s(turns: int, border: Border) -> None:
    """Bit for bit, of a square; of another frame its middle."""
    image, op = noise(37, 37), ops.QuarterTurn(turns=(turns,))
    assert np.array_equal(rendered(image, op, border=border)[0], np.rot90(image, turns))
    wide, half = noise(40, 60), noise(40, 60)[:, 10:50]
    assert np.array_equal(rendered(wide, op, border=border)[0][:, 10:50], np.rot90(half, turns))


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_sides_change_places_with_quarter_turns_and_transposes_as_numpy_s(turns: int) -> None:
    """Bit for bit, of an image of its own size, with what is listed before and after."""
    image = noise(40, 61)
    turn, swap = ops.QuarterTurn(turns=(turns,), swaps_sides=True), ops.Transpose(swaps_sides=True, p=1.0)
    assert np.array_equal(rendered(image, turn)[0], np.rot90(image, turns))
    assert np.array_equal(rendered(image, swap)[0], image.transpose(1, 0, 2))
    both = rendered(image, ops.Flip(p=1.0), turn, swap, ops.Flip(direction="vertical", p=1.0))[0]
    assert np.array_equal(both, np.rot90(image[:, ::-1], turns).transpose(1, 0, 2)[::-1])
    chosen = ops.OneOf(ops=[ops.AllOf(ops=[turn, ops.Flip(p=1.0)])])
    assert np.array_equal(rendered(image, chosen)[0], np.rot90(image, turns)[:, ::-1])
    moved = ops.Translate(horizontal=(0.25, 0.25), vertical=(0.0, 0.0), whole_px="nearest")
    width = image.shape[1 - turns % 2]
    found = rendered(image, turn, moved, border="constant")[0]
    assert np.array_equal(found[:, round(width / 4) :], np.rot90(image, turns)[:, : width - round(width / 4)])


def test_images_of_a_batch_swap_their_sides_each_on_its_own() -> None:
    images = [noise(30, 50, seed=i) for i in range(12)]
    recipe = Recipe(ops=[ops.QuarterTurn(swaps_sides=True, p=0.8)])
    found, drawn = Augment(recipe, layout="NHWC", dtype="uint8")(images), plan(recipe, range(12), sizes=[(30, 50)] * 12)
    turns = drawn.rows["drawn"]["quarter_turn"]["turns"]
    assert {shown.shape for shown in found} == {(30, 50, 3), (50, 30, 3)}
    for shown, image, turn in zip(found, images, turns, strict=True):
        assert np.array_equal(shown, np.rot90(image, turn))


@pytest.mark.parametrize("degrees", [270.0, 450.0, -90.0])
def test_rotations_beyond_half_a_turn(degrees: float) -> None:
    image = noise(37, 37)
    found, _ = rendered(image, ops.Rotate(max_deg=(degrees, degrees), step=None), border="edge")
    assert np.abs(found - np.rot90(image, round(degrees / 90))).max() < 0.01


# perspectives


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("seed", range(4))
def test_a_perspective_is_opencv_s(seed: int, border: Border) -> None:
    """getPerspectiveTransform from the drawn corners to the crop's, looked up by scipy; enlarged, so unaveraged."""
    image, size = noise(60, 80), (150, 210)
    chosen = (ops.CenterCrop(size=size, scale=400), ops.Perspective(distortion=0.5))
    found, drawn = rendered(image, *chosen, border="context" if border != "constant" else border, seed=seed)
    row = drawn.rows[0]
    assert row["support"].tolist() == [1, 1]
    left, top, right, bottom = row["crop"]
    corners = np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float32)
    moved = row["drawn"]["perspective"]["moved"]
    inwards = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * [size[1] / 2, size[0] / 2]
    frame = np.array([[0, 0], [size[1], 0], [size[1], size[0]], [0, size[0]]])
    matrix = cv2.getPerspectiveTransform((frame + moved * inwards).astype(np.float32), corners)
    x, y = pixel_centres(*size)
    u, v, w = np.einsum("ij,jhw->ihw", matrix, np.stack([x, y, np.ones_like(x)]))
    in_crop = (u / w > left + 1) & (u / w < right - 1) & (v / w > top + 1) & (v / w < bottom - 1)
    assert 0.2 < in_crop.mean() < 0.95
    expected = sampled(image, u / w, v / w, "context")
    # OpenCV solves for its matrix in float64, from corners in float32
    assert np.abs(found - expected)[in_crop].max() < 0.02
    if border == "constant":
        outside = (u / w < left - 2) | (u / w > right + 2) | (v / w < top - 2) | (v / w > bottom + 2)
        assert outside.any() and (found[outside] == 0).all()
    else:
        reachable = w > 0.13
        assert np.abs(found - expected)[reachable].max() < 0.02


@pytest.mark.parametrize("corners", ["edges", "whole_px"])
@pytest.mark.parametrize("seed", range(4))
def test_a_perspective_is_torchvision_s(seed: int, corners: Literal["edges", "whole_px"]) -> None:
    """`F.perspective` with the frame's corners as start points and the drawn ones as end points, by its own steps.

    It solves for the coefficients, and divides the grid of pixel centres by hand, before grid_sample.
    """
    height, width = 64, 90
    image = smooth(height, width)
    found, drawn = rendered(image, ops.Perspective(distortion=0.3, corners=corners), border="constant", seed=seed)
    moved, half = drawn.rows["drawn"]["perspective"]["moved"][0], [width / 2, height / 2]
    right, bottom = width, height
    if corners == "whole_px":  # it draws from 0 to int(0.3 * half a side), and counts sides from the first pixel on
        moved, half, right, bottom = np.floor(moved / 0.3 * [14, 10]), [1, 1], width - 1, height - 1
    start = np.array([[0, 0], [right, 0], [right, bottom], [0, bottom]], float)
    end = start + moved * np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * half
    equations, levels = [], []
    for (x, y), (u, v) in zip(end, start, strict=True):
        equations += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        levels += [u, v]
    coefficients = torch.linalg.lstsq(torch.tensor(equations).double(), torch.tensor(levels).double()).solution
    a, b, c, d, e, f, g, h = coefficients.tolist()
    x, y = pixel_centres(height, width)
    divisor = g * x + h * y + 1
    grid = np.stack([(a * x + b * y + c) / divisor * 2 / width - 1, (d * x + e * y + f) / divisor * 2 / height - 1], 2)
    source = torch.from_numpy(image).permute(2, 0, 1)[None].double()
    expected = torch.nn.functional.grid_sample(source, torch.from_numpy(grid)[None], align_corners=False)
    inside = ndimage.binary_erosion((np.abs(grid) < 1).all(axis=2), iterations=3)
    assert inside.mean() > 0.4
    # ours averages over the pixels that one of the frame's centre covers, on soft waves
    assert np.abs(found - expected[0].permute(1, 2, 0).numpy())[inside].max() < 2


@pytest.mark.parametrize("distortion", [0.6, 0.7])
def test_where_the_horizon_is_in_sight_levels_are_the_image_s(distortion: float) -> None:
    """A perspective seen from far off: the frame holds the horizon, and what lies behind it."""
    image = noise(50, 60)
    far = (ops.Perspective(distortion=distortion), ops.Zoom(factor=(0.1, 0.1)), ops.Rotate(max_deg=180, step=None))
    for border in BORDERS:
        recipe = Recipe(border=border, ops=far)
        drawn = plan(recipe, range(20), sizes=[(50, 60)] * 20)
        corners = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1]]).T * [1, 30, 25]
        divisors = corners @ np.roll(drawn.rows["before_divisor"], 1, axis=1).T
        assert (divisors.min(axis=0) < 0).sum() > 10
        images = Augment(recipe)([image] * 20, plan=drawn)
        assert all(np.isfinite(one).all() and one.min() >= 0 and one.max() <= 255 for one in images)


@pytest.mark.parametrize("distortion", [0.6, 0.7])
def test_beyond_the_horizon_the_image_is_not_seen_again(distortion: float) -> None:
    """An even image on a border of another level: what is behind the projected plane stays border."""
    white = np.full((60, 60, 3), 255, np.uint8)
    recipe = Recipe(border="constant", ops=(ops.Perspective(distortion=distortion),))
    drawn = plan(recipe, range(20_000), sizes=[(60, 60)] * 20_000)
    divisor = drawn.rows["before_divisor"]
    (behind,) = np.nonzero(divisor[:, 2] - np.abs(divisor[:, :2]).sum(axis=1) * 30 < 0)
    assert 10 < len(behind) < (100 if distortion == 0.6 else 2_000)
    behind = behind[:100]
    for i, image in zip(behind, Augment(recipe, layout="NHWC")([white] * len(behind), plan=drawn[behind]), strict=True):
        inwards = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * 30
        moved = (
            np.array([[0, 0], [60, 0], [60, 60], [0, 60]]) + drawn.rows["drawn"]["perspective"]["moved"][i] * inwards
        )
        quadrangle = cv2.fillConvexPoly(np.zeros((60, 60), np.uint8), np.rint(moved - 0.5).astype(np.int32), 1)
        around = cv2.dilate(quadrangle, np.ones((9, 9), np.uint8))
        assert (image[around == 0] == 0).all()
        within = cv2.erode(quadrangle, np.ones((9, 9)), borderType=cv2.BORDER_CONSTANT, borderValue=0)
        assert (image[within > 0] > 254.9).all()


# blurs


def spread(levels: np.ndarray) -> float:
    """Variance of the light in (H, W, 3), the mean of that along x and y, in squared pixels."""
    light = levels.mean(axis=2) / levels.mean(axis=2).sum()
    y, x = np.mgrid[: light.shape[0], : light.shape[1]]
    return float(sum((light * (at - (light * at).sum()) ** 2).sum() for at in (x, y)) / 2)


@pytest.mark.parametrize("sigma", [0.7, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("scale", [77, 100, 131, 190])
def test_a_blur_s_variance_is_what_it_says(scale: int, sigma: float) -> None:
    """The light of a bright pixel, anywhere between the output's pixels, spreads by sigma^2 more on average."""
    grown = []
    for place in range(12):
        image = np.zeros((100, 100, 3), np.uint8)
        image[40 + place, 52 + 2 * place % 9] = 255
        crop = ops.CenterCrop(size=min(scale, 96), scale=scale)
        sharp, blurred = (
            spread(rendered(image, crop, ops.Blur(sigma_px=(value, value), p=1.0))[0]) for value in (0.0, sigma)
        )
        grown.append(blurred - sharp)
    # where an output pixel is one of the image, the sharp one has not the sixth that interpolation spreads
    most = 1.1 * sigma**2 + (1 / 6 if scale == 100 else 0.0)
    assert 0.9 * sigma**2 < np.mean(grown) < most


@pytest.mark.parametrize("sigma", [0.8, 1.5, 3.0])
def test_a_blur_looks_like_a_gaussian_s(sigma: float) -> None:
    """scipy's gaussian_filter of the sharp output, on noise that a camera would see: no pixel stands alone."""
    image = ndimage.gaussian_filter(np.random.default_rng(0).normal(128, 200, (150, 170, 3)), (1.5, 1.5, 0))
    pixels = np.clip(image, 0, 255).astype(np.uint8)
    crop = ops.CenterCrop(size=(90, 100), scale=131)
    sharp, blurred = (
        rendered(pixels, crop, ops.Rotate(max_deg=20, step=20), ops.Blur(sigma_px=(value, value), p=1.0))[0]
        for value in (0.0, sigma)
    )
    expected = ndimage.gaussian_filter(sharp, (sigma, sigma, 0))
    inner = np.s_[15:-15, 15:-15]
    assert np.abs(blurred - expected)[inner].mean() < 0.1 * np.abs(sharp - expected)[inner].mean()


def test_blurs_add_up_and_leave_the_decoding_scale_alone() -> None:
    sizes = [(400, 500)]
    crop = ops.CenterCrop(size=30, scale=90)
    three, four = (ops.Blur(sigma_px=(value, value), p=1.0) for value in (3.0, 4.0))
    rows = [plan(Recipe(ops=(crop, *chosen)), [0], sizes=sizes).rows for chosen in ((), (three, four), (four, three))]
    five = plan(Recipe(ops=(crop, ops.Blur(sigma_px=(5.0, 5.0), p=1.0))), [0], sizes=sizes).rows
    for one in rows[1:]:
        np.testing.assert_allclose(one["blur"], five["blur"], rtol=1e-12)
    assert [one["support"].tolist() for one in (*rows, five)] == [rows[0]["support"].tolist()] * 4


# canvases


@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0, 3.7])
def test_a_zoom_out_and_a_resize_are_pillow_s(factor: float) -> None:
    """The image pasted by numpy into a canvas of whole pixels, and resized by Pillow; boxes go along."""
    image, fill = smooth(61, 83), (9.0, 99.0, 200.0)
    zoom_out = ops.ZoomOut(factor=(factor, factor), fill=fill, p=1.0)
    recipe = Recipe(ops=(zoom_out, ops.Flip(p=1.0), ops.Resize(size=(48, 52))))
    drawn = plan(recipe, [5], sizes=[image.shape[:2]], seed=3)
    canvas = np.full((int(61 * factor), int(83 * factor), 3), fill, np.uint8)
    room = canvas.shape[1] - 83, canvas.shape[0] - 61
    x, y = (int(drawn.rows["drawn"]["zoom_out"][name][0] * (most + 1)) for name, most in zip("xy", room, strict=True))
    assert factor == 1.0 or x + y > 0
    canvas[y : y + 61, x : x + 83] = image
    expected = np.asarray(Image.fromarray(canvas[:, ::-1]).resize((52, 48), Image.Resampling.BILINEAR))
    result = Augment(recipe, layout="NHWC", num_threads=1)(
        image=image, bboxes=[[10, 20, 30, 50]], bbox_format="pascal_voc", plan=drawn
    )
    missed = np.abs(result["image"].astype(np.float64) - expected)
    # at the canvas's edge Pillow averages over less; here the fill goes on beyond it
    assert (missed if factor == 1.0 else missed[1:-1, 1:-1]).max() <= 1.1
    scale = np.array([52 / canvas.shape[1], 48 / canvas.shape[0]])
    left, right = canvas.shape[1] - x - 30, canvas.shape[1] - x - 10
    box = np.array([left, y + 20, right, y + 50]) * np.tile(scale, 2)
    np.testing.assert_allclose(result["bboxes"][0], box, atol=1e-3)


def test_places_in_a_canvas_are_drawn_evenly_and_within_it() -> None:
    recipe = Recipe(ops=(ops.ZoomOut(factor=(1.0, 4.0), p=0.5),))
    rows = plan(recipe, range(4000), sizes=np.full((4000, 2), (30, 50))).rows
    drawn = rows["drawn"]["zoom_out"]
    assert (rows["out_width"] == 50).all() and (rows["out_height"] == 30).all()
    assert abs((drawn["factor"] > 1.0).mean() - 0.5) < 0.03
    for axis, name in enumerate("xy"):
        assert np.abs(np.histogram(drawn[name], 5, (0, 1))[0] / len(rows) - 0.2).max() < 0.03
        assert (rows["crop"][:, axis] == 0).all() and (rows["crop"][:, 2 + axis] == (50, 30)[axis]).all()


@pytest.mark.parametrize("chosen", [ops.RandomResize(factor=(0.4, 1.8)), ops.RandomResize(size=(30, 110))], ids=str)
def test_a_drawn_resize_padded_and_cropped_is_pillow_s(chosen: ops.RandomResize) -> None:
    """The image resized by Pillow, the label map by its nearest labels, then padded and cropped by numpy; boxes ride
    along."""
    image, labels = smooth(61, 83), noise(61, 83)[..., 0]
    recipe = Recipe(ops=(chosen, ops.Pad(size=(64, 72), fill=200), ops.RandomCrop(size=(64, 72)), ops.Flip(p=1.0)))
    drawn = plan(recipe, range(12), sizes=[(61, 83)] * 12, seed=3)
    box, corner = [[10, 20, 60, 55]], np.array([83.0, 61.0])
    widths, num_boxes = set(), 0
    for nth in range(12):
        row = drawn.rows["drawn"][nth]
        factor, short = row["random_resize"].tolist()
        wide, high = (short * 83 // 61, short) if short else (int(83 * factor), int(61 * factor))
        widths.add(wide)
        pads = [(missing // 2, missing - missing // 2) for missing in (max(0, 64 - high), max(0, 72 - wide))]
        x, y = (int(row["random_crop"][name]) for name in "xy")
        shown: dict[str, np.ndarray] = {}
        for name, made, look, fill in (
            ("image", image, Image.Resampling.BILINEAR, 200),
            ("mask", labels, Image.Resampling.NEAREST, 255),
        ):
            resized = np.asarray(Image.fromarray(made).resize((wide, high), look))
            padded = np.pad(resized, [*pads, (0, 0)][: resized.ndim], constant_values=fill)
            shown[name] = padded[y : y + 64, x : x + 72][:, ::-1]
        found = Augment(recipe, layout="NHWC", num_threads=1)(
            image=image, mask=labels, bboxes=box, bbox_format="pascal_voc", plan=drawn[nth : nth + 1]
        )
        assert np.abs(found["image"].astype(np.float64) - shown["image"]).max() <= 1.1
        assert (found["mask"] == shown["mask"]).mean() > 0.99  # where a nearest label is between two, rounding decides
        ends = np.array(box[0], np.float64).reshape(2, 2) / corner * (wide, high) + (pads[1][0] - x, pads[0][0] - y)
        ends[:, 0] = 72 - ends[::-1, 0]
        if len(found["bboxes"]):
            num_boxes += 1
            np.testing.assert_allclose(found["bboxes"][0], np.clip(ends, 0, (72, 64)).ravel(), atol=1e-3)
    assert len(widths) > 6 and num_boxes > 6
