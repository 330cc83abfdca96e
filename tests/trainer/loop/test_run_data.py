"""A run goes on with the source, the held-out images and the recipe that it was begun with, or not at all."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from augpipe import recipes
from augpipe.trainer.loop import run
from tests.augpipe.decoding.image_files import encoded, scene, write_files
from tests.distributed.train_runs import config, write_photos

HELD: dict[str, Any] = {"eval_fraction": 0.25}


def test_a_source_in_which_one_file_stands_for_another_is_refused(tmp_path: Path) -> None:
    """As many as before: what was held out is trained on, and the other way about."""
    photos = write_photos(tmp_path, 16)
    run(config(tmp_path / "run", photos, data=HELD, max_steps=1))
    (photos / "c0/000.jpg").rename(photos / "c0/0000.jpg")
    with pytest.raises(ValueError, match=r"photos. is not what the run .* trained on .other names.*choose another"):
        run(config(tmp_path / "run", photos, data=HELD, max_steps=2))
    (photos / "c0/0000.jpg").rename(photos / "c0/000.jpg")
    assert run(config(tmp_path / "run", photos, data=HELD, max_steps=2)).step == 2


def test_another_share_is_refused(tmp_path: Path) -> None:
    photos = write_photos(tmp_path, 16)
    run(config(tmp_path / "run", photos, data=HELD, max_steps=1))
    for tables, said in (
        ({"data": {"eval_fraction": 0.5}}, r"data\.eval_fraction: 0\.25, now 0\.5"),
        ({"data": {"eval_fraction": 0.25}, "seed": 1}, r"seed: 0, now 1"),
        ({}, r"data\.eval_fraction: 0\.25, now 0"),
    ):
        with pytest.raises(ValueError, match=rf"{said}.*other photographs .*trained on"):
            run(config(tmp_path / "run", photos, max_steps=2, **tables))


def test_a_moved_source_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    photos = write_photos(tmp_path, 8)
    monkeypatch.chdir(tmp_path)
    run(config(tmp_path / "run", Path("photos"), max_steps=1))
    assert json.loads((tmp_path / "run/data.json").read_text())["source"]["place"] == str(photos)
    shutil.move(photos, tmp_path / "moved")
    assert run(config(tmp_path / "run", tmp_path / "moved", max_steps=2)).step == 2
    assert f"data.source is {tmp_path}/moved now, and was {photos}" in caplog.text
    assert json.loads((tmp_path / "run/data.json").read_text())["source"]["place"] == str(tmp_path / "moved")


def test_a_recipe_that_was_edited_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    photos = write_photos(tmp_path, 8)
    tables = {"data": {"recipe": str(tmp_path / "mine.toml")}}
    recipes.deep_image(16, (18, 20)).dump(tmp_path / "mine.toml")
    run(config(tmp_path / "run", photos, max_steps=1, **tables))
    recipes.deep_image(16, (18, 22)).dump(tmp_path / "mine.toml")
    with pytest.raises(ValueError, match=r"mine\.toml' is not the recipe.*ops\[5\]\.scales\[1\]: 20, now 22"):
        run(config(tmp_path / "run", photos, max_steps=2, **tables))
    with pytest.raises(ValueError, match=r"'deep_image' is not the recipe.*ops\[5\]\.scales\[1\]: 20, now 24"):
        run(config(tmp_path / "run", photos, max_steps=2, data={"scales": [18, 24]}))
    assert run(config(tmp_path / "run", photos, max_steps=2)).step == 2  # the same one by its name


def test_a_run_of_another_releases_pixels_is_refused(tmp_path: Path) -> None:
    photos, kept = write_photos(tmp_path, 8), tmp_path / "run/data.json"
    run(config(tmp_path / "run", photos, max_steps=1))
    text = kept.read_text()
    kept.write_text(text.replace("pixels = 2", "pixels = 3"))
    with pytest.raises(
        ValueError, match=r"/run was begun with pixels = 3, and this augpipe makes pixels = 2: .* out\."
    ):
        run(config(tmp_path / "run", photos, max_steps=2))
    kept.write_text(text.replace("pixels = 2\\n", ""))  # as by releases that did not say
    assert "pixels" not in kept.read_text()
    with pytest.raises(ValueError, match=r"/run was begun with pixels = 1, and this augpipe makes pixels = 2: "):
        run(config(tmp_path / "run", photos, max_steps=2))


def test_another_evaluation_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It changes nothing of the training, and numbers are not comparable any more."""
    (tmp_path / "eval").mkdir()
    photos, held = write_photos(tmp_path, 8), write_photos(tmp_path / "eval", 6)
    run(config(tmp_path / "run", photos, max_steps=1, data={"eval_source": str(held)}))
    write_files(held, {"c0/099.jpg": encoded(scene(24, 24, 5), "JPEG")})
    run(config(tmp_path / "run", photos, max_steps=2, data={"eval_source": str(held), "eval_scale": 24}))
    assert "data.eval_source is evaluated otherwise than before: 6 photographs then, 7 now" in caplog.text
    assert "ops[0].scale: 19, now 24" in caplog.text


def test_a_run_of_before_goes_on_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    photos = write_photos(tmp_path, 8)
    run(config(tmp_path / "run", photos, max_steps=1))
    (tmp_path / "run/data.json").unlink()
    caplog.set_level("INFO")
    assert run(config(tmp_path / "run", photos, max_steps=2)).step == 2
    assert "has no record of its training data" in caplog.text
    assert (tmp_path / "run/data.json").exists()
