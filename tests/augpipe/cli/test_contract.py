"""What all commands have in common: progress on stderr, JSON alone on stdout, Ctrl-C, exit codes, and their docs."""

import json
import logging
import re
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer.main
from PIL import Image
from typer.testing import CliRunner, Result

from augpipe import doctor
from augpipe.cli.app import app
from augpipe.cli.common import in_options
from augpipe.cli.exit_codes import OWN_CODES, codes_of, epilog
from augpipe.doctor.examine import SECTIONS, examine
from augpipe.gpu_ops.compiled import cache, declared, warm
from augpipe.reports import progress_bar
from augpipe.reports.progress_bar import ProgressBar
from docs.site import reference
from tests.distributed.train_runs import settings, write_photos

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
SMALL = "--size 8 --scale 10"
LONG = {
    "sample": "sample made --num 12 --classes 2",
    "stats": "stats photos",
    "index": "index photos",
    "prepare": "prepare photos prepared --scales 16 --workers 1",
    "verify": "verify shards",
    "preview": f"preview photos {SMALL} --rows 2 --cols 2",
    "replay": "replay photos sample=3",
    "bench": f"bench photos {SMALL} --seconds 0.2 --threads 1",
    "explain": f"explain photos {SMALL} --seconds 0.5 --batch-size 2 --threads 1",
    "doctor": "doctor",
    "warm": "warm",
    "train": "train run.toml --set out=again",
    "evaluate": "evaluate run --source photos",
    "report": "report run",
    "simulate": "simulate run.toml --set model.num_classes=2 --ranks 1,2",
    "checkpoint": "checkpoint convert run/checkpoints/step-000000006 weights.safetensors",
}
"""Commands that may take more than two seconds, on little."""
SHORT = {"inspect": "inspect deep_image", "recipe": "recipe deep_image", "schema": "schema", "import": "import a.py"}
BAD = {
    "preview": f"preview broken {SMALL}",
    "replay": "replay broken sample=0",
    "bench": f"bench broken {SMALL}",
    "explain": f"explain broken {SMALL}",
    "prepare": "prepare broken prepared --scales 16 --workers 1",
    "evaluate": "evaluate run --source broken",
    "stats": "stats broken",
    "verify": "verify damaged",
    "doctor": "doctor",
}
"""What ends with 1."""
FINDS = ("stats", "verify", "doctor")
"""Commands whose job it is to find what is bad: their JSON lists it."""
COMMANDS = typer.main.get_group(app).commands
WITH_JSON = {name for name, command in COMMANDS.items() if any("--json" in param.opts for param in command.params)}


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Takes back how `train` logs."""
    logger = logging.getLogger("augpipe")
    level, handlers = logger.level, logger.handlers[:]
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, quiet: None) -> Path:
    """Images, shards, a run, and of each something broken."""
    folder = tmp_path_factory.mktemp("home")
    photos = write_photos(folder, 10, 2)
    (folder / "a.py").write_text("transforms.RandomResizedCrop(224)")
    write_config(folder / "run.toml", settings(folder / "run", photos, epochs=2))
    shutil.copytree(photos, folder / "broken")
    for path in (folder / "broken").rglob("*.jpg"):
        path.write_bytes(b"no image")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in ("train run.toml", "prepare photos shards --scales 16 --workers 1"):
            assert CliRunner().invoke(app, command.split()).exit_code == 0
    shutil.copytree(folder / "shards", folder / "damaged")
    (shard,) = (folder / "damaged").rglob("*.tar")
    shard.write_bytes(shard.read_bytes()[:-2000])
    return folder


def write_config(path: Path, tables: dict[str, Any]) -> None:
    import tomli_w

    tables["report"] = {"tensorboard": False}
    path.write_text(tomli_w.dumps(tables))


@pytest.fixture(autouse=True)
def _there(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A copy of it as the current folder; one section of the doctor's, and kernels that take no time."""
    shutil.copytree(home, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setattr(doctor, "examine", partial(examine, SECTIONS[:2]))
    monkeypatch.setattr(warm, "warm", lambda num: iter(declared.overloads()))
    monkeypatch.setattr(cache, "find", lambda one: None)


def run(name: str, line: str, *, json: bool = True) -> Result:
    words = line.replace("sample=", "sample ").split(" ", 2) if name == "replay" else line.split()
    return CliRunner().invoke(app, words + ["--json"] * (json and name in WITH_JSON))


def test_every_command_is_listed_here() -> None:
    assert {*LONG, *SHORT, "demo"} == set(COMMANDS)  # the demo is made of others, and has tests of its own


@pytest.mark.parametrize("name", LONG)
def test_a_long_one_says_how_far_it_is_and_prints_json(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "time", time)  # which stands still in other tests
    monkeypatch.setattr(progress_bar, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(progress_bar, "LINE_EVERY_SHARE", 0.0)
    monkeypatch.setattr(progress_bar, "LEAST_S", 0.0)
    ended = run(name, LONG[name])
    assert ended.exit_code == 0, ended.output
    unit = r"(image|kernel|part|file|cluster|step|MB)s?"
    assert re.search(rf"^augpipe: .* [\d,.]+/[\d,.]+( MB)?  \S+ {unit}/s  \d+:\d\d left", ended.stderr, re.MULTILINE)
    assert name == "train" or re.search(rf"^augpipe: .* took \S+ s: .*{unit}/s$", ended.stderr, re.MULTILINE)
    assert " left" not in ended.stdout and " took " not in ended.stdout
    if name in WITH_JSON:
        assert isinstance(json.loads(ended.stdout), dict)


@pytest.mark.parametrize("name", sorted(WITH_JSON & set(SHORT)))
def test_a_short_one_prints_json(name: str) -> None:
    ended = run(name, SHORT[name])
    assert ended.exit_code == 0 and isinstance(json.loads(ended.stdout), dict) and ended.stderr == ""


@pytest.mark.parametrize("name", sorted(set(LONG) - {"train"}))  # which finishes its step: see tests/trainer
def test_ctrl_c_in_the_middle_ends_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: ProgressBar, *numbers: float, **more: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBar, "update", stop)
    ended = run(name, LONG[name])
    assert ended.exit_code == 130 and ended.stdout == ""
    assert re.match(r"augpipe: (interrupted|stopped)", ended.stderr.splitlines()[-1])


@pytest.mark.parametrize("name", BAD)
def test_what_is_bad_ends_with_1(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "doctor":
        broken = doctor.Finding(name="numba", status="broken", text="cannot be imported", is_needed=True)
        monkeypatch.setattr(doctor, "examine", lambda progress: [broken])
    ended = run(name, BAD[name])
    assert ended.exit_code == 1 and isinstance(ended.exception, SystemExit), ended.output
    if name in FINDS:
        assert isinstance(json.loads(ended.stdout), dict)
    else:
        assert ended.stdout == "" and ended.stderr.startswith("augpipe: ")


def test_what_codes_of_its_own_say_is_tested() -> None:
    assert {*BAD, "demo", "train"} == {name for name, own in OWN_CODES.items() if 1 in own}


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_use_ends_with_2_and_help_with_the_codes(name: str) -> None:
    words = ["checkpoint", "convert"] if name == "checkpoint" else [name]
    ended = CliRunner().invoke(app, [*words, "--no-such-option"])
    assert ended.exit_code == 2 and ended.stdout == "" and ended.stderr.count("\n") == 1
    told = " ".join(CliRunner().invoke(app, [*words, "--help"]).stdout.split())
    assert told.endswith(epilog(name)) and all(f"{code} {meaning}" in told for code, meaning in codes_of(name).items())


def test_the_docs_have_the_codes_and_name_what_has_json() -> None:
    page = str(reference.pages()["reference/cli.md"])
    for name in COMMANDS:
        codes = "; ".join(f"{code} {meaning}" for code, meaning in codes_of(name).items())
        assert f"(#augpipe-{name}) | {'yes' if name in WITH_JSON else ''} | {codes} |" in page
    readme = " ".join((ROOT / "docs/README.md").read_text().split())
    (listed,) = re.findall(r"`--json` prints one JSON document on stdout, for scripts: (.*?) have it", readme)
    assert set(re.findall(r"`(\w+)`", listed)) == WITH_JSON
    assert epilog("") in readme


def test_json_of_a_sheet_says_what_was_drawn() -> None:
    found = json.loads(run("replay", LONG["replay"]).stdout)
    (row,) = found["rows"]
    assert (found["out"], found["seed"], found["epoch"], row["sample"]) == ("item.png", 0, 0, 3)
    assert row["name"].endswith(".jpg") and [image["heading"] for image in row["images"]] == ["epoch 0"]
    assert any("rotate" in drawn or "°" in drawn for drawn in row["images"][0]["drawn"]), row
    with Image.open("item.png") as sheet:
        assert sheet.width > 100


def test_json_of_what_was_made() -> None:
    (made,) = json.loads(run("prepare", LONG["prepare"]).stdout)["data_sets"]
    assert (made["out"], made["samples"], made["classes"], made["rejected"]) == ("prepared", 10, 2, 0)
    assert [scale["name"] for scale in made["scales"]] == ["16"]
    found = json.loads(run("import", SHORT["import"]).stdout)
    assert [row["verdict"] for row in found["transforms"]] == ["exact"]
    assert found["recipe"]["ops"][0]["op"] == "random_resized_crop"
    (_, two) = json.loads(run("simulate", LONG["simulate"]).stdout)["predictions"]
    assert two["ranks"] == 2 and two["bytes_sent"] > 0 and 0 < two["efficiency"] < 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('Open one: split="train" (of Loader and open_source), or a folder', "Open one: --split train, or a folder"),
        ("a file, and split='my-val' chooses", "a file, and --split my-val chooses"),
        ('split="val", holdout=0.1 draws one', 'split="val", holdout=0.1 draws one'),
    ],
)
def test_errors_name_the_option_for_splits(said: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)), in_options():
        raise ValueError(said)
