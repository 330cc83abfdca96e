"""Types of numbers that targets of a call come in: the right result, or an error that names the target and its type."""

from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Augment, Recipe, TargetOptions, ops
from tests.augpipe.augment_call.tv_stand_ins import Format, installed, made

HEIGHT, WIDTH = 40, 60
IMAGE = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
LABELS = torch.from_numpy(np.random.default_rng(1).integers(0, 5, (HEIGHT, WIDTH)))
TURNED = Recipe(ops=(ops.RandomResizedCrop(size=32), ops.Rotate(max_deg=45.0)))
GIVEN: dict[str, Any] = {
    "bboxes": [[4.0, 5.0, 50.0, 30.0]],
    "polygons": [[4.0, 5.0, 50.0, 5.0, 30.0, 30.0]],
    "rotated_boxes": [[[4.0, 5.0], [50.0, 5.0], [50.0, 30.0], [4.0, 30.0]]],
    "keypoints": [[12.0, 20.0], [30.0, 20.0]],
}
"""Numbers that bfloat16 holds."""


def augmented(options: TargetOptions | None = None, **named: Any) -> dict[str, Any]:
    result: dict[str, Any] = Augment(TURNED)(image=IMAGE, sample_ids=[3], targets=options, **named)
    return result


@pytest.mark.parametrize("by", ["nearest", "linear"])
def test_bfloat16_masks_are_mapped_as_float32_ones(by: Any) -> None:
    options = TargetOptions(mask_interpolation=by, paired={"depth": by})
    mask = LABELS.to(torch.bfloat16)
    found = augmented(options, mask=mask, depth=mask, masks=[mask])
    expected = augmented(options, mask=mask.float(), depth=mask.float(), masks=[mask.float()])
    for name in ("mask", "depth"):
        assert found[name].dtype == torch.bfloat16 and len(expected[name].unique()) > 4
        torch.testing.assert_close(found[name], expected[name].bfloat16(), rtol=0, atol=0)
    torch.testing.assert_close(found["masks"][0], expected["masks"][0].bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("change", [torch.Tensor.bfloat16, torch.Tensor.requires_grad_], ids=["bfloat16", "grad"])
def test_boxes_and_points_in_tensors_of_any_kind(name: str, change: Any) -> None:
    written = {"bbox_format": "pascal_voc"} if name == "bboxes" else {}
    found = augmented(**{name: change(torch.tensor(GIVEN[name]))}, **written)[name]
    expected = augmented(**{name: GIVEN[name]}, **written)[name]
    if name == "polygons":
        found, expected = found[0][0], expected[0][0]
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_labels_of_crops_that_keep_objects_in_bfloat16() -> None:
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=32, keep_objects=ops.KeepObjects()), ops.Flip()))
    given = {"bboxes": GIVEN["bboxes"], "bbox_format": "pascal_voc"}
    labels = torch.tensor([3.0], dtype=torch.bfloat16)
    assert Augment(recipe)(image=IMAGE, labels=labels, **given)["labels"].tolist() == [3.0]


def test_tv_tensors_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    tv = installed(monkeypatch)
    boxes = made(tv.BoundingBoxes, GIVEN["bboxes"], torch.bfloat16, format=Format.XYXY, canvas_size=(HEIGHT, WIDTH))
    mask = made(tv.Mask, LABELS, torch.bfloat16)
    found = Augment(TURNED)((IMAGE, boxes, mask), sample_ids=[3])
    expected = augmented(bboxes=GIVEN["bboxes"], bbox_format="pascal_voc", mask=LABELS.float())
    assert found[1].dtype == found[2].dtype == torch.bfloat16
    torch.testing.assert_close(found[1].as_subclass(torch.Tensor), torch.tensor(expected["bboxes"]).bfloat16())
    torch.testing.assert_close(found[2].as_subclass(torch.Tensor), expected["mask"].bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        (LABELS.to(torch.complex64), "mask has the shape .* and the type complex64"),
        (LABELS.to(torch.float8_e4m3fn), "mask is a tensor of the type torch.float8_e4m3fn"),
        (LABELS.to_sparse(), "mask is a tensor of the type torch.int64 and the layout torch.sparse_coo"),
        (LABELS.to("meta"), "mask is a tensor of the type torch.int64 .* on meta"),
    ],
    ids=["complex", "float8", "sparse", "meta"],
)
def test_tensors_that_numpy_does_not_know_are_named(mask: torch.Tensor, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        augmented(mask=mask)
    with pytest.raises(ValueError, match=told.replace("mask", r"masks\[0\]", 1)):
        augmented(masks=[mask])
    with pytest.raises(ValueError, match=told.replace("mask", "depth", 1)):
        augmented(TargetOptions(paired={"depth": "nearest"}), depth=mask)


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("is_tensor", [False, True], ids=["array", "tensor"])
def test_complex_boxes_and_points_are_refused(name: str, is_tensor: bool) -> None:
    values = np.array(GIVEN[name]) + 1j
    named: dict[str, Any] = {name: torch.from_numpy(values) if is_tensor else values}
    with pytest.raises(ValueError, match=r"(bboxes|polygon|rotated_boxes|keypoints) is of the type complex128"):
        augmented(**named, **({"bbox_format": "pascal_voc"} if name == "bboxes" else {}))


@pytest.mark.parametrize(
    ("image", "remedy"),
    [
        (IMAGE / 255.0, "Multiply values of 0 to 1"),
        (torch.from_numpy(IMAGE).bfloat16(), "Multiply values of 0 to 1"),
        (torch.from_numpy(IMAGE) > 9, "Multiply values of 0 to 1"),
        (torch.from_numpy(IMAGE).long(), "Divide values of 16 bits"),
        (IMAGE.astype(np.uint16), "Divide values of 16 bits"),
    ],
)
def test_images_of_other_types_are_refused_with_the_remedy(image: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=rf"^image 0: the (array|tensor) is {image.dtype}, .* uint8 .*\. {remedy}"):
        Augment(TURNED)(image=image, mask=LABELS)
