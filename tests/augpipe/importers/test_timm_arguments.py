"""timm's `create_transform` arguments as recipes."""

import inspect
import math
import sys
from enum import Enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, importers, ops, policies, recipes
from augpipe.recipes.importers.timm import DEFAULTS, UNMAPPED
from augpipe.validation.models import changed


def test_defaults_are_timms() -> None:
    found = importers.from_timm()
    assert found.recipe.ops == (
        ops.RandomResizedCrop(size=(224, 224)),
        ops.Flip(),
        ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, about="mean", space="hsv"),
        ops.Normalize(),
    )
    assert not found.notes and found.recipe.border == "context"


def test_a_policy_takes_the_place_of_the_jitter() -> None:
    found = importers.from_timm(
        input_size=(3, 96, 80),
        scale=(0.3, 1),
        ratio=(0.5, 2),
        hflip=0,
        vflip=0.25,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        grayscale_prob=0.1,
        gaussian_blur_prob=0.2,
    )
    assert found.recipe.ops == (
        ops.RandomResizedCrop(size=(96, 80), scale=(0.3, 1), ratio=(0.5, 2)),
        ops.Flip(direction="vertical", p=0.25),
        *(changed(op, own_look="bicubic") for op in policies.timm("rand-m9-mstd0.5-inc1")),
        ops.Grayscale(p=0.1),
        ops.GaussianBlur(sigma_px=(0.1, 2), kernel_px=23, p=0.2),
        ops.Normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
    )
    assert (found.recipe.border, found.recipe.fill) == ("constant", (128, 128, 128))
    assert found.notes == () and "auto_augment" in found.exact
    assert found.recipe.interpolation == "bicubic"
    assert importers.from_timm(interpolation="random").recipe.interpolation == "random"
    assert "crop: lanczos interpolation becomes bicubic." in importers.from_timm(interpolation="lanczos").notes


def test_the_groups_of_a_policy_finish_one_after_the_other() -> None:
    found = importers.from_timm(auto_augment="original", interpolation="random").recipe
    (group,) = (op for op in found.ops if isinstance(op, ops.OneOf))
    assert found.num_passes == 3 and group.own_look == "random"
    assert all(op.in_turn for op in group.ops if isinstance(op, ops.AllOf))
    assert [importers.from_timm(auto_augment=f"rand-m9-n{n}").recipe.num_passes for n in (1, 3, 4)] == [2, 4, 1]
    notes = [importers.from_timm(auto_augment=f"rand-m9-n{n}").notes for n in (3, 4)]
    once = "crop, auto_augment: one look-up here, less blurred than by timm, which interpolates each time."
    assert notes == [(), ("auto_augment: geometry acts before tone.", once)]
    assert importers.from_timm(auto_augment="rand-m9", interpolation="bicubic").recipe.fused().num_passes == 1


def test_one_number_normalises_all_channels() -> None:
    found = importers.from_timm(auto_augment="rand-m9", mean=0.5, std=[0.25])
    assert found.recipe.ops[-1] == ops.Normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    assert found.recipe.fill == (128, 128, 128)


@pytest.mark.parametrize("policy", ["3a", "rand-m9-t3a"])
@pytest.mark.parametrize("interpolation", ["bicubic", "random"])
def test_what_blurs_is_a_filter_where_the_look_up_is_not_bilinear(policy: str, interpolation: str) -> None:
    made = recipes.from_timm(auto_augment=policy, interpolation=interpolation)
    names = {op.op for group in made.ops for op in group.flat}
    assert "gaussian_blur" in names and "blur" not in names


def test_3a_moves_nothing() -> None:
    (row,) = (
        one
        for one in importers.from_timm(auto_augment="3a", interpolation="bicubic").rows
        if one.name == "auto_augment"
    )
    assert row.note == "" and row.look is None


def test_3a_keeps_the_jitter() -> None:
    made = recipes.from_timm(auto_augment="3a", color_jitter=(0.3, 0.2, 0.1, 0.05), color_jitter_prob=0.8)
    jitter = ops.ColorJitter(brightness=0.3, contrast=0.2, saturation=0.1, hue=0.05, about="mean", space="hsv", p=0.8)
    assert made.ops[2:-1] == (*policies.timm("3a"), jitter)
    forced = recipes.from_timm(auto_augment="rand-m9", force_color_jitter=True)
    assert isinstance(forced.ops[-2], ops.ColorJitter)


def test_evaluation() -> None:
    found = importers.from_timm(input_size=224, is_training=False, crop_pct=0.9)
    assert found.recipe.ops == (ops.CenterCrop(size=(224, 224), scale=248), ops.Normalize())
    assert importers.from_timm(is_training=False).recipe.ops[0] == ops.CenterCrop(size=(224, 224), scale=256)
    assert importers.from_timm(no_aug=True).recipe.ops[0] == ops.CenterCrop(size=(224, 224), scale=224)


def test_settings_of_evaluation_alone_need_is_training() -> None:
    """As `resolve_data_config` gives them, which timm takes for evaluation, and we would for training."""
    settings = {"input_size": (3, 96, 96), "crop_pct": 0.9, "crop_mode": "center"}
    with pytest.raises(ValueError, match="crop_pct: is a setting of evaluation, and is_training, not given"):
        importers.from_timm(**settings)
    assert importers.from_timm(**settings, is_training=True).recipe.ops[0].op == "random_resized_crop"
    assert importers.from_timm(**settings, is_training=False).recipe.ops[0].op == "center_crop"


def test_all_problems_are_listed() -> None:
    with pytest.raises(ValueError, match="timm's transforms cannot be imported") as caught:
        importers.from_timm(
            input_szie=3, train_crop_mode="rkrc", auto_augment="augmix-m3", re_prob=0.2, re_mode="rand", separate=True
        )
    message = str(caught.value)
    problems = (
        "'input_size' is",
        "'rkrc' is not mapped",
        "blends several",
        "re_mode: 'rand'",
        "separate",
        "5 of timm's",
    )
    for problem in problems:
        assert problem in message, problem


def test_what_no_op_takes_is_told_by_the_argument() -> None:
    with pytest.raises(ValueError, match="arguments: hflip or vflip=3 must be a probability in 0..1"):
        importers.from_timm(hflip=3)
    with pytest.raises(ValueError, match="arguments: re_prob=2 must be a probability in 0..1"):
        importers.from_timm(re_prob=2)


def test_erasing() -> None:
    for mode, fill in (("const", "mean"), ("pixel", "noise")):
        made = next(op.model_dump() for op in recipes.from_timm(re_prob=0.25, re_mode=mode).ops if op.op == "erase")
        assert (made["p"], made["fill"], made["scale"]) == (0.25, fill, (0.02, 1 / 3))


def test_nothing_is_erased_without_normalisation() -> None:
    made = recipes.from_timm(re_prob=0.25, normalize=False).ops
    assert not {"erase", "normalize"} & {op.op for op in made}


def test_an_image_is_squashed_where_timm_squashes_it() -> None:
    found = importers.from_timm(input_size=(3, 96, 96), no_aug=True)
    assert (found.recipe.ops[0], found.notes) == (ops.Resize(size=(96, 96)), ())
    found = importers.from_timm(input_size=96, is_training=False, crop_mode="squash", crop_pct=0.75)
    assert found.recipe.ops[:2] == (ops.Resize(size=(128, 128)), ops.CenterCrop(size=96))
    assert importers.from_timm(input_size=96, no_aug=True).recipe.ops[0] == ops.CenterCrop(size=(96, 96), scale=96)
    found = importers.from_timm(input_size=(3, 96, 60), is_training=False, crop_mode="squash", crop_pct=0.75)
    assert found.recipe.ops[:2] == (ops.Resize(size=(128, 80)), ops.CenterCrop(size=(96, 60)))
    found = importers.from_timm(input_size=(3, 96, 60), is_training=True, no_aug=True)
    assert found.recipe.ops[0] == ops.Resize(size=(96, 60))


def test_a_border_of_the_mean_is_shown_around_all_of_an_image() -> None:
    found = importers.from_timm(input_size=90, is_training=False, crop_mode="border", crop_pct=0.9, normalize=False)
    shown = np.asarray(Augment(found.recipe, dtype="uint8", layout="NHWC")(np.full((100, 200, 3), 255, np.uint8)))
    white = (shown == 255).all(-1)
    assert white[20:70].all() and not white[:20].any() and not white[70:].any()  # of 50x100, which lose 5 at each end
    assert (shown[~white] == (124, 116, 104)).all()


def test_no_aug_is_for_training_only_and_leaves_no_other_crop_mode() -> None:
    """timm's evaluation ignores `no_aug`, and its training without augmentation crops without `crop_mode`."""
    evaluated = importers.from_timm(input_size=96, is_training=False, no_aug=True, crop_pct=0.75).recipe.ops[0]
    assert evaluated == ops.CenterCrop(size=(96, 96), scale=128)
    plain = importers.from_timm(input_size=96, no_aug=True, crop_mode="squash", interpolation="random").recipe
    assert (plain.ops[0], plain.interpolation) == (ops.CenterCrop(size=(96, 96), scale=96), "bilinear")


def test_what_is_not_mapped_is_taken_at_timms_value() -> None:
    assert importers.from_timm(**UNMAPPED).recipe == importers.from_timm().recipe
    with pytest.raises(ValueError, match="naflex: True is not mapped; False is"):
        importers.from_timm(naflex=True)


def test_arguments_are_timms() -> None:
    """The installed timm's own, where it is installed."""
    reference = pytest.importorskip("timm.data").create_transform
    own = {name: field.default for name, field in inspect.signature(reference).parameters.items()}
    known = DEFAULTS | UNMAPPED | {"is_training": False}
    assert {name: known[name] for name in own} == own
    # force_color_jitter is an argument of the function below create_transform
    assert known.keys() - own.keys() == {"force_color_jitter"}


def timms_terms(one: Any, p: float) -> tuple[str, list[float]]:
    """A transform of timm's chain as the name of an op here, and its numbers."""
    kind = type(one).__name__
    if kind == "RandomResizedCropAndInterpolation":
        return "random_resized_crop", [*one.size, *one.scale, *one.ratio]
    if kind in ("RandomHorizontalFlip", "RandomVerticalFlip"):
        return f"flip {kind[6:-4].lower()}", [one.p]
    if kind == "ColorJitter":
        reach = [high - 1 for _, high in (one.brightness, one.contrast, one.saturation)]
        return "color_jitter", [p, *reach, one.hue[1] if one.hue else 0.0]
    if kind == "RandomGrayscale":
        return "grayscale", [one.p]
    if kind == "GaussianBlur":
        return "gaussian_blur", [p, *one.sigma, one.kernel_size[0]]
    if kind == "Normalize":
        return "normalize", [*one.mean.tolist(), *one.std.tolist()]
    assert kind == "RandomErasing"
    fill = "noise" if one.per_pixel else "mean"
    ratio = [math.exp(end) for end in one.log_aspect_ratio]
    return f"erase {fill}", [one.probability, one.min_area, one.max_area, *ratio]


def our_terms(op: ops.Op) -> tuple[str, list[float]]:
    """The same of an op of ours."""
    fields = op.model_dump()
    name, names = {
        "random_resized_crop": ("{op}", ("size", "scale", "ratio")),
        "flip": ("{op} {direction}", ("p",)),
        "color_jitter": ("{op}", ("p", "brightness", "contrast", "saturation", "hue")),
        "grayscale": ("{op}", ("p",)),
        "gaussian_blur": ("{op}", ("p", "sigma_px", "kernel_px")),
        "normalize": ("{op}", ("mean", "std")),
        "erase": ("{op} {fill}", ("p", "scale", "ratio")),
    }[op.op]
    return name.format(**fields), np.hstack([fields[each] for each in names]).tolist()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"input_size": (3, 96, 80), "scale": (0.3, 1.0), "ratio": (0.5, 2.0), "hflip": 0.3, "vflip": 0.25},
        {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25, "re_mode": "pixel", "interpolation": "bicubic"},
        {"auto_augment": "3a", "color_jitter": 0.3, "re_prob": 0.1, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.3)},
        {"color_jitter": (0.4, 0.3, 0.2, 0.1), "color_jitter_prob": 0.8, "grayscale_prob": 0.2},
        {"gaussian_blur_prob": 0.3, "color_jitter": None, "re_prob": 0.5, "normalize": False},
    ],
)
def test_a_chain_is_timms(arguments: dict[str, Any]) -> None:
    """Each of timm's transforms, by its own attributes, where it is installed."""
    chain = pytest.importorskip("timm.data").create_transform(is_training=True, **arguments).transforms
    made = iter(importers.from_timm(**arguments).recipe.ops)
    for one in chain:
        p = 1.0
        if type(one).__name__ == "RandomApply":
            p, (one,) = one.p, one.transforms
        if type(one).__name__ in ("RandAugment", "AutoAugment"):
            for op in policies.timm(arguments["auto_augment"]):
                assert next(made) in (op, changed(op, own_look=arguments.get("interpolation", "bilinear")))
        elif type(one).__name__ not in ("MaybeToTensor", "MaybePILToTensor"):
            (found, numbers), (wanted, reference) = our_terms(next(made)), timms_terms(one, p)
            assert found == wanted and numbers == pytest.approx(reference), found
    assert next(made, None) is None


CHAINS: tuple[dict[str, Any], ...] = (
    {"is_training": True, "auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25, "interpolation": "bicubic"},
    {"is_training": True, "auto_augment": "rand-tweights-p0.3", "interpolation": "random", "normalize": False},
    {"is_training": True, "auto_augment": "rand-m15-n3-mmax20-mstd101", "input_size": (3, 96, 80), "hflip": 0.3},
    {"is_training": True, "auto_augment": "3a", "color_jitter": ((0.7, 1.3),) * 3, "mean": (0.5, 0.4, 0.3)},
    *({"is_training": True, "auto_augment": name, "vflip": 0.25} for name in ("original", "originalr", "v0", "v0r")),
    {"is_training": True, "color_jitter": ((0.6, 1.4), 0.0, (0.8, 1.2), (-0.1, 0.1)), "color_jitter_prob": 0.8},
    {"is_training": True, "color_jitter": None, "grayscale_prob": 0.2, "gaussian_blur_prob": 0.3, "hflip": 0.0},
    {"is_training": True, "color_jitter": None, "re_prob": 0.4, "re_mode": "pixel", "re_count": 3, "scale": (0.3, 1)},
    {"is_training": True, "no_aug": True},
    {"is_training": False, "input_size": (3, 256, 256), "crop_pct": 0.95, "interpolation": "bicubic"},
    {"is_training": False, "crop_mode": "border", "mean": (0.5, 0.5, 0.5)},
    {"is_training": False, "crop_mode": "border", "mean": (0.2, 0.4, 0.6), "normalize": False},
    {"is_training": False, "crop_mode": "squash", "normalize": False},
    {"is_training": False, "crop_mode": "squash", "input_size": (3, 224, 256)},
    {"is_training": True, "no_aug": True, "input_size": (3, 224, 256)},
    {"is_training": False, "input_size": 64, "crop_pct": 1.0},
    {"is_training": True, "no_aug": True, "mean": (0, 0, 0), "std": (1, 1, 1)},
    {"is_training": True, "auto_augment": "rand-m9-mstd0", "mean": (0, 0, 0), "hflip": 1, "scale": (1, 1)},
    {"is_training": True, "color_jitter": 0.0, "std": (1, 1, 1)},
)


@pytest.mark.parametrize("arguments", CHAINS)
def test_a_chain_that_is_made_is_imported_as_its_arguments(arguments: dict[str, Any]) -> None:
    made = pytest.importorskip("timm.data").create_transform(**arguments)
    found, expected = importers.from_timm(made), importers.from_timm(**arguments)
    told = [note for note in found.notes if note not in expected.notes]
    is_noted = arguments["is_training"] and not arguments.get("normalize", True)
    assert (found.recipe, found.rows) == (expected.recipe, expected.rows)
    assert [note.partition(".")[0] for note in told] == ["normalize: the chain ends without it"] * is_noted
    assert recipes.from_timm(made) == importers.from_torchvision(made).recipe == importers.from_timm(**arguments).recipe


class Interpolation(Enum):
    BICUBIC = "bicubic"


def chain(*listed: tuple[str, dict[str, Any]], name: str = "Compose") -> Any:
    """An object that looks like a chain of transforms."""
    parts = [type(kind, (), settings)() for kind, settings in listed]
    return type(name, (), {"transforms": parts})()


CROPPED = ("RandomResizedCropAndInterpolation", {"size": (64, 64), "scale": (0.2, 1.0), "ratio": (0.8, 1.25)})
CROPPED[1]["interpolation"] = ("bilinear", "bicubic")
NORMALIZED = ("Normalize", {"mean": [0.485, 0.456, 0.406], "std": [0.2290000021457672, 0.224, 0.225]})
CROPPED_OR_PADDED = ("CenterCropOrPad", {"size": (64, 64), "fill": 0, "padding_mode": "reflect"})
TENSOR: tuple[str, dict[str, Any]] = ("MaybeToTensor", {})


def test_a_chain_is_read_back_where_timm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "timm.data", raising=False)
    erased = ("RandomErasing", {"probability": 0.25, "mode": "pixel", "max_count": 3, "num_splits": 0})
    turned = ("RandomHorizontalFlip", {"p": 0.5})
    found = importers.from_timm(chain(CROPPED, turned, TENSOR, NORMALIZED, erased))
    wanted = {"scale": (0.2, 1.0), "ratio": (0.8, 1.25), "interpolation": "random", "color_jitter": None}
    assert found == importers.from_timm(input_size=64, re_prob=0.25, re_mode="pixel", re_count=3, **wanted)
    resized = ("Resize", {"size": 73, "interpolation": Interpolation.BICUBIC})
    evaluated = importers.from_timm(chain(resized, ("CenterCrop", {"size": (64, 64)}), TENSOR, NORMALIZED))
    assert evaluated == importers.from_timm(is_training=False, input_size=64, interpolation="bicubic")


class RandomHorizontalFlip(SimpleNamespace):
    """A transform that is equal to no other one of its kind."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def test_numbers_of_a_chain_may_be_rounded_or_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    given = chain(CROPPED)
    cropped = given.transforms[0]
    given.transforms = [cropped, RandomHorizontalFlip(p=1, white=np.array([1, 1]))]
    for p, white, is_same in ((1.0, (1.0, 1.0), True), (1.0 - 1e-7, [1, 1], True), (0.9, [1, 1], False)):
        again = type(given)()
        again.transforms = (cropped, RandomHorizontalFlip(p=p, white=white))
        stand_in = SimpleNamespace(create_transform=lambda again=again, **arguments: again)
        monkeypatch.setitem(sys.modules, "timm.data", stand_in)
        if is_same:
            assert importers.from_timm(given).recipe.ops[1] == ops.Flip(p=1)
        else:
            with pytest.raises(ValueError, match="create_transform makes another chain"):
                importers.from_timm(given)


def test_what_create_transform_does_not_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"create_transform: ToMine is not read back\. Give from_timm its arguments"):
        importers.from_timm(chain(CROPPED, ("ToMine", {})))
    for other in (chain(NORMALIZED), ops.Flip()):
        with pytest.raises(ValueError, match=r"a (Compose|Flip) is not what create_transform makes\. Give from_timm"):
            importers.from_timm(other)
    with pytest.raises(ValueError, match="from_timm takes a transform or arguments, and hflip is given, too"):
        importers.from_timm(chain(CROPPED), hflip=0.5)
    changed = chain(("RandomHorizontalFlip", {"p": 0.5}), CROPPED)
    monkeypatch.setitem(sys.modules, "timm.data", SimpleNamespace(create_transform=lambda **arguments: "another chain"))
    with pytest.raises(ValueError, match="create_transform makes another chain of the arguments that this one shows"):
        importers.from_timm(changed)


@pytest.mark.parametrize(
    ("arguments", "listed"),
    [
        (
            {"train_crop_mode": "rkrc"},
            [("ResizeKeepRatio", {"size": (64, 64), "interpolation": Interpolation.BICUBIC}), CROPPED_OR_PADDED],
        ),
        ({"train_crop_mode": "rkrr"}, [("RandomCropOrPad", {})]),
        ({"auto_augment": "augmix"}, [CROPPED, ("AugMixAugment", {})]),
        ({"naflex": True}, [("RandomResizedCropToSequence", {})]),
        ({"naflex": True}, [("ResizeToSequence", {})]),
        ({"patchify": True}, [CROPPED, ("Patchify", {})]),
        ({"crop_border_pixels": 3, "is_training": False}, [("TrimBorder", {})]),
    ],
)
def test_a_chain_of_what_is_not_mapped_is_refused_as_its_argument(
    arguments: dict[str, Any], listed: list[tuple[str, dict[str, Any]]]
) -> None:
    """By `from_torchvision`, too; and all else of it is imported where it may be."""
    made = chain(*listed, TENSOR, NORMALIZED)
    type(made.transforms[0]).__module__ = "timm.data.transforms"
    with pytest.raises(ValueError, match="of timm's transforms cannot be imported") as of_arguments:
        importers.from_timm(**{"is_training": True} | arguments)
    told = str(of_arguments.value).split("\n")[1].strip()
    for take in (importers.from_timm, importers.from_torchvision):
        with pytest.raises(ValueError, match=r"1 of timm's transforms cannot be imported") as of_chain:
            take(made)
        assert told in str(of_chain.value)
    left = importers.from_torchvision(made, strict=False)
    assert [row.name for row in left.rows if row.verdict == "left out"] == [told.partition(":")[0]]
    assert left.recipe.ops[-1] == ops.Normalize()


def test_a_chain_of_evaluation_that_is_not_square_is_refused_for_that() -> None:
    resized: tuple[str, dict[str, Any]] = (
        "ResizeKeepRatio",
        {"size": (256, 292), "interpolation": Interpolation.BICUBIC},
    )
    made = chain(resized, ("CenterCrop", {"size": (224, 256)}), TENSOR, NORMALIZED)
    with pytest.raises(ValueError, match=r"input_size: 224x256 of evaluation is not square; crop_mode='squash' is map"):
        importers.from_timm(made)


def test_what_mixes_images_is_answered_by_what_to_write() -> None:
    with pytest.raises(ValueError, match="cannot be imported") as raised:
        importers.from_timm(mixup=0.8, cutmix=1.0, smoothing=0.1)
    told = str(raised.value)
    assert "mixup: mixes a batch, which is the recipe's to say; write Recipe(mixing=[ops.MixUp(alpha=0.8)])" in told
    assert "cutmix: mixes a batch, which is the recipe's to say; write Recipe(mixing=[ops.CutMix(alpha=1.0)])" in told
    assert "smoothing: is the loss's; write torch.nn.CrossEntropyLoss(label_smoothing=0.1)" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"crop_border_pixels": 4}, "crop_border_pixels: trims the border, which is not mapped; None is"),
        ({"crop_mode": "foo"}, "crop_mode: 'foo' is not mapped; 'center', 'squash' and 'border' are"),
        ({"crop_pct": 1.1}, "crop_pct: 1.1 pads what it resizes, which is not mapped; at most 1 is"),
        ({"interpolation": "random"}, "interpolation: 'random' is not one of evaluation"),
        ({"interpolation": "bicubik"}, "interpolation: 'bicubik' is not known here; 'bicubic' is"),
        ({"input_size": "64"}, "input_size: '64' is not mapped; whole pixels, as 224 or"),
        ({"input_size": (3, 64.5, 64)}, "input_size: .* is not mapped; whole pixels, as 224 or"),
        ({"is_training": True, "scale": 0.5}, "scale: 0.5 is not two numbers"),
        ({"is_training": True, "ratio": (0.5,)}, r"ratio: \(0.5,\) is not two numbers"),
        ({"is_training": True, "color_jitter": (0.1, 0.2)}, r"color_jitter: \(0.1, 0.2\) is not one number, three or"),
    ],
)
def test_what_timm_does_not_take_is_refused_by_name(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        importers.from_timm(**{"is_training": False, **arguments})


def test_a_part_of_a_batch_that_is_not_erased_is_told() -> None:
    """timm's loader, which takes the place of the chain's end, erases no image of the first split."""
    erased: dict[str, Any] = {"re_prob": 0.5, "re_num_splits": 2}
    assert importers.from_timm(**erased).notes == ()  # a chain has no batches
    (note,) = importers.from_timm(**erased, use_prefetcher=True).notes
    assert note.startswith("re_num_splits: ") and "1/2 of each batch" in note
    assert importers.from_timm(re_num_splits=2, use_prefetcher=True).notes == ()
