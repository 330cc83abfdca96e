"""Transforms of torchvision as recipes: by stand-ins of the same names and attributes, and by the real ones."""

import logging
from enum import Enum
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from augpipe import Augment, Recipe, importers, ops, policies


class Mode(Enum):
    NEAREST = "nearest"
    BICUBIC = "bicubic"
    BILINEAR = "bilinear"


class Policy(Enum):
    CIFAR10 = "cifar10"


def make(name: str, **attributes: Any) -> Any:
    """An object of a class of that name."""
    made = type(name, (), {"__module__": "torchvision.transforms"})()
    vars(made).update(attributes)
    return made


def compose(*transforms: Any) -> Any:
    return make("Compose", transforms=list(transforms))


CROP = make(
    "RandomResizedCrop", antialias=True, size=(96, 96), scale=(0.2, 1.0), ratio=(0.75, 1.5), interpolation=Mode.BILINEAR
)
WHOLE: dict[str, Any] = {"expand": False, "center": None}
INVERT, EQUALIZE = make("RandomInvert", p=1.0), make("RandomEqualize", p=1.0)
TO_TENSOR = make("ToTensor")
NORMALIZE = make("Normalize", mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))


def test_what_maps_exactly() -> None:
    found = importers.from_torchvision(
        compose(
            CROP,
            make("Compose", transforms=[make("RandomHorizontalFlip", p=0.3), make("RandomVerticalFlip", p=0.2)]),
            make("RandomGrayscale", p=0.1),
            make("RandomInvert", p=0.4),
            make("RandomPosterize", bits=3, p=0.5),
            make("RandomSolarize", threshold=127.5, p=0.5),
            make("RandomAdjustSharpness", sharpness_factor=2.0, p=0.6),
            make("RandomAutocontrast", p=0.7),
            make("RandomEqualize", p=0.8),
            TO_TENSOR,
            NORMALIZE,
        )
    )
    assert found.notes == ()
    assert found.recipe.ops == (
        ops.RandomResizedCrop(size=(96, 96), scale=(0.2, 1.0), ratio=(0.75, 1.5)),
        ops.Flip(p=0.3),
        ops.Flip(direction="vertical", p=0.2),
        ops.Grayscale(p=0.1),
        ops.Invert(p=0.4),
        ops.Posterize(bits=(3, 3), p=0.5),
        ops.Solarize(threshold=(128, 128), p=0.5),
        ops.Sharpness(factor=(2, 2), p=0.6),
        ops.AutoContrast(p=0.7),
        ops.Equalize(p=0.8),
        ops.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2)),
    )
    assert found.exact[:2] == ("RandomResizedCrop", "RandomHorizontalFlip")
    assert str(found).startswith("exactly: RandomResizedCrop, RandomHorizontalFlip")


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        (0.5, 0.25),
        ([0.5], [0.25]),
        ((0.5,), 0.25),
        (torch.tensor(0.5), torch.tensor([0.25])),
        (torch.full((3,), 0.5), np.full(3, 0.25)),
        ([torch.tensor(0.5)] * 3, np.float32(0.25)),
    ],
)
def test_one_number_normalises_all_channels(mean: Any, std: Any) -> None:
    found = importers.from_torchvision(compose(CROP, TO_TENSOR, make("Normalize", mean=mean, std=std)))
    assert found.recipe.ops[-1] == ops.Normalize(mean=(0.5,) * 3, std=(0.25,) * 3)
    assert "Normalize" in found.exact


@pytest.mark.parametrize("mean", [(0.5, 0.5), "half", None])
def test_numbers_of_normalize_that_do_not_fit_are_named_with_the_rule(mean: Any) -> None:
    with pytest.raises(
        ValueError, match=r"\n  Normalize: mean=.* must be three finite numbers in 0..1, for R, G and B, or one"
    ) as told:
        importers.from_torchvision(compose(CROP, make("Normalize", mean=mean, std=(1, 1, 1))))
    assert "float()" not in str(told.value)


def test_evaluation() -> None:
    found = importers.from_torchvision(
        compose(make("Resize", size=256, interpolation=Mode.BILINEAR), make("CenterCrop", size=(224, 224)), TO_TENSOR)
    )
    assert found.recipe.ops == (
        ops.ResizeShortest(size=256),
        ops.CenterCrop(size=(224, 224)),
        ops.Normalize(mean=(0, 0, 0), std=(1, 1, 1)),  # ToTensor's 0..1
    )
    assert importers.from_torchvision(compose(CROP, make("PILToTensor"))).recipe.ops == found_crop()


def found_crop() -> tuple[ops.Op, ...]:
    return (ops.RandomResizedCrop(size=(96, 96), scale=(0.2, 1.0), ratio=(0.75, 1.5)),)


def random_crop(size: tuple[int, int], **fields: Any) -> Any:
    given = {"padding": None, "pad_if_needed": False, "fill": 0, "padding_mode": "constant", **fields}
    return make("RandomCrop", size=size, **given)


def test_crops_resizes_and_paddings_are_a_chain() -> None:
    for transforms, expected in (
        ([random_crop((32, 32), padding=4)], (ops.RandomCrop(size=(32, 32), padding=4),)),
        (
            [make("Resize", size=256), random_crop((224, 224))],
            (ops.ResizeShortest(size=256), ops.RandomCrop(size=(224, 224))),
        ),
        ([make("Resize", size=[30, 40], interpolation=2)], (ops.Resize(size=(30, 40)),)),
        ([make("Resize", size=(300,), max_size=500)], (ops.ResizeShortest(size=300, max_size=500),)),
        ([make("Resize", size=None, max_size=500)], (ops.ResizeLongest(size=500, rounding="down"),)),
        (
            [random_crop((32, 40), padding=[1, 2, 3, 4], padding_mode="edge", pad_if_needed=True)],
            (ops.Pad(px=(1, 2, 3, 4), border="edge"), ops.RandomCrop(size=(32, 40), pad_if_needed=True, border="edge")),
        ),
        (
            [
                make("Resize", size=12),
                make("Pad", padding=(4, 5), fill=9, padding_mode="constant"),
                make("CenterCrop", size=(8, 8)),
            ],
            (ops.ResizeShortest(size=12), ops.Pad(px=(4, 5), fill=9), ops.CenterCrop(size=(8, 8))),
        ),
        ([make("Pad", padding=(4, 5), fill=0, padding_mode="symmetric")], (ops.Pad(px=(4, 5), border="reflect"),)),
        ([make("Pad", padding=[3], fill=7, padding_mode="constant")], (ops.Pad(px=3, fill=7),)),
        (
            [random_crop((32, 32), padding=4, padding_mode="reflect")],
            (ops.RandomCrop(size=(32, 32), padding=4, border="reflect_101"),),
        ),
    ):
        found = importers.from_torchvision(compose(*transforms))
        assert (found.recipe.ops, found.notes) == (expected, ())


def test_a_drawn_resize_stands_before_a_crop() -> None:
    """The largest size itself is never drawn there, and a target has its width first."""
    resize = make("RandomResize", min_size=260, max_size=1040, interpolation=Mode.BILINEAR, antialias=True)
    jitter = make("ScaleJitter", target_size=(512, 640), scale_range=(0.1, 2.0), interpolation=Mode.BILINEAR)
    crop = random_crop((480, 480), pad_if_needed=True)
    for one, expected in (
        (resize, ops.RandomResize(size=(260, 1039))),
        (jitter, ops.RandomResize(factor=(0.1, 2.0), within=(640, 512))),
    ):
        found = importers.from_torchvision(compose(one, crop))
        assert found.recipe.ops == (expected, ops.RandomCrop(size=(480, 480), pad_if_needed=True))
        of_any_size = importers.from_torchvision(compose(one, make("RandomHorizontalFlip", p=0.5)))
        assert of_any_size.recipe.ops == (expected, ops.Flip())
        with pytest.raises(
            ValueError, match=f"{type(one).__name__}: leaves each image at its own size; put RandomCrop"
        ):
            importers.from_torchvision(compose(crop, one))
        left_out = importers.from_torchvision(compose(crop, one), strict=False)
        assert left_out.recipe.ops == (ops.RandomCrop(size=(480, 480), pad_if_needed=True),)
        assert [row.verdict for row in left_out.rows][1:] == ["left out"]


def test_an_elastic_transform_counts_half_the_side_as_one() -> None:
    one = make("ElasticTransform", alpha=[50.0, 50.0], sigma=[5.0, 5.0], interpolation=Mode.BILINEAR, fill=[3.0])
    found = importers.from_torchvision(compose(one))
    assert found.recipe.ops == (ops.ElasticTransform(alpha=25.0, sigma=5.0, p=1.0),)
    assert (found.recipe.border, found.recipe.fill) == ("constant", (3.0, 3.0, 3.0))
    one.sigma = [5.0, 6.0]
    with pytest.raises(ValueError, match="alpha and sigma that differ along x and y"):
        importers.from_torchvision(compose(one))


def test_a_zoom_out_is_a_canvas_of_the_image_s_size() -> None:
    one = make("RandomZoomOut", fill=[123.0, 117.0, 104.0], side_range=[1.0, 3.0], p=0.4)
    found = importers.from_torchvision(compose(one, make("Resize", size=300)))
    zoom_out = ops.ZoomOut(factor=(1.0, 3.0), fill=(123.0, 117.0, 104.0), p=0.4)
    assert found.recipe.ops == (zoom_out, ops.ResizeShortest(size=300))
    assert "scaled to the image's size" in found.notes[0]


@pytest.mark.parametrize("fill", ["{tv_tensors.Image: 9, tv_tensors.Mask: 3}", "{torch.Tensor: 9, 'others': 3}"])
@pytest.mark.parametrize(
    "call", ["RandomRotation(10, fill={})", "RandomCrop(64, padding=4, fill={})", "RandomZoomOut(fill={}, p=1)"]
)
def test_a_fill_for_each_type_is_that_of_images_and_told_for_masks(call: str, fill: str) -> None:
    found = importers.from_text(f"v2.Compose([v2.{call.format(fill)}])")
    (made,) = found.recipe.ops
    assert (getattr(made, "fill", None) or found.recipe.fill) == (9.0, 9.0, 9.0)
    told = f"label maps: there they show 3 ({call.partition('(')[0]}) beyond the image; here 255, or 3 by "
    assert f"{told}targets=TargetOptions(mask_fill=3)." in found.notes
    only = importers.from_text(f"v2.Compose([v2.{call.format('{tv_tensors.Mask: 255}')}])")
    assert (getattr(only.recipe.ops[0], "fill", None) or only.recipe.fill) == (0.0, 0.0, 0.0)
    assert not any(note.startswith("label maps") for note in only.notes)


def test_a_fill_of_masks_is_told_within_a_group_too() -> None:
    turned = "v2.RandomRotation(10, fill={tv_tensors.Image: 9, tv_tensors.Mask: 3})"
    for group in (f"v2.RandomApply([{turned}])", f"v2.RandomChoice([{turned}, v2.RandomHorizontalFlip()])"):
        notes = importers.from_text(f"v2.Compose([{group}])").notes
        assert any(note.startswith("label maps: there they show 3 (RandomRotation)") for note in notes), group


def test_a_mirrored_padding_of_a_padded_image_is_near() -> None:
    for mode, verdict in (("reflect", "near"), ("edge", "exact"), ("constant", "exact")):
        pad = f"v2.Pad((5, 9), padding_mode='{mode}')"
        found = importers.from_text(f"v2.Compose([{pad}, {pad}])")
        assert [row.verdict for row in found.rows] == ["exact", verdict]
    note = "Pad: its border repeats the padded image there, and here the image."
    assert note in importers.from_text("v2.Compose([v2.Pad(5, padding_mode='reflect')] * 2)").notes


def test_what_makes_three_channels_again() -> None:
    listed = make("Grayscale", num_output_channels=1), make("RGB")
    assert importers.from_torchvision(compose(*listed)).recipe.channels == 3
    assert importers.from_torchvision(compose(*reversed(listed))).recipe.channels == 1


def test_one_channel() -> None:
    found = importers.from_torchvision(
        compose(make("Grayscale", num_output_channels=1), make("Resize", size=[28, 28]), TO_TENSOR)
    )
    assert found.recipe.channels == 1 and found.notes == ()
    assert importers.from_torchvision(compose(make("Grayscale", num_output_channels=3))).recipe.channels == 3


def test_padding_and_geometry_share_a_border() -> None:
    rotation = make("RandomRotation", degrees=[0, 9], fill=0, interpolation=Mode.BILINEAR, **WHOLE)
    crop = random_crop((32, 32), padding=4, padding_mode="edge")
    found = importers.from_torchvision(compose(crop, rotation))
    turns = ops.AllOf(ops=[ops.Rotate(max_deg=(0, 9), step=None)], own_look="bilinear", own_border="constant")
    assert (found.recipe.border, found.notes) == ("edge", ()) and found.recipe.ops[1] == turns
    same = importers.from_torchvision(compose(random_crop((32, 32), padding=4), rotation))
    assert (same.recipe.border, same.notes) == ("constant", ())
    jitter = make("ColorJitter", brightness=(0.5, 1.5), contrast=None, saturation=None, hue=None)
    assert importers.from_torchvision(compose(jitter, crop)).notes == ()


def test_geometry_and_what_it_shows_beyond() -> None:
    found = importers.from_torchvision(
        compose(
            CROP,
            make(
                "RandomRotation",
                degrees=[-10, 20],
                expand=False,
                center=None,
                fill=[1, 2, 3],
                interpolation=Mode.NEAREST,
            ),
            make(
                "RandomAffine",
                degrees=[-5.0, 15.0],
                translate=(0.1, 0.2),
                scale=(0.9, 1.1),
                shear=[-3.0, 4.0],
                center=None,
                fill=0,
                interpolation=Mode.BILINEAR,
            ),
        )
    )
    affine = (
        ops.Zoom(factor=(0.9, 1.1)),
        ops.Shear(horizontal_deg=(-3, 4), vertical_deg=(0, 0)),
        ops.Rotate(max_deg=(-15, 5), step=None),  # clockwise there
        ops.Translate(horizontal=(-0.1, 0.1), vertical=(-0.2, 0.2), whole_px="nearest"),
    )
    assert found.recipe.ops[1:] == (
        ops.AllOf(ops=[ops.Rotate(max_deg=(-10, 20), step=None)], own_look="nearest"),
        ops.AllOf(ops=affine, own_look="bilinear", own_border="constant"),
    )
    assert (found.recipe.border, found.recipe.fill) == ("constant", (1, 2, 3))
    assert [note.split(":")[0] for note in found.notes] == ["RandomAffine"]


ROTATION = make("RandomRotation", degrees=[-9, 9], fill=0, interpolation=Mode.NEAREST, **WHOLE)
SHIFT = make(
    "RandomAffine",
    degrees=[0.0, 0.0],
    translate=(0.1, 0.2),
    scale=None,
    shear=None,
    center=None,
    fill=0,
    interpolation=Mode.BILINEAR,
)
FLIP, SMALLER, SAME = (
    make("RandomHorizontalFlip", p=0.5),
    *(make("Resize", size=[side, side], interpolation=Mode.BILINEAR, antialias=True) for side in (80, 96)),
)


def test_what_was_resized_is_turned_in_whole_pixels() -> None:
    """As there: a rotation shows the nearest pixel of the resized image, unless it is asked for more."""
    turn = ops.AllOf(ops=[ops.Rotate(max_deg=(-9, 9), step=None)], own_look="nearest")
    found = importers.from_torchvision(compose(CROP, FLIP, ROTATION, make("CenterCrop", size=[80, 80])))
    crop, flip, *turned = found.recipe.ops
    assert (crop.op, flip.op) == ("random_resized_crop", "flip")
    assert turned == [turn, ops.CenterCrop(size=(80, 80))]
    assert found.notes == () and [row.verdict for row in found.rows] == ["exact"] * 4
    assert importers.from_torchvision(compose(CROP, ROTATION, SAME)).recipe.ops[1] == turn
    perhaps = importers.from_torchvision(compose(CROP, make("RandomApply", transforms=[ROTATION], p=0.5)))
    assert perhaps.recipe.ops[1:] == (turn.model_copy(update={"p": 0.5}),) and perhaps.notes == ()


@pytest.mark.parametrize(
    "transforms",
    [
        (CROP, ROTATION, SMALLER),
        (FLIP, ROTATION, SMALLER),
        (CROP, ROTATION, ROTATION),
        (CROP, ROTATION, make("RandomApply", transforms=[ROTATION], p=0.5)),
        (CROP, ROTATION, make("RandomApply", transforms=[SHIFT], p=0.5)),
        (CROP, make("RandomPerspective", distortion_scale=0.3, p=0.5, fill=0, interpolation=Mode.BILINEAR), ROTATION),
    ],
    ids=["resized later", "resized later alone", "turned twice", "perhaps", "moved perhaps", "projected before"],
)
def test_a_rotation_that_looks_otherwise_has_a_pass_of_its_own(transforms: tuple[Any, ...]) -> None:
    found = importers.from_torchvision(compose(*transforms))
    turned = [op for op in found.recipe.ops if isinstance(op, ops.AllOf) and op.own_look == "nearest"]
    assert {op.ops for op in turned} == {(ops.Rotate(max_deg=(-9, 9), step=None),)}
    held = [inner for one in transforms for inner in getattr(one, "transforms", ())]
    assert len(turned) == [*transforms, *held].count(ROTATION)
    assert "RandomRotation: nearest interpolation becomes bilinear." not in found.notes


def test_a_rotation_is_smooth_where_no_pass_is_left_and_says_so() -> None:
    found = importers.from_torchvision(compose(*(ROTATION, SMALLER, ROTATION) * 2, SMALLER))
    assert found.recipe.num_passes == 4
    assert "RandomRotation: nearest interpolation becomes bilinear." in found.notes


def test_groups_and_policies() -> None:
    jitter = make("ColorJitter", brightness=(0.6, 1.4), contrast=(0.5, 1.5), saturation=None, hue=(-0.1, 0.1))
    found = importers.from_torchvision(
        compose(
            CROP,
            make("RandomApply", transforms=[jitter], p=0.8),
            make(
                "RandomChoice", transforms=[make("RandomInvert", p=1.0), make("RandomEqualize", p=1.0)], p=[0.25, 0.75]
            ),
            make("TrivialAugmentWide", num_magnitude_bins=31, fill=None, interpolation=Mode.NEAREST),
            make("RandAugment", num_ops=3, magnitude=5, num_magnitude_bins=11, fill=None, interpolation=Mode.BILINEAR),
            make("AutoAugment", policy=Policy.CIFAR10, fill=None, interpolation=Mode.BILINEAR),
        )
    )
    apply, choice, *rest = found.recipe.ops[1:]
    assert apply == ops.AllOf(
        ops=(ops.ColorJitter(brightness=(0.6, 1.4), contrast=(0.5, 1.5), hue=(-0.1, 0.1), about="mean", space="hsv"),),
        p=0.8,
    )
    assert choice == ops.OneOf(ops=(ops.Invert(p=1), ops.Equalize(p=1)), weights=(0.25, 0.75))
    ours = (*policies.trivial_augment_wide(), *policies.rand_augment(3, 5, 11), *policies.auto_augment("cifar10"))
    by_any_part, by_whole_pixels = (str([op.model_dump() for op in made]) for made in (ours, rest))
    assert by_any_part.count("'whole_px': 'no'") == by_whole_pixels.count("'whole_px': 'towards_zero'") > 10
    assert by_whole_pixels == by_any_part.replace("'whole_px': 'no'", "'whole_px': 'towards_zero'")
    assert "ColorJitter" in found.exact
    assert "TrivialAugmentWide: nearest interpolation becomes bilinear." in found.notes


def test_a_policy_in_a_group_is_a_part_of_its_look() -> None:
    policy = make("RandAugment", num_ops=1, magnitude=9, num_magnitude_bins=31, interpolation=Mode.BILINEAR, fill=0)
    alone = importers.from_torchvision(compose(policy, make("ToTensor"))).recipe.ops[0]
    assert isinstance(alone, ops.OneOf) and alone.own_look == "bilinear"
    held = make("RandomApply", transforms=[policy], p=0.5)
    found = importers.from_torchvision(compose(held, make("ToTensor")))
    group = found.recipe.ops[0]
    assert isinstance(group, ops.AllOf) and group.p == 0.5 and "RandAugment: geometry acts before tone." in found.notes
    assert not any(getattr(op, "own_look", None) for op in group.flat)


def test_what_changes_nothing_may_be_chosen() -> None:
    one = make("RandomChoice", transforms=[make("Identity"), make("RandomHorizontalFlip", p=1.0)], p=[0.3, 0.7])
    (choice,) = importers.from_torchvision(compose(one)).recipe.ops
    assert choice == ops.OneOf(ops=[ops.Identity(), ops.Flip(p=1.0)], weights=(0.3, 0.7))


def test_the_first_resize_says_how_the_recipe_looks_between_pixels() -> None:
    rotation = make("RandomRotation", degrees=[0, 9], fill=0, interpolation=Mode.NEAREST, **WHOLE)
    assert importers.from_torchvision(compose(rotation)).recipe.interpolation == "nearest"
    resize = make("Resize", size=[28, 28], interpolation=Mode.BICUBIC, antialias=False)
    found = importers.from_torchvision(compose(make("RandomApply", transforms=[rotation], p=0.5), resize))
    assert (found.recipe.interpolation, found.recipe.antialias) == ("bicubic", False)
    assert getattr(found.recipe.ops[0], "own_look", None) == "nearest"  # for it alone
    assert found.rows[-1].verdict == "not measured"  # antialias=False is of tensors alone
    shrunk = make("Resize", size=[20, 20], interpolation=Mode.BICUBIC, antialias=True)
    assert "Resize: shrinking does not average." in importers.from_torchvision(compose(resize, shrunk)).notes


def test_all_that_cannot_be_mapped_is_listed() -> None:
    with pytest.raises(ValueError, match="transforms cannot be imported") as caught:
        importers.from_torchvision(
            compose(
                make("Lambda"),
                make("RandomRotation", degrees=[0, 1], expand=True, center=None),
                make("RandomApply", transforms=[make("AugMix")], p=1.0),
                CROP,
                NORMALIZE,
                make("RandomInvert", p=1.0),
            )
        )
    message = str(caught.value)
    for problem in (
        "4 of torchvision's",
        "Lambda: calls a function",
        "RandomRotation: expand",
        "AugMix: is not known",
        "Normalize: stands before RandomInvert, and is the last step here; put it behind them",
    ):
        assert problem in message, problem


def test_an_op_before_the_crop_acts_before_it() -> None:
    erasing = make("RandomErasing", p=0.3, scale=(0.1, 0.2), ratio=(0.5, 2.0), value=0)
    found = importers.from_torchvision(compose(erasing, CROP))
    assert found.notes == () and found.recipe.num_passes == 2
    rotation = make("RandomRotation", degrees=[0, 9], fill=0, interpolation=Mode.BILINEAR, **WHOLE)
    for one in (make("RandomHorizontalFlip", p=0.5), make("RandomGrayscale", p=0.5), rotation):
        found = importers.from_torchvision(compose(one, CROP))
        both = "RandomRotation, RandomResizedCrop"
        told = f"{both}: one look-up here, less blurred than by torchvision, which interpolates each time."
        assert found.notes == ((told,) if one is rotation else ()) and found.recipe.num_passes == 1


def test_a_rotation_that_expands_before_a_resize_fits_the_frame() -> None:
    turned = "T.Compose([T.RandomRotation(20, InterpolationMode.BILINEAR, True), T.Resize({}), T.CenterCrop(40)])"
    rotation, resize, _ = importers.from_text(turned.format("(48, 64)")).recipe.ops
    assert rotation == ops.Rotate(max_deg=(-20.0, 20.0), step=None, fit_frame="up")
    assert resize == ops.Resize(size=(48, 64))
    with pytest.raises(ValueError, match=r"without a Resize\(\(height, width\)\) next, and is not mapped"):
        importers.from_text(turned.format("48"))


@pytest.mark.parametrize("side_px", [120, 161])
def test_a_frame_that_expands_shows_all_of_what_is_turned(side_px: int) -> None:
    """Pillow's rotation, whose frame is stretched to one size."""
    image = np.random.default_rng(0).integers(0, 256, (12, 16, 3)).astype(np.uint8).repeat(12, 0).repeat(12, 1)
    turned = Image.fromarray(image).rotate(25, expand=True, resample=Image.Resampling.BILINEAR)
    theirs = np.asarray(turned.resize((side_px, 90), Image.Resampling.BILINEAR), np.float64)
    rotation = "T.RandomRotation((25, 25), expand=True, interpolation=InterpolationMode.BILINEAR)"
    recipe = importers.from_text(f"T.Compose([{rotation}, T.Resize((90, {side_px}))])").recipe
    made = Augment(recipe, layout="NHWC", framework="numpy", dtype="uint8")(image)
    assert np.abs(made - theirs).mean() < 4.0  # where a frame that does not expand differs by 80


def test_what_masks_show_beyond_the_image_is_told_of_version_2() -> None:
    turned = "{0}.Compose([{0}.RandomRotation(20{1}), {0}.TrivialAugmentWide()])"
    told = "label maps: there they show 9 (RandomRotation) beyond the image; here 255, or 9 by targets=TargetOptions("
    (note,) = importers.from_text(turned.format("v2", ", fill=9")).notes
    assert note == f"{told}mask_fill=9)."
    assert importers.from_text(turned.format("v2", ", fill=[1, 2, 3]")).notes == ()  # which masks refuse
    assert importers.from_text(turned.format("T", ", fill=9")).notes == ()  # which changes no masks


def test_a_blur_before_geometry_acts_before_it() -> None:
    blur = make("GaussianBlur", kernel_size=(5, 5), sigma=(1.0, 2.0))
    perspective = make("RandomPerspective", distortion_scale=0.3, p=0.5, fill=0, interpolation=Mode.BILINEAR)
    found = importers.from_torchvision(compose(CROP, blur, perspective))
    behind = importers.from_torchvision(compose(CROP, perspective, blur))
    assert (found.recipe.num_passes, behind.recipe.num_passes) == (2, 1)
    assert not any("gaussian_blur" in note for note in found.notes + behind.notes)


def test_more_passes_than_a_view_takes_are_one_with_what_differs() -> None:
    erasing = make("RandomErasing", p=0.3, scale=(0.1, 0.2), ratio=(0.5, 2.0), value=0)
    rotation = make("RandomRotation", degrees=[0, 9], fill=0, interpolation=Mode.BILINEAR, **WHOLE)
    found = importers.from_torchvision(compose(CROP, *(one for _ in range(4) for one in (erasing, rotation))))
    assert found.recipe.num_passes == 1 and "RandomErasing" not in found.exact
    brings_back = "pixels that an earlier map moved out of the image are seen again, where there its border is."
    assert found.notes[:2] == (
        f"RandomRotation: {brings_back}",
        "RandomErasing: stands before RandomRotation, and acts after it here.",
    )


def test_differences_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    blur = compose(CROP, make("GaussianBlur", kernel_size=(3, 7), sigma=(0.1, 1.875)))
    with caplog.at_level(logging.WARNING, logger="augpipe"):
        assert Recipe.from_torchvision(blur) == Recipe.from_torchvision(blur)
    (record,) = caplog.records
    assert "GaussianBlur: kernel_size=[3, 7] becomes 7 both ways." in record.getMessage()


@pytest.mark.parametrize("version", ["torchvision.transforms", "torchvision.transforms.v2"])
def test_the_real_ones(version: str) -> None:
    module = pytest.importorskip(version)
    found = importers.from_torchvision(
        module.Compose(
            [
                module.RandomResizedCrop(64, scale=(0.3, 1.0)),
                module.RandomHorizontalFlip(0.4),
                module.RandomRotation(7),
                module.RandomAffine(5, translate=(0.1, 0.2), scale=(0.9, 1.1), shear=3),
                module.RandomApply([module.ColorJitter(0.4, 0.3, 0.2)], p=0.8),
                module.RandomChoice([module.RandomGrayscale(1.0), module.GaussianBlur(3, (0.5, 1.0))]),
                module.TrivialAugmentWide(),
                module.RandAugment(),
                module.AutoAugment(),
                module.RandomPerspective(0.3),
                module.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )
    )
    assert found.recipe.ops[:3] == (
        ops.RandomResizedCrop(size=(64, 64), scale=(0.3, 1.0)),
        ops.Flip(p=0.4),
        ops.AllOf(ops=[ops.Rotate(max_deg=(-7, 7), step=None)], own_look="nearest"),
    )
    affine = found.recipe.ops[3]
    assert isinstance(affine, ops.AllOf) and affine.own_look == "nearest"
    assert affine.ops[1] == ops.Shear(horizontal_deg=(-3, 3), vertical_deg=(0, 0))
    jitter = ops.ColorJitter(
        brightness=(0.6, 1.4), contrast=(0.7, 1.3), saturation=(0.8, 1.2), about="mean", space="hsv"
    )
    assert found.recipe.ops[4] == ops.AllOf(ops=(jitter,), p=0.8)
    assert found.recipe.ops[5] == ops.OneOf(
        ops=(ops.Grayscale(p=1), ops.GaussianBlur(sigma_px=(0.5, 1), kernel_px=3, p=1))
    )
    assert found.recipe.ops[-2] == ops.Perspective(distortion=0.3, corners="whole_px", p=0.5)
    assert found.recipe.ops[-1] == ops.Normalize(mean=(0.5,) * 3, std=(0.25,) * 3)
    assert "AutoAugment: geometry acts before tone." in found.notes  # five passes would be too many


def test_erasing() -> None:
    for normalised, value, fill in (
        ((), 0, (0, 0, 0)),
        ((NORMALIZE,), 0, "mean"),
        ((NORMALIZE,), [0.0], "mean"),
        ((NORMALIZE,), "random", "noise"),
    ):
        erasing = make("RandomErasing", p=0.3, scale=(0.1, 0.2), ratio=(0.5, 2.0), value=value)
        found = importers.from_torchvision(compose(CROP, TO_TENSOR, *normalised, erasing))
        made: Any = next(op for op in found.recipe.ops if op.op == "erase")
        assert (made.p, made.scale, made.ratio, made.fill) == (0.3, (0.1, 0.2), (0.5, 2), fill)
        if normalised:
            assert (made.mean, made.std) == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))


def test_transforms_of_weights() -> None:
    fields = {"interpolation": Mode.BILINEAR, "antialias": True, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2]}
    resized, normalized = ops.ResizeShortest(size=80), ops.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2))
    found = importers.from_torchvision(make("ImageClassification", resize_size=[80], crop_size=[64], **fields))
    assert found.recipe.ops == (resized, ops.CenterCrop(size=(64, 64)), normalized)
    assert found.exact == ("Resize", "CenterCrop", "Normalize")
    whole = make("SemanticSegmentation", resize_size=None, **fields)
    assert importers.from_torchvision(whole).recipe.ops == (normalized,)


@pytest.mark.parametrize("call", ["GaussianNoise(0.0, 0.1)", "RandomSolarize(128)", "ColorJitter(0.2)"])
def test_floats_of_levels_are_refused_where_they_are_taken_for_0_to_1(call: str) -> None:
    chain = f"v2.Compose([v2.Resize(64), v2.ToImage(), v2.ToDtype(torch.float32{{}}), v2.{call}])"
    with pytest.raises(ValueError, match=r"takes floats for 0\.\.1, and they are 0\.\.255 there"):
        importers.from_text(chain.format(""))
    importers.from_text(chain.format(", scale=True"))


@pytest.mark.parametrize("call", ["ToPILImage()", "ToDtype(torch.uint8, scale=True)"])
def test_bytes_of_normalised_numbers_are_refused(call: str) -> None:
    """They wrap: of Normalize([0.5], [0.5]), black becomes 1, and all below the middle something light."""
    normalize = "v2.Normalize([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])"
    with pytest.raises(ValueError, match="behind Normalize makes bytes of numbers outside 0..1, which wrap"):
        importers.from_text(
            f"v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), {normalize}, v2.{call}])"
        )
    importers.from_text(
        f"v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.{call}, v2.ToTensor(), {normalize}])"
    )


@pytest.mark.parametrize("first", ["", "T.RandomRotation((20, 20)), "])
def test_a_map_that_shrinks_looks_alone_before_a_resize(first: str) -> None:
    """By 0.1 levels in the mean as in torchvision, where a resize by nearest pixels is by up to 20."""
    found = importers.from_text(f"T.Compose([{first}T.RandomAffine(0, scale=(0.8, 0.9)), T.Resize((64, 80))])")
    assert found.recipe.interpolation == "bilinear" and found.recipe.antialias
    assert "Resize" in found.exact and "RandomAffine" in found.exact
    assert [op.own_look for op in found.recipe.ops if isinstance(op, ops.AllOf)][-1] == "nearest"


def test_a_centre_crop_of_images_that_may_be_smaller_is_noted() -> None:
    for before in ("T.Resize(64)", "T.Resize((64, 70))", "T.RandomResizedCrop(64)"):
        assert importers.from_text(f"T.Compose([{before}, T.CenterCrop((64, 50))])").notes == ()
    for before in ("T.Resize(60)", "T.Resize(64, max_size=70)", "T.Resize((50, 70))", "T.RandomHorizontalFlip()"):
        found = importers.from_text(f"T.Compose([{before}, T.CenterCrop((64, 50))])")
        (note,) = (note for note in found.notes if "CenterCrop" in note)
        assert (
            "smaller than 64x50 is refused, where there it is padded with black; Pad(size=(64, 50)) before it" in note
        )


def test_a_chain_that_holds_some_of_timms_transforms_is_torchvisions() -> None:
    of_timm = type("RandomHorizontalFlip", (), {"__module__": "timm.data.transforms", "p": 0.3})()
    found = importers.from_torchvision(compose(CROP, of_timm, make("Lambda")), strict=False)
    assert [op.op for op in found.recipe.ops] == ["random_resized_crop", "flip"]
    with pytest.raises(ValueError, match="1 of torchvision's transforms cannot be imported"):
        importers.from_torchvision(compose(of_timm, make("Lambda")))


def test_a_list_of_transforms_is_a_chain() -> None:
    for listed in ([CROP, NORMALIZE], (CROP, NORMALIZE)):
        assert importers.from_torchvision(listed).recipe == importers.from_torchvision(compose(*listed)).recipe
    one = type("Flip", (), {"__module__": "kornia.augmentation"})()
    with pytest.raises(ValueError, match=r"a Flip of kornia is given\. Write Recipe\.from_kornia\(transform\)\."):
        importers.from_torchvision([CROP, one])
    with pytest.raises(ValueError, match=r"a list is given\. Wrap it: K\.AugmentationSequential\(\*transforms\)\."):
        importers.from_kornia([one])
    with pytest.raises(ValueError, match=r"a tuple is given\. Wrap it: A\.Compose\(transforms\)\."):
        importers.from_albumentations((object(),))


def iou_crop(share: list[float], **fields: Any) -> ops.Op:
    keep = ops.KeepObjects(rule="iou", share=share, tries=40, redraws=40, fallback="whole")
    made = {"scale": (0.3**2, 1.0), "ratio": (0.5, 2.0)} | fields
    return ops.RandomResizedCrop.model_validate({"own_size": True, "keep_objects": keep, **made})


def test_a_crop_by_overlap_is_one_that_keeps_objects() -> None:
    shares = [0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]  # at 0 an object is seen there, too
    for text, expected in (
        ("v2.RandomIoUCrop()", iou_crop(shares)),
        (
            "v2.RandomIoUCrop(0.5, 0.9, 0.8, 1.25, [0.5, 2.0])",
            iou_crop([0.5, 1.0], scale=(0.25, 0.81), ratio=(0.8, 1.25)),
        ),
        ("v2.RandomApply([v2.RandomIoUCrop(sampler_options=[0.5, 0.7])], p=0.8)", iou_crop([0.5, 0.7] * 4 + [1.0] * 2)),
    ):
        found = importers.from_text(f"v2.Compose([{text}, v2.RandomHorizontalFlip(), v2.Resize((64, 64))])")
        assert found.recipe.ops == (expected, ops.Flip(), ops.Resize(size=(64, 64)))
        assert found.rows[0].verdict == "near" and "resized to the image's size" in found.rows[0].note
    given: dict[str, Any] = {"min_scale": 0.3, "max_scale": 1, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2}
    given |= {"options": [0.5], "trials": 40, "p": 0.5}  # as detectors write their own
    assert importers.from_torchvision(type("RandomIoUCrop", (), given)()).recipe.ops == (iou_crop([0.5, 1.0]),)


def test_what_keeps_a_frame_s_size_tells_no_other_one() -> None:
    for step in ("v2.RandomIoUCrop()", "v2.RandomZoomOut()"):
        for before, is_noted in (("", True), ("v2.Resize((256, 256)), ", False)):
            notes = importers.from_text(f"v2.Compose([{before}{step}, v2.CenterCrop(200)])").notes
            assert any(note.startswith("CenterCrop: an image smaller than") for note in notes) is is_noted


def test_a_short_side_of_several_is_a_choice_of_resizes() -> None:
    sizes = "min_size=(64, 80, 96), max_size=150"
    (made,) = importers.from_text(f"v2.Compose([v2.RandomShortestSize({sizes})])").recipe.ops
    assert made == ops.OneCrop(chains=[[ops.ResizeShortest(size=size, max_size=150)] for size in (64, 80, 96)])
    found = importers.from_text("v2.Compose([v2.RandomShortestSize(64), v2.RandomCrop(48)])")
    assert found.recipe.ops == (ops.ResizeShortest(size=64), ops.RandomCrop(size=(48, 48)))
    with pytest.raises(ValueError, match="RandomShortestSize: leaves each image at its own size; put RandomCrop"):
        importers.from_text(f"v2.Compose([v2.RandomCrop(48), v2.RandomShortestSize({sizes})])")


DISTORTED, ZOOMED, ENDED = (
    "v2.RandomPhotometricDistort()",
    "v2.RandomZoomOut(fill=(123.0, 117.0, 104.0))",
    "v2.RandomHorizontalFlip(p=0.5), v2.ToDtype(torch.float, scale=True), v2.ConvertBoundingBoxFormat("
    "tv_tensors.BoundingBoxFormat.XYXY), v2.SanitizeBoundingBoxes(), v2.ToPureTensor()",
)


@pytest.mark.parametrize(
    ("preset", "steps"),
    [
        ("hflip", ""),
        (
            "lsj",
            "v2.ScaleJitter((1024, 1024)), v2.RandomCrop((1024, 1024), pad_if_needed=True, fill=(123.0, 117.0, 104)),",
        ),
        (
            "multiscale",
            "v2.RandomShortestSize((480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800), max_size=1333),",
        ),
        ("ssd", f"{DISTORTED}, {ZOOMED}, v2.RandomIoUCrop(),"),
        ("ssdlite", "v2.RandomIoUCrop(),"),
    ],
)
def test_the_presets_of_torchvisions_detection_are_imported(preset: str, steps: str) -> None:
    found = importers.from_text(f"v2.Compose([v2.PILToTensor(), {steps} {ENDED}])")
    assert not [row for row in found.rows if row.verdict == "left out"], preset
    assert (
        "boxes: ConvertBoundingBoxFormat changes nothing here: they are returned in the format that is given."
        in found.notes
    )


def test_a_class_of_ones_own_is_not_taken_for_the_librarys_without_a_word() -> None:
    own = type("RandomInvert", (), {"__module__": "train.own", "p": 1.0})()
    for chain in ([CROP, own], [CROP, make("RandomApply", transforms=[own], p=0.5)]):
        found = importers.from_torchvision(compose(*chain))
        told = "is a class of train.own, taken for that of torchvision by its name; what it does otherwise is left out."
        assert f"RandomInvert: {told}" in found.notes and found.rows[-1].verdict == "near"
    assert importers.from_torchvision(compose(CROP, INVERT)).rows[-1].verdict == "exact"


def test_a_class_of_ones_own_with_other_arguments_is_told_as_such() -> None:
    own = type("GaussianBlur", (), {"__module__": "moco.loader", "sigma": [0.1, 2.0]})()  # as MoCo's and DINO's
    told = "GaussianBlur: is a class of moco.loader, not torchvision's, and has no attribute 'kernel_size'"
    with pytest.raises(ValueError, match=f"(?m)^  {told}$"):
        importers.from_torchvision(compose(CROP, own))


def test_the_nearest_pixel_has_two_names() -> None:
    texts = [f"T.Resize((64, 48), interpolation=InterpolationMode.{name})" for name in ("NEAREST", "NEAREST_EXACT")]
    plain, exactly = (importers.from_text(text) for text in texts)
    assert plain.recipe == exactly.recipe and exactly.recipe.interpolation == "nearest" and plain.notes == exactly.notes
    one = make("Resize", size=(64, 48), antialias=True, interpolation=make("Mode", value="nearest-exact"))
    assert importers.from_torchvision(one).recipe == plain.recipe
