"""An evaluation by several ranks is that of one with all images, and leaves the model as it was."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases
from tests.distributed.train_evaluate_cases import CASES


@cache
def failures(world_size: int) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return run_cases("tests.distributed.train_evaluate_cases", world_size, CASES[world_size], Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "name"), [(size, name) for size, names in CASES.items() for name in names])
def test_an_evaluation(world_size: int, name: str) -> None:
    assert not failures(world_size)[name]
