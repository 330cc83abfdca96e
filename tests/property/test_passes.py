"""A recipe acts as it is listed: pass by pass, and op by op, by calls of `Augment` that know of one op each."""

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe import Augment, Recipe, TargetOptions, ops, plan
from augpipe.native.cpu_render import Scratch
from augpipe.ops.commuting import acts_in_look_up
from tests.parity.images import Pixels, noise, smooth

ANY = [
    *(ops.Noise(p=1.0), ops.Rotate(max_deg=40, step=None), ops.CoarseDropout(p=1.0, height=(2, 9), width=(2, 9))),
    *(ops.Solarize(p=1.0), ops.RandomResizedCrop(size=(19, 23)), ops.Flip(), ops.CLAHE(p=1.0), ops.Perspective()),
    *(ops.ColorJitter(brightness=0.4, contrast=0.4, hue=0.1, about="mean", space="hsv"), ops.GaussianBlur(p=1.0)),
    *(ops.Vignette(), ops.ColorCast(), ops.Translate(), ops.RandomCrop(size=13, pad_if_needed=True, border="reflect")),
    *(ops.Invert(p=1.0), ops.QuarterTurn(), ops.JpegCompression(p=1.0), ops.BrownConrady(), ops.Normalize()),
]


def levels(recipe: Recipe, image: Pixels, sample_id: int = 3) -> Pixels:
    made: Pixels = Augment(recipe, 5, dtype="uint8", layout="NHWC")(image, [sample_id])
    return made


@settings(max_examples=30)
@given(
    listed=st.lists(st.sampled_from(ANY), min_size=2, max_size=6, unique_by=lambda op: op.op),
    border=st.sampled_from(["context", "reflect", "constant", "edge"]),
    interpolation=st.sampled_from(["bilinear", "bicubic", "random"]),
)
def test_passes_are_calls_one_after_the_other(listed: list[ops.Op], border: Any, interpolation: Any) -> None:
    """Ops of one kind each draw by streams that are named by that alone: the calls draw what the recipe does."""
    fields: dict[str, Any] = {"border": border, "fill": 90, "interpolation": interpolation}
    try:
        recipe = Recipe.model_validate({"ops": listed, **fields})
    except ValueError:  # pads behind geometry, or projects before a lens
        return
    image = noise(31, 40)
    expected = image
    fields["border"], fields["fill"] = recipe.beyond_of(recipe.all_views[0])  # which a padding decides for all passes
    (passes,) = recipe.passes
    for one in passes:
        own = Recipe.model_validate({"ops": [op for _, op in one if op.op != "normalize"], **fields})
        if own.num_passes > 1:  # holes and a quarter turn change places where the frame is known to be square
            assert "quarter_turn" in [op.op for op in own.ops] and expected.shape[0] == expected.shape[1]
            return
        expected = levels(own, expected)
    seen = Recipe.model_validate({"ops": [op for op in listed if op.op != "normalize"], **fields})
    np.testing.assert_array_equal(levels(seen, image), expected)


CHAINS = [
    [ops.Noise(p=1.0), ops.Rotate(max_deg=(20, 20)), ops.CoarseDropout(p=1.0), ops.RandomCrop(size=30)],
    [ops.RandomCrop(size=(34, 38)), ops.Flip(p=1.0), ops.Equalize(p=1.0), ops.Perspective(distortion=0.3)],
    [ops.Emboss(p=1.0), ops.Flip(p=1.0), ops.BrownConrady(), ops.GaussianBlur(p=1.0), ops.QuarterTurn(turns=(1,))],
    [ops.ElasticTransform(alpha=20.0, p=1.0), ops.Equalize(p=1.0), ops.Rotate(max_deg=(20, 20)), ops.Flip(p=1.0)],
    [ops.RandomCrop(size=(34, 38)), ops.Equalize(p=1.0), ops.GridDistortion(cells="whole_px"), ops.Rotate()],
]


@pytest.mark.parametrize("listed", CHAINS, ids=["holes", "crop first", "three", "bent first", "bent last"])
@pytest.mark.parametrize("boxes", ["tight", "corners"])
def test_targets_go_through_all_passes(listed: list[ops.Op], boxes: Any) -> None:
    image = noise(40, 52)
    expected: dict[str, Any] = {
        "mask": np.arange(40 * 52, dtype=np.int32).reshape(40, 52),
        "bboxes": np.array([[5.0, 6.0, 30.0, 20.0], [20.0, 25.0, 50.0, 38.0], [0.0, 0.0, 3.0, 3.0]]),
        "polygons": [[[10.0, 10.0, 40.0, 12.0, 25.0, 35.0]], [], []],
        "keypoints": np.array([[[26, 20, 2], [1, 39, 1]], [[40, 30, 2], [12, 7, 0]], [[2, 2, 2], [3, 3, 2]]], float),
        "labels": ["a", "b", "c"],
    }
    options: dict[str, Any] = {
        "bbox_format": "pascal_voc",
        "targets": TargetOptions(boxes=boxes, drop_empty=False, keypoint_swaps=((0, 1),), clip=True, mask_fill=7),
    }
    recipe = Recipe(ops=listed)
    found = Augment(recipe, 5)(image=image, sample_ids=[3], **expected, **options)
    expected["image"] = image
    for one in recipe.passes[0]:
        call = Augment(Recipe(ops=[op for _, op in one]), 5, dtype="uint8", layout="NHWC")
        expected = call(sample_ids=[3], **expected, **options)
        expected.pop("dropped")
    assert recipe.num_passes > 1
    np.testing.assert_array_equal(found["mask"], expected["mask"])
    np.testing.assert_allclose(found["bboxes"], expected["bboxes"], atol=1e-3)
    points, others = np.asarray(found["keypoints"]), np.asarray(expected["keypoints"])
    np.testing.assert_array_equal(points[..., 2], others[..., 2])
    np.testing.assert_allclose(points[points[..., 2] > 0], others[points[..., 2] > 0], atol=1e-3)
    for rings, others in zip(found["polygons"], expected["polygons"], strict=True):
        for ring, other in zip(rings, others, strict=True):
            np.testing.assert_allclose(np.asarray(ring), np.asarray(other), atol=1e-3)


def test_what_an_early_pass_cuts_off_is_not_visible() -> None:
    """The box lies with a third of it in the first pass's frame, and the second pass shows all of that frame."""
    listed = [ops.CenterCrop(size=20), ops.Equalize(p=1.0), ops.Resize(size=40)]
    assert Recipe(ops=listed).num_passes == 2
    for least, num in ((0.3, 1), (0.4, 0)):
        options = TargetOptions(min_visibility=least)
        found = Augment(Recipe(ops=listed))(
            image=noise(40, 40), bboxes=[[4.0, 12.0, 13.0, 28.0]], labels=[1], bbox_format="pascal_voc", targets=options
        )
        assert len(found["bboxes"]) == num


def test_points_that_an_early_pass_folds_stay_unseen() -> None:
    bend = ops.ElasticTransform(alpha=300.0, sigma=5.0, p=1.0)
    recipe = Recipe(ops=[bend, ops.Equalize(p=1.0), ops.Rotate(max_deg=(20, 20))], border="edge")
    y, x = np.mgrid[2:48:4, 2:48:4] + 0.5
    expected = np.stack([x, y, np.full_like(x, 2.0)], axis=-1).reshape(1, -1, 3)
    found = np.asarray(Augment(recipe, 5)(image=noise(48, 48), sample_ids=[3], keypoints=expected)["keypoints"])
    for one in recipe.passes[0]:
        call = Augment(Recipe(ops=[op for _, op in one], border="edge"), 5)
        expected = np.asarray(call(image=noise(48, 48), sample_ids=[3], keypoints=expected)["keypoints"])
    is_seen = expected[..., 2] > 0
    assert recipe.num_passes == 2 and 0.1 < is_seen.mean() < 0.9
    np.testing.assert_array_equal(found[..., 2], expected[..., 2])
    np.testing.assert_allclose(found[is_seen], expected[is_seen], atol=1e-3)


TWO_BENDS = [ops.GridDistortion(p=1.0), ops.AllOf(ops=[ops.ElasticTransform(p=1.0)], own_look="bilinear")]


@pytest.mark.parametrize("listed", [CHAINS[0], TWO_BENDS], ids=["holes", "two bends"])
def test_points_go_back_through_all_passes(listed: list[ops.Op]) -> None:
    recipe, points = Recipe(ops=listed), np.array([[10.0, 11.0], [15.5, 12.25]])
    made = plan(recipe, [3, 4], sizes=[(40, 52), (60, 47)], seed=5)
    for position, size in enumerate([(40, 52), (60, 47)]):
        back = made.to_source(points, position)
        call = Augment(recipe, 5)
        again = call(image=noise(*size), sample_ids=[3 + position], keypoints=back)["keypoints"]
        np.testing.assert_allclose(np.asarray(again)[:, :2], points, atol=1e-3)


STEPS = [
    *(ops.Brightness(), ops.BrightnessContrast(p=1.0), ops.ChannelDropout(p=1.0, fill=40), ops.ChannelShuffle(p=1.0)),
    *(ops.ColorCast(), ops.Contrast(), ops.Contrast(about="mean", factor=(1.5, 1.5)), ops.Grayscale(p=1.0)),
    *(ops.Hue(), ops.Hue(space="hsv"), ops.HueSaturationValue(p=1.0), ops.Invert(p=1.0), ops.Lighting()),
    *(ops.Saturation(), ops.Gamma(gamma=(0.4, 0.4)), ops.Posterize(bits=(2, 2)), ops.Solarize(p=1.0)),
    *(ops.Sepia(p=1.0), ops.ToneCurve(p=1.0)),
    *(ops.SolarizeAdd(addition=(90, 90)), ops.AutoContrast(p=1.0), ops.Equalize(p=1.0), ops.CLAHE(p=1.0)),
    *(ops.GaussianBlur(p=1.0), ops.Sharpness(factor=(2.0, 2.0)), ops.Emboss(p=1.0), ops.MedianBlur(p=1.0)),
    *(ops.Noise(p=1.0), ops.CoarseDropout(p=1.0), ops.Vignette(), ops.ColorJitter(contrast=(1.4, 1.4), about="mean")),
    *(ops.ColorJitter(brightness=0.3, hue=(0.2, 0.2), space="hsv"), ops.MotionBlur(p=1.0, degrees=(0.0, 90.0))),
]
LOOK_UPS = [
    (ops.Rotate(max_deg=(25, 25)), {"border": "reflect"}),
    (ops.Rotate(max_deg=(25, 25)), {"border": "constant", "fill": (0, 0, 0)}),
    (ops.Rotate(max_deg=(25, 25)), {"border": "constant", "fill": (99, 99, 99)}),
    (ops.Resize(size=(40, 61)), {}),
    (ops.RandomCrop(size=16, padding=5), {}),
    (ops.Zoom(factor=(0.7, 0.7)), {"border": "edge", "interpolation": "nearest"}),
    (ops.Flip(p=1.0), {}),
]
AS_DRAWN = ("coarse_dropout", "noise", "motion_blur")


@pytest.mark.parametrize("number", range(len(LOOK_UPS)))
def test_a_step_before_a_look_up_acts_before_it(number: int) -> None:
    look_up, fields = LOOK_UPS[number]
    image = smooth(24, 37) // 3 + 85  # which no step makes black or white: linear steps are linear then
    for step in STEPS:
        if look_up.op == "flip" and step.op in AS_DRAWN[:2]:
            continue  # the same as they are distributed, and not as they are drawn
        both = levels(Recipe.model_validate({"ops": [step, look_up], **fields}), image)
        alone = levels(Recipe.model_validate({"ops": [look_up], **fields}), levels(Recipe(ops=[step]), image))
        apart = np.abs(both.astype(int) - alone)
        assert apart.mean() < 0.5 and np.quantile(apart, 0.99) <= 1.0, step


@pytest.mark.parametrize("step", [ops.CLAHE(p=1.0), ops.JpegCompression(p=1.0)], ids=lambda op: op.op)
def test_what_begins_at_the_upper_left_acts_before_flips_and_turns(step: ops.Op) -> None:
    image = smooth(64, 64)
    for look_up in (ops.Flip(p=1.0), *(ops.QuarterTurn(turns=(num,)) for num in (1, 2, 3)), ops.Transpose(p=1.0)):
        both = levels(Recipe(ops=[ops.Resize(size=64), step, look_up]), image)
        apart = np.abs(both.astype(int) - levels(Recipe(ops=[look_up]), levels(Recipe(ops=[step]), image)))
        assert apart.mean() < 0.5, look_up


def test_the_check_above_can_fail() -> None:
    image = smooth(24, 37)
    for step, look_up in ((ops.Posterize(bits=(2, 2)), LOOK_UPS[0]), (ops.Equalize(p=1.0), LOOK_UPS[1])):
        listed = Recipe.model_validate({"ops": [step, look_up[0]], **look_up[1]})
        assert acts_in_look_up(look_up[0]) and listed.num_passes == 2
        apart = np.abs(levels(listed, image).astype(int) - levels(listed.fused(), image))
        assert apart.mean() > 0.5


def test_opencv_gives_the_same_one_after_the_other() -> None:
    image, angle = smooth(48, 48), 20.0
    solarized = np.where(image >= 128, 255 - image, image)
    matrix = cv2.getRotationMatrix2D((23.5, 23.5), angle, 1.0)
    fill = (200, 30, 90)
    expected = cv2.warpAffine(solarized, matrix, (48, 48), flags=cv2.INTER_LINEAR, borderValue=fill)
    recipe = Recipe(
        ops=[ops.Solarize(p=1.0), ops.Rotate(max_deg=(angle, angle))], border="constant", fill=fill, antialias=False
    )
    apart = np.abs(levels(recipe, image).astype(int) - expected)
    assert apart.mean() < 0.6 and np.quantile(apart, 0.99) <= 4  # OpenCV takes 32nds of a pixel
    assert np.abs(levels(recipe.fused(), image).astype(int) - expected).mean() > 5

    blurred = cv2.medianBlur(image, 5)
    shrunk = cv2.resize(blurred, (96, 80), interpolation=cv2.INTER_LINEAR)
    listed = Recipe(ops=[ops.MedianBlur(sizes=(5, 5), p=1.0), ops.Resize(size=(80, 96))])
    assert np.abs(levels(listed, image).astype(int) - shrunk).max() <= 1


def test_memory_between_passes_may_grow_from_one_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[Pixels] = []
    between = Scratch.between

    def overwriting(scratch: Scratch, num_pixels: int) -> Any:
        found = between(scratch, num_pixels)
        if handed and not np.shares_memory(handed[-1], found[1]):
            handed[-1][:] = 77  # as others may whose memory it is now
        handed.append(found[1])
        return found

    monkeypatch.setattr(Scratch, "between", overwriting)
    listed = [ops.Invert(p=1.0), ops.Equalize(p=1.0), ops.Resize(size=(500, 600)), ops.MedianBlur(p=1.0)]
    image = smooth(300, 300)
    expected = image
    recipe = Recipe(ops=[*listed, ops.CenterCrop(size=400), ops.Equalize(p=1.0), ops.Resize(size=(40, 50))])
    assert recipe.num_passes == 4
    for one in recipe.passes[0]:
        expected = levels(Recipe(ops=[op for _, op in one]), expected)
    np.testing.assert_array_equal(levels(recipe, image), expected)


@pytest.mark.parametrize("place", range(3))
def test_normalize_acts_in_the_last_pass_wherever_it_is_listed(place: int) -> None:
    listed: list[ops.Op] = [ops.Solarize(p=1.0), ops.Rotate(max_deg=(25, 25)), ops.Invert(p=1.0)]
    last = Recipe(ops=[*listed, ops.Normalize()])
    recipe = Recipe(ops=[*listed[:place], ops.Normalize(), *listed[place:]])
    image = smooth(24, 37)
    assert recipe.num_passes == 2
    np.testing.assert_array_equal(Augment(recipe)(image), Augment(last)(image))


def test_one_channel_is_the_gray_of_a_fill_that_a_later_pass_shows() -> None:
    fields: dict[str, Any] = {"border": "constant", "fill": (200, 30, 90)}
    listed = [ops.Grayscale(p=1.0), ops.Rotate(max_deg=(45, 45))]
    made = levels(Recipe(ops=listed, channels=1, **fields), smooth(24, 24))
    assert Recipe(ops=listed, **fields).num_passes == 2
    assert made.ravel()[0] == round(0.299 * 200 + 0.587 * 30 + 0.114 * 90)
