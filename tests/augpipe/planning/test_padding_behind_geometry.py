"""Padding behind what moves: a pass of its own, which pads what the pass before it has made."""

import numpy as np
import pytest

from augpipe import Augment, Recipe, importers, ops

IMAGE = np.random.default_rng(3).integers(0, 256, (40, 52, 3), np.uint8)
PADS = [
    (ops.Pad(size=(64, 70), fill=(250.0, 9.0, 3.0)),),
    (ops.RandomCrop(size=(40, 52), padding=6, fill=(250.0, 9.0, 3.0)),),
    (ops.Flip(p=1.0), ops.Pad(px=5, fill=(250.0, 9.0, 3.0)), ops.Resize(size=(33, 47))),
]


def rendered(image: np.ndarray, *chosen: ops.Op) -> np.ndarray:
    recipe = Recipe(border="constant", fill=(250.0, 9.0, 3.0), ops=chosen)
    return Augment(recipe, dtype="uint8", layout="NHWC")(image, sample_ids=[7])


@pytest.mark.parametrize("moves", [ops.Rotate(max_deg=30), ops.QuarterTurn(turns=(2,)), ops.Perspective(p=1.0)])
@pytest.mark.parametrize("behind", PADS)
def test_it_pads_what_was_moved(moves: ops.Op, behind: tuple[ops.Op, ...]) -> None:
    assert Recipe(ops=[moves, *behind]).num_passes == 2
    assert Recipe(ops=[*behind, moves]).num_passes == 1
    moved = rendered(IMAGE, moves)
    assert np.array_equal(rendered(IMAGE, moves, *behind), rendered(moved, *behind))


def test_it_says_what_it_waits_for() -> None:
    recipe = Recipe(ops=[ops.Rotate(), ops.Noise(), ops.Pad(size=64)])
    (view,) = recipe.all_views
    assert recipe.reasons(view) == ["rotate before pad"]
    with pytest.raises(ValueError, match=r"pad pads what rotate has moved, in a pass of its own: that cannot be one"):
        recipe.fused()


def test_imported_recipes_that_pad_behind_a_rotation() -> None:
    found = importers.from_text("A.Compose([A.Rotate(10, border_mode=0), A.PadIfNeeded(64, 64, border_mode=0)])")
    assert [op.op for op in found.recipe.ops] == ["rotate", "pad"] and found.recipe.num_passes == 2
    assert not any("order" in note or "before" in note for note in found.notes)


def test_label_maps_and_boxes_are_padded_as_the_image_is() -> None:
    recipe = Recipe(border="constant", ops=[ops.Rotate(max_deg=(20, 20), step=None), ops.Pad(size=(64, 70))])
    image = np.zeros((40, 52, 3), np.uint8)
    image[10:30, 15:40] = 255
    mask = (image[:, :, 0] > 0).astype(np.uint8)
    augment = Augment(recipe, dtype="uint8", layout="NHWC")
    found = augment(image=image, mask=mask, bboxes=np.array([[15.0, 10.0, 40.0, 30.0]]), bbox_format="pascal_voc")
    shown = found["image"][..., 0] > 127
    labels = np.asarray(found["mask"])
    assert labels.shape == (64, 70) and (shown == (labels == 1)).mean() > 0.98
    (box,) = found["bboxes"]
    rows, columns = np.nonzero(shown)
    assert np.abs(np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) - box).max() < 2


@pytest.mark.parametrize(
    "moves", [ops.Rotate(max_deg=(30, 30), step=None), ops.Zoom(factor=(0.6, 0.6)), ops.Perspective(p=1.0)], ids=str
)
def test_a_constant_border_begins_where_a_crop_behind_padding_ends(moves: ops.Op) -> None:
    """As of what is cropped by hand: no pixel beyond the crop comes back."""
    image = np.random.default_rng(0).integers(0, 256, (40, 44, 3), np.uint8)
    padded = Recipe(border="constant", ops=(ops.Pad(px=6), ops.RandomCrop(size=(30, 32), at=(10, 9)), moves))
    found = Augment(padded, 3, dtype="uint8", layout="NHWC")(image, sample_ids=[0])
    alone = Recipe(border="constant", ops=(moves,))
    expected = Augment(alone, 3, dtype="uint8", layout="NHWC")(image[3:33, 4:36], sample_ids=[0])
    np.testing.assert_array_equal(found, expected)
    outside = Recipe(border="constant", ops=(ops.Pad(px=6), ops.CenterCrop(size=(40, 44)), moves))
    found = Augment(outside, 3, dtype="uint8", layout="NHWC")(image, sample_ids=[0])
    np.testing.assert_array_equal(found, Augment(alone, 3, dtype="uint8", layout="NHWC")(image, sample_ids=[0]))
