"""Transforms that few published recipes hold: what they become, and what is told of them."""

from typing import Literal

import numpy as np
import pytest

from augpipe import Augment, Recipe, importers, ops

MEAN, STD = (0.5, 0.4, 0.3), (0.3, 0.2, 0.25)
NORMALIZE = f"A.Normalize(mean={MEAN}, std={STD})"


def test_brightness_and_contrast_behind_a_normalize_change_its_numbers_and_keep_them_within_0_and_1() -> None:
    later = "A.RandomContrast((-0.2, -0.2), p=1), A.RandomBrightness((0.3, 0.3), p=1), A.HorizontalFlip(p=1)"
    found = importers.from_text(f"A.Compose([{NORMALIZE}, {later}])", version="1")
    assert [op.op for op in found.recipe.ops] == ["brightness_contrast", "brightness_contrast", "flip", "normalize"]
    image = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    shown = Augment(found.recipe, framework="numpy", layout="NHWC")(image)
    numbers = (image[:, ::-1] / 255 - MEAN) / STD
    expected = np.clip(np.clip(0.8 * numbers, 0, 1) + 0.3, 0, 1)
    assert np.ptp(numbers) > 3.0
    np.testing.assert_allclose(shown, expected, atol=1e-4)


def test_a_jitter_behind_a_normalize_is_near_and_says_why() -> None:
    text = "T.Compose([T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.3, 0.2, 0.25)), T.ColorJitter(0.4, hue=0.1)])"
    row = importers.from_text(text).rows[-1]
    assert row.ops[0].of_normalized == (MEAN, STD)
    assert row.verdict == "near" and row.note.startswith("numbers that are normalised are kept within 0..1 before")
    levels = importers.from_text("T.Compose([T.ToTensor(), T.ColorJitter(0.4, hue=0.1), T.Normalize(0.5, 0.5)])")
    assert levels.recipe.ops[0].of_normalized is None


@pytest.mark.parametrize("mean", [0.0, 0.5])  # 0 is the level 0, and with 0.5 1 is the level 255
def test_numbers_may_be_of_all_levels(mean: float) -> None:
    row = importers.from_text(f"T.Compose([T.ToTensor(), T.Normalize({mean}, 0.5), T.ColorJitter(0.4)])").rows[-1]
    assert row.ops[0].of_normalized == ((mean,) * 3, (0.5,) * 3)


@pytest.mark.parametrize(("mean", "std"), [((-0.1,) * 3, (0.5,) * 3), ((0.7,) * 3, (0.5,) * 3)])
def test_numbers_of_no_level_are_refused(mean: object, std: object) -> None:
    with pytest.raises(ValueError, match="RandomBrightness: stands behind Normalize, and keeps numbers within 0..1"):
        importers.from_text(f"A.Compose([A.Normalize(mean={mean}, std={std}), A.RandomBrightness()])")


def test_what_keeps_numbers_within_a_part_of_the_levels_does_not_commute_with_a_look_up() -> None:
    made = [ops.BrightnessContrast(p=1.0, of_normalized=(MEAN, STD)), ops.Rotate(p=1.0)]
    assert Recipe(ops=made).num_passes == 2 and Recipe(ops=[ops.BrightnessContrast(), made[1]]).num_passes == 1


def test_timms_erasing_among_torchvisions_transforms() -> None:
    head = "T.ToTensor(), T.Normalize([0.5, 0.4, 0.3], [0.3, 0.2, 0.25])"
    text = "T.Compose([{}, timm.data.random_erasing.RandomErasing(0.4, mode='pixel', {})])"
    (_, erased) = importers.from_text(text.format(head, "device='cpu'")).recipe.ops
    assert erased.ratio == pytest.approx((0.3, 1 / 0.3))
    expected = ops.Erase(p=0.4, scale=(0.02, 1 / 3), ratio=erased.ratio, fill="noise", mean=MEAN, std=STD)
    assert erased == expected
    (_, several) = importers.from_text(text.format(head, "max_count=3")).recipe.ops
    assert isinstance(several, ops.OneOf) and several.p == 0.4
    assert [len(choice.flat) for choice in several.ops] == [1, 2, 3]
    assert {op.scale for op in several.ops[2].flat} == {(0.02 / 3, 1 / 9)}
    for given, told in (("num_splits=2", "num_splits=2"), ("min_count=9", "9 to 9 rectangles")):
        with pytest.raises(ValueError, match=told):
            importers.from_text(text.format(head, given))
    with pytest.raises(ValueError, match="put one before it"):
        importers.from_text(text.format("T.ToTensor()", "device='cpu'"))
    several = importers.from_timm(re_prob=0.3, re_mode="pixel", re_count=2).recipe.ops[-1]
    assert isinstance(several, ops.OneOf) and [len(choice.flat) for choice in several.ops] == [1, 2]


def test_rows_tell_what_acts_late_behind_a_normalize_too() -> None:
    steps = "A.RandomBrightnessContrast(p=1), A.Rotate(p=1), " * 6
    rows = importers.from_text(f"A.Compose([{NORMALIZE}, {steps}])", version="1").rows
    told = [row.note for row in rows if row.name == "RandomBrightnessContrast"]
    assert told == ["stands before Rotate, and acts after it here."] * 6


def test_a_second_bend_takes_a_pass_of_its_own() -> None:
    bends = "A.ElasticTransform(p=0.2), A.GridDistortion(p=0.2)"
    found = importers.from_text(f"A.Compose([A.Resize(64, 64), {bends}, A.Normalize()])", version="2")
    passes = [[key for key, _ in own] for own in found.recipe.passes[0]]
    assert passes == [["resize", "elastic_transform"], ["all_of", "normalize"]]
    with pytest.raises(ValueError, match="elastic_transform and grid_distortion may both act on one"):
        Recipe(ops=[ops.ElasticTransform(), ops.AllOf(ops=[ops.GridDistortion()])])
    many = ", ".join(["A.GridDistortion()"] * 9)
    with pytest.raises(ValueError, match="may both act on one"):
        importers.from_text(f"A.Compose([{many}])", version="2")


def test_a_perspective_that_shows_a_part() -> None:
    for version, limit in (("1", "it is 1;"), ("2", "counted from 0 again")):
        (row,) = importers.from_text("A.Compose([A.Perspective(scale=0.08, p=0.3)])", version=version).rows
        assert row.ops == (ops.Perspective(inner_std=(0.0, 0.08), p=0.3),)
        assert row.verdict == "near" and limit in row.note
        assert ("shows only the upper left" in row.note) == (version == "2")
        for given in ("keep_size=False", "fit_output=True"):
            with pytest.raises(ValueError, match="makes frames of other sides, and is not mapped; "):
                importers.from_text(f"A.Compose([A.Perspective({given})])", version=version)


def test_what_a_perspective_shows_lies_within_the_frame() -> None:
    image = np.full((40, 60, 3), 200, np.uint8)
    recipe = Recipe(ops=[ops.Perspective(inner_std=(0.2, 0.3))], border="constant", interpolation="nearest")
    assert np.unique(Augment(recipe, framework="numpy", dtype="uint8")([image] * 9)).tolist() == [200]


def test_a_hue_of_more_than_half_a_turn_is_of_version_1() -> None:
    text = "A.Compose([A.ColorJitter(hue=0.6)])"
    assert importers.from_text(text, version="1").recipe.ops[0].hue == (-0.6, 0.6)
    with pytest.raises(ValueError, match="leaves -0.5..0.5, which version 2 refuses"):
        importers.from_text(text, version="2")
    for text in ("A.Compose([A.ColorJitter(hue=(-0.6, 0.6))])", "T.Compose([T.ColorJitter(hue=0.6)])"):
        with pytest.raises(ValueError, match=r"hue=\(-0.6, 0.6\) leaves -0.5..0.5, which .* refuses"):
            importers.from_text(text, version="1")


def test_one_factor_for_all_pixels_is_a_contrast() -> None:
    found = importers.from_text("A.Compose([A.MultiplicativeNoise(p=0.3)])")
    assert found.recipe.ops[0].contrast == pytest.approx((-0.1, 0.1)) and found.recipe.ops[0].brightness == (0.0, 0.0)
    with pytest.raises(
        ValueError, match="per_channel=True without elementwise draws a factor a channel, and is not map"
    ):
        importers.from_text("A.Compose([A.MultiplicativeNoise(per_channel=True)])")


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_factor_of_each_pixel_is_speckle(version: str) -> None:
    """Drawn evenly there, whose deviation is that of normal numbers here."""
    call = "A.Compose([A.MultiplicativeNoise(multiplier={}, elementwise=True, per_channel={}, p=0.3)])"
    found = importers.from_text(call.format((0.8, 1.2), True), version=version)
    (made,) = found.recipe.ops
    assert isinstance(made, ops.Noise) and (made.std, made.per_channel, made.p) == ((0.0, 0.0), True, 0.3)
    assert made.speckle == pytest.approx((0.4 / 12**0.5,) * 2) and found.rows[0].verdict == "near"
    (made,) = importers.from_text(call.format((0.5, 0.7), False), version=version).recipe.ops
    assert isinstance(made, ops.AllOf) and made.p == 0.3
    dimmed, speckled = made.ops
    assert dimmed.contrast == pytest.approx((-0.4, -0.4))
    assert speckled.speckle == pytest.approx((0.2 / 12**0.5 / 0.6,) * 2) and not speckled.per_channel
    importers.from_text(call.format((0, 0), False), version=version)  # of no mean
    (brightened,) = importers.from_text(call.format((1, 2), True), version=version).recipe.ops
    white = np.full((64, 64, 3), 200, np.uint8)
    always = Recipe(ops=[brightened.model_copy(update={"p": 1.0})])
    shown = np.asarray(Augment(always, dtype="uint8", layout="NHWC")(white)).mean()
    expected = np.clip(200 * np.random.default_rng(0).uniform(1, 2, 10_000), 0, 255).mean()
    assert shown == pytest.approx(expected, abs=1.5)  # and not clipped before it varies
    gray = np.full((64, 64, 3), 100, np.uint8)
    shown = np.asarray(Augment(Recipe(ops=[made.model_copy(update={"p": 1.0})]), dtype="uint8", layout="NHWC")(gray))
    assert shown.mean() == pytest.approx(60.0, abs=0.5) and shown.std() == pytest.approx(100 * 0.2 / 12**0.5, abs=0.3)


def test_colours_along_principal_components_are_near() -> None:
    (row,) = importers.from_text("A.Compose([A.FancyPCA(alpha=0.2)])", version="1").rows
    assert row.ops == (ops.Lighting(std=0.2, p=0.5),) and row.verdict == "near" and "ImageNet's" in row.note
    with pytest.raises(ValueError, match="of version 2 stretches an image"):
        importers.from_text("A.Compose([A.FancyPCA()])", version="2")


@pytest.mark.parametrize("version", ["1", "2"])
def test_sepia_and_tone_curves_are_exact(version: str) -> None:
    text = "A.Compose([A.ToSepia(p=0.2), A.ToSepia(), A.RandomToneCurve(p=0.3), A.RandomToneCurve(scale=0.2)])"
    found = importers.from_text(text, version=version)
    curves = ops.ToneCurve(scale=0.1, p=0.3), ops.ToneCurve(scale=0.2, p=0.5)
    assert found.recipe.ops == (ops.Sepia(p=0.2), ops.Sepia(p=0.5), *curves)
    assert [row.verdict for row in found.rows] == ["exact"] * 4


def test_a_tone_curve_for_each_channel_is_refused() -> None:
    assert importers.from_text("A.Compose([A.RandomToneCurve(per_channel=False)])", version="2").recipe.ops
    with pytest.raises(ValueError, match="per_channel=True bends each channel by a curve of its own, .* to False"):
        importers.from_text("A.Compose([A.RandomToneCurve(per_channel=True)])", version="2")


def test_fog_and_grain_are_near_and_say_why() -> None:
    text = "A.Compose([A.RandomFog(0.2, 0.4, alpha_coef=0.1, p=0.3), A.ISONoise(intensity=(0.2, 0.3), p=0.4)])"
    fog, grain = importers.from_text(text, version="1").rows
    assert fog.ops == (ops.Fog(density=(0.2, 0.4), alpha=0.1, p=0.3),)
    assert grain.ops == (ops.ISONoise(hue=(0.01, 0.05), intensity=(0.2, 0.3), p=0.4),)
    assert (fog.verdict, grain.verdict) == ("near", "near")
    assert "an even number of pixels" in fog.note and "whose lightness varies by 0.2" in grain.note
    with pytest.raises(ValueError, match="of version 2 draws about a thousand small discs"):
        importers.from_text("A.Compose([A.RandomFog()])", version="2")


def test_a_grid_of_holes_draws_cells_as_each_version_does() -> None:
    old, new = (importers.from_text("A.Compose([A.GridDropout()])", version=version).rows[0] for version in "12")
    assert old.ops == (ops.GridDropout(fit="square", place=(0, 0)),) and old.verdict == "exact"
    assert new.ops == (ops.GridDropout(),) and new.verdict == "near" and "draws which are the larger ones" in new.note
    with pytest.raises(ValueError, match=r"unit_size_range=\(9, 9\) leaves out its end in version 2"):
        importers.from_text("A.Compose([A.GridDropout(unit_size_range=(9, 9))])", version="2")
    with pytest.raises(ValueError, match="fill='random' is not mapped; levels are"):
        importers.from_text("A.Compose([A.GridDropout(fill='random')])", version="2")


@pytest.mark.parametrize("version", ["1", "2"])
def test_shadows_are_those_of_each_version(version: str) -> None:
    (row,) = importers.from_text("A.Compose([A.RandomShadow()])", version=version).rows
    assert row.ops == (ops.Shadow(of="lightness" if version == "1" else "levels"),) and row.verdict == "exact"
    with pytest.raises(ValueError, match=r"num=\(1, 2\) and num_corners=17 are up to 34 corners"):
        importers.from_text("A.Compose([A.RandomShadow(shadow_dimension=17)])", version=version)


def test_dropped_pixels_behind_a_normalize_have_its_numbers() -> None:
    dropped = "A.PixelDropout(0.2, drop_value={})"
    found = importers.from_text(f"A.Compose([A.Normalize((0.5,) * 3, (0.5,) * 3), {dropped.format(0)}])", version="2")
    assert found.recipe.ops[0] == ops.PixelDropout(share=(0.2, 0.2), fill=127.5)
    assert [op.op for op in found.recipe.ops] == ["pixel_dropout", "normalize"]
    with pytest.raises(ValueError, match="Normalize"):
        importers.from_text(f"A.Compose([A.Normalize(), {dropped.format(None)}])", version="2")


@pytest.mark.parametrize(("given", "is_told"), [("seed=3", True), ("seed=None", False), ("p=1.0", False)])
def test_a_seed_by_which_transforms_draw_the_same_numbers_is_told_of(given: str, is_told: bool) -> None:
    text = f"A.Compose([A.HorizontalFlip(), A.VerticalFlip()], {given})"
    told = [*importers.from_text(text, version="2").notes]
    assert told == (
        ["seed: there all transforms draw the same numbers, so two flips come together; here each draws its own."]
        if is_told
        else []
    )


def test_the_seed_of_an_object_is_told_of() -> None:
    class Compose:
        seed = 3

        def to_dict(self) -> dict[str, object]:
            flip = {"__class_fullname__": "HorizontalFlip", "p": 0.5}
            return {
                "__version__": "2.0.8",
                "transform": {"__class_fullname__": "Compose", "p": 1.0, "transforms": [flip]},
            }

    (told,) = importers.from_albumentations(Compose()).notes
    assert told.startswith("seed: ")


def test_timm_erases_as_its_empty_arguments_say() -> None:
    """No mode is "const", and no count is one rectangle."""
    plain, empty = (
        importers.from_timm(re_prob=0.3, **erased).recipe.ops[-1]
        for erased in ({"re_mode": "const", "re_count": 1}, {"re_mode": "", "re_count": None})
    )
    assert plain == empty


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ("A.Rotate(p=1), A.HorizontalFlip(), A.Resize(64, 64)", "Rotate, Resize"),
        ("A.Resize(80, 80), A.RandomCrop(64, 64), A.Normalize()", ""),
        ("A.Resize(64, 64, interpolation=0), A.Rotate(interpolation=0, p=1)", ""),
        ("A.Resize(64, 64), A.GaussianBlur(p=1), A.Affine(p=1)", ""),
    ],
)
def test_what_looks_once_here_and_twice_in_the_library_is_told(listed: str, told: str) -> None:
    """Two interpolations blur more than one, by a tenth of the finest detail: bilinear, of which the second shrinks."""
    imported = importers.from_text(f"A.Compose([{listed}])", version="2")
    assert [row.verdict for row in imported.rows if row.name in told][1:] == ["near"] * bool(told)
    found = [note for note in imported.notes if "one look-up" in note]
    assert found == (
        [f"{told}: one look-up here, less blurred than by albumentations, which interpolates each time."]
        if told
        else []
    )


@pytest.mark.parametrize(
    ("version", "call", "value"),
    [
        ("2", "CoarseDropout(fill_mask=7)", 7),
        ("1", "CoarseDropout(mask_fill_value=255)", 255),
        ("2", "GridDropout(fill_mask=0)", 0),
        ("1", "GridDropout(mask_fill_value=0)", 0),
        ("2", "PixelDropout(mask_drop_value=7.0)", 7),
        ("1", "CoarseDropout(mask_fill_value=-1)", None),
        ("2", "CoarseDropout(fill_mask=(1, 2, 3))", None),
    ],
)
def test_holes_that_fill_label_maps_are_told(version: str, call: str, value: int | None) -> None:
    notes = importers.from_text(f"A.Compose([A.{call}, A.Resize(64, 64)])", version=version).notes
    (told,) = [note for note in notes if "masks are" in note]
    by = f"filled by targets=TargetOptions(mask_holes=True, mask_fill={value}), else not: so are all holes of"
    assert ("masks are not filled." if value is None else f"masks are {by}") in told


@pytest.mark.parametrize(
    ("version", "listed", "shown"),
    [
        ("2", "A.OneOf([A.Rotate(border_mode=0, fill_mask=7)]), A.Resize(64, 64)", "7 (Rotate)"),
        ("1", "A.ShiftScaleRotate(border_mode=0, mask_value=7), A.Resize(64, 64)", "7 (ShiftScaleRotate)"),
        ("1", "A.OneOrOther(A.NoOp(), A.Rotate(border_mode=0, mask_value=7)), A.Resize(64, 64)", "7 (Rotate)"),
        ("2", "A.Rotate(border_mode=0, fill_mask=255), A.Resize(64, 64)", None),
        ("2", "A.Rotate(border_mode=0), A.Resize(64, 64)", "0 (Rotate)"),
        ("1", "A.ShiftScaleRotate(border_mode=0), A.Resize(64, 64)", "0 (ShiftScaleRotate)"),
        ("1", "A.Affine(rotate=5), A.Resize(64, 64)", "0 (Affine)"),
        ("2", "A.Rotate(border_mode=4, fill_mask=7), A.Resize(64, 64)", None),
        ("2", "A.Rotate(border_mode=0, fill_mask=-1), A.Resize(64, 64)", None),
        ("2", "A.CoarseDropout(fill_mask=7), A.Resize(64, 64)", None),
        ("2", "A.PadIfNeeded(64, 64, border_mode=0, fill_mask=255), A.RandomCrop(64, 64)", None),
        ("2", "A.PadIfNeeded(64, 64, border_mode=0, fill_mask=3), A.CenterCrop(64, 64)", "3 (PadIfNeeded)"),
        ("2", "A.RandomCrop(64, 64, pad_if_needed=True, fill_mask=3)", "3 (RandomCrop)"),
        ("2", "A.Rotate(border_mode=0, p=0), A.Resize(64, 64)", None),
        ("2", "A.Perspective(), A.PadIfNeeded(64, 64, border_mode=0, fill_mask=255), A.RandomCrop(64, 64)", None),
        ("2", "A.Rotate(border_mode=0), A.Affine(), A.Resize(64, 64)", "0 (Affine, Rotate)"),
    ],
)
def test_what_label_maps_show_beyond_the_image_is_told(version: str, listed: str, shown: str | None) -> None:
    """255 needs no word, as it is what they show here; 0 does, which all transforms have that say nothing."""
    notes = importers.from_text(f"A.Compose([{listed}])", version=version).notes
    told = [note for note in notes if "label maps" in note]
    if shown is None:
        assert not told
    else:
        by = f"{shown[0]} by targets=TargetOptions(mask_fill={shown[0]})."
        assert told == [f"label maps: there they show {shown} beyond the image; here 255, or {by}"]


def test_labels_that_differ_beyond_the_image_are_told_once_and_by_transform() -> None:
    listed = "A.PadIfNeeded(64, 64, border_mode=0, fill_mask=255), A.Rotate(border_mode=0, fill_mask=7)"
    notes = importers.from_text(f"A.Compose([{listed}, A.Affine(), A.RandomCrop(64, 64)])", version="2").notes
    (told,) = (note for note in notes if "label maps" in note)
    there = "0 (Affine), 7 (Rotate), 255 (PadIfNeeded)"
    here = "here one label: 255, or that of targets=TargetOptions(mask_fill=...)."
    assert told == f"label maps: there they show {there} beyond the image; {here}"


def test_label_maps_that_are_interpolated_there_are_told() -> None:
    notes = importers.from_text("A.Compose([A.Resize(64, 64, mask_interpolation=cv2.INTER_LINEAR)])", version="2").notes
    assert any("label maps: Resize interpolates them there" in note for note in notes)
    plain = importers.from_text("A.Compose([A.Resize(64, 64)])", version="2").notes
    assert not any("label maps" in note for note in plain)


def test_holders_that_augment_masks_say_what_those_show_beyond_the_image() -> None:
    turn = "import kornia.augmentation as K\nt = K.AugmentationSequential(K.RandomRotation(9.0), data_keys={})"
    for keys, told, boxes in (("['input', 'mask']", True, False), ("['input', 'bbox_xyxy']", False, True)):
        notes = importers.from_text(turn.format(keys)).notes
        assert any("mask_fill=0" in note for note in notes) is told
        assert any("TargetOptions(boxes='corners')" in note for note in notes) is boxes


def test_a_photometric_distortion_draws_each_part_and_where_contrast_stands() -> None:
    (made,) = importers.from_text("v2.RandomPhotometricDistort(p=0.3)").recipe.ops
    assert isinstance(made, ops.AllOf)
    brightness, either, shuffled = made.ops
    assert isinstance(brightness, ops.ColorJitter) and (brightness.brightness, brightness.p) == ((0.875, 1.125), 0.3)
    assert isinstance(either, ops.OneOf) and shuffled == ops.ChannelShuffle(p=0.3 * 5 / 6)
    first, last = (one.ops for one in either.ops if isinstance(one, ops.AllOf))
    assert first[1:] == last[:2] and first[0] == last[2] and first[0].p == 0.3


def test_some_of_several_is_that_of_version_2_alone() -> None:
    text = "A.SomeOf([A.InvertImg(p=0.3), A.HorizontalFlip(p=1)], n={}, p=0.8)"
    members = (ops.Invert(p=0.3), ops.Flip(p=1.0))
    for n, num in ((1, 1), (5, 2)):
        (made,) = importers.from_text(text.format(n), version="2").recipe.ops
        assert made == ops.SomeOf(ops=members, num=(num, num), p=0.8)
    with pytest.raises(ValueError, match="replace=True may choose one twice, which is not mapped; leave it out"):
        importers.from_text(text.format("1, replace=True"), version="2")
    with pytest.raises(ValueError, match="of version 1 weighs transforms by p"):
        importers.from_text(text.format(1), version="1")


@pytest.mark.parametrize(
    "text",
    [
        "A.Compose([A.OneOf([A.RandomCrop(64, 64), A.InvertImg()])])",
        "transforms.RandomApply([transforms.RandomCrop(64), transforms.RandomInvert()])",
        "transforms.RandomChoice([transforms.CenterCrop(64), transforms.RandomInvert()])",
    ],
)
def test_a_crop_within_a_group_is_refused_with_where_to_put_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"holds \w+Crop, which makes images of another size, and (Random)?Invert"):
        importers.from_text(text)


@pytest.mark.parametrize("name", ["RandomSunFlare", "Defocus"])
def test_what_has_no_op_here_is_refused_with_the_nearest_that_has(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: .*; write (RandomBrightnessContrast|GaussianBlur)"):
        importers.from_text(f"A.{name}()")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("T.RandomRotation((10, -10))", r"RandomRotation: degrees=\(10, -10\): max_deg=\(10.0, -10.0\) is not a range"),
        ("T.RandomAffine(10, scale=(0, 2))", r"RandomAffine: scale=\(0, 2\): factor=\(0, 2\) leaves 0.05"),
        ("T.Pad(-3)", "Pad: padding=-3: px=-3 must be whole pixels"),
        ("T.Resize(2.5)", "Resize: 2.5 is not a whole number of pixels"),
        ("T.Resize(0)", "Resize: size=0 must be at least 1"),
        ("T.RandomChoice([])", "RandomChoice: holds no transforms; list those to choose from"),
        ("T.RandomApply([T.ToTensor()])", "ToTensor: converts images within a group; put it before"),
        ("T.RandomApply([T.Normalize(0.5, 0.5)])", "RandomApply: holds what normalises, which all images"),
        ("T.FiveCrop(10)", "FiveCrop: makes several images of one"),
        (
            "A.ShiftScaleRotate(scale_limit=(-2, 0.1))",
            r"scale_limit=\(-2, 0.1\): horizontal=\(-1.0, 1.1\) leaves [^=]*nothing\.\n",
        ),
        ("A.ShiftScaleRotate(shift_limit=(3, 5))", r"ShiftScaleRotate: shift_limit=\(3, 5\): horizontal=\(3.0, 5.0\)"),
        ("A.CLAHE(tile_grid_size=(80, 80))", r"CLAHE: tile_grid_size=\(80, 80\): tiles=\(80, 80\) must be"),
        ("A.OneOf([])", "OneOf: holds no transforms"),
        (
            "A.SomeOf([A.Perspective(), A.OpticalDistortion(), A.Blur()], n=2)",
            "cannot be one recipe: Perspective comes before OpticalDistortion.* Put OpticalDistortion first",
        ),
        (
            "A.Compose([A.PadIfNeeded(80, 80), A.RandomCrop(70, 70), A.PadIfNeeded(96, 96)])",
            "PadIfNeeded pads what RandomCrop has cut out of a padded image",
        ),
    ],
)
def test_a_refusal_names_the_transform_and_the_argument_that_are_written(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        importers.from_text(text, version="2" if text.startswith("A.") else None)
    ours = ("all_of", "one_of", "pad ", "random_crop", "optical_distortion")
    assert not any(name in str(caught.value) for name in ours)


@pytest.mark.parametrize(("version", "border"), [("1", "reflect_101"), ("2", "constant")])
def test_a_safe_rotation_shrinks_all_of_what_it_turns_into_the_frame(version: str, border: str) -> None:
    found = importers.from_text("A.Compose([A.CenterCrop(60, 90), A.SafeRotate((30, 30), p=1)])", version=version)
    assert found.exact == ("CenterCrop", "SafeRotate") and found.recipe.border == border
    white = importers.from_text(
        "A.Compose([A.Resize(60, 90), A.SafeRotate((30, 30), border_mode=0, p=1)])", version=version
    ).recipe
    shown = np.asarray(Augment(white, dtype="uint8", layout="NHWC")(np.full((60, 90, 3), 255, np.uint8)))[..., 0]
    # of a box of 90 cos 30 + 60 sin 30 by 90 sin 30 + 60 cos 30
    assert np.mean(shown) / 255 == pytest.approx(60 * 90 / (107.94 * 96.96), rel=0.02)
    for end in (shown[0], shown[-1], shown[:, 0], shown[:, -1]):
        assert (end > 200).sum() < 6  # a corner of the image


@pytest.mark.parametrize("call", ["A.Rotate", "A.GridDistortion", "A.ElasticTransform", "A.Perspective"])
def test_a_map_by_area_is_bilinear_as_in_opencv(call: str) -> None:
    by_area, plain = (
        importers.from_text(f"A.Compose([A.Resize(32, 32), {call}({look}p=1)])", version="2")
        for look in ("interpolation=3, ", "")
    )
    assert by_area.recipe == plain.recipe and by_area.rows == plain.rows


@pytest.mark.parametrize(
    "call", ["A.RandomScale(0.1, interpolation=3)", "A.RandomSizedCrop((20, 30), (32, 32), 1.0, 3)"]
)
def test_a_drawn_size_by_area_averages(call: str) -> None:
    found = importers.from_text(f"A.Compose([{call}, A.RandomCrop(20, 20)])", version="2")
    assert found.recipe.antialias and "area interpolation becomes bilinear." in found.rows[0].note


def test_channels_are_dropped() -> None:
    found = importers.from_text("A.ChannelDropout((1, 2), fill_value=9, p=0.2)", version="1")
    assert found.recipe.ops == (ops.ChannelDropout(max_channels=2, fill=9.0, p=0.2),) and found.exact
    with pytest.raises(ValueError, match=r"channel_drop_range=\(2, 2\) is not mapped; \(1, 1\) and \(1, 2\) are"):
        importers.from_text("A.ChannelDropout((2, 2))")


def test_an_image_is_padded_anywhere_where_it_is_no_larger() -> None:
    text = "A.Compose([{}A.PadIfNeeded(64, 64, position='random', border_mode=0, value=(9, 8, 7))])"
    found = importers.from_text(text.format("A.LongestMaxSize(64), "), version="1")
    assert found.recipe.ops[-1] == ops.RandomCrop(size=(64, 64), pad_if_needed=True, fill=(9.0, 8.0, 7.0))
    assert found.exact[-1] == "PadIfNeeded"
    for before in ("", "A.LongestMaxSize(65), ", "A.SmallestMaxSize(64), ", "A.Resize(64, 65), ", "A.Resize(65, 64), "):
        with pytest.raises(ValueError, match="PadIfNeeded: position='random' is mapped behind LongestMaxSize or a"):
            importers.from_text(text.format(before), version="1")


@pytest.mark.parametrize(
    "text",
    [
        "T.Compose([T.RandomRotation((20, 20)), T.RandomAffine((20, 20), scale=(0.8, 0.8))])",
        "A.Compose([A.Affine(translate_px=(20, 20), p=1), A.Affine(translate_px=(-20, -20), p=1)])",
        "A.Compose([A.Rotate((20, 20), p=1), A.ShiftScaleRotate(p=1)])",
        "K.AugmentationSequential(K.RandomRotation(20.), K.RandomAffine(20., scale=(0.7, 0.8), p=1.))",
    ],
)
def test_what_one_map_moves_out_of_the_image_no_other_one_brings_back(text: str) -> None:
    """In one look-up pixels differed by 6 to 57 levels in the mean: what was moved out was seen, and not the fill."""
    found = importers.from_text(text, version="2" if text.startswith("A") else None)
    last = [op for op in found.recipe.ops if op.op != "normalize"][-1]
    assert isinstance(last, ops.AllOf) and last.own_look is not None
    assert len(found.exact) == 2 and not any("one look-up here" in note for note in found.notes)


def test_a_map_among_others_that_may_bring_back_what_is_moved_out_is_called_near() -> None:
    text = "A.SomeOf([A.Rotate((20, 20), p=1), A.Rotate((9, 9), p=1), A.HorizontalFlip(p=1)], n=2)"
    rows = importers.from_text(text, version="2").rows
    told = "pixels that an earlier map moved out of the image are seen again, where there its border is."
    once = "one look-up here, less blurred than by albumentations, which interpolates each time."
    assert [(row.verdict, row.note) for row in rows[:2]] == [("exact", ""), ("near", f"{told} {once}")]


def test_what_a_perspective_cuts_off_is_not_seen_behind_it() -> None:
    found = importers.from_text("A.Compose([A.Perspective(), A.Rotate()])")
    _, turned = found.recipe.ops
    assert turned == ops.AllOf(ops=(ops.Rotate(max_deg=(-90, 90), step=None, p=0.5),), own_look="bilinear")
    assert found.rows[1].verdict == "exact"


@pytest.mark.parametrize(("name", "direction"), [("IAAFliplr", "horizontal"), ("IAAFlipud", "vertical")])
def test_a_flip_of_imgaug_is_a_flip(name: str, direction: Literal["horizontal", "vertical"]) -> None:
    (row,) = importers.from_text(f"A.{name}(p=0.3)").rows
    assert (row.ops, row.verdict) == ((ops.Flip(direction=direction, p=0.3),), "exact")


@pytest.mark.parametrize(("padding", "px"), [("7", 7), ("(3, 5)", (3, 5)), ("(1, 2, 3, 4)", (1, 2, 3, 4))])
def test_a_padding_by_pixels(padding: str, px: int | tuple[int, ...]) -> None:
    """Columns first, then rows; or left, top, right and bottom."""
    found = importers.from_text(f"A.Pad({padding}, fill=9, border_mode=cv2.BORDER_CONSTANT)", version="2")
    made = ops.Pad.model_validate({"px": px, "border": "constant", "fill": 9.0})
    assert found.recipe.ops == (made,) and found.rows[0].verdict == "exact"
    (seldom,) = importers.from_text(f"A.Pad({padding}, border_mode=4, p=0.3)", version="2").recipe.ops
    assert isinstance(seldom, ops.OneCrop) and seldom.weights == (0.3, 0.7)
