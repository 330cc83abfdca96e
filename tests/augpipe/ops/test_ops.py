"""What each op draws: which values, how often, from which words; and what it says of itself."""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from augpipe import Recipe, ops, plan, recipes
from augpipe.gpu_ops.random.philox import draws, seed_key
from augpipe.ops.bends import MAX_LEAN
from augpipe.ops.draws import Number
from augpipe.ops.frame import Frame
from augpipe.ops.groups import Group
from augpipe.ops.op import KINDS, MAX_SIDE_PX
from augpipe.ops.random_words import RandomWords, Stream, stream_id
from augpipe.validation.models import FieldError

NUM = 4_000
SIZE = (512, 512)
LEAST_P = 1e-4
"""The significance of the statistical tests; seeds are fixed, so they fail for ever or never."""


def drawn(op: ops.Op, num: int = NUM, size: tuple[int, int] = SIZE, seed: int = 0) -> Any:
    """(num,) records of what the op draws."""
    fixed = (ops.Resize(),) if op.draws_size else ()
    return plan(Recipe(ops=(op, *fixed)), range(num), sizes=[size] * num, seed=seed).rows["drawn"][op.op]


def is_even(values: np.ndarray, expected: list[float]) -> bool:
    """Whether the values are the expected ones, and all of them equally often."""
    found, counts = np.unique(values, return_counts=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    return bool(stats.chisquare(counts).pvalue > LEAST_P)


def is_uniform(values: np.ndarray, low: float, high: float) -> bool:
    return bool(stats.kstest(values, "uniform", (low, high - low)).pvalue > LEAST_P)


def first_and_last(op: ops.Op, size: tuple[int, int] = SIZE) -> list[dict[str, Any]]:
    """What the smallest and the largest words give, where the op happens."""
    words = np.array([[0] * op.num_words, [0] + [2**32 - 1] * (op.num_words - 1)], np.uint32)
    frame = Frame(np.array([size[0]] * 2), np.array([size[1]] * 2))
    values = op.draw(RandomWords(words), frame)
    return [{name: column[i] for name, column in values.items()} for i in range(2)]


# the values of Table 1


def test_the_20_angles() -> None:
    assert is_even(drawn(ops.Rotate())["degrees"], [*range(-10, 0), *range(1, 11)])


def test_the_49_radii_and_40_strengths() -> None:
    values = drawn(ops.Vignette())
    assert is_even(values["radius"], [0.02 * i for i in range(1, 50)])
    assert is_even(values["strength"], [0.02 * i for i in range(1, 41)])


def test_the_65_degrees_of_four_lenses() -> None:
    values = drawn(ops.LensDistortion())
    assert is_even(values["strength"], [0.004 * i for i in range(1, 66)])
    assert is_even(values["kind"], [0, 1, 2, 3])
    together = stats.contingency.crosstab(values["kind"], np.rint(values["strength"] * 250)).count
    assert stats.chi2_contingency(together).pvalue > LEAST_P


def test_the_41_shifts_of_channels_chosen_by_a_coin() -> None:
    shift = drawn(ops.ColorCast())["shift"]
    assert set(np.unique(shift)) == set(range(-20, 21))
    chosen = shift != 0
    for channel in range(3):
        # half of them are left alone, and one in 41 of the others is shifted by 0
        assert stats.binomtest(int(chosen[:, channel].sum()), NUM, 0.5 * 40 / 41).pvalue > LEAST_P
        assert is_even(shift[chosen[:, channel], channel], [*range(-20, 0), *range(1, 21)])
    patterns = np.unique(chosen @ [1, 2, 4], return_counts=True)[1]
    each = np.array([0.5 * 40 / 41, 1 - 0.5 * 40 / 41])
    expected = [NUM * each[1 - (i & 1)] * each[1 - (i >> 1 & 1)] * each[1 - (i >> 2)] for i in range(8)]
    assert stats.chisquare(patterns, expected).pvalue > LEAST_P
    assert is_even(drawn(ops.ColorCast(channel_p=1.0))["shift"][:, 1], [*range(-20, 21)])


def test_the_288_offsets() -> None:
    values = drawn(ops.MultiResolutionCrop(scales=(512,)))
    assert is_even(values["x"], [*range(288)])
    assert is_even(values["y"], [*range(288)])
    assert set(values["scale"]) == {512}
    assert abs(stats.pearsonr(values["x"], values["y"]).statistic) < 5 / math.sqrt(NUM)


def test_flipped_or_not() -> None:
    assert is_even(drawn(ops.Flip())["flipped"], [0, 1])


def test_table_1_counts() -> None:
    counts = {op.op: op.num_variants for op in recipes.deep_image(scales=(512,)).ops if op.op != "normalize"}
    assert counts == {
        "color_cast": 68_920,
        "vignette": 1_960,
        "lens_distortion": 260,
        "rotate": 20,
        "flip": 2,
        "multi_resolution_crop": 82_944,
    }
    product = recipes.deep_image(scales=(512,)).num_variants
    assert product == 68_920 * 1_960 * 260 * 20 * 2 * 82_944
    assert f"{product:.1e}" == "1.2e+17"
    assert recipes.evaluation().num_variants == recipes.none().num_variants == 1


@pytest.mark.parametrize(
    ("op", "variants"),
    [
        (ops.Rotate(max_deg=3, step=0.5), 12),
        (ops.Rotate(step=None), None),
        (ops.Stretch(horizontal=(0.8, 1.2), vertical=(1.0, 1.0), step=0.1), 5),
        (ops.Rotate(max_deg=(0, 45), step=5), 10),
        (ops.Rotate(max_deg=720, step=90), 16),
        (ops.QuarterTurn(), 4),
        (ops.QuarterTurn(turns=(1, 3)), 2),
        (ops.Zoom(), None),
        (ops.Zoom(factor=(0.5, 1.5), step=0.25), 5),
        (ops.Shear(), None),
        (ops.Shear(horizontal_deg=(-5, 5), vertical_deg=(0, 0), step=5), 3),
        (ops.Shear(horizontal_deg=(-5, 5), vertical_deg=(-5, 5), step=5, opposite=True), 3),
        (ops.Perspective(), None),
        (ops.Blur(), None),
        (ops.Blur(sigma_px=(0.0, 1.0), step=0.25), 5),
        (ops.Translate(), None),
        (ops.Translate(horizontal=(-3, 3), vertical=(0, 4), unit="px", step=1), 35),
        (ops.ColorCast(max_shift=1), 26),
        (ops.ColorCast(step=None), None),
        (ops.Vignette(radius_step=None), None),
        (ops.Vignette(strength_step=None), None),
        (ops.Vignette(radii=(0.5, 0.5), strengths=(0.1, 0.3), strength_step=0.1), 3),
        (ops.LensDistortion(kinds=("barrel",), degrees=7), 7),
        (ops.LensDistortion(degrees=None), None),
        (ops.BrownConrady(), None),
        (ops.BrownConrady(steps=5), 125),
        (ops.BrownConrady(steps=5, k2=(0.0, 0.1)), 625),
        (ops.MultiResolutionCrop(), 32 * 32 + 288 * 288),
        (ops.MultiResolutionCrop(size=(224, 256), scales=(256, 512)), 32 * 1 + 288 * 256),
        (ops.MultiResolutionCrop(step=None), None),
        (ops.RandomResizedCrop(), None),
        (ops.CenterCrop(), 1),
        (ops.Normalize(), 1),
    ],
)
def test_variants(op: ops.Op, variants: int | None) -> None:
    assert op.num_variants == variants


# other ranges


def test_steps_and_ends_of_other_ranges() -> None:
    assert is_even(drawn(ops.Rotate(max_deg=3, step=1.5))["degrees"], [-3, -1.5, 1.5, 3])
    assert is_even(drawn(ops.Rotate(max_deg=(-90, 540), step=90))["degrees"], [90 * i for i in range(-1, 7)])
    assert is_even(drawn(ops.QuarterTurn())["turns"], [0, 1, 2, 3])
    assert is_even(drawn(ops.QuarterTurn(turns=(3, 1)))["turns"], [1, 3])
    assert is_even(drawn(ops.Zoom(factor=(0.5, 1.0), step=0.25))["factor"], [0.5, 0.75, 1.0])
    shear = drawn(ops.Shear(horizontal_deg=(-4, 4), vertical_deg=(0, 2), step=2))
    assert is_even(shear["horizontal_deg"], [-4, -2, 0, 2, 4]) and is_even(shear["vertical_deg"], [0, 2])
    op = ops.Stretch(horizontal=(0.5, 1.0), vertical=(1.0, 1.3), step=0.1)
    assert is_even(drawn(op)["horizontal"], [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert is_even(drawn(op)["vertical"], [1.0, 1.1, 1.2, 1.3])
    op = ops.BrownConrady(k1=(-0.2, 0.2), p1=(0.0, 0.02), p2=(0.01, 0.01), steps=5)
    assert is_even(drawn(op)["k1"], [-0.2, -0.1, 0.0, 0.1, 0.2])
    assert is_even(drawn(op)["p1"], [0.0, 0.005, 0.01, 0.015, 0.02])
    assert set(drawn(op)["p2"]) == {0.01}
    assert set(drawn(op)["k3"]) == {0.0}
    op = ops.LensDistortion(kinds=("stretch_vertical", "pincushion"), max_strength=0.3, degrees=3)
    assert is_even(drawn(op)["kind"], [1, 3])
    assert is_even(drawn(op)["strength"], [0.1, 0.2, 0.3])


def test_continuous_ranges() -> None:
    assert is_uniform(drawn(ops.Rotate(max_deg=33, step=None))["degrees"], -33, 33)
    stretch = drawn(ops.Stretch(horizontal=(0.5, 0.7), vertical=(1, 2)))
    assert is_uniform(stretch["horizontal"], 0.5, 0.7) and is_uniform(stretch["vertical"], 1, 2)
    assert is_uniform(drawn(ops.Rotate(max_deg=(20, 500), step=None))["degrees"], 20, 500)
    assert is_uniform(drawn(ops.Zoom(factor=(0.5, 3)))["factor"], 0.5, 3)
    shear = drawn(ops.Shear(horizontal_deg=(-9, 3), vertical_deg=(0, 5)))
    assert is_uniform(shear["horizontal_deg"], -9, 3) and is_uniform(shear["vertical_deg"], 0, 5)
    opposite = drawn(ops.Shear(horizontal_deg=(-9, 3), vertical_deg=(-3, 9), opposite=True))
    assert (
        is_uniform(opposite["horizontal_deg"], -9, 3)
        and (opposite["vertical_deg"] == -opposite["horizontal_deg"]).all()
    )
    moved = drawn(ops.Perspective(distortion=0.3))["moved"].reshape(NUM, 8)
    assert all(is_uniform(moved[:, i], 0, 0.3) for i in range(8))
    assert np.abs(np.corrcoef(moved.T) - np.eye(8)).max() < 5 / math.sqrt(NUM)
    assert is_uniform(drawn(ops.Blur(sigma_px=(0.5, 3), p=1.0))["sigma_px"], 0.5, 3)
    way = drawn(ops.Translate(horizontal=(-0.2, 0.3), vertical=(-7, 5), unit="px"))
    assert is_uniform(way["horizontal"], -0.2, 0.3) and is_uniform(way["vertical"], -7, 5)
    assert is_uniform(drawn(ops.LensDistortion(degrees=None))["strength"], 0, 0.26)
    lens = drawn(ops.BrownConrady(k1=(-0.1, 0.2), k2=(0, 0.1), k3=(-0.01, 0), p1=(0, 0.01), p2=(-0.02, 0)))
    for name, low, high in (("k1", -0.1, 0.2), ("k2", 0, 0.1), ("k3", -0.01, 0), ("p1", 0, 0.01), ("p2", -0.02, 0)):
        assert is_uniform(lens[name], low, high)
    vignette = drawn(ops.Vignette(radii=(0, 0.9), radius_step=None, strengths=(0.1, 1), strength_step=None))
    assert is_uniform(vignette["radius"], 0, 0.9) and is_uniform(vignette["strength"], 0.1, 1)
    shift = drawn(ops.ColorCast(max_shift=9.5, step=None, channel_p=1.0))["shift"]
    assert all(is_uniform(shift[:, channel], -9.5, 9.5) for channel in range(3))


@pytest.mark.parametrize(("distortion", "share"), [(0.6, 0.0), (0.7, 0.0002)])
def test_corners_that_no_perspective_gives_move_less(distortion: float, share: float) -> None:
    moved = drawn(ops.Perspective(distortion=distortion), num=60_000)["moved"]
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    for corner in range(4):
        around = [(signs * (1.0 - moved))[:, (corner + step) % 4] for step in (-1, 0, 1)]
        sides = around[1] - around[0], around[2] - around[1]
        assert (sides[0][:, 0] * sides[1][:, 1] - sides[0][:, 1] * sides[1][:, 0]).min() > 0.0
    free = drawn(ops.Perspective(distortion=0.6), num=60_000)["moved"] * (distortion / 0.6)
    is_less = ~np.isclose(free, moved).all(axis=(1, 2))
    np.testing.assert_allclose(moved[is_less], free[is_less] * 0.6 / distortion)
    assert (is_less.mean() > 0.0) == (distortion > 0.6) and abs(is_less.mean() - share) < 0.0002


def test_what_is_even_may_be_another_number() -> None:
    assert is_uniform(drawn(ops.Gamma(gamma=(0.5, 2.0), even_in="power"))["gamma"], 0.5, 2.0)
    assert is_uniform(np.log(drawn(ops.Gamma(gamma=(0.5, 2.0)))["gamma"]), -math.log(2.0), math.log(2.0))
    noise = drawn(ops.Noise(std=(3, 7), speckle=(0, 2), even_in="variance", p=1.0))
    assert is_uniform(noise["std"] ** 2, 9, 49) and is_uniform(noise["speckle"], 0, 2)
    assert set(drawn(ops.Noise(std=(3, 3), even_in="variance", p=0.5))["std"]) == {0.0, 3.0}


def test_heights_of_a_tone_curve_are_normal_and_end_at_0_and_1() -> None:
    heights = drawn(ops.ToneCurve(scale=0.05))
    for name, mean in (("low", 0.25), ("high", 0.75)):
        assert heights[name].mean() == pytest.approx(mean, abs=5 * 0.05 / math.sqrt(NUM))
        assert stats.kstest((heights[name] - mean) / 0.05, "norm").pvalue > LEAST_P
    assert abs(np.corrcoef(heights["low"], heights["high"])[0, 1]) < 5 / math.sqrt(NUM)
    wide, still = drawn(ops.ToneCurve(scale=1.0)), drawn(ops.ToneCurve(scale=0.0))
    assert (wide["low"].min(), wide["low"].max(), wide["high"].min(), wide["high"].max()) == (0, 1, 0, 1)
    assert set(still["low"]) == {0.25} and set(still["high"]) == {0.75}


@pytest.mark.parametrize(
    ("whole_px", "ways"), [("no", (25.6, -4.8)), ("nearest", (26, -5)), ("towards_zero", (25, -4))]
)
def test_translations_by_whole_pixels(
    whole_px: Literal["no", "nearest", "towards_zero"], ways: tuple[float, float]
) -> None:
    frame = Frame(np.array([48]), np.array([256]))
    way = {"horizontal": np.array([0.1]), "vertical": np.array([-0.1])}
    ops.Translate(whole_px=whole_px).apply(frame, way)
    assert np.abs(frame.after_lens[0, :2, 2]).tolist() == pytest.approx([abs(way) for way in ways])


def test_the_first_and_last_word_give_the_ends() -> None:
    assert [values["degrees"] for values in first_and_last(ops.Rotate())] == [-10, 10]
    low, high = first_and_last(ops.Vignette())
    assert (low["radius"], low["strength"]) == (0.02, 0.02)
    assert (high["radius"], high["strength"]) == pytest.approx((0.98, 0.8))
    low, high = first_and_last(ops.MultiResolutionCrop())
    assert low == {"scale": 256, "x": 0, "y": 0} and high == {"scale": 512, "x": 287, "y": 287}
    low, high = first_and_last(ops.LensDistortion())
    assert (low["kind"], low["strength"]) == (0, pytest.approx(0.004))
    assert (high["kind"], high["strength"]) == (3, pytest.approx(0.26))
    low, high = first_and_last(ops.ColorCast(channel_p=1.0))
    assert low["shift"].tolist() == [-20] * 3 and high["shift"].tolist() == [20] * 3
    low, high = first_and_last(ops.Stretch(step=0.05))
    assert (low["horizontal"], low["vertical"]) == (0.8, 0.8)
    assert (high["horizontal"], high["vertical"]) == pytest.approx((1.25, 1.25))


# probability

NEUTRAL: dict[type[ops.Op], dict[str, float]] = {
    ops.Flip: {"flipped": False},
    ops.Rotate: {"degrees": 0.0},
    ops.Stretch: {"horizontal": 1.0, "vertical": 1.0},
    ops.QuarterTurn: {"turns": 0},
    ops.Zoom: {"factor": 1.0},
    ops.Perspective: {"moved": 0.0},
    ops.Blur: {"sigma_px": 0.0},
    ops.Shear: {"horizontal_deg": 0.0, "vertical_deg": 0.0},
    ops.Translate: {"horizontal": 0.0, "vertical": 0.0},
    ops.LensDistortion: {"strength": 0.0},
    ops.BrownConrady: {"k1": 0.0, "k2": 0.0, "k3": 0.0, "p1": 0.0, "p2": 0.0},
    ops.Vignette: {"strength": 0.0},
    ops.ColorCast: {"shift": 0.0},
    ops.MultiResolutionCrop: {"x": 144.0, "y": 144.0},
    ops.RandomCrop: {"x": 144, "y": 144},
    ops.RandomResizedCrop: {"x": 0.0, "y": 0.0, "width": 512.0, "height": 512.0},
    ops.Brightness: {"factor": 1.0},
    ops.Contrast: {"factor": 1.0},
    ops.Saturation: {"factor": 1.0},
    ops.Sharpness: {"factor": 1.0},
    ops.Hue: {"turn": 0.0},
    ops.Grayscale: {"applied": False},
    ops.ChannelShuffle: {"order": 0},
    ops.ChannelDropout: {"dropped": False},
    ops.Lighting: {"amounts": 0.0},
    ops.ColorJitter: {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0},
    ops.Gamma: {"gamma": 1.0},
    ops.Posterize: {"bits": 8},
    ops.Solarize: {"threshold": 256},
    ops.SolarizeAdd: {"addition": 0},
    ops.Invert: {"applied": False},
    ops.AutoContrast: {"applied": False},
    ops.Equalize: {"applied": False},
    ops.Erase: {"edges": 0},
    ops.Noise: {"std": 0.0, "speckle": 0.0},
}
GROUPS = {ops.OneOf, ops.SomeOf, ops.AllOf}
NEUTRAL |= {
    kind: {draw.name: draw.neutral for draw in kind.draws if draw.neutral is not None}
    for kind in KINDS.values()
    if kind.draws and kind not in NEUTRAL
}
ALWAYS: dict[type[ops.Op], dict[str, Any]] = {  # without draws that are neutral by chance
    ops.ColorCast: {"step": None, "channel_p": 1.0},
    ops.QuarterTurn: {"turns": (1, 2, 3)},
    ops.MultiResolutionCrop: {"scales": (512,), "step": None},
    ops.ColorJitter: {"hue": 0.1},
    ops.Posterize: {"bits": (3, 7)},
    ops.SolarizeAdd: {"addition": (1, 110)},
}


def always(kind: type[ops.Op]) -> dict[str, Any]:
    """Fields at which the op draws nothing that is neutral by chance."""
    fields = dict(ALWAYS.get(kind, {}))
    for draw in kind.draws:
        if kind not in ALWAYS and isinstance(draw, Number) and np.issubdtype(draw.dtype, np.integer):
            low, high = kind.model_fields[draw.field].default
            if draw.neutral is not None and low <= draw.neutral <= high:
                fields[draw.field] = (int(draw.neutral) + 1, high) if draw.neutral < high else (low, high - 1)
    return fields


def changed(op: ops.Op) -> np.ndarray:
    """(NUM,) whether the op drew anything but its neutral values."""
    values = drawn(op)
    different = np.zeros(NUM, bool)
    for name, neutral in NEUTRAL[type(op)].items():
        different |= (values[name] != neutral).reshape(NUM, -1).any(axis=1)
    return different


def test_every_op_with_a_probability_is_tested() -> None:
    kinds = (
        {getattr(ops, name) for name in ops.__all__}
        - {ops.Op, ops.Custom, ops.KeepObjects, ops.MixUp, ops.CutMix, ops.CopyPaste, ops.Mosaic}
        - GROUPS
    )
    assert set(NEUTRAL) == {kind for kind in kinds if "p" in kind.model_fields}


@pytest.mark.parametrize("kind", NEUTRAL, ids=lambda kind: kind.__name__)
def test_probability(kind: type[ops.Op]) -> None:
    fields = always(kind)
    assert not changed(kind(**fields, p=0.0)).any()
    assert changed(kind(**fields, p=1.0)).all()
    happened = changed(kind(**fields, p=0.3)).sum()
    assert stats.binomtest(int(happened), NUM, 0.3).pvalue > LEAST_P
    assert not changed(kind(**fields, p=1e-12)).any()


@pytest.mark.parametrize("kind", NEUTRAL, ids=lambda kind: kind.__name__)
def test_the_probability_does_not_change_the_values(kind: type[ops.Op]) -> None:
    """Word 0 decides whether, the others what: where both happen, two probabilities draw alike."""
    fields = always(kind)
    often, seldom = kind(**fields, p=1.0), kind(**fields, p=0.25)
    happened = changed(seldom)
    if kind is ops.Flip:
        assert not happened[~changed(kind(p=0.5))].any()
        return
    word = draws(0, 0, np.arange(NUM), stream_id(f"{seldom.op}:0:0"), 1)[:, 0]
    np.testing.assert_array_equal(happened, word < 2**30)
    values = drawn(often)
    assert np.array_equal(values[happened], drawn(seldom)[happened])
    for name in NEUTRAL[kind]:  # what is drawn does not depend on word 0
        for column in values[name].reshape(NUM, -1).T.astype(np.float64):
            assert stats.ks_2samp(column[happened], column[~happened]).pvalue > LEAST_P, name


@pytest.mark.parametrize("kind", NEUTRAL, ids=lambda kind: kind.__name__)
def test_an_op_within_others_may_be_applied_to_no_image(kind: type[ops.Op]) -> None:
    if not kind.is_crop:
        group = ops.OneOf(ops=(ops.Flip(alternate=False), kind()), weights=(1.0, 0.0))
        assert not plan(Recipe(ops=(group,)), range(3), sizes=[SIZE] * 3).rows["drawn"]["one_of"]["applied"][:, 1].any()


def test_never_and_always_are_exact() -> None:
    """Whatever the word: 0 is never, 1 is always, and a half is the lower half of the words."""
    words = RandomWords(np.array([[0], [2**31 - 1], [2**31], [2**32 - 1]], np.uint32))
    assert words.happens(0, 0.0).tolist() == [False] * 4
    assert words.happens(0, 0.5).tolist() == [True, True, False, False]
    assert words.happens(0, 1.0).tolist() == [True] * 4


# crops


def test_the_scale_is_that_of_the_short_side() -> None:
    op = ops.MultiResolutionCrop(size=(100, 120), scales=(128, 200))
    for size in ((300, 500), (500, 300)):
        values = drawn(op, size=size)
        for scale in (128, 200):
            mine = values[values["scale"] == scale]
            long = 500 * scale // 300
            height, width = (scale, long) if size[0] < size[1] else (long, scale)
            assert set(mine["x"]) == set(range(width - 120)) and set(mine["y"]) == set(range(height - 100))
        assert is_even(values["scale"], [128, 200])


@pytest.mark.parametrize("step", [1, None])
def test_a_crop_as_large_as_the_image(step: int | None) -> None:
    values = drawn(ops.MultiResolutionCrop(size=200, scales=(200,), step=step), num=50, size=(200, 200))
    assert not values["x"].any() and not values["y"].any()


def test_a_crop_at_any_place() -> None:
    values = drawn(ops.MultiResolutionCrop(size=100, scales=(150,), step=None), size=(300, 600))
    assert is_uniform(values["x"], 0, 200) and is_uniform(values["y"], 0, 50)


@pytest.mark.parametrize(
    ("size", "scale", "photograph", "crop"),
    [
        # left, top, right, bottom; as torchvision's CenterCrop, which rounds halves to even
        ((20, 30), None, (101, 100), (35, 40, 65, 60)),
        ((20, 30), None, (103, 101), (36, 42, 66, 62)),
        (50, 50, (100, 201), (50.25, 0, 150.75, 100)),
        (50, 100, (200, 200), (50, 50, 150, 150)),
    ],
)
def test_center_crop(
    size: int | tuple[int, int], scale: int | None, photograph: tuple[int, int], crop: tuple[int, ...]
) -> None:
    rows = plan(Recipe(ops=(ops.CenterCrop(size=size, scale=scale),)), [0], sizes=[photograph]).rows
    np.testing.assert_allclose(rows["crop"][0], crop, rtol=0, atol=1e-9)


def test_center_crop_refuses_images_that_are_too_small() -> None:
    assert ops.CenterCrop(size=(20, 30)).refuses(20, 30) is None
    for size in ((19, 30), (20, 29)):
        reason = ops.CenterCrop(size=(20, 30)).refuses(*size)
        assert reason == (
            f"the photograph is {size[0]}x{size[1]} pixels, smaller than the crop of 20x30. "
            "Give center_crop a scale to resize it first, or lower size."
        )
    assert ops.CenterCrop(size=20, scale=20).refuses(1, 1) is None
    assert ops.MultiResolutionCrop().refuses(1, 1) is None


@pytest.mark.parametrize("step", [1, None])
@pytest.mark.parametrize("size", [(512, 512), (300, 700), (1000, 90), (1, 500), (2, 2), (1, 1)])
def test_random_resized_crops_lie_within_the_image(size: tuple[int, int], step: int | None) -> None:
    values = drawn(ops.RandomResizedCrop(step=step), num=4000, size=size)
    assert values["x"].min() >= 0 and values["y"].min() >= 0
    assert values["width"].min() >= 1 and values["height"].min() >= 1
    assert (values["x"] + values["width"]).max() <= size[1] and (values["y"] + values["height"]).max() <= size[0]
    if step:
        assert all(np.array_equal(values[name], np.rint(values[name])) for name in values.dtype.names)


def test_random_resized_crops_have_the_area_and_ratio_asked_for() -> None:
    op = ops.RandomResizedCrop(scale=(0.1, 0.4), ratio=(0.5, 2.0), step=None)
    values = drawn(op, size=(800, 800))
    area, ratio = values["width"] * values["height"] / 800**2, values["width"] / values["height"]
    assert is_uniform(area, 0.1, 0.4)
    assert is_uniform(np.log(ratio), np.log(0.5), np.log(2))
    place = values["x"] / (800 - values["width"]), values["y"] / (800 - values["height"])
    assert is_uniform(place[0], 0, 1) and is_uniform(place[1], 0, 1)


def test_random_resized_crops_reach_every_corner() -> None:
    values = drawn(ops.RandomResizedCrop(scale=(0.25, 0.25), ratio=(1.0, 1.0)), size=(16, 16))
    assert is_even(values["x"], [*range(9)]) and is_even(values["y"], [*range(9)])
    assert set(values["width"]) == set(values["height"]) == {8}


@pytest.mark.parametrize(
    ("size", "expected"),
    [((100, 1000), (433, 0, 133, 100)), ((1000, 100), (0, 433, 100, 133)), ((101, 101), (0, 0, 101, 101))],
)
def test_where_no_rectangle_fits_the_largest_centred_one_is_taken(
    size: tuple[int, int], expected: tuple[int, ...]
) -> None:
    op = ops.RandomResizedCrop(p=0.0)
    values = drawn(op, num=3, size=size)
    assert [tuple(row) for row in values] == [expected] * 3
    never = ops.RandomResizedCrop(scale=(1.0, 1.0))
    if size[0] != size[1]:
        assert [tuple(row) for row in drawn(never, num=3, size=size)] == [expected] * 3


def test_a_crop_of_drawn_pixels_is_albumentations() -> None:
    """A whole height, each as likely, a width that is rounded down, and any place; at most the whole image."""
    values = drawn(ops.RandomResizedCrop(height_px=(9, 12), ratio=(6.25, 6.25), size=(8, 50)), size=(20, 99))
    assert is_even(values["height"], [9, 10, 11, 12])
    np.testing.assert_array_equal(values["width"], np.floor(6.25 * values["height"]))
    for height in (9, 12):
        own = values[values["height"] == height]
        assert is_even(own["y"], [*range(20 - height + 1)]) and is_even(own["x"], [*range(99 - int(6.25 * height) + 1)])
    small = drawn(ops.RandomResizedCrop(height_px=(9, 12), ratio=(2.0, 2.0)), size=(7, 5))
    assert {tuple(row) for row in small} == {(0, 0, 5, 7)}
    assert not any(np.isnan(drawn(ops.RandomResizedCrop(height_px=(2, 9), ratio=(0.1, 0.2)), size=(9, 9))["width"]))


@pytest.mark.parametrize("size", [(375, 500), (640, 480), (1, 7), (333, 333)])
@pytest.mark.parametrize(
    "op",
    [
        ops.RandomResize(factor=(0.4, 2.5)),
        ops.RandomResize(factor=(0.1, 2.0), within=(300, 200)),
        ops.RandomResize(size=(100, 140)),
        ops.RandomResize(size=(100, 140), p=0.5),
        ops.RandomResize(p=0.3),
    ],
    ids=str,
)
def test_drawn_sizes_are_rounded_as_in_the_libraries(op: ops.RandomResize, size: tuple[int, int]) -> None:
    rows = plan(Recipe(ops=(op, ops.Resize(size=9))), range(200), sizes=[size] * 200, seed=2).rows["drawn"][op.op]
    heights, widths = size
    frame = Frame(np.full(200, heights), np.full(200, widths))
    op.apply(frame, {name: rows[name] for name in rows.dtype.names})
    for nth, (factor, short) in enumerate(rows.tolist()):
        if op.within:  # torchvision's ScaleJitter
            factor = min(op.within[0] / heights, op.within[1] / widths) * factor
        expected = [max(1, int(side * factor)) for side in size]  # albumentations' RandomScale
        if short:  # torchvision's Resize
            assert op.size is not None and op.size[0] <= short <= op.size[1]
            long = int(short * max(size) / min(size))
            expected = [short, long] if heights <= widths else [long, short]
        assert [frame.out_heights[nth], frame.out_widths[nth]] == expected
    least = op.sides(heights, widths)
    assert frame.out_heights.min() >= least[0] and frame.out_widths.min() >= least[1]
    assert (frame.crop_width == widths).all() and (frame.crop_height == heights).all()


def test_sizes_and_factors_are_drawn_evenly() -> None:
    assert is_even(drawn(ops.RandomResize(size=(30, 36)))["short"], [*range(30, 37)])
    assert is_uniform(drawn(ops.RandomResize(factor=(0.7, 1.9)))["factor"], 0.7, 1.9)
    assert (drawn(ops.RandomResize(size=(30, 36)))["factor"] == 1.0).all()


def test_the_evaluation_of_a_drawn_size_is_what_it_is_about() -> None:
    assert ops.RandomResize(size=(260, 1040)).centred == ops.ResizeShortest(size=520)
    assert ops.RandomResize(factor=(0.5, 2.0), p=0.5).centred == ops.RandomResize(factor=(1.0, 1.0))
    within = ops.RandomResize(factor=(0.2, 0.8), within=64)
    assert within.centred == ops.RandomResize(factor=(0.8, 0.8), within=64)


def test_a_thin_image_and_a_flat_ratio_leave_at_least_a_pixel() -> None:
    values = drawn(ops.RandomResizedCrop(ratio=(0.1, 0.3)), num=200, size=(1, 50))
    assert values["width"].min() >= 1 and values["height"].min() >= 1


# what ops say


def caption(op: ops.Op, **values: Any) -> str:
    record = np.zeros(1, op.record)
    for name, value in values.items():
        record[name] = value
    return op.caption(record[0])


@pytest.mark.parametrize(
    ("op", "values", "text"),
    [
        (ops.Flip(), {"flipped": False}, ""),
        (ops.Rotate(), {"degrees": 0}, ""),
        (ops.Stretch(), {"horizontal": 1.2, "vertical": 0.9}, "stretch 1.20 x 0.90"),
        (ops.QuarterTurn(), {"turns": 0}, ""),
        (ops.QuarterTurn(), {"turns": 3}, "turned 270°"),
        (ops.Zoom(), {"factor": 1.0}, ""),
        (ops.Perspective(), {}, ""),
        (ops.Perspective(), {"moved": np.arange(8).reshape(4, 2) / 20}, "perspective 0.35"),
        (ops.Blur(), {}, ""),
        (ops.Blur(), {"sigma_px": 1.5}, "blur 1.50 px"),
        (ops.Zoom(), {"factor": 1.125}, "zoom 1.12"),
        (ops.Shear(), {}, ""),
        (ops.Shear(), {"horizontal_deg": -7.25}, "shear x -7.25°, y +0°"),
        (ops.Translate(), {}, ""),
        (ops.Translate(), {"horizontal": 0.05, "vertical": -0.1}, "moved x +5.0%, y -10.0%"),
        (ops.Translate(unit="px"), {"horizontal": 3}, "moved x +3 px, y +0 px"),
        (ops.LensDistortion(), {"kind": 2, "strength": 0.0}, ""),
        (ops.BrownConrady(), {"k1": 0.1, "p2": -0.02}, "k1 +0.10 p2 -0.02"),
        (ops.Vignette(), {"radius": 0.5}, ""),
        (ops.ColorCast(), {}, ""),
        (ops.ColorCast(), {"shift": (-3, 0, 12)}, "cast R -3, B +12"),
        (ops.Rotate(), {"degrees": -2}, "rotated -2°"),
        (ops.Vignette(), {"radius": 0.5, "strength": 0.25}, "vignette radius 0.50, strength 25%"),
        (ops.MultiResolutionCrop(), {"scale": 256, "x": 7, "y": 9}, "scale 256 px, x 7, y 9"),
        (ops.ColorJitter(), {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0}, ""),
        (
            ops.ColorJitter(),
            {"brightness": 0.95, "contrast": 1.34, "saturation": 1.0, "hue": 0.025},
            "brightness 0.95, contrast 1.34, hue +9°",
        ),
        (ops.Contrast(), {"factor": 1.34}, "contrast 1.34"),
        (ops.Posterize(), {"bits": 4}, "posterize 4 bits"),
        (ops.Sepia(), {"applied": True}, "sepia"),
        (ops.ToneCurve(), {"low": 0.3, "high": 0.716, "applied": True}, "tone curve 0.30, 0.72"),
        (ops.ToneCurve(), {"low": 0.3, "high": 0.716, "applied": False}, ""),
        (ops.RandomResizedCrop(), {"x": 1, "y": 2, "width": 30, "height": 40}, "crop 30x40, x 1, y 2"),
        (ops.RandomResize(), {"factor": 0.66, "short": 0}, "times 0.66"),
        (ops.RandomResize(), {"factor": 1.0, "short": 0}, ""),
        (ops.RandomResize(size=(200, 300)), {"factor": 1.0, "short": 211}, "short side 211 px"),
    ],
)
def test_captions_of_what_no_golden_plan_draws(op: ops.Op, values: dict[str, Any], text: str) -> None:
    assert caption(op, **values) == text


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (ops.Flip(), "horizontal or not"),
        (ops.Rotate(), "an angle of -10 to 10 degrees in steps of 1, not 0, anticlockwise positive"),
        (ops.Rotate(step=None), "an angle of -10 to 10 degrees, anticlockwise positive"),
        (ops.Stretch(), "width times 0.8 to 1.25, height times 0.8 to 1.25"),
        (ops.Rotate(max_deg=(5, 400)), "an angle of 5 to 400 degrees in steps of 1, anticlockwise positive"),
        (ops.Rotate(max_deg=(-5, 5), step=None), "an angle of -5 to 5 degrees, anticlockwise positive"),
        (ops.QuarterTurn(), "0 or 90 or 180 or 270 degrees, anticlockwise"),
        (ops.Zoom(step=0.05), "both sides times 0.8 to 1.25 in steps of 0.05"),
        (
            ops.Perspective(inner_std=(0.1, 0.2)),
            "corners of a part of the frame, normal with a standard deviation of 0.1 to 0.2 of its sides",
        ),
        (ops.Perspective(), "for each corner, 0 to 0.5 of half the width and half the height inwards"),
        (ops.Blur(), "a standard deviation of 0.1 to 2 px"),
        (ops.Blur(sigma_px=(1, 2), step=0.5), "a standard deviation of 1 to 2 px in steps of 0.5"),
        (ops.Shear(), "columns slanted by -10 to 10 degrees, rows by -10 to 10"),
        (ops.Translate(), "-0.1 to 0.1 of the output's side to the right, -0.1 to 0.1 down"),
        (
            ops.Translate(horizontal=(0, 4), vertical=(-2, 2), unit="px", step=2),
            "0 to 4 px to the right, -2 to 2 down, in steps of 2",
        ),
        (ops.LensDistortion(kinds=("barrel",)), "barrel; one of 65 strengths up to 0.26"),
        (ops.LensDistortion(kinds=("barrel",), degrees=None), "barrel; any strength up to 0.26"),
        (ops.BrownConrady(p1=(0, 0), steps=3), "k1 -0.2 to 0.2, p2 -0.02 to 0.02, 3 values each"),
        (
            ops.Vignette(),
            "where it begins, 0.02 to 0.98 of the half-diagonal; the loss at the corner, 2% to 80%",
        ),
        (ops.ColorCast(), "three booleans; for each altered channel -20 to 20 levels in steps of 1"),
        (
            ops.MultiResolutionCrop(),
            "the short side's length (256 or 512 px), a place in whole pixels; variants are of a square photograph",
        ),
        (ops.RandomResizedCrop(), "an area of 8% to 100%, a ratio of 0.75 to 1.33, a place"),
        (
            ops.RandomResizedCrop(height_px=(90, 120), ratio=(2, 2)),
            "a height of 90 to 120 px, a ratio of 2 to 2, a place",
        ),
        (ops.RandomResize(), "both sides times 0.5 to 2"),
        (ops.RandomResize(size=(200, 300)), "a short side of 200 to 300 px"),
        (ops.ToneCurve(), "two normal heights about 0.25 and 0.75, of standard deviation 0.1"),
        (ops.Normalize(), "nothing"),
    ],
)
def test_what_ops_draw_in_words(op: ops.Op, text: str) -> None:
    assert op.draws_text == text


def test_defaults_are_those_of_the_papers_and_of_torchvision() -> None:
    assert ops.MultiResolutionCrop().size == 224 and ops.MultiResolutionCrop().scales == (256, 512)
    assert ops.RandomResizedCrop().scale == (0.08, 1.0) and ops.RandomResizedCrop().ratio == (3 / 4, 4 / 3)
    assert ops.Normalize().mean == (0.485, 0.456, 0.406) and ops.Normalize().std == (0.229, 0.224, 0.225)


@pytest.mark.parametrize(
    ("mean", "std"), [(0.5, 0.25), ([0.5], [0.25]), ((0.5,), 0.25), (np.float32(0.5), (0.25,) * 3)]
)
def test_one_number_normalises_all_channels(mean: Any, std: Any) -> None:
    found = ops.Normalize(mean=mean, std=std)
    assert found == ops.Normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    assert found.mean == (0.5, 0.5, 0.5)


# ranges that cannot be


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (ops.Rotate, {"max_deg": 10, "step": 0}, "the step of max_deg is 0.0, and must be above 0. Leave it out"),
        (ops.Rotate, {"max_deg": 0}, "must be above 0"),
        (
            ops.ColorJitter,
            {"hue": 0.9},
            r"^ColorJitter: hue=0.9 must be a number in 0..0.5, or the .*: hue=0.1 or hue=",
        ),
        (
            ops.ColorJitter,
            {"contrast": -1},
            r"^ColorJitter: contrast=-1 must be a number from 0 on, or .*=\[0.6, 1.4\]",
        ),
        (ops.Rotate, {"max_deg": (1, 2, 3)}, r"must be above 0, in degrees, or the smallest and largest .*=\[0, 90\]"),
        (ops.Rotate, {"max_deg": math.inf}, "must be above 0"),
        (ops.Rotate, {"max_deg": (20, 10)}, "its first number is the larger one. Swap them"),
        (ops.Rotate, {"max_deg": (0, 10), "step": 3}, "is not a whole number of steps of 3"),
        (ops.QuarterTurn, {"turns": (4,)}, r"must be a list of some of 0, 1, 2 and 3: turns=\[1, 3\]"),
        (ops.QuarterTurn, {"turns": ()}, "must be a list of some of 0, 1, 2 and 3"),
        (ops.QuarterTurn, {"turns": (1, 1)}, "names one turn twice. Name each once"),
        (ops.ToneCurve, {"scale": 1.5}, "scale=1.5 must be at most 1"),
        (ops.Zoom, {"factor": (0.01, 1)}, r"factor=\(0.01, 1\) leaves 0.05..20. Choose factors nearer to 1"),
        (ops.Perspective, {"distortion": 0.71}, "distortion=0.71 must be at most 0.7"),
        (ops.Perspective, {"distortion": 0}, "distortion=0 must be above 0"),
        (ops.Perspective, {"inner_std": (0.1, 0.4)}, r"inner_std=\(0.1, 0.4\) leaves 0..0.3 of a side"),
        (ops.Perspective, {"inner_std": (0.2, 0.1)}, "inner_std"),
        (ops.Perspective, {"inner_std": (0.1, 0.2), "distortion": 0.3}, "both say how far corners move"),
        (ops.Perspective, {"inner_std": (0.1, 0.2), "corners": "centres"}, "Leave it out with inner_std"),
        (ops.BrightnessContrast, {"of_normalized": ((0.5,) * 3, (0.0,) * 3)}, "must be a mean in 0..1 and a std"),
        (ops.Blur, {"sigma_px": (0, 11)}, r"sigma_px=\(0.0, 11.0\) leaves 0..10 pixels. For more, make smaller images"),
        (ops.Blur, {"sigma_px": (-1, 1)}, "leaves 0..10 pixels"),
        (ops.Blur, {"sigma_px": (2, 1)}, "its first number is the larger one. Swap them"),
        (ops.Blur, {"step": 0.4}, "is not a whole number of steps"),
        (ops.Zoom, {"factor": (1.5, 1)}, "its first number is the larger one. Swap them"),
        (ops.Shear, {"vertical_deg": (0, 80)}, r"vertical_deg=\(0.0, 80.0\) leaves -75..75 degrees. Choose angles"),
        (ops.GridDistortion, {"num_steps": 10, "cells": "to_edge"}, "may be 11 cells, and 10 are the most"),
        (ops.Shear, {"about": "center"}, "must be 'centre' or 'corner'. Did you mean 'centre'"),
        (
            ops.Shear,
            {"horizontal_deg": (-50, 0), "vertical_deg": (-45, 9), "order": "at_once"},
            "may squash the image to a line",
        ),
        (ops.Shear, {"opposite": True, "vertical_deg": (0, 5)}, r"Choose vertical_deg=\(-10, 10\)"),
        (ops.Shear, {"step": 3}, "is not a whole number of steps"),
        (ops.Stretch, {"vertical": (0.01, 1)}, r"vertical=\(0.01, 1\) leaves 0.05..20. Choose factors nearer to 1"),
        (ops.Stretch, {"vertical": (1, 21)}, r"leaves 0.05..20"),
        (ops.Stretch, {"vertical": (1, math.nan)}, "must be two finite numbers"),
        (ops.Stretch, {"step": 0.4}, r"horizontal=\(0.8, 1.25\) is not a whole number of steps of 0.4 wide \(1.125 of"),
        (ops.Translate, {"horizontal": (-20, 20)}, r"leaves -1..1 in unit='fraction'. Give fractions of .* unit='px'"),
        (ops.Translate, {"vertical": (0, 1e6), "unit": "px"}, "leaves -65535..65535 in unit='px'. Move it by less"),
        (ops.Translate, {"vertical": (0.2, 0.1)}, "its first number is the larger one. Swap them"),
        (ops.Translate, {"step": 0.15}, "is not a whole number of steps"),
        (ops.Translate, {"unit": "pixels"}, "must be 'fraction' or 'px'"),
        (ops.ColorCast, {"max_shift": 1, "step": 2}, "Choose a step that divides the range, or None for a continuous"),
        (ops.ColorCast, {"channel_p": -0.1}, "channel_p=-0.1 must be a probability in 0..1, as channel_p=0.5"),
        (ops.Vignette, {"radii": (0.5, 1.0)}, r"radii=\(0.5, 1.0\) leaves 0..0.999. Choose a range within it"),
        (ops.Vignette, {"strengths": (-0.1, 0.5)}, r"strengths=\(-0.1, 0.5\) leaves 0..1. Choose"),
        (ops.Vignette, {"radius_step": 0.7}, "radii=.* is not a whole number of steps"),
        (ops.Vignette, {"strength_step": 0.7}, "strengths=.* is not a whole number of steps"),
        (ops.LensDistortion, {"kinds": ()}, "must be a list of some of 'barrel', 'pincushion'"),
        (ops.LensDistortion, {"kinds": ("barrel", "barrel")}, "names one kind twice. Name each once"),
        (ops.LensDistortion, {"max_strength": 0.34}, "max_strength=0.34 must be below 0.333"),
        (ops.LensDistortion, {"degrees": 0}, "degrees=0 must be at least 1"),
        (ops.BrownConrady, {"k1": (-0.4, 0.0)}, "fold the picture over itself before its corner. Narrow the ranges"),
        (ops.BrownConrady, {"k3": (-0.2, 0.0)}, "fold the picture"),
        (ops.BrownConrady, {"p1": (0.0, 0.2)}, "fold the picture"),
        (ops.BrownConrady, {"steps": 1}, "steps=1 must be at least 2"),
        (ops.MultiResolutionCrop, {"size": (9, 300), "scales": (256,)}, "Lower size, or raise scales to at least 300."),
        (ops.MultiResolutionCrop, {"size": 0}, "size=0 must be a whole number of pixels in 1..65535, or two of them"),
        (ops.MultiResolutionCrop, {"scales": ()}, r"must be a list of short sides in pixels.*: scales=\[256\]"),
        (ops.RandomResizedCrop, {"scale": (0.0, 0.5)}, "is not a range within 0..4"),
        (ops.RandomResizedCrop, {"scale": (1.5, 2.0)}, "is above 1, and no such crop fits"),
        (ops.RandomResizedCrop, {"ratio": (2.0, 1.0)}, r"ratio=\(2.0, 1.0\) is not a range within 0..1000"),
        (ops.RandomResizedCrop, {"height_px": (20, 10)}, r"height_px=\(20, 10\) must hold the smaller number first"),
        (
            ops.RandomResizedCrop,
            {"scale": (0.5, 0.6), "height_px": (30, 40)},
            r"scale=\(0\.5, 0\.6\) and height_px=\(30, 40\) both say how large .*Leave one of them out",
        ),
        (
            ops.RandomResize,
            {"factor": (0.6, 0.9), "size": (100, 200)},
            r"factor=\(0\.6, 0\.9\) and size=\(100, 200\) both say how large .*Leave one of them out",
        ),
        (
            ops.RandomResizedCrop,
            {"size": 99, "own_size": True},
            "size=99 and own_size both say how large the result is",
        ),
        (
            ops.RandomCrop,
            {"at": (5, 9), "p": 0.5},
            r"at=\(5, 9\) says where the crop is, and p=0.5 when it is elsewhere",
        ),
        (ops.RandomCrop, {"at": (5, 9), "keep_objects": ops.KeepObjects()}, r"at=\(5, 9\) .* keep_objects draws"),
        (ops.RandomCrop, {"at": (5, 9), "padding": 4}, r"at=\(5, 9\) .* padding=4 how far outside it may be"),
        (
            ops.RandomCrop,
            {"at": (-1, 0)},
            r"at=\(-1, 0\) must be two whole numbers of pixels from 0 on, column and row",
        ),
        (ops.RandomResizedCrop, {"height_px": 20}, r"height_px=20 must be two heights in pixels, each in 1..65535"),
        (ops.RandomResize, {"factor": (0.001, 1.0)}, r"factor=\(0.001, 1.0\) leaves 0.01..100. Choose factors nearer"),
        (ops.RandomResize, {"factor": (2.0, 1.0)}, "its first number is the larger one. Swap them"),
        (ops.RandomResize, {"size": (20, 10)}, r"size=\(20, 10\) must hold the smaller number first"),
        (ops.RandomResize, {"size": 20}, r"size=20 must be two short sides in pixels, .*: size=\[smallest, largest\]"),
        (ops.RandomResize, {"size": (10, 20), "within": 9}, "and within=9 goes with factor. Leave one of them out"),
        (ops.Normalize, {"std": (58.4, 57.1, 57.4)}, "are given in 0..1"),
        (ops.Rotate, {"zzz": 5}, r"'zzz' is not a field of Rotate. Its fields: max_deg, step, p, fit_frame\."),
    ],
)
def test_impossible_ranges(kind: type[ops.Op], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        kind(**fields)


def test_a_tangential_lens_that_folds_is_refused() -> None:
    """Both coefficients add up as the legs of a right angle do: 6 * hypot(p1, p2) must stay below 1."""
    for p1, p2 in ((0.15, 0.15), (-0.14, 0.13)):
        with pytest.raises(FieldError, match="fold the picture"):
            ops.BrownConrady(k1=(0, 0), p1=(p1, p1), p2=(p2, p2))
    ops.BrownConrady(k1=(0, 0), p1=(0.11, 0.11), p2=(-0.11, -0.11))


@pytest.mark.parametrize(
    "op", [ops.RandomResize(size=(100, 200)), ops.RandomResizedCrop(size=64, height_px=(30, 40))], ids=lambda op: op.op
)
def test_what_has_a_field_instead_of_a_range_is_read_again(op: ops.Op) -> None:
    assert type(op).model_validate(op.model_dump()) == op


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_looks_at_the_sides_of_the_output_says_so(kind: type[ops.Op]) -> None:
    """Else sides could be swapped behind it, and it would lie elsewhere than it was drawn."""
    looked: list[str] = []

    class Watched(Frame):
        @property
        def final_sides(self) -> Any:
            looked.append("looked")
            return super().final_sides

    made = kind(**{"ops": [ops.Invert()]} if issubclass(kind, Group) else {})
    frame = Watched(*np.full((2, 5), 64))
    words = RandomWords(
        np.zeros((5, made.num_words), np.uint32), Stream(seed_key(0), 0, np.arange(5, dtype=np.uint32), kind.__name__)
    )
    made.apply(frame, made.draw(words, frame))
    assert bool(looked) == made.is_within_output


def test_an_op_writes_the_fields_that_it_wrote_when_it_came(request: pytest.FixtureRequest) -> None:
    """A field that comes later stands in `NEW_FIELDS`; a new op gets a line in the file, by --rewrite-tables."""
    path = Path(__file__).resolve().parents[2] / "golden/op_fields.txt"
    lines = path.read_text().splitlines()
    came = {kind for kind, _, _ in (line.partition(":") for line in lines)}
    now = {}
    for kind, of_kind in KINDS.items():
        group = {"ops": [ops.Flip()]} if issubclass(of_kind, Group) else {}
        now[kind] = f"{kind}: {' '.join(name for name in of_kind(**group).model_dump() if name != 'op')}"
    if request.config.getoption("--rewrite-tables"):
        lines += [line for kind, line in now.items() if kind not in came]
        path.write_text("\n".join(sorted(lines)) + "\n")
    assert sorted(lines) == sorted(now.values())


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (ops.Resize(align_corners=True), "align_corners"),
        (ops.ResizeShortest(align_corners=True), "align_corners"),
        (ops.ResizeShortest(rounding="nearest"), "rounding"),
        (ops.ResizeLongest(align_corners=True), "align_corners"),
        (ops.ResizeLongest(rounding="down"), "rounding"),
        (ops.CoarseDropout(from_centers=True), "from_centers"),
        (ops.RandomResizedCrop(align_corners=True), "align_corners"),
        (ops.ElasticTransform(side_px=224), "side_px"),
        (ops.QuarterTurn(swaps_sides=True), "swaps_sides"),
        (ops.Rotate(fit_frame="up"), "fit_frame"),
        (ops.GridDistortion(cells="whole_px"), "cells"),
        (ops.Perspective(corners="centres"), "corners"),
        (ops.Perspective(inner_std=(0.1, 0.2)), "inner_std"),
        (ops.ColorJitter(of_normalized=((0.5,) * 3, (0.3,) * 3)), "of_normalized"),
        (ops.Shear(opposite=True), "opposite"),
        (ops.Transpose(swaps_sides=True), "swaps_sides"),
        (ops.MotionBlur(line="ends"), "line"),
        (ops.OneOf(ops=[ops.Flip()], own_look="nearest"), "own_look"),
        (ops.AllOf(ops=[ops.Flip()], own_look="nearest", in_turn=True), "in_turn"),
    ],
)
def test_a_new_field_is_written_where_it_is_given_alone(op: ops.Op, name: str) -> None:
    """So that states and plans of earlier releases go on."""
    given, plain = Recipe(ops=[op]), Recipe(ops=[type(op)(**{"ops": op.ops} if isinstance(op, Group) else {})])
    assert name in op.model_dump() and f"{name} = " in given.to_toml()
    assert name not in plain.ops[0].model_dump() and f"{name} = " not in plain.to_toml()
    for recipe in (given, plain):
        assert Recipe.model_validate(recipe.model_dump(mode="json")) == recipe


def test_erase_takes_the_first_of_ten_rectangles_that_fits() -> None:
    op = ops.Erase(p=1.0, scale=(0.5, 1.0), ratio=(0.1, 10.0))
    words = np.zeros((11, op.num_words), np.uint32)  # half of the area, ten times as wide as high: does not fit
    words[np.arange(10), 6 + 2 * np.arange(10)] = 2**31  # a square, in one of the attempts
    edges = op.draw(RandomWords(words), Frame(np.full(11, 64), np.full(11, 64)))["edges"]
    assert (edges[:10] == [0, 0, 45, 45]).all() and not edges[10].any()


def test_corners_lean_by_less_than_half_of_their_triangle() -> None:
    for given in first_and_last(ops.ElasticTransform(affine_px=1000.0, p=1.0), (48, 96)):
        np.testing.assert_allclose(np.abs(given["corners"]), MAX_LEAN * 48 / 3, rtol=1e-6)


FAR = {
    ops.RandomCrop(size=8): ("x", "y"),
    ops.MultiResolutionCrop(size=8, scales=(60_000,)): ("scale", "x", "y"),
    ops.RandomResize(size=(50_000, 60_000)): ("short",),
}


@pytest.mark.parametrize("op", FAR, ids=lambda op: op.op)
def test_draws_reach_the_far_end_of_the_largest_images(op: ops.Op) -> None:
    found = drawn(op, 100, (MAX_SIDE_PX, MAX_SIDE_PX))
    assert all(found[name].min() >= 0 and 40_000 < found[name].max() <= MAX_SIDE_PX for name in FAR[op])


@pytest.mark.parametrize("op", [ops.Erase(p=1.0), ops.CoarseDropout(p=1.0)], ids=lambda op: op.op)
def test_rectangles_reach_the_far_end_of_the_largest_frames(op: ops.Op) -> None:
    side = 60_000
    recipe = Recipe(ops=(ops.CenterCrop(size=side), op))
    edges = plan(recipe, range(100), sizes=[(side, side)] * 100, seed=0).rows["drawn"][op.op]["edges"]
    assert edges.min() >= 0 and 40_000 < edges.max() <= side


def test_a_crop_may_have_its_place() -> None:
    crop = ops.RandomCrop(size=(3, 4), at=(5, 2))
    values = drawn(crop, num=9, size=(20, 30))
    assert {tuple(row) for row in values} == {(5, 2)}
    assert (crop.draws_text, crop.num_variants, crop.centred, crop.refuses(5, 9)) == ("nothing", 1, crop, None)
    assert crop.refuses(5, 8) == (
        "random_crop gets 5x8 pixels, and takes 3x4 from column 5 and row 2 on. Put a ResizeShortest before it, or "
        "set pad_if_needed."
    )
    assert type(crop).model_validate(crop.model_dump()) == crop
    assert "at" not in ops.RandomCrop().model_dump()
