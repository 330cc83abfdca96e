"""Networks whose layers are split, among processes over Gloo: a table of cases, run by one group of processes for each
module and size.

checkpoint: saved by parts, taken up by other model ranks; evaluate: as the whole network; fault: ranks that differ or
die, and what is not finite; state: files of weights, and which layers train.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases

MODULES = ("checkpoint", "evaluate", "fault", "state")
ONE_BY_ONE = ("fault",)
"""A group of processes for each case: where one has failed, as it is to, the group is good for nothing afterwards."""

DEEP = (("checkpoint", 4),)
"""Groups that `make test-deep` alone starts: fewer ranks do the same in every run."""

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
@pytest.mark.parametrize(
    ("subject", "world_size", "name"),
    [pytest.param(*row, marks=pytest.mark.deep if row[:2] in DEEP else ()) for row in TABLE],
)
def test_ranks(subject: str, world_size: int, name: str) -> None:
    together = [other for of, size, other in TABLE if (of, size) == (subject, world_size)]
    said = failures(subject, world_size, *([name] if subject in ONE_BY_ONE else together))[name]
    if name == "killed_in_an_exchange":
        *others, killed = said.split("\nrank ")[1:] or [""]
        assert not others and killed.startswith(f"{world_size - 1}: did not end"), said
    else:
        assert not said, said
