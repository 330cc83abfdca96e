"""The live page's answers: the loader's own pictures and numbers, recipes both ways, and mistakes where they are."""

import base64
import io
import json
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from augpipe import Loader, Recipe, View, ops, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.open import open_source
from augpipe.ops.op import KINDS
from augpipe.preview.live import Answers, pictures
from augpipe.sources.protocol import Source
from tests.augpipe.loader.test_rotated_boxes import Rotated

SMALL = Recipe(
    name="small",
    ops=(ops.RandomResizedCrop(size=32), ops.Flip(), ops.Rotate(), ops.ColorCast(), ops.Normalize()),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three photographs and a file that is cut off."""
    root = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(5)
    for number in range(4):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8))
        coarse.resize((200 + 10 * number, 150), Image.Resampling.BICUBIC).save(root / f"{number}.jpg", quality=92)
    whole = (root / "3.jpg").read_bytes()
    (root / "3.jpg").write_bytes(whole[: len(whole) // 2])
    return root


def answers_of(source: Source | Path, recipe: Recipe = SMALL, **how: Any) -> Answers:
    opened = open_source(source) if isinstance(source, Path) else source
    return Answers(opened, recipe, title="mine", **how)


def asked(recipe: Recipe, **more: Any) -> dict[str, Any]:
    return {"recipe": recipe.model_dump(mode="json"), "samples": [0], **more}


def pixels_of(layer: dict[str, Any]) -> npt.NDArray[np.uint8]:
    head, _, content = layer["image"].partition(",")
    assert head == "data:image/png;base64", "small pictures come as they are"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


def loader_of(folder: Path, recipe: Recipe, seed: int) -> Loader[Any]:
    plain = recipe.model_copy(update={"ops": tuple(op for op in recipe.ops if op.op != "normalize")})
    return Loader(folder, plain, batch_size=1, seed=seed, framework="numpy", dtype="uint8", layout="NHWC")


def test_twelve_draws_are_the_loaders_pixels_and_numbers(folder: Path) -> None:
    answer = answers_of(folder).pictures(asked(SMALL, samples=[1], seed=7, epoch=3))
    loader = loader_of(folder, SMALL, seed=7)
    assert [picture["epoch"] for picture in answer["pictures"]] == list(range(3, 15))
    for picture in answer["pictures"]:
        batch = loader.sample(1, epoch=picture["epoch"])
        np.testing.assert_array_equal(pixels_of(picture["after"]), batch.images[0])
        said, numbers = dict(batch.plan.captions(0)), dict(picture["numbers"])
        drawn = batch.plan.rows[0]["drawn"]
        assert numbers["rotate"] == f"{said['rotate']} (degrees = {drawn['rotate']['degrees']:.4g})"
        assert numbers["flip"].startswith(said.get("flip", "unchanged"))
        assert numbers["photograph"] == "210x150 px" and numbers["becomes"] == "32x32 px"
        assert (picture["sample"], picture["name"], picture["before"]) == (1, "1.jpg", None)


def test_numbers_of_any_shape_are_written() -> None:
    record = np.zeros(1, [("kept", "?"), ("box", "<f8", (2,)), ("try", [("number", "i4")])])[0]
    assert pictures._number(record) == "(kept = false, box = [0, 0], try = (number = 0))"


@pytest.mark.slow
def test_what_is_not_a_jpeg_is_decoded_once_to_the_same_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, num = np.random.default_rng(2), []
    for number, mode in enumerate(("RGB", "RGBA", "L")):
        image = Image.fromarray(rng.integers(0, 256, (90, 120, 4), dtype=np.uint8)).convert(mode)
        image.save(tmp_path / f"{number}.png")
    decode = pictures.decode
    monkeypatch.setattr(pictures, "decode", lambda *given: num.append(1) or decode(*given))
    monkeypatch.setattr(pictures, "HELD_BYTES", 2 * 90 * 120 * 4)
    answers, loader = answers_of(tmp_path), loader_of(tmp_path, SMALL, seed=0)
    for sample_id in (0, 1, 2, 2, 1, 0):
        for picture in answers.pictures(asked(SMALL, samples=[sample_id]))["pictures"]:
            expected = loader.sample(sample_id, picture["epoch"]).images[0]
            np.testing.assert_array_equal(pixels_of(picture["after"]), expected)
    assert len(num) == 4, "two are held, and the first one had to go"


def test_before_is_what_the_crop_alone_shows(folder: Path) -> None:
    answer = answers_of(folder).pictures(asked(SMALL, seed=7, before=True))
    loader = loader_of(folder, Recipe(ops=SMALL.ops[:1]), seed=7)
    for picture in answer["pictures"]:
        np.testing.assert_array_equal(pixels_of(picture["before"]), loader.sample(0, picture["epoch"]).images[0])


def test_before_of_a_crop_that_draws_nothing_stands_under_every_draw(folder: Path) -> None:
    fixed = Recipe(ops=(ops.CenterCrop(size=32), ops.Rotate()))
    answer = answers_of(folder).pictures(asked(fixed, before=True))
    assert len(answer["pictures"]) == 12
    assert len({picture["before"]["image"] for picture in answer["pictures"]}) == 1


def test_pictures_are_shared_out_among_photographs_and_views(folder: Path) -> None:
    views = Recipe(views=(View(ops=SMALL.ops[:2], count=2), View(ops=(ops.CenterCrop(size=16),))))
    answer = answers_of(folder).pictures(asked(views, samples=[2, 0]))
    found = [(picture["sample"], picture["epoch"], picture["view"]) for picture in answer["pictures"]]
    assert found == [(sample, epoch, view) for sample in (2, 0) for epoch in (0, 1) for view in range(3)]
    assert answer["draws"] == 2


def test_large_pictures_are_fewer_and_too_large_ones_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, whole = answers_of(folder), Recipe(ops=(ops.Rotate(),))
    monkeypatch.setattr(pictures, "MOST_PX", 5 * 200 * 150 + 1)
    assert len(answers.pictures(asked(whole))["pictures"]) == 5
    (problem,) = answers.pictures(asked(Recipe(ops=(ops.Resize(size=60_000),))))["problems"]
    assert problem["line"].startswith("one draw has 3,600,000,000 pixels, and this page draws 150,001 at most.")
    many = Recipe(views=(View(ops=(ops.CenterCrop(size=1),), count=64), View(ops=(ops.CenterCrop(size=1),))))
    assert "65 views" in answers.pictures(asked(many))["problems"][0]["line"]


def test_larger_pictures_come_as_jpegs_and_gray_ones_in_three_channels(folder: Path) -> None:
    gray = Recipe(ops=(ops.CenterCrop(size=120),), channels=1)
    (picture,) = answers_of(folder).pictures(asked(gray))["pictures"]
    head, _, content = picture["after"]["image"].partition(",")
    image = Image.open(io.BytesIO(base64.b64decode(content)))
    assert (head, image.size, image.mode) == ("data:image/jpeg;base64", (120, 120), "RGB")


MISTAKES = [
    ({"ops": [{"op": "rotate", "max_deg": -1}]}, "ops[0].rotate.max_deg", "max_deg=-1 must be above 0"),
    ({"ops": [{"op": "brightness", "factor": [2, 1]}]}, "ops[0].brightness", "factor=(2.0, 1.0) is not a range"),
    ({"ops": [{"op": "one_of", "ops": [{"op": "flip", "p": 3}]}]}, "ops[0].one_of.ops[0].flip.p", "p=3 must be"),
    ({"ops": [{"op": "rotat"}]}, "ops[0]", "'rotat' is not an op"),
    ({"border": "mirror"}, "border", "border='mirror' must be"),
    ({"views": [{"count": 0}]}, "views[0].count", "count=0 must be at least 1"),
    ({"ops": [{"op": "rotate", "max_deg": float("nan")}]}, "ops[0].rotate.max_deg", "max_deg=nan"),
    ({"ops": "flip"}, "ops", "ops='flip' must be a list"),
]


@pytest.mark.parametrize(("recipe", "place", "text"), MISTAKES, ids=[place for _, place, _ in MISTAKES])
def test_a_mistake_is_told_with_its_place(folder: Path, recipe: dict[str, Any], place: str, text: str) -> None:
    (problem,) = answers_of(folder).pictures({"recipe": recipe, "samples": [0]})["problems"]
    assert problem["place"] == place and problem["text"].startswith(text)
    assert problem["line"].startswith(place)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ({"recipe": {}, "samples": []}, "samples=[]"),
        ({"recipe": {}, "samples": [4]}, "sample 4 is out of range"),
        ({"recipe": {}, "samples": [-1]}, "sample -1 is out of range"),
        ({"recipe": {}, "samples": ["../3.jpg"]}, "samples[0]='../3.jpg' must be a whole number"),
        ({"recipe": {}, "samples": [0], "path": "/etc"}, "'path' is not a field"),
        ({"recipe": {}, "samples": [0], "seed": -1}, "seed=-1 must be at least 0"),
        ({"recipe": {}, "samples": [3]}, "3.jpg"),
        ({"toml": "[[ops]", "samples": [0]}, "not valid TOML"),
        ({"toml": "a = " + "[" * 5000, "samples": [0]}, "the recipe is nested too deeply"),
    ],
)
def test_a_wrong_question_is_told(folder: Path, question: dict[str, Any], text: str) -> None:
    lines = [problem["line"] for problem in answers_of(folder).pictures(question)["problems"]]
    assert any(text in line for line in lines), lines


def test_toml_goes_both_ways(folder: Path) -> None:
    answers = answers_of(folder)
    drawn = answers.pictures(asked(SMALL))
    assert Recipe.model_validate(tomllib.loads(drawn["toml"])) == SMALL
    typed = answers.pictures({"toml": drawn["toml"], "samples": [0]})
    assert Recipe.model_validate(typed["recipe"]) == SMALL
    assert typed["pictures"] == drawn["pictures"]


@pytest.mark.parametrize("name", [*recipes.BY_NAME, "views"])
def test_the_copied_python_makes_the_recipe(name: str) -> None:
    views = Recipe(views=(View(ops=SMALL.ops[:2], count=2),), mixing=(ops.MixUp(),))
    recipe = views if name == "views" else recipes.BY_NAME[name]()
    found: dict[str, Any] = {}
    source = ArraySource(np.zeros((4, 300, 400, 3), np.uint8))
    exec(answers_of(source).pictures(asked(recipe))["python"], found)
    assert found["recipe"] == recipe


def address_of(recipe: Recipe) -> str:
    code = base64.urlsafe_b64encode(json.dumps(recipe.model_dump(mode="json")).encode()).decode().rstrip("=")
    return f"http://127.0.0.1:1/token/#recipe={code}"


def test_texts_are_opened(folder: Path, tmp_path: Path) -> None:
    answers = answers_of(folder)
    ran = tmp_path / "ran"
    text = f"open({str(ran)!r}, 'w')\nt = v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip()])"
    found = answers.open({"text": text})
    assert [op["op"] for op in found["recipe"]["ops"]] == ["random_resized_crop", "flip"]
    assert found["rows"][0][:3] == ["RandomResizedCrop", "random_resized_crop", "exact"]
    assert not ran.exists(), "the text was run"
    left_out = answers.open({"text": "A.Compose([A.Resize(32, 32), A.RandomRain()])"})
    assert ["RandomRain", "-", "left out"] in [row[:3] for row in left_out["rows"]]
    for text in (SMALL.to_toml(), address_of(SMALL)):
        assert Recipe.model_validate(answers.open({"text": text})["recipe"]) == SMALL


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" \n", "the text is empty"),
        ("x = 1", "recipe"),
        ("__import__('os').system('true')", ""),
        ('[[ops]]\nop = "rotate"\nmax_deg = -1', "max_deg=-1 must be above 0"),
        ("[[ops]]\nop = rotate", "not valid TOML"),
        ("/#recipe=ab", "the recipe in the address is damaged"),
        (address_of(SMALL)[:-9], "the recipe in the address is damaged"),
        ("/#recipe=" + base64.urlsafe_b64encode(b"[1]").decode(), "a recipe is a table of fields"),
    ],
)
def test_a_text_without_a_recipe_is_told(folder: Path, text: str, said: str) -> None:
    (problem,) = answers_of(folder).open({"text": text})["problems"]
    assert said in problem["line"]


def test_the_page_begins_with_all_that_its_controls_need(folder: Path) -> None:
    about = answers_of(folder, samples=[2, 2, 1], seed=9, epoch=4).about()
    assert (about["samples"], about["seed"], about["epoch"]) == ([2, 1], 9, 4)
    assert (about["num_photographs"], about["has_targets"], about["title"]) == (4, False, "mine")
    assert Recipe.model_validate(json.loads(json.dumps(about["recipe"]))) == SMALL
    for kind, steps in about["steps"].items():
        for field, step in steps.items():
            assert {field, step if isinstance(step, str) else field} <= KINDS[kind].model_fields.keys()
    assert about["steps"]["rotate"] == {"max_deg": "step"}
    assert about["steps"]["vignette"] == {"radii": "radius_step", "strengths": "strength_step"}
    assert about["steps"]["box_blur"] == {"sizes": 2.0}


def test_photographs_are_listed_and_shown_small(folder: Path) -> None:
    answers = answers_of(folder)
    assert answers.photographs(2) == [{"id": 2, "name": "2.jpg"}, {"id": 3, "name": "3.jpg"}]
    assert answers.photographs(4) == []
    assert Image.open(io.BytesIO(answers.thumbnail(0))).size == (128, 96)
    for sample_id in (4, -1, 3):
        with pytest.raises(ValueError, match=r"out of range|truncated|damaged"):
            answers.thumbnail(sample_id)


def test_a_first_photograph_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="sample 4 is out of range: the source holds 4 photographs"):
        answers_of(folder, samples=[4])


@pytest.mark.slow
def test_objects_are_the_loaders(tmp_path: Path) -> None:
    from augpipe.datasets.synthetic.generate import generate

    generate(tmp_path / "drawn", num=4, classes=2, seed=1, targets=True)
    source = open_source(tmp_path / "drawn")
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=64, scale=(0.5, 1.0)), ops.Rotate()))
    answers = answers_of(source, recipe)
    assert answers.about()["has_targets"]
    loader = Loader(source, recipe, batch_size=1, seed=3, framework="numpy", dtype="uint8", layout="NHWC")
    answer = answers.pictures(asked(recipe, seed=3, targets=True))
    num = 0
    for picture in answer["pictures"]:
        (target,) = loader.sample(0, picture["epoch"]).targets  # type: ignore[misc]
        objects = picture["after"]["objects"]
        assert [one["box"] for one in objects] == np.round(target["boxes"].astype(float), 1).tolist()
        assert all(one["colour"].startswith("#") and one["rings"] for one in objects)
        num += len(objects)
    assert num > 0, "there was nothing to see"
    assert all(not picture["after"]["objects"] for picture in answers.pictures(asked(recipe))["pictures"])
    cut = recipe.model_copy(update={"ops": (*recipe.ops, ops.GridShuffle())})
    assert answers.pictures(asked(cut, targets=True))["targets_do_not_follow"] == ["grid_shuffle"]


def test_of_rotated_boxes_those_along_the_axes_are_not_drawn() -> None:
    asked_for = asked(Recipe(ops=(ops.CenterCrop(size=50),)), targets=True)
    (picture, *_) = answers_of(Rotated(2), Recipe()).pictures(asked_for)["pictures"]
    (found,) = picture["after"]["objects"]
    assert found["is_rotated"] and np.shape(found["rings"]) == (1, 4, 2)


def test_of_questions_that_wait_the_newest_is_answered(folder: Path) -> None:
    answers = answers_of(folder)
    found: dict[int, dict[str, Any]] = {}

    def ask(number: int) -> None:
        found[number] = answers.pictures(asked(SMALL, seed=number))

    with answers._drawing:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
        for number, thread in enumerate(threads, start=1):
            thread.start()
            give_up = time.monotonic() + 10
            while answers._newest < number and time.monotonic() < give_up:
                time.sleep(0.001)
    for thread in threads:
        thread.join(10)
    assert [number for number in range(5) if "pictures" in found[number]] == [4]
    assert all(found[number] == {"superseded": True} for number in range(4))


def test_a_recipes_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("augpipe.preview.live.answers.SPEED_S", 0.05)
    answers = answers_of(ArraySource(np.zeros((8, 40, 50, 3), np.uint8)))
    found = answers.speed(asked(SMALL))
    assert min(found["loader"], found["one_thread"], found["decode"]) > 0 and found["threads"] >= 1 and found["cpu"]
    assert answers.speed({})["problems"][0]["line"].startswith("a recipe is a table of fields")
