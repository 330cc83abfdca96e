"""Recipes: from and to TOML, JSON Schema, what they refuse and in which words."""

import json
import pickle
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Recipe, Schedule, View, ops, plan, recipes
from augpipe.sampling.state import recipe_text
from augpipe.validation.models import FieldError
from tests.parity.schema import problems


def load(text: str, folder: Path) -> Recipe:
    (folder / "recipe.toml").write_text(text, encoding="utf-8")
    return Recipe.load(folder / "recipe.toml")


# TOML


def test_toml_is_written_with_every_field() -> None:
    recipe = Recipe(name="mine", ops=(ops.ColorCast(), ops.Rotate(step=None), ops.CenterCrop(), ops.Stretch()))
    assert tomllib.loads(recipe.to_toml()) == {
        "name": "mine",
        "pixels": 2,
        "border": "context",
        "fill": [0.0, 0.0, 0.0],
        "interpolation": "bilinear",
        "antialias": True,
        "channels": 3,
        "ops": [
            {"op": "color_cast", "max_shift": 20.0, "step": 1.0, "channel_p": 0.5, "p": 1.0},
            {"op": "rotate", "max_deg": 10.0, "step": "continuous", "p": 1.0},
            {"op": "center_crop", "size": 224},
            {"op": "stretch", "horizontal": [0.8, 1.25], "vertical": [0.8, 1.25], "p": 1.0},
        ],
    }


def test_a_recipe_of_another_releases_pixels_is_told_and_gets_this_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Recipe(ops=(ops.CenterCrop(),)).to_toml()
    assert load(text, tmp_path) == load(text.replace("pixels = 2\n", ""), tmp_path)
    assert caplog.messages == []
    monkeypatch.setattr("augpipe.recipes.recipe.PIXELS", 3)
    loaded = load(text, tmp_path)
    assert (loaded.pixels, len(caplog.messages)) == (3, 1)
    assert caplog.messages[0].startswith("the recipe says pixels = 2, and this augpipe makes pixels = 3: the same seed")
    assert load(loaded.to_toml(), tmp_path) == loaded and len(caplog.messages) == 1


def test_mixing_is_a_list_of_its_own(tmp_path: Path) -> None:
    crop = '[[ops]]\nop = "center_crop"\nsize = 32\n'
    text = crop + '[[mixing]]\nop = "mix_up"\np = 0.5\n[[mixing]]\nop = "cut_mix"\np = 0.3\n'
    recipe = load(text, tmp_path)
    assert recipe.mixing == (ops.MixUp(alpha=0.2, p=0.5), ops.CutMix(alpha=1.0, p=0.3))
    assert tomllib.loads(recipe.to_toml())["mixing"][1] == {"op": "cut_mix", "alpha": 1.0, "p": 0.3}
    schema = Recipe.json_schema()
    assert problems(tomllib.loads(recipe.to_toml()), schema, schema) == []
    recipe.dump(tmp_path / "again.toml")
    assert Recipe.load(tmp_path / "again.toml") == recipe and recipe.num_variants is None
    assert Recipe(ops=recipe.ops).num_variants == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"mixing": (ops.MixUp(p=0.7), ops.CutMix(p=0.4))},
            "the probabilities of mixing add up to 1.1, and one of them at most happens to a sample. Lower their p",
        ),
        ({"mixing": (ops.MixUp(),), "ops": ()}, "mixing needs images of one size.* Add a crop, such as CenterCrop"),
        ({"mixing": (ops.Flip(),)}, "'flip' does not mix. What does: mix_up, cut_mix, copy_paste."),
        ({"mixing": ({"op": "mixup"},)}, "'mixup' does not mix. Did you mean 'mix_up'?"),
        ({"mixing": (ops.MixUp,)}, r"MixUp is the class. Write MixUp\(\) for one of it."),
        ({"mixing": ("cut_mix",)}, r"'cut_mix' is only a name. Write CutMix\(\), in TOML {op = \"cut_mix\"}."),
        ({"mixing": (3,)}, "a value of type int does not mix. augpipe.ops has what does: MixUp, CutMix, CopyPaste."),
        ({"mixing": ops.MixUp()}, r"must be a list: mixing=\[MixUp\(...\)\]"),
        ({"mixing": ({"op": "mix_up", "alpha": 0.0},)}, "alpha=0.0 must be above 0"),
        ({"mixing": ({"op": "mix_up", "alpha": float("nan")},)}, "alpha=nan must be"),
        ({"mixing": ({"op": "cut_mix", "alfa": 1.0},)}, "'alfa' is not a field of CutMix. Did you mean 'alpha'?"),
        ({"ops": (ops.MixUp(),)}, "what mixes finished images goes into the recipe's mixing, not its ops"),
        ({"ops": ({"op": "cut_mix"},)}, "what mixes finished images goes into the recipe's mixing, not its ops"),
    ],
)
def test_mixing_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**{"ops": (ops.CenterCrop(),), **fields})


def test_toml_is_read_with_defaults(tmp_path: Path) -> None:
    recipe = load('[[ops]]\nop = "rotate"\n\n[[ops]]\nop = "multi_resolution_crop"\nscales = [300]\n', tmp_path)
    assert recipe == Recipe(ops=(ops.Rotate(), ops.MultiResolutionCrop(scales=(300,))))
    assert load("", tmp_path) == Recipe() == Recipe(name="", border="context", fill=(0, 0, 0), ops=(), views=())


@pytest.mark.parametrize("recipe", [build() for build in recipes.BY_NAME.values()], ids=list(recipes.BY_NAME))
def test_ready_recipes_come_back_equal(recipe: Recipe, tmp_path: Path) -> None:
    recipe.dump(tmp_path / "a b ü.toml")
    assert Recipe.load(tmp_path / "a b ü.toml") == recipe
    assert Recipe.load(str(tmp_path / "a b ü.toml")).to_toml() == recipe.to_toml()


def test_ready_recipes() -> None:
    kinds = [op.op for op in recipes.deep_image(100, (120,)).ops]
    assert kinds == [
        *("color_cast", "vignette", "lens_distortion", "rotate", "flip", "multi_resolution_crop", "normalize")
    ]
    assert recipes.deep_image(100, [120]).ops[5] == ops.MultiResolutionCrop(size=100, scales=(120,))
    assert recipes.deep_image() == recipes.deep_image(224, (256, 512))
    assert recipes.evaluation(64, 80).ops == (ops.CenterCrop(size=64, scale=80), ops.Normalize())
    assert recipes.evaluation().ops[0] == ops.CenterCrop(size=224, scale=256)
    for size, scale in ((32, 37), (112, 128), ((112, 168), 192), (256, 293), (300, 343)):  # 8/7 of the longer side
        assert recipes.evaluation(size).ops[0] == ops.CenterCrop(size=size, scale=scale)
    assert recipes.none().ops == () and recipes.none().num_variants == 1
    assert set(recipes.BY_NAME) == {
        *("deep_image", "trivial_augment_wide", "rand_augment", "auto_augment", "three_augment", "evaluation", "none")
    }
    assert all(name == build().name for name, build in recipes.BY_NAME.items())


CONTINUOUS = [
    (ops.Rotate, "step"),
    (ops.ColorCast, "step"),
    (ops.Vignette, "radius_step"),
    (ops.Vignette, "strength_step"),
    (ops.LensDistortion, "degrees"),
    (ops.MultiResolutionCrop, "step"),
    (ops.RandomResizedCrop, "step"),
]


@pytest.mark.parametrize(("kind", "field"), CONTINUOUS)
def test_none_is_written_as_continuous(kind: type[ops.Op], field: str, tmp_path: Path) -> None:
    recipe = Recipe(ops=(kind(**{field: None}),))
    assert tomllib.loads(recipe.to_toml())["ops"][0][field] == "continuous"
    assert load(recipe.to_toml(), tmp_path) == recipe
    assert kind(**{field: "continuous"}) == kind(**{field: None})


@pytest.mark.parametrize(
    ("kind", "field"), [(ops.Stretch, "step"), (ops.BrownConrady, "steps"), (ops.CenterCrop, "scale")]
)
def test_none_is_left_out_where_it_is_the_default(kind: type[ops.Op], field: str, tmp_path: Path) -> None:
    recipe = Recipe(ops=(kind(),))
    assert field not in tomllib.loads(recipe.to_toml())["ops"][0]
    assert getattr(load(recipe.to_toml(), tmp_path).ops[0], field) is None


def test_views_are_written_in_place_of_ops(tmp_path: Path) -> None:
    recipe = Recipe(
        border="constant",
        fill=(1, 2.5, 255),
        views=(View(ops=(ops.RandomResizedCrop(size=(3, 4)), ops.Rotate(step=None)), count=2), View()),
    )
    text = recipe.to_toml()
    assert "\nops = []" not in text and "[[views.ops]]" in text
    assert load(text, tmp_path) == recipe


# JSON Schema


def test_views_fit_the_schema() -> None:
    """And so does every op: property/test_recipe."""
    schema = Recipe.json_schema()
    several = Recipe(views=(View(ops=EVERY_OP, count=3), View()))
    for recipe in (several, *(build() for build in recipes.BY_NAME.values())):
        assert problems(tomllib.loads(recipe.to_toml()), schema, schema) == []


EVERY_OP = (
    *(ops.BrownConrady(), ops.RandomResizedCrop(size=(9, 8)), ops.ColorCast(), ops.Flip(), ops.Rotate()),
    *(ops.Stretch(), ops.Vignette(), ops.Normalize(), ops.Translate(), ops.Shear(), ops.Zoom(), ops.QuarterTurn()),
    *(ops.Perspective(), ops.Blur(), ops.Rotate(max_deg=(-5, 9))),
)


@pytest.mark.parametrize(
    "data",
    [
        {"boarder": "edge"},
        {"border": "mirror"},
        {"fill": [0, 0]},
        {"fill": [0, 0, 256]},
        {"ops": [{"op": "twirl"}]},
        {"ops": [{"op": "rotate", "max_degrees": 3}]},
        {"ops": [{"op": "rotate", "max_deg": "much"}]},
        {"ops": [{"op": "rotate", "p": 2}]},
        {"ops": [{"op": "multi_resolution_crop", "scales": []}]},
        {"views": [{"count": 0}]},
        {"views": [{"number": 1}]},
    ],
)
def test_the_schema_refuses_what_load_refuses(data: dict[str, Any]) -> None:
    schema = Recipe.json_schema()
    assert problems(data, schema, schema)
    with pytest.raises(FieldError):
        Recipe.model_validate(data)


def test_the_schema_has_the_limits_of_ranges() -> None:
    schema = Recipe.json_schema()
    for op, field, low, high in (("Brightness", "factor", 0.0, 100.0), ("Vignette", "strengths", 0.0, 1.0)):
        numbers = schema["$defs"][op]["properties"][field]["prefixItems"]
        assert [(number["minimum"], number["maximum"]) for number in numbers] == [(low, high)] * 2
    assert problems({"ops": [{"op": "vignette", "strengths": [0.1, 2.0]}]}, schema, schema)
    assert not problems({"ops": [{"op": "vignette", "strengths": [0.1, 1.0]}]}, schema, schema)


def test_the_schema_is_json_and_explains_itself() -> None:
    schema = Recipe.json_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert set(schema["$defs"]) == ({"View", *ops.__all__} - {"Op", "Custom"})


# what is refused

REFUSED = [
    (
        "fill = [0, 0, 256]",
        r"fill=\[0, 0, 256\] must be three levels in 0\.\.255, for R, G and B, or one for all: fill=\[0, 0, 0\]",
    ),
    ("fill = [-1, 0, 0]", r"fill=\[-1, 0, 0\] must be three levels"),
    ("fill = [0, 0, nan]", r"fill=\[0, 0, nan\] must be three levels"),
    (
        'ops = [{op = "lens_distortion"}, {op = "brown_conrady"}]',
        "an image takes what bends once a pass, and .* may both act on one. Keep one, or choose .* OneOf. Both act",
    ),
    (
        'ops = [{op = "perspective"}, {op = "flip"}, {op = "perspective"}]',
        "a perspective once a pass, and perspective and perspective may both act on one. Keep one",
    ),
    (
        'ops = [{op = "perspective"}, {op = "flip"}, {op = "brown_conrady"}]',
        r"perspective comes before brown_conrady, and the one look-up .* before it bends\. Put brown_conrady first\.",
    ),
    ('ops = [{op = "vignette"}, {op = "vignette"}]', "a view takes one vignette and this one holds 2. Keep one"),
    ('ops = [{op = "normalize"}, {op = "normalize"}]', "a view takes one normalize and this one holds 2"),
    (
        '[[views]]\n[[views.ops]]\nop = "pad"\n[[views.ops]]\nop = "letterbox"',
        r"views\[0\]: a view has one border, and pad shows constant \[0\.0.*\], letterbox shows constant \[114\.0, ",
    ),
    (
        'border = "edge"\n[[ops]]\nop = "random_crop"\npadding = 4',
        r"the recipe's border is edge, and its padding shows constant \[0\.0, .*; a view has one border",
    ),
    (
        'ops = [{op = "one_crop", chains = [[{op = "all_of", ops = [{op = "flip"}, {op = "invert"}]}]]}]',
        r"one_crop holds all_of, which is neither a crop, a resize, a padding, a flip nor an affine map\. Put it into",
    ),
    (
        'ops = [{op = "one_crop", chains = [[{op = "perspective"}]]}]',
        "one_crop holds perspective, which is neither a crop",
    ),
    (
        'ops = [{op = "one_crop", chains = [[{op = "all_of", ops = [{op = "flip"}], own_look = "bilinear"}]]}]',
        "one_crop holds all_of, which begins a pass",
    ),
    (
        'ops = [{op = "one_crop", chains = [[{op = "flip", alternate = true}]]}]',
        "one_crop holds flip, which alternates from epoch to epoch",
    ),
    (
        'ops = [{op = "one_crop", chains = [[{op = "rotate"}, {op = "pad", px = 1}]]}]',
        "pad of one_crop pads what rotate has moved, .* Put pad before rotate",
    ),
    (
        'ops = [{op = "one_crop", chains = [[{op = "resize"}, {op = "transpose", swaps_sides = true}]]}]',
        "one_crop holds transpose, which swaps sides",
    ),
    (
        'ops = [{op = "one_crop", chains = [[{op = "multi_resolution_crop"}]]}]',
        r"one_crop holds multi_resolution_crop, which is that of the papers, which acts first\.",
    ),
    (
        'ops = [{op = "one_crop", chains = [[{op = "random_crop", keep_objects = {}}]]}]',
        r"one_crop holds random_crop, which looks at objects\.",
    ),
    ('ops = [{op = "one_crop", chains = [[], []]}]', r"one_crop holds no crops\. List them: chains="),
    ('ops = [{op = "one_crop", chains = [[{op = "flip"}], []]}]', r"one_crop holds no crops\. List them: chains="),
    (
        'ops = [{op = "one_crop", chains = [[{op = "pad", px = 1}], [{op = "letterbox"}]]}]',
        "a view has one border, and one_crop has several: pad and letterbox",
    ),
    (
        'ops = [{op = "one_crop", chains = [[{op = "pad", px = 1}, {op = "center_crop"}, {op = "pad", px = 1}]]}]',
        "pad of one_crop pads what was cut out of a padded image",
    ),
    ('ops = [{op = "one_crop", weights = [1.0]}]', r"weights=\(1\.0,\) for 2 chains: give as many numbers"),
    (
        'ops = [{op = "resize", size = 9}, {op = "one_crop", chains = [[], [{op = "center_crop", size = 5}]]}]',
        r"one_crop draws a size for each image, and no op behind it makes them one again\.",
    ),
    (
        '[[ops]]\nop = "random_crop"\nsize = 32\npadding = 4\n[[ops]]\nop = "pad"\npx = 3',
        r"pad pads what random_crop has cut out of a padded image, .* Pad once, before the crop\.",
    ),
    (
        '[[ops]]\nop = "transpose"\nswaps_sides = true\n[[ops]]\nop = "resize"\nsize = 32',
        r"transpose swaps sides, and resize makes images of one size: .* Leave out swaps_sides, or resize\.",
    ),
    (
        '[[ops]]\nop = "coarse_dropout"\n[[ops]]\nop = "quarter_turn"\nswaps_sides = true',
        r"coarse_dropout is drawn within the output, .* Put quarter_turn before coarse_dropout, or leave out swaps",
    ),
    (
        '[[ops]]\nop = "center_crop"\n[[ops]]\nop = "random_resize"\n[[ops]]\nop = "pad"\nsize = 512',
        r"random_resize draws a size for each image, and no op behind it makes them one again. Put "
        r"RandomCrop\(size=\.\.\., pad_if_needed=True\) behind it, or another crop or Resize\.",
    ),
    (
        'channels = 1\n[[ops]]\nop = "normalize"',
        r"channels=1 keeps one number a pixel, and normalize has three, mean=.* Give one for all, as Normalize",
    ),
    ('[[ops]]\nop = "pad"\npx = [1, 2, 3]', r"px=\[1, 2, 3\] must be whole pixels in 0\.\.65535 for all sides, \[left"),
    (
        '[[ops]]\nop = "flip"\n[[views]]',
        "a recipe holds either ops or views, and this one has both. Move the ops into a",
    ),
    ("[[views]]\ncount = 65", r"views\[0\].count=65 must be at most 64"),
    ("[[views]]\nnumber = 2", r"views\[0\].*number"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refused_files(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load(text, tmp_path)
    assert str(caught.value).startswith(str(tmp_path / "recipe.toml") + ": not ")
    assert "pydantic" not in str(caught.value)


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ValueError, match="recipe.toml: not valid TOML"):
        Recipe.load(tmp_path / "recipe.toml")


@pytest.mark.parametrize("number", ["0.5", "[0.5]"])
def test_one_number_for_all_channels_in_toml_fits_the_schema(number: str, tmp_path: Path) -> None:
    text = f'ops = [{{op = "normalize", mean = {number}, std = {number}}}]'
    schema = Recipe.json_schema()
    assert problems(tomllib.loads(text), schema, schema) == []
    (tmp_path / "one.toml").write_text(text)
    assert Recipe.load(tmp_path / "one.toml").ops == (ops.Normalize(mean=(0.5,) * 3, std=(0.5,) * 3),)


def test_a_mistake_travels_between_processes() -> None:
    with pytest.raises(FieldError) as caught:
        ops.Normalize(mean="1", std=(2, 2))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.problems == caught.value.problems
    assert str(again).splitlines()[0] == "Normalize:" and len(again.lines) == 2


def test_recipes_are_frozen_and_compare_by_value() -> None:
    recipe = recipes.deep_image()
    for name, value in (("name", "x"), ("ops", ())):
        with pytest.raises(FieldError, match="frozen"):
            setattr(recipe, name, value)
    with pytest.raises(FieldError, match="frozen"):
        View().count = 2
    used = recipes.deep_image()
    assert used.all_views and used.num_variants and used.all_views[0].drawn_dtype
    assert used == recipe and hash(used) == hash(recipe) and used != recipes.deep_image(200)
    assert pickle.loads(pickle.dumps(used)) == recipe
    assert used.to_toml() == recipe.to_toml()


# what a recipe says of itself


def test_a_changed_copy_is_worked_out_anew() -> None:
    recipe = Recipe(ops=(ops.CenterCrop(size=8), ops.Normalize()))
    view = recipe.all_views[0]
    assert not view.drawn_dtype.names and recipe.normalises
    copied = recipe.model_copy(update={"ops": (ops.CenterCrop(size=9), ops.Flip())})
    assert copied.all_views[0].out_size == (9, 9) and not copied.normalises
    assert view.model_copy(update={"ops": copied.ops}).drawn_dtype.names == ("flip",)
    assert recipe.all_views[0].out_size == (8, 8)


def test_views_and_counts() -> None:
    assert len(Recipe().all_views) == 1
    recipe = Recipe(views=(View(ops=(ops.Flip(),), count=3), View(ops=(ops.Rotate(),))))
    assert [[op.op for op in view.ops] for view in recipe.all_views] == [["flip"]] * 3 + [["rotate"]]
    assert recipe.num_variants == 2 * 2 * 2 * 20
    assert Recipe(ops=(ops.Flip(), ops.Stretch())).num_variants is None


def test_the_size_of_the_output() -> None:
    assert View().out_size is None and View().crops == ()
    assert View(ops=(ops.Flip(), ops.CenterCrop(size=30))).out_size == (30, 30)
    assert View(ops=(ops.RandomResizedCrop(size=(30, 40)),)).out_size == (30, 40)
    assert View(ops=(ops.ResizeShortest(size=30),)).out_size is None
    assert View(ops=(ops.Resize(size=(20, 30)), ops.Pad(px=(1, 2)), ops.ResizeShortest(size=48))).out_size == (48, 64)
    assert View(ops=(ops.ResizeLongest(size=64), ops.Pad(size=64))).out_size == (64, 64)
    assert View(ops=(ops.ResizeLongest(size=64), ops.Pad(size=60))).out_size is None
    assert View(ops=(ops.RandomCrop(size=9), ops.Pad(multiple=32))).out_size == (32, 32)
    assert View(ops=(ops.RandomResize(), ops.ResizeLongest(size=64), ops.Pad(size=64))).out_size == (64, 64)
    assert View(ops=(ops.RandomCrop(size=9), ops.RandomResize(), ops.Flip(), ops.Resize(size=7))).out_size == (7, 7)
    assert Recipe(ops=(ops.Flip(), ops.Normalize())).normalises
    assert not Recipe(ops=(ops.Flip(),)).normalises
    assert Recipe(views=(View(), View(ops=(ops.Normalize(),)))).normalises


def test_a_recipe_reads_the_same_after_it_was_planned_with() -> None:
    """What ops keep of their own, such as their record, is no concern of the text, and no reason for a warning."""
    chain = [ops.Pad(px=(1, 2, 3, 4)), ops.RandomCrop(size=4), ops.Flip()]
    recipe = Recipe(views=[View(ops=chain)])
    text, toml = recipe_text(Schedule.of(recipe)), recipe.to_toml()
    plan(recipe, range(3), sizes=[(30, 40)] * 3)
    assert any(set(vars(op)) - set(type(op).model_fields) for op in recipe.views[0].ops)
    assert (recipe_text(Schedule.of(recipe)), recipe.to_toml()) == (text, toml)


def test_images_of_their_own_size_may_be_of_a_drawn_one() -> None:
    recipe = Recipe(ops=(ops.RandomResize(size=(20, 60)), ops.Flip()))
    images = [np.full((40, 50, 3), 7, np.uint8)] * 5
    made = Augment(recipe, dtype="uint8", layout="NHWC", framework="numpy")(images)
    assert len({image.shape for image in made}) > 1 and all(20 <= min(image.shape[:2]) <= 60 for image in made)
    assert all((image == 7).all() for image in made)


def test_a_recipe_with_blur_names_the_filter_that_takes_less_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
    Recipe(ops=[ops.Blur()])  # nobody listens yet
    caplog.set_level("INFO")
    Recipe(ops=[ops.GaussianBlur()])
    assert caplog.messages == []
    for _ in range(2):
        Recipe(ops=[ops.OneOf(ops=[ops.Blur(), ops.Identity()])])
    (told,) = caplog.messages
    assert told.startswith("blur widens the look-up") and "gaussian_blur (ops.GaussianBlur)" in told


def test_recipes_stand_for_their_views_and_say_what_all_views_have() -> None:
    first = Recipe(interpolation="bicubic", antialias=False, fill=9, ops=[ops.RandomResizedCrop(size=8)])
    second = Recipe(
        interpolation="bicubic", antialias=False, fill=9, views=[View(ops=[ops.CenterCrop(size=8)], count=2)]
    )
    third = View(ops=[ops.CenterCrop(size=6)])
    made = Recipe(name="both", views=[first, second, third])
    assert made.views == (View(ops=first.ops), *second.views, third)
    assert (made.interpolation, made.antialias, made.fill, made.name) == ("bicubic", False, (9.0, 9.0, 9.0), "both")
    assert Recipe(antialias=True, views=[first, third]).antialias
    image = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    views = Augment(Recipe(views=[second]), framework="numpy")(image)
    assert all(np.array_equal(one, Augment(second, framework="numpy")(image)[0]) for one in views)


def test_recipes_that_say_different_things_of_all_views_are_refused() -> None:
    first, other = Recipe(ops=[ops.CenterCrop(size=8)]), Recipe(antialias=False, ops=[ops.CenterCrop(size=8)])
    with pytest.raises(
        FieldError, match=r"antialias=True and antialias=False, and all views .*Recipe\(antialias=\.\.\."
    ):
        Recipe(views=[first, other])
    assert len(Recipe(antialias=False, views=[first, other]).views) == 2
