"""Buffers of dtypes that Gloo does not know."""

from pathlib import Path

import pytest

from tests.distributed.rank_cases import run_cases
from tests.distributed.sync_buffer_cases import CASES


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "name"), [(size, name) for size, names in CASES.items() for name in names])
def test_buffers(world_size: int, name: str, tmp_path: Path) -> None:
    assert not run_cases("tests.distributed.sync_buffer_cases", world_size, [name], tmp_path)[name]
