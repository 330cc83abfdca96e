"""Ctrl-C: every command says one line and exits with 130, whatever typer makes of an interrupt."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import typer

from augpipe.cli.exit_codes import Group
from tests.child_path import child_path

ROOT = Path(__file__).resolve().parents[3]

WAITS_FOR_ITS_SOURCE = """
import time, pathlib
import augpipe.datasets.open as room
def wait(path, **options):
    pathlib.Path("started").touch()
    time.sleep(60)
room.open_source = wait
from augpipe.cli.app import main
main()
"""

WAITS_WHILE_IT_IS_IMPORTED = """
import pathlib, time
pathlib.Path("started").touch()
time.sleep(60)
"""


def interrupted(folder: Path, *arguments: str, first: Path = ROOT) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of Python, interrupted in `folder` once a file `started` is there.

    Its modules are looked for in `first`, then in the project.
    """
    environment = {**os.environ, "PYTHONPATH": child_path(first)}
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        give_up = time.monotonic() + 60
        while not (folder / "started").exists() and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        try:
            said = process.communicate(timeout=30)
        finally:
            process.kill()
    return process.returncode, *said


@pytest.mark.parametrize("command", ["stats", "preview", "bench"])
def test_an_interrupted_command_says_so(command: str, tmp_path: Path) -> None:
    said = interrupted(tmp_path, "-c", WAITS_FOR_ITS_SOURCE, command, "photos")
    assert said == (130, "", "augpipe: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        ("-m augpipe preview photos", "typer"),
        ("-m augpipe preview photos", "numpy"),
        ("-c import\tsys;from\taugpipe.__main__\timport\tmain;sys.exit(main()) stats photos", "typer"),
        ("-m augpipe train run.toml", "torch"),
        ("-m augpipe.trainer run.toml", "pydantic"),
        ("-m augpipe.trainer run.toml", "torch"),
    ],
)
def test_it_may_come_while_modules_are_loading(arguments: str, module: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\nsource = "photos"\n')
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{module}.py").write_text(WAITS_WHILE_IT_IS_IMPORTED)
    said = interrupted(tmp_path, *arguments.split(" "), first=tmp_path / "modules")
    assert said == (130, "", "augpipe: interrupted\n")


def test_nothing_that_takes_long_is_loaded_before_an_interrupt_is_expected() -> None:
    code = "import augpipe.__main__, augpipe.trainer, sys; print(sorted(sys.modules))"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": child_path()}
    modules = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment).stdout
    assert "'augpipe.trainer'" in modules
    assert not [name for name in ("numpy", "numba", "pydantic", "typer", "torch") if f"'{name}'" in modules]


def test_the_installed_command_is_the_one_that_expects_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"augpipe": "augpipe.__main__:main"}


def test_a_command_may_say_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer(cls=Group)

    @app.command()
    def stop() -> None:
        raise KeyboardInterrupt("stopped. Go on with --resume.")

    @app.command()
    def other() -> None:
        raise KeyboardInterrupt

    for arguments, line in ((["stop"], "stopped. Go on with --resume."), (["other"], "interrupted")):
        with pytest.raises(SystemExit) as ended:
            app(arguments)
        assert ended.value.code == 130
        assert tuple(capsys.readouterr()) == ("", f"augpipe: {line}\n")
