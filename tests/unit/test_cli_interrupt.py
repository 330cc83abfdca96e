"""Ctrl-C: every command says one line and exits with 130, whatever typer makes of an interrupt."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from augpipe.cli.errors import Group

ROOT = Path(__file__).resolve().parents[2]

WAITS_FOR_ITS_SOURCE = """
import time, pathlib
import augpipe.datasets.open as room
def wait(path):
    pathlib.Path("started").touch()
    time.sleep(60)
room.open_source = wait
from augpipe.cli.app import main
main()
"""


@pytest.mark.parametrize("command", ["stats", "preview", "bench"])
def test_an_interrupted_command_says_so(command: str, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", WAITS_FOR_ITS_SOURCE, command, "photos"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        give_up = time.monotonic() + 60
        while not (tmp_path / "started").exists() and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        try:
            said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, *said) == (130, "", "augpipe: interrupted\n")


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
