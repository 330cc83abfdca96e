"""Which recipes take several passes, which stay one, and what is said of them."""

import inspect
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Loader, Recipe, View, ops, policies, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.ops import commuting
from augpipe.ops.keep_objects import KnownObjects
from augpipe.ops.kinds import KINDS
from augpipe.ops.op import keyed
from augpipe.ops.view_passes import late_steps
from augpipe.planning.plan import Plan, plan
from augpipe.recipes.parts import only_ops, without_ops

IMAGE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
TWO = Recipe(name="two", ops=[ops.Noise(p=1.0), ops.Rotate()])


def passes(*listed: ops.Op, **fields: Any) -> list[list[str]]:
    (found,) = Recipe(ops=listed, **fields).passes
    return [[key for key, _ in one] for one in found]


def test_every_op_is_a_look_up_or_is_told_as_a_step() -> None:
    told = (*commuting.LINEAR, *commuting.OF_A_PIXEL, *commuting.ALIKE, *commuting.DIRECTED, *commuting.NO_STEPS)
    told += (ops.OneOf, ops.SomeOf, ops.AllOf)
    for kind, of_kind in KINDS.items():
        is_look_up = commuting.acts_in_look_up(of_kind.model_construct())
        assert is_look_up != issubclass(of_kind, told), kind


def test_recipes_of_papers_and_libraries_are_one_pass() -> None:
    names = ["rand-m9-mstd0.5-inc1", "augmix-m3-w3", "original", "v0", "3a", "rand-m15-n2"]
    found = [make() for make in recipes.BY_NAME.values()]
    for name in names:
        for border in ("context", "constant"):
            try:
                found.append(recipes.timm(name, border=border))  # type: ignore[arg-type]
            except ValueError:
                continue
    found += [recipes.rand_augment(border="constant"), recipes.trivial_augment_wide(border="constant")]
    found += [recipes.auto_augment("cifar10", border="constant")]
    assert [recipe.name for recipe in found if recipe.num_passes != 1 or recipe.pixels != 2] == []
    assert len(found) > 12 and inspect.isfunction(policies.timm)


def test_look_ups_then_steps_are_one_pass_whatever_the_steps() -> None:
    assert (
        len(passes(ops.RandomResizedCrop(), ops.Rotate(), ops.Noise(), ops.CLAHE(), ops.Erase(), ops.Normalize())) == 1
    )


WIDE = ops.CoarseDropout(height=(2, 2), width=(6, 8))
BLACK, GRAY = {"border": "constant"}, {"border": "constant", "fill": 9}


@pytest.mark.parametrize(
    ("listed", "fields", "found"),
    [
        ((ops.Noise(), ops.Rotate()), {}, "noise | rotate"),
        ((ops.Brightness(), ops.Rotate()), {}, "brightness, rotate"),
        ((ops.Solarize(), ops.Rotate()), {}, "solarize | rotate"),
        ((ops.Solarize(), ops.Rotate()), {"interpolation": "nearest"}, "solarize, rotate"),
        ((ops.Solarize(), ops.Translate(whole_px="nearest")), {}, "solarize, translate"),
        ((ops.Solarize(), ops.RandomCrop(size=8, padding=2)), {}, "solarize, random_crop"),
        ((ops.Invert(), ops.RandomCrop(size=8, padding=2)), {}, "invert | random_crop"),
        ((ops.Invert(), ops.Rotate()), {"border": "reflect"}, "invert, rotate"),
        ((ops.Invert(), ops.Rotate()), BLACK, "invert | rotate"),
        ((ops.Brightness(), ops.Rotate()), BLACK, "brightness, rotate"),
        ((ops.Brightness(), ops.Rotate()), GRAY, "brightness | rotate"),
        ((ops.Saturation(), ops.Rotate()), GRAY, "saturation, rotate"),
        ((ops.Noise(), ops.GaussianBlur(), ops.Flip()), {}, "noise, gaussian_blur, flip"),
        ((ops.Emboss(), ops.Flip()), {}, "emboss | flip"),
        ((ops.JpegCompression(), ops.Flip()), {}, "jpeg_compression | flip"),
        ((ops.Resize(size=32), ops.JpegCompression(), ops.Flip()), {}, "resize, jpeg_compression, flip"),
        ((ops.Resize(size=30), ops.GridShuffle(), ops.Flip()), {}, "resize, grid_shuffle, flip"),
        ((ops.Resize(size=30), ops.GridDropout(), ops.Transpose()), {}, "resize, grid_dropout, transpose"),
        ((ops.Resize(size=32), ops.GridDropout(), ops.Flip()), {}, "resize, grid_dropout | flip"),
        ((ops.Resize(size=30), ops.GridDropout(place=(0, 0)), ops.Flip()), {}, "resize, grid_dropout | flip"),
        ((ops.Resize(size=(30, 40)), ops.GridDropout(fit="square"), ops.Flip()), {}, "resize, grid_dropout | flip"),
        ((ops.PixelDropout(), ops.Shadow(), ops.Flip()), {}, "pixel_dropout, shadow | flip"),
        ((ops.Resize(size=32), ops.JpegCompression(), ops.Transpose()), {}, "resize, jpeg_compression | transpose"),
        (
            (ops.Resize(size=32), ops.JpegCompression(), ops.QuarterTurn()),
            {},
            "resize, jpeg_compression | quarter_turn",
        ),
        ((ops.Resize(size=32), ops.CLAHE(), ops.Flip()), {}, "resize, clahe | flip"),
        ((ops.Resize(size=32), ops.CLAHE(), ops.Transpose()), {}, "resize, clahe, transpose"),
        ((ops.Noise(), ops.QuarterTurn()), {}, "noise | quarter_turn"),
        ((ops.Resize(size=8), ops.Noise(), ops.QuarterTurn()), {}, "resize, noise, quarter_turn"),
        ((ops.Noise(), ops.QuarterTurn(swaps_sides=True)), {}, "noise, quarter_turn"),
        ((ops.Resize(size=8), WIDE, ops.QuarterTurn()), {}, "resize, coarse_dropout | quarter_turn"),
        ((ops.Resize(size=8), WIDE, ops.Transpose(), ops.Flip()), {}, "resize, coarse_dropout | transpose, flip"),
        ((WIDE, ops.Flip()), {}, "coarse_dropout, flip"),
        ((ops.Resize(size=8), ops.CoarseDropout(), ops.Transpose()), {}, "resize, coarse_dropout, transpose"),
        ((ops.Resize(size=8), ops.Erase(), ops.Transpose()), {}, "resize, erase, transpose"),
        ((ops.Resize(size=8), ops.Erase(ratio=(2.0, 3.0)), ops.Transpose()), {}, "resize, erase | transpose"),
        ((ops.Contrast(), ops.CenterCrop(size=8)), {}, "contrast, center_crop"),
        ((ops.Contrast(about="mean"), ops.CenterCrop(size=8)), {}, "contrast | center_crop"),
        ((ops.Noise(p=0.0), ops.Rotate()), {}, "noise, rotate"),
        ((ops.OneOf(ops=[ops.Noise(), ops.Rotate()]), ops.Rotate()), {}, "one_of, rotate"),
        ((ops.Noise(), ops.OneOf(ops=[ops.Noise(), ops.Rotate()])), {}, "noise | one_of"),
        ((ops.Noise(), ops.Rotate(), ops.MultiResolutionCrop()), {}, "multi_resolution_crop, noise, rotate"),
        ((ops.Noise(), ops.Flip(), ops.Rotate(), ops.Erase(), ops.Blur()), {}, "noise, flip | rotate, erase | blur"),
    ],
)
def test_passes_begin_where_a_look_up_does_not_commute(
    listed: tuple[ops.Op, ...], fields: dict[str, Any], found: str
) -> None:
    assert " | ".join(", ".join(one) for one in passes(*listed, **fields)) == found


def test_four_passes_are_the_most_and_a_mosaic_is_one() -> None:
    listed = [one for _ in range(5) for one in (ops.Noise(), ops.Rotate())]
    assert Recipe(ops=listed[:7]).num_passes == 4
    with pytest.raises(ValueError, match=r"a view takes 5 passes .*noise_4 before rotate_4.* 4 are the most\. List"):
        Recipe(ops=listed[:8])
    with pytest.raises(ValueError, match=r"a mosaic is one pass, .* takes 2 \(gamma before random_resized_crop"):
        Recipe(ops=[ops.Gamma(), ops.RandomResizedCrop(size=8)], mosaic=ops.Mosaic(size=16))


def test_the_plan_says_how_many(tmp_path: Path) -> None:
    made = plan(TWO, [1, 2], sizes=[(20, 30), (8, 9)])
    assert made.num_passes == 2 and repr(made).endswith("seed 0, 2 passes") and ", 2 passes\n" in str(made)
    assert made.rows["height"].tolist() == [20, 8] and made.rows["earlier"]["pass_1"]["out_width"].tolist() == [30, 9]
    assert "passes" not in str(plan(TWO.fused(), [1], sizes=[(20, 30)]))
    made.save(tmp_path / "plan.npz")
    again = Plan.load(tmp_path / "plan.npz")
    assert again.views[0].tobytes() == made.views[0].tobytes() and again[1:].rows["height"].tolist() == [8]


def test_draws_are_those_of_one_pass() -> None:
    recipe = Recipe(ops=[ops.Noise(), ops.Rotate(), ops.Noise(), ops.Shear(), ops.Brightness()])
    two, one = (plan(made, range(6), sizes=[(20, 30)] * 6).rows["drawn"] for made in (recipe, recipe.fused()))
    assert recipe.num_passes == 3 and all(two[key].tobytes() == one[key].tobytes() for key in two.dtype.names)


def test_fused_moves_steps_behind_geometry_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fused = TWO.fused()
    assert [op.op for op in fused.ops] == ["rotate", "noise"] and (fused.num_passes, fused.pixels) == (1, 2)
    assert caplog.messages == [
        "recipe 'two': noise stands before rotate, and acts behind it now.",
        "recipe 'two': one pass instead of 2: each image is looked up once, and no frame is rendered in between.",
    ]
    assert fused.fused() == fused and recipes.deep_image().fused() == recipes.deep_image() and len(caplog.messages) == 2
    groups = [ops.OneOf(ops=[ops.Noise()]), ops.OneOf(ops=[ops.Rotate()])]
    several = Recipe(views=[View(ops=groups, count=2), View(ops=[ops.Rotate()])]).fused()
    assert [view.count for view in several.views] == [2, 1] and several.views[0].ops == tuple(groups[::-1])
    assert caplog.messages[-2].endswith("groups change places, and each one_of draws other numbers now.")
    assert "one pass instead of 2" in caplog.messages[-1]


def test_parts_of_a_recipe_take_as_many_passes_as_their_own_order_asks_for() -> None:
    recipe = Recipe(views=[View(ops=[ops.Noise(p=1.0), ops.Rotate(), ops.Emboss(p=1.0), ops.CenterCrop(size=8)])])
    assert recipe.num_passes == 3
    assert without_ops(recipe, ["noise"]).num_passes == 2 and only_ops(recipe, 0, ["rotate"]).num_passes == 1


def test_a_recipe_of_several_passes_carries_another_number(caplog: pytest.LogCaptureFixture) -> None:
    text = TWO.to_toml()
    assert "pixels = 3\n" in text and "pixels = 2\n" in TWO.fused().to_toml()
    images = ArraySource(IMAGE[None])
    assert (
        Loader(images, TWO, batch_size=1).state_dict()["pixels"] == 3
        and Loader(images, TWO.fused(), batch_size=1).state_dict()["pixels"] == 2
    )
    caplog.clear()  # that nothing is normalised
    data = TWO.model_dump() | {"pixels": 2}
    assert Recipe.model_validate(data) == TWO
    assert caplog.messages[0].startswith("the recipe says pixels = 2, and this augpipe makes pixels = 3: the same seed")
    state = Loader(images, TWO, batch_size=1).state_dict() | {"pixels": 2}
    with pytest.raises(ValueError, match="the state says pixels = 2, and this augpipe makes pixels = 3: the rest"):
        Loader(images, TWO, batch_size=1).load_state_dict(state)


def test_steps_of_the_first_pass_are_drawn_within_its_own_frame() -> None:
    hole = ops.CoarseDropout(num=(1, 1), height=(1.0, 1.0), width=(1.0, 1.0), unit="fraction", fill=200, p=1.0)
    found = Augment(Recipe(ops=[hole, ops.RandomCrop(size=5)]), dtype="uint8")(IMAGE)
    assert (found == 200).all()  # all of the image, and not a hole in the crop alone


def test_a_crop_of_a_later_pass_looks_at_the_objects_that_are_left() -> None:
    rng = np.random.default_rng(1)
    corners = np.sort(rng.uniform(0.0, 60.0, (40, 2, 2)), axis=1)
    objects = KnownObjects(counts=np.full(10, 4), boxes=corners.reshape(-1, 4), labels=np.arange(40) % 3)
    keep = ops.KeepObjects(rule="whole", classes={"1": 1.0, "2": 2.0}, tries=20)
    before = [ops.ResizeShortest(size=50), ops.Flip(p=0.6), ops.CenterCrop(size=40)]
    crop = ops.RandomResizedCrop(size=16, scale=(0.1, 0.6), step=None, keep_objects=keep)
    two, one = (
        plan(Recipe(ops=[*before, *more, crop]), range(10), sizes=[(60, 80)] * 10, objects=objects)
        for more in ([ops.Noise()], [])
    )
    assert (two.num_passes, one.num_passes) == (2, 1)
    found, expected = (made.rows["drawn"]["random_resized_crop"] for made in (two, one))
    assert (found["keep_objects"] == expected["keep_objects"]).all() and found["keep_objects"]["tries"].max() > 1
    for name in ("x", "y", "width", "height"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


def test_steps_on_levels_act_late_only_where_pixels_are_mixed() -> None:
    before, border = [ops.CenterCrop(size=16), ops.Solarize()], ("constant", (0.0, 0.0, 0.0))
    listed = keyed([*before, ops.Rotate()])
    for interpolation, late in (("linear", [("solarize", "rotate")]), ("nearest", [])):
        assert [(step.op, look_up.op) for step, look_up in late_steps((listed,), border, interpolation)] == late
