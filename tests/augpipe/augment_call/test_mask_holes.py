"""Masks of calls are filled where the image shows the fill of the recipe's holes, and nowhere else."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from augpipe import Augment, Recipe, TargetOptions, ops
from tests.augpipe.augment_call.tv_stand_ins import installed

SIZE = 96, 120
COLOUR, HOLE = 200, 30
"""Of all the image, and of its holes."""
FILL = 99
Pixels = npt.NDArray[np.uint8]

MAPS: tuple[tuple[ops.Op, ...], ...] = (
    (),
    (ops.Flip(), ops.Rotate(max_deg=40, step=None, p=1.0)),
    (ops.Shear(p=1.0),),
    (ops.LensDistortion(), ops.Perspective(p=1.0)),
    (ops.ElasticTransform(alpha=20.0, sigma=4.0, p=1.0), ops.Flip()),
)
CROPS = (ops.RandomResizedCrop(size=(50, 70)), ops.CenterCrop(size=(60, 41), scale=80), ops.Resize(size=(33, 47)))
HOLES = (
    ops.CoarseDropout(num=(1, 6), height=(1, 20), width=(1, 20), fill=HOLE, p=0.8),
    ops.CoarseDropout(unit="fraction", height=(0.1, 0.5), width=(0.1, 0.5), fill=HOLE, p=1.0),
    ops.Erase(fill=(HOLE, HOLE, HOLE), p=1.0),
    ops.GridDropout(grid=(4, 5), fill=HOLE, p=1.0),
    ops.GridDropout(unit_px=(7, 19), fit="cut", place="shared", fill=HOLE, p=0.8),
    ops.PixelDropout(share=(0.05, 0.3), fill=HOLE, p=1.0),
    ops.OneOf(ops=(ops.Erase(fill=(HOLE, HOLE, HOLE), p=1.0), ops.GridDropout(fill=HOLE, p=1.0))),
)
COLOURS = (ops.Posterize(bits=(8, 8), p=1.0), ops.Equalize(p=0.0), ops.GaussianBlur(p=0.0))


def image() -> Pixels:
    return np.full((*SIZE, 3), COLOUR, np.uint8)


def labels(dtype: str = "uint8") -> npt.NDArray[Any]:
    """Whose label tells each pixel's place, and is never `FILL`."""
    rng = np.random.default_rng(3)
    found = rng.integers(0, 90, SIZE).astype(dtype)
    assert not (found == FILL).any()
    return found


def call(recipe: Recipe, number: int, *, holes: bool, options: Any = None, **given: Any) -> dict[str, Any]:
    """What a call gives with further `TargetOptions` by name."""
    options = TargetOptions(mask_fill=FILL, mask_holes=holes, **options or {})
    augment = Augment(recipe, seed=7, dtype="uint8", layout="NHWC", framework="numpy")
    found: dict[str, Any] = augment(image=image(), targets=options, sample_ids=number, **given)
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    maps=st.sampled_from(MAPS),
    crop=st.sampled_from(CROPS),
    holes=st.lists(st.sampled_from(HOLES), min_size=1, max_size=2),
    colours=st.lists(st.sampled_from(COLOURS), max_size=1),
    border=st.sampled_from(["context", "reflect", "constant"]),
    by=st.sampled_from(["nearest", "majority", "linear"]),
    number=st.integers(0, 2**31),
)
def test_masks_are_filled_where_the_image_is(
    maps: Any, crop: Any, holes: list[Any], colours: list[Any], border: Any, by: Any, number: int
) -> None:
    recipe = Recipe(ops=(*maps, crop, *colours, *holes), border=border, fill=COLOUR)
    given = {"mask": labels(), "masks": [labels() + 1, labels() + 2], "options": {"mask_interpolation": by}}
    without, found = (call(recipe, number, holes=asked, **given) for asked in (False, True))
    np.testing.assert_array_equal(found["image"], without["image"])
    is_hole = (found["image"] == HOLE).all(axis=2)
    assert np.isin(found["image"], (COLOUR, HOLE)).all()
    np.testing.assert_array_equal(found["mask"], np.where(is_hole, FILL, without["mask"]))
    for one, other in zip(found["masks"], without["masks"], strict=True):
        np.testing.assert_array_equal(one, np.where(is_hole, 0, other))


@pytest.mark.parametrize("by", ["nearest", "majority", "linear"])
@pytest.mark.parametrize("hole", HOLES[:5], ids=lambda op: op.op)
def test_a_later_pass_moves_holes_with_the_image(hole: Any, by: Any) -> None:
    recipe = Recipe(
        ops=(ops.Resize(size=(90, 100)), hole, ops.Rotate(max_deg=30, step=None, p=1.0), ops.Resize(size=(80, 80))),
        border="constant",
        fill=COLOUR,
    )
    num_holes, given = 0, {"mask": np.ones(SIZE, np.uint8), "options": {"mask_interpolation": by}}
    for number in range(8):
        without, found = (call(recipe, number, holes=asked, **given) for asked in (False, True))
        shown = found["image"][:, :, 0].astype(int)
        is_hole, is_image = shown == HOLE, shown == COLOUR
        num_holes += int(is_hole.sum())
        assert (found["mask"][is_hole] == FILL).all()
        np.testing.assert_array_equal(found["mask"][is_image], without["mask"][is_image])
    assert num_holes > 1000


def test_noise_and_means_are_holes_as_well() -> None:
    for fill in ("noise", "mean", (COLOUR, COLOUR, COLOUR)):
        recipe = Recipe(ops=(ops.Resize(size=(40, 40)), ops.Erase(fill=fill, p=1.0)))
        found = call(recipe, 3, holes=True, mask=np.ones(SIZE, np.int64))
        plain = Recipe(ops=(ops.Resize(size=(40, 40)), ops.Erase(fill=(HOLE, HOLE, HOLE), p=1.0)))
        is_hole = (call(plain, 3, holes=True)["image"] == HOLE).all(axis=2)
        assert 0 < is_hole.sum() < is_hole.size
        np.testing.assert_array_equal(found["mask"], np.where(is_hole, FILL, 1))


def test_a_pixel_of_which_a_channel_is_dropped_is_a_hole() -> None:
    drops = ops.PixelDropout(share=(0.2, 0.2), per_channel=True, fill=HOLE, p=1.0)
    found = call(Recipe(ops=(ops.Resize(size=(40, 40)), drops)), 3, holes=True, mask=np.ones(SIZE, np.uint8))
    are_dropped = found["image"] == HOLE
    assert are_dropped.any(axis=2).sum() > are_dropped.all(axis=2).sum()
    np.testing.assert_array_equal(found["mask"], np.where(are_dropped.any(axis=2), FILL, 1))


def test_boxes_stay_those_of_the_whole_objects() -> None:
    """Also where they are made of masks; paired images keep their numbers."""
    recipe = Recipe(ops=(ops.Resize(size=(40, 40)), ops.CoarseDropout(height=(30, 40), width=(30, 40), p=1.0)))
    masks = np.zeros((2, *SIZE), np.uint8)
    masks[0, 10:50, 20:60], masks[1, 60:90, 70:110] = 1, 1
    given = {"masks": masks, "labels": [4, 5], "bboxes": [[20, 10, 60, 50], [70, 60, 110, 90]]}
    given |= {"bbox_format": "pascal_voc", "depth": labels("float32"), "options": {"paired": {"depth": "nearest"}}}
    without, found = (call(recipe, 2, holes=asked, **given) for asked in (False, True))
    assert sum(one.sum() for one in found["masks"]) < sum(one.sum() for one in without["masks"])
    np.testing.assert_array_equal(found["bboxes"], without["bboxes"])
    np.testing.assert_array_equal(found["depth"], without["depth"])
    assert found["labels"] == [4, 5]


def test_boolean_masks_are_false_under_holes() -> None:
    recipe = Recipe(ops=(ops.Resize(size=(40, 40)), ops.GridDropout(fill=HOLE, p=1.0)))
    found = call(recipe, 2, holes=True, mask=np.ones(SIZE, np.bool_))
    np.testing.assert_array_equal(found["mask"], (found["image"] == COLOUR).all(axis=2))


def test_masks_of_tv_tensors_are_filled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tv_tensors = installed(monkeypatch)
    augment = Augment(
        Recipe(ops=(ops.Resize(size=(40, 40)), ops.GridDropout(fill=HOLE, p=1.0))),
        dtype="uint8",
        seed=1,
    )
    labels_of_ones = tv_tensors.Mask(torch.ones(SIZE, dtype=torch.uint8))
    given = tv_tensors.Image(torch.from_numpy(image()).movedim(2, 0)), labels_of_ones
    shown, mask = augment(given, targets=TargetOptions(mask_fill=FILL, mask_holes=True))
    assert (mask == FILL).any()
    np.testing.assert_array_equal(mask.numpy() == FILL, (shown.numpy() == HOLE).all(axis=0))


def test_nothing_is_filled_where_no_hole_is_drawn() -> None:
    recipe = Recipe(ops=(ops.Resize(size=(40, 40)), ops.CoarseDropout(p=0.0)))
    found = call(recipe, 2, holes=True, mask=np.ones(SIZE, np.uint8))
    assert (found["mask"] == 1).all()
