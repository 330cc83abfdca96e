"""An overflow on one rank in fp16 leaves the step out on all, and all lower their scale."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases
from tests.distributed.train_amp_cases import CASES


@cache
def failures() -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return run_cases("tests.distributed.train_amp_cases", 2, CASES, Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_ranks_overflow_is_everyones(name: str) -> None:
    assert not failures()[name]
