"""A script run by several processes, one a rank."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def run_script(script: str, arguments: list[Any], flags: tuple[str, ...] = ()) -> list[str]:
    """What each rank prints, given its item of `arguments` as JSON; a rank's traceback is in the failure."""
    ranks = [
        subprocess.Popen(
            [sys.executable, *flags, "-c", script, json.dumps(of_rank)],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for of_rank in arguments
    ]
    try:
        ended = [process.communicate(timeout=TIMEOUT_S) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    problems = [f"rank {rank}:\n{err}" for rank, (_, err) in enumerate(ended) if ranks[rank].returncode]
    if problems:
        pytest.fail("\n".join(problems))
    return [out for out, _ in ended]
