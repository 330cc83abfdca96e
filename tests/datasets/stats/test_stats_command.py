"""`augpipe stats`: tables, JSON, plots, exit codes."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from augpipe.cli.app import app
from augpipe.cli.stats import MOST_CLASSES, MOST_LINES, _groups, _label_numbers, _unusable
from augpipe.ops import Normalize
from augpipe.recipes.recipe import Recipe
from tests.augpipe.decoding.image_files import encoded, scene, write_files

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with images in photos/CLASS, two of them the same."""
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "COLUMNS", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)
    files = {f"photos/cat/{number}.jpg": encoded(scene(40, 50 + number, number), "JPEG") for number in range(5)}
    files |= {"photos/[red]dog $x_1/same.jpg": files["photos/cat/1.jpg"]}
    write_files(tmp_path, files)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    ended = CliRunner().invoke(app, ["stats", *arguments])
    assert ended.exit_code == code, ended.output
    return ended.stdout


def test_the_table_tells_what_json_tells(folder: Path) -> None:
    told = json.loads(run("photos", "--json"))
    assert told["photographs"] == 6 and told["classes"]["sizes"] == {"[red]dog $x_1": 1, "cat": 5}
    (group,) = told["duplicates"]["groups"]
    assert group["kind"] == "same_bytes" and group["contradicts"]
    assert [member["class"] for member in group["members"]] == ["[red]dog $x_1", "cat"]
    text = run("photos")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "photographs 6" in lines
    assert "classes 2, of 1 to 5 photographs; balance 0.650 (1: all alike)" in lines
    assert "same bytes 1 1 1" in lines
    assert "same bytes [red]dog $x_1/same.jpg [red]dog $x_1" in lines and "contradicting cat/1.jpg cat" in lines
    assert "width 50 50 51 51 53 54 54" in lines


def test_the_mean_can_be_pasted_into_a_recipe(folder: Path) -> None:
    (line,) = [line for line in run("photos").splitlines() if line.startswith("{op")]
    Path("mine.toml").write_text(f"ops = [{line}]\n")
    (op,) = Recipe.load("mine.toml").ops
    told = json.loads(run("photos", "--json"))
    assert isinstance(op, Normalize)
    np.testing.assert_allclose([op.mean, op.std], [told["mean"], told["std"]], atol=0.00005)


def test_a_narrow_screen_keeps_that_line_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert any("{op" in line and "]}" in line for line in run("photos").splitlines())


def test_a_black_image_has_no_deviation_to_divide_by(folder: Path) -> None:
    Image.new("RGB", (9, 9)).save("black.png")
    text = run("black.png")
    assert "0.0000, 0.0000, 0.0000" in text and "{op" not in text


def test_what_cannot_be_used_is_listed_and_exits_with_1(folder: Path) -> None:
    for number in range(7):
        Path(f"photos/cat/bad{number}.jpg").write_text("hello")
    text = run("photos", code=1)
    assert "13, of which 7 cannot be used" in text and "cat/bad0.jpg" in text and "and 2 more" in text
    assert "not a picture: it begins with b'hello'" in text
    assert run("photos", "--on-error", "skip") == text
    told = json.loads(run("photos", "--json", code=1))
    assert told["unusable"]["num"] == 7 == len(told["unusable"]["listed"])


def test_no_duplicates(folder: Path) -> None:
    text = run("photos", "--no-duplicates")
    assert "duplicates" not in text and "same bytes" not in text
    assert json.loads(run("photos", "--json", "--no-duplicates"))["duplicates"] is None


def test_without_imagehash_a_line_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("augpipe.datasets.stats.collect.has_image_hash", lambda: False)
    text = run("photos")
    assert 'look-alikes were not looked for, which takes ImageHash: pip install "augpipe[stats]"' in text
    assert "same bytes" in text and "look alike " not in text


@pytest.mark.slow
def test_plots_are_images(folder: Path) -> None:
    """Plots show many classes in many scripts, or none."""
    pytest.importorskip("matplotlib")
    for number in range(45):
        write_files(folder, {f"many/$写真_{number}/{number}.jpg": encoded(scene(20, 20, number % 30), "JPEG")})
    run("many", "--plots", "new/plots")
    for name in ("sizes.png", "classes.png", "duplicates.png"):
        with Image.open(Path("new/plots", name)) as plot:
            assert plot.format == "PNG" and plot.width > 600
            assert len(plot.convert("RGB").getcolors(2**24) or []) > 50
    run("photos/cat", "--plots", "fewer")
    assert [path.name for path in Path("fewer").iterdir()] == ["sizes.png"]


def test_plots_are_refused_before_the_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ended = CliRunner().invoke(app, ["stats", "photos", "--plots", "plots"])
    assert ended.exit_code == 1
    assert ended.output == 'augpipe: plots need matplotlib: pip install "augpipe[plots]"\n'


@pytest.mark.slow
def test_labels_of_several_numbers_are_a_table(folder: Path) -> None:
    names = ["cat/0.jpg", "cat/1.jpg", "cat/2.jpg"]
    lines = ["path,label_x,label_[y]", *(f"photos/{name},{place / 2},{place}" for place, name in enumerate(names))]
    Path("list.csv").write_text("\n".join(lines))
    shown = run("list.csv", "--plots", "plots")
    assert "none: labels of 2 numbers each" in shown
    assert re.search(r" x\W+0\W+0.5\W+0.4082\W+1\W+2\W", shown) and "[y]" in shown
    assert not Path("plots/classes.png").exists()
    assert [number["most"] for number in json.loads(run("list.csv", "--json"))["label_numbers"]] == [1, 2]


def test_label_names_the_columns(folder: Path) -> None:
    lines = ["path,x,y,kind", *(f"photos/cat/{place}.jpg,{place / 2},{-place},{'ab'[place % 2]}" for place in range(4))]
    Path("list.csv").write_text("\n".join(lines))
    several = json.loads(run("list.csv", "--json", "--label", "x, y"))
    assert [(number["name"], number["least"]) for number in several["label_numbers"]] == [("x", 0), ("y", -3)]
    one = json.loads(run("list.csv", "--json", "--label", "kind"))
    assert one["classes"]["sizes"] == {"a": 2, "b": 2} and not one["label_numbers"]


def test_label_names_what_is_not_there(folder: Path) -> None:
    Path("list.csv").write_text("path,x\nphotos/cat/0.jpg,1\n")
    for given, answer in {
        "z": "there is no column 'z': the header has path, x.",
        "x,,y": "--label x,,y has an empty name. Write the columns' names with a comma between: --label x,y.",
    }.items():
        ended = CliRunner().invoke(app, ["stats", "list.csv", "--label", given])
        assert ended.exit_code == 2 and answer in " ".join(ended.output.split()), ended.output
    ended = CliRunner().invoke(app, ["stats", "photos", "--label", "x"])
    assert ended.exit_code == 2 and "a FolderSource takes no label=.... Leave it out." in ended.output


def test_a_list_that_is_shown_whole_does_not_end_with_0_more() -> None:
    number = SimpleNamespace(name="a", least=0.0, mean=0.5, std=0.1, most=1.0, num_not_zero=3)
    photograph = SimpleNamespace(name="a.jpg", reason="empty", label=0)
    group = SimpleNamespace(kind="same_bytes", contradicts=False, members=[photograph] * MOST_LINES)
    found: Any = SimpleNamespace(
        label_numbers=[number] * 2 * MOST_CLASSES,
        sums=SimpleNamespace(num_unusable=MOST_LINES, unusable=[photograph] * MOST_LINES),
        duplicates=SimpleNamespace(groups=[group] * MOST_LINES),
        classes=("cat",),
        short_name=str,
    )
    tables: list[Any] = [*_label_numbers(found), *_unusable(found), *_groups(found)]
    assert [table.row_count for table in tables] == [2 * MOST_CLASSES, MOST_LINES, MOST_LINES**2]
