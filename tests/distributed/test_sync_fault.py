"""Ranks that differ are refused by a handshake; a rank that hangs or dies ends the others in time, with a message."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases
from tests.distributed.sync_fault_cases import CASES


@cache
def failures(name: str) -> dict[str, str]:
    """A group of processes for each: it is good for nothing afterwards."""
    with TemporaryDirectory() as folder:
        return run_cases(
            "tests.distributed.sync_fault_cases", 3 if "killed" in name else 2, [name], Path(folder), timeout_s=50
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_fault(name: str) -> None:
    said = failures(name)[name]
    if name == "killed_in_the_middle":
        assert "rank 0" not in said
        assert "rank 1" not in said
        assert "rank 2: did not end" in said
    else:
        assert not said
