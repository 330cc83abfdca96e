"""Rotated boxes hold what a dense look at the output finds of them, and no smaller rectangle does."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings

from augpipe import Augment, Recipe, TargetOptions, ops
from augpipe.planning.targets.objects import Objects, map_objects
from augpipe.planning.targets.rotated_boxes import as_xywhr
from tests.parity.dense import dense, inside
from tests.property.test_bent_targets import FOLDED, SMOOTH
from tests.property.test_targets import FEW, SEEDS, drawn_for, large_recipes, place_of

Float = npt.NDArray[np.float64]
FINER = 4
IMAGE = np.zeros((100, 160, 3), np.uint8)
BOX = np.array([[[20.0, 30.0], [60.0, 50.0], [55.0, 60.0], [15.0, 40.0]]])
"""Clockwise as seen, with the long side first."""


def box_at(rng: np.random.Generator, x: float, y: float) -> Float:
    corners: Float = cv2.boxPoints(((x, y), tuple(rng.uniform(15.0, 140.0, 2)), rng.uniform(0.0, 360.0)))
    return corners.astype(np.float64)


@settings(max_examples=FEW)
@given(recipe=large_recipes(), seed=SEEDS)
def test_the_rectangle_holds_what_is_shown_and_is_the_least(recipe: Recipe, seed: int) -> None:
    drawn, look, inverse = drawn_for(recipe, seed)
    rng = np.random.default_rng(seed)
    box = box_at(rng, *place_of(look, rng))
    found = map_objects(
        inverse, Objects(item=np.zeros(1, np.int64), rotated_boxes=box[None]), TargetOptions(), drops_empty=True
    )
    assert found.rotated_boxes is not None and found.polygons is None and found.boxes is not None
    mask = dense(drawn, 0, finer=FINER).filled(box)
    assume(mask.sum() > 1600)
    rows, columns = np.nonzero(mask)
    seen = (np.stack([columns, rows], axis=1) + 0.5) / FINER
    _, width, height, _ = _sides(found.rotated_boxes[0])
    assert _outside(found.rotated_boxes[0], seen) <= 1.0
    _, (least_width, least_height), _ = cv2.minAreaRect(seen.astype(np.float32))
    assert width * height <= (least_width + 1.0) * (least_height + 1.0)
    assert found.boxes[0] == pytest.approx([*seen.min(axis=0), *seen.max(axis=0)], abs=1.0)


@pytest.mark.parametrize("name", [*SMOOTH, *FOLDED])
def test_bends_are_followed_as_masks_follow_them(name: str) -> None:
    """Also where they fold the image, and in several passes: no pixel that shows the object lies further outside than
    masks round, and the rectangle is as small as one around these pixels."""
    recipe = Recipe(ops=SMOOTH[name] if name in SMOOTH else FOLDED[name])
    augment, (y, x) = Augment(recipe, 3), np.mgrid[: IMAGE.shape[0], : IMAGE.shape[1]] + 0.5
    for seed in range(3):
        rng = np.random.default_rng(seed)
        box = box_at(rng, *rng.uniform((40, 30), (120, 70)))
        known: dict[str, Any] = {"masks": [inside(box, x, y)], "rotated_boxes": [box], "sample_ids": [seed]}
        for rule in ("tight", "whole"):
            found = augment(image=IMAGE, targets=TargetOptions(rotated_boxes=rule), **known)
            rows, columns = np.nonzero(found["masks"][0])
            seen, corners = np.stack([columns, rows], axis=1) + 0.5, found["rotated_boxes"][0].astype(np.float64)
            assert _outside(corners, seen) <= 1.1
            _, least, _ = cv2.minAreaRect(seen.astype(np.float32))
            assert rule == "whole" or np.prod(_sides(corners)[1:3]) <= np.prod(np.add(least, 2.0))


def test_what_boxes_of_corners_reach_and_the_object_does_not_is_dropped() -> None:
    crop, box = Recipe(ops=[ops.CenterCrop(size=20)]), [[50, 50], [80, 20], [82, 22], [52, 52]]
    given: Any = {"rotated_boxes": [box], "bboxes": [[50, 20, 82, 52]], "bbox_format": "pascal_voc"}
    found = Augment(crop)(image=IMAGE, targets=TargetOptions(boxes="corners"), **given)
    assert found["dropped"] == [(0, "nothing of it is shown")] and len(found["rotated_boxes"]) == 0


def _sides(corners: Float) -> tuple[Float, float, float, Float]:
    """Directions and lengths of the sides at the first corner."""
    along, down = corners[1] - corners[0], corners[3] - corners[0]
    width, height = float(np.linalg.norm(along)), float(np.linalg.norm(down))
    return along / width, width, height, down / height


def _outside(corners: Float, points: Float) -> float:
    """How far the points reach out of a rectangle."""
    along, width, height, down = _sides(corners)
    across, below = (points - corners[0]) @ along, (points - corners[0]) @ down
    return float(max(-across.min(), across.max() - width, -below.min(), below.max() - height))


def mapped(recipe: Recipe, rule: Any = "tight", box: Float = BOX) -> Float:
    options = TargetOptions(rotated_boxes=rule)
    result: Float = Augment(recipe)(image=IMAGE, rotated_boxes=box, targets=options, sample_ids=[3])["rotated_boxes"]
    return result


@pytest.mark.parametrize("rule", ["tight", "whole"])
def test_flips_and_turns_keep_the_first_side_and_go_clockwise(rule: str) -> None:
    flip, both = Recipe(ops=[ops.Flip(p=1.0)]), Recipe(ops=[ops.Flip(p=1.0), ops.Flip(p=1.0, direction="vertical")])
    mirrored = BOX * (-1, 1) + (160, 0)
    np.testing.assert_allclose(mapped(flip, rule), mirrored[:, [1, 0, 3, 2]], atol=1e-4)
    np.testing.assert_allclose(mapped(flip, rule, BOX[:, ::-1]), mirrored[:, ::-1], atol=1e-4)
    np.testing.assert_allclose(mapped(both, rule), (160, 100) - BOX, atol=1e-4)
    shifted = np.roll(BOX, 1, axis=1)  # the short side first
    np.testing.assert_allclose(mapped(both, rule, shifted), (160, 100) - shifted, atol=1e-4)


def test_what_the_frame_cuts_is_bound_again_or_kept_whole() -> None:
    recipe = Recipe(ops=[ops.CenterCrop(size=(60, 80))])  # shows x from 40, y from 20
    whole = BOX - (40, 20)
    np.testing.assert_allclose(mapped(recipe, "whole"), whole, atol=1e-4)
    tight = mapped(recipe)
    cut = np.array([[0, 20], [20, 30], [15, 40], [0, 32.5]])  # by hand: both long sides at x = 0
    assert _outside(tight[0].astype(np.float64), cut) <= 1e-4
    _, (width, height), _ = cv2.minAreaRect(cut.astype(np.float32))
    assert np.prod(_sides(tight[0])[1:3]) == pytest.approx(width * height, rel=1e-4)
    # the first side of what is left points the way that it did
    assert _sides(tight[0])[0] @ _sides(BOX[0])[0] > 0.8


@given(seed=SEEDS)
def test_centre_sides_and_angle_are_those_of_opencv(seed: int) -> None:
    rng = np.random.default_rng(seed)
    box = box_at(rng, *rng.uniform(0.0, 300.0, 2))
    (found,) = as_xywhr(box[None])
    x, y, width, height, angle = found.tolist()
    assert found.dtype == np.float32 and width >= height
    assert -np.pi / 4 - 1e-6 <= angle < 3 * np.pi / 4 + 1e-6
    again = cv2.boxPoints(((x, y), (width, height), float(np.degrees(angle))))
    assert np.abs(again[:, None] - box).max(axis=2).min(axis=1).max() < 1e-2


def test_angles_stay_below_their_end() -> None:
    """Long sides along the axes and the diagonals, as they round."""
    for angle, known in ((0.0, 0.0), (90.0, np.pi / 2), (-45.0, -np.pi / 4), (135.0, -np.pi / 4), (180.0, 0.0)):
        for off in (-1e-14, 0.0, 1e-14):
            turned = np.radians(angle) + off
            long, short = (
                10.0 * np.array([np.cos(turned), np.sin(turned)]),
                np.array([-np.sin(turned), np.cos(turned)]),
            )
            (found,) = as_xywhr(np.array([[-long - short, long - short, long + short, short - long]]))
            assert found[4] == pytest.approx(known, abs=1e-6) or found[4] == pytest.approx(known + np.pi, abs=1e-6)
            assert found[2:4] == pytest.approx([20.0, 2.0])
