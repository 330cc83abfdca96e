"""What albumentations writes as a dict or JSON, as recipes."""

import json
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Recipe, TargetOptions, importers, ops


def one(name: str, **fields: Any) -> dict[str, Any]:
    return {"__class_fullname__": name, "p": 1.0, **fields}


def compose(*transforms: dict[str, Any]) -> dict[str, Any]:
    return {"__version__": "1.4.0", "transform": one("Compose", transforms=list(transforms), bbox_params=None)}


def shifted(px: float) -> ops.Op:
    return ops.Translate(horizontal=(px, px), vertical=(px, px), unit="px")


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
            own_look="bilinear",
        ),
        ops.ColorJitter(
            brightness=(0.8, 1.2),
            contrast=(0.7, 1.3),
            saturation=(1.0, 1.0),
            hue=(-0.1, 0.1),
            about="mean",
            space="hsv",
            p=0.5,
        ),
        ops.BrightnessContrast(brightness=(-0.2, 0.3), contrast=(-0.1, 0.1), p=0.4),
        ops.Gamma(gamma=(0.8, 1.2), even_in="power", p=0.3),
        ops.GaussianBlur(sigma_px=(0.5, 2.0), p=0.2),
        ops.Grayscale(p=0.1),
        ops.Posterize(bits=(4, 6), p=0.5),
        ops.Solarize(threshold=(128, 128), p=0.5),
        ops.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2)),
    )
    assert found.recipe.border == "reflect_101" and not found.recipe.antialias
    noted = {note.partition(":")[0] for note in found.notes}
    assert noted == {"RandomRotate90", "Rotate", "RandomResizedCrop, Rotate"}
    assert not noted & set(found.exact) and "ShiftScaleRotate" in found.exact and len(found.exact) == 11


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


def test_crops_resizes_and_paddings_are_a_chain() -> None:
    small, fill = one("SmallestMaxSize", max_size=256), {"border_mode": 0, "fill": 114}
    for transforms, expected in (
        (
            [small, one("CenterCrop", height=224, width=224)],
            (ops.ResizeShortest(size=256, rounding="nearest"), ops.RandomCrop(size=(224,) * 2, p=0)),
        ),
        (
            [one("Resize", height=30, width=40), one("RandomCrop", height=24, width=20)],
            (ops.Resize(size=(30, 40)), ops.RandomCrop(size=(24, 20))),
        ),
        (
            [one("LongestMaxSize", max_size=[64]), one("PadIfNeeded", min_height=64, min_width=64, **fill)],
            (ops.ResizeLongest(size=64), ops.Pad(size=(64, 64), fill=114)),
        ),
        (
            [
                one(
                    "PadIfNeeded",
                    min_height=None,
                    min_width=None,
                    pad_height_divisor=32,
                    pad_width_divisor=32,
                    position="top_left",
                    border_mode=1,
                )
            ],
            (ops.Pad(multiple=32, position="top_left", border="edge"),),
        ),
        (
            [
                one("RandomScale", scale_limit=[-0.5, 1.0], p=0.7),
                one("PadIfNeeded", min_height=64, min_width=64, **fill),
                one("RandomCrop", height=64, width=64),
            ],
            (
                ops.RandomResize(factor=(0.5, 2.0), p=0.7),
                ops.Pad(size=(64, 64), fill=114),
                ops.RandomCrop(size=(64, 64)),
            ),
        ),
        (
            [one("RandomSizedCrop", min_max_height=[240, 256], height=256, width=1600, w2h_ratio=6.25)],
            (ops.RandomResizedCrop(size=(256, 1600), height_px=(240, 256), ratio=(6.25, 6.25)),),
        ),
        (
            [one("RandomSizedCrop", min_max_height=[20, 30], size=[32, 48], w2h_ratio=1.0)],
            (ops.RandomResizedCrop(size=(32, 48), height_px=(20, 30), ratio=(1.0, 1.0)),),
        ),
    ):
        assert importers.from_albumentations(compose(*transforms)).recipe.ops == expected


def test_a_drawn_scale_needs_a_crop_behind_it() -> None:
    scale = one("RandomScale", scale_limit=0.2, p=0.5)
    with pytest.raises(ValueError, match="RandomScale: leaves each image at its own size; put RandomCrop"):
        importers.from_albumentations(compose(CROP, scale))
    assert importers.from_albumentations(compose(scale, CROP)).recipe.ops[0] == ops.RandomResize(
        factor=(0.8, 1.2), p=0.5
    )


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        (
            "GaussNoise",
            {"var_limit": [4.0, 25.0], "per_channel": True, "mean": 0},
            ops.Noise(std=(2, 5), even_in="variance", p=1),
        ),
        ("GaussNoise", {"var_limit": 9.0}, ops.Noise(std=(0, 3), even_in="variance", p=1)),
        ("GaussNoise", {"std_range": [0.2, 0.4], "mean_range": [0, 0]}, ops.Noise(std=(51, 102), p=1)),
        (
            "GaussNoise",
            {"var_limit": 9.0, "per_channel": False},
            ops.Noise(std=(0, 3), even_in="variance", per_channel=False, p=1),
        ),
        (
            "IAAAdditiveGaussianNoise",
            {"loc": 0, "scale": [2.5, 12], "per_channel": False},
            ops.Noise(std=(2.5, 12), per_channel=False, p=1),
        ),
        ("Blur", {"blur_limit": 4}, ops.BoxBlur(sizes=(3, 5), p=1)),
        ("MedianBlur", {"blur_limit": [5, 7]}, ops.MedianBlur(sizes=(5, 7), p=1)),
        (
            "GaussianBlur",
            {"blur_limit": [9, 9], "sigma_limit": [1, 2]},
            ops.GaussianBlur(sigma_px=(1, 2), kernel_px=9, p=1),
        ),
        (
            "GaussianBlur",  # of 3, 4, 5 an even size becomes the next odd one, and decides on sigma
            {"blur_limit": [3, 5], "sigma_limit": [0, 0]},
            ops.OneOf(
                ops=(
                    ops.GaussianBlur(sigma_px=(0.8493, 0.8493), kernel_px=3, p=1),
                    ops.GaussianBlur(sigma_px=(1.08, 1.08), kernel_px=5, p=1),
                ),
                weights=(1, 2),
                p=1,
            ),
        ),
        (
            "MotionBlur",
            {"blur_limit": 5, "allow_shifted": False},
            ops.MotionBlur(sizes=(3, 5), shifts=False, line="ends", p=1),
        ),
        ("MotionBlur", {"blur_limit": 15}, ops.MotionBlur(sizes=(3, 15), line="ends", p=1)),
        (
            "MotionBlur",
            {"blur_limit": [7, 7], "angle_range": [10, 30], "direction_range": [0, 0.5], "allow_shifted": True},
            ops.MotionBlur(sizes=(7, 7), degrees=(-30, -10), direction=(0, 0.5), p=1),
        ),
        ("Downscale", {"scale_min": 0.2, "scale_max": 0.5}, ops.Downscale(scale=(0.2, 0.5), p=1)),
        (
            "Downscale",
            {"scale_range": [0.2, 0.5], "interpolation_pair": {"upscale": 0, "downscale": 0}},
            ops.Downscale(scale=(0.2, 0.5), p=1),
        ),
        ("RandomGridShuffle", {"grid": [2, 4]}, ops.GridShuffle(grid=(2, 4), p=1)),
        ("ImageCompression", {"quality_range": [50, 90]}, ops.JpegCompression(quality=(50, 90), blue_first=True, p=1)),
        (
            "JpegCompression",
            {"quality_lower": 0, "quality_upper": 90, "compression_type": "ImageCompressionType.JPEG"},
            ops.JpegCompression(quality=(1, 90), blue_first=True, p=1),
        ),
        ("CLAHE", {"clip_limit": [1, 2], "tile_grid_size": [4, 8]}, ops.CLAHE(clip_limit=(1, 2), tiles=(8, 4), p=1)),
        ("IAASharpen", {"alpha": 0.3, "lightness": [0.5, 1]}, ops.Sharpen(alpha=(0, 0.3), lightness=(0.5, 1), p=1)),
        ("Emboss", {"alpha": [0.1, 0.3], "strength": [0, 1]}, ops.Emboss(alpha=(0.1, 0.3), strength=(0, 1), p=1)),
        ("RandomBrightness", {"limit": 0.3}, ops.BrightnessContrast(brightness=(-0.3, 0.3), contrast=(0, 0), p=1)),
        ("RandomContrast", {"limit": [0.1, 0.2]}, ops.BrightnessContrast(brightness=(0, 0), contrast=(0.1, 0.2), p=1)),
        (
            "RGBShift",
            {f"{channel}_shift_limit": [-20, 20] for channel in "rgb"},
            ops.ColorCast(max_shift=20, step=None, channel_p=1, p=1),
        ),
        ("Transpose", {}, ops.Transpose(swaps_sides=True, p=1)),
        (
            "CoarseDropout",
            {"max_holes": 8, "max_height": 16, "max_width": 12, "min_holes": None, "min_height": 4, "fill_value": 0},
            ops.CoarseDropout(num=(8, 8), height=(4, 16), width=(12, 12), p=1),
        ),
        (
            "CoarseDropout",
            {
                "num_holes_range": [1, 3],
                "hole_height_range": [0.1, 0.2],
                "hole_width_range": [0.1, 0.3],
                "fill": [1, 2, 3],
            },
            ops.CoarseDropout(num=(1, 3), height=(0.1, 0.2), width=(0.1, 0.3), unit="fraction", fill=(1, 2, 3), p=1),
        ),
        (
            "Cutout",
            {"num_holes": 2, "max_h_size": 8, "max_w_size": 9, "fill_value": 7},
            ops.CoarseDropout(num=(2, 2), height=(8, 8), width=(9, 9), fill=7, from_centers=True, p=1),
        ),
        (
            "GridDropout",
            {
                "ratio": 0.4,
                "unit_size_min": None,
                "unit_size_max": None,
                "shift_x": 3,
                "shift_y": -1,
                "holes_number_x": 7,
                "holes_number_y": 5,
                "random_offset": False,
                "fill_value": 9,
            },
            ops.GridDropout(ratio=0.4, grid=(5, 7), fit="cut", place=(0, 3), fill=9, p=1),
        ),
        (
            "GridDropout",
            {
                "ratio": 0.4,
                "unit_size_min": 4,
                "unit_size_max": 9,
                "shift_x": 3,
                "shift_y": None,
                "holes_number_x": 7,
                "holes_number_y": None,
                "random_offset": True,
                "fill_value": 9,
            },
            ops.GridDropout(ratio=0.4, unit_px=(4, 10), fit="cut", place="shared", fill=9, p=1),
        ),
        (
            "GridDropout",
            {
                "ratio": 0.4,
                "unit_size_min": None,
                "unit_size_max": None,
                "shift_x": 3,
                "shift_y": 2,
                "holes_number_x": None,
                "holes_number_y": None,
                "random_offset": False,
                "fill_value": 0,
            },
            ops.GridDropout(ratio=0.4, fit="square", place=(2, 3), p=1),
        ),
        (
            "GridDropout",
            {
                "ratio": 0.4,
                "random_offset": True,
                "unit_size_range": [4, 9],
                "holes_number_xy": None,
                "shift_xy": [0, 0],
                "fill": [1, 2, 3],
            },
            ops.GridDropout(ratio=0.4, unit_px=(4, 8), fill=(1, 2, 3), p=1),
        ),
        (
            "GridDropout",
            {
                "ratio": 0.4,
                "random_offset": False,
                "unit_size_range": [4, 9],
                "holes_number_xy": [3, 5],
                "shift_xy": [1, 2],
                "fill": 0,
            },
            ops.GridDropout(ratio=0.4, grid=(3, 5), place=(2, 1), p=1),
        ),
        (
            "PixelDropout",
            {"dropout_prob": 0.2, "per_channel": True, "drop_value": [1, 2, 3], "mask_drop_value": None},
            ops.PixelDropout(share=(0.2, 0.2), per_channel=True, fill=(1, 2, 3), p=1),
        ),
        (
            "PixelDropout",
            {"dropout_prob": 0.2, "per_channel": False, "drop_value": None},
            ops.PixelDropout(share=(0.2, 0.2), fill="random", p=1),
        ),
        (
            "RandomShadow",
            {
                "shadow_roi": [0, 0.4, 0.9, 1],
                "num_shadows_limit": [2, 3],
                "shadow_dimension": 6,
                "shadow_intensity_range": [0.3, 0.6],
            },
            ops.Shadow(num=(2, 3), num_corners=6, region=(0.0, 0.4, 0.9, 1.0), loss=(0.3, 0.6), p=1),
        ),
        (
            "RandomShadow",
            {
                "shadow_roi": [0, 0.4, 0.9, 1],
                "num_shadows_lower": 0,
                "num_shadows_upper": 3,
                "shadow_dimension": 5,
            },
            ops.Shadow(num=(1, 3), region=(0.0, 0.4, 0.9, 1.0), of="lightness", p=0.75),
        ),
        (
            "HueSaturationValue",
            {"hue_shift_limit": [-18, 9], "sat_shift_limit": 30, "val_shift_limit": [-5, 10]},
            ops.HueSaturationValue(hue=(-0.1, 0.05), saturation=(-30, 30), value=(-5, 10), p=1),
        ),
        (
            "GridDistortion",
            {"num_steps": 4, "distort_limit": [-0.2, 0.3], "border_mode": 4},
            ops.GridDistortion(num_steps=4, distort_limit=(-0.2, 0.3), normalized=False, cells="to_edge", p=1),
        ),
        (
            "GridDistortion",
            {"num_steps": 9, "distort_limit": 0.3, "normalized": True, "border_mode": 4, "fill": 0},
            ops.GridDistortion(num_steps=9, distort_limit=(-0.3, 0.3), cells="whole_px", p=1),
        ),
        (
            "GridDistortion",
            {"num_steps": 10, "distort_limit": 0.3, "border_mode": 4},
            ops.GridDistortion(num_steps=10, distort_limit=(-0.3, 0.3), normalized=False, p=1),
        ),
        (
            "ElasticTransform",
            {"alpha": 120, "sigma": 6.0, "alpha_affine": 3.6, "approximate": False, "border_mode": 0},
            ops.ElasticTransform(alpha=120, sigma=6, affine_px=3.6, p=1),
        ),
        (
            "ElasticTransform",
            {"alpha": 455, "sigma": 6.0, "noise_distribution": "gaussian", "same_dxdy": True, "border_mode": 0},
            ops.ElasticTransform(alpha=455 * 3**0.5 / 4.55, sigma=6, same=True, p=1),
        ),
        (
            "OpticalDistortion",
            {"distort_limit": 0.4, "shift_limit": [-0.5, 0.5], "border_mode": 4},
            ops.AllOf(ops=(shifted(-0.5), ops.OpticalDistortion(k=(-0.4, 0.4), p=1))),
        ),
        (
            "OpticalDistortion",
            {"distort_limit": [-0.1, 0.2], "mode": "fisheye", "border_mode": 0},
            ops.AllOf(
                ops=(shifted(-0.5), ops.OpticalDistortion(k=(-0.1, 0.2), mode="fisheye", p=1), shifted(0.5)),
            ),
        ),
        ("D4", {}, ops.AllOf(ops=(ops.QuarterTurn(swaps_sides=True), ops.Flip()))),
    ],
)
def test_a_transform_is_an_op(name: str, fields: dict[str, Any], expected: ops.Op) -> None:
    assert importers.from_albumentations(compose(one(name, **fields))).recipe.ops == (expected,)


def of_affine(version: int, **fields: Any) -> tuple[ops.Op, list[str]]:
    """What an Affine of a version becomes, and what is noted."""
    own: dict[str, Any] = {"fill": 0, "border_mode": 0, "balanced_scale": False} if version == 2 else {"cval": 0}
    given = {"scale": None, "rotate": None, "shear": None, "translate_percent": None, "translate_px": None, **own}
    found = importers.from_albumentations(compose(one("Affine", **given | fields)))
    (op,) = found.recipe.ops
    return op, found.notes


def first_of(op: ops.Op) -> ops.Op:
    assert isinstance(op, ops.AllOf)
    return op.ops[0]


STILL = ops.Translate(horizontal=(0, 0), vertical=(0, 0))


def test_an_affine_of_version_2_slants_both_axes_at_once_and_last() -> None:
    fields = {"scale": {"x": [0.8, 1.2], "y": [1, 1]}, "rotate": [-20, 10], "shear": [-5, 8]}
    (op, notes), whole = of_affine(2, **fields, translate_percent={"x": [-0.1, 0.2]}), {"whole_px": "towards_zero"}
    parts = (
        ops.Stretch(horizontal=(0.8, 1.2), vertical=(1, 1)),
        ops.Rotate(max_deg=(-20, 10), step=None),
        ops.Shear(horizontal_deg=(-5, 8), vertical_deg=(-5, 8), order="at_once"),
    )
    move = ops.Translate.model_validate({"horizontal": (-0.1, 0.2), "vertical": (0, 0), **whole})
    assert op == ops.AllOf(ops=(*parts, move)) and all(note.startswith("label maps: ") for note in notes)
    still = ops.Translate.model_validate({"horizontal": (0, 0), "vertical": (0, 0), **whole})
    assert of_affine(2, **fields, translate_px={"x": [0, 0], "y": [0, 0]})[0] == ops.AllOf(ops=(*parts, still))
    moved = of_affine(2, **fields, translate_px={"x": [-3, 5], "y": 2})[0]
    px = ops.Translate(horizontal=(-3, 5), vertical=(2, 2), unit="px", step=1)
    assert moved == ops.AllOf(ops=(*parts, px))


def test_an_affine_of_version_1_slants_rows_first_and_columns_the_other_way() -> None:
    fields = {"scale": [0.8, 1.2], "rotate": 10, "shear": {"x": [-5, 8]}, "translate_percent": [-0.1, 0.2]}
    first = ops.Shear(horizontal_deg=(0, 0), vertical_deg=(1, 1))  # the library's own default, where y is left out
    then = ops.Shear(horizontal_deg=(-8, 5), vertical_deg=(0, 0))
    turn = ops.Rotate(max_deg=(10, 10), step=None)
    move = ops.Translate(horizontal=(-0.1, 0.2), vertical=(-0.1, 0.2))
    stretch = ops.Stretch(horizontal=(0.8, 1.2), vertical=(0.8, 1.2))
    assert of_affine(1, **fields)[0] == ops.AllOf(ops=(first, stretch, then, turn, move))
    alike = of_affine(1, **fields, keep_ratio=True)[0]
    assert alike == ops.AllOf(ops=(first, ops.Zoom(factor=(0.8, 1.2)), then, turn, move))
    given = {"scale": [0.9, 1.1], "rotate": [-15, 15], "shear": [-10, 10], "translate_percent": [-0.1, 0.1]}
    assert of_affine(1) == of_affine(1, **given)


def test_a_balanced_scale_shrinks_as_often_as_it_enlarges() -> None:
    fields = {"scale": [0.5, 1.2], "balanced_scale": True}
    either = ops.OneOf(ops=(ops.Zoom(factor=(0.5, 1)), ops.Zoom(factor=(1, 1.2))))
    assert first_of(of_affine(2, **fields, keep_ratio=True)[0]) == either
    lone = of_affine(2, scale=[0.5, 0.8], balanced_scale=True, keep_ratio=True)[0]
    assert first_of(lone) == ops.Zoom(factor=(0.5, 1))  # the library's own reading
    apart = first_of(of_affine(2, **fields)[0])
    assert isinstance(apart, ops.AllOf) and [one.op for one in apart.ops] == ["one_of", "one_of"]


def test_parts_of_an_affine_that_are_not_mapped() -> None:
    with pytest.raises(ValueError, match="fit_output=True makes images of several sizes"):
        of_affine(2, rotate=10, fit_output=True)
    with pytest.raises(ValueError, match="may squash the image to a line"):
        of_affine(2, shear=[-45, 45])


def test_the_format_of_boxes_may_stand_first() -> None:
    params = "bbox_params=A.BboxParams('coco', ['labels']), keypoint_params=A.KeypointParams('yx', ['joints'])"
    boxes, points = importers.from_text(f"A.Compose([A.HorizontalFlip()], {params})", version="2").notes
    assert "bbox_format='coco', labels=..." in boxes
    assert "joints=..." in points and "format='yx' is not known" in points


def test_the_call_takes_boxes_as_maps_turn_them() -> None:
    text = "A.Compose([{}], bbox_params=A.BboxParams('coco', clip=True))"
    turned, other = "A.Rotate(rotate_method='ellipse')", "A.Affine(rotate=10, rotate_method='ellipse')"
    for transforms, boxes in (
        (f"{turned}, A.OneOf([{other}, A.HorizontalFlip()])", "ellipse"),
        (f"{turned}, A.Rotate()", "corners"),
        ("A.SafeRotate()", "corners"),
    ):
        notes = importers.from_text(text.format(transforms), version="2").notes
        (told,) = [note for note in notes if note.startswith("bbox_params")]
        assert f"TargetOptions(boxes='{boxes}', clip=True)" in told
        assert ("Not mapped: rotate_method='ellipse' of Rotate." in told) == ("A.Rotate()" in transforms)


@pytest.mark.parametrize(
    ("version", "params", "told"),
    [
        ("2", "bbox_params=A.BboxParams('coco')", True),
        ("2", "keypoint_params=A.KeypointParams('xy')", True),
        ("2", "", False),
        ("1", "bbox_params=A.BboxParams('coco')", False),
        ("1", "keypoint_params=A.KeypointParams('xy')", True),
    ],
)
def test_objects_under_holes_are_told_of(version: str, params: str, told: bool) -> None:
    text = f"A.Compose([A.OneOf([A.CoarseDropout(), A.HorizontalFlip()]), A.GridDropout()], {params})"
    notes = [note for note in importers.from_text(text, version=version).notes if note.startswith("holes: ")]
    names = "CoarseDropout, GridDropout" if version == "2" else "CoarseDropout"
    assert notes == (
        [f"holes: {names} cut or drop objects and points under them there; here all stay."] if told else []
    )


def test_an_affine_of_imgaug_turns_clockwise_and_draws_one_number_for_both_axes() -> None:
    given: dict[str, Any] = {"scale": 1.2, "translate_percent": None, "translate_px": None, "rotate": [-5, 10]}
    given |= {"shear": 0, "order": 1, "cval": 7, "mode": "symmetric"}
    found = importers.from_albumentations(compose(one("IAAAffine", **given)))
    zoom, turn = ops.Zoom(factor=(1, 1.2)), ops.Rotate(max_deg=(-10, 5), step=None)
    assert found.recipe.ops == (ops.AllOf(ops=(zoom, turn, STILL)),)
    assert found.recipe.border == "reflect" and not found.notes
    slanted = importers.from_albumentations(compose(one("IAAAffine", **given | {"shear": 20, "translate_px": [1, 5]})))
    (op,) = slanted.recipe.ops
    assert isinstance(op, ops.AllOf)
    assert op.ops[0] == ops.Shear(horizontal_deg=(-20, 20), vertical_deg=(-20, 20), order="y_first", opposite=True)
    assert op.ops[3] == ops.Translate(horizontal=(1, 5), vertical=(1, 5), unit="px", step=1)
    assert "what moves is drawn once for both axes there." in str(slanted.notes)
    for wrong in ({"order": 2}, {"order": [0, 1]}, {"mode": "mirror"}, {"cval": (0, 255)}):
        with pytest.raises(ValueError, match="must be one of 0, 1 and 3, the name of a border, and a level"):
            importers.from_albumentations(compose(one("IAAAffine", **given | wrong)))


def test_a_piecewise_affine_is_a_field_that_moves_as_far_and_as_alike() -> None:
    fields: dict[str, Any] = {"scale": [0.04, 0.04], "nb_rows": [4, 4], "nb_cols": 4}
    old = {**fields, "interpolation": 1, "cval": 0, "mode": "constant", "absolute_scale": False}
    imgaug = {**fields, "order": 1, "cval": 0, "mode": "constant"}
    for name, given in (("PiecewiseAffine", old), ("IAAPiecewiseAffine", imgaug)):
        found = importers.from_albumentations(compose(one("Resize", height=300, width=300), one(name, **given, p=0.3)))
        op = found.recipe.ops[1]
        assert isinstance(op, ops.ElasticTransform) and op.p == 0.3 and found.rows[1].verdict == "near"
        assert op.sigma == 40 and found.recipe.border == "edge"  # 0.4 of a cell of 100 pixels
        assert 0.163 * op.alpha / op.sigma == pytest.approx(0.5**0.5 * 0.04 * 300, rel=1e-3)
        (any_size,) = importers.from_albumentations(compose(one(name, **given, p=0.3))).recipe.ops
        assert isinstance(any_size, ops.ElasticTransform) and any_size.side_px == 224
        assert (any_size.sigma / 224, any_size.alpha / 224**2) == pytest.approx(
            (op.sigma / 300, op.alpha / 300**2), rel=2e-3
        )
    with pytest.raises(ValueError, match="moves nodes by pixels, and how large the image is depends on the file here"):
        importers.from_albumentations(compose(one("PiecewiseAffine", **old | {"absolute_scale": True})))
    with pytest.raises(ValueError, match="of version 2 weighs all nodes by their distance"):
        importers.from_albumentations(compose(one("Resize", height=9, width=9), one("PiecewiseAffine", border_mode=0)))


def test_an_advanced_blur_is_a_round_one() -> None:
    for names in (("sigmaX_limit", "sigmaY_limit"), ("sigma_x_limit", "sigma_y_limit")):
        fields = {"blur_limit": [3, 5], "rotate_limit": 90, **dict.fromkeys(names, (0.2, 1.0))}
        found = importers.from_albumentations(compose(one("AdvancedBlur", **fields)))
        blurs = tuple(ops.GaussianBlur(sigma_px=(0.2, 1.0), kernel_px=size, p=1) for size in (3, 5))
        assert found.recipe.ops == (ops.OneOf(ops=blurs, p=1),)
        assert found.rows[0].verdict == "near" and "a round Gaussian" in found.rows[0].note


def test_flip_mirrors_along_one_axis_or_both() -> None:
    (found,) = importers.from_albumentations(compose(one("Flip"))).recipe.ops
    assert isinstance(found, ops.OneOf) and len(found.ops) == 3 and found.weights is None


def test_fields_of_transforms_that_are_not_mapped() -> None:
    limits = {"r_shift_limit": [-20, 20], "g_shift_limit": [-20, 20], "b_shift_limit": [-10, 10]}
    data = compose(
        one("IAAPiecewiseAffine", scale=[0.03, 0.05], nb_rows=4, nb_cols=4, order=2, cval=0, mode="constant"),
        one("MaskDropout", max_objects=2),
        one("IAAAdditiveGaussianNoise", loc=3, scale=[1, 2], per_channel=False),
        one("ImageCompression", compression_type="webp", quality_range=[50, 60]),
        one("Downscale", scale_min=0.2, scale_max=0.5, interpolation=1),
        one("GaussNoise", var_limit=9.0, mean=3),
        one("RGBShift", **limits),
        one("RandomBrightnessContrast", brightness_limit=0.1, contrast_limit=0.1, brightness_by_max=False),
        one("CoarseDropout", max_holes=1, max_height=2, max_width=2, fill_value="random"),
    )
    with pytest.raises(ValueError, match="9 of albumentations's transforms"):
        importers.from_albumentations(data)


@pytest.mark.parametrize(("height", "width"), [(361, 640), (640, 361), (333, 500), (427, 640), (80, 81), (120, 500)])
def test_the_long_side_of_a_resize_is_rounded(height: int, width: int) -> None:
    found = importers.from_text("A.Compose([A.SmallestMaxSize(120)])")
    shown = Augment(found.recipe)(np.zeros((height, width, 3), np.uint8))
    assert shown.shape[1:] == tuple(round(side * 120 / min(height, width)) for side in (height, width))
    assert found.notes == () or not any("rounded" in note for note in found.notes)


def test_resizes_and_paddings_that_are_not_mapped() -> None:
    data = compose(
        one("SmallestMaxSize", max_size=[200, 256]),
        one("PadIfNeeded", min_height=64, min_width=None, border_mode=0),
        one("PadIfNeeded", pad_height_divisor=32, pad_width_divisor=16, border_mode=0),
        one("PadIfNeeded", min_height=6, min_width=6, border_mode=0, position="anywhere"),
        one("RandomCrop", height=24, width=20, pad_if_needed=True, pad_position="random"),
        {**one("Resize", height=24, width=20), "p": 1.5},
    )
    with pytest.raises(ValueError, match="6 of albumentations's transforms"):
        importers.from_albumentations(data)


def test_all_that_cannot_be_mapped_is_listed() -> None:
    data = compose(
        {**CROP, "p": 1.5},
        one("ElasticTransform", alpha=1, sigma=9, approximate=True),
        one("Rotate", limit=[-1, 1], border_mode=5),
        one("OneOf", transforms=[one("PiecewiseAffine"), one("ToGray")], p=1.0),
        one("HorizontalFlip", p=7),
        one("Posterize", p=0.5),
    )
    with pytest.raises(ValueError, match="6 of albumentations's transforms") as caught:
        importers.from_albumentations(data)
    problems = (
        "p=1.5 is not a probability",
        "ElasticTransform: approximate=True",
        "border_mode=5",
        "PiecewiseAffine",
        "p=7",
        "'num_bits'",
    )
    for problem in problems:
        assert problem in str(caught.value), problem


@pytest.mark.parametrize("data", ["{", "[]", {}, {"transform": {"x": 1}}])
def test_what_is_no_transform_is_said(data: Any) -> None:
    with pytest.raises(ValueError, match=r"no JSON|A\.to_dict"):
        importers.from_albumentations(data)


# The library's own pixels

ROWS, COLUMNS = np.mgrid[:12, :16]
GRAY = (127 + 120 * np.sin(COLUMNS / 3) * np.cos(ROWS / 4)).round().astype(np.uint8)

MOVED: list[tuple[str, dict[str, Any], str]] = [
    (
        "1.3.1 scale",
        {"scale_limit": (0.10000000000000009, 0.10000000000000009)},
        "99bad5e9f3f2e8d4b694714f321c0e0b98b7d1e3ecece2cfb39372523621141195b1c8d8e1e1d8c6ad9173573e2b1f1d"
        "92a8bbc9d0d0c8baa58e755d49392f2d8d9eacb6bbbbb5ab9c8a7866574b444287919aa0a3a39f9990857b7067605c5b"
        "818486878888888683817e7b797776767b76726f6e6e7073777c81868b8e909075695f58545459606a7784919ca4a9aa"
        "705d4e433d3d434f6073879aabb8bfc16b533f3129293140566f89a2b8c9d3d5684b34231a1a23354f6c8ba9c3d6e2e5",
    ),
    (
        "1.3.1 all",
        {"scale_limit": (0.25, 0.25), "rotate_limit": (15.0, 15.0)}
        | {"shift_limit_x": (0.125, 0.125), "shift_limit_y": (-0.25, -0.25)},
        "97b0c5d5dbdcd7ccbcaa978475675f5a8ea5b8c5cbccc8bfb1a294867b726e6d869aa9b4b9b9b6ada2988d847e7b7b7f"
        "80909ba2a6a4a099918a83807f81878e6b878e91918f89837e7977787c848e9a538184827f79726d6866686d778493a3"
        "387f7c766e655d56535357616f8094a91c7f766c605449423f404654657a92aa04637565544639312c2e37465a728ea9"
        "004b76624e3b2c211c202a394d50473800307a624b362416111214140e000000001877664b2e160a0401000000000000",
    ),
    (
        "2.0.8 scale",
        {"scale_limit": (0.10000000000000009, 0.10000000000000009)},
        "99bad5e9f3f2e8d3b6957150321c0e0b98b7d1e3ecece2ceb39372523621141195b1c8d8e0e0d7c6ae9173573e2b1f1d"
        "92a8bbc9d0cfc8b9a68e755e4939302d8c9dacb6bbbbb5ab9c8a7866574c444387919aa0a3a39f9990857b7067605c5b"
        "818486888888888684817e7b797776767b76726f6e6e7073777c81868a8e909075695f58545559606a7784919ba4a8aa"
        "705d4e433d3d434f6072879aabb8bfc16c533f3129293240566f89a2b8c9d3d5684b34221a1a24354e6c8ba9c3d6e2e5",
    ),
    (
        "2.0.8 all",
        {"scale_limit": (0.25, 0.25), "rotate_limit": (15.0, 15.0)}
        | {"shift_limit_x": (0.125, 0.125), "shift_limit_y": (-0.25, -0.25)},
        "97b0c5d5dbdbd7cdbcaa978474675f5a8ea5b8c5cbccc8beb2a394867b726e6d869aa9b4b9bab5ada2988d847e7b7c7f"
        "808f9ba2a6a5a099918a84807f81878e6c878e91928e89837e7977787c848e9a518184827f79726d6867686d778493a3"
        "377f7c766e655d56535358616f8094a91d7f776c605349423f3f4654657a92aa03657565554639302c2e37465a728da9"
        "004a76624e3c2c211c202a3a4c50493700307b634b362416121214140e000000001678664b2d160a0401000000000000",
    ),
]
"""What albumentations 1.3.1 and 2.0.8 make of GRAY by ShiftScaleRotate with border_mode=0, one channel in hexadecimal,
and what their `to_dict` writes of its limits."""


@pytest.mark.parametrize(("limits", "recorded"), [case[1:] for case in MOVED], ids=[case[0] for case in MOVED])
def test_a_scale_limit_above_zero_enlarges_as_albumentations_does(limits: dict[str, Any], recorded: str) -> None:
    still: dict[str, Any] = {"rotate_limit": (0, 0), "shift_limit_x": (0, 0), "shift_limit_y": (0, 0)}
    data = compose(one("ShiftScaleRotate", **still | limits, interpolation=1, border_mode=0, value=0))
    transform = Augment(Recipe.from_albumentations(data), dtype="uint8", layout="NHWC")
    expected = np.frombuffer(bytes.fromhex(recorded), np.uint8).reshape(GRAY.shape)
    found = transform(np.dstack([GRAY] * 3))[..., 1]
    assert np.abs(found.astype(int) - expected).max() <= 2  # OpenCV looks up at 32nds of a pixel


@pytest.mark.parametrize(("mean", "std"), [(0.5, 0.25), ([0.5], [0.25]), ((0.5,), 0.25), (0.5, [0.25] * 3)])
def test_one_number_normalises_all_channels(mean: Any, std: Any) -> None:
    data = compose(CROP, {**NORMALIZE, "mean": mean, "std": std})
    found = importers.from_albumentations({**data, "__version__": "2.0.8"})
    assert found.recipe.ops[-1] == ops.Normalize(mean=(0.5,) * 3, std=(0.25,) * 3)
    assert "Normalize" in found.exact


@pytest.mark.parametrize(("values", "is_exact"), [("0.5, 0.5", True), ("[0.5], [0.5]", False), ("0.5, (0.5,)", False)])
def test_a_list_of_one_number_normalises_the_first_channel_in_version_1(values: str, is_exact: bool) -> None:
    found = importers.from_text(f"A.Normalize({values})", version="1")
    assert found.recipe.ops[-1] == ops.Normalize(mean=0.5, std=0.5)
    assert ("Normalize" in found.exact) == is_exact
    told = "Normalize: by a list of one number, version 1.3 changes only the first channel of an image that has three."
    assert (told in found.notes) != is_exact


@pytest.mark.parametrize("mean", [[0.5, 0.5], "half", [0.5, None, 0.5], {}])
def test_numbers_of_normalize_that_do_not_fit_are_named_with_the_rule(mean: Any) -> None:
    with pytest.raises(
        ValueError, match=r"\n  Normalize: mean=.* must be three finite numbers in 0..1, for R, G and B, or one"
    ) as told:
        importers.from_albumentations(compose(CROP, {**NORMALIZE, "mean": mean}))
    assert "float()" not in str(told.value)


def test_all_numbers_that_do_not_fit_stand_in_the_line_of_their_transform() -> None:
    with pytest.raises(ValueError, match=r"\n  Normalize: mean=.* must .* std=.* must") as told:
        importers.from_albumentations(compose(CROP, {**NORMALIZE, "mean": [1, 2], "std": []}))
    assert "Normalize: Normalize:" not in str(told.value)


@pytest.mark.parametrize("border_mode", [0, 1, 4])
def test_holes_and_noise_before_geometry_act_before_it(border_mode: int) -> None:
    """A turn after them turns the holes and smooths the noise, whatever the border shows."""
    hole = one("CoarseDropout", num_holes_range=[1, 1], hole_height_range=[9, 9], hole_width_range=[9, 9], fill=0)
    turn = one("Rotate", limit=[-20, 20], border_mode=border_mode, fill=0)
    noise = one("GaussNoise", std_range=[0.1, 0.1], mean_range=[0, 0], per_channel=True)
    found = importers.from_albumentations(compose(hole, noise, turn, one("HorizontalFlip", p=0.5)))
    assert not any("stands before" in note for note in found.notes) and "CoarseDropout" in found.exact
    passes = [[key for key, _ in own] for own in found.recipe.passes[0]]
    assert passes == [["coarse_dropout", "noise"], ["rotate", "flip"]]
    quarter = importers.from_albumentations(compose(hole, one("RandomRotate90"), one("HorizontalFlip", p=0.5)))
    assert "coarse_dropout" not in str(quarter.notes) and "CoarseDropout" in quarter.exact


@pytest.mark.parametrize("turn", ["RandomRotate90", "Transpose"])
def test_columns_that_change_places_before_a_quarter_turn_are_not_those_after_it(turn: str) -> None:
    columns, cells = one("RandomGridShuffle", grid=[1, 3]), one("RandomGridShuffle", grid=[3, 3])
    found = importers.from_albumentations(compose(columns, one(turn)))
    assert found.recipe.num_passes == 2 and "grid_shuffle" not in str(found.notes)
    for others in ((cells, one(turn)), (one(turn), columns), (columns, one("HorizontalFlip", p=0.5))):
        assert "grid_shuffle" not in str(importers.from_albumentations(compose(*others)).notes)


def test_always_apply_of_1_3_is_p_of_1_but_the_weight_in_a_one_of() -> None:
    """1.3 applies such a transform whatever its p says; OneOf chooses by p all the same."""
    gray, flip = one("ToGray", p=0.5, always_apply=True), one("HorizontalFlip", p=0.5, always_apply=False)
    found = importers.from_albumentations(compose(gray, flip, one("Sequential", p=0.3, transforms=[gray])))
    assert found.recipe.ops == (
        ops.Grayscale(p=1.0),
        ops.Flip(p=0.5),
        ops.AllOf(ops=[ops.Grayscale(p=1.0)], p=0.3),
    )
    chosen = importers.from_albumentations(compose(one("OneOf", transforms=[gray, one("InvertImg", p=1.0)])))
    assert chosen.recipe.ops == (ops.OneOf(ops=[ops.Grayscale(p=1.0), ops.Invert(p=1.0)], weights=(0.5, 1.0)),)


def test_boxes_and_points_are_said_to_belong_to_the_call() -> None:
    data = compose(one("HorizontalFlip", p=0.5))
    params = {"format": "coco", "label_fields": ["labels"], "min_visibility": 0.3, "min_area": 0.0, "min_width": 2}
    data["transform"]["bbox_params"] = params
    (told,) = importers.from_albumentations(data).notes
    options = "targets=TargetOptions(boxes='corners', min_visibility=0.3)"
    call = f"augment(image=..., bboxes=..., bbox_format='coco', labels=..., {options})"
    also = "A Loader takes the same targets. min_visibility: of the output, and there of what each transform gives."
    also += " Not mapped: min_width."
    assert told == f"bbox_params: boxes are given to the call: {call}. {also}"
    given = {"image": np.zeros((60, 60, 3), np.uint8), "bboxes": [[0, 0, 40, 40], [20, 20, 2, 2]], "labels": ["a", "b"]}
    for name in given:
        call = call.replace(f"{name}=...", f"{name}={name}")
    augment = Augment(Recipe(ops=(ops.CenterCrop(size=20),)))
    assert eval(call, {**given, "augment": augment, "TargetOptions": TargetOptions})["labels"] == ["b"]
    text = 'A.Compose([A.HorizontalFlip()], keypoint_params=A.KeypointParams(format="xya", remove_invisible=False))'
    (told,) = importers.from_text(text, version="2").notes
    assert "augment(image=..., keypoints=...), of (M, 2) x and y. format='xya' is not known" in told
    assert told.endswith("Points that are not shown are left out.")


@pytest.mark.parametrize(
    ("before", "is_same"),
    [
        ([], True),  # images of their own size: the sides of each change places
        ([one("RandomGridShuffle", grid=[3, 3])], False),  # cells lie within sides that are known
        ([CROP], False),
        ([one("RandomCrop", height=64, width=64)], True),
        ([one("Resize", height=64, width=64), one("HorizontalFlip", p=0.5)], True),
        ([one("SmallestMaxSize", max_size=64)], False),
        ([one("LongestMaxSize", max_size=64)], False),
        ([one("LongestMaxSize", max_size=64), one("PadIfNeeded", min_height=64, min_width=64)], True),
        ([one("LongestMaxSize", max_size=64), one("PadIfNeeded", min_height=32, min_width=32)], False),
        ([one("LongestMaxSize", max_size=64), one("PadIfNeeded", min_height=96, min_width=64)], False),
        ([one("RandomCrop", height=64, width=64), one("PadIfNeeded", min_height=96, min_width=64)], False),
    ],
)
def test_turns_are_the_same_where_frames_are_square_or_of_any_size(before: list[dict[str, Any]], is_same: bool) -> None:
    for turn in ("RandomRotate90", "Transpose", "D4"):
        held = one("OneOf", transforms=[one(turn), one("NoOp")])
        rows = [*importers.from_albumentations(compose(*before, one(turn))).rows]
        rows += [row for row in importers.from_albumentations(compose(*before, held)).rows if row.name == turn]
        assert ["keeps its shape" in row.note for row in rows[len(before) :]] == [not is_same] * 2


def test_a_version_says_whether_gray_gains_colour() -> None:
    hsv = one("HueSaturationValue", hue_shift_limit=[-18, 9], sat_shift_limit=30, val_shift_limit=[-5, 10])
    for version in ("1.3.1", "2.0.8"):
        data = {**compose(hsv), "__version__": version}
        (op,) = importers.from_albumentations(data).recipe.ops
        assert isinstance(op, ops.HueSaturationValue) and op.keeps_gray == (version == "2.0.8")


def test_version_2_shifts_by_whole_pixels_and_scales_each_side() -> None:
    fields = {"shift_limit_x": [-0.1, 0.1], "shift_limit_y": [-0.2, 0.2], "scale_limit": [-0.1, 0.3], "rotate_limit": 5}
    (new,) = importers.from_albumentations(compose(one("ShiftScaleRotate", fill=0, **fields))).recipe.ops
    (old,) = importers.from_albumentations(compose(one("ShiftScaleRotate", value=0, **fields))).recipe.ops
    turn, way = ops.Rotate(max_deg=(-5, 5), step=None), {"horizontal": (-0.1, 0.1), "vertical": (-0.2, 0.2)}
    stretch = ops.Stretch(horizontal=(0.9, 1.3), vertical=(0.9, 1.3))
    assert new == ops.AllOf(ops=(stretch, turn, ops.Translate(whole_px="towards_zero", **way)))
    assert old == ops.AllOf(ops=(ops.Zoom(factor=(0.9, 1.3)), turn, ops.Translate(**way)))


@pytest.mark.parametrize(("version", "p"), [("1.3.1", 1.0), ("1.4.21", 0.3), ("2.0.8", 0.3)])
def test_the_version_is_that_of_the_dict(version: str, p: float) -> None:
    held = one("Sequential", transforms=[one("ToGray"), one("InvertImg")], p=0.3)
    data = {"__version__": version, "transform": one("Compose", transforms=[held])}
    assert [getattr(op, "p", None) for op in importers.from_albumentations(data).recipe.ops] == [p]


def test_a_crop_of_version_2_pads_what_is_smaller() -> None:
    found = importers.from_text("A.Compose([A.RandomCrop(64, 48, pad_if_needed=True, fill=9)])", version="2")
    assert found.recipe.ops == (ops.Pad(size=(64, 48), fill=9), ops.RandomCrop(size=(64, 48)))
    found = importers.from_text("A.CenterCrop(64, 48, pad_if_needed=True, pad_position='top_left')", version="2")
    assert found.recipe.ops[0] == ops.Pad(size=(64, 48), position="top_left")
    for fields in ("pad_position='random'", "p=0.5"):
        with pytest.raises(ValueError, match=r"RandomCrop: pad_if_needed .*; put PadIfNeeded before it"):
            importers.from_text(f"A.RandomCrop(64, 48, pad_if_needed=True, {fields})", version="2")


@pytest.mark.parametrize(("border_mode", "is_exact"), [(0, True), (1, False), (2, True), (4, False)])
def test_padding_behind_a_resize_goes_on_from_pixels_before_it(border_mode: int, is_exact: bool) -> None:
    """Of albumentations 2.0.8 it differs by up to 7 levels in the mean where it repeats or mirrors single pixels."""
    pad = f"A.PadIfNeeded(96, 96, border_mode={border_mode})"
    told = "PadIfNeeded: its border is made of pixels before they are resized, and there of those behind."
    for text in (f"A.Resize(80, 80), {pad}", f"A.Resize(80, 80), A.OneOf([{pad}, A.Resize(96, 96)], p=1)"):
        found = importers.from_text(f"A.Compose([{text}])", version="2")
        assert ("PadIfNeeded" in found.exact) == is_exact and (told in found.notes) != is_exact
    (pads, *_) = importers.from_text(f"A.Compose([{pad}, A.Resize(80, 80)])", version="2").rows
    assert pads.verdict == "exact"


@pytest.mark.parametrize("transform", ["Rotate((20, 20), p=1", "Affine(scale=(0.7, 0.7), p=1"])
@pytest.mark.parametrize(("border_mode", "is_same"), [(0, True), (1, False), (2, True), (4, False)])
def test_a_map_behind_a_resize_shows_pixels_before_it(transform: str, border_mode: int, is_same: bool) -> None:
    """Beyond the image it differs by up to 8 levels in the mean of photographs where it repeats or mirrors pixels."""
    name = transform.partition("(")[0]
    told = f"{name}: its border is made of pixels before they are resized, and there of those behind."
    moved = f"A.{transform}, border_mode={border_mode})"
    for text in (f"A.Resize(80, 80), {moved}", f"A.RandomResizedCrop((80, 80)), A.OneOf([{moved}, A.Transpose()])"):
        found = importers.from_text(f"A.Compose([{text}])", version="2")
        assert (told in found.notes) != is_same
        assert is_same or name not in found.exact
    assert told not in importers.from_text(f"A.Compose([{moved}, A.Resize(80, 80)])", version="2").notes


def test_a_drawn_order_is_that_of_the_list() -> None:
    text = "A.Compose([A.RandomOrder([A.HorizontalFlip(p=0.3), A.InvertImg(p=1), A.ToGray(p=1)], n={}, p=0.7)])"
    held = (ops.Flip(p=0.3), ops.Invert(p=1.0), ops.Grayscale(p=1.0))
    for num, told in ((1, ""), (2, "the order is that of the list, always.")):
        found = importers.from_text(text.format(num))
        assert found.recipe.ops == (ops.SomeOf(ops=held, num=(num, num), p=0.7),)
        assert found.rows[-1].note == told


def test_stripes_are_rectangles_from_edge_to_edge() -> None:
    """Of as many as are drawn, which may be none; a number alone is the most."""
    columns = ops.CoarseDropout(num=(1, 3), width=(5, 9), height=(65535, 65535), p=0.75)
    rows = {"width": (65535, 65535), "p": 1.0}
    for text, held, p in (
        ("num_masks_x=(0, 3), mask_x_length=(5, 9), p=1.0", [columns], 1.0),
        ("num_masks_x=3, mask_x_length=9", [ops.CoarseDropout(**{**columns.model_dump(), "width": (0, 9)})], 0.5),
        (
            "num_masks_y=(2, 2), mask_y_length=(4, 4), fill=9",
            [ops.CoarseDropout(num=(2, 2), height=(4, 4), fill=9, **rows)],
            0.5,
        ),
        (
            "num_masks_x=(0, 3), mask_x_length=(5, 9), num_masks_y=(1, 2), mask_y_length=(3, 4), p=0.2",
            [columns, ops.CoarseDropout(num=(1, 2), height=(3, 4), **rows)],
            0.2,
        ),
        ("num_masks_x=1, p=1", [ops.Identity()], 1.0),
    ):
        found = importers.from_text(f"A.Compose([A.XYMasking({text})])", version="2")
        assert found.recipe.ops == (ops.AllOf(ops=held, p=p),), text
    with pytest.raises(ValueError, match="XYMasking: fill='random' is not mapped; levels are"):
        importers.from_text("A.XYMasking(1, 0, (4, 9), fill='random')", version="2")
    recipe = Recipe(ops=[ops.CoarseDropout(num=(1, 1), width=(5, 5), height=(65535, 65535), p=1.0)])
    striped = Augment(recipe, dtype="uint8", layout="NHWC", framework="numpy")(np.full((20, 30, 3), 255, np.uint8))
    assert (np.asarray(striped) == 0).sum() == 3 * 20 * 5


def test_a_crop_at_a_place() -> None:
    for version in ("1", "2"):
        found = importers.from_text("A.Compose([A.Crop(x_min=109, y_min=39, x_max=529, y_max=359)])", version=version)
        assert found.recipe.ops == (ops.RandomCrop(size=(320, 420), at=(109, 39)),)
    image = np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)
    found = importers.from_text("A.Compose([A.Crop(4, 3, 9, 15)])", version="1")
    shown = Augment(found.recipe, dtype="uint8", layout="NHWC", framework="numpy")(image)
    np.testing.assert_array_equal(shown, image[3:15, 4:9])
    with pytest.raises(ValueError, match=r"Crop: x_min=9 and x_max=9 leave no pixel between them"):
        importers.from_text("A.Compose([A.Crop(9, 3, 9, 15)])", version="1")
    with pytest.raises(
        ValueError, match=r"Crop: pad_if_needed=True pads, as PadIfNeeded before it does, and is not mapped"
    ):
        importers.from_text("A.Compose([A.Crop(4, 3, 9, 15, pad_if_needed=True)])", version="2")


def test_a_padding_that_adds_nothing_has_no_border() -> None:
    text = "A.Compose([A.RandomSizedCrop((384, 640), {0}, {0}), A.PadIfNeeded(None, None, 32, 32)])"
    for side, verdict in ((512, "exact"), (500, "near")):
        assert importers.from_text(text.format(side), version="1").rows[-1].verdict == verdict


@pytest.mark.parametrize(("mode", "of_numpy"), [(4, "reflect"), (2, "symmetric"), (3, "wrap"), (1, "edge")])
def test_a_map_behind_a_padding_mirrors_what_was_padded(mode: int, of_numpy: Any) -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    turn = f"A.Rotate((30, 30), border_mode={mode}, p=1)"
    chain = f"A.Compose([A.PadIfNeeded(60, 80, border_mode={mode}), {turn}])"
    whole, alone = (importers.from_text(text, version="1") for text in (chain, f"A.Compose([{turn}])"))
    padded = np.pad(image, ((10, 10), (10, 10), (0, 0)), of_numpy)
    shown, expected = (
        np.asarray(Augment(one.recipe, dtype="uint8", layout="NHWC", framework="numpy")(given)).astype(float)
        for one, given in ((whole, image), (alone, padded))
    )
    assert np.abs(shown - expected).mean() < 0.5 and not whole.notes[:-1]
    assert whole.recipe.num_passes == (1 if of_numpy == "edge" else 2)
    found = importers.from_text(
        chain.replace("60, 80", "30, 50").replace("[A.Pad", "[A.Resize(30, 50), A.Pad"), version="1"
    )
    assert found.recipe.num_passes == 1  # nothing is padded


def test_mirrored_paddings_are_told_where_no_pass_is_left() -> None:
    turns = ", ".join(["A.Rotate((30, 30), p=1)"] * 9)
    found = importers.from_text(f"A.Compose([A.PadIfNeeded(60, 80), {turns}])", version="1")
    assert any("repeats the padded image there" in note or "seen again" in note for note in found.notes)


def test_a_class_of_ones_own_is_not_taken_for_the_librarys_without_a_word() -> None:
    own = {"__class_fullname__": "__main__.HorizontalFlip", "p": 0.5, "always_apply": False}
    found = importers.from_albumentations(compose(CROP, own))
    told = "is a class of __main__, taken for that of albumentations by its name; what it does otherwise is left out."
    assert f"HorizontalFlip: {told}" in found.notes and found.rows[-1].verdict == "near"


def test_a_grid_that_bends_nothing_is_near() -> None:
    """Their cells of whole pixels bend it a little even so."""
    found = importers.from_text("A.Compose([A.Resize(64, 64), A.GridDistortion(distort_limit=(0, 0), p=1)])")
    assert found.rows[-1].verdict == "near"
    assert "GridDistortion: bends nothing here, and there by up to a pixel: about 2 levels." in found.notes
    bent = importers.from_text("A.Compose([A.RandomCrop(64, 64), A.GridDistortion(distort_limit=(0, 0.1), p=1)])")
    assert bent.rows[-1].verdict == "exact"


def test_the_grain_of_version_2_is_said_to_be_another_one() -> None:
    (note,) = (note for note in importers.from_text("A.Compose([A.ISONoise()])").notes if "grain" in note)
    assert note.endswith("In version 2 few pixels have it, and brighten by about a third as much in the mean.")


def test_further_images_are_given_to_the_call() -> None:
    data = compose(CROP)
    data["transform"]["additional_targets"] = {"after": "image", "old-mask": "mask", "points": "keypoints"}
    found = importers.from_albumentations(data)
    paired = "{'after': 'linear', 'old-mask': 'nearest'}"
    given = f"augment(image=..., after=..., **{{'old-mask': ...}}, targets=TargetOptions(paired={paired}))"
    assert f"additional_targets: further images, which keep their colours here, are given to the call: {given}." in (
        found.notes
    )
    assert not any("additional_targets" in note for note in importers.from_albumentations(compose(CROP)).notes)


@pytest.mark.parametrize("border_mode", [1, 2, 3, 4])
def test_a_map_behind_a_crop_that_may_pad_shows_the_border_of_the_crop(border_mode: int) -> None:
    """Even where nothing is padded: as a crop that cannot pad, and the map behind it."""
    y, x = np.mgrid[:107, :114]
    waves = [np.sin(x / 9 + y / 13), np.sin(x / 17), np.sin(y / 11 - x / 15)]
    image = np.round(127.5 + 127.5 * np.stack(waves, axis=2)).astype(np.uint8)
    crop = {"__class_fullname__": "CenterCrop", "height": 70, "width": 80, "pad_position": "center", "p": 1.0}
    turn = {"__class_fullname__": "Rotate", "limit": (56, 56), "interpolation": 1, "border_mode": border_mode, "p": 1.0}
    resize = {"__class_fullname__": "Resize", "height": 100, "width": 110, "interpolation": 1, "p": 1.0}
    for before in ([], [resize]):
        made = []
        for pads in (True, False):
            own = {**crop, "pad_if_needed": pads, "border_mode": border_mode, "fill": 0.0}
            found = importers.from_albumentations(compose(*before, own, {**turn, "fill": 0.0}))
            augment = Augment(found.recipe, dtype="uint8", layout="NHWC", framework="numpy")
            made.append(augment(image).astype(np.int64))
        assert np.abs(made[0] - made[1]).mean() < 1.5
