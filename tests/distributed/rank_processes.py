"""A script run by several processes, one a rank."""

import json
from typing import Any

import pytest

from tests.distributed.forked_python import ForkedPython

TIMEOUT_S = 120


def run_script(script: str, arguments: list[Any], flags: tuple[str, ...] = ()) -> list[str]:
    """What each rank prints, given its item of `arguments` as JSON; a rank's traceback is in the failure."""
    ranks = [ForkedPython([*flags, "-c", script, json.dumps(of_rank)]) for of_rank in arguments]
    try:
        ended = [process.communicate(timeout=TIMEOUT_S) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    problems = [f"rank {rank}:\n{err}" for rank, (_, err) in enumerate(ended) if ranks[rank].returncode]
    if problems:
        pytest.fail("\n".join(problems))
    return [out for out, _ in ended]
