"""Error feedback across steps that are left out, changes of the loss scale, and buckets that are others."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases
from tests.distributed.sync_residual_cases import CASES


@cache
def failures(world_size: int, name: str) -> dict[str, str]:
    """Each by itself: the first failure ends a group of processes."""
    with TemporaryDirectory() as folder:
        return run_cases("tests.distributed.sync_residual_cases", world_size, [name], Path(folder))


@pytest.mark.parametrize(("world_size", "name"), [(size, name) for size, names in CASES.items() for name in names])
def test_residuals(world_size: int, name: str) -> None:
    said = failures(world_size, name)[name]
    assert not said, said
