"""Schedules: which recipe an epoch has, TOML, progressive sizes, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from augpipe import Recipe, Schedule, View, ops, recipes
from augpipe.ops import CenterCrop, ColorCast, Flip, MultiResolutionCrop, Normalize, RandomResizedCrop, Rotate

SMALL, LARGE = recipes.deep_image(128, (146, 293)), recipes.deep_image()


def test_an_epoch_has_the_last_recipe_that_has_begun() -> None:
    schedule = Schedule.of({10: LARGE, 0: SMALL})
    assert [schedule.at(epoch) is SMALL for epoch in (0, 9, 10, 11, 2**32 - 1)] == [True, True, False, False, False]
    assert schedule.at(10) is LARGE and schedule.recipes == (SMALL, LARGE)
    assert Schedule.of(schedule) is schedule
    assert Schedule.of(LARGE).at(7) is LARGE


def test_toml_brings_it_back(tmp_path: Path) -> None:
    schedule = Schedule.of({0: SMALL, 3: Recipe(ops=(CenterCrop(size=32), Rotate(step=None), Normalize()))})
    schedule.dump(tmp_path / "schedule.toml")
    assert Schedule.load(tmp_path / "schedule.toml") == schedule
    with pytest.raises(ValueError, match=r"schedule.toml is a schedule, and one recipe is needed. Schedule.load"):
        Recipe.load(tmp_path / "schedule.toml")
    LARGE.dump(tmp_path / "recipe.toml")
    assert Schedule.load(tmp_path / "recipe.toml") == Schedule.of(LARGE)


WHOLE, VIEWS = recipes.none(), Recipe(views=(View(ops=(CenterCrop(size=8), Normalize()), count=2),))
WRONG: list[tuple[Any, str]] = [
    ({1: LARGE}, r"the stages begin with epochs \[1\], and the first one must with epoch 0. Add it"),
    ({}, r"the stages begin with epochs \[\]"),
    ({0: LARGE, -1: SMALL}, "epoch=-1 must be at least 0"),
    ({0: LARGE, "a": SMALL}, "epoch='a' must be a whole number"),
    ({0: LARGE, 1: "deep_image"}, "recipe is a str. Give a Recipe"),
    ("deep_image", "recipe is a str. Give a Recipe"),
    (
        {0: LARGE, 4: Recipe(channels=1, ops=[Normalize(mean=0.5, std=0.5)])},
        r"the first one in channels \(1, 3 there\)",
    ),
    ({0: LARGE, 4: WHOLE}, r"the recipe of epoch 4 differs from the first one in Normalize \(False, True there\)"),
    ({0: LARGE, 4: VIEWS}, r"the recipe of epoch 4 differs from the first one in views \(2, 1 there\)"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_schedules_that_cannot_be(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.of(given)


def test_stages_rise(tmp_path: Path) -> None:
    text = Schedule.of({0: SMALL, 3: LARGE}).to_toml()
    for wrong, message in (
        (text.replace("epoch = 3", "epoch = 0"), r"begin with epochs \[0, 0\], which must rise. Put them in order"),
        (text.replace("epoch = 3", "epoc = 3"), "epoc"),
        (text.replace('op = "flip"', 'op = "flop"'), "flop"),
        ("stages = 3", "stages=3"),
        ("[[stages", "not valid TOML"),
    ):
        (tmp_path / "schedule.toml").write_text(wrong)
        with pytest.raises(ValueError, match=f"(?s)schedule.toml: .*{message}"):
            Schedule.load(tmp_path / "schedule.toml")


# Sizes


def test_sizes_and_scales_change_in_proportion() -> None:
    assert recipes.resized(LARGE, 224) == LARGE
    small = recipes.resized(LARGE, 112)
    assert small.ops[5] == MultiResolutionCrop(size=112, scales=(128, 256)) and small.ops[:5] == LARGE.ops[:5]
    assert recipes.resized(recipes.evaluation(), 98).ops[0] == CenterCrop(size=98, scale=112)
    several = Recipe(
        name="several", border="reflect",
        views=(
            View(ops=(RandomResizedCrop(size=(64, 128)), Flip(), Normalize()), count=2),
            View(ops=(MultiResolutionCrop(size=32, scales=(33, 34)), ColorCast(), Normalize())),
        ),
    )  # fmt: skip
    changed = recipes.resized(several, 64)
    assert (changed.name, changed.border) == ("several", "reflect")
    assert changed.views[0] == View(ops=(RandomResizedCrop(size=(32, 64)), Flip(), Normalize()), count=2)
    assert changed.views[1].ops[0] == MultiResolutionCrop(size=16, scales=(16, 17))
    with pytest.raises(ValueError, match="the recipe 'none' keeps whole images, which have no size to change. Add"):
        recipes.resized(recipes.none(), 64)


def test_progressive_is_a_schedule_of_sizes() -> None:
    schedule = recipes.progressive(LARGE, {0: 128, 6: 192, 9: 224})
    assert [stage.epoch for stage in schedule.stages] == [0, 6, 9]
    assert [recipe.all_views[0].out_size for recipe in schedule.recipes] == [(128, 128), (192, 192), (224, 224)]
    assert schedule.at(9) == LARGE


def test_a_ramp_is_a_straight_line_in_steps() -> None:
    assert recipes.ramp(160, 224, begin=2, end=6) == {0: 160, 4: 192, 6: 224}
    assert recipes.ramp(128, 250, begin=0, end=4, step=10) == {0: 128, 1: 150, 2: 180, 3: 210, 4: 250}
    assert recipes.ramp(224, 160, begin=0, end=2, step=1) == {0: 224, 1: 192, 2: 160}
    assert recipes.ramp(100, 100, begin=0, end=3) == {0: 100}
    for wrong in ({"begin": 3, "end": 3}, {"begin": -1, "end": 3}, {"begin": 0, "end": 3, "step": 0}):
        with pytest.raises(ValueError, match="sizes and step are at least 1, and begin is from 0 on and below end"):
            recipes.ramp(128, 224, **wrong)


def test_chains_of_crops_change_in_proportion_or_say_that_they_cannot() -> None:
    chain = Recipe(ops=(ops.ResizeShortest(size=64), ops.RandomCrop(size=56, padding=4)))
    assert recipes.resized(chain, 28).ops == (ops.ResizeShortest(size=32), ops.RandomCrop(size=28, padding=2))
    with pytest.raises(
        ValueError, match=r"resized\('unnamed', 40\): .* make 39x39\. Give a size at which all are whole"
    ):
        recipes.resized(Recipe(ops=(ops.Resize(size=28), ops.Pad(px=2))), 40)
