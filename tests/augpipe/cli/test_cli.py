"""The command line: what each command prints and writes, and one clear line for every mistake."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import augpipe
from augpipe import Recipe, ops, recipes
from augpipe.cli import common
from augpipe.cli.app import app
from augpipe.cli.exit_codes import explain
from augpipe.recipes import names
from tests.child_path import child_path

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["--size", "32", "--scale", "40"]
COMMANDS = (
    *("demo", "preview", "replay", "inspect", "recipe", "schema", "sample", "prepare", "index", "stats", "verify"),
    *("train", "evaluate", "report", "simulate", "bench", "doctor"),
)
TABLE_1 = {
    "color_cast": 68_920,
    "vignette": 1_960,
    "lens_distortion": 260,
    "rotate": 20,
    "flip": 2,
    "multi_resolution_crop": 82_944,
}
"""Table 1 of the Deep Image paper (arXiv 1501.02876)."""


@pytest.fixture(autouse=True)
def _plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever colours and widths the surroundings ask for."""
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "COLUMNS", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with images in photos/, and an empty folder beside them."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "empty").mkdir()
    rng = np.random.default_rng(1)
    for number in range(3):
        pixels = rng.integers(0, 256, (50, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> str:
    """What a command prints to stdout; it must succeed."""
    ended = CliRunner().invoke(app, list(arguments))
    assert ended.exit_code == 0, ended.output
    assert "\x1b" not in ended.output
    return ended.stdout


def fail(*arguments: str) -> tuple[int, str]:
    """(exit code, the one line on stderr) of a command that must print nothing else."""
    ended = CliRunner().invoke(app, list(arguments))
    assert ended.exit_code != 0
    assert isinstance(ended.exception, SystemExit), "a traceback"
    lines = ended.output.splitlines()
    assert len(lines) == 1 and lines[0].startswith("augpipe: "), ended.output
    return ended.exit_code, lines[0]


def in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m augpipe` with its output in pipes."""
    command = [sys.executable, "-m", "augpipe", *arguments]
    environment = {**os.environ, "PYTHONPATH": child_path()}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_help_names_every_command() -> None:
    for arguments in (["--help"], ["-h"]):
        text = run(*arguments)
        for command in COMMANDS:
            assert f" {command} " in text


def test_alone_it_names_five_commands_and_all_others_in_a_line() -> None:
    *first, blank, others, _ = run().splitlines()
    assert [line.split()[1] for line in first[2:]] == ["demo", "preview", "import", "bench", "train"] and not blank
    named = {line.split()[1] for line in first[2:]} | set(re.findall(r"[a-z]+", others.partition(".")[0])) - {"lso"}
    assert named == {info.name or info.callback.__name__ for info in app.registered_commands} | {"checkpoint"}
    for line in first[2:]:  # each is a command line that parses
        assert "Usage" in run(line.split()[1], "--help")


def test_index_says_what_it_wrote_and_what_has_none(folder: Path) -> None:
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(folder / "photos" / "3.png")
    wrote, left = run("index", "photos").splitlines()
    assert re.fullmatch(r"photos/\.augpipe-index: \S+ k?B for 4 images", wrote)
    assert left.startswith("1 of them without a row index")
    assert "4 of them as before" in run("index", "photos")
    assert json.loads(run("index", "photos", "--json"))["num_indexed"] == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    text = run(command, "-h")
    assert text == run(command, "--help") and "Usage" in text
    if command in ("preview", "inspect", "recipe", "bench"):
        names = ", ".join(recipes.BY_NAME)
        assert names in " ".join(text.replace("│", " ").split())


def test_the_names_in_help_are_those_that_there_are() -> None:
    assert tuple(recipes.BY_NAME) == names.RECIPE_NAMES
    for name, make in recipes.BY_NAME.items():
        assert names.load_recipe(name) == make()


def test_version() -> None:
    assert run("--version") == f"augpipe {augpipe.__version__}\n" == run("-V")


def test_inspect_counts_as_table_1_does() -> None:
    found = json.loads(run("inspect", "deep_image", "--scale", "512", "--size", "224", "--json"))
    product = int(np.prod(list(TABLE_1.values()), dtype=object))
    assert found == {
        "ops": [{"op": name, "variants": variants} for name, variants in TABLE_1.items()],
        "fixed": ["normalize"],
        "variants": product,
    }


def test_inspect_as_a_table() -> None:
    lines = run("inspect", "deep_image", "--scale", "512").splitlines()
    for name, variants in TABLE_1.items():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert line.split()[-1] == f"{variants:,}"
    assert lines[-1 if lines[-1].strip() else -2].split() == ["product", "1.17e+17"]


def test_inspect_what_is_mixed(folder: Path) -> None:
    mixing = (ops.MixUp(p=0.5), ops.CutMix(p=0.25))
    Recipe(ops=(ops.CenterCrop(size=8),), mixing=mixing).dump(folder / "mixed.toml")
    found = json.loads(run("inspect", "mixed.toml", "--json"))
    assert found["variants"] is None and [mix["op"] for mix in found["mixing"]] == ["mix_up", "cut_mix"]
    text = run("inspect", "mixed.toml")
    assert "then mix_up with another sample, by Beta(0.2, 0.2): 50%" in text and "Beta(1, 1): 25%" in text
    Recipe(ops=(ops.CenterCrop(size=8),), mosaic=ops.Mosaic(size=8, p=0.5)).dump(folder / "mosaic.toml")
    found = json.loads(run("inspect", "mosaic.toml", "--json"))
    assert found["variants"] is None and found["mosaic"]["size"] == 8 and found["mosaic"]["p"] == 0.5
    assert "first a mosaic of four samples, each of 8 px at most: 50%" in run("inspect", "mosaic.toml")


def test_inspect_what_is_continuous_or_has_views(folder: Path) -> None:
    Path("mine.toml").write_text(
        '[[views]]\ncount = 2\nops = [{op = "random_resized_crop"}, {op = "rotate", step = "continuous"}]\n'
        '[[views]]\nops = [{op = "flip"}, {op = "center_crop"}]\n'
    )
    found = json.loads(run("inspect", "mine.toml", "--json"))
    continuous = [{"op": "random_resized_crop", "variants": None}, {"op": "rotate", "variants": None}]
    assert found == {
        "views": [
            {"ops": continuous, "fixed": [], "count": 2, "variants": None},
            {"ops": [{"op": "flip", "variants": 2}], "fixed": ["center_crop"], "count": 1, "variants": 2},
        ],
        "variants": None,
    }
    text = run("inspect", "mine.toml")
    assert "mine, view 1, 2 crops of it" in text and "mine, view 2" in text and "any number" in text


def test_a_printed_recipe_can_be_given_back(folder: Path) -> None:
    Path("my.toml").write_text(run("recipe", "deep_image", *SMALL))
    assert Recipe.load("my.toml") == recipes.deep_image(size=32, scales=(40,))
    run("preview", "photos", "-r", "my.toml", "-o", "a.png")
    run("preview", "photos", "-r", "deep_image", *SMALL, "-o", "b.png")
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


def test_a_recipe_without_a_name_is_called_as_its_file(folder: Path) -> None:
    Path("mine.toml").write_text('[[ops]]\nop = "flip"\n')
    assert "recipe mine" in run("preview", "photos", "-r", "mine.toml")


def test_schema_is_that_of_recipes() -> None:
    assert json.loads(run("schema")) == Recipe.json_schema()


@pytest.mark.parametrize("out", ["sheet.png", "sheet.jpg", "sheet.webp"])
@pytest.mark.parametrize("source", ["photos", "photos/1.jpg"])
def test_preview_writes_an_image(folder: Path, source: str, out: str) -> None:
    said = run("preview", source, *SMALL, "--rows", "2", "--cols", "2", "--out", out)
    assert said == f"{out}: {'2 photographs' if source == 'photos' else '1 photograph'}, recipe deep_image\n"
    with Image.open(out) as sheet:
        assert sheet.mode == "RGB" and 400 < sheet.width <= 2000 and sheet.height > 200


def test_preview_depends_on_seed_epoch_and_by_op_alone(folder: Path) -> None:
    sheets = []
    for number, options in enumerate(([], [], ["--seed", "1"], ["--epoch", "1"], ["--by-op"])):
        run("preview", "photos", *SMALL, "--rows", "1", "--cols", "1", "--out", f"{number}.png", *options)
        sheets.append(Path(f"{number}.png").read_bytes())
    assert sheets[0] == sheets[1] and len(set(sheets)) == 4


def test_preview_takes_a_list_and_says_what_it_skips(folder: Path) -> None:
    Path("list.csv").write_text("photos/0.jpg,cat\nphotos/text.jpg,dog\n")
    Path("photos/text.jpg").write_text("hello")
    code, line = fail("preview", "list.csv", *SMALL)
    assert code == 1 and "photos/text.jpg: not a picture" in line and "--on-error skip" in line
    ended = CliRunner().invoke(app, ["preview", "list.csv", *SMALL, "--on-error", "skip"])
    assert ended.exit_code == 0
    assert "augpipe: skipped photos/text.jpg: not a picture" in ended.output and "1 photograph," in ended.output


def test_a_warning_is_one_line(folder: Path) -> None:
    (folder / "photos" / ".augpipe-index").write_bytes(b"no index")
    ended = in_process("preview", "photos", *SMALL)
    assert ended.returncode == 0
    said = f"augpipe: warning: {folder / 'photos' / '.augpipe-index'} is not used"
    assert ended.stderr.startswith(said) and ended.stderr.count("\n") == 1


def test_sample_writes_class_folders(folder: Path) -> None:
    assert run("sample", "out", "--num", "4", "--classes", "2", "--seed", "3") == "out: 4 photographs of 2 classes\n"
    assert len(list(Path("out").rglob("*.jpg"))) == 4
    assert len([path for path in Path("out").iterdir() if path.is_dir()]) == 2


def test_a_sheet_that_cannot_be_written(folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (folder / "empty").chmod(0o500)
    code, line = fail("preview", "photos", "-o", "empty/sheet.png")
    assert code == 2 and "cannot be written: permission denied" in line


def test_a_full_disk_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(self: Image.Image, *arguments: object) -> None:
        raise OSError(28, "No space left on device", "sheet.png")

    monkeypatch.setattr(Image.Image, "save", save)
    assert fail("preview", "photos", *SMALL) == (1, "augpipe: sheet.png: No space left on device.")


def test_a_bug_of_ours_keeps_its_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw_sheet(*arguments: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr("augpipe.preview.draw_sheet", draw_sheet)
    ended = CliRunner().invoke(app, ["preview", "photos", *SMALL])
    assert isinstance(ended.exception, AssertionError)


def test_as_a_module_in_pipes() -> None:
    ended = in_process("inspect", "deep_image", "--scale", "512", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["variants"] == 116_525_145_784_320_000
    ended = in_process("inspect", "deep_imge")
    assert (ended.returncode, ended.stdout) == (2, "") and ended.stderr.count("\n") == 1


def test_help_loads_no_drawing_no_measuring_no_datasets_no_torch() -> None:
    code = "import augpipe.cli.app, json, sys; print(json.dumps(sorted(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": child_path()}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    modules = set(json.loads(ended.stdout))
    assert "augpipe.cli.preview" in modules
    assert not modules & {"augpipe.preview", "augpipe.bench", "augpipe.datasets.open", "torch", "rich.progress"}


def test_interrupted_it_ends_at_once(folder: Path) -> None:
    code = (
        # numba reports an interrupt while it compiles in its own way: compile first
        "import sys, pathlib, numpy, augpipe, augpipe.bench.measurements as report\n"
        "augpipe.Augment(augpipe.recipes.deep_image(32, (40,)))(numpy.zeros((50, 50, 3), 'uint8'))\n"
        "from augpipe.cli.app import main\n"
        "hold = report.hold\n"
        "report.hold = lambda *a, **k: (pathlib.Path('started').touch(), hold(*a, **k))[1]\n"
        "sys.argv[1:] = ['bench', 'photos', '--size', '32', '--scale', '40', '--seconds', '60']\n"
        "main()"
    )
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": child_path()}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        give_up = time.monotonic() + 60
        while not Path("started").exists() and time.monotonic() < give_up:
            time.sleep(0.02)
        time.sleep(0.3)  # somewhere in the middle of it
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert printed == "" and "Traceback" not in said


def test_what_may_not_be_read_is_told_as_such() -> None:
    """Beside which the system's word for it is short; root, who may be running this, may read everything."""
    refused = PermissionError(errno.EACCES, "Permission denied", "photos/a.jpg")
    assert explain(refused) == ("photos/a.jpg: Permission denied: you may not read or write it.", 1)
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", "photos/a.jpg")
    assert explain(missing) == ("photos/a.jpg: No such file or directory.", 2)


@pytest.mark.parametrize("num", [0, 1, 5, 6, 9])
def test_of_many_that_were_skipped_five_are_named(num: int, capsys: pytest.CaptureFixture[str]) -> None:
    common.warn_of_skipped({number: f"{number}.jpg: damaged" for number in range(num)})
    expected = [f"augpipe: skipped {number}.jpg: damaged" for number in range(min(num, 5))]
    assert capsys.readouterr().err.splitlines() == expected + [f"augpipe: and {num - 5} more"] * (num > 5)
