"""Runs whose layers are split among ranks: 2 × 2 and 1 × 4 of them, over Gloo."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases
from tests.distributed.train_parallel_cases import CASES


@cache
def failures() -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return run_cases("tests.distributed.train_parallel_cases", 4, CASES, Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_split_among_ranks(name: str) -> None:
    assert not failures()[name]
