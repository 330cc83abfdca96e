"""Evaluating a run whose source, recipe or working directory is another one than when it was trained."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from augpipe import recipes
from augpipe.cli.app import app
from augpipe.trainer.evaluation import Comparison, evaluate_runs
from augpipe.trainer.evaluation.trained_run import open_run
from augpipe.trainer.loop import run
from augpipe.trainer.loop.world import open_world
from tests.augpipe.decoding.image_files import encoded, scene, write_files
from tests.distributed.train_runs import config, write_photos

NUM, NUM_HELD_OUT = 20, 4
QUICK: dict[str, Any] = {"max_steps": 1, "report": {"tensorboard": False}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with photos/, and runs/first, which held a fifth of them out."""
    folder = tmp_path_factory.mktemp("made")
    photos = write_photos(folder, NUM)
    run(config(folder / "runs/first", photos, data={"eval_fraction": 0.2}, **QUICK))
    return folder, folder / "runs/first"


@pytest.fixture
def place(made: tuple[Path, Path], tmp_path: Path) -> Iterator[Path]:
    """The photographs, where the run has them; they are put back afterwards."""
    kept = tmp_path / "kept"
    shutil.copytree(made[0] / "photos", kept)
    yield made[0] / "photos"
    shutil.rmtree(made[0] / "photos", ignore_errors=True)
    shutil.copytree(kept, made[0] / "photos")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "augpipe.trainer"]


def names(found: Comparison) -> set[str]:
    return {"/".join(Path(name).parts[-2:]) for name in found.names}


def grow(photos: Path) -> None:
    write_files(photos, {f"c0/0{name}.jpg": encoded(scene(24, 24, 90 + name), "JPEG") for name in range(3)})


def test_photographs_that_came_later_are_not_evaluated(
    made: tuple[Path, Path], place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Held-out ones were drawn by position: three more, and most of those drawn had been trained on."""
    before = evaluate_runs(made[1])
    assert len(before.names) == NUM_HELD_OUT and not said(caplog)
    grow(place)
    after = evaluate_runs(made[1])
    assert names(after) == names(before)
    np.testing.assert_array_equal(after.log_probs, before.log_probs)
    (line,) = said(caplog)
    assert f"{place} has changed since {made[1]} was trained (20 photographs then, 23 now)" in line
    assert "4 of its 4 held-out photographs are left" in line and "not looked at" in line


def test_held_out_photographs_that_are_gone_are_counted(
    made: tuple[Path, Path], place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = sorted(names(evaluate_runs(made[1])))
    (place / before[0]).unlink()
    assert sorted(names(evaluate_runs(made[1]))) == before[1:]
    assert "3 of its 4 held-out photographs are left" in caplog.text
    for name in before[1:]:
        (place / name).unlink()
    with pytest.raises(ValueError, match=r"none of the 4 photographs that .*first held out is there any more"):
        evaluate_runs(made[1])


def test_photographs_without_names_of_their_own_are_refused_when_they_change(tmp_path: Path) -> None:
    """Rows of a file are known by their number alone."""
    images, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"

    def write(num: int) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (num, 20, 20), np.uint8)
        images.write_bytes(np.array([0x803, num, 20, 20], ">i4").tobytes() + pixels.tobytes())
        labels.write_bytes(np.array([0x801, num], ">i4").tobytes() + (np.arange(num) % 2).astype(np.uint8).tobytes())

    write(20)
    run(config(tmp_path / "run", images, data={"eval_fraction": 0.2}, **QUICK))
    assert len(evaluate_runs(tmp_path / "run").names) == NUM_HELD_OUT
    write(22)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte is not what .*run was trained on .20 photographs.*"):
        evaluate_runs(tmp_path / "run")


def test_a_relative_source_is_that_of_the_training(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And not one that is called the same where the evaluation is started."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    photos = write_photos(tmp_path / "first", NUM)
    other = write_photos(tmp_path / "second", NUM)
    write_files(other, {"c0/000.jpg": encoded(scene(30, 30, 77), "JPEG")})
    monkeypatch.chdir(tmp_path / "first")
    run(config(tmp_path / "run", Path("photos"), data={"eval_fraction": 0.2}, **QUICK))
    here = evaluate_runs(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "second")
    caplog.clear()
    there = evaluate_runs(tmp_path / "run")
    assert [Path(name).is_relative_to(photos) for name in there.names] == [True] * NUM_HELD_OUT
    np.testing.assert_array_equal(here.log_probs, there.log_probs)
    assert not said(caplog)


def test_a_moved_source_is_found_by_the_configs_path_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A project's folder that was moved as a whole; then photographs that lie elsewhere."""
    (tmp_path / "then").mkdir()
    write_photos(tmp_path / "then", NUM)
    monkeypatch.chdir(tmp_path / "then")
    run(config(Path("run"), Path("photos"), data={"eval_fraction": 0.2}, **QUICK))
    before = names(evaluate_runs("run"))
    (tmp_path / "then").rename(tmp_path / "now")
    monkeypatch.chdir(tmp_path / "now")
    caplog.clear()
    assert names(evaluate_runs("run")) == before
    assert f"{tmp_path}/then/photos is gone: {tmp_path}/now/photos" in caplog.text
    (tmp_path / "now/photos").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"then/photos' does not exist.*--source.*--held-out"):
        evaluate_runs("run")
    grow(tmp_path / "elsewhere")
    assert names(evaluate_runs("run", source=tmp_path / "elsewhere", held_out=True)) == before


def test_an_evaluation_source_that_has_grown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "eval").mkdir()
    photos, held = write_photos(tmp_path, 8), write_photos(tmp_path / "eval", 6)
    run(config(tmp_path / "run", photos, data={"eval_source": str(held)}, **QUICK))
    before = names(evaluate_runs(tmp_path / "run"))
    caplog.clear()
    grow(held)
    assert names(evaluate_runs(tmp_path / "run")) == before
    assert "6 of its 6 held-out photographs are left" in caplog.text


def test_a_recipe_that_was_edited_since_is_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = write_photos(tmp_path, 8)
    recipes.deep_image(16, (18, 20)).dump(tmp_path / "mine.toml")
    monkeypatch.chdir(tmp_path)
    run(config(tmp_path / "run", photos, data={"eval_fraction": 0.5, "recipe": "mine.toml"}, **QUICK))
    caplog.clear()
    before = evaluate_runs(tmp_path / "run")
    assert not said(caplog)
    recipes.deep_image(20, (22, 24)).dump(tmp_path / "mine.toml")
    monkeypatch.chdir(photos)
    after = evaluate_runs(tmp_path / "run")
    np.testing.assert_array_equal(after.log_probs, before.log_probs)
    assert "mine.toml was changed since" in caplog.text and "--recipe" in caplog.text
    recipes.evaluation(16, 24).dump(tmp_path / "shown.toml")
    with open_world("cpu", 60.0) as world:  # a name, too, at the size that the run was trained at
        assert open_run(tmp_path / "run", world, "evaluation").recipe == recipes.evaluation(16)
    asked = evaluate_runs(tmp_path / "run", recipe=tmp_path / "shown.toml")
    assert not np.array_equal(asked.log_probs, before.log_probs)


def test_a_run_of_before_says_that_nothing_is_known(
    made: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = shutil.copytree(made[1], tmp_path / "old")
    for name in ("data.json", "held-out.txt.gz"):
        (old / name).unlink()
    found = evaluate_runs(old)
    assert len(found.names) == NUM_HELD_OUT
    (line,) = said(caplog)
    assert f"{old} has no record of its training data" in line


@pytest.mark.parametrize("damage", ["data.json", "held-out.txt.gz"])
def test_what_a_run_kept_and_is_damaged_is_refused(
    made: tuple[Path, Path], place: Path, tmp_path: Path, damage: str
) -> None:
    other = shutil.copytree(made[1], tmp_path / "run")
    (other / damage).write_bytes((other / damage).read_bytes()[:-9])
    grow(place)
    with pytest.raises(ValueError, match=rf"{damage} is damaged"):
        evaluate_runs(other)


@pytest.mark.slow
def test_a_source_that_was_trained_on_is_not_compared_in_silence(
    made: tuple[Path, Path], place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    run(config(other, place, data={"eval_fraction": 0.2}, seed=1, **QUICK))
    caplog.clear()
    evaluate_runs([made[1], other], source=place)
    for trained in (made[1], other):
        assert f"{place} is what {trained} was trained on: 16 of these 20 photographs" in caplog.text
    caplog.clear()
    shutil.copytree(place, tmp_path / "copy")
    evaluate_runs(made[1], source=tmp_path / "copy")
    assert f"copy has the names and labels of {place}, which {made[1]} was trained on" in caplog.text
    caplog.clear()
    grow(tmp_path / "copy")
    evaluate_runs(made[1], source=tmp_path / "copy")
    assert not said(caplog)  # it may be any other


def test_an_evaluation_source_that_is_trained_on_is_not_called_held_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    photos = write_photos(tmp_path, 8)
    caplog.set_level(logging.INFO)
    run(config(tmp_path / "run", photos, data={"eval_source": f"{photos}/../photos"}, epochs=1))
    assert "all 8 photographs of data.eval_source are trained on" in caplog.text
    assert "held out:" not in caplog.text and "; trained on too: loss" in caplog.text
    caplog.clear()
    evaluate_runs(tmp_path / "run")
    assert "all 8 photographs of data.eval_source are trained on" in caplog.text
    rows = "\n".join(
        f"{place.relative_to(photos)},{place.parent.name}" for place in sorted(photos.glob("*/*.jpg"))[3:5]
    )
    (photos / "eval.csv").write_text(f"path,label\n{rows}\n")
    caplog.clear()
    run(config(tmp_path / "other", photos, data={"eval_source": str(photos / "eval.csv")}, epochs=1))
    assert "all 2 photographs of data.eval_source are trained on" in caplog.text


def test_the_command_takes_them_by_name(made: tuple[Path, Path], place: Path, tmp_path: Path) -> None:
    grow(place)
    ended = CliRunner().invoke(app, ["evaluate", str(made[1])])
    assert ended.exit_code == 0, ended.output
    assert ended.stderr.startswith(f"augpipe: {place} has changed since")
    recipes.evaluation(16, 24).dump(tmp_path / "shown.toml")
    arguments = ["--source", str(place), "--held-out", "--recipe", str(tmp_path / "shown.toml"), "--json"]
    ended = CliRunner().invoke(app, ["evaluate", str(made[1]), *arguments])
    assert ended.exit_code == 0 and '"images": 4' in ended.stdout
    ended = CliRunner().invoke(app, ["evaluate", str(made[1]), "--held-out"])
    assert ended.exit_code == 2 and "--held-out goes with --source" in ended.output
