"""`augpipe import`: scripts, JSON files, modules and standard input become TOML, with a table of what became what."""

import json
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from augpipe import Recipe, ops
from augpipe.cli.app import app
from augpipe.preview.compare import compared
from augpipe.sources.protocol import Pixels

IMAGENET_MEAN, IMAGENET_STD = np.array(ops.Normalize().mean), np.array(ops.Normalize().std)

SCRIPT = """
import albumentations as A
train = A.Compose([A.RandomCrop(8, 8), A.HorizontalFlip(), A.RandomGravel(p=0.1)])
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
    assert "RandomGravel - left out is not known here; write ops.Custom(my_step),".split() in [
        line[:10] for line in lines
    ]
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
    Path("b.json").write_text(json.dumps({"do_resize": False, "do_normalize": False}), encoding="utf-8")
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
        ("train.py", "Name one of them, as train.py:train or name='train': train, valid."),
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


def test_what_albumentations_saves_as_yaml_is_imported() -> None:
    yaml = pytest.importorskip("yaml")
    flip = {"__class_fullname__": "HorizontalFlip", "p": 0.5}
    compose = {"__class_fullname__": "Compose", "p": 1.0, "transforms": [flip]}
    Path("saved.yml").write_text(yaml.safe_dump({"__version__": "2.0.8", "transform": compose}), encoding="utf-8")
    Path("broken.yaml").write_text("{", encoding="utf-8")
    assert CliRunner().invoke(app, ["import", "saved.yml", "--out", "made.toml"]).exit_code == 0
    assert Recipe.load("made.toml").ops == (ops.Flip(),)
    ended = CliRunner().invoke(app, ["import", "broken.yaml"])
    assert ended.exit_code == 2 and "broken.yaml is not YAML: while parsing" in " ".join(ended.stderr.split())


@pytest.mark.parametrize(
    ("file", "text", "kind"),
    [
        ("a.yml", "", "nothing"),
        ("b.yaml", "some words", "a text"),
        ("c.json", "[1]", "a list"),
        ("d.json", "3", "an int"),
    ],
)
def test_a_file_of_settings_that_holds_none_is_refused(file: str, text: str, kind: str) -> None:
    pytest.importorskip("yaml")
    Path(file).write_text(text, encoding="utf-8")
    ended = CliRunner().invoke(app, ["import", file])
    told = f"{file} holds {kind}. Give what A.to_dict(transform) returns, or the settings of an image processor."
    assert ended.exit_code == 2 and told in " ".join(ended.stderr.split())


def test_a_pickled_transform_is_refused_and_never_loaded() -> None:
    class Loaded:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (Path("loaded"),)

    Path("transform.pkl").write_bytes(pickle.dumps(Loaded()))
    ended = CliRunner().invoke(app, ["import", "transform.pkl"])
    told = "transform.pkl is not text, and nothing pickled is loaded. Give the script that makes the transform"
    assert ended.exit_code == 2 and told in " ".join(ended.stderr.split()) and not Path("loaded").exists()


def test_a_comparison_is_a_sheet_of_both_and_of_means(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flip:
        """A stand-in for the library: what the script's calls build."""

        __module__ = "albumentations"

        def __init__(self, held: object = None, p: float = 0.5) -> None:
            self.p = p

        def __call__(self, image: Pixels) -> dict[str, Pixels]:
            return {"image": image[:, ::-1] if np.random.default_rng().random() < 0.5 else image}

    fake = types.SimpleNamespace(Compose=Flip, HorizontalFlip=Flip)
    monkeypatch.setitem(sys.modules, "albumentations", fake)  # type: ignore[arg-type]
    Path("flip.py").write_text("import albumentations as A\nflip = A.Compose([A.HorizontalFlip()])\nraise ValueError\n")
    Image.fromarray(np.arange(12 * 16 * 3, dtype=np.uint8).reshape(12, 16, 3)).save("photo.png")
    given = ["import", "flip.py:flip", "--compare", "photo.png", "--out", "a.toml"]
    ended = CliRunner().invoke(app, given)
    assert ended.exit_code == 0, ended.stderr
    assert "compare.png: theirs (by albumentations), ours, and the difference of their means" in ended.stderr
    with Image.open("compare.png") as sheet:
        assert sheet.width > 500
    nowhere = CliRunner().invoke(app, [*given, "--sheet", "nowhere/a.png"])
    assert "--sheet nowhere/a.png: there is no folder nowhere" in nowhere.stderr
    monkeypatch.setitem(sys.modules, "albumentations", None)  # type: ignore[arg-type]
    refused = CliRunner().invoke(app, given)
    assert refused.exit_code and "Mend its installation, or leave --compare out." in refused.stderr


def test_means_are_as_far_apart_as_by_chance_or_further() -> None:
    image = np.random.default_rng(0).integers(0, 256, (12, 16, 3)).astype(np.uint8)
    recipe = Recipe(ops=(ops.Flip(), ops.Normalize()))
    shown = compared(lambda given: (given / 255.0 - IMAGENET_MEAN) / IMAGENET_STD * 255.0, recipe, image, "a")
    *draws, means = shown.rows
    assert [len(row.cells) for row in draws] == [5, 5] and "compare the means" in shown.note
    assert (draws[0].cells[0].image == image).all() and (means.cells[0].image == image).all()  # theirs never flips
    ours = " ".join(means.cells[2].captions)
    assert float(ours.partition(": ")[2].partition(" of")[0]) > 20.0
    assert "theirs less another 64 of theirs: 0.00 of 255" in " ".join(means.cells[3].captions)
    sized = compared(lambda given: given[:6], recipe, image, "a")
    assert len(sized.rows) == 2 and "sizes differ (16x12 and 16x6)" in sized.note
