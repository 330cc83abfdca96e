"""Networks whose layers are split, among processes over Gloo: their files, their checkpoints, and what goes wrong."""

from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases

MODULES = ("state", "checkpoint")

TABLE: list[tuple[str, int, str]] = [
    (subject, world_size, name)
    for subject in MODULES
    for world_size, names in import_module(f"tests.distributed.parallel_{subject}_cases").CASES.items()
    for name in names
]


@cache
def failures(subject: str, world_size: int, *names: str) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return run_cases(f"tests.distributed.parallel_{subject}_cases", world_size, list(names), Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize(("subject", "world_size", "name"), TABLE)
def test_ranks(subject: str, world_size: int, name: str) -> None:
    together = [other for of, size, other in TABLE if (of, size) == (subject, world_size)]
    said = failures(subject, world_size, *together)[name]
    assert not said, said
