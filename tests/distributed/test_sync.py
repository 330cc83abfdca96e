"""Sync strategies among processes, over Gloo: a table of cases, run by one group of processes for each module and size.

buffers: start as rank 0's, whatever their dtype; codec: encoded exchanges, and what is refused; equal: in fp32 the
weights are DDP's; fault: ranks that differ, hang or die; fence: whoever reads weights under lazy sees whole ones;
group: those that push as one to parameter servers; hook: the butterfly in a plain DDP trainer; hybrid: a step of two
strategies, of a data and a model axis; parallel: networks with split layers; refuse: what would set ranks apart;
residual: error feedback across steps left out; state: saved, resumed, resharded.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.distributed.rank_cases import run_cases

MODULES = (
    "buffer",
    "codec",
    "equal",
    "fault",
    "fence",
    "group",
    "hook",
    "hybrid",
    "objects",
    "parallel",
    "refuse",
    "residual",
    "state",
)
ONE_BY_ONE = ("fault", "refuse", "residual")
"""A group of processes for each case: where one has failed, as it is to, the group is good for nothing afterwards."""
NOT_SLOW = ("residual",)
DEEP: dict[tuple[str, int], tuple[str, ...] | None] = {
    ("parallel", 4): None,
    ("parallel", 6): None,
    ("parallel", 3): ("networks_are_built_without_a_whole_layer",),
    ("equal", 4): None,
    ("equal", 3): ("sgd", "rmsprop", "adamw"),
    ("codec", 2): ("bytes_by_formula", "mixed_dtypes_and_odd_sizes", "not_finite", "nan_in_one_slice"),
    ("hybrid", 4): ("clipped", "overflow_in_one_shard"),
}
"""Cases, None for all, that `make test-deep` alone runs: other numbers of ranks, or "everything", do the same."""

TABLE: list[tuple[str, int, str]] = [
    (subject, world_size, name)
    for subject in MODULES
    for world_size, names in import_module(f"tests.distributed.sync_{subject}_cases").CASES.items()
    for name in names
]


@cache
def failures(subject: str, world_size: int, *names: str) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        return run_cases(f"tests.distributed.sync_{subject}_cases", world_size, list(names), Path(folder))


def is_deep(subject: str, world_size: int, name: str) -> bool:
    names = DEEP.get((subject, world_size), ())
    return names is None or name in names


def marks_of(subject: str, world_size: int, name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.deep] * is_deep(subject, world_size, name) + [pytest.mark.slow] * (subject not in NOT_SLOW)


@pytest.mark.parametrize(("subject", "world_size", "name"), [pytest.param(*row, marks=marks_of(*row)) for row in TABLE])
def test_ranks(subject: str, world_size: int, name: str) -> None:
    group = [row for row in TABLE if row[:2] == (subject, world_size)]
    together = [row[2] for row in group if is_deep(*row) == is_deep(subject, world_size, name)]
    said = failures(subject, world_size, *([name] if subject in ONE_BY_ONE else together))[name]
    if name == "killed_in_the_middle":
        *others, killed = said.split("\nrank ")[1:] or [""]
        assert not others and killed.startswith(f"{world_size - 1}: did not end"), said
    else:
        assert not said, said
