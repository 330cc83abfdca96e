"""Augmentations of kornia as recipes: by stand-ins of the same names and attributes, and by the real ones."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage

from augpipe import Augment, Recipe, importers, ops


def between(low: float, high: float) -> Any:
    return SimpleNamespace(low=torch.tensor(low), high=torch.tensor(high))


def make(name: str, *children: Any, p: float = 1.0, flags: Any = None, **sampled: Any) -> Any:
    """An object of a class of that name, with what kornia keeps of its arguments."""
    made = type(name, (), {"__module__": "kornia.augmentation", "children": lambda self: iter(children)})()
    made.p, made.p_batch, made.flags = p, 1.0, flags or {}
    made._param_generator = SimpleNamespace(**sampled)
    return made


CROP = make("RandomResizedCrop", flags={"size": (64, 48)}, scale=(0.2, 1.0), ratio=(0.75, 1.5))
JITTER = {
    "brightness_sampler": between(0.6, 1.4),
    "contrast_sampler": between(0.7, 1.3),
    "saturation_sampler": between(1.0, 1.0),
    "hue_sampler": between(-0.1, 0.1),
}
AFFINE: dict[str, Any] = {
    "scale": (0.8, 1.2),
    "scale_2_sampler": between(0.8, 1.2),
    "scale_4_sampler": None,
    "shear": None,
    "degree_sampler": between(-5.0, 15.0),
    "translate": (0.1, 0.2),
    "translate_x_sampler": between(-0.1, 0.1),
    "translate_y_sampler": between(-0.2, 0.2),
}


def test_a_sequence_of_augmentations() -> None:
    module = make(
        "AugmentationSequential",
        CROP,
        make("RandomHorizontalFlip", p=0.3),
        make("Sequential", make("RandomVerticalFlip", p=0.2), make("RandomGrayscale", p=0.1)),
        make("ColorJitter", p=0.8, **JITTER),
        make("RandomAffine", p=0.5, flags={"padding_mode": "zeros"}, **AFFINE),
        make("RandomRotation", p=0.7, sampler_dict={"degrees": between(-30.0, 30.0)}),
        make("RandomContrast", p=0.5, sampler_dict={"contrast_factor": between(0.8, 1.2)}),
        make("RandomGaussianNoise", p=0.5, mean=0.0, std=0.1),
        make("Normalize", flags={"mean": torch.tensor([0.5]), "std": torch.tensor([0.25, 0.25, 0.25])}),
    )
    found = importers.from_kornia(module)
    assert found.recipe.ops == (
        ops.RandomResizedCrop(size=(64, 48), scale=(0.2, 1.0), ratio=(0.75, 1.5), align_corners=True),
        ops.Flip(p=0.3),
        ops.Flip(direction="vertical", p=0.2),
        ops.Grayscale(p=0.1),
        ops.ColorJitter(
            brightness=(0.6, 1.4),
            contrast=(0.7, 1.3),
            saturation=(1.0, 1.0),
            hue=(-0.1, 0.1),
            about="mean",
            space="hsv",
            p=0.8,
        ),
        ops.AllOf(
            ops=[
                ops.Zoom(factor=(0.8, 1.2)),
                ops.Rotate(max_deg=(-15, 5), step=None),
                ops.Translate(horizontal=(-0.1, 0.1), vertical=(-0.2, 0.2)),
            ],
            p=0.5,
        ),
        ops.AllOf(ops=[ops.Rotate(max_deg=(-30, 30), step=None, p=0.7)], own_look="bilinear"),
        ops.BrightnessContrast(brightness=(0, 0), contrast=(-0.2, 0.2), p=0.5),
        ops.Noise(std=(25.5, 25.5), p=0.5),
        ops.Normalize(mean=0.5, std=0.25),
    )
    assert found.recipe.border == "constant" and not found.recipe.antialias
    assert found.recipe.num_passes == 3  # the jitter does not change the turn's fill
    assert found.notes == ("RandomGaussianNoise: numbers are kept within 0..1, and there they may leave it.",)
    assert "RandomRotation" in found.exact and "RandomResizedCrop" in found.exact


def test_images_are_in_0_to_1() -> None:
    assert Recipe.from_kornia(make("RandomHorizontalFlip", p=0.5)).ops == (ops.Flip(), ops.Normalize(mean=0.0, std=1.0))


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (make("Resize", flags={"size": (30, 40), "side": "short"}), ops.Resize(size=(30, 40), align_corners=True)),
        (make("Resize", flags={"size": 30, "side": "short"}), ops.ResizeShortest(size=30, align_corners=True)),
        (
            make("Resize", flags={"size": 30, "side": "long"}),
            ops.ResizeLongest(size=30, rounding="down", align_corners=True),
        ),
        (make("CenterCrop", flags={"size": (30, 40)}), ops.RandomCrop(size=(30, 40), p=0)),
        (
            make(
                "RandomCrop",
                flags={"size": (8, 9), "padding": 4, "pad_if_needed": False, "fill": 1, "padding_mode": "constant"},
            ),
            ops.RandomCrop(size=(8, 9), padding=4, fill=255),
        ),
        (
            make("RandomErasing", p=0.4, scale=(0.02, 0.2), ratio=(0.3, 3.3), value=0.0),
            ops.Erase(p=0.4, scale=(0.02, 0.2), ratio=(0.3, 3.3), fill=(0, 0, 0)),
        ),
    ],
)
def test_an_augmentation_is_an_op(module: Any, expected: ops.Op) -> None:
    assert importers.from_kornia(module).recipe.ops[0] == expected


def test_all_that_cannot_be_mapped_is_listed() -> None:
    batch = make("RandomHorizontalFlip")
    batch.p_batch = 0.5
    holder = make("AugmentationSequential", batch, make("RandomMosaic"), make("RandomGaussianNoise", mean=0.5, std=0.1))
    holder.random_apply = 2
    holder._same_on_batch = True
    with pytest.raises(ValueError, match="4 of kornia's transforms cannot be imported"):
        importers.from_kornia(holder)
    with pytest.raises(ValueError, match="p=0.5: images would differ in size"):
        importers.from_kornia(make("Resize", p=0.5, flags={"size": 30, "side": "short"}))


@pytest.mark.parametrize(
    "call",
    [
        "K.RandomRotation(30, resample='nearest')",
        "K.RandomAffine(30, resample='NEAREST')",
        "K.RandomPerspective(resample='bicubic')",
        "K.Resize((64, 48), resample='bicubic', align_corners=False)",
        "K.RandomResizedCrop((64, 48), resample=0)",
    ],
)
def test_how_it_looks_between_pixels_is_read(call: str) -> None:
    (row,) = importers.from_text(call).rows
    assert row.look and row.look.interpolation == ("bicubic" if "bicubic" in call else "nearest")
    assert row.verdict != "exact"


def test_corners_may_be_aligned_or_not() -> None:
    assert importers.from_text("K.Resize(64)").recipe.ops[0] == ops.ResizeShortest(size=64, align_corners=True)
    for call in ("K.Resize(64, align_corners=False)", "K.Resize(64, resample='nearest')"):
        assert importers.from_text(call).recipe.ops[0] == ops.ResizeShortest(size=64)
    for call in ("Resize((9, 8), align_corners=True)", "Resize((9, 8))"):
        found = importers.from_text(f"kornia.geometry.transform.{call}").recipe.ops[0]
        assert found == ops.Resize(size=(9, 8), align_corners="True" in call)


def test_an_elastic_field_is_as_strong_as_one_of_a_filter_that_is_cut_off() -> None:
    call = "K.RandomElasticTransform((63, 63), (32.0, 32.0), (1.0, 1.0), padding_mode='border', p=0.4)"
    noise = np.random.default_rng(0).uniform(-1, 1, (1000, 1000))
    filtered = ndimage.gaussian_filter(noise, 32.0, radius=31)[100:-100, 100:-100] * 160  # half of 320 pixels
    found = importers.from_text(f"torch.nn.Sequential(K.Resize((320, 320)), {call})")
    op = found.recipe.ops[1]
    assert isinstance(op, ops.ElasticTransform) and (op.p, op.side_px) == (0.4, None)
    std = 0.163 * op.alpha / op.sigma
    assert std == pytest.approx(filtered.std(), rel=0.15)
    for lag in (10, 20, 30, 45):
        alike = (filtered[lag:] * filtered[:-lag]).mean() / (filtered**2).mean()
        assert np.exp(-(lag**2) / (4 * op.sigma**2)) == pytest.approx(alike, abs=0.1)
    assert "The filter there is cut off, which leaves its field rougher." in found.rows[1].note
    assert found.rows[1].verdict == "near" and found.recipe.border == "edge"
    (any_size,) = importers.from_text(call).recipe.ops[:1]
    assert isinstance(any_size, ops.ElasticTransform) and any_size.side_px == 224
    assert any_size.alpha == pytest.approx(op.alpha * 224 / 320, rel=1e-3) and any_size.sigma == op.sigma
    (whole,) = importers.from_text(call.replace("32.0, 32.0", "4.0, 4.0")).recipe.ops[:1]
    assert isinstance(whole, ops.ElasticTransform) and whole.sigma == 4.0
    assert "cut off" not in importers.from_text(call.replace("32.0, 32.0", "4.0, 4.0")).rows[0].note
    with pytest.raises(ValueError, match="that differ along x and y are not mapped"):
        importers.from_text("K.RandomElasticTransform(alpha=(1.0, 2.0))")


def test_corners_of_a_spline_move_either_way() -> None:
    found = importers.from_text("K.RandomThinPlateSpline(0.25, padding_mode='reflection', p=0.5)")
    op = found.recipe.ops[0]
    assert isinstance(op, ops.AllOf) and op.p == 0.5 and found.rows[0].verdict == "near"
    corners, larger = op.ops
    assert isinstance(corners, ops.Perspective) and isinstance(larger, ops.Zoom)
    half_sides = [larger.factor[0] * (1.0 - way) for way in (corners.distortion, 0.0)]  # of a corner from the centre
    assert half_sides == pytest.approx([0.75, 1.25]) and found.recipe.border == "reflect"
    still = importers.from_text("K.RandomThinPlateSpline(0)").recipe.ops[0]
    assert isinstance(still, ops.AllOf) and still.ops == (ops.Zoom(factor=(1, 1)),)


def test_perspectives_that_are_not_mapped() -> None:
    with pytest.raises(ValueError, match="sampling_method='area_preserving' is not mapped; 'basic' is"):
        importers.from_text("K.RandomPerspective(sampling_method='area_preserving')")
    (row,) = importers.from_text("K.RandomPerspective(0.7)").rows
    assert row.verdict == "near" and "corners that no perspective gives, or nearly so, move less." in row.note
    (exact,) = importers.from_text("K.RandomPerspective(0.5)").rows
    assert exact.verdict == "exact" and exact.ops == (ops.Perspective(corners="centres", p=0.5),)


def test_saturation_of_hsv_is_near() -> None:
    (row,) = importers.from_text("K.RandomSaturation((0.7, 1.3), p=0.5)").rows
    assert row.ops == (ops.Saturation(factor=(0.7, 1.3), p=0.5),)
    assert row.verdict == "near" and "scales that of HSV" in row.note
    assert importers.from_text("K.RandomSaturation(0.4)").recipe.ops[0] == ops.Saturation(factor=(0.6, 1.4), p=1.0)


def test_the_real_ones() -> None:
    augmentation = pytest.importorskip("kornia.augmentation")
    made = importers.from_kornia(
        augmentation.AugmentationSequential(
            augmentation.RandomResizedCrop((64, 64), scale=(0.2, 1.0)),
            augmentation.RandomHorizontalFlip(p=0.3),
            augmentation.ColorJitter(0.1, 0.2, 0.3, 0.4, p=0.8),
            augmentation.RandomAffine(15, (0.1, 0.2), (0.8, 1.2), 5, p=0.5),
            augmentation.RandomRotation(30.0, p=0.7),
            augmentation.RandomBrightness((0.8, 1.2)),
            augmentation.RandomHue((-0.1, 0.1), p=0.5),
            augmentation.RandomSaturation((0.7, 1.3), p=0.5),
            augmentation.RandomSharpness(0.5, p=0.5),
            augmentation.RandomGaussianBlur((3, 3), (0.1, 2.0), p=0.5),
            augmentation.RandomErasing(p=0.2),
            augmentation.RandomPerspective(0.3),
            augmentation.Resize((40, 50)),
            augmentation.RandomGaussianNoise(0.0, 0.1),
            augmentation.Normalize(mean=torch.tensor([0.5, 0.5, 0.5]), std=torch.tensor([0.5, 0.5, 0.5])),
        )
    ).recipe.ops
    assert made[0] == ops.RandomResizedCrop(size=(64, 64), scale=(0.2, 1.0), ratio=(0.75, 4 / 3), align_corners=True)
    assert made[12] == ops.Resize(size=(40, 50), align_corners=True)
    assert made[2] == ops.ColorJitter(
        brightness=(0.9, 1.1), contrast=(0.8, 1.2), saturation=(0.7, 1.3), hue=0.4, about="mean", space="hsv", p=0.8
    ).model_copy(update={"hue": (-0.4, 0.4)})
    assert made[5] == ops.BrightnessContrast(brightness=(-0.2, 0.2), contrast=(0, 0), p=1)
    assert made[7] == ops.Saturation(factor=(0.7, 1.3), p=0.5)
    assert made[8] == ops.Sharpness(factor=(0, 0.5), p=0.5)
    assert made[9] == ops.GaussianBlur(sigma_px=(0.1, 2.0), kernel_px=3, p=0.5)
    for bends in (augmentation.RandomElasticTransform(p=0.3), augmentation.RandomThinPlateSpline(0.1, p=0.2)):
        call = f"K.{type(bends).__name__}({'p=0.3' if bends.p == 0.3 else '0.1, p=0.2'})"
        assert importers.from_kornia(bends).recipe.ops == importers.from_text(call).recipe.ops
    nearest = augmentation.RandomAffine(30, resample="nearest")
    assert (
        importers.from_kornia(nearest).rows[0].look
        == importers.from_text("K.RandomAffine(30, resample=0)").rows[0].look
    )


def test_the_real_perspective_of_the_same_corners(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = pytest.importorskip("kornia.geometry.transform")
    moved = np.random.default_rng(0).uniform(0.0, 0.5, (4, 2))
    monkeypatch.setattr(
        ops.Perspective, "draw", lambda op, words, frame: {"moved": np.repeat(moved[None], frame.num, 0)}
    )
    image = np.random.default_rng(1).integers(0, 256, (40, 60, 3)).astype(np.uint8)
    start = torch.tensor([[[0.0, 0.0], [59.0, 0.0], [59.0, 39.0], [0.0, 39.0]]])
    inwards = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]]) * torch.tensor([30.0, 20.0])
    matrix = transform.get_perspective_transform(start, start + inwards * torch.from_numpy(moved[None]).float())
    given = torch.from_numpy(image.copy()).permute(2, 0, 1)[None] / 255.0
    theirs = transform.warp_perspective(given, matrix, (40, 60), align_corners=False)[0].permute(1, 2, 0)
    recipe = importers.from_text("K.RandomPerspective(0.5, p=1.0)").recipe
    made = Augment(recipe, layout="NHWC", framework="numpy")(image)
    assert np.abs(theirs.numpy() - made).max() < 0.01


def test_gamma_bits_and_channels_of_kornia() -> None:
    read = importers.from_text
    (gamma,) = read("K.AugmentationSequential(K.RandomGamma((0.5, 2.0), p=0.4))").recipe.ops[:1]
    assert gamma == ops.Gamma(gamma=(0.5, 2.0), even_in="power", p=0.4)
    with pytest.raises(ValueError, match=r"gain=\(0.7, 1.3\) is not mapped; \(1.0, 1.0\) is"):
        read("K.AugmentationSequential(K.RandomGamma((0.5, 2.0), (0.7, 1.3)))")
    (bits,) = read("K.AugmentationSequential(K.RandomPosterize(6, p=0.4))").recipe.ops[:1]
    assert isinstance(bits, ops.AllOf) and bits.p == 0.4
    (one_of,) = bits.ops
    assert isinstance(one_of, ops.OneOf) and one_of.weights == (0.5, 1.0, 0.5)  # of 6, 7 and 8 bits
    made = read("K.AugmentationSequential(K.RandomRGBShift(0.1, 0.1, 0.1, p=1), K.RandomChannelShuffle(p=0.6))").recipe
    assert made.ops[:2] == (ops.ColorCast(max_shift=25.5, step=None, channel_p=1.0, p=1.0), ops.ChannelShuffle(p=0.5))
    blurs = "K.AugmentationSequential(K.RandomBoxBlur((5, 5)), K.RandomMedianBlur(3))"
    assert read(blurs).recipe.ops[:2] == (ops.BoxBlur(sizes=(5, 5)), ops.MedianBlur(sizes=(3, 3)))
    for text, message in (
        ("K.RandomBoxBlur((3, 5))", r"kernel_size=\(3, 5\) is not mapped"),
        ("K.RandomBoxBlur(border_type='circular')", "border_type='circular' is not mapped; 'reflect' is"),
        ("K.RandomRGBShift(0.1, 0.2, 0.1)", "limits that differ between channels"),
    ):
        with pytest.raises(ValueError, match=message):
            read(f"K.AugmentationSequential({text})")


@pytest.mark.parametrize(("mode", "is_same"), [("reflect", True), ("replicate", True), ("circular", False)])
def test_a_resize_that_keeps_corner_pixels_keeps_what_is_mirrored_about_them(mode: str, is_same: bool) -> None:
    """Measured: 0 levels in the mean by the first two, up to 3 by the last one."""
    told = "its border is made of pixels before they are resized, and there of those behind."
    crop = f"K.RandomCrop((116, 116), padding=10, padding_mode='{mode}', p=1.)"
    found = importers.from_text(f"K.AugmentationSequential(K.Resize((96, 96)), {crop})")
    assert (f"RandomCrop: {told}" in found.notes) != is_same
    moved = "K.RandomAffine(0., scale=(0.7, 0.7), padding_mode='reflection', p=1.)"
    assert f"RandomAffine: {told}" in importers.from_text(f"K.Sequential(K.Resize((96, 96)), {moved})").notes


def test_quarter_turns_are_of_a_number_that_is_rounded() -> None:
    (made, _) = importers.from_text("K.RandomRotation90(times=(0, 3), p=0.7)").recipe.ops
    turns = tuple(ops.QuarterTurn(turns=(turn,)) for turn in range(4))
    assert made == ops.OneOf(ops=turns, weights=(0.5, 1.0, 1.0, 0.5), p=0.7)
    (made, _) = importers.from_text("K.RandomRotation90(times=(-2, 2), p=1.0)").recipe.ops
    assert made == ops.OneOf(ops=(turns[2], turns[3], turns[0], turns[1]), p=1.0)  # two turns either way are the same
    (made, _) = importers.from_text("K.RandomRotation90(times=(-1, -1), p=1.0)").recipe.ops
    assert made == ops.OneOf(ops=(turns[3],), p=1.0)


def test_an_autocontrast_is_that_of_each_channel() -> None:
    assert importers.from_text("K.RandomAutoContrast(p=0.3)").recipe.ops[0] == ops.AutoContrast(p=0.3)


def test_a_filter_of_kornia_is_a_blur() -> None:
    text = "torch.nn.Sequential(K.RandomHorizontalFlip(), kornia.filters.GaussianBlur2d({}))"
    found = importers.from_text(text.format("(3, 3), (1.5, 1.5)"))
    assert found.recipe.ops[:2] == (ops.Flip(), ops.GaussianBlur(sigma_px=(1.5, 1.5), kernel_px=3, p=1.0))
    one = type(
        "GaussianBlur2d", (), {"__module__": "kornia.filters.gaussian", "kernel_size": 5, "border_type": "circular"}
    )()
    one.sigma = torch.tensor([[0.5, 0.5]])
    found = importers.from_kornia(one)
    assert found.recipe.ops[0] == ops.GaussianBlur(sigma_px=(0.5, 0.5), kernel_px=5, p=1.0)
    assert found.rows[0].note == "border_type=circular becomes reflect."
    with pytest.raises(
        ValueError, match=r"GaussianBlur2d: sigma=\(1\.0, 2\.0\) is not mapped; two numbers that are alike are"
    ):
        importers.from_text(text.format("(3, 3), (1.0, 2.0)"))


def test_what_a_quarter_turn_cuts_off_stays_away() -> None:
    """A frame keeps its shape there: each turn shows black at two sides, and a second one brings no pixels back."""

    def turned(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        shown = np.zeros_like(image)
        shown[:, 4:20] = np.rot90(image)[4:20]
        return shown

    image = np.random.default_rng(0).integers(1, 256, (16, 24, 3), np.uint8)
    turn = "K.RandomRotation90((1, 1), p=1.0)"
    expected = turned(image)
    for num in (1, 2, 3):
        found = importers.from_text(f"K.AugmentationSequential({', '.join([turn] * num)})")
        shown = Augment(found.recipe, layout="NHWC", framework="numpy")(image)
        np.testing.assert_allclose(255.0 * np.asarray(shown), expected, atol=0.01)
        assert found.recipe.num_passes == num
        expected = turned(expected)
    squares = importers.from_text(f"K.AugmentationSequential(K.Resize((16, 16)), {turn}, {turn})")
    assert squares.recipe.num_passes == 1


def test_a_sequential_of_torch_is_of_the_library_of_what_it_holds() -> None:
    class RandomHorizontalFlip(torch.nn.Module):
        p = 0.3

    RandomHorizontalFlip.__module__ = "kornia.augmentation._2d"
    held = torch.nn.Sequential(torch.nn.Sequential(RandomHorizontalFlip()))
    assert importers.from_object(held).recipe.ops[0] == ops.Flip(p=0.3)
    with pytest.raises(ValueError, match=r"a Sequential of kornia is given\. Write Recipe\.from_kornia\(transform\)\."):
        importers.from_torchvision(held)
    with pytest.raises(ValueError, match=r"Sequential of torch\.nn\.modules\.container is not a transform of"):
        importers.from_object(torch.nn.Sequential())


def test_a_shear_and_a_move_alone() -> None:
    """As the parts of an affine map; a move along one axis leaves the other alone."""
    sheared = ops.Shear(horizontal_deg=(-10, 10), vertical_deg=(0, 0), p=0.5)
    moved = ops.Translate(horizontal=(-0.1, 0.2), vertical=(0, 0), p=0.3)
    for call, made, border in (
        ("K.RandomShear(10.)", sheared, "constant"),
        ("K.RandomTranslate((-0.1, 0.2), padding_mode='border', p=0.3)", moved, "edge"),
    ):
        (row,) = importers.from_text(call).rows
        assert (row.ops, row.beyond and row.beyond[0]) == ((made,), border)
    zeros, none = {"padding_mode": "zeros"}, between(0.0, 0.0)
    shear = make("RandomShear", p=0.5, flags=zeros, shear_x_sampler=between(-10.0, 10.0), shear_y_sampler=none)
    move = make("RandomTranslate", p=0.3, flags=zeros, translate_x_sampler=between(-0.1, 0.2), translate_y_sampler=None)
    assert importers.from_kornia(shear).rows[0].ops == (sheared,)
    assert importers.from_kornia(move).rows[0].ops == (moved,)
