"""TrivialAugment, RandAugment, AutoAugment and 3-Augment: their magnitudes and how often each comes."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from augpipe import Recipe, ops, plan, policies, recipes
from augpipe.ops.frame import Frame
from augpipe.ops.random_words import RandomWords
from tests.augpipe.policies.reference_tables import (
    AUTO_BITS,
    RAND,
    RAND_BITS,
    THRESHOLDS,
    WIDE,
    WIDE_BITS,
)

Outcome = tuple[str, float]
"""An op of torchvision and its magnitude; ("Identity", 0) is no change."""
UNCHANGED = ("Identity", 0.0)
ENHANCED = {"brightness": "Brightness", "saturation": "Color", "contrast": "Contrast", "sharpness": "Sharpness"}


def drawn_values(op: ops.Op) -> dict[str, np.ndarray[Any, Any]]:
    """What an op draws over all of its random words, evenly."""
    words = np.zeros((7320, max(op.num_words, 3)), np.uint32)  # a multiple of 61, 31, 5 and 2
    every = ((np.arange(7320) + 0.5) / 7320 * 2**32).astype(np.uint32)
    words[:, 1] = words[:, 2] = every
    return op.draw(RandomWords(words), Frame(np.full(7320, 100), np.full(7320, 100)))


def outcomes(op: ops.Op) -> Iterator[tuple[Outcome, float]]:
    """Each outcome of an op in torchvision's terms, with its share."""
    if not op.num_words:
        yield UNCHANGED, 1.0
        return
    drawn = drawn_values(op)
    if isinstance(op, ops.Shear):
        assert op.about == "corner"
        name = "ShearX" if any(op.horizontal_deg) else "ShearY"
        values = np.tan(np.deg2rad(drawn["horizontal_deg"] + drawn["vertical_deg"]))
    elif isinstance(op, ops.Translate):
        name = "TranslateX" if any(op.horizontal) else "TranslateY"
        values = drawn["horizontal"] + drawn["vertical"]
    elif isinstance(op, ops.Rotate):
        name, values = "Rotate", drawn["degrees"]
    elif isinstance(op, ops.Posterize):
        name, values = "Posterize", drawn["bits"] - 8.0
    elif isinstance(op, ops.Solarize):
        name, values = "Solarize", drawn["threshold"] - 256.0
    elif op.op in ENHANCED:
        assert not isinstance(op, ops.Contrast) or op.about == "mean"
        name, values = ENHANCED[op.op], drawn["factor"] - 1.0
    else:
        assert drawn["applied"].all()
        name, values = {"auto_contrast": "AutoContrast", "equalize": "Equalize"}[op.op], np.ones(7320)
    for value, num in Counter(np.round(values, 6).tolist()).items():
        yield (name, value) if value else UNCHANGED, num / len(values)


def distribution(choice: ops.Op) -> dict[Outcome, float]:
    assert isinstance(choice, ops.OneOf) and choice.p == 1.0
    weights = choice.weights or (1.0,) * len(choice.ops)
    shares: dict[Outcome, float] = defaultdict(float)
    for op, weight in zip(choice.ops, weights, strict=True):
        for outcome, share in outcomes(op):
            shares[outcome] += share * weight / sum(weights)
    return shares


def expected(most: dict[str, float], bits: list[int], bins: list[int]) -> dict[Outcome, float]:
    """torchvision's: one of 14 ops, one of the bins, one of two signs."""
    shares: dict[Outcome, float] = defaultdict(float, {UNCHANGED: 1 / 14})
    shares["AutoContrast", 1.0] = shares["Equalize", 1.0] = 1 / 14
    for place in bins:
        for name, largest in most.items():
            for sign in (-1, 1):
                value = round(sign * largest * place / 30, 6)
                shares[(name, value) if value else UNCHANGED] += 1 / 14 / len(bins) / 2
        num = bits[place]
        shares[("Posterize", num - 8.0) if num < 8 else UNCHANGED] += 1 / 14 / len(bins)
        shares["Solarize", math.ceil(THRESHOLDS[place]) - 256.0] += 1 / 14 / len(bins)
    return shares


def same(found: dict[Outcome, float], wanted: dict[Outcome, float], precision: float) -> None:
    assert found.keys() == wanted.keys()
    for outcome, share in wanted.items():
        assert found[outcome] == pytest.approx(share, abs=precision), outcome


def test_trivial_augment_has_torchvisions_magnitudes_as_often() -> None:
    (choice,) = policies.trivial_augment_wide()
    same(distribution(choice), expected(WIDE, WIDE_BITS, list(range(31))), 2e-5)


@pytest.mark.parametrize("magnitude", range(31))
def test_rand_augment_has_torchvisions_magnitudes(magnitude: int) -> None:
    first, second = policies.rand_augment(2, magnitude)
    assert first == second
    same(distribution(first), expected(RAND, RAND_BITS, [magnitude]), 1e-9)


def test_other_numbers_of_bins() -> None:
    (choice,) = policies.trivial_augment_wide(11)
    shares = distribution(choice)
    assert shares["Rotate", -13.5] == shares["Rotate", 135.0] == pytest.approx(1 / 14 / 22, abs=2e-5)
    (choice,) = policies.rand_augment(1, 5, 11)
    assert ("Rotate", 15.0) in distribution(choice)


def test_auto_augment_has_pairs_of_the_tables() -> None:
    (choice,) = policies.auto_augment("imagenet")
    assert isinstance(choice, ops.OneOf) and choice.weights is not None
    assert sum(choice.weights) == 25 and len(choice.ops) == 20
    first = choice.ops[0]
    assert isinstance(first, ops.AllOf) and first.p == 1.0
    assert first.ops == (ops.Posterize(bits=(4, 4), p=0.4), ops.Rotate(max_deg=(-30, 30), step=60, p=0.6))
    (cifar,) = policies.auto_augment("cifar10")
    assert isinstance(cifar, ops.OneOf) and len(cifar.ops) == 25 and cifar.weights is None
    assert cifar.ops[14] == ops.Solarize(threshold=(199, 199), p=0.5)  # with an Invert of p = 0, and 255 - 2 * 28.3
    moved = cifar.ops[3]
    assert isinstance(moved, ops.AllOf)
    assert distribution(ops.OneOf(ops=(moved.ops[1].model_copy(update={"p": 1.0}),))) == {
        ("TranslateY", round(-150 / 331, 6)): 0.5,
        ("TranslateY", round(150 / 331, 6)): 0.5,
    }


@pytest.mark.parametrize("policy", ["imagenet", "cifar10"])
def test_auto_augment_is_torchvisions(policy: str) -> None:
    reference = pytest.importorskip("torchvision.transforms").AutoAugment
    found = reference()._get_policies(type(reference().policy)(policy))
    space = reference()._augmentation_space(10, (331, 331))
    (choice,) = policies.auto_augment(policy)
    assert isinstance(choice, ops.OneOf)
    weights = choice.weights or (1.0,) * len(choice.ops)
    wanted: Counter[Any] = Counter()
    for pair in found:
        steps = []
        for name, p, level in pair:
            value = 1.0 if level is None else float(space[name][0][level])
            value = {"Posterize": value - 8, "Solarize": math.ceil(value - 1e-3) - 256.0}.get(name, value)
            value = value / 331 if name.startswith("Translate") else value
            if p and value:
                steps.append((name, round(value, 5), p))
        wanted[tuple(steps)] += 1
    made: Counter[Any] = Counter()
    for op, weight in zip(choice.ops, weights, strict=True):
        steps = []
        for step in op.ops if isinstance(op, ops.AllOf) else (op,):
            if isinstance(step, ops.Invert):
                steps.append(("Invert", 1.0, step.p))
                continue
            values = [outcome for outcome, _ in outcomes(step.model_copy(update={"p": 1.0}))]
            assert len(values) == 1 or values[0][1] == -values[1][1]
            value = values[0][1] if values[0][0] in ("Posterize", "Solarize") else abs(values[0][1])
            steps.append((values[0][0], round(value, 5), step.p))
        made[tuple(steps)] += int(weight)
    assert made == wanted


def test_the_tables_of_the_tests_are_torchvisions() -> None:
    module = pytest.importorskip("torchvision.transforms")
    for reference, most, bits, side in (
        (module.TrivialAugmentWide()._augmentation_space(31), WIDE, WIDE_BITS, 1.0),
        (module.RandAugment()._augmentation_space(31, (331, 331)), RAND, RAND_BITS, 331.0),
        (module.AutoAugment()._augmentation_space(10, (331, 331)), RAND, AUTO_BITS, 331.0),
    ):
        for name, largest in most.items():
            values, is_signed = reference[name]
            unit = side if name.startswith("Translate") else 1.0
            np.testing.assert_allclose(values, np.linspace(0, largest * unit, len(bits)), rtol=1e-6)
            assert is_signed
        assert reference["Posterize"][0].tolist() == bits
        if len(bits) == 31:
            np.testing.assert_allclose(reference["Solarize"][0], THRESHOLDS, atol=1e-3)


def test_three_augment_is_deits() -> None:
    choice, jitter = policies.three_augment()
    assert choice == ops.OneOf(
        ops=(ops.Grayscale(p=1), ops.Solarize(threshold=(128, 128), p=1), ops.Blur(sigma_px=(0.1, 2), p=1))
    )
    assert jitter == ops.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3)
    assert policies.three_augment(0) == (choice,)


def test_recipes_hold_the_policy_between_flip_and_normalisation() -> None:
    made = recipes.trivial_augment_wide(96, border="constant", fill=(1, 2, 3))
    assert made.ops == (
        ops.RandomResizedCrop(size=96),
        ops.Flip(),
        *policies.trivial_augment_wide(),
        ops.Normalize(),
    )
    assert (made.border, made.fill) == ("constant", (1, 2, 3))
    assert recipes.trivial_augment_wide().border == "context"
    assert recipes.rand_augment(96, 3, 5).ops[2:-1] == policies.rand_augment(3, 5)
    assert recipes.auto_augment("cifar10", 32).ops[2:-1] == policies.auto_augment("cifar10")
    assert recipes.timm("rand-m9", 96).ops[2:-1] == policies.timm("rand-m9")
    assert recipes.three_augment(96).ops[2:-1] == policies.three_augment()


def test_which_op_an_image_got_is_in_its_plan() -> None:
    made = plan(recipes.trivial_augment_wide(), range(400), sizes=[(300, 400)] * 400)
    applied = made.rows["drawn"]["one_of"]["applied"]
    assert (applied.sum(axis=1) == 1).all()
    words = {text.split(" ")[0] for i in range(400) for key, text in made.captions(i) if key == "one_of"}
    assert {"shear", "moved", "brightness", "saturation", "contrast", "sharpness", "solarize"} <= words
    assert {"autocontrast", "equalize"} <= words


def test_wrong_arguments_name_what_is_known() -> None:
    with pytest.raises(ValueError, match=r"policy='svnh' is not known\. Those that are: 'imagenet', 'cifar10'\."):
        recipes.auto_augment("svnh")
    with pytest.raises(ValueError, match=r"magnitude must lie in 0\.\.30, but is 31"):
        recipes.rand_augment(magnitude=31)
    with pytest.raises(ValueError, match=r"n must lie in 1\.\.16, but is 0"):
        policies.rand_augment(0)


def test_a_policy_goes_through_toml() -> None:
    for made in (recipes.rand_augment(), recipes.timm("rand-m9-mstd0.5-inc1"), recipes.auto_augment("cifar10")):
        assert Recipe.model_validate(made.model_dump()) == made
