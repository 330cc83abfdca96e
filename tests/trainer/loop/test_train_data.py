"""What a run trains and evaluates on: recipes, normalisation, sizes, classes, batches that are cut short."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe import MixedLabels, Recipe, Schedule, View, loader, ops, recipes
from augpipe.datasets.open import open_source
from augpipe.ops import CenterCrop, Flip, MixUp, MultiResolutionCrop, Normalize, RandomResizedCrop
from augpipe.trainer.config import make_config
from augpipe.trainer.config.tables import DataConfig
from augpipe.trainer.evaluation import Views, evaluate_runs
from augpipe.trainer.loop import run
from augpipe.trainer.loop.data import (
    evaluation_loader,
    evaluation_recipe,
    open_sources,
    training_loader,
    training_recipe,
    training_schedule,
    warn_of_differences,
)
from augpipe.trainer.loop.world import World
from tests.distributed.train_runs import config, write_photos

UNIT = Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def flat_photos(folder: Path, levels: dict[str, int], num: int) -> Path:
    """Images of one grey level each, a class a level."""
    for name, level in levels.items():
        (folder / name).mkdir(parents=True)
        for i in range(num):
            Image.fromarray(np.full((20, 20, 3), level, np.uint8)).save(folder / name / f"{i}.png")
    return folder


def toml(path: Path, *ops: Any, **fields: Any) -> str:
    Recipe(ops=ops, **fields).dump(path)
    return str(path)


@pytest.mark.parametrize("normalise", [(UNIT,), (Normalize(),), ()], ids=["unit", "imagenet", "none"])
def test_held_out_images_have_the_values_of_training(
    tmp_path: Path, alone: World, normalise: tuple[Normalize, ...]
) -> None:
    photos = flat_photos(tmp_path / "photos", {"dark": 30, "bright": 100}, 4)
    recipe = toml(tmp_path / "mine.toml", MultiResolutionCrop(size=16, scales=(18,)), *normalise)
    settings = config(tmp_path / "run", photos, data={"recipe": recipe, "size": 16})
    source = open_source(str(photos))
    trained, evaluated = (make(settings, source, alone) for make in (training_loader, evaluation_loader))

    def values(batches: Any) -> set[tuple[int, float]]:
        """(class, value to three digits): the weights of a filter add up to 1 but for the last bit."""
        pairs = ((int(label), image) for images, labels in batches for label, image in zip(labels, images, strict=True))
        return {(label, round(value, 3)) for label, image in pairs for value in image.unique().tolist()}

    assert len(values(trained)) == (6 if Normalize() in normalise else 2)
    assert values(trained) == values(evaluated)


@pytest.mark.slow
def test_what_is_learned_in_levels_is_known_again_when_held_out(tmp_path: Path) -> None:
    photos = flat_photos(tmp_path / "photos", {"dark": 30, "bright": 100}, 24)
    recipe = toml(tmp_path / "mine.toml", CenterCrop(size=16), UNIT)
    data = {"recipe": recipe, "eval_fraction": 0.25, "batch_size": 12}
    model, optim = {"name": "mnist-mlp", "options": {"in_features": 3 * 16 * 16, "hidden": [8, 8]}}, {"lr": 0.05}
    result = run(config(tmp_path / "run", photos, epochs=10, data=data, model=model, optim=optim))
    assert result.evaluation is not None and result.evaluation.top1 == 1.0


@pytest.mark.parametrize(
    ("size", "scale"), [(32, 37), (64, 74), (96, 110), (224, 256)], ids=lambda number: f"{number} px"
)
def test_the_short_side_of_evaluation_is_eight_sevenths(size: int, scale: int) -> None:
    found = evaluation_recipe(DataConfig(source="photos", size=size))
    assert found.ops == (CenterCrop(size=size, scale=scale), Normalize())
    assert evaluation_recipe(DataConfig(source="photos", size=size, eval_scale=300)).ops[0] == CenterCrop(
        size=size, scale=300
    )


def test_size_and_normalisation_are_those_of_the_training_recipe(tmp_path: Path) -> None:
    path = toml(tmp_path / "mine.toml", Flip(), RandomResizedCrop(size=(56, 112)), UNIT)
    found = evaluation_recipe(DataConfig(source="photos", recipe=path))
    assert found.ops == (CenterCrop(size=(56, 112), scale=128), UNIT)


def test_a_chain_of_crops_is_evaluated_at_its_centre(tmp_path: Path) -> None:
    for chosen, expected in (
        ((ops.RandomCrop(size=32, padding=4), ops.Flip()), ops.RandomCrop(size=32, padding=4, p=0.0)),
        ((ops.Resize(size=28), ops.Flip()), ops.Resize(size=28)),
        ((ops.Letterbox(size=64),), ops.Letterbox(size=64)),
    ):
        Recipe(ops=chosen).dump(tmp_path / "recipe.toml")
        data = DataConfig(source="x", recipe=str(tmp_path / "recipe.toml"))
        assert evaluation_recipe(data).ops == (expected,)
        scaled = evaluation_recipe(data.model_copy(update={"eval_scale": 99})).ops[0]
        assert isinstance(scaled, ops.CenterCrop) and scaled.scale == 99


def test_a_network_takes_the_channels_of_the_recipe(tmp_path: Path) -> None:
    Recipe(channels=1, ops=(ops.Resize(size=16), ops.Normalize(mean=0.5, std=0.5))).dump(tmp_path / "recipe.toml")
    data = {"recipe": str(tmp_path / "recipe.toml"), "eval_fraction": 0.25}
    result = run(config(tmp_path / "run", write_photos(tmp_path, 8), max_steps=1, data=data))
    assert result.step == 1
    (found,) = evaluate_runs(tmp_path / "run", Views(scales=(16, 24), dense=True)).results
    assert found.metrics is not None


def test_a_recipe_for_evaluation_is_taken_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = toml(tmp_path / "eval.toml", CenterCrop(size=40, scale=50), UNIT)
    data = DataConfig(source="photos", eval_recipe=path)
    assert evaluation_recipe(data) == Recipe.load(path)
    warn_of_differences(data)
    (line,) = caplog.messages
    assert line.startswith(f"data.eval_recipe={path!r} normalises otherwise than data.recipe='deep_image'")


def test_recipes_that_normalise_alike_are_not_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = toml(tmp_path / "eval.toml", CenterCrop(size=40, scale=50), Normalize())
    warn_of_differences(DataConfig(source="photos", eval_recipe=path))
    warn_of_differences(DataConfig(source="photos", recipe=path))
    assert not caplog.messages


def test_a_size_that_a_toml_recipe_overrules_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = toml(tmp_path / "mine.toml", CenterCrop(size=(40, 50), scale=50), Normalize())
    warn_of_differences(DataConfig(source="photos", recipe=path, size=96))
    assert caplog.messages == [f"data.size=96 is not used: {path} makes 40x50 pictures"]


def test_two_ways_to_scale_the_evaluation_are_refused() -> None:
    with pytest.raises(ValueError, match="eval_recipe='a.toml' has a crop of its own, and eval_scale=99"):
        DataConfig(source="photos", eval_recipe="a.toml", eval_scale=99)


@pytest.mark.parametrize("field", ["recipe", "eval_recipe"])
def test_a_recipe_that_is_not_there_is_named_with_the_folder_that_was_looked_in(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"data\.{field}='mine.toml' does not exist\..*current folder.*{tmp_path}"):
        evaluation_recipe(DataConfig.model_validate({"source": "photos", field: "mine.toml"}))


def test_a_recipe_for_evaluation_goes_by_a_name_too() -> None:
    """As everywhere; at the size of the images that are trained on."""
    named = DataConfig(source="photos", size=96, scales=(128,), eval_recipe="evaluation")
    assert evaluation_recipe(named) == recipes.evaluation(96)
    with pytest.raises(ValueError, match=r"data\.eval_recipe: there is no recipe 'evalution'. Did you mean evaluation"):
        evaluation_recipe(DataConfig(source="photos", eval_recipe="evalution"))
    with pytest.raises(ValueError, match=r"data\.eval_recipe='none' must make one picture of a fixed size"):
        evaluation_recipe(DataConfig(source="photos", eval_recipe="none"))


def test_a_recipe_of_several_views_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "views.toml"
    Recipe(views=(View(ops=(CenterCrop(size=8),), count=2),)).dump(path)
    with pytest.raises(ValueError, match=r"data\.eval_recipe=.*must make one picture of a fixed size"):
        evaluation_recipe(DataConfig(source="photos", eval_recipe=str(path)))


def test_evaluation_refuses_to_mix(tmp_path: Path, alone: World) -> None:
    path = toml(tmp_path / "mixed.toml", CenterCrop(size=8), mixing=(MixUp(),))
    with pytest.raises(ValueError, match=r"data\.eval_recipe=.*mixes samples, and evaluation counts one class an"):
        evaluation_recipe(DataConfig(source="photos", eval_recipe=path))
    assert evaluation_recipe(DataConfig(source="photos", recipe=path)).mixing == ()
    photos = flat_photos(tmp_path / "photos", {"dark": 30, "bright": 100}, 4)
    source = open_source(str(photos))
    settings = config(tmp_path / "run", photos, data={"recipe": path, "size": 8})
    (batch, *_) = training_loader(settings, source, alone)
    assert isinstance(batch.labels, MixedLabels)


@pytest.mark.parametrize(("drop_last", "lengths"), [(False, [4, 4, 2]), (True, [4, 4])])
def test_drop_last_reaches_the_training_loader(
    tmp_path: Path, alone: World, drop_last: bool, lengths: list[int]
) -> None:
    settings = config(tmp_path / "run", write_photos(tmp_path, 10), data={"drop_last": drop_last})
    found = training_loader(settings, open_source(settings.data.source), alone)
    assert [len(batch) for batch in found] == lengths


@pytest.mark.parametrize(("given", "threads"), [({}, 4), ({"num_threads": 3}, 3)])
def test_a_rank_takes_its_share_of_the_cores_or_the_threads_given(
    tmp_path: Path, alone: World, monkeypatch: pytest.MonkeyPatch, given: dict[str, int], threads: int
) -> None:
    monkeypatch.setattr("augpipe.trainer.loop.data.num_usable_cores", lambda: 9)
    settings = config(tmp_path / "run", write_photos(tmp_path, 10), data={"num_threads": None} | given)
    for make in (training_loader, evaluation_loader):
        found = make(settings, open_source(settings.data.source), replace(alone, local_size=2))
        assert found._makers.settings(found.recipe, found.seed).num_threads == threads


def test_the_evaluation_leaves_no_image_out(tmp_path: Path, alone: World) -> None:
    settings = config(tmp_path / "run", write_photos(tmp_path, 10), data={"drop_last": True})
    found = evaluation_loader(settings, open_source(settings.data.source), alone)
    assert [batch.sample_ids.tolist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_no_batch_to_train_on_names_the_setting(tmp_path: Path) -> None:
    settings = config(tmp_path / "run", write_photos(tmp_path, 3), data={"drop_last": True})
    with pytest.raises(ValueError, match=r"there are 3 of the 4 photographs that .*Set data\.drop_last = false"):
        run(settings)


def test_one_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has one class alone, 'c0', and training needs photographs of two or more"):
        run(config(tmp_path / "run", write_photos(tmp_path, 4, classes=1)))


@pytest.mark.parametrize(
    ("classes", "found"), [(3, "2 classes, and data.source has 3"), (2, "has 2 by other names or in another order")]
)
def test_another_source_is_refused_as_that(tmp_path: Path, classes: int, found: str) -> None:
    first, other = write_photos(tmp_path / "first", 8), write_photos(tmp_path / "other", 8, classes)
    if classes == 2:
        (other / "c1").rename(other / "d1")
    run(config(tmp_path / "run", first, max_steps=1))
    with pytest.raises(ValueError, match=r"is not what the run .* was trained on \(.*other classes"):
        run(config(tmp_path / "run", other, max_steps=2))
    (tmp_path / "run/data.json").unlink()  # as of a run that kept nothing: its checkpoint tells the classes alone
    with pytest.raises(ValueError, match=f"{found}.*Resume with the same source"):
        run(config(tmp_path / "run", other, max_steps=2))


# Levels


@pytest.fixture
def _nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())


@pytest.mark.usefixtures("_nothing_was_said")
def test_levels_in_float32_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    photos = str(write_photos(tmp_path, 4))
    for _ in range(2):
        loader.Loader(photos, Recipe(ops=(CenterCrop(size=8),)), batch_size=2)
    (line,) = caplog.messages
    assert line.startswith("the recipe has no Normalize: float32 images hold levels in 0..255")


@pytest.mark.usefixtures("_nothing_was_said")
def test_levels_that_are_wanted_are_not_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    photos = str(write_photos(tmp_path, 4))
    loader.Loader(photos, recipes.evaluation(8, 8), batch_size=2)
    loader.Loader(photos, Recipe(ops=(CenterCrop(size=8),)), batch_size=2, dtype="uint8")
    loader.Loader(photos, Recipe(ops=(CenterCrop(size=8),)), batch_size=1, rank=1, world_size=2)
    assert not caplog.messages


@pytest.mark.usefixtures("_nothing_was_said")
def test_a_run_without_normalisation_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recipe = toml(tmp_path / "mine.toml", CenterCrop(size=16, scale=16))
    data = {"recipe": recipe, "eval_fraction": 0.25}
    with caplog.at_level(logging.WARNING):
        run(config(tmp_path / "run", write_photos(tmp_path, 8), max_steps=1, data=data))
    assert [line[:27] for line in caplog.messages if "Normalize" in line] == ["the recipe has no Normalize"]


def test_a_config_names_fields_of_evaluation() -> None:
    assert make_config({"data": {"source": "photos", "eval_recipe": "a.toml"}}).data.eval_recipe == "a.toml"


# Schedules


def test_a_schedule_trains_by_epoch_and_evaluates_by_its_last_recipe(tmp_path: Path) -> None:
    schedule = recipes.progressive(recipes.deep_image(64, (72, 144)), {0: 32, 2: 64})
    schedule.dump(tmp_path / "growing.toml")
    data = DataConfig(source="photos", recipe=str(tmp_path / "growing.toml"))
    assert training_schedule(data) == schedule
    assert training_recipe(data) == schedule.recipes[1]
    assert evaluation_recipe(data).ops[0] == CenterCrop(size=64, scale=74)


def test_every_recipe_of_a_schedule_makes_one_image(tmp_path: Path) -> None:
    Schedule.of({0: recipes.none(), 1: Recipe(ops=(CenterCrop(size=8),))}).dump(tmp_path / "wrong.toml")
    with pytest.raises(ValueError, match="must make one picture of a fixed size of each photograph"):
        training_recipe(DataConfig(source="photos", recipe=str(tmp_path / "wrong.toml")))


def test_images_without_a_label_are_refused_at_the_start(tmp_path: Path) -> None:
    flat_photos(tmp_path, {"dark": 30, "bright": 100}, 3)
    rows = [f"{kind}/{number}.png,{label}" for kind, label in (("dark", 0), ("bright", 1)) for number in range(3)]
    (tmp_path / "all.csv").write_text("\n".join(rows))
    (tmp_path / "some.csv").write_text(
        "\n".join(rows).replace("/2.png,0", "/2.png,-1").replace("/1.png,1", "/1.png,-1")
    )
    (whole, some) = (str(tmp_path / name) for name in ("all.csv", "some.csv"))
    open_sources(DataConfig(source=whole), 0)
    message = r"some.csv' has 2 of 6 photographs without a label, such as .*dark/2.png: {} needs a class of each. Give"
    with pytest.raises(ValueError, match="^data.source=.*" + message.format("training")):
        open_sources(DataConfig(source=some, eval_fraction=0.5), 0)
    with pytest.raises(ValueError, match="^data.eval_source=.*" + message.format("evaluation")):
        open_sources(DataConfig(source=whole, eval_source=some), 0)
