"""Groups with a look of their own: each finishes what all before it have made, as Pillow's calls do one by one."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from augpipe import Augment, Recipe, ops
from augpipe.ops.op import Op
from augpipe.ops.view_passes import late_within
from augpipe.planning.plan import plan

IMAGE = np.random.default_rng(3).integers(0, 256, (6, 8, 3), np.uint8)
PHOTO = np.asarray(Image.fromarray(IMAGE).resize((72, 54), Image.Resampling.BICUBIC))
GRAY = (124.0, 116.0, 104.0)
TURN, INVERT = ops.Rotate(max_deg=(25.0, 25.0), step=None), ops.Invert(p=1.0)
SHEAR = ops.Shear(horizontal_deg=(15.0, 15.0), vertical_deg=(0.0, 0.0), about="corner", step=None, p=1.0)
RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
RESAMPLING["nearest"] = Image.Resampling.NEAREST


def one(*listed: Op, look: Any = "bilinear", **fields: Any) -> ops.OneOf:
    return ops.OneOf(ops=listed, own_look=look, **fields)


def recipe(*listed: Op, **fields: Any) -> Recipe:
    return Recipe(name="own", ops=listed, border="constant", fill=GRAY, **fields)


def made(*listed: Op) -> np.ndarray:
    return np.asarray(Augment(recipe(*listed), dtype="uint8", layout="NHWC", framework="numpy")([PHOTO])[0], np.int64)


def apart(found: np.ndarray, expected: Image.Image) -> int:
    """The largest difference, in levels."""
    return int(np.abs(found - np.asarray(expected, np.int64)).max())


@pytest.mark.parametrize("look", RESAMPLING)
def test_groups_finish_one_by_one_as_pillows_calls(look: str) -> None:
    size, fill = (48, 40), tuple(int(level) for level in GRAY)
    theirs = Image.fromarray(PHOTO).crop((12, 7, 60, 47)).rotate(25, RESAMPLING[look], fillcolor=fill)
    theirs = ImageOps.invert(theirs)
    slanted = (1.0, float(np.tan(np.radians(15.0))), 0.0, 0.0, 1.0, 0.0)
    theirs = theirs.transform(size, Image.Transform.AFFINE, slanted, RESAMPLING[look], fillcolor=fill)
    found = made(ops.CenterCrop(size=(40, 48)), *(one(op, look=look) for op in (TURN, INVERT, SHEAR)))
    assert apart(found, theirs) <= (10 if look == "bicubic" else 2)  # of a = -1 in Pillow where it turns, here -0.5


def test_ops_of_a_choice_finish_in_turn() -> None:
    fill = tuple(int(level) for level in GRAY)
    theirs = ImageOps.invert(Image.fromarray(PHOTO)).rotate(25, Image.Resampling.BILINEAR, fillcolor=fill)
    group = ops.AllOf(ops=[INVERT, TURN], in_turn=True)
    assert apart(made(one(group)), theirs) <= 1
    plain = one(ops.AllOf(ops=[INVERT, TURN]))
    assert (made(plain)[0, 0] == 255 - np.array(fill)).all()  # the corner is inverted, too


BORDERED: list[tuple[dict[str, Any], Op]] = [
    ({"own_border": "reflect_101"}, TURN),
    ({"own_border": "constant", "own_fill": (255, 0, 30)}, ops.Zoom(factor=(0.5, 0.5))),
    ({"own_border": "edge"}, SHEAR),
    ({}, ops.Translate(horizontal=(0.2, 0.2), vertical=(0.1, 0.1))),
]


def test_groups_show_borders_of_their_own(tmp_path: Path) -> None:
    """As calls one after the other, each of a recipe with that border."""
    options: dict[str, Any] = {"dtype": "uint8", "layout": "NHWC", "framework": "numpy"}
    box = {"bboxes": [[10.0, 8.0, 50.0, 40.0]], "bbox_format": "pascal_voc"}
    whole = Recipe(ops=[one(op, **border) for border, op in BORDERED], border="wrap")
    whole.dump(tmp_path / "own.toml")
    assert whole.num_passes == 4 and Recipe.load(tmp_path / "own.toml") == whole
    found = Augment(whole, **options)(image=PHOTO, **box)
    images = [PHOTO]
    for border, op in BORDERED:
        beyond = {"border": border.get("own_border", "wrap"), "fill": border.get("own_fill", 0)}
        images.append(Augment(Recipe(ops=[one(op)], **beyond), **options)(images[-1]))
    np.testing.assert_array_equal(found["image"], images[-1])
    assert not (found["image"] == Augment(recipe(*(one(op) for _, op in BORDERED)), **options)(PHOTO)).all()
    alone = whole.fused()
    assert alone.num_passes == 1 and not any(group.own_border for group in alone.ops if isinstance(group, ops.OneOf))


def test_a_border_of_its_own_needs_a_look() -> None:
    with pytest.raises(ValueError, match=r"one_of has own_border='edge' and no own_look: only a group that begins"):
        one(TURN, look=None, own_border="edge")


@pytest.mark.parametrize("border", [{}, {"own_border": "edge"}], ids=["none", "edge"])
def test_a_fill_of_its_own_needs_a_constant_border(border: Any) -> None:
    with pytest.raises(ValueError, match=r"which only own_border='constant' shows. Give it that"):
        one(TURN, own_fill=9, **border)


def test_a_step_waits_for_what_the_group_shows_beyond_the_image() -> None:
    """Linear steps commute with a look-up of a linear border, and not where it shows a fill that they change."""
    dark = ops.Brightness(factor=(0.5, 0.5))
    for border, fill, is_late in (("constant", 200, True), ("reflect", 0, False)):
        group = ops.AllOf(ops=[dark, TURN], own_look="bilinear", own_border=border, own_fill=fill)
        assert [*late_within(group, [], ("reflect", (0.0, 0.0, 0.0)), "bilinear")] == (
            [(dark, TURN)] if is_late else []
        )


def passes(*listed: Op) -> str:
    (found,) = recipe(*listed).passes
    return " | ".join(", ".join(key for key, _ in one) for one in found)


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (
            (ops.RandomResizedCrop(), ops.Flip(), one(INVERT), one(TURN)),
            "random_resized_crop, flip | one_of | one_of_2",
        ),
        ((one(TURN), ops.Invert(), ops.Normalize()), "one_of, invert, normalize"),
        ((ops.Flip(), ops.Invert(), one(TURN), ops.Flip()), "flip, invert | one_of, flip_2"),
        ((one(TURN), ops.RandomCrop(size=8)), "one_of | random_crop"),
        ((one(INVERT), ops.RandomCrop(size=8)), "one_of | random_crop"),
        ((one(INVERT), ops.Noise(), ops.Rotate()), "one_of, noise | rotate"),
        ((ops.MultiResolutionCrop(), one(TURN)), "multi_resolution_crop | one_of"),
        ((ops.Resize(size=8), ops.AllOf(ops=[TURN, SHEAR], own_look="nearest")), "resize | all_of"),
        (
            (ops.Resize(size=8), one(ops.AllOf(ops=[TURN, INVERT], in_turn=True), TURN), ops.Flip()),
            "resize | one_of | one_of, flip",
        ),
    ],
)
def test_an_own_look_begins_a_pass_in_which_nothing_else_looks(listed: tuple[Op, ...], found: str) -> None:
    assert passes(*listed) == found


def test_draws_are_those_without_it() -> None:
    pair, last = [ops.Solarize(), ops.Shear()], ops.OneOf(ops=[TURN, INVERT])
    several = recipe(one(ops.Rotate(), ops.Brightness(), ops.AllOf(ops=pair, in_turn=True), p=0.8), last)
    plain = recipe(ops.OneOf(ops=[ops.Rotate(), ops.Brightness(), ops.AllOf(ops=pair)], p=0.8), last)
    found, expected = (plan(given, range(50), sizes=[(54, 72)] * 50) for given in (several, plain))
    assert found.num_passes == 3 and expected.num_passes == 1
    assert found.rows["drawn"].tobytes() == expected.rows["drawn"].tobytes()


def test_a_random_look_is_drawn_for_each_pass() -> None:
    drawn = one(TURN, look="random")
    for listed in ((drawn, drawn), (drawn, ops.RandomCrop(size=8))):
        found = plan(recipe(*listed, interpolation="random"), range(64), sizes=[(54, 72)] * 64).rows
        earlier = found["earlier"]["pass_1"]["interpolation"]
        kinds = {*zip(earlier.tolist(), found["interpolation"].tolist(), strict=True)}
        assert kinds == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_random_look_does_not_depend_on_other_ops() -> None:
    drawn = one(TURN, look="random")
    first, second = (
        plan(recipe(*before, drawn), range(64), sizes=[(54, 72)] * 64).rows["interpolation"]
        for before in ((), (ops.Flip(), ops.Noise(), ops.Rotate()))
    )
    assert (first == second).all()


def test_it_is_told_what_takes_passes_and_fused_leaves_it_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    listed = ops.Resize(size=8), one(INVERT, TURN), ops.OneOf(ops=[TURN])
    assert recipe(*listed).num_passes == 3
    fused = recipe(*listed).fused()
    assert fused.num_passes == 1 and fused.ops == (listed[0], ops.OneOf(ops=[INVERT, TURN]), listed[2])
    assert "one_of has no look of its own now" in caplog.text and "one_of draws other numbers" not in caplog.text


LOST = "own: {} has no look of its own now: what moves in it acts before all steps, its steps behind it."


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ((one(TURN), ops.RandomCrop(size=8)), ["one_of"]),  # the crop waits for nothing but that look
        ((ops.Resize(size=8), one(ops.AllOf(ops=[TURN, INVERT], in_turn=True))), ["one_of"]),  # once, for two passes
        ((one(TURN), ops.Resize(size=8), one(TURN)), ["one_of", "one_of_2"]),
    ],
)
def test_each_group_is_told_of_once(listed: tuple[Op, ...], told: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    own = recipe(*listed)
    assert own.fused().num_passes == 1
    assert own.reasons(own.all_views[0]) == [f"{key} has own_look" for key in told]
    *lost, saved = [line.replace("recipe 'own'", "own") for line in caplog.messages]
    assert lost == [LOST.format(key) for key in told] and saved.startswith("own: one pass instead of ")


def test_a_step_that_waits_is_told_of_before_the_group_behind_which_it_stands() -> None:
    own = recipe(one(INVERT), ops.Noise(), ops.Rotate())
    assert own.reasons(own.all_views[0]) == ["noise before rotate"]


def test_what_takes_too_many_passes_is_told_to_leave_own_look_out() -> None:
    told = "Leave own_look out of a group, or list geometry before the steps that do not commute with it."
    with pytest.raises(ValueError, match=rf"5 passes .*\(one_of has own_look, one_of_2 has own_look, .* {told}"):
        recipe(ops.Resize(size=8), *(one(TURN) for _ in range(4)))
    with pytest.raises(ValueError, match=r"takes 2 \(one_of has own_look\)\. Leave own_look out of all groups, list"):
        Recipe(ops=[ops.RandomCrop(size=8), one(TURN)], mosaic=ops.Mosaic(size=64))


def test_a_group_that_cannot_finish_in_turn_is_refused() -> None:
    """Instead of finishing all at once without a word."""
    pair = ops.AllOf(ops=[INVERT, TURN], in_turn=True)
    for listed in (pair, ops.OneOf(ops=[pair]), ops.SomeOf(ops=[pair], own_look="nearest")):
        with pytest.raises(ValueError, match="in_turn=True has no effect"):
            recipe(listed)
    for held in (pair, ops.OneOf(ops=[pair])):
        with pytest.raises(ValueError, match="in_turn=True has no effect"):
            recipe(ops.AllOf(ops=[held], own_look="nearest"))
    nested = recipe(one(ops.OneOf(ops=[pair])))
    assert nested.num_passes == 2
    assert nested.fused().ops == (ops.OneOf(ops=[ops.OneOf(ops=[ops.AllOf(ops=[INVERT, TURN])])]),)


def test_only_a_group_of_the_recipe_has_one_and_blurs_only_bilinearly() -> None:
    with pytest.raises(ValueError, match="all_of holds one_of with own_look='bilinear'"):
        ops.AllOf(ops=[one(TURN)])
    with pytest.raises(ValueError, match="blur widens the bilinear look-up, and own_look='nearest' has none"):
        one(ops.Blur(), look="nearest")
