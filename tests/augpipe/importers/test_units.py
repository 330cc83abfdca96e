"""Numbers that count in 0..1, in levels or in what a Normalize made: by where a transform stands."""

import numpy as np
import pytest

from augpipe import Augment, Recipe, importers, ops

TO_TENSOR, NORMALIZE = "transforms.ToTensor()", "transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))"
UNIT = ops.Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def read(*calls: str) -> Recipe:
    return Recipe.from_text(f"transforms.Compose([{', '.join(calls)}])")


def test_noise_that_is_erased_before_a_normalize_is_of_numbers_in_0_to_1() -> None:
    erased, normalized = read(TO_TENSOR, "transforms.RandomErasing(value='random')", NORMALIZE).ops
    assert isinstance(erased, ops.Erase)
    assert (erased.fill, erased.mean, erased.std) == ("noise", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    assert isinstance(normalized, ops.Normalize)


@pytest.mark.parametrize(
    ("before", "value", "fill"),
    [
        ((), "(10, 20, 30)", (10.0, 20.0, 30.0)),
        ((TO_TENSOR,), "(0.2, 0.4, 1)", (51.0, 102.0, 255.0)),
        ((TO_TENSOR,), "1", (255.0, 255.0, 255.0)),
        ((TO_TENSOR, NORMALIZE), "(0.5, 0.5, 0.5)", (153.0, 127.5, 102.0)),
        ((TO_TENSOR, NORMALIZE), "0", "mean"),
    ],
)
def test_what_is_erased_is_a_level(before: tuple[str, ...], value: str, fill: object) -> None:
    recipe = read(*before, f"transforms.RandomErasing(value={value})")
    (erased,) = (op for op in recipe.ops if isinstance(op, ops.Erase))
    assert erased.fill == (fill if isinstance(fill, str) else pytest.approx(fill))


def test_a_value_that_is_no_level_is_refused() -> None:
    with pytest.raises(ValueError, match="fills with 9, 9, 9, which stand for levels of 586, 561, 536;"):
        read(TO_TENSOR, NORMALIZE, "transforms.RandomErasing(value=9)")


@pytest.mark.parametrize(
    ("before", "threshold", "level"), [((), 128, 128), ((TO_TENSOR,), 0.5, 128), ((TO_TENSOR,), 7, 256)]
)
def test_a_threshold_behind_to_tensor_is_a_part_of_1(before: tuple[str, ...], threshold: float, level: int) -> None:
    solarize = f"transforms.RandomSolarize({threshold}, p=0.3)"
    assert ops.Solarize(threshold=(level, level), p=0.3) in read(*before, solarize).ops
    (held,) = (op for op in read(*before, f"transforms.RandomApply([{solarize}])").ops if isinstance(op, ops.AllOf))
    assert held.ops == (ops.Solarize(threshold=(level, level), p=0.3),)


def test_a_dtype_without_scale_leaves_levels_that_are_normalised() -> None:
    text = "v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32{}), v2.Normalize(mean=({},) * 3, std=(51,) * 3)])"
    found = importers.from_text(text.format("", 127.5))
    assert found.recipe.ops == (ops.Normalize(mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2)),) and found.notes == ()
    with pytest.raises(ValueError, match="are given in 0..1"):
        importers.from_text(text.format(", scale=True", 127.5))
    found = importers.from_text(text.replace("(51,) * 3", "(0.5,) * 3").format("", 0.5))
    assert found.rows[0].verdict == "near" and "no scale=True is before it" in found.notes[0]
    (made,) = found.recipe.ops
    assert isinstance(made, ops.Normalize) and made.mean == pytest.approx((0.5 / 255.0,) * 3)


@pytest.mark.parametrize(
    ("arguments", "mean", "note"),
    [
        ("mean=(127.5, 102, 51), std=(51, 51, 51), max_pixel_value=1.0", (0.5, 0.4, 0.2), ""),
        ("mean=(0.5, 0.4, 0.2), std=(0.2, 0.2, 0.2), max_pixel_value=1.0", (0.5, 0.4, 0.2), "images are in 0..1 there"),
        ("mean=(0.5, 0.4, 0.2), std=(0.2, 0.2, 0.2), max_pixel_value=255", (0.5, 0.4, 0.2), ""),
    ],
)
def test_what_is_white_to_albumentations(arguments: str, mean: tuple[float, ...], note: str) -> None:
    found = importers.from_text(f"A.Normalize({arguments})", version="2")
    (made,) = found.recipe.ops
    assert isinstance(made, ops.Normalize)
    assert (made.mean, made.std) == (pytest.approx(mean), pytest.approx((0.2, 0.2, 0.2)))
    assert found.rows[0].note.startswith(note) and bool(found.rows[0].note) == bool(note)
    with pytest.raises(ValueError, match="max_pixel_value=65535 is not mapped: levels are in 0..255 here; set 255"):
        importers.from_text("A.Normalize(max_pixel_value=65535.0)")


def test_a_to_tensor_of_albumentations_divides_by_255_and_may_normalise() -> None:
    assert Recipe.from_text("A.Compose([A.NoOp(), ToTensor()])").ops == (ops.Identity(), UNIT)
    given = "normalize={'mean': [0.5, 0.4, 0.3], 'std': [0.2, 0.2, 0.2]}"
    normalized = (ops.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2)),)
    assert Recipe.from_text(f"A.Compose([ToTensor({given})])").ops == normalized
    assert Recipe.from_text("A.Compose([A.Normalize((0.5, 0.4, 0.3), [0.2] * 3), ToTensor()])").ops == normalized


@pytest.mark.parametrize(("limit", "sizes"), [("4", (3, 3)), ("(3, 6)", (3, 5)), ("7", (3, 7)), ("(5, 6)", (5, 5))])
def test_version_1_draws_every_second_size_of_a_blur(limit: str, sizes: tuple[int, int]) -> None:
    for name, kind in (("Blur", ops.BoxBlur), ("MotionBlur", ops.MotionBlur)):
        (made,) = importers.from_text(f"A.{name}(blur_limit={limit})", version="1").recipe.ops
        assert isinstance(made, kind) and made.sizes == sizes
    with pytest.raises(ValueError, match=r"blur_limit=\(4, 8\) draws even sizes, which are not mapped; begin at 5"):
        importers.from_text("A.Blur(blur_limit=(4, 8))", version="1")


def test_noise_that_may_leave_0_to_1_is_told() -> None:
    for text in ("v2.GaussianNoise(sigma=0.2, clip=False)", "K.AugmentationSequential(K.RandomGaussianNoise(std=0.2))"):
        found = importers.from_text(text)
        assert "numbers are kept within 0..1" in found.rows[0].note and found.rows[0].verdict == "near"
    assert Recipe.from_text("v2.GaussianNoise(sigma=0.2)").ops == (ops.Noise(std=(51.0, 51.0), p=1.0),)
    with pytest.raises(ValueError, match=r"mean=0.5 is not mapped; 0 is"):
        Recipe.from_text("v2.GaussianNoise(mean=0.5)")


def left_out(*calls: str) -> importers.Imported:
    return importers.from_text(f"transforms.Compose([{', '.join(calls)}])", strict=False)


BAD_NORMALIZE = "transforms.Normalize((0.5,) * 8, (0.5,) * 8)"


@pytest.mark.parametrize(
    "behind",
    [
        "transforms.RandomErasing(value=0)",
        "transforms.ColorJitter(0.5)",
        "transforms.RandomRotation(10)",
        "transforms.RandomSolarize(0.5)",
        "transforms.RandomApply([transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.5)])",
        NORMALIZE,
    ],
)
def test_what_counts_in_the_units_of_a_normalize_is_left_out_with_it(behind: str) -> None:
    found = left_out(TO_TENSOR, BAD_NORMALIZE, "transforms.RandomVerticalFlip()", behind)
    assert found.recipe.ops == (ops.Flip(direction="vertical"), UNIT)
    assert [row.verdict == "left out" for row in found.rows] == [True, False, *[True] * (len(found.rows) - 2)]
    name = behind.removeprefix("transforms.").partition("(")[0]
    told = "stands behind Normalize, which is left out, and counts in the units that it makes: left out."
    assert f"{name}: {told}" in found.notes


def test_a_normalize_that_cannot_be_last_is_left_out_with_what_stands_behind_it() -> None:
    found = left_out(TO_TENSOR, NORMALIZE, "transforms.RandomVerticalFlip()", "transforms.RandomSolarize(0.5)")
    assert found.recipe.ops == (ops.Flip(direction="vertical"), UNIT)
    assert [row.verdict for row in found.rows] == ["left out", "exact", "left out"]


def test_a_fill_that_is_no_level_is_refused_by_the_transform_that_has_it() -> None:
    rotation = "transforms.RandomRotation(10, fill=9)"
    with pytest.raises(
        ValueError, match=r"RandomRotation: fills with 9, 9, 9, which stand for levels of 586, 561, 536"
    ):
        read(TO_TENSOR, NORMALIZE, rotation)
    found = left_out(TO_TENSOR, NORMALIZE, rotation)
    assert [type(op) for op in found.recipe.ops] == [ops.Normalize]
    assert [row.verdict for row in found.rows] == ["exact", "left out"]


def test_what_counts_behind_a_function_that_is_left_out_is_left_out_too_but_for_a_normalize() -> None:
    function, solarize = "transforms.Lambda(lambda x: (x * 255).byte())", "transforms.RandomSolarize(128)"
    found = left_out(TO_TENSOR, function, "transforms.RandomVerticalFlip()", solarize, NORMALIZE)
    assert [type(op) for op in found.recipe.ops] == [ops.Flip, ops.Normalize]
    told = "stands behind Lambda, which is left out, and counts in units that it may change: left out."
    assert f"RandomSolarize: {told}" in found.notes
    assert "Normalize: is read as if Lambda, which is left out, kept the units before it." in found.notes
    found = left_out(function, solarize, TO_TENSOR)  # of PIL images, which have levels before it and behind it
    assert [type(op) for op in found.recipe.ops] == [ops.Solarize, ops.Normalize]


def test_what_counts_behind_a_dtype_of_other_units_is_left_out() -> None:
    text = "v2.Compose([v2.ToImage(), v2.ToDtype(torch.int32, scale=True), v2.RandomSolarize(128)])"
    with pytest.raises(ValueError, match=r"ToDtype: scale=True makes numbers of int32, and 0..255 and 0..1 are mapped"):
        importers.from_text(text)
    assert importers.from_text(text.replace("v2.RandomSolarize(128)", "v2.Resize(9)"), strict=False).recipe.ops == (
        ops.ResizeShortest(size=9),
    )
    assert importers.from_text(text, strict=False).recipe.ops == ()


def test_what_counts_behind_a_normalize_of_albumentations_and_kornia_that_is_left_out() -> None:
    found = importers.from_text("A.Compose([A.ToFloat(65535), A.CoarseDropout(fill=0.5), A.Blur()])", strict=False)
    assert [type(op) for op in found.recipe.ops] == [ops.BoxBlur]
    text = "K.AugmentationSequential(K.Normalize(torch.tensor(0), torch.tensor(10000)), {}K.RandomVerticalFlip())"
    found = importers.from_text(text.format("K.RandomSolarize(0.1), K.RandomErasing(), "), strict=False)
    assert found.recipe.ops == (ops.Flip(direction="vertical"), UNIT)


def test_a_to_float_divides_levels() -> None:
    found = importers.from_text("A.ToFloat(max_value=1)")
    assert found.recipe.ops == (ops.Normalize(mean=(0.0, 0.0, 0.0), std=(1 / 255.0,) * 3),)
    assert found.rows[0].note == "images hold levels, and so numbers go up to 255."
    levels = np.full((4, 4, 3), 200, np.uint8)
    assert Augment(found.recipe, framework="numpy")(levels) == pytest.approx(200.0, abs=1e-3)
    assert importers.from_text("A.ToFloat()").recipe.ops == (UNIT,)
    with pytest.raises(ValueError, match="ToFloat: max_value=65535 is not mapped: levels are in 0..255 here; set 255"):
        importers.from_text("A.ToFloat(65535)")


def test_a_normalize_of_bytes_which_torchvision_refuses_is_told() -> None:
    text = "v2.Compose([{}, v2.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))])"
    for before in ("transforms.PILToTensor()", "v2.ToImage(), v2.ToDtype(torch.uint8)"):
        found = importers.from_text(text.format(before))
        assert found.rows[-1].verdict == "near" and "bytes there, which torchvision refuses" in found.notes[0]
    for before in ("transforms.ToTensor()", "v2.ToImage(), v2.ToDtype(torch.float32, scale=True)"):
        assert importers.from_text(text.format(before)).notes == ()


@pytest.mark.parametrize(
    "text",
    [
        "T.Compose([T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.2)), T.GaussianBlur(5)])",
        "A.Compose([A.Normalize(), A.MedianBlur((3, 5), p=1), A.MotionBlur((3, 5), p=1), A.RandomGridShuffle(p=1)])",
        "K.Sequential(K.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.2)), K.RandomBoxBlur((3, 3)))",
    ],
)
def test_a_blur_behind_a_normalize_is_the_same_before_it(text: str) -> None:
    found = importers.from_text(text, version="1" if text.startswith("A") else None)
    assert [op.op == "normalize" for op in found.recipe.ops] == [False] * (len(found.recipe.ops) - 1) + [True]
    assert any(note.startswith("Normalize: stands before ") and "which is the same" in note for note in found.notes)
    assert "Normalize" in found.exact


@pytest.mark.parametrize("blur", ["MedianBlur", "GaussianBlur", "MotionBlur", "AdvancedBlur"])
def test_blurs_of_albumentations_2_cut_off_what_a_normalize_makes(blur: str) -> None:
    with pytest.raises(ValueError, match=f"Normalize: stands before {blur}"):
        importers.from_text(f"A.Compose([A.Normalize(), A.{blur}(p=1)])", version="2")
    (blurred, _) = importers.from_text("A.Compose([A.Normalize(), A.Blur(p=1)])", version="2").recipe.ops
    assert blurred.op == "box_blur"


def test_channels_change_places_before_a_normalize_that_treats_them_alike() -> None:
    text = "K.Sequential(K.Normalize(mean=({}), std=(0.2, 0.2, 0.2)), K.RandomChannelShuffle())"
    assert [op.op for op in importers.from_text(text.format("0.5, 0.5, 0.5")).recipe.ops][-1] == "normalize"
    with pytest.raises(ValueError, match="Normalize: stands before RandomChannelShuffle"):
        importers.from_text(text.format("0.5, 0.4, 0.5"))
