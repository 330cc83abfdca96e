"""Runs `simulated_kernels.py` under numba's CUDA simulator, which must be chosen before numba is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_kernels_agree_with_the_cpu_in_the_simulator() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    tests = [
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        str(Path(__file__).with_name("simulated_kernels.py")),
    ]
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(
        [sys.executable, *tests], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=230, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    passed = int(done.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert passed > 150 and "skipped" not in done.stdout
