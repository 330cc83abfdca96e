"""butterfly and lazy in fp32 end with DDP's weights: to the last bit with two ranks, to rounding with more."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases
from tests.distributed.sync_equal_cases import CASES


@cache
def failures(world_size: int) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return run_cases("tests.distributed.sync_equal_cases", world_size, CASES[world_size], Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "name"), [(size, name) for size, names in CASES.items() for name in names])
def test_weights_after_20_steps_are_those_of_ddp(world_size: int, name: str) -> None:
    assert not failures(world_size)[name]
