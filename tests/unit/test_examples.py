"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("script", "expected"),
    [("train_loop.py", "epoch 1: mean loss"), ("torch_dataset.py", "(4, 3, 64, 64) torch.float32")],
)
def test_the_example_runs(script: str, expected: str) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_every_example_is_run() -> None:
    # in tests/dali and tests/packaging
    elsewhere = {"dali_pipeline.py", "ddp_hook.py", "hf_trainer.py", "lightning_fit.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"train_loop.py", "torch_dataset.py"} | elsewhere
