"""What is drawn for mixing, and how it comes into a plan: distributions, and CutMix as its authors wrote it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from augpipe import Plan, Recipe, View, ops, plan
from augpipe.ops.mixing import beta_weights
from augpipe.planning.mixing_draws import draw_mixing, mix_jobs
from augpipe.planning.mosaic_draws import draw_mosaic

NUM = 20_000
LEAST_P = 1e-3
CROP = ops.CenterCrop(size=(12, 20))
BOTH = Recipe(name="both", ops=(CROP, ops.Flip()), mixing=(ops.MixUp(alpha=0.3, p=0.5), ops.CutMix(p=0.25)))


def drawn(*mixing: Any, seed: int = 3, **options: Any) -> np.ndarray:
    return draw_mixing(mixing, seed, 1, np.arange(NUM), **({"is_sampled": False} | options))


def planned(recipe: Recipe = BOTH, num: int = NUM, **options: Any) -> Plan:
    partners = (np.arange(num) + 1) % num
    return plan(recipe, range(num), sizes=[(40, 40)] * num, **({"seed": 5, "partners": partners} | options))


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.2, 0.5, 0.999, 1.0, 1.7, 4.0, 30.0, 100.0])
def test_weights_are_those_of_scipys_beta_distribution(alpha: float) -> None:
    cells = np.linspace(0.0, 1.0, 4001)[:-1] + 1e-7
    weights = beta_weights(alpha, cells)
    assert (np.diff(weights) >= 0.0).all() and weights.min() >= 0.0 and weights.max() <= 1.0
    # near 1 a float64 weight is only known to 1e-16, where the integral of a small alpha is steep
    lower = cells < 0.5
    np.testing.assert_allclose(stats.beta.cdf(weights, alpha, alpha)[lower], cells[lower], atol=1e-6)
    np.testing.assert_allclose(weights[lower], 1.0 - beta_weights(alpha, 1.0 - cells[lower]), atol=1e-12)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_drawn_weights_pass_kolmogorov_and_smirnovs_test(alpha: float) -> None:
    found = drawn(ops.MixUp(alpha=alpha))["weight"]
    assert stats.kstest(found, stats.beta(alpha, alpha).cdf).pvalue > LEAST_P
    assert stats.kstest(found, stats.beta(alpha * 1.3, alpha * 1.3).cdf).pvalue < LEAST_P


def test_each_way_of_mixing_is_as_frequent_as_it_says() -> None:
    kinds = np.bincount(drawn(*BOTH.mixing)["kind"], minlength=3)
    assert stats.chisquare(kinds, np.array([0.25, 0.5, 0.25]) * NUM).pvalue > LEAST_P
    assert (drawn(ops.MixUp(p=0.0))["kind"] == 0).all() and (drawn(ops.MixUp())["kind"] == 1).all()
    tenths = [ops.MixUp(p=p) for p in (0.1, 0.2, 0.7)]  # as floats less than 1 by a bit
    assert set(drawn(*tenths)["kind"].tolist()) == {1, 2, 3}


def test_draws_depend_on_seed_epoch_sample_and_stream() -> None:
    one = drawn(*BOTH.mixing)
    others = [drawn(*BOTH.mixing, seed=4), drawn(*BOTH.mixing, is_sampled=True)]
    others.append(draw_mixing(BOTH.mixing, 3, 2, np.arange(NUM), is_sampled=False))
    for other in others:
        assert np.mean(one["weight"] == other["weight"]) < 0.5
    some = np.array([7, 3, 900])
    assert one[some].tobytes() == draw_mixing(BOTH.mixing, 3, 1, some, is_sampled=False).tobytes()


def cutmix_box(width: int, height: int, weight: float, centre: np.ndarray) -> tuple[int, int, int, int]:
    """`rand_bbox` of the authors' code, with the centre given."""
    cut = np.sqrt(1.0 - weight)
    cut_w, cut_h = int(width * cut), int(height * cut)
    cx, cy = int(centre[0] * width), int(centre[1] * height)
    left, right = np.clip([cx - cut_w // 2, cx + cut_w // 2], 0, width)
    top, bottom = np.clip([cy - cut_h // 2, cy + cut_h // 2], 0, height)
    return int(left), int(top), int(right), int(bottom)


def test_rectangles_are_those_of_cutmixs_authors() -> None:
    recipe = BOTH.model_copy(update={"mixing": (ops.CutMix(),)})
    raw = draw_mixing(recipe.mixing, 5, 0, np.arange(NUM), is_sampled=False)
    mixed = planned(recipe).rows["mixing"]
    for row, found in zip(raw[:2000], mixed[:2000], strict=True):
        left, top, right, bottom = cutmix_box(20, 12, row["weight"], row["centre"])
        assert found["region"].tolist() == [left, top, right, bottom]
        assert found["weight"] == 1.0 - (right - left) * (bottom - top) / 240
    assert stats.kstest(raw["centre"][:, 0], "uniform").pvalue > LEAST_P


def test_no_two_draws_of_a_sample_are_one_number() -> None:
    found = drawn(ops.CutMix(p=0.5), ops.CutMix(p=0.5))  # a weight and a place, whichever of the two it is
    placed = draw_mosaic(ops.Mosaic(size=64, p=0.5), 3, 1, np.arange(NUM), is_sampled=False)
    for numbers in (
        [found["kind"], found["weight"], *found["centre"].T],
        [placed["applied"], *placed["centre"].T],
    ):
        assert np.abs(np.corrcoef(numbers) - np.eye(len(numbers))).max() < 0.03


def test_mix_up_takes_the_whole_image_by_the_drawn_weight() -> None:
    mixed = planned().rows["mixing"]
    raw = draw_mixing(BOTH.mixing, 5, 0, np.arange(NUM), is_sampled=False)
    is_mixed_up = mixed["kind"] == 1
    assert (mixed["region"][is_mixed_up] == [0, 0, 20, 12]).all()
    assert (mixed["weight"] == raw["weight"])[is_mixed_up].all()
    alone = mixed[mixed["kind"] == 0]
    assert (alone["weight"] == 1.0).all() and (alone["partner"] == -1).all() and not alone["region"].any()


def test_mixing_changes_no_other_draw() -> None:
    without = planned(Recipe(ops=BOTH.ops)).rows
    found = planned().rows
    assert "mixing" not in (without.dtype.names or ())
    for name in without.dtype.names or ():
        assert found[name].tobytes() == without[name].tobytes()


def test_views_are_mixed_alike_each_at_its_size() -> None:
    views = (View(ops=(CROP,)), View(ops=(ops.CenterCrop(size=(6, 10)),), count=2))
    first, *others = planned(Recipe(views=views, mixing=BOTH.mixing), 500).views
    for rows in others:
        assert (rows["mixing"]["kind"] == first["mixing"]["kind"]).all()
        assert (rows["mixing"]["partner"] == first["mixing"]["partner"]).all()
        assert np.abs(first["mixing"]["region"] - 2 * rows["mixing"]["region"]).max() <= 3


def test_without_partners_nothing_is_mixed() -> None:
    for made in (planned(partners=None, num=50), planned(partners=np.full(50, -1), num=50)):
        assert not made.rows["mixing"]["kind"].any() and (made.rows["mixing"]["weight"] == 1.0).all()
    with pytest.raises(ValueError, match=r"partners holds 2 entries for 50 sample_ids. Give one each."):
        planned(num=50, partners=[1, 2])


def test_a_plan_tells_what_is_mixed_and_is_saved(tmp_path: Path) -> None:
    made = planned(num=40)
    captions = [dict(made.captions(position)) for position in range(40)]
    for row, told in zip(made.rows["mixing"], captions, strict=True):
        name = {1: "mix_up", 2: "cut_mix"}.get(int(row["kind"]))
        assert {"mix_up", "cut_mix"} & set(told) == ({name} if name else set())
        if name:
            assert told[name].startswith(f"{1.0 - row['weight']:.2f} of sample {row['partner']}")
            assert told[name] in str(made)
    made.save(tmp_path / "plan.npz")
    loaded = Plan.load(tmp_path / "plan.npz")
    assert loaded.recipe == BOTH and loaded.rows.tobytes() == made.rows.tobytes()


def test_jobs_hold_each_pair_once_and_what_is_left() -> None:
    rows = planned(BOTH, 6).rows
    mixed = rows["mixing"]
    mixed["kind"] = [1, 2, 0, 1, 1, 0]
    mixed["weight"], mixed["region"] = 0.25, [[1, 2, 3, 4]] * 6
    # 0 and 1 mix with each other, 3 with 2, which stays as it is, and 4 with the guest 5
    jobs = mix_jobs(rows, BOTH.mixing, np.array([1, 0, 3, 2, 5, -1]))
    assert jobs["places"].tolist() == [[0, 1], [3, 2], [4, 5]]
    assert jobs["weights"][:, 0].tolist() == [0.25, 0.25, 0.25] and jobs["weights"][0, 1] == 0.0
    assert jobs["regions"].any(axis=2).tolist() == [[True, True], [True, False], [True, False]]
