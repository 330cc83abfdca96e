"""What is done about a photograph that cannot be used: one option, one default, for all commands and calls."""

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from PIL import Image
from typer.testing import CliRunner

from augpipe import Loader
from augpipe.bench.measurements import measure
from augpipe.cli.app import app
from augpipe.datasets.prepare.prepare import prepare
from augpipe.preview import by_op, over_epochs
from augpipe.trainer.config.tables import DataConfig

COMMANDS = {"preview": "raise", "bench": "raise", "stats": "raise", "prepare": "raise", "evaluate": None}
"""Evaluation does as the run's config says, whose default is "raise"."""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_one_option_with_one_default(command: str) -> None:
    group: Any = typer.main.get_command(app)
    options = {name: option for option in group.commands[command].params for name in option.opts}
    assert options["--on-error"].default == COMMANDS[command]
    assert "--skip-bad" not in options or options["--skip-bad"].hidden


@pytest.mark.parametrize("call", [Loader, over_epochs, by_op, measure, prepare])
def test_calls_have_the_same_default(call: Any) -> None:
    assert inspect.signature(call).parameters["on_error"].default == "raise" == DataConfig(source="x").on_error


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of one photograph, and of a file that is none."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/bad.jpg").write_bytes(b"hello")
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "photos/good.jpg")
    return tmp_path / "photos"


@pytest.mark.slow
def test_the_new_way_to_skip_says_nothing_of_the_old_one(photos: Path) -> None:
    arguments = ["preview", str(photos), "--size", "8", "--scale", "8", "-o", str(photos.parent / "sheet.png")]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 1 and "Pass --on-error skip" in refused.stderr
    ended = CliRunner().invoke(app, [*arguments, "--on-error", "skip"])
    assert ended.exit_code == 0, ended.output
    assert "--skip-bad" not in ended.output


@pytest.mark.parametrize("shown", ["ignore", "error"])
@pytest.mark.parametrize("command", ["preview", "stats"])
def test_the_old_way_to_skip_works_and_one_line_says_the_new_one_and_when_it_ends(
    command: str, shown: Any, photos: Path
) -> None:
    options = {"preview": ["--size", "8", "--scale", "8", "-o", str(photos.parent / "sheet.png")], "stats": ["--json"]}
    with warnings.catch_warnings():
        warnings.simplefilter(shown, DeprecationWarning)  # Python hides it by default; PYTHONWARNINGS=error raises
        ended = CliRunner().invoke(app, [command, str(photos), "--skip-bad", *options[command]])
    assert ended.exit_code == 0, ended.output
    line = "augpipe: warning: --skip-bad is deprecated and ends in augpipe 0.2. Write --on-error skip instead."
    assert ended.stderr.splitlines().count(line) == 1
    assert ended.stderr.count("--skip-bad") == 1


def test_the_old_way_to_skip_is_told_where_nothing_had_to_be_skipped(photos: Path) -> None:
    (photos / "bad.jpg").unlink()
    ended = CliRunner().invoke(app, ["stats", str(photos), "--skip-bad", "--json"])
    assert ended.exit_code == 0 and "--skip-bad is deprecated" in ended.stderr
