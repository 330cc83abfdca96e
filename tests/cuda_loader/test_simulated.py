"""Runs the loader's tests on a simulated device, in an interpreter whose numba simulates CUDA."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NUM_TESTS = {"simulated_loader.py": 64}
"""At least so many pass, or are skipped where DALI is not installed: none that was lost passes unseen."""


@pytest.mark.parametrize("name", NUM_TESTS)
def test_on_a_simulated_device(name: str) -> None:
    command = [sys.executable, "-m", "pytest", f"tests/cuda_loader/{name}", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True, timeout=220
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = sum(int(num) for num in re.findall(r"(\d+) (?:passed|skipped)", ended.stdout))
    assert found >= NUM_TESTS[name], ended.stdout
