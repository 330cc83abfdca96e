"""timm's names: magnitudes by its formulas (timm/data/auto_augment.py), and what is said of a name that is none."""

import math

import numpy as np
import pytest

from augpipe import ops, policies
from augpipe.policies.timm_policies import read_name


def by_kind(name: str) -> dict[str, list[ops.Op]]:
    (choice, *_) = policies.timm(name)
    assert isinstance(choice, ops.OneOf)
    found: dict[str, list[ops.Op]] = {}
    for op in choice.ops:
        found.setdefault(op.op, []).append(op)
    return found


def tangents(op: ops.Op) -> list[float]:
    assert isinstance(op, ops.Shear) and op.about == "corner" and op.even_in == "tangent"
    return [math.tan(math.radians(angle)) for angle in (*op.horizontal_deg, *op.vertical_deg)]


def test_increasing_levels() -> None:
    found = by_kind("rand-m9-inc1")
    assert found["rotate"] == [ops.Rotate(max_deg=(-27, 27), step=54)]
    along_x, along_y = found["shear"]
    np.testing.assert_allclose(tangents(along_x) + tangents(along_y), (-0.27, 0.27, 0, 0, 0, 0, -0.27, 0.27))
    assert along_x.num_variants == along_y.num_variants == 2
    moved = [(*op.horizontal, *op.vertical) for op in found["translate"] if isinstance(op, ops.Translate)]
    np.testing.assert_allclose(moved, ((-0.405, 0.405, 0, 0), (0, 0, -0.405, 0.405)))
    assert found["posterize"] == [ops.Posterize(bits=(1, 1))]  # 4 - int(3.6)
    assert found["solarize"] == [ops.Solarize(threshold=(26, 26), p=1)]  # 256 - int(230.4)
    assert found["solarize_add"] == [ops.SolarizeAdd(addition=(99, 99))]
    for kind in ("brightness", "contrast", "saturation", "sharpness"):
        (op,) = found[kind]
        np.testing.assert_allclose((*op.factor, op.step), (0.19, 1.81, 1.62))
    assert found["contrast"][0].about == "mean"
    assert sum(len(same) for same in found.values()) == 15


def test_plain_levels() -> None:
    found = by_kind("rand-m9")
    assert found["posterize"] == [ops.Posterize(bits=(3, 3))]
    assert found["solarize"] == [ops.Solarize(threshold=(230, 230), p=1)]
    np.testing.assert_allclose(found["saturation"][0].factor, (1.72, 1.72))


def test_a_factor_stays_at_a_tenth() -> None:
    (op,) = by_kind("rand-m20-mmax20-inc1")["brightness"]
    np.testing.assert_allclose((*op.factor, op.step), (0.1, 2.8, 2.7))
    (op,) = by_kind("rand-m20-inc1")["brightness"]  # no mmax: 10
    np.testing.assert_allclose(op.factor, (0.1, 1.9))


def test_what_is_added_stops_at_half_of_the_levels() -> None:
    assert by_kind("rand-m12-mmax12")["solarize_add"] == [ops.SolarizeAdd(addition=(128, 128))]


def test_increasing_can_be_turned_off() -> None:
    assert policies.timm("rand-m9-inc0") == policies.timm("rand-m9")
    assert policies.timm("rand-m9-inc1") != policies.timm("rand-m9")


def test_layers_and_probability() -> None:
    choices = policies.timm("rand-n3-p0.25")
    assert len(choices) == 3 and choices[0] == choices[2] and choices[0].p == 0.25
    assert [choice.p for choice in policies.timm("rand")] == [0.5, 0.5]


def test_levels_that_vary_keep_mean_and_deviation() -> None:
    low, high = by_kind("rand-m6-mstd0.5-inc1")["rotate"]
    assert isinstance(low, ops.Rotate) and isinstance(high, ops.Rotate)
    assert low.step is high.step is None
    first, last = high.limits
    np.testing.assert_allclose(((first + last) / 2, (last - first) / math.sqrt(12)), (18, 1.5))
    np.testing.assert_allclose(low.limits, (-last, -first))
    np.testing.assert_allclose(by_kind("rand-m10-mstd2")["solarize_add"][0].model_dump()["addition"], (71, 110))
    assert by_kind("rand-m8-mstd101")["rotate"] == [ops.Rotate(max_deg=(-24, 24), step=None)]


def test_bits_come_as_often_as_their_levels() -> None:
    (choice, _) = policies.timm("rand-m5-mstd1-inc1")
    assert isinstance(choice, ops.OneOf) and choice.weights is not None
    shares = {
        op.bits[0]: weight
        for op, weight in zip(choice.ops, choice.weights, strict=True)
        if isinstance(op, ops.Posterize)
    }
    assert shares == {3: pytest.approx(0.5), 2: pytest.approx(0.5)}  # levels below and above 5


def test_half_weights_add_up() -> None:
    (choice, _) = policies.timm("rand-m9-mstd0.5-inc1")
    assert isinstance(choice, ops.OneOf) and choice.weights is not None
    assert sum(choice.weights) == pytest.approx(15)


def test_sets_of_ops() -> None:
    assert by_kind("rand-m10-t3a") == {
        "solarize": [ops.Solarize(threshold=(0, 0), p=1)],
        "saturation": [ops.Saturation(factor=(0, 0))],
        "blur": [ops.Blur(sigma_px=(2, 2), p=1)],
    }
    (choice, _) = policies.timm("rand-m6-t3aw")
    assert isinstance(choice, ops.OneOf) and choice.weights is not None and sum(choice.weights) == 33
    found = by_kind("rand-m6-w0")
    assert "posterize" not in found and "invert" not in found and len(found["shear"]) == 2


def test_auto_augment_by_timms_levels() -> None:
    (original,) = policies.timm("original")
    assert isinstance(original, ops.OneOf) and isinstance(original.ops[0], ops.AllOf)
    # int(0.8 * 4) + 4 bits, 0.9 * 30 degrees
    assert original.ops[0].ops == (ops.Posterize(bits=(7, 7), p=0.4), ops.Rotate(max_deg=(-27, 27), step=54, p=0.6))
    (increasing,) = policies.timm("originalr")
    assert isinstance(increasing, ops.OneOf) and isinstance(increasing.ops[0], ops.AllOf)
    assert increasing.ops[0].ops[0] == ops.Posterize(bits=(1, 1), p=0.4)
    (v0,) = policies.timm("v0")
    assert isinstance(v0, ops.OneOf) and isinstance(v0.ops[5], ops.AllOf)
    assert v0.ops[5].ops == (ops.Saturation(factor=(0.1, 0.1), p=0.2), ops.Equalize(p=0.8))
    (noisy,) = policies.timm("original-mstd0.5")
    assert isinstance(noisy, ops.OneOf) and isinstance(noisy.ops[0], ops.AllOf)
    assert isinstance(noisy.ops[0].ops[1], ops.OneOf) and noisy.ops[0].ops[1].p == 0.6
    assert policies.timm("3a") == (
        ops.OneOf(ops=(ops.Solarize(threshold=(128, 128), p=1), ops.Grayscale(p=1), ops.Blur(sigma_px=(0.1, 2), p=1))),
    )


def test_notes_say_what_differs() -> None:
    assert read_name("rand-m9-inc1").notes == []
    (note,) = read_name("rand-m9-mstd0.5-mmax12").notes
    assert note.startswith("mstd0.5: levels are drawn evenly") and "cut at 0 and 12" in note
    assert read_name("rand-m9-mstd101").notes == []
    (note,) = read_name("rand-tweights").notes
    assert note.startswith("weights: an op may be chosen twice")


def test_all_problems_of_a_name_are_listed() -> None:
    with pytest.raises(ValueError, match="cannot be read") as caught:
        policies.timm("rand-x3-t9-m1.5-n99-foo")
    message = str(caught.value)
    problems = ("'x3' is not a", "'t9' names no set", "'m1.5': must be a whole", "'n99': must lie in 1..16", "'foo'")
    for problem in problems:
        assert problem in message
    assert "mstd0.5" in message
    with pytest.raises(ValueError, match=r"'bar' is not a policy \(rand, original, originalr, v0, v0r, 3a\)"):
        policies.timm("bar-mstd1")
    with pytest.raises(ValueError, match=r"the policy None is not text. Give a name, as 'rand-m9"):
        policies.timm(None)
    with pytest.raises(ValueError, match=r"'m3' is not a part of original \(mstd0\.5\)"):
        policies.timm("original-m3")
    with pytest.raises(ValueError, match="blends several versions"):
        policies.timm("augmix-m5-w4-d2")


@pytest.mark.parametrize("level", range(31))
def test_every_level_makes_a_policy(level: int) -> None:
    for name in ("rand-m{}-mmax30", "rand-m{}-mmax30-inc1-mstd2", "rand-m{}-mmax30-t3aw"):
        assert policies.timm(name.format(level))
