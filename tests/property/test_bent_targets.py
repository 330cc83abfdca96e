"""Targets of bent frames lie where a look at every pixel of the output finds them: masks, boxes, polygons, points."""

from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Recipe, TargetOptions, ops, plan
from augpipe.planning.targets.boxes import map_boxes
from augpipe.planning.targets.inverse_map import InverseMap
from augpipe.planning.targets.masks import filled_rings
from augpipe.planning.targets.objects import Objects, map_objects
from tests.parity.dense import dense, hull, star

SIZE = 150, 170
SMOOTH: dict[str, list[ops.Op]] = {
    "grid": [ops.GridDistortion()],
    "whole": [ops.GridDistortion(cells="whole_px", num_steps=7)],
    "to edge": [ops.GridDistortion(cells="to_edge", num_steps=4)],
    "turned": [
        ops.Flip(p=1.0),
        ops.Rotate(max_deg=30, step=None),
        ops.GridDistortion(normalized=False, distort_limit=(-0.4, 0.5)),
        ops.Rotate(max_deg=30, step=None),
    ],
    "elastic": [ops.ElasticTransform(alpha=50.0, sigma=8.0, affine_px=9.0, p=1.0)],
    "among others": [
        ops.RandomResizedCrop(size=(140, 160), scale=(0.5, 1.0)),
        ops.Flip(p=1.0),
        ops.Rotate(max_deg=30, step=None),
        ops.ElasticTransform(alpha=90.0, sigma=9.0, same=True, p=1.0),
        ops.Zoom(factor=(0.7, 0.9)),
        ops.Perspective(distortion=0.3),
    ],
    "optical": [ops.OpticalDistortion(k=(-0.3, 1.0))],
    "fisheye": [ops.Rotate(max_deg=40), ops.OpticalDistortion(mode="fisheye", k=(0.5, 0.9)), ops.Zoom(factor=(0.8, 1))],
}
FOLDED: dict[str, list[ops.Op]] = {
    "elastic folds": [ops.Rotate(max_deg=20), ops.ElasticTransform(alpha=120.0, sigma=5.0, p=1.0)],
    "lens folds": [ops.OpticalDistortion(k=(-0.9, -0.6))],
    "cells fold": [ops.GridDistortion(cells="to_edge", normalized=False, num_steps=4, distort_limit=(-0.1, 0.9))],
    "first of two passes": [
        ops.ElasticTransform(alpha=120.0, sigma=6.0, p=1.0),
        ops.Sharpness(factor=(1.0, 1.0), p=1.0),
        ops.Rotate(),
    ],
    "last of two passes": [
        ops.Rotate(),
        ops.Sharpness(factor=(1.0, 1.0), p=1.0),
        ops.GridDistortion(cells="whole_px"),
        ops.Flip(p=1.0),
    ],
}
BORDERS = ("reflect", "constant", "edge", "context", "reflect_101")
ITEM = np.zeros(1, np.int64)


@pytest.mark.parametrize("name", [*SMOOTH, *FOLDED])
def test_masks_are_the_pixels_that_an_image_of_labels_shows(name: str) -> None:
    """Labels written as colours, and looked up as an image that shows nearest pixels."""
    labels = np.arange(SIZE[0] * SIZE[1], dtype=np.int32).reshape(SIZE)
    colours = np.stack([labels & 255, labels >> 8 & 255, labels >> 16], axis=2).astype(np.uint8)
    chain = SMOOTH[name] if name in SMOOTH else FOLDED[name]
    for nth, border in enumerate(BORDERS[len(name) % 2 :: 2]):
        recipe: Any = Recipe(ops=chain, border=border, fill=(9, 1, 2), interpolation="nearest")
        options = TargetOptions(mask_border="image", mask_fill=9 + 256 + 2 * 65536)
        found = Augment(recipe, 7, dtype="uint8", layout="NHWC")(
            image=colours, mask=labels, sample_ids=[nth], targets=options
        )
        shown = found["image"].astype(np.int32) @ (1, 256, 65536)
        assert (shown == options.mask_fill).any() == (border == "constant")
        np.testing.assert_array_equal(found["mask"], shown)


@pytest.mark.parametrize("name", [*SMOOTH, *FOLDED])
def test_boxes_and_polygons_lie_around_what_is_shown(name: str) -> None:
    chain = SMOOTH[name] if name in SMOOTH else FOLDED[name]
    recipe = Recipe(ops=chain, border="edge")
    if recipe.num_passes > 1:
        return
    drawn = plan(recipe, range(3), sizes=[SIZE] * 3, seed=5)
    for position in range(3):
        look, rng = dense(drawn, position), np.random.default_rng(position)
        inverse = InverseMap(drawn.rows[position : position + 1])
        for radius in (14.0, 40.0, 70.0):
            at = rng.uniform((radius, radius), (SIZE[1] - radius, SIZE[0] - radius))
            polygon = star(rng, *at, radius, least=0.8)
            box = np.array([[*np.maximum(at - radius, 0), *np.minimum(at + radius * 0.7, SIZE[::-1])]])
            corners = box[0, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(4, 2)
            mapped = map_objects(inverse, Objects(item=ITEM, polygons=[[polygon]]), TargetOptions(), drops_empty=True)
            assert mapped.boxes is not None and mapped.polygons is not None
            for outline, (found, share) in (
                (polygon, (mapped.boxes, mapped.shares)),
                (corners, map_boxes(inverse, box, ITEM)),
            ):
                mask = look.filled(outline)
                assert mask.any() == (found[0] > 0.0).any() or mask.sum() < 3
                if mask.sum() > 150:
                    assert share is not None and (share[0] > 0.0 or name == "lens folds")
                    assert np.abs(found[0] - hull(mask)).max() <= 1.0
            mask, filled = look.filled(polygon), filled_rings(mapped.polygons, look.x.shape)[0] > 0
            if mask.sum() > 32 * 32 and name in SMOOTH:
                assert (mask & filled).sum() >= 0.99 * (mask | filled).sum()


def test_what_a_bend_hides_is_dropped_and_said() -> None:
    """A barrel shows more than the image, a pincushion less: its corners are hidden."""
    recipe = Recipe(ops=[ops.OpticalDistortion(k=(-0.3, -0.3))])
    masks = np.zeros((2, *SIZE), np.uint8)
    masks[0, :4, :4], masks[1, 40:90, 50:120] = 1, 1
    rings = [[[0, 0, 4, 0, 4, 4, 0, 4]], [[50, 40, 120, 40, 120, 90, 50, 90]]]
    boxes = [[0, 0, 4, 4], [50, 40, 120, 90]]
    image = np.zeros((*SIZE, 3), np.uint8)
    for known in ({"bboxes": boxes}, {"bboxes": boxes, "masks": masks}, {"polygons": rings}):
        found = Augment(recipe)(image=image, bbox_format="pascal_voc", sample_ids=[0], **known)
        assert found["dropped"] == [(0, "nothing of it is shown")] and found["object_ids"] == (1,)


def test_shares_of_masks_count_what_a_fold_shows_twice() -> None:
    recipe = Recipe(ops=[ops.ElasticTransform(alpha=120.0, sigma=5.0, p=1.0)])
    masks = np.zeros((1, *SIZE), np.uint8)
    masks[0, 40:100, 40:120] = 1
    options = TargetOptions(min_visibility=0.99)
    found = Augment(recipe)(
        image=np.zeros((*SIZE, 3), np.uint8), masks=masks, keypoints=np.full((1, 1, 2), 80.0), targets=options
    )
    assert found["dropped"] == [] and found["masks"][0].any()
