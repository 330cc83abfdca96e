"""Targets of a call: by names as albumentations has them, and in structures with torchvision's tv_tensors."""

import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from augpipe import Augment, Recipe, TargetOptions, View, ops, plan
from tests.augpipe.augment_call.tv_stand_ins import Format, installed, made

FLIP = Recipe(ops=(ops.Flip(p=1.0),))
CROP = Recipe(ops=(ops.CenterCrop(size=(60, 80)),))
TURNED = Recipe(ops=(ops.Rotate(max_deg=(30, 30), step=None),), border="constant")
SLANTED = Recipe(ops=(ops.Rotate(max_deg=(20, 20), step=None), ops.Stretch(horizontal=(1.3, 1.3)), ops.Flip(p=1.0)))
HEIGHT, WIDTH = 100, 160
COS, SIN = np.cos(np.deg2rad(30.0)), np.sin(np.deg2rad(30.0))
IMAGE = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
BOX = [20.0, 30.0, 50.0, 70.0]
"""Left, top, right, bottom: cropped to 80 x 60 from the middle it is 0, 10, 10, 50."""
WRITTEN = {
    "coco": [20, 30, 30, 40],
    "pascal_voc": BOX,
    "yolo": [35 / WIDTH, 50 / HEIGHT, 30 / WIDTH, 40 / HEIGHT],
    "albumentations": [20 / WIDTH, 30 / HEIGHT, 50 / WIDTH, 70 / HEIGHT],
}
FLIPPED = {
    "coco": [110, 30, 30, 40],
    "pascal_voc": [110, 30, 140, 70],
    "yolo": [125 / WIDTH, 50 / HEIGHT, 30 / WIDTH, 40 / HEIGHT],
    "albumentations": [110 / WIDTH, 30 / HEIGHT, 140 / WIDTH, 70 / HEIGHT],
}


def augmented(recipe: Recipe = FLIP, options: TargetOptions | None = None, **named: Any) -> dict[str, Any]:
    result: dict[str, Any] = Augment(recipe)(image=IMAGE, sample_ids=[0], targets=options, **named)
    return result


def test_an_image_and_its_mask_without_names_are_told_to_be_two_images(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    augment = Augment(CROP)
    mask = IMAGE[:, :, 0].copy()
    photo, label_map = Image.fromarray(IMAGE), Image.fromarray(mask)
    pairs = ((IMAGE, IMAGE), (mask, mask), (IMAGE, mask[:80]), (label_map, photo), (IMAGE, mask, mask))
    for others in pairs:
        augment(others)
    assert not caplog.records
    for pair in ((photo, label_map), [IMAGE, mask], (torch.from_numpy(IMAGE).movedim(2, 0), torch.from_numpy(mask))):
        monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
        augment(pair)
        assert "write augment(image=..., mask=...)" in caplog.text and len(caplog.records) == 1
        caplog.clear()


@pytest.mark.parametrize("name", WRITTEN)
def test_boxes_come_back_in_their_format(name: str) -> None:
    result = augmented(bboxes=[[*WRITTEN[name], 7, 8]], bbox_format=name)
    assert set(result) == {"image", "bboxes", "object_ids", "dropped"}
    np.testing.assert_allclose(result["bboxes"], [[*FLIPPED[name], 7, 8]], rtol=1e-5)
    assert result["bboxes"].dtype == np.float32
    np.testing.assert_array_equal(result["image"], Augment(FLIP)(IMAGE, sample_ids=[0]))


@pytest.mark.parametrize("boxes", ["tight", "corners", "ellipse"])
@pytest.mark.parametrize(
    "behind",
    [(ops.Pad(px=30),), (ops.Rotate(max_deg=(20, 20), step=None), ops.Pad(px=(9, 4))), (ops.Zoom(factor=(0.5, 0.5)),)],
    ids=["padded", "turned and padded", "shrunk"],
)
def test_boxes_end_where_a_crop_does_whatever_follows(behind: tuple[ops.Op, ...], boxes: Any) -> None:
    """As where the crop is a call of its own, as it is in other libraries."""
    given = {"bboxes": [BOX, [5, 5, 20, 20], [100, 50, 150, 95], [60, 40, 90, 60]], "bbox_format": "pascal_voc"}
    options = TargetOptions(boxes=boxes)
    alike = {"border": "constant"} if behind[0].op == "zoom" else {}
    found = augmented(Recipe(ops=(*CROP.ops, *behind), **alike), options, **given)
    cropped = Augment(CROP, layout="NHWC", dtype="uint8")(image=IMAGE, sample_ids=[0], targets=options, **given)
    then = Augment(Recipe(ops=behind, **alike))(
        image=cropped["image"],
        bboxes=cropped["bboxes"],
        bbox_format="pascal_voc",
        sample_ids=[0],
        targets=options,
    )
    assert found["object_ids"].tolist() == cropped["object_ids"][then["object_ids"]].tolist() == [0, 2, 3]
    np.testing.assert_allclose(found["bboxes"], then["bboxes"], atol=1e-3)


def test_a_box_of_whole_numbers_may_be_one_pixel() -> None:
    """Others that lie in the first pixel look like parts of the image."""
    result = Augment(Recipe())(image=IMAGE, bboxes=[[1, 1, 1, 1]], bbox_format="coco")
    np.testing.assert_array_equal(result["bboxes"], [[1, 1, 1, 1]])


def test_objects_that_are_cropped_away_go_with_all_that_is_said_of_them() -> None:
    boxes = [[5, 5, 10, 10], BOX, [0, 0, 30, 99], [60, 40, 70, 45]]
    masks = some_masks(boxes)
    keypoints = np.array([[[left, top], [right - 1, bottom - 1]] for left, top, right, bottom in boxes])
    result = augmented(
        CROP,
        bboxes=boxes,
        bbox_format="pascal_voc",
        masks=masks,
        keypoints=keypoints,
        names=["a", "b", "c", "d"],
        area=np.arange(4),
        object_ids=(31, 32, 33, 34),
    )
    assert result["dropped"] == [(31, "nothing of it is shown"), (33, "nothing of it is shown")]
    assert result["object_ids"] == (32, 34) and result["names"] == ["b", "d"] and result["area"].tolist() == [1, 3]
    np.testing.assert_array_equal(result["bboxes"], [[0, 10, 10, 50], [20, 20, 30, 25]])
    np.testing.assert_array_equal(result["keypoints"][0], [[-20, 10, 0], [9, 49, 2]])
    assert len(result["masks"]) == 2 and result["masks"][0].sum() == 10 * 40 and result["masks"][1].sum() == 50


def some_masks(boxes: list[list[float]]) -> npt.NDArray[np.uint8]:
    masks = np.zeros((len(boxes), HEIGHT, WIDTH), np.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes, strict=True):
        mask[int(top) : int(bottom), int(left) : int(right)] = 1
    return masks


@pytest.mark.parametrize("boxes", ["tight", "corners", "ellipse"])
def test_masks_with_labels_are_objects_without_boxes(boxes: Any) -> None:
    masks = some_masks([[5, 5, 10, 10], BOX, [60, 40, 70, 45]])
    options = TargetOptions(min_area=60, boxes=boxes)
    result = augmented(CROP, options, masks=masks, labels=["a", "b", "c"])
    assert set(result) == {"image", "masks", "labels", "object_ids", "dropped"}
    assert result["labels"] == ["b"] and result["object_ids"].tolist() == [1]
    assert result["masks"][0].sum() == 10 * 40 and len(result["masks"]) == 1
    assert result["dropped"][0] == (0, "nothing of it is shown")
    assert result["dropped"][1][1] == "its box of 50 square pixels is below min_area=60"
    assert augmented(CROP, masks=[], labels=[])["labels"] == []
    assert len(augmented(CROP, masks=masks)["masks"]) == 3  # of anything: all of them stay
    with pytest.raises(ValueError, match=r"labels is of length 2, and masks of 3\."):
        augmented(CROP, masks=masks, labels=["a", "b"])


def test_what_is_too_small_or_hidden_is_dropped_and_why() -> None:
    boxes = [BOX, [60, 40, 70, 45], [38, 30, 44, 60]]
    options = TargetOptions(min_area=60, min_visibility=0.5)
    result = augmented(CROP, options, bboxes=boxes, bbox_format="pascal_voc")
    assert type(result["dropped"][0][0]) is int
    assert [number for number, _ in result["dropped"]] == [0, 1]
    assert result["dropped"][0][1] == "33.33% of it is shown, below min_visibility=0.5"
    assert result["dropped"][1][1] == "its box of 50 square pixels is below min_area=60"
    kept = augmented(CROP, TargetOptions(drop_empty=False), bboxes=[[0, 0, 5, 5]], bbox_format="coco")
    assert kept["bboxes"].tolist() == [[0, 0, 0, 0]] and kept["dropped"] == []


def test_what_is_cut_at_the_frame_ends_there_exactly() -> None:
    """Not at -1e-16, which checks of other packages refuse."""
    across = np.linspace(0, WIDTH - 8, 24)
    boxes = np.stack([across, np.linspace(0, 60, 24), across + 8, np.linspace(40, HEIGHT, 24)], axis=1)
    rings = [[left, top, right, top, right, bottom, left, bottom] for left, top, right, bottom in boxes]
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=(61, 83)), ops.Rotate(max_deg=30), ops.Flip()))
    augment = Augment(recipe, seed=1)
    for polygons in ({}, {"polygons": rings}):
        for n in range(8):
            found = augment(image=IMAGE, bboxes=boxes, bbox_format="pascal_voc", sample_ids=[n], **polygons)
            ends = [np.concatenate(one) for one in found.get("polygons", [])] + [found["bboxes"].reshape(-1, 2)]
            for points in ends:
                assert (points >= 0).all() and (points <= [83, 61]).all()


def test_masks_have_the_label_of_the_pixel_or_the_fill() -> None:
    labels = np.arange(HEIGHT * WIDTH, dtype=np.uint16).reshape(HEIGHT, WIDTH)
    assert (augmented(mask=labels)["mask"] == labels[:, ::-1]).all()
    colours = IMAGE.copy()
    assert (augmented(mask=colours)["mask"] == colours[:, ::-1]).all()
    away = Recipe(ops=(ops.Translate(horizontal=(0.5, 0.5), vertical=(0, 0)),))
    moved = augmented(away, mask=labels)["mask"]
    assert (moved[:, 80:] == labels[:, :80]).all() and (moved[:, :80] == 255).all()
    mirrored = augmented(away, TargetOptions(mask_border="image"), mask=labels)["mask"]
    assert (mirrored[:, :80] == labels[:, 79::-1]).all()
    other = augmented(away, TargetOptions(mask_fill=9), mask=labels.astype(np.int64))["mask"]
    assert other.dtype == np.int64 and (other[:, :80] == 9).all()
    assert not augmented(away, mask=labels > 0)["mask"][:, :80].any()
    assert (augmented(away, masks=[labels])["masks"][0][:, :80] == 0).all()


def test_what_came_as_a_tensor_comes_back_as_one() -> None:
    mask = torch.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH)
    given = {
        "mask": mask,
        "masks": torch.stack([mask > 5, mask > 50]),
        "bboxes": torch.tensor([WRITTEN["coco"]] * 2),
        "keypoints": torch.ones(2, 1, 3),
        "depth": mask.float(),
        "labels": torch.tensor([4, 5]),
    }
    options = TargetOptions(paired={"depth": "linear"})
    result = augmented(FLIP, options, bbox_format="coco", **given)
    expected = augmented(FLIP, options, bbox_format="coco", **{name: one.numpy() for name, one in given.items()})
    assert isinstance(result["image"], np.ndarray) and isinstance(result["masks"], list)
    for name, one in given.items():
        for found, same in zip(result[name], expected[name], strict=True):
            assert isinstance(found, torch.Tensor) and not isinstance(same, torch.Tensor)
            np.testing.assert_array_equal(found.numpy(), same)
        if name != "bboxes":
            assert result[name][0].dtype == one.dtype
    assert (result["mask"] == mask.flip(1)).all()
    boxes = augmented(rotated_boxes=torch.tensor([[[1, 1], [9, 1], [9, 5], [1, 5]]]))["rotated_boxes"]
    assert isinstance(boxes, torch.Tensor) and boxes.shape == (1, 4, 2)
    points = augmented(keypoints=torch.tensor([[10, 20]]), masks=[mask, mask.numpy()])
    assert points["keypoints"].tolist() == [[150, 20]] and isinstance(points["keypoint_ids"], np.ndarray)
    assert [type(one) for one in points["masks"]] == [torch.Tensor, np.ndarray]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"mask": "x.png"},
            r"mask is the path 'x.png'. Give its pixels, numpy.asarray\(PIL.Image.open\('x.png'\)\)",
        ),
        ({"masks": [Path("a/x.png")]}, r"masks\[0\] is the path 'a/x.png'. Give its pixels"),
        ({"mask": [[1, 2], [3]]}, "mask is not numbers of one shape. Give .height, width. numbers"),
    ],
    ids=["path", "paths", "ragged"],
)
def test_masks_that_are_no_pixels_are_refused_with_the_remedy(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        augmented(**given)


def test_constant_borders_show_the_fill_also_where_the_image_s_border_is_asked_for() -> None:
    recipe = Recipe(ops=(ops.Pad(px=10, border="constant"),))
    for border in ("fill", "image"):
        mask = augmented(recipe, TargetOptions(mask_border=border), mask=np.ones((HEIGHT, WIDTH), np.uint8))["mask"]
        assert (mask[10:-10, 10:-10] == 1).all() and (mask == 255).sum() == mask.size - HEIGHT * WIDTH


def test_holes_leave_masks_and_boxes_as_they_are() -> None:
    recipe = Recipe(ops=(ops.Erase(p=1.0), ops.CoarseDropout(p=1.0)))
    labels = np.ones((HEIGHT, WIDTH), np.uint8)
    result = augmented(recipe, mask=labels, bboxes=[BOX], bbox_format="pascal_voc")
    assert (result["mask"] == labels).all() and result["bboxes"].tolist() == [BOX]


def test_left_and_right_trade_places_where_the_image_is_mirrored() -> None:
    points = [[[10, 20, 2], [30, 20, 1], [0, 0, 0]]]
    swapped = augmented(FLIP, TargetOptions(keypoint_swaps=((0, 1),)), keypoints=points)["keypoints"]
    assert swapped.tolist() == [[[130, 20, 1], [150, 20, 2], [0, 0, 0]]]
    both = Recipe(ops=(ops.Flip(p=1.0), ops.Flip(p=1.0, direction="vertical")))  # a half turn mirrors nothing
    kept = augmented(both, TargetOptions(keypoint_swaps=((0, 1),)), keypoints=points)["keypoints"]
    assert kept.tolist() == [[[150, 80, 2], [130, 80, 1], [0, 0, 0]]]


def test_points_of_no_object_are_dropped_where_they_are_not_shown() -> None:
    result = augmented(CROP, keypoints=[[1, 2, 5], [50, 30, 6]])
    assert result["keypoints"].tolist() == [[10, 10, 6]] and result["keypoint_ids"].tolist() == [1]
    assert len(augmented(CROP, TargetOptions(drop_empty=False), keypoints=[[1, 2], [50, 30]])["keypoints"]) == 2


def test_boxes_of_what_is_known_best() -> None:
    """A turned bar: its box's corners reach further than it does, its polygon and its mask do not."""
    recipe = Recipe(ops=(ops.Rotate(max_deg=(30, 30), step=None),), border="constant")
    bar = np.array([[40, 40], [120, 45], [120, 55], [40, 60]], np.float64)
    whole = {"bboxes": [[40, 40, 120, 60]], "bbox_format": "pascal_voc"}
    corners = augmented(recipe, TargetOptions(boxes="corners"), **whole)["bboxes"][0]
    by_polygon = augmented(recipe, polygons=[bar], **whole)
    assert (corners[2] - corners[0]) > (by_polygon["bboxes"][0][2] - by_polygon["bboxes"][0][0]) + 2
    turn = np.deg2rad(30)
    rotated = (bar - (80, 50)) @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) + (80, 50)
    np.testing.assert_allclose(by_polygon["bboxes"][0], [*rotated.min(axis=0), *rotated.max(axis=0)], atol=1e-3)
    assert set(map(tuple, np.round(by_polygon["polygons"][0][0], 3))) == set(map(tuple, np.round(rotated, 3)))
    masks = np.zeros((1, HEIGHT, WIDTH), np.bool_)
    masks[0, 45:55, 40:120] = True
    by_mask = augmented(recipe, masks=masks, **whole)
    rows, columns = np.nonzero(by_mask["masks"][0])
    assert by_mask["bboxes"][0].tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@pytest.mark.parametrize("recipe", [TURNED, SLANTED], ids=["turned", "slanted"])
def test_boxes_of_ellipses_are_those_around_the_mapped_ellipse(recipe: Recipe) -> None:
    """Of an affine map a that is at a distance of sqrt((a_x w / 2)^2 + (a_y h / 2)^2) from the mapped centre."""
    boxes = np.array([[40.0, 30.0, 120.0, 60.0], [70.0, 20.0, 90.0, 90.0], [60.0, 40.0, 60.0, 50.0]])
    options = TargetOptions(boxes="ellipse", drop_empty=False)
    found = augmented(recipe, options, bboxes=boxes, bbox_format="pascal_voc")["bboxes"]
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    origin, right, below = plan(recipe, [0], sizes=[(HEIGHT, WIDTH)]).to_source(points)
    matrix = np.linalg.inv(np.stack([right - origin, below - origin], axis=1))
    middle = (0.5 * (boxes[:, :2] + boxes[:, 2:]) - origin) @ matrix.T
    half = np.sqrt((0.5 * (boxes[:, 2:] - boxes[:, :2])) ** 2 @ (matrix**2).T)
    expected = np.concatenate([middle - half, middle + half], axis=1)
    assert not (expected[:2, 2:] > (WIDTH, HEIGHT)).all()
    np.testing.assert_allclose(found[:2], np.clip(expected, 0, [WIDTH, HEIGHT] * 2)[:2], atol=0.01)
    assert (np.asarray(found[2]) == 0.0).all()
    corners = augmented(recipe, TargetOptions(boxes="corners"), bboxes=boxes[:2], bbox_format="pascal_voc")["bboxes"]
    assert (np.asarray(corners)[:, 2:] - np.asarray(corners)[:, :2] > found[:2, 2:] - found[:2, :2]).any()


def test_polygons_as_coco_writes_them_are_those_of_points() -> None:
    points = [[10.0, 10.0], [40.0, 10.0], [30.0, 40.0]]
    flat = [value for point in points for value in point]
    for given in (points, [flat], flat, [points]):
        (rings,) = augmented(polygons=[given])["polygons"]
        np.testing.assert_allclose(sorted(rings[0].tolist()), sorted([[160 - x, y] for x, y in points]))


def test_no_objects_are_no_error() -> None:
    result = augmented(bboxes=[], bbox_format="coco", polygons=[], labels=[], masks=[], keypoints=np.empty((0, 17, 3)))
    assert result["bboxes"].shape == (0, 4) and result["labels"] == [] and result["polygons"] == []
    assert result["masks"] == [] and result["keypoints"].shape == (0, 17, 3) and result["dropped"] == []


def test_views_have_their_own_targets() -> None:
    recipe = Recipe(views=[View(ops=FLIP.ops), View(ops=CROP.ops)])
    first, second = Augment(recipe)(image=IMAGE, bboxes=[BOX], bbox_format="pascal_voc")
    np.testing.assert_allclose(first["bboxes"], [FLIPPED["pascal_voc"]])
    np.testing.assert_allclose(second["bboxes"], [[0, 10, 10, 50]], atol=1e-6)


def test_objects_shuffled_give_the_same_shuffled() -> None:
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=64), ops.LensDistortion(), ops.Rotate(max_deg=30)))
    rng = np.random.default_rng(3)
    boxes = rng.uniform(0, 90, (12, 4))
    boxes[:, 2:] = np.minimum(boxes[:, :2] + rng.uniform(1, 60, (12, 2)), (WIDTH, HEIGHT))
    order = rng.permutation(12)
    one = augmented(recipe, bboxes=boxes, bbox_format="pascal_voc")
    other = augmented(recipe, bboxes=boxes[order], bbox_format="pascal_voc", object_ids=order)
    found = dict(zip(other["object_ids"].tolist(), other["bboxes"].tolist(), strict=True))
    assert found == dict(zip(one["object_ids"].tolist(), one["bboxes"].tolist(), strict=True))


def test_points_with_columns_that_are_no_visibility_keep_them() -> None:
    for columns in ([3.0, 40, 30, 2], [0.5, 40, 30, 0.2], [2.0, 40, 30], [2.0]):
        result = augmented(keypoints=[[50, 30, *columns]])
        assert result["keypoints"].tolist() == [[110, 30, *np.float32(columns).tolist()]]


def test_the_format_of_flat_key_points_may_be_said() -> None:
    """Six columns of one's own may look like two points of COCO."""
    rows = [[50, 30, 2, 7, 5, 0], [20, 60, 2, 0, 9, 1]]
    own = augmented(keypoints=rows, keypoint_format="xy")
    assert own["keypoints"].tolist() == [[110, 30, 2, 7, 5, 0], [140, 60, 2, 0, 9, 1]]
    assert own["keypoint_ids"].tolist() == [0, 1]
    of_objects = augmented(keypoints=rows, keypoint_format="coco")
    expected = augmented(keypoints=np.reshape(rows, (2, 2, 3)))
    np.testing.assert_array_equal(of_objects["keypoints"], expected["keypoints"])
    assert of_objects["keypoints"].shape == (2, 2, 3)
    three = np.reshape(rows, (2, 2, 3))
    assert augmented(keypoints=three, keypoint_format="coco")["keypoints"].shape == (2, 2, 3)


WRONG: dict[str, dict[str, Any]] = {
    "points as COCO writes them": {"keypoints": [[50, 30, 2, 0, 0, 0], [0, 0, 0, 20, 20, 1]]},
    "parts as pixels": {"bboxes": [[0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.5, 0.5]], "bbox_format": "coco"},
    "no format": {"bboxes": [BOX]},
    "another format": {"bboxes": [BOX], "bbox_format": "voc"},
    "negative": {"bboxes": [BOX, [50, 30, 20, 70]], "bbox_format": "pascal_voc"},
    "NaN": {"bboxes": [[float("nan"), 0, 1, 1]], "bbox_format": "coco"},
    "outside": {"bboxes": [[10, 10, 20, 200]], "bbox_format": "coco"},
    "not parts": {"bboxes": [BOX], "bbox_format": "yolo"},
    "three numbers": {"bboxes": [[1, 2, 3]], "bbox_format": "coco"},
    "letters": {"bboxes": [[1, 2, 3, "cat"]], "bbox_format": "coco"},
    "mask": {"mask": np.zeros((HEIGHT, WIDTH + 1), np.uint8)},
    "masks": {"masks": np.zeros((2, HEIGHT, 3), np.uint8)},
    "fewer masks": {"masks": np.zeros((2, HEIGHT, WIDTH)), "bboxes": [BOX], "bbox_format": "pascal_voc"},
    "fewer labels": {"bboxes": [BOX], "bbox_format": "pascal_voc", "labels": []},
    "no list": {"bbox": 3},
    "two corners": {"polygons": [[[0, 0, 9, 9]]]},
    "polygon of NaN": {"polygons": [[[0, 0, 9, 9, float("inf"), 1]]]},
    "point of NaN": {"keypoints": [[1, float("nan")]]},
    "visibility": {"keypoints": [[[1, 1, 3]]]},
    "shape of points": {"keypoints": [1, 2, 3]},
    "another format of points": {"keypoints": [[1, 2]], "keypoint_format": "xya"},
    "no three of each point": {"keypoints": [[1, 2, 2, 3]], "keypoint_format": "coco"},
    "points of objects as ones of none": {"keypoints": [[[1, 2]]], "keypoint_format": "xy"},
    "no room for the fill": {"mask": np.zeros((HEIGHT, WIDTH), np.int8)},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_targets_are_told(name: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Augment(FLIP)(image=IMAGE, **WRONG[name])


def test_wrong_calls_are_told() -> None:
    augment = Augment(FLIP)
    with pytest.raises(ValueError, match="there is no image"):
        augment()
    with pytest.raises(ValueError, match="is a batch"):
        augment(image=np.stack([IMAGE, IMAGE]), mask=IMAGE)
    with pytest.raises(TypeError, match="next to images"):
        augment(IMAGE, bboxes=[BOX])
    with pytest.raises(ValueError, match="holds no images"):
        augment({"labels": [1]})
    with pytest.raises(ValueError, match="min_visibility=2"):
        TargetOptions(min_visibility=2)


def test_boxes_that_reach_outside_are_cut_where_that_is_asked_for() -> None:
    result = augmented(FLIP, TargetOptions(clip=True), bboxes=[[150, 90, 30, 30]], bbox_format="coco")
    assert result["bboxes"].tolist() == [[0, 90, 10, 10]]


# torchvision's tensors


def test_structures_come_back_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    tv = installed(monkeypatch)
    image = made(tv.Image, IMAGE.transpose(2, 0, 1).copy(), torch.uint8)
    Pair = namedtuple("Pair", ["left", "right"])
    boxes = made(tv.BoundingBoxes, [[20, 30, 30, 40], [0, 0, 5, 5]], format=Format.XYWH, canvas_size=(HEIGHT, WIDTH))
    masks = made(tv.Mask, np.zeros((2, HEIGHT, WIDTH)), torch.bool)
    masks[0, 30:70, 20:50], masks[1, :5, :5] = True, True
    semantic = made(tv.Mask, np.arange(HEIGHT * WIDTH).reshape(1, HEIGHT, WIDTH), torch.int64)
    points = made(tv.KeyPoints, [[[50.0, 30.0]], [[1.0, 2.0]]], canvas_size=(HEIGHT, WIDTH))
    target = {"boxes": boxes, "Labels": torch.tensor([4, 5]), "masks": masks, "id": Pair(3, "x"), "points": points}
    found_image, found, found_semantic = Augment(CROP, dtype="uint8")((image, target, [semantic]))
    assert type(found_image) is tv.Image and found_image.shape == (3, 60, 80) and found_image.dtype == torch.uint8
    assert (found_image.numpy() == IMAGE[20:80, 40:120].transpose(2, 0, 1)).all()
    assert type(found["boxes"]) is tv.BoundingBoxes and found["boxes"].tolist() == [[0, 10, 10, 40], [0, 0, 0, 0]]
    assert found["boxes"].format is Format.XYWH and found["boxes"].canvas_size == (60, 80)
    assert found["Labels"].tolist() == [4, 5] and found["id"] == Pair(3, "x") and type(found["id"]) is Pair
    assert found["masks"].shape == (2, 60, 80) and found["masks"].dtype == torch.bool
    assert found["points"].tolist() == [[[10, 10]], [[-39, -18]]] and found["points"].canvas_size == (60, 80)
    assert isinstance(found_semantic, list) and found_semantic[0].dtype == torch.int64
    assert (found_semantic[0][0].numpy() == np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH)[20:80, 40:120]).all()
    dropped = Augment(CROP)((image, target), targets=TargetOptions(drop_empty=True))[1]
    assert len(dropped["boxes"]) == len(dropped["masks"]) == len(dropped["points"]) == 1
    assert dropped["Labels"].tolist() == [4]
    target |= {"area": torch.tensor([1200.0, 25.0]), "iscrowd": torch.tensor([0, 1]), "image_id": torch.tensor([7, 8])}
    dropped = Augment(CROP)((image, target), targets=TargetOptions(drop_empty=True))[1]
    assert dropped["area"].tolist() == [1200.0] and dropped["iscrowd"].tolist() == [0]
    assert dropped["image_id"].tolist() == [7, 8]
    for area in (12.0, None, torch.tensor(5.0), torch.tensor([1.0, 2.0, 3.0])):  # of no object, or of the image
        dropped = Augment(CROP)((image, target | {"area": area}), targets=TargetOptions(drop_empty=True))[1]
        assert dropped["area"] is area


def test_masks_of_objects_without_boxes_go_with_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The everyday form of instance segmentation, where boxes are made of the masks that are left."""
    tv = installed(monkeypatch)
    masks = made(tv.Mask, some_masks([BOX, [0, 0, 5, 5]]), torch.uint8)
    target = {"masks": masks, "labels": torch.tensor([4, 5]), "iscrowd": torch.tensor([0, 1])}
    away = Recipe(ops=(ops.Pad(px=8), ops.CenterCrop(size=(HEIGHT + 16, WIDTH + 16))))
    found = Augment(away)((IMAGE, target))[1]
    assert found["labels"].tolist() == [4, 5] and found["masks"].unique().tolist() == [0, 1]
    found = Augment(CROP)((IMAGE, target), targets=TargetOptions(drop_empty=True))[1]
    assert found["labels"].tolist() == [4] and found["iscrowd"].tolist() == [0] and found["masks"].shape == (1, 60, 80)
    assert type(found["masks"]) is tv.Mask and found["masks"].sum() == 10 * 40
    semantic = made(tv.Mask, some_masks([BOX]), torch.uint8)  # a label map, and a label of the image
    found = Augment(away)((IMAGE, {"mask": semantic, "label": torch.tensor(3)}))[1]
    assert found["mask"].unique().tolist() == [0, 1, 255] and found["label"] == 3


@pytest.mark.parametrize(("form", "values"), [("XYXY", BOX), ("CXCYWH", [35, 50, 30, 40])])
def test_boxes_of_torchvision_s_formats(form: str, values: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    tv = installed(monkeypatch)
    boxes = made(tv.BoundingBoxes, [values], torch.int64, format=Format[form], canvas_size=(HEIGHT, WIDTH))
    found = Augment(FLIP)({"image": IMAGE, "boxes": boxes})
    expected = {"XYXY": [110, 30, 140, 70], "CXCYWH": [125, 50, 30, 40]}[form]
    assert found["boxes"].tolist() == [expected] and found["boxes"].dtype == torch.int64
    assert found["image"].shape == (3, HEIGHT, WIDTH)


TURNED = {
    "CXCYWHR": ([60.0, 40.0, 30.0, 10.0, 30.0], [100.0, 40.0, 30.0, 10.0, -30.0]),
    "XYWHR": (
        [60 - 15 * COS - 5 * SIN, 40 + 15 * SIN - 5 * COS, 30.0, 10.0, 30.0],
        [100 - 15 * COS + 5 * SIN, 40 - 15 * SIN - 5 * COS, 30.0, 10.0, -30.0],
    ),
    "XYXYXYXY": ([45, 38, 72, 29, 75, 38, 48, 47], [88, 29, 115, 38, 112, 47, 85, 38]),
}
"""Rotated boxes in torchvision's formats, with angles in degrees, anticlockwise as seen, and what its horizontal flip
makes of them."""


@pytest.mark.parametrize("form", TURNED)
def test_rotated_boxes_of_torchvision_s_formats(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tv = installed(monkeypatch)
    values, mirrored = TURNED[form]
    boxes = made(tv.BoundingBoxes, [values], torch.float64, format=Format[form], canvas_size=(HEIGHT, WIDTH))
    found = Augment(FLIP)({"image": IMAGE, "boxes": boxes})["boxes"]
    assert type(found) is tv.BoundingBoxes and found.format is Format[form] and found.dtype == torch.float64
    assert found.canvas_size == (HEIGHT, WIDTH) and np.abs(found.numpy() - [mirrored]).max() < 1e-4
    elsewhere = Recipe(ops=(ops.CenterCrop(size=(10, 10)),))
    assert Augment(elsewhere)({"image": IMAGE, "boxes": boxes})["boxes"].tolist() == [[0.0] * len(values)]


def test_lists_of_images_are_still_lists_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    tv = installed(monkeypatch)
    image = made(tv.Image, IMAGE.transpose(2, 0, 1).copy(), torch.uint8)
    assert Augment(FLIP)([image, image]).shape == (2, 3, HEIGHT, WIDTH)
    assert Augment(FLIP)((IMAGE, IMAGE)).shape == (2, 3, HEIGHT, WIDTH)


def test_torchvision_is_not_imported() -> None:
    augmented(bboxes=[BOX], bbox_format="pascal_voc", mask=IMAGE)
    assert not [name for name in sys.modules if name.startswith("torchvision")]


def test_what_targets_do_not_follow_is_refused_whatever_was_drawn() -> None:
    image = np.zeros((20, 30, 3), np.uint8)
    augment = Augment(Recipe(ops=[ops.OneOf(ops=[ops.Flip(), ops.GridShuffle(p=0.0)])]))
    for targets in ({"mask": image[:, :, 0]}, {"bboxes": [(1, 2, 3, 4)]}, {"keypoints": [(3, 4)]}):
        with pytest.raises(ValueError, match=r"masks, boxes and points do not follow grid_shuffle\."):
            augment(image=image, bbox_format="coco", **targets)
    assert augment(image=image, bboxes=None)["image"].shape == (3, 20, 30)


def test_points_follow_what_bends() -> None:
    image = np.zeros((90, 120, 3), np.uint8)
    recipe = Recipe(ops=[ops.Resize(size=100), ops.ElasticTransform(alpha=50.0, sigma=7.0, p=1.0)])
    augment = Augment(recipe)
    points = np.random.default_rng(1).uniform(15.0, 75.0, (20, 2))
    drawn = plan(recipe, [3], sizes=[(90, 120)])
    found = augment(image=image, keypoints=points, plan=drawn)
    assert len(found["keypoint_ids"]) > 15
    known = points[found["keypoint_ids"]]
    assert np.abs(drawn.to_source(found["keypoints"]) - known).max() < 0.01
    assert np.abs(found["keypoints"] - known * (100 / 120, 100 / 90)).max() > 0.5
    of_object = augment(image=image, keypoints=[points], mask=None, plan=drawn)["keypoints"][0]
    assert np.flatnonzero(of_object[:, 2]).tolist() == found["keypoint_ids"].tolist()


def test_crops_know_rotated_boxes_as_the_boxes_around_them() -> None:
    """As in a loader, where `bboxes` are not given too."""
    keeping = ops.RandomResizedCrop(size=24, scale=(0.1, 0.2), keep_objects=ops.KeepObjects(rule="center"))
    image = np.zeros((80, 90, 3), np.uint8)
    corners = np.array([[[4, 4], [12, 6], [10, 14], [2, 12]]], np.float64)
    around = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    augment = Augment(Recipe(ops=[keeping]), framework="numpy")
    for sample_id in range(8):
        by_box = augment(image=image, bboxes=around, bbox_format="pascal_voc", sample_ids=[sample_id])
        by_corners = augment(image=image, rotated_boxes=corners, sample_ids=[sample_id])
        assert len(by_corners["rotated_boxes"]) == len(by_box["bboxes"]) == 1


@pytest.mark.parametrize("name", ["bbox_format", "keypoint_format"])
def test_a_format_is_looked_at_where_an_image_has_nothing_in_it(name: str) -> None:
    formats: dict[str, Any] = {name: "cocoo"}
    with pytest.raises(ValueError, match=f"{name}='cocoo'"):
        Augment(Recipe(ops=[ops.Flip()]))(
            image=np.zeros((4, 5, 3), np.uint8), mask=np.zeros((4, 5), np.uint8), **formats
        )


@pytest.mark.parametrize(
    "setting", [{"bbox_format": "coco"}, {"keypoint_format": "xy"}, {"targets": TargetOptions(mask_fill=255)}]
)
def test_settings_of_targets_are_refused_where_there_are_none(setting: dict[str, Any]) -> None:
    augment, image = Augment(Recipe(ops=[ops.Flip()])), np.zeros((8, 8, 3), np.uint8)
    for given in (image, [image, image]):
        with pytest.raises(ValueError, match=f"{next(iter(setting))} says .* and plain images have none"):
            augment(given, **setting)
    augment(image=image, **setting)
