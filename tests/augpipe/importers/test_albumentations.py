"""What albumentations writes as a dict or JSON, as recipes."""

import json
from typing import Any

import pytest

from augpipe import Recipe, importers, ops


def one(name: str, **fields: Any) -> dict[str, Any]:
    return {"__class_fullname__": name, "p": 1.0, **fields}


def compose(*transforms: dict[str, Any]) -> dict[str, Any]:
    return {"__version__": "1.4.0", "transform": one("Compose", transforms=list(transforms), bbox_params=None)}


MODULE = "albumentations.augmentations.crops.transforms"
CROP = one("RandomResizedCrop", size=[96, 80], scale=[0.2, 1.0], ratio=[0.75, 1.5], interpolation=1)
NORMALIZE = one("Normalize", mean=[0.5, 0.4, 0.3], std=[0.2, 0.2, 0.2], max_pixel_value=255.0)


def test_a_list_of_transforms() -> None:
    data = compose(
        one(
            "albumentations.augmentations.crops.transforms.RandomResizedCrop",
            height=96,
            width=80,
            scale=[0.2, 1],
            ratio=[1, 2],
        ),
        one("HorizontalFlip", p=0.5),
        one("RandomRotate90", p=0.25),
        one("Rotate", limit=[-20, 20], border_mode=4, fill=0, p=0.9),
        one("ShiftScaleRotate", shift_limit=0.1, scale_limit=[-0.2, 0.2], rotate_limit=[-5, 5], border_mode=4, p=0.5),
        one("ColorJitter", brightness=[0.8, 1.2], contrast=[0.7, 1.3], saturation=[1, 1], hue=[-0.1, 0.1], p=0.5),
        one("RandomBrightnessContrast", brightness_limit=[-0.2, 0.3], contrast_limit=0.1, p=0.4),
        one("RandomGamma", gamma_limit=[80, 120], p=0.3),
        one("GaussianBlur", sigma_limit=[0.5, 2.0], blur_limit=0, p=0.2),
        one("ToGray", p=0.1),
        one("Posterize", num_bits=[4, 6], p=0.5),
        one("Solarize", threshold_range=[0.5, 0.5], p=0.5),
        NORMALIZE,
        one("ToTensorV2"),
    )
    found = importers.from_albumentations(data)
    assert found.recipe.ops == (
        ops.RandomResizedCrop(size=(96, 80), scale=(0.2, 1.0), ratio=(1, 2)),
        ops.Flip(p=0.5),
        ops.QuarterTurn(p=0.25),
        ops.Rotate(max_deg=(-20, 20), step=None, p=0.9),
        ops.AllOf(
            ops=(
                ops.Zoom(factor=(0.8, 1.2)),
                ops.Rotate(max_deg=(-5, 5), step=None),
                ops.Translate(horizontal=(-0.1, 0.1), vertical=(-0.1, 0.1)),
            ),
            p=0.5,
        ),
        ops.ColorJitter(brightness=(0.8, 1.2), contrast=(0.7, 1.3), saturation=(1.0, 1.0), hue=(-0.1, 0.1), p=0.5),
        ops.AllOf(ops=(ops.Contrast(factor=(0.9, 1.1)), ops.Brightness(factor=(0.8, 1.3))), p=0.4),
        ops.Gamma(gamma=(0.8, 1.2), p=0.3),
        ops.Blur(sigma_px=(0.5, 2.0), p=0.2),
        ops.Grayscale(p=0.1),
        ops.Posterize(bits=(4, 6), p=0.5),
        ops.Solarize(threshold=(128, 128), p=0.5),
        ops.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2)),
    )
    assert found.recipe.border == "reflect"
    assert found.exact == ("HorizontalFlip", "RandomRotate90", "ToGray", "Posterize", "Solarize", "Normalize")
    assert len(found.notes) == 7 and "Rotate: the outermost pixel is repeated" in found.notes[1]


def test_json_is_the_same() -> None:
    data = compose(CROP, one("VerticalFlip", p=0.5))
    assert Recipe.from_albumentations(json.dumps(data)) == Recipe.from_albumentations(data)


def test_one_of_takes_probabilities_for_weights() -> None:
    choice = one("OneOf", transforms=[one("ToGray", p=0.2), one("InvertImg", p=0.6)], p=0.5)
    found = importers.from_albumentations(compose(CROP, choice))
    assert found.recipe.ops[1] == ops.OneOf(ops=(ops.Grayscale(p=1), ops.Invert(p=1)), weights=(0.2, 0.6), p=0.5)
    together = one("Sequential", transforms=[one("ToGray", p=0.2), one("InvertImg", p=0.6)], p=0.5)
    found = importers.from_albumentations(compose(CROP, together))
    assert found.recipe.ops[1] == ops.AllOf(ops=(ops.Grayscale(p=0.2), ops.Invert(p=0.6)), p=0.5)


def test_crops_of_a_resized_image() -> None:
    small = one("SmallestMaxSize", max_size=256)
    evaluation = importers.from_albumentations(compose(small, one("CenterCrop", height=224, width=224)))
    assert evaluation.recipe.ops == (ops.CenterCrop(size=(224, 224), scale=256),)
    train = importers.from_albumentations(compose(small, one("RandomCrop", height=224, width=200)))
    assert train.recipe.ops == (ops.MultiResolutionCrop(size=(224, 200), scales=(256,)),)


def test_all_that_cannot_be_mapped_is_listed() -> None:
    data = compose(
        {**CROP, "p": 0.5},
        one("ElasticTransform", alpha=1),
        one("Rotate", limit=[-1, 1], border_mode=3),
        one("OneOf", transforms=[one("GridDistortion"), one("ToGray")], p=1.0),
        one("HorizontalFlip", p=7),
        one("Posterize", p=0.5),
    )
    with pytest.raises(ValueError, match="6 of albumentations's transforms") as caught:
        importers.from_albumentations(data)
    problems = (
        "p=0.5: a crop makes",
        "ElasticTransform: is not",
        "border_mode=3",
        "GridDistortion",
        "p=7",
        "'num_bits'",
    )
    for problem in problems:
        assert problem in str(caught.value), problem


@pytest.mark.parametrize("data", ["{", "[]", {}, {"transform": {"x": 1}}])
def test_what_is_no_transform_is_said(data: Any) -> None:
    with pytest.raises(ValueError, match=r"no JSON|A\.to_dict"):
        importers.from_albumentations(data)
