"""`augpipe prepare` as a newcomer types it."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from augpipe.cli.app import app
from augpipe.datasets.prepare import local_engine, ray_engine
from tests.augpipe.decoding.image_files import write_files
from tests.datasets.prepare.prepare_sources import InlineEngine, tree, write_photos


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with photos/; the local engine runs in this process."""
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "COLUMNS", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)
    write_photos(tmp_path / "photos", 6)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_engine, "LocalEngine", lambda num_workers: InlineEngine())
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["prepare", *arguments])


def said(*arguments: str, code: int) -> str:
    """What is said on stderr, with nothing on stdout."""
    ended = invoke(*arguments)
    assert ended.exit_code == code, ended.output
    assert ended.stdout == "" and ended.stderr.startswith("augpipe: ") and ended.stderr.count("\n") == 1, ended.output
    return ended.stderr.removeprefix("augpipe: ").rstrip("\n")


def test_a_first_run(folder: Path) -> None:
    write_files(folder, {"photos/class 1/bad.jpg": b"hello"})
    ended = invoke("photos", "out", "--scales", "32,64", "--on-error", "skip")
    assert ended.exit_code == 0, ended.output
    assert ended.stderr == ""
    lines = re.sub(r"[0-9.]+ kB", "N kB", ended.stdout).splitlines()
    assert lines == [
        "out: 6 photographs of 3 classes",
        "  32: 1 shard, N kB",
        "  64: 1 shard, N kB",
        "  1 photograph rejected: see out/rejects.csv",
        "  report: out/report.html",
    ]
    checked = CliRunner().invoke(app, ["verify", "out", "--deep"])
    assert checked.exit_code == 0 and "all is well" in checked.stdout


def test_settings_reach_the_manifest(folder: Path) -> None:
    options = "--scales full --quality 70 --subsampling 4:4:4 --shard-bytes 2MB --originals never --upscale"
    assert invoke("photos", "out", *options.split(), "--linear-light").exit_code == 0
    manifest = (folder / "out/manifest.json").read_text()
    wanted = ('"quality": 70', '"4:4:4"', '"shard_bytes": 2000000', '"never"', '"upscale": true', '"linear_light": t')
    for text in wanted:
        assert text in manifest, text


def test_typing_it_again(folder: Path) -> None:
    assert invoke("photos", "out").exit_code == 0
    before = tree(folder / "out")
    assert "out holds a finished data set. Name another folder, or remove it" in said("photos", "out", code=2)
    assert "quality: 90 there, 80 asked for" in said("photos", "out", "--resume", "--quality", "80", code=2)
    again = invoke("photos", "out", "--resume")
    assert again.exit_code == 0 and again.stdout.startswith("out: 6 photographs of 3 classes\n")
    assert tree(folder / "out") == before


def test_a_run_that_ended_early_is_resumed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "LocalEngine", lambda num_workers: InlineEngine(stop_before=0))
    ended = invoke("photos", "out")
    assert ended.exit_code == 130 and ended.stdout == ""
    assert "stopped. What is done stays: run the same command with --resume to finish it." in ended.stderr
    message = said("photos", "out", code=2)
    assert message == "out holds an unfinished data set. Pass --resume to finish it, or remove it to start again."
    monkeypatch.setattr(local_engine, "LocalEngine", lambda num_workers: InlineEngine())
    assert invoke("photos", "out", "--resume").exit_code == 0


def test_a_photograph_that_cannot_be_used_ends_the_job(folder: Path) -> None:
    write_files(folder, {"photos/class 1/bad.jpg": b"hello"})
    assert said("photos", "out", code=1) == (
        "class 1/bad.jpg: not a picture: it begins with b'hello', which looks like text; JPEG, PNG, WebP, GIF, BMP and "
        "TIFF are read. Mend it, or pass --on-error skip to go on without such photographs. What is done stays: run "
        "the same command with --resume to finish it."
    )


def test_a_place_that_cannot_be_written(folder: Path) -> None:
    (folder / "file").write_text("")
    assert "file" in said("photos", "file/out", code=1)


def test_without_ray_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert said("photos", "out", "--engine", "ray", code=1) == 'the engine ray needs Ray: pip install "augpipe[ray]"'
    assert ray_engine.RayEngine.__module__ == "augpipe.datasets.prepare.ray_engine"


def test_too_little_room_is_said_before_the_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    ended = invoke("photos", "out")
    assert ended.exit_code == 0
    assert re.fullmatch(r"augpipe: about [0-9.]+ [kM]B will be written, and 1 kB are free at out\n", ended.stderr)
