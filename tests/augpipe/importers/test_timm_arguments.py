"""timm's `create_transform` arguments as recipes."""

import pytest

from augpipe import importers, ops, policies, recipes


def test_defaults_are_timms() -> None:
    found = importers.from_timm()
    assert found.recipe.ops == (
        ops.RandomResizedCrop(size=(224, 224)),
        ops.Flip(),
        ops.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4),
        ops.Normalize(),
    )
    assert len(found.notes) == 1 and found.recipe.border == "context"


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
        *policies.timm("rand-m9-mstd0.5-inc1"),
        ops.Grayscale(p=0.1),
        ops.Blur(sigma_px=(0.1, 2), p=0.2),
        ops.Normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
    )
    assert (found.recipe.border, found.recipe.fill) == ("constant", (128, 128, 128))
    assert [note.split(":")[0] for note in found.notes] == [
        "interpolation='bicubic' becomes bilinear.",
        *("auto_augment", "auto_augment", "gaussian_blur_prob"),
    ]


def test_3a_keeps_the_jitter() -> None:
    made = recipes.from_timm(auto_augment="3a", color_jitter=(0.3, 0.2, 0.1, 0.05), color_jitter_prob=0.8)
    jitter = ops.ColorJitter(brightness=0.3, contrast=0.2, saturation=0.1, hue=0.05, p=0.8)
    assert made.ops[2:-1] == (*policies.timm("3a"), jitter)
    forced = recipes.from_timm(auto_augment="rand-m9", force_color_jitter=True)
    assert isinstance(forced.ops[-2], ops.ColorJitter)


def test_evaluation() -> None:
    found = importers.from_timm(input_size=224, is_training=False, crop_pct=0.9)
    assert found.recipe.ops == (ops.CenterCrop(size=(224, 224), scale=248), ops.Normalize())
    assert importers.from_timm(is_training=False).recipe.ops[0] == ops.CenterCrop(size=(224, 224), scale=256)
    assert importers.from_timm(no_aug=True).recipe.ops[0] == ops.CenterCrop(size=(224, 224), scale=224)


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
        "re_mode, re_count",
        "separate",
        "5 of timm's",
    )
    for problem in problems:
        assert problem in message, problem


def test_erasing() -> None:
    for mode, fill in (("const", "mean"), ("pixel", "noise")):
        made = next(op.model_dump() for op in recipes.from_timm(re_prob=0.25, re_mode=mode).ops if op.op == "erase")
        assert (made["p"], made["fill"], made["scale"]) == (0.25, fill, (0.02, 1 / 3))
