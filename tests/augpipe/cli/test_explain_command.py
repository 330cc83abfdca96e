"""`augpipe explain`: a table and a sentence, or JSON, for a folder and a recipe; with a model that takes its time."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from augpipe import Recipe, ops
from augpipe.cli.app import app

QUICK = ["--size", "32", "--batch-size", "2", "--seconds", "0.5"]


@pytest.mark.slow
def test_it_names_a_stage_and_advises(photos_dir: Path, tmp_path: Path) -> None:
    blurred = tmp_path / "blurred.toml"
    Recipe(ops=[ops.CenterCrop(size=64, scale=64), ops.GaussianBlur(sigma_px=(8, 8), p=1)]).dump(blurred)
    quick = ["--batch-size", "2", "--seconds", "0.5"]
    ended = CliRunner().invoke(app, ["explain", str(photos_dir), "--recipe", str(blurred), *quick])
    assert ended.exit_code == 0, ended.output
    lines = ended.stdout.splitlines()
    assert "images/s if it took no time" in lines[0]
    assert sum("<- the bottleneck" in line for line in lines) == 1
    assert {line.split()[0] for line in lines[1:-3]} >= {"decoding", "map", "program"}
    # what the command itself does between two batches is seen where the machine is busy
    assert re.search("(there is no consumer|the consumer waits for 9[0-9]% of it)$", lines[-2])
    assert " takes " in lines[-1]


@pytest.mark.slow
def test_a_slow_model_sets_the_pace(photos_dir: Path) -> None:
    ended = CliRunner().invoke(app, ["explain", str(photos_dir), *QUICK, "--step-ms", "200", "--json"])
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)
    assert found["bottleneck"] == "consumer" and found["waited"] < 0.2 and found["change"] == {}
    assert found["images_per_s"] == pytest.approx(2 / 0.2, rel=0.5)
    assert found["stages"][-1]["share"] == pytest.approx(1.0 - found["waited"], abs=0.01)
