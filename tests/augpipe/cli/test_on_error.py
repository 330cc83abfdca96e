"""What is done about a photograph that cannot be used: one option, one default, for all commands and calls."""

import inspect
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


@pytest.mark.parametrize("options", [("--on-error", "skip"), ("--skip-bad",)])
def test_the_old_name_of_skip_still_works_and_says_the_new_one(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/bad.jpg").write_bytes(b"hello")
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "photos/good.jpg")
    arguments = ["preview", str(tmp_path / "photos"), "--size", "8", "--scale", "8", "-o", str(tmp_path / "sheet.png")]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 1 and "Pass --on-error skip" in refused.stderr
    ended = CliRunner().invoke(app, [*arguments, *options])
    assert ended.exit_code == 0, ended.output
    assert ("--skip-bad is called --on-error skip now" in ended.stderr) == (options == ("--skip-bad",))
