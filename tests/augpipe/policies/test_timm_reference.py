"""timm's own policies beside ours, where timm is installed: ops, how often each comes, and its magnitudes."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from augpipe import ops, policies

reference = pytest.importorskip("timm.data.auto_augment")

Outcome = tuple[str, float]
"""An op as timm names it, and what it does to its argument; ("Identity", 0) is no change."""
UNCHANGED = ("Identity", 0.0)
ENHANCED = {"brightness": "Brightness", "saturation": "Color", "contrast": "Contrast", "sharpness": "Sharpness"}
PLAIN = {"auto_contrast": "AutoContrast", "equalize": "Equalize", "invert": "Invert"}
WHOLE_SIDE = 1.0
"""A translation of more than the side shows nothing more; ours stops there."""

RAND = (
    "rand",
    "rand-m0",
    "rand-m9",
    "rand-m9-inc0",
    "rand-m9-inc1",
    "rand-m7-n3-p0.25-inc1",
    "rand-m15-mmax12",
    "rand-m12-mmax12-inc1",
    "rand-m30-mmax30-inc1",
    "rand-m6-t3a",
    "rand-m9-n1-t3aw",
    "rand-m4-n1-tweights",
    *(f"rand-m{level}{inc}" for level in range(1, 11) for inc in ("", "-inc1")),
)
NORMAL = ("rand-m9-mstd0.5-inc1", "rand-m6-n1-mstd0.5", "rand-m5-mstd0.4-inc1", "rand-m8-mstd0.5-mmax12-n4")
"""Levels that timm draws from a normal distribution and we from an even one; all are below the largest."""


def timms(op: Any, magnitude: float) -> dict[Outcome, float]:
    """The outcomes of one of timm's ops at a magnitude, each with its share: a coin decides on the sign."""
    most = op.magnitude_max or reference._LEVEL_DENOM
    if op.level_fn is None:
        return {(op.name, 0.0): 1.0}
    drawn: set[float] = set()
    for _ in range(40):
        (value,) = op.level_fn(max(0.0, min(magnitude, most)), op.hparams)
        drawn.add(value)
    name = re.sub("Increasing|Original|Rel|Rand", "", op.name)
    shares: dict[Outcome, float] = defaultdict(float)
    for value in drawn:
        if name == "Desaturate":
            outcome = ("Color", 1.0 - value)
        elif name in ("TranslateX", "TranslateY"):
            outcome = (name, max(-WHOLE_SIDE, min(value, WHOLE_SIDE)))
        elif name == "Posterize":
            outcome = (name, float(max(0, min(value, 8))))  # fewer bits than none are none
        else:
            outcome = (name, float(value))
        outcome = (outcome[0], round(outcome[1], 6))
        is_none = outcome[1] == {"Posterize": 8.0, "Solarize": 256.0, **dict.fromkeys(ENHANCED.values(), 1.0)}.get(name)
        is_none |= outcome[1] == 0 and name.startswith(("Rotate", "Shear", "Translate", "SolarizeAdd"))
        shares[UNCHANGED if is_none else outcome] += 1.0 / len(drawn)
    return shares


def ends_of(op: ops.Op) -> tuple[str, float, float]:
    """timm's name of an op of ours, and its smallest and largest argument."""
    if isinstance(op, ops.Rotate):
        return "Rotate", *op.limits
    if isinstance(op, ops.Shear):
        name, (low, high) = ("ShearX", op.horizontal_deg) if any(op.horizontal_deg) else ("ShearY", op.vertical_deg)
        return name, math.tan(math.radians(low)), math.tan(math.radians(high))
    if isinstance(op, ops.Translate):
        name, (low, high) = ("TranslateX", op.horizontal) if any(op.horizontal) else ("TranslateY", op.vertical)
        return name, low, high
    if isinstance(op, ops.Posterize):
        return "Posterize", *op.bits
    if isinstance(op, ops.Solarize):
        return "Solarize", *op.threshold
    if isinstance(op, ops.SolarizeAdd):
        return "SolarizeAdd", *op.addition
    if isinstance(op, ops.Blur):
        return "GaussianBlur", *op.sigma_px
    if op.op in ENHANCED:
        low, high = op.factor
        return ENHANCED[op.op], low, high
    return {**PLAIN, "identity": "Identity"}[op.op], 0.0, 0.0


def ours(choices: Iterator[tuple[ops.Op, float]]) -> dict[Outcome, float]:
    """The outcomes of ops of which each has at most two, with their shares."""
    shares: dict[Outcome, float] = defaultdict(float)
    for op, weight in choices:
        name, low, high = ends_of(op)
        values = (low, high) if low != high else (low,)
        assert len(values) == 1 or op.num_variants == 2, op
        for value in values:
            value = round(value, 6)
            is_none = (name, value) in (("SolarizeAdd", 0), ("Posterize", 8), ("Solarize", 256))
            is_none |= value == 1 and name in ENHANCED.values()
            shares[UNCHANGED if is_none else (name, value)] += weight / len(values)
    return shares


def weighted(choice: ops.OneOf) -> Iterator[tuple[ops.Op, float]]:
    weights = choice.weights or (1.0,) * len(choice.ops)
    return ((op, weight / sum(weights)) for op, weight in zip(choice.ops, weights, strict=True))


@pytest.mark.parametrize("name", RAND)
def test_one_strength_is_timms(name: str) -> None:
    wanted = reference.rand_augment_transform(name, {"img_mean": (124, 116, 104)})
    layers = policies.timm(name)
    assert len(layers) == wanted.num_layers and len(set(map(id, wanted.ops))) == len(wanted.ops)
    weights = wanted.choice_weights if wanted.choice_weights is not None else [1 / len(wanted.ops)] * len(wanted.ops)
    expected: dict[Outcome, float] = defaultdict(float)
    for op, weight in zip(wanted.ops, weights, strict=True):
        for outcome, share in timms(op, op.magnitude).items():
            expected[outcome] += share * weight
    for layer in layers:
        assert isinstance(layer, ops.OneOf)
        assert {op.prob for op in wanted.ops} == {layer.p}
        assert ours(weighted(layer)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", NORMAL)
def test_levels_that_vary_lie_about_timms(name: str) -> None:
    wanted = reference.rand_augment_transform(name, {"img_mean": (124, 116, 104)})
    layers = policies.timm(name)
    assert len(layers) == wanted.num_layers
    assert isinstance(layers[0], ops.OneOf) and {op.prob for op in wanted.ops} == {layers[0].p}
    found: Counter[str] = Counter()
    middles: dict[str, list[float]] = defaultdict(list)
    for op, weight in weighted(layers[0]):
        own, low, high = ends_of(op)
        found[own] += round(weight * len(wanted.ops) * 1e6)
        middles[own].append((low + high) / 2)
        deviation = wanted.ops[0].magnitude_std
        if own in ("Rotate", "ShearX", "TranslateY"):
            full = {"Rotate": 30.0, "ShearX": 0.3, "TranslateY": 0.45}[own]
            assert (high - low) / math.sqrt(12) == pytest.approx(deviation / 10 * full, rel=1e-6), own
    for op in wanted.ops:
        by_size = sorted(value for _, value in timms(op, op.magnitude))
        own = re.sub("Increasing|Original|Rel|Rand", "", op.name)
        assert found[own] == pytest.approx(1e6, abs=1), own
        if own not in ("Posterize", "Solarize", "SolarizeAdd"):  # whole numbers, of which a range is cut
            assert sorted(middles[own]) == pytest.approx(by_size, abs=1e-6), own


@pytest.mark.parametrize("name", ["original", "originalr", "v0", "v0r"])
def test_sub_policies_are_timms(name: str) -> None:
    wanted: Counter[Any] = Counter()
    for steps in reference.auto_augment_transform(name, {"img_mean": (124, 116, 104)}).policy:
        named = [(step.prob, timms(step, step.magnitude)) for step in steps]
        wanted[frozen((p, outcomes) for p, outcomes in named if p and list(outcomes) != [UNCHANGED])] += 1
    (choice,) = policies.timm(name)
    assert isinstance(choice, ops.OneOf)
    made: Counter[Any] = Counter()
    total = len(reference.auto_augment_transform(name, {}).policy)
    for op, weight in weighted(choice):
        steps = op.ops if isinstance(op, ops.AllOf) else (op,)
        named = [(getattr(step, "p", 1.0), ours(iter([(step, 1.0)]))) for step in steps]
        made[frozen((p, outcomes) for p, outcomes in named if p and list(outcomes) != [UNCHANGED])] += round(
            weight * total
        )
    assert made == wanted


def test_three_augment_is_timms() -> None:
    wanted = [step for (step,) in reference.auto_augment_transform("3a", {"img_mean": (124, 116, 104)}).policy]
    assert [step.prob for step in wanted] == [1.0] * 3
    assert [dict(timms(step, step.magnitude)) for step in wanted] == [
        {("Solarize", 128.0): 1.0},
        {("Color", 0.0): 1.0},  # gray
        {("GaussianBlur", 1.0): 1.0},  # from 0.1 to 2 pixels, times this
    ]
    assert policies.timm("3a") == (
        ops.OneOf(ops=(ops.Solarize(threshold=(128, 128), p=1), ops.Grayscale(p=1), ops.Blur(sigma_px=(0.1, 2), p=1))),
    )


def frozen(steps: Iterator[tuple[float, dict[Outcome, float]]]) -> Any:
    return tuple((p, tuple(sorted(outcomes.items()))) for p, outcomes in steps)
