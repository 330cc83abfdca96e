"""The config of a training run: TOML, overrides, names that look like something else, messages, the example."""

import re
from pathlib import Path
from typing import Any

import pytest

from augpipe.trainer.config import RunConfig, differences, example, load_config, make_config, to_toml
from augpipe.trainer.config.tables import DataConfig
from augpipe.trainer.loop.data import training_recipe
from augpipe.validation.models import FieldError


def test_the_example_is_the_defaults_and_explains_every_field(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(example())
    assert load_config(path) == make_config(MINIMAL)
    for name, field in RunConfig.model_fields.items():
        assert field.description, name
        for inner, part in getattr(field.annotation, "model_fields", {}).items():
            assert part.description, f"{name}.{inner}"
            assert f"{inner} = " in example()


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    made = make_config(MINIMAL, ["optim.lr=0.2", "data.scales=[20, 30]", "schedule.milestones=[1.5]", "epochs=3"])
    path = tmp_path / "config.toml"
    path.write_text(to_toml(made))
    assert load_config(path) == made


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("optim.lr=0.125", 0.125),
        ("optim.name=adamw", "adamw"),
        ('optim.name="adamw"', "adamw"),
        ("data.scales=[1, 2]", (1, 2)),
        ("optim.decay_1d = false", False),
        ("data.source=/a/b c", "/a/b c"),
        ("model.options.width=7", {"width": 7}),
        ("model.options.flat=true", {"flat": True}),
        ('parallel.layers=["fc", "classifier.*"]', ("fc", "classifier.*")),
    ],
)
def test_overrides(text: str, value: object) -> None:
    table, field = text.partition("=")[0].strip().split(".")[:2]
    assert getattr(getattr(make_config(MINIMAL, [text]), table), field) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optim.rl=1", r"there is no field optim\.rl\. Did you mean optim\.lr\? Fields of optim: name, lr, m"),
        ("lr=1", r"there is no field lr\. Did you mean optim\.lr\? Fields: out, epochs"),
        ("optim=1", r"optim is a table\. Name a field of it: optim\.name"),
        ("optim.lr.x=1", r"optim\.lr is a value and has no fields"),
        ("optim.lr", r"write FIELD=VALUE"),
        ("optim.lr=-1", r"optim\.lr=-1 must be above 0"),
        (
            "optim.name=adam",
            r"optim\.name='adam' must be 'sgd', 'rmsprop', 'adagrad' or 'adamw'\. Did you mean 'adamw'\?",
        ),
        ("schedule.name=step", r"schedule: name=\"step\" needs milestones"),
        ("schedule.name=plateau", r"looks at the evaluation's loss, and nothing is evaluated"),
        ("model.trainable=some", r"model\.trainable='some' must be 'all', 'last', or 'last-fc:N'"),
        ("optim.nesterov=1.5", r"optim\.nesterov=1\.5 must be true or false"),
        ("epochs=true", r"epochs=True must be a whole number"),
        ("max_steps=false", r"max_steps=False must be a whole number"),
        ("optim.lr=true", r"optim\.lr=True must be a number"),
        ("optim.clip_norm=true", r"optim\.clip_norm=True must be a number"),
        ("optim.betas=[true, 0.9]", r"optim\.betas=\[True, 0\.9\] must be numbers"),
        ("schedule.milestones=[true]", r"schedule\.milestones=\[True\] must be numbers"),
        ("data.scales=[true]", r"data\.scales=\[True\] must be whole numbers"),
        ("data.sampler_weights={cat=true}", r"data\.sampler_weights=\{'cat': True\} must be "),
    ],
)
def test_wrong_overrides_are_told_by_name(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config(MINIMAL, [text])


def test_wrong_files_are_told_by_name(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[data\n")
    with pytest.raises(ValueError, match=r"run\.toml: not valid TOML"):
        load_config(path)
    path.write_text("[data]\nsource = 'x'\nbatchsize = 3\n")
    with pytest.raises(
        ValueError,
        match=r"run\.toml: not .*\n  there is no field data\.batchsize\. Did you mean data\.batch_size\?",
    ):
        load_config(path)
    path.write_text("")
    with pytest.raises(ValueError, match=r"data is missing"):
        load_config(path)


def test_a_config_is_frozen() -> None:
    made = make_config(MINIMAL)
    with pytest.raises(FieldError, match="frozen"):
        made.optim.lr = 3.0  # type: ignore[misc]


def test_differences_name_both_values() -> None:
    before, after = make_config(MINIMAL), make_config(MINIMAL, ["optim.lr=0.5", "max_steps=3"])
    assert differences(before, after) == ["max_steps: left out, now 3", "optim.lr: 0.002, now 0.5"]


MINIMAL: dict[str, Any] = {"data": {"source": "photos"}}


@pytest.mark.parametrize("name", ["2026-11-21", "7", "1e5", "true", "inf", "07:30:00", "[1]", "a b"])
def test_a_bare_word_is_a_name(name: str) -> None:
    assert make_config(MINIMAL, [f"out={name}"]).out == name
    assert make_config(MINIMAL, [f"out='{name}'"]).out == name
    assert make_config(MINIMAL, [f"model.weights={name}"]).model.weights == name
    assert make_config(MINIMAL, ["model.options.width=7"]).model.options == {"width": 7}


@pytest.mark.parametrize(
    ("tables", "text", "message"),
    [
        ({"optim": "sgd"}, "optim.lr=0.1", "--set optim.lr=0.1: the config has optim = 'sgd', where a table belongs."),
        ({"model": {"options": 3}}, "model.options.width=1", "the config has options = 3, where a table belongs."),
    ],
)
def test_a_value_in_a_tables_place(tables: dict[str, Any], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_config(MINIMAL | tables, [text])


def test_each_recipe_named_is_taken() -> None:
    described = DataConfig.model_fields["recipe"].description
    assert described is not None
    names = re.findall(r"\b[a-z_]+(?=,)", described)
    assert "deep_image" in names
    for name in names:
        training_recipe(DataConfig(source="photos", recipe=name))
