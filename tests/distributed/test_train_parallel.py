"""Runs whose layers are split among ranks: 2 × 2 and 1 × 4 of them, over Gloo."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases
from tests.distributed.train_parallel_cases import CASES

DEEP = ("resumed_on_other_meshes", "encoded")
"""Cases that `make test-deep` alone runs: test_sync and test_parallel_state hold the same of parts."""


@cache
def failures(*names: str) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return run_cases("tests.distributed.train_parallel_cases", 4, list(names), Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) if name in DEEP else name for name in CASES]
)
def test_split_among_ranks(name: str) -> None:
    together = [other for other in CASES if (other in DEEP) == (name in DEEP)]
    assert not failures(*together)[name]
