"""Under lazy, whoever reads weights sees whole ones."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases
from tests.distributed.sync_fence_cases import CASES


@cache
def failures(world_size: int) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return run_cases("tests.distributed.sync_fence_cases", world_size, CASES[world_size], Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "name"), [(size, name) for size, names in CASES.items() for name in names])
def test_fence(world_size: int, name: str) -> None:
    assert not failures(world_size)[name]
