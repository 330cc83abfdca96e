"""What is seen beyond a crop that ends within a pixel of an enlarged image: as much as is asked for."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Augment, Recipe, TargetOptions, ops

WHITE = np.full((32, 32, 3), 255, np.uint8)


def seen(crop: ops.Op, *further: ops.Op, **options: Any) -> npt.NDArray[Any]:
    """(H, W) of 0..1, how much of each output pixel is the image."""
    levels = Augment(Recipe(ops=(crop, *further), **options), framework="numpy", layout="NHWC", dtype="uint8")(WHITE)
    found: npt.NDArray[Any] = levels[..., 0] / 255.0
    return found


@pytest.mark.parametrize(
    "crops",
    [
        [ops.CenterCrop(size=200, scale=224)],
        [ops.Resize(size=224), ops.RandomCrop(size=200)],
        [ops.CenterCrop(size=(150, 199), scale=224)],
    ],
    ids=lambda crops: crops[0].op,
)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_padding_is_as_wide_as_it_says(crops: list[ops.Op], interpolation: Any) -> None:
    found = seen(*crops, ops.Pad(px=(5, 12)), interpolation=interpolation)
    size = np.array(found.shape)
    assert np.isin(found, (0.0, 1.0)).all()
    lines, columns = np.flatnonzero(found.any(axis=1)), np.flatnonzero(found.any(axis=0))
    assert (columns[0], size[1] - 1 - columns[-1]) == (5, 5)
    assert (lines[0], size[0] - 1 - lines[-1]) == (12, 12)


@pytest.mark.parametrize("as_drawn", [{"interpolation": "bilinear"}, {"interpolation": "nearest"}], ids=str)
def test_masks_end_where_the_image_does(as_drawn: Any) -> None:
    recipe = Recipe(ops=(ops.CenterCrop(size=200, scale=224), ops.Pad(px=(5, 12))), **as_drawn)
    for interpolation in ("nearest", "majority", "linear"):
        made = Augment(recipe, dtype="uint8", framework="numpy", layout="NHWC")(
            image=WHITE,
            mask=np.ones((32, 32), np.float32 if interpolation == "linear" else np.uint8),
            targets=TargetOptions(mask_fill=7, mask_interpolation=interpolation),
        )
        np.testing.assert_array_equal(made["mask"] == 1, made["image"][..., 0] == 255)
        assert (made["mask"] == 1).sum() == 200 * 200 and made["mask"].max() == 7


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_masks_end_where_the_image_does_when_both_are_turned(interpolation: Any) -> None:
    turned = ops.Rotate(max_deg=(20, 20), step=None)
    chain = (ops.CenterCrop(size=200, scale=224), ops.Pad(px=12), turned)
    recipe = Recipe(ops=chain, interpolation=interpolation, antialias=False)
    mask, targets = np.ones((32, 32), np.uint8), TargetOptions(mask_fill=0)
    made = Augment(recipe, dtype="uint8", framework="numpy", layout="NHWC")(image=WHITE, mask=mask, targets=targets)
    np.testing.assert_array_equal(made["mask"] == 1, made["image"][..., 0] == 255)
    assert (made["mask"] == 1).mean() == pytest.approx(200 * 200 / 224**2, abs=0.04)


@pytest.mark.parametrize("boxes", ["tight", "corners"])
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_objects_end_where_the_image_does(interpolation: Any, boxes: Any) -> None:
    recipe = Recipe(ops=(ops.CenterCrop(size=200, scale=224), ops.Pad(px=(5, 12))), interpolation=interpolation)
    made = Augment(recipe, framework="numpy")(
        image=WHITE,
        bboxes=[[0, 0, 32, 32], [0, 10, 1.7, 20], [1, 10, 1.9, 20]],
        bbox_format="pascal_voc",
        keypoints=np.array([[1.7, 16.0], [1.73, 16.0], [16.0, 30.25], [16.0, 30.3]]),
        targets=TargetOptions(boxes=boxes),
    )
    assert made["object_ids"].tolist() == [0, 2] and made["keypoint_ids"].tolist() == [1, 2]
    np.testing.assert_allclose(made["bboxes"], [[5, 12, 205, 212], [5, 70, 6.3, 140]], atol=1e-3)
