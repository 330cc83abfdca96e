"""`augpipe import`: scripts, JSON files, modules and standard input become TOML, with a table of what became what."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from augpipe import Recipe, ops
from augpipe.cli.app import app

SCRIPT = """
import albumentations as A
train = A.Compose([A.RandomCrop(8, 8), A.HorizontalFlip(), A.RandomFog(p=0.1)])
valid = A.Compose([A.CenterCrop(8, 8)])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def test_a_script_becomes_a_file_and_a_table() -> None:
    ended = CliRunner().invoke(app, ["import", "train.py:train", "--leave-out", "--out", "mine.toml"])
    assert ended.exit_code == 0 and ended.stdout == ""
    assert Recipe.load("mine.toml").ops == (ops.RandomCrop(size=(8, 8)), ops.Flip())
    lines = [line.split() for line in ended.stderr.splitlines()]
    assert ["RandomCrop", "random_crop", "exact"] in lines
    assert ["RandomFog", "-", "left", "out", "is", "not", "known", "here"] in lines
    assert ["read", "as", "albumentations", "2,", "though", "it", "also", "fits", "version", "1."] in lines


def test_without_a_file_the_recipe_is_printed() -> None:
    ended = CliRunner().invoke(app, ["import", "train.py:valid"])
    Path("printed.toml").write_text(ended.stdout, encoding="utf-8")
    assert Recipe.load("printed.toml").ops == (ops.RandomCrop(size=(8, 8), p=0.0),)
    piped = CliRunner().invoke(app, ["import", "-"], input="transforms.Compose([transforms.CenterCrop(8)])")
    Path("printed.toml").write_text(piped.stdout, encoding="utf-8")
    assert Recipe.load("printed.toml").ops == (ops.CenterCrop(size=(8, 8)),)


def test_json_is_of_albumentations_or_of_an_image_processor() -> None:
    flip = {"__class_fullname__": "HorizontalFlip", "p": 0.5}
    Path("a.json").write_text(json.dumps({"__version__": "2.0.8", "transform": flip}), encoding="utf-8")
    Path("b.json").write_text(json.dumps({"image_processor_type": "X", "do_resize": False}), encoding="utf-8")
    for name, op in (("a.json", ops.Flip()), ("b.json", ops.Normalize(mean=0.0, std=1.0))):
        assert CliRunner().invoke(app, ["import", name, "--out", "made.toml"]).exit_code == 0
        assert Recipe.load("made.toml").ops == (op,)


def test_an_object_of_a_module_is_imported() -> None:
    text = (
        "class HorizontalFlip:\n    def to_dict(self):\n        return {'__class_fullname__': 'NoOp', 'p': 1.0}\n\n\n"
    )
    text += "HorizontalFlip.__module__ = 'albumentations'\n\n\ndef make():\n    return HorizontalFlip()\n"
    Path("module_of_a_recipe.py").write_text(text, encoding="utf-8")
    ended = CliRunner().invoke(app, ["import", "module_of_a_recipe:make", "--out", "made.toml"])
    assert ended.exit_code == 0, ended.output
    assert Recipe.load("made.toml").ops == (ops.Identity(),)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("train.py", "Name one of them: train, valid."),
        ("train.py:test", "assigns no test"),
        ("nothing.py:test", "nothing.py is not a file"),
        ("train", "train is not a file"),
        ("no_such_module:make", "neither a file nor a module"),
        ("json:nothing", "json has no nothing"),
        ("json:__name__", "str of builtins is not a transform"),
        ("train.py:train", "Leave them out by strict=False (--leave-out)"),
    ],
)
def test_what_cannot_be_imported_is_said(source: str, told: str) -> None:
    ended = CliRunner().invoke(app, ["import", source])
    assert ended.exit_code == 2 and told in ended.stderr and ended.stdout == ""
